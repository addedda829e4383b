//! Appended records are read in order, also after the store was opened again, with every backend and schedule.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use support::*;
use walrus_log::batch::{Batch, ProducerRef};
use walrus_log::{Error, LogId, LogSpec, Offset, Options};

/// Sizes of values that fill blocks of 64 KiB; one value needs several blocks.
fn sizes() -> impl Iterator<Item = usize> {
    (0..300).map(|i: usize| if i == 170 { 150_000 } else { (i * 37) % 4000 })
}

fn value(i: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| (i * 31 + at * 7) as u8).collect()
}

#[test]
fn appended_values_are_read_and_survive_a_reopen() {
    for options in all_options() {
        let directory = tempfile::tempdir().unwrap();
        let expected: Vec<_> = sizes().enumerate().map(|(i, size)| value(i, size)).collect();
        {
            let store = open(directory.path(), &options);
            let log = store.create_log(spec(1, "a")).unwrap();
            for (i, value) in expected.iter().enumerate() {
                assert_eq!(append(&log, value).unwrap(), Offset(i as u64));
            }
            assert_eq!(values(&log), expected, "{options:?}");
            assert!(store.stats().files > 1);
        }
        for _ in 0..2 {
            let store = open(directory.path(), &options);
            assert!(store.report().clean && store.report().torn_tails.is_empty(), "{:?}", store.report());
            let log = store.log(LogId(uuid::Uuid::from_u128(1))).unwrap();
            assert_eq!(values(&log), expected, "{options:?}");
            assert!(!log.is_suspect());
        }
        let store = open(directory.path(), &options);
        let log = store.create_log(spec(1, "a")).unwrap();
        append(&log, b"more").unwrap();
        assert_eq!(values(&log).last().unwrap(), b"more");
    }
}

#[test]
fn a_read_starts_inside_of_a_batch_and_stops_at_its_budget() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), &Options::small());
    let log = store.create_log(LogSpec { base_offset: Offset(1000), ..spec(1, "a") }).unwrap();
    for _ in 0..10 {
        append_all(&log, &[&[1; 500], &[2; 500], &[3; 500]]).unwrap();
    }
    let slices = log.read(Offset(1004), 1).unwrap();
    assert_eq!((slices.batches.len(), slices.next_offset), (1, Offset(1006)));
    let slices = log.read(Offset(1004), 4000).unwrap();
    assert_eq!((slices.batches.len(), slices.next_offset), (2, Offset(1009)));
    assert_eq!(log.read(Offset(1030), 1).unwrap().batches.len(), 0);
    for outside in [999, 1031] {
        let error = log.read(Offset(outside), 1).unwrap_err();
        let Error::OffsetOutOfRange { requested, start, end } = error else { panic!("{error}") };
        assert_eq!((requested, start, end), (Offset(outside), Offset(1000), Offset(1030)));
    }
}

/// The batches of one read of a block lie in one piece of memory, from the first wanted one to the last, also after the
/// memory was wrapped.
#[test]
fn the_pieces_of_a_read_are_its_batches_behind_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), &Options::small());
    let log = store.create_log(spec(1, "a")).unwrap();
    for i in 0..500 {
        append(&log, &value(i, 1000)).unwrap();
    }
    let whole = log.read(Offset(7), 1 << 20).unwrap();
    assert!(whole.pieces().len() > 1, "the log has several blocks");
    for left in [0, 1, 100, 400, whole.batches.len()] {
        let mut slices = whole.clone().wrapped(|memory| memory.to_vec().into());
        slices.batches.truncate(left);
        assert_eq!(slices.batches, whole.batches[..left]);
        assert_eq!(slices.pieces().concat(), whole.batches[..left].concat());
        assert!(slices.pieces().len() <= whole.pieces().len());
    }
}

#[test]
fn many_logs_share_a_file_and_keep_apart() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { blocks_per_file: 100, ..Options::small() };
    let store = open(directory.path(), &options);
    let logs: Vec<_> = (0..50).map(|i| store.create_log(spec(i, "same name")).unwrap()).collect();
    for round in 0..3_u8 {
        for (i, log) in logs.iter().enumerate() {
            append(log, &[round, i as u8]).unwrap();
        }
    }
    assert_eq!(store.stats().files, 1);
    for (i, log) in logs.iter().enumerate() {
        let i = i as u8;
        assert_eq!(values(log), [[0, i], [1, i], [2, i]]);
    }
}

