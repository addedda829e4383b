//! Retention: logs forget records by trim, age, size and consumption, but never held ones, and give their space back.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use support::*;
use walrus_log::{
    Error, Floor, FloorReason, FsyncSchedule, Log, Offset, Options, Retention, SimulatedDisk, Store,
    TailKind, Walrus,
};

fn fill(log: &Log, count: u64) {
    let from = log.end_offset().0;
    for number in from..from + count {
        append(log, &numbered(number, 1000)).unwrap();
    }
}

/// Appends the values as one batch.
fn fill_at_once(log: &Log, count: u64) {
    let from = log.end_offset().0;
    let values: Vec<_> = (from..from + count).map(|number| numbered(number, 1000)).collect();
    let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    append_all(log, &values).unwrap();
}

fn store() -> (Store, Log) {
    let store = open_on(&SimulatedDisk::new(TailKind::Buffered), &Options::small()).unwrap();
    let log = store.create_log(spec(1, "t")).unwrap();
    (store, log)
}

fn at(offset: u64, reason: FloorReason) -> Floor {
    Floor { offset: Offset(offset), reason }
}

fn held(by: &str) -> FloorReason {
    FloorReason::Held { by: by.to_owned() }
}

#[test]
fn a_trim_stops_at_what_is_held_and_goes_on_when_it_is_let_go() {
    let (store, log) = store();
    fill(&log, 300);
    assert_eq!(log.floor(), at(0, FloorReason::Nothing));
    let hold = log.hold("a reader", Offset(40));
    assert_eq!(log.trim(Offset(100)).unwrap(), at(40, held("a reader")));
    assert_eq!(log.start_offset(), Offset(40));
    hold.advance(Offset(90));
    store.drain();
    assert_eq!(log.start_offset(), Offset(90));
    drop(hold);
    store.drain();
    assert_eq!((log.start_offset(), log.floor()), (Offset(100), at(100, FloorReason::Nothing)));
    assert_eq!(log.trim(Offset(50)).unwrap(), at(100, FloorReason::Nothing));
    assert!(matches!(log.trim(Offset(301)), Err(Error::OffsetOutOfRange { .. })));
    assert_eq!(values(&log), (100..300).map(|number| numbered(number, 1000)).collect::<Vec<_>>());
}

#[test]
fn a_log_keeps_the_bytes_that_it_should_and_hardly_more() {
    let (store, log) = store();
    log.set_retention(Retention { bytes: Some(200 << 10), ..Retention::default() });
    for _ in 0..20 {
        fill(&log, 100);
        store.drain();
        let size = log.size_bytes();
        assert!(log.end_offset().0 < 250 || (200 << 10..=340 << 10).contains(&size), "{size}");
    }
    assert!(log.start_offset() > Offset(1500));
    assert!(values(&log).len() < 300);
}

#[test]
fn what_is_old_goes_but_for_the_block_that_grows() {
    let (store, log) = store();
    fill(&log, 200);
    log.set_retention(Retention { age: Some(Duration::from_secs(3600)), ..Retention::default() });
    store.drain();
    // The batches are from 1970, so all but the last block go.
    let start = log.start_offset();
    assert!(start > Offset(100) && start < Offset(200), "{start}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    for number in 200..400 {
        let value = numbered(number, 1000);
        let bytes = batch_by(&[&value], None, now.as_millis() as i64);
        let (batch, _) = walrus_log::batch::Batch::parse(&bytes).unwrap();
        log.append(&batch).unwrap().commit.wait().unwrap();
    }
    store.drain();
    // The block with the first young records stays, and so do the old records in it.
    assert!(log.start_offset() < Offset(200));
    assert_eq!(log.floor().reason, FloorReason::Nothing);
}

