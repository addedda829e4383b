//! Calls of the disk that fail. Each answers its callers with an error, loses nothing that was acknowledged, and is not
//! retried as if nothing had happened; on a full disk appends are refused cleanly.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use support::*;
use walrus_log::{CrashChoice, Error, Fault, Log, LogId, Offset, Options, SimulatedDisk, TailKind};

fn options() -> Options {
    Options { block_bytes: 16 << 10, blocks_per_file: 2, journal_bytes_max: 8 << 10, ..Options::default() }
}

type Values = Vec<Vec<u8>>;

/// Appends, moves a cursor, seals and closes until something fails; returns the acknowledged values.
fn work(disk: &SimulatedDisk) -> Result<Values, (Values, Error)> {
    let mut acknowledged = Vec::new();
    let mut run = || {
        let store = open_on(disk, &options())?;
        let log = store.create_log(spec(1, "a"))?;
        for i in 0..24 {
            let value = numbered(i, 400 * (1 + i as usize % 5));
            append(&log, &value)?;
            acknowledged.push(value);
            if i % 5 == 0 {
                log.cursor("c")?.read_next(true)?;
            }
            // The calls of the background come here, so that their numbers do not depend on its speed.
            store.drain();
        }
        log.seal(b"done")?;
        store.close()
    };
    match run() {
        Ok(()) => Ok(acknowledged),
        Err(error) => Err((acknowledged, error)),
    }
}

#[test]
fn whichever_call_fails_nothing_acknowledged_is_lost() {
    for tail_kind in [TailKind::Mapped, TailKind::Buffered] {
        let clean = SimulatedDisk::new(tail_kind);
        work(&clean).unwrap();
        let calls = clean.calls();
        assert!(calls > 50);
        let mut failed = 0;
        for fault in [Fault::Eio, Fault::Enospc, Fault::ShortWrite] {
            for call in 0..calls {
                let disk = SimulatedDisk::new(tail_kind);
                disk.fail_call(call, fault);
                let what = format!("{tail_kind:?}: {fault:?} at call {call}");
                let acknowledged = match work(&disk) {
                    Ok(acknowledged) => acknowledged,
                    Err((_, error)) if fault == Fault::ShortWrite => panic!("{what}: {error}"),
                    Err((acknowledged, _)) => {
                        failed += 1;
                        acknowledged
                    }
                };
                for choice in [CrashChoice::Everything, CrashChoice::Nothing] {
                    let image = disk.crash_image(disk.changes(), choice);
                    let store = open_on(&image, &options())
                        .unwrap_or_else(|error| panic!("{what}, {choice:?}: {error}"));
                    let Some(log) = store.log(LogId(uuid::Uuid::from_u128(1))) else {
                        assert!(acknowledged.is_empty(), "{what}, {choice:?}");
                        continue;
                    };
                    let values = values(&log);
                    assert!(values.len() >= acknowledged.len(), "{what}, {choice:?}");
                    assert_eq!(values[..acknowledged.len()], acknowledged, "{what}, {choice:?}");
                }
            }
        }
        assert!(failed > 50, "{failed}");
    }
}

#[test]
fn after_a_failed_sync_the_log_is_poisoned_and_what_was_durable_can_be_read() {
    for tail_kind in [TailKind::Mapped, TailKind::Buffered] {
        let disk = SimulatedDisk::new(tail_kind);
        let store = open_on(&disk, &options()).unwrap();
        let log = store.create_log(spec(1, "a")).unwrap();
        append(&log, b"before").unwrap();
        store.drain();
        disk.fail_call(disk.calls(), Fault::Eio);
        let error = append(&log, b"lost?").unwrap_err();
        assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        assert!(matches!(append(&log, b"after"), Err(Error::Poisoned { .. })));
        assert!(matches!(log.seal(b""), Err(Error::Poisoned { .. })));
        assert_eq!(values(&log), [b"before"]);
        // Another log goes on in another file.
        let other = store.create_log(spec(2, "b")).unwrap();
        append(&other, b"fine").unwrap();
        assert!(store.close().is_err());
    }
}

/// A file whose removal failed, or is still under way, keeps its name. Its number was once given to the next file, and
/// appends failed with "already exists".
#[test]
fn whichever_call_of_a_deletion_fails_new_files_find_a_name() {
    let delete = |fault: Option<u64>| {
        let disk = SimulatedDisk::new(TailKind::Mapped);
        let store = open_on(&disk, &options()).unwrap();
        let fill = |id: u128, name: &str| {
            let done = store.create_log(spec(id, name)).and_then(|log| append(&log, b"x"));
            store.drain();
            done
        };
        fill(1, "a").unwrap();
        fill(2, "b").unwrap();
        store.delete_log(LogId(uuid::Uuid::from_u128(1))).unwrap();
        store.drain();
        // This is the only block of the newest file; the next one is ready in the file before.
        fill(3, "c").unwrap();
        let before = disk.calls();
        if let Some(call) = fault {
            disk.fail_call(before + call, Fault::Eio);
        }
        let deleted = store.delete_log(LogId(uuid::Uuid::from_u128(3)));
        store.drain();
        let calls = disk.calls() - before;
        let filled = (4..8).try_for_each(|id| fill(id, "d").map(drop));
        (calls, deleted.and(filled))
    };
    let (calls, clean) = delete(None);
    clean.unwrap();
    assert!(calls > 1, "{calls}");
    for call in 0..calls {
        match delete(Some(call)).1 {
            Ok(()) | Err(Error::Poisoned { .. }) => {}
            Err(error) => panic!("EIO at call {call} of the deletion: {error}"),
        }
    }
}

#[test]
fn a_full_disk_refuses_appends_cleanly_until_there_is_space() {
    for tail_kind in [TailKind::Mapped, TailKind::Buffered] {
        let disk = SimulatedDisk::new(tail_kind);
        let store = open_on(&disk, &options()).unwrap();
        let log = store.create_log(spec(1, "a")).unwrap();
        let fill = |log: &Log, expected: &mut Vec<Vec<u8>>| -> Error {
            loop {
                let value = numbered(expected.len() as u64, 1500);
                match append(log, &value) {
                    Ok(_) => expected.push(value),
                    Err(error) => return error,
                }
                assert!(expected.len() < 1000, "it never gets full");
            }
        };
        let mut expected = Vec::new();
        for _ in 0..20 {
            append(&log, &numbered(expected.len() as u64, 1500)).unwrap();
            expected.push(numbered(expected.len() as u64, 1500));
        }
        disk.set_full(true);
        let error = fill(&log, &mut expected);
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        assert!(matches!(append(&log, &[0; 2000]), Err(Error::NoSpace { .. })));
        assert_eq!(values(&log), expected);
        log.delete_before(Offset(3)).unwrap();
        disk.set_full(false);
        append(&log, &numbered(expected.len() as u64, 1500)).unwrap();
        expected.push(numbered(expected.len() as u64, 1500));
        assert_eq!(values(&log), expected[3..]);
        store.close().unwrap();
        drop((store, log));
        let store = open_on(&disk, &options()).unwrap();
        assert_eq!(values(&store.logs()[0]), expected[3..]);
    }
}