#[test]
fn a_batch_that_no_file_holds_is_refused_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), &Options::small());
    let log = store.create_log(spec(1, "a")).unwrap();
    let error = append(&log, &[0; 256 << 10]).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    append(&log, b"small").unwrap();
    assert_eq!(values(&log), [b"small"]);
}

#[test]
fn a_producers_retry_gets_its_first_offsets_also_after_a_reopen_and_in_the_next_log() {
    let directory = tempfile::tempdir().unwrap();
    let id = LogId(uuid::Uuid::from_u128(1));
    let send = |log: &walrus_log::Log, base_sequence: i32| {
        let bytes = batch_by(&[b"x", b"y"], Some(ProducerRef { id: 9, epoch: 0, base_sequence }), 0);
        let appended = log.append(&Batch::parse(&bytes).unwrap().0)?;
        let answer = (appended.base_offset.0, appended.duplicate);
        appended.commit.wait()?;
        Ok::<_, Error>(answer)
    };
    {
        let store = open(directory.path(), &Options::small());
        let log = store.create_log(spec(1, "a")).unwrap();
        for i in 0..600 {
            append(&log, &[0; 300]).unwrap();
            if i % 100 == 0 {
                assert!(!send(&log, i / 100 * 2).unwrap().1);
            }
        }
        assert_eq!(send(&log, 10).unwrap(), (511, true));
    }
    let store = open(directory.path(), &Options::small());
    let log = store.log(id).unwrap();
    assert_eq!(send(&log, 10).unwrap(), (511, true));
    assert!(matches!(send(&log, 13), Err(Error::OutOfOrderSequence { expected: 12, got: 13, .. })));
    let end = log.seal(b"").unwrap().end;
    let next = LogSpec { base_offset: end, producers: log.producers(), ..spec(2, "a") };
    let next = store.create_log(next).unwrap();
    assert_eq!(send(&next, 10).unwrap(), (511, true));
    assert_eq!(send(&next, 12).unwrap(), (end.0, false));
}

#[test]
fn offsets_are_found_by_time() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::small();
    let check = |log: &walrus_log::Log| {
        assert_eq!(offset_at(log, i64::MIN), Some(Offset(0)));
        for i in [1, 77, 250, 499] {
            assert_eq!(offset_at(log, i * 10), Some(Offset(i as u64 * 2)), "{i}");
            assert_eq!(offset_at(log, i * 10 - 5), Some(Offset(i as u64 * 2)), "{i}");
        }
        assert_eq!(offset_at(log, 4991), None);
    };
    {
        let store = open(directory.path(), &options);
        let log = store.create_log(spec(1, "a")).unwrap();
        for i in 0..500 {
            let bytes = batch_by(&[&[0; 200], &[1; 200]], None, i * 10);
            log.append(&Batch::parse(&bytes).unwrap().0).unwrap().commit.wait().unwrap();
        }
        check(&log);
    }
    check(&open(directory.path(), &options).logs()[0]);
}

#[test]
fn producers_are_remembered_when_their_batches_were_trimmed() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = batch_by(&[b"x"], Some(ProducerRef { id: 9, epoch: 0, base_sequence: 0 }), 0);
    let (batch, _) = Batch::parse(&bytes).unwrap();
    {
        let store = open(directory.path(), &Options::small());
        let log = store.create_log(spec(1, "a")).unwrap();
        log.append(&batch).unwrap().commit.wait().unwrap();
        for _ in 0..300 {
            append(&log, &[0; 300]).unwrap();
        }
        store.drain();
        log.delete_before(Offset(290)).unwrap();
    }
    let store = open(directory.path(), &Options::small());
    let appended = store.logs()[0].append(&batch).unwrap();
    assert_eq!((appended.base_offset, appended.duplicate), (Offset(0), true));
}
