//! Cursors: each entry is given once, also to readers at the same time and over restarts.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::*;
use walrus_log::{Error, Offset, Options, SimulatedDisk, Store, TailKind, Walrus};

fn walrus(disk: &SimulatedDisk) -> Walrus {
    Walrus::on(open_on(disk, &Options::small()).unwrap()).unwrap()
}

fn data(number: u64) -> Vec<u8> {
    numbered(number, 300)
}

#[test]
fn consumed_entries_stay_consumed_and_polls_at_the_end_change_nothing() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    {
        let walrus = walrus(&disk);
        assert_eq!(walrus.read_next("t", true).unwrap(), None);
        assert!(walrus.topics().is_empty());
        for i in 0..10 {
            assert_eq!(walrus.append_for_topic("t", &data(i)).unwrap(), Offset(i));
        }
        for i in 0..10 {
            assert_eq!(walrus.read_next("t", false).unwrap().unwrap().data, data(i));
            assert_eq!(walrus.read_next("t", true).unwrap().unwrap().data, data(i));
        }
        for _ in 0..3 {
            assert_eq!(walrus.read_next("t", true).unwrap(), None);
        }
    }
    let walrus = walrus(&disk);
    assert_eq!(walrus.read_next("t", true).unwrap(), None);
    walrus.append_for_topic("t", &data(10)).unwrap();
    assert_eq!(walrus.read_next("t", true).unwrap().unwrap().data, data(10));
}

#[test]
fn readers_of_one_cursor_never_get_the_same_entry() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let walrus = walrus(&disk);
    for i in 0..50 {
        let entries: Vec<_> = (0..20).map(|j| data(i * 20 + j)).collect();
        let slices: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
        walrus.batch_append_for_topic("t", &slices).unwrap();
    }
    let seen = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for reader in 0..4 {
            let (walrus, seen) = (&walrus, &seen);
            scope.spawn(move || {
                loop {
                    let entries = if reader % 2 == 0 {
                        walrus.read_next("t", true).unwrap().into_iter().collect()
                    } else {
                        walrus.batch_read_for_topic("t", 1000, true, None).unwrap()
                    };
                    if entries.is_empty() {
                        break;
                    }
                    for entry in entries {
                        assert_eq!(entry.data, data(entry.offset.0));
                        seen.lock().unwrap().push(entry.offset.0);
                    }
                }
            });
        }
    });
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), 1000);
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>().len(), 1000);
}

#[test]
fn a_batch_read_keeps_its_budget_and_a_start_offset_moves_no_cursor() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let walrus = walrus(&disk);
    for i in 0..100 {
        walrus.append_for_topic("t", &data(i)).unwrap();
    }
    assert_eq!(walrus.batch_read_for_topic("t", 1000, true, None).unwrap().len(), 3);
    assert_eq!(walrus.batch_read_for_topic("t", 0, true, None).unwrap().len(), 1);
    let at = walrus.batch_read_for_topic("t", 1000, true, Some(Offset(50))).unwrap();
    assert_eq!(at.iter().map(|entry| entry.offset.0).collect::<Vec<_>>(), [50, 51, 52]);
    assert_eq!(walrus.read_next("t", false).unwrap().unwrap().offset, Offset(4));
    assert!(matches!(
        walrus.batch_read_for_topic("t", 1, true, Some(Offset(101))),
        Err(Error::OffsetOutOfRange { .. })
    ));
    assert!(walrus.batch_read_for_topic("t", 1, true, Some(Offset(100))).unwrap().is_empty());
}

