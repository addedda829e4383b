//! Inspections of a store change nothing of it, and tell what an open would find.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use support::*;
use walrus_log::{Error, Offset, Options, inspect, verify};

fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect()
}

fn copy_of(directory: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for (name, bytes) in contents(directory) {
        fs::write(copy.path().join(name), bytes).unwrap();
    }
    copy
}

fn options() -> Options {
    Options { blocks_per_file: 8, ..Options::small() }
}

/// Makes a store with two logs, one of them sealed, over several blocks.
fn fill(directory: &Path) {
    let store = open(directory, &options());
    let logs = [store.create_log(spec(1, "orders")).unwrap(), store.create_log(spec(2, "done")).unwrap()];
    for i in 0..120 {
        append(&logs[0], &numbered(i, 1000)).unwrap();
    }
    for i in 0..5 {
        append(&logs[1], &numbered(i, 100)).unwrap();
    }
    logs[0].cursor("reader").unwrap().seek(Offset(7)).unwrap();
    logs[0].delete_before(Offset(3)).unwrap();
    logs[1].seal(b"value").unwrap();
    store.drain();
    store.close().unwrap();
}

#[test]
fn a_look_changes_nothing_and_tells_what_is_there() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    let before = contents(directory.path());
    let seen = inspect(directory.path()).unwrap();
    let verified = verify(directory.path()).unwrap();
    assert!(contents(directory.path()) == before);
    assert_eq!(verified.inspection, seen);
    // Trimmed records stay in a block that still holds others.
    let stored: u64 = seen.logs.iter().map(|log| log.size_bytes).sum();
    assert_eq!(verified.batches, 122);
    assert!(verified.bytes < stored, "{} of {stored}", verified.bytes);
    assert!(seen.report.clean);
    assert_eq!(seen.block_bytes, 64 << 10);
    let [orders, done] = &seen.logs[..] else { panic!("{seen:?}") };
    assert_eq!((&orders.name[..], orders.start, orders.end), ("orders", Offset(3), Offset(120)));
    assert_eq!(orders.cursors, [("reader".to_owned(), Offset(7))]);
    assert!(orders.blocks.len() >= 2 && !orders.is_sealed && !orders.is_suspect);
    assert!(orders.blocks.is_sorted_by_key(|block| block.base_offset));
    assert!(orders.blocks.iter().all(|block| block.path.ends_with(".wal")));
    assert_eq!(
        (&done.name[..], done.end, done.is_sealed, &done.damaged[..]),
        ("done", Offset(5), true, &[][..])
    );
}

#[test]
fn damage_is_found_by_reading_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    let path = directory.path().join("00000001.wal");
    let value = numbered(20, 1000);
    let at = fs::read(&path).unwrap().windows(1000).position(|window| window == value).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[!value[500]], at as u64 + 500).unwrap();
    let before = contents(directory.path());
    assert_eq!(inspect(directory.path()).unwrap().logs[0].damaged, []);
    let verified = verify(directory.path()).unwrap();
    assert_eq!(verified.inspection.logs[0].damaged, [(Offset(20), Offset(21))]);
    assert!(contents(directory.path()) == before);
}

#[test]
fn a_torn_tail_is_told_but_not_cut() {
    // The directory of a store that is still open is what a kill leaves.
    let directory = {
        let living = tempfile::tempdir().unwrap();
        let store = open(living.path(), &options());
        let log = store.create_log(spec(1, "a")).unwrap();
        for i in 0..3 {
            append(&log, &numbered(i, 500)).unwrap();
        }
        store.drain();
        copy_of(living.path())
    };
    let path = directory.path().join("00000001.wal");
    let value = numbered(2, 500);
    let end = fs::read(&path).unwrap().windows(500).position(|window| window == value).unwrap() + 500;
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"half of a batch", end as u64 + 20).unwrap();
    let before = contents(directory.path());
    let seen = inspect(directory.path()).unwrap();
    assert_eq!(seen.report.torn_tails.len(), 1);
    assert_eq!((seen.logs[0].end, seen.logs[0].is_suspect), (Offset(3), true));
    assert!(contents(directory.path()) == before);
    // An open finds what the inspection told.
    assert_eq!(open(directory.path(), &options()).report().torn_tails, seen.report.torn_tails);
    assert_eq!(verify(directory.path()).unwrap().batches, 3);
}

#[test]
fn what_is_no_store_or_in_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused = inspect(directory.path());
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    assert!(contents(directory.path()).is_empty());
    assert!(inspect(directory.path().join("none")).is_err());
    let store = open(directory.path(), &options());
    assert!(matches!(verify(directory.path()), Err(Error::Locked { .. })));
    drop(store);
    assert_eq!(verify(directory.path()).unwrap().batches, 0);
}
