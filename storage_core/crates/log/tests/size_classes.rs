//! Size classes of blocks, which follow the rate of their log: many small logs take little space, and a hot one gets large
//! blocks. Logs of every class, and of every schedule beside each other, are found again.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::collections::BTreeSet;
use std::fs;

use support::*;
use walrus_log::{CrashChoice, FsyncSchedule, LogSpec, Offset, Options, SimulatedDisk, Store, TailKind};

fn log_spec(id: u128, fsync: Option<FsyncSchedule>) -> LogSpec {
    LogSpec { fsync, ..spec(id, "log") }
}

/// Size classes of the files of blocks, as their names tell them: `-64k`, or nothing for the store's own size.
fn classes(directory: &std::path::Path) -> BTreeSet<String> {
    let names =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let class = |name: String| name.strip_suffix(".wal").map(|stem| stem[8..].to_owned());
    names.filter_map(class).collect()
}

#[test]
fn a_log_that_writes_little_stays_in_small_blocks_and_a_hot_one_gets_large_ones() {
    for backend in BACKENDS {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { backend, ..Options::default() };
        let store = open(directory.path(), &options);
        for id in 0..20 {
            append(&store.create_log(log_spec(id + 1, None)).unwrap(), &numbered(id as u64, 500)).unwrap();
        }
        let names: Vec<_> = classes(directory.path()).into_iter().collect();
        assert!(!names.contains(&String::new()), "{names:?}");
        let hot = store.create_log(log_spec(100, None)).unwrap();
        for i in 0..40 {
            append(&hot, &numbered(i, 60_000)).unwrap();
        }
        assert!(classes(directory.path()).contains(""), "the store's own size");
        store.close().unwrap();
        let store = open(directory.path(), &options);
        for id in 0..20_u64 {
            let log = store.log(walrus_log::LogId(uuid::Uuid::from_u128(u128::from(id) + 1))).unwrap();
            assert_eq!(values(&log), [numbered(id, 500)]);
        }
        let hot = store.log(walrus_log::LogId(uuid::Uuid::from_u128(100))).unwrap();
        assert!(values(&hot) == (0..40).map(|i| numbered(i, 60_000)).collect::<Vec<_>>());
    }
}

/// Options with three classes and small files. Logs that sync and logs that do not take blocks from different files.
fn mixed() -> Options {
    Options { block_bytes: 512 << 10, blocks_per_file: 2, ..Options::small() }
}

fn fill(store: &Store) {
    for (id, fsync) in [(1, None), (2, Some(FsyncSchedule::NoFsync)), (3, None)] {
        let log = store.create_log(log_spec(id, fsync)).unwrap();
        for i in 0..60 {
            append(&log, &numbered(i, if id == 3 { 200 } else { 20_000 })).unwrap();
        }
    }
}

#[test]
fn a_crash_in_logs_of_all_classes_loses_nothing_acknowledged() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &mixed()).unwrap();
        fill(&store);
        let names: BTreeSet<_> = disk.contents().into_keys().filter(|name| name.ends_with(".wal")).collect();
        assert!(names.iter().any(|name| name.ends_with("-64k.wal")), "{names:?}");
        assert!(names.iter().any(|name| name.len() == "00000001.wal".len()), "{names:?}");
        for seed in 0..effort(3) {
            let image = disk.crash_image(disk.changes(), CrashChoice::Some(seed));
            let store = open_on(&image, &mixed()).unwrap();
            for (id, size) in [(1, 20_000), (3, 200)] {
                let log = store.log(walrus_log::LogId(uuid::Uuid::from_u128(id))).unwrap();
                assert!(values(&log) == (0..60).map(|i| numbered(i, size)).collect::<Vec<_>>());
                append(&log, b"goes on").unwrap();
                assert_eq!(log.end_offset(), Offset(61));
            }
        }
    }
}

#[test]
fn space_of_every_class_is_used_again() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = open_on(&disk, &mixed()).unwrap();
    let pinned = store.create_log(log_spec(1, None)).unwrap();
    append(&pinned, b"x").unwrap();
    for round in 0..8 {
        let log = store.create_log(log_spec(2 + round, None)).unwrap();
        for i in 0..60 {
            append(&log, &numbered(i, 20_000)).unwrap();
        }
        store.delete_log(log.id()).unwrap();
        store.drain();
    }
    assert!(store.stats().files <= 9, "{}", store.stats().files);
    assert_eq!(values(&pinned), [b"x"]);
}
