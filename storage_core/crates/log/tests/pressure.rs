//! Logs that never sync, and are written faster than the disk takes it: memory stays bounded, nothing is lost, and on a
//! disk that fails nobody waits for ever.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::thread;

use support::*;
use walrus_log::{Error, Fault, FsyncSchedule, Options, SimulatedDisk, TailKind};

/// Options with so little memory for unwritten bytes that a writer waits for the disk all the time.
fn pressed() -> Options {
    Options {
        fsync: FsyncSchedule::NoFsync,
        unsynced_bytes_max: 2 << 20,
        block_bytes: 1 << 20,
        ..Options::small()
    }
}

#[test]
fn writers_that_outrun_the_disk_wait_and_lose_nothing() {
    for backend in BACKENDS {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { backend, ..pressed() };
        let store = open(directory.path(), &options);
        thread::scope(|scope| {
            for log in 0..2_u64 {
                let handle = store.create_log(spec(u128::from(log) + 1, "log")).unwrap();
                scope.spawn(move || {
                    for i in 0..160 {
                        append(&handle, &numbered(log << 32 | i, 100_000)).unwrap();
                    }
                });
            }
        });
        store.close().unwrap();
        let store = open(directory.path(), &options);
        for (log, handle) in (0..).zip(store.logs()) {
            let expected: Vec<_> = (0..160).map(|i| numbered(log << 32 | i, 100_000)).collect();
            // `assert_eq` would print megabytes.
            assert!(values(&handle) == expected, "{backend:?}, log {log}");
        }
    }
}

#[test]
fn where_writing_fails_appends_end_with_the_reason() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = open_on(&disk, &pressed()).unwrap();
    let log = store.create_log(spec(1, "log")).unwrap();
    append(&log, b"before").unwrap();
    store.drain();
    for call in 0..10_000 {
        disk.fail_call(disk.calls() + call, Fault::Eio);
    }
    let error = (0..1000).find_map(|i| append(&log, &numbered(i, 100_000)).err()).unwrap();
    assert!(matches!(error, Error::Poisoned { .. } | Error::Io { .. }), "{error}");
}
