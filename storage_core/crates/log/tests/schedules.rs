//! Logs of one store with different schedules: each keeps its promises over crashes, and an open tells which logs may lack
//! something.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::num::NonZeroU64;

use support::*;
use walrus_log::{
    CrashChoice, Error, FsyncSchedule, LogId, LogSpec, Offset, Options, SimulatedDisk, Store, TailKind,
};

const KINDS: [TailKind; 2] = [TailKind::Mapped, TailKind::Buffered];
const EACH: FsyncSchedule = FsyncSchedule::SyncEach;
const NEVER: FsyncSchedule = FsyncSchedule::NoFsync;
/// A schedule longer than any test, so that only a close syncs.
const LATER: FsyncSchedule = FsyncSchedule::Milliseconds(NonZeroU64::new(3_600_000).unwrap());

fn options(fsync: FsyncSchedule) -> Options {
    Options { fsync, block_bytes: 16 << 10, blocks_per_file: 3, ..Options::small() }
}

fn spec_of(id: u128, fsync: FsyncSchedule) -> LogSpec {
    LogSpec { fsync: Some(fsync), ..spec(id, "log") }
}

fn id(log: u128) -> LogId {
    LogId(uuid::Uuid::from_u128(log))
}

fn crashed(disk: &SimulatedDisk, fsync: FsyncSchedule) -> Store {
    open_on(&disk.crash_image(disk.changes(), CrashChoice::Nothing), &options(fsync)).unwrap()
}

#[test]
fn a_property_is_durable_whatever_the_schedule() {
    for kind in KINDS {
        for fsync in [EACH, LATER, NEVER] {
            let disk = SimulatedDisk::new(kind);
            let store = open_on(&disk, &options(fsync)).unwrap();
            let log = store.create_log(spec(1, "log")).unwrap();
            append(&log, b"x").unwrap();
            log.cursor("c").unwrap().read_next(true).unwrap();
            store.put_property("promised", b"7").unwrap();
            let again = crashed(&disk, fsync);
            assert_eq!(again.property("promised").as_deref(), Some(&b"7"[..]), "{kind:?} {fsync:?}");
            // A durable record makes all records before it durable.
            assert!(again.log(id(1)).is_some(), "{kind:?} {fsync:?}");
        }
    }
}

#[test]
fn a_synced_log_of_a_store_that_never_syncs_keeps_its_promises() {
    for kind in KINDS {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &options(NEVER)).unwrap();
        let loose = store.create_log(spec(1, "log")).unwrap();
        append(&loose, &numbered(0, 9000)).unwrap();
        let log = store.create_log(spec_of(2, EACH)).unwrap();
        assert_eq!((loose.fsync(), log.fsync()), (NEVER, EACH));
        for i in 0..30 {
            append(&log, &numbered(i, 1000)).unwrap();
            append(&loose, &numbered(i, 1000)).unwrap();
        }
        log.cursor("c").unwrap().seek(Offset(4)).unwrap();
        let again = crashed(&disk, NEVER);
        let found = again.log(id(2)).unwrap();
        assert_eq!(values(&found), (0..30).map(|i| numbered(i, 1000)).collect::<Vec<_>>());
        assert_eq!(found.cursor("c").unwrap().position(), Offset(4));
        assert!(!found.is_suspect() && again.log(id(1)).unwrap().is_suspect());
        log.seal(b"end").unwrap();
        let again = crashed(&disk, NEVER);
        assert_eq!(again.log(id(2)).unwrap().sealed_value().as_deref(), Some(&b"end"[..]));
    }
}

#[test]
fn a_log_that_never_syncs_does_not_in_a_store_that_does() {
    for kind in KINDS {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &options(EACH)).unwrap();
        append(&store.create_log(spec(1, "log")).unwrap(), b"x").unwrap();
        store.drain();
        let before = store.stats();
        let log = store.create_log(spec_of(2, NEVER)).unwrap();
        for i in 0..40 {
            append(&log, &numbered(i, 1000)).unwrap();
        }
        log.cursor("c").unwrap().read_next(true).unwrap();
        log.truncate_to(Offset(39)).unwrap();
        log.seal(b"end").unwrap();
        let after = store.stats();
        assert_eq!((after.data_syncs, after.journal_syncs), (before.data_syncs, before.journal_syncs));
        assert_eq!(log.durable_offset(), Offset(39));
        assert_eq!(values(&log).len(), 39);
    }
}

#[test]
fn schedules_of_logs_hold_over_reopens() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    for (store_fsync, of_the_first) in [(EACH, EACH), (NEVER, NEVER), (LATER, LATER)] {
        let store = open_on(&disk, &options(store_fsync)).unwrap();
        assert!(store.report().clean && store.report().unsynced_logs.is_empty(), "{:?}", store.report());
        let schedules = [
            store.create_log(spec(1, "log")).unwrap().fsync(),
            store.create_log(spec_of(2, NEVER)).unwrap().fsync(),
            store.create_log(spec_of(3, LATER)).unwrap().fsync(),
        ];
        assert_eq!(schedules, [of_the_first, NEVER, LATER]);
        for (id, fsync) in [(1, EACH), (2, EACH), (3, NEVER)] {
            let refused = store.create_log(spec_of(id, fsync));
            assert!(matches!(refused, Err(Error::LogExists { field: "fsync schedule", .. })));
        }
        store.close().unwrap();
    }
}

/// The logs for which the open did not vouch, of four: synced at each append, later, never, and never but sealed.
fn suspects(store: &Store) -> Vec<u128> {
    let reported = &store.report().unsynced_logs;
    assert!(reported.iter().all(|id| store.log(*id).unwrap().is_suspect()));
    assert!(!store.log(id(1)).unwrap().is_suspect());
    reported.iter().map(|id| id.0.as_u128()).collect()
}