#[test]
fn cursors_have_names_can_be_moved_and_follow_trims_and_truncations() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    {
        let walrus = walrus(&disk);
        for i in 0..100 {
            walrus.append_for_topic("t", &data(i)).unwrap();
        }
        let (a, b) = (walrus.cursor("t", "a").unwrap(), walrus.cursor("t", "b").unwrap());
        a.seek(Offset(40)).unwrap();
        assert_eq!(a.read_next(true).unwrap().unwrap().offset, Offset(40));
        assert_eq!(b.read_next(true).unwrap().unwrap().offset, Offset(0));
        assert!(matches!(a.seek(Offset(101)), Err(Error::OffsetOutOfRange { .. })));
        let log = walrus.topic("t").unwrap().log().clone();
        log.delete_before(Offset(20)).unwrap();
        assert_eq!(b.read_next(true).unwrap().unwrap().offset, Offset(20));
        log.truncate_to(Offset(30)).unwrap();
        assert_eq!(a.read_next(true).unwrap(), None);
        walrus.append_for_topic("t", &data(777)).unwrap();
        assert_eq!(a.read_next(true).unwrap().unwrap().data, data(777));
        log.delete_cursor("b").unwrap();
        assert_eq!(log.cursors(), [("a".to_owned(), Offset(31))]);
    }
    let walrus = walrus(&disk);
    assert_eq!(walrus.cursor("t", "a").unwrap().position(), Offset(31));
    assert_eq!(walrus.cursor("t", "b").unwrap().position(), Offset(20));
}

#[test]
fn batches_have_limits() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let walrus = walrus(&disk);
    let entries: Vec<&[u8]> = vec![b"x"; 2001];
    assert!(matches!(
        walrus.batch_append_for_topic("t", &entries),
        Err(Error::TooManyEntries { entries: 2001, .. })
    ));
    assert_eq!(walrus.batch_append_for_topic("t", &entries[1..]).unwrap(), Offset(0)..Offset(2000));
    assert_eq!(walrus.batch_append_for_topic("t", &[]).unwrap(), Offset(2000)..Offset(2000));
    assert!(matches!(walrus.append_for_topic(&"x".repeat(300), b"x"), Err(Error::InvalidName { .. })));
    assert!(walrus.append_for_topic("", b"x").is_err());
    assert_eq!(walrus.batch_read_for_topic("t", usize::MAX, true, None).unwrap().len(), 2000);
}

#[test]
fn many_cursor_moves_keep_the_journal_small() {
    let directory = tempfile::tempdir().unwrap();
    let walrus = Walrus::open(
        directory.path(),
        Options { fsync: walrus_log::FsyncSchedule::NoFsync, ..Options::small() },
    )
    .unwrap();
    for _ in 0..20 {
        let entries: Vec<&[u8]> = vec![b"x"; 500];
        walrus.batch_append_for_topic("t", &entries).unwrap();
    }
    for i in 0..10_000 {
        assert_eq!(walrus.read_next("t", true).unwrap().unwrap().offset, Offset(i));
    }
    let store: &Store = walrus.store();
    store.drain();
    let journals = std::fs::read_dir(directory.path()).unwrap().map(Result::unwrap);
    let bytes: u64 = journals
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("journal-"))
        .map(|entry| entry.metadata().unwrap().len())
        .sum();
    assert!(bytes < 512 << 10, "{bytes}");
    walrus.close().unwrap();
    drop(walrus);
    let walrus = Walrus::open(directory.path(), Options::small()).unwrap();
    assert_eq!(walrus.read_next("t", true).unwrap(), None);
}

/// A reader that had its entry in hand while the log was cut below it once stored its place behind the cut.
#[test]
fn no_cursor_is_left_behind_the_end_by_a_truncation() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &Options::small()).unwrap();
        let log = store.create_log(spec(1, "t")).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let cursor = log.cursor("c").unwrap();
                while !is_over.load(Ordering::Acquire) {
                    cursor.read_next(true).unwrap();
                }
            });
            let mut end = 0;
            for round in 0..effort(300) {
                for i in 0..4 {
                    append(&log, &data(round * 10 + i)).unwrap();
                }
                end += 4;
                thread::yield_now();
                end -= round % 4;
                log.truncate_to(Offset(end)).unwrap();
                let stored = log.cursors().first().map_or(Offset(0), |(_, at)| *at);
                assert!(stored <= Offset(end), "{stored} of {end}");
            }
            is_over.store(true, Ordering::Release);
        });
    }
}