#[test]
fn consumed_records_go_when_all_who_count_have_passed_them_unless_a_cursor_is_pinned() {
    let (store, log) = store();
    fill(&log, 300);
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let consumed_by = names(&["a", "b"]);
    log.set_retention(Retention { consumed_by, pinned_by: names(&["p"]), ..Retention::default() });
    let [a, b, p, other] = ["a", "b", "p", "other"].map(|name| log.cursor(name).unwrap());
    a.seek(Offset(200)).unwrap();
    other.seek(Offset(300)).unwrap();
    assert_eq!(log.floor(), at(0, FloorReason::Nothing), "b has consumed nothing");
    b.seek(Offset(150)).unwrap();
    assert_eq!(log.floor(), at(0, held("p")));
    // The background moves the start to the floor only where that frees a block. It may come late: it is awaited, for
    // a start that has come to the floor leaves no rule to name.
    p.seek(Offset(140)).unwrap();
    store.drain();
    assert_eq!((log.start_offset(), log.floor()), (Offset(140), at(140, held("p"))));
    p.seek(Offset(299)).unwrap();
    store.drain();
    assert_eq!((log.start_offset(), log.floor()), (Offset(140), at(150, FloorReason::Consumed)));
    while b.position() < Offset(250) {
        b.batch_read(10_000, true).unwrap();
    }
    store.drain();
    assert!(log.start_offset() > Offset(100) && log.start_offset() <= Offset(200), "{}", log.start_offset());
    assert_eq!(a.read_next(true).unwrap().unwrap().offset, Offset(200));
}

#[test]
fn a_walrus_keeps_its_retention_for_every_topic() {
    let directory = tempfile::tempdir().unwrap();
    let retention = Retention { consumed_by: vec!["default".to_owned()], ..Retention::default() };
    let options = Options { fsync: FsyncSchedule::NoFsync, ..Options::small() };
    let builder = Walrus::builder().data_dir(directory.path()).options(options).retention(retention);
    for _ in 0..2 {
        let walrus = builder.clone().build().unwrap();
        for number in 0..500 {
            walrus.append_for_topic("t", &numbered(number, 1000)).unwrap();
        }
        while !walrus.batch_read_for_topic("t", 100_000, true, None).unwrap().is_empty() {}
        walrus.store().drain();
        assert!(walrus.get_topic_size("t") <= 64 << 10, "{}", walrus.get_topic_size("t"));
    }
}

/// The bytes that the directory's files take of the disk, and the number of descriptors and mappings that this process has
/// of them.
fn used(directory: &Path) -> (u64, usize) {
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().metadata().unwrap());
    let bytes = files.map(|file| file.blocks() * 512).sum();
    let is_ours = |path: &Path| path.starts_with(directory);
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    let open =
        descriptors.filter(|fd| fs::read_link(fd.as_ref().unwrap().path()).is_ok_and(|path| is_ours(&path)));
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| line.contains(directory.to_str().unwrap()));
    (bytes, open.count() + mapped.count())
}

#[test]
fn a_long_life_of_appends_and_trims_keeps_space_and_handles_flat() {
    for options in all_options() {
        let directory = tempfile::tempdir().unwrap();
        let mut life = 0_u32;
        // Space and handles must stay flat over several opens too.
        for _ in 0..3 {
            let store = open(directory.path(), &options);
            let logs = [1, 2].map(|id| store.create_log(spec(id, "t")).unwrap());
            for _ in 0..effort(1) {
                for round in 0..8 {
                    let log = &logs[round % 2];
                    for _ in 0..5 {
                        fill_at_once(log, 40);
                        life += 40;
                    }
                    log.trim(Offset(log.end_offset().0.saturating_sub(150))).unwrap();
                }
                let short = store.create_log(spec(u128::from(life) + 10, "short")).unwrap();
                fill_at_once(&short, 50);
                fill_at_once(&short, 30);
                store.delete_log(short.id()).unwrap();
                store.drain();
                let (bytes, handles) = used(directory.path());
                // Space is needed for two logs of 150 records and a block each, for blocks made ready, and the journal.
                let most = 8 * (64 << 10) + (1 << 20);
                assert!(bytes <= most, "{options:?}: {bytes} bytes after {life} records");
                let files = store.stats().files as usize;
                assert!(files <= 6, "{options:?}: {files} files after {life} records");
                // Each file of blocks has at most two handles; the others are of the journal, its spare, END and the lock.
                assert!(handles <= 2 * files + 7, "{options:?}: {handles} handles of {files} files");
            }
            assert!(logs.iter().all(|log| values(log).len() <= 200));
        }
        assert!(life > 2_500);
    }
}