#[test]
fn a_start_without_the_mark_of_a_close_suspects_the_logs_that_do_not_sync_each_append() {
    for kind in KINDS {
        for default in [EACH, NEVER] {
            let disk = SimulatedDisk::new(kind);
            let store = open_on(&disk, &options(default)).unwrap();
            for (log, fsync) in (1..).zip([EACH, LATER, NEVER, NEVER]) {
                append(&store.create_log(spec_of(log, fsync)).unwrap(), b"x").unwrap();
            }
            store.log(id(4)).unwrap().seal(b"").unwrap();
            store.put_property("k", b"v").unwrap();
            let everything = disk.crash_image(disk.changes(), CrashChoice::Everything);
            store.close().unwrap();
            // The store was closed in order, and the machine runs on.
            let clean = open_on(&disk, &options(default)).unwrap();
            assert!(clean.report().clean);
            assert_eq!(suspects(&clean), []);
            clean.close().unwrap();
            // The store was closed in order, but the machine lost its memory since, so only synced records are sure to
            // be there.
            let rebooted = disk.crash_image(disk.changes(), CrashChoice::Everything);
            let rebooted = open_on(&rebooted, &options(default)).unwrap();
            assert!(rebooted.report().clean);
            assert_eq!(suspects(&rebooted), [3]);
            // The store was killed.
            let killed = open_on(&everything, &options(default)).unwrap();
            assert!(!killed.report().clean);
            assert_eq!(suspects(&killed), [2, 3]);
            for log in [2, 3] {
                killed.log(id(log)).unwrap().clear_suspect().unwrap();
            }
            killed.close().unwrap();
            drop(killed);
            assert_eq!(suspects(&open_on(&everything, &options(default)).unwrap()), []);
        }
    }
}

#[test]
fn the_schedule_before_a_reopen_decides_what_a_crash_left() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = open_on(&disk, &options(NEVER)).unwrap();
    append(&store.create_log(spec(1, "log")).unwrap(), b"x").unwrap();
    let image = disk.crash_image(disk.changes(), CrashChoice::Everything);
    let again = open_on(&image, &options(EACH)).unwrap();
    assert_eq!(again.report().unsynced_logs, [id(1)]);
    again.log(id(1)).unwrap().clear_suspect().unwrap();
    let image = image.crash_image(image.changes(), CrashChoice::Everything);
    let again = open_on(&image, &options(NEVER)).unwrap();
    assert_eq!(again.report().unsynced_logs, []);
    assert!(!again.log(id(1)).unwrap().is_suspect());
}

/// The number of values of a log that were promised when the disk had so many changes.
struct Promise {
    changes: usize,
    log: u128,
    count: usize,
}

#[test]
fn crashes_keep_the_promises_of_each_log_of_a_mixed_store() {
    for kind in KINDS {
        for (seed, default) in (0..effort(3)).flat_map(|seed| [(seed, EACH), (seed, NEVER)]) {
            let disk = SimulatedDisk::new(kind);
            let mut random = Random(seed);
            let store = open_on(&disk, &options(default)).unwrap();
            let logs: Vec<_> = (1..=4)
                .map(|log| store.create_log(spec_of(log, if log <= 2 { EACH } else { NEVER })).unwrap())
                .collect();
            let mut values_of = vec![Vec::new(); 4];
            let mut promises = Vec::new();
            let mut properties = Vec::new();
            for step in 0..60_u64 {
                let log = random.below(4) as usize;
                match random.below(8) {
                    0 => {
                        store.put_property("step", &step.to_le_bytes()).unwrap();
                        properties.push((disk.changes(), step));
                    }
                    1 => drop(logs[log].cursor("c").unwrap().read_next(true).unwrap()),
                    _ => {
                        let value = numbered(random.next(), random.below(1500) as usize);
                        append(&logs[log], &value).unwrap();
                        values_of[log].push(value);
                        let (changes, count) = (disk.changes(), values_of[log].len());
                        promises.push(Promise { changes, log: log as u128 + 1, count });
                    }
                }
            }
            for _ in 0..40 {
                let at = random.below(disk.changes() as u64) as usize;
                let image = disk.crash_image(at, CrashChoice::Some(random.next()));
                let what = format!("{kind:?}, {default:?}, seed {seed}, crash after {at} changes");
                let store =
                    open_on(&image, &options(default)).unwrap_or_else(|error| panic!("{what}: {error}"));
                let promised = properties.iter().filter(|(changes, _)| *changes <= at).map(|(_, step)| *step);
                let found =
                    store.property("step").map(|value| u64::from_le_bytes(value[..].try_into().unwrap()));
                assert!(found >= promised.max(), "{what}: property {found:?}");
                assert_eq!(store.report().corrupted, [], "{what}");
                for log in 1..=4 {
                    let values_of = &values_of[log as usize - 1];
                    let kept = promises.iter().filter(|promise| promise.log == log && promise.changes <= at);
                    let least = kept.map(|promise| promise.count).max().filter(|_| log <= 2).unwrap_or(0);
                    let Some(found) = store.log(id(log)) else {
                        assert_eq!(least, 0, "{what}: log {log} is gone");
                        continue;
                    };
                    let values = values(&found);
                    assert!(values.len() >= least, "{what}: log {log} lost promised values");
                    assert_eq!(values, values_of[..values.len()], "{what}: log {log}");
                    assert!(log <= 2 || found.is_suspect(), "{what}: log {log}");
                }
            }
        }
    }
}
