//! Logs made of the batches of a compaction: records are missing, gaps stand at the front, in the middle and at the end, and
//! each batch has the epoch of the segment that it comes from.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::ops::Range;

use proptest::prelude::*;
use support::*;
use walrus_log::batch::{Batch, BatchBuilder, write_offsets};
use walrus_log::{
    CrashChoice, Epoch, Error, KeyMap, Log, LogId, Offset, Options, Sieve, SieveRules, SimulatedDisk, Store,
    TailKind, TimedOffset,
};

const KINDS: [TailKind; 2] = [TailKind::Mapped, TailKind::Buffered];

fn open(disk: &SimulatedDisk) -> (Store, Log) {
    let store = open_on(disk, &Options::small()).unwrap();
    let log = store.log(LogId(uuid::Uuid::from_u128(1))).unwrap();
    (store, log)
}

fn create(disk: &SimulatedDisk) -> (Store, Log) {
    let store = open_on(disk, &Options::small()).unwrap();
    let log = store.create_log(spec(1, "a")).unwrap();
    (store, log)
}

/// Opens the log again, after a close in order or after a loss of power.
fn reopened(disk: SimulatedDisk, store: Store, log: Log, is_crash: bool) -> (SimulatedDisk, Store, Log) {
    let disk = if is_crash {
        log.commit().unwrap();
        disk.crash_image(disk.changes(), CrashChoice::Nothing)
    } else {
        store.close().unwrap();
        disk
    };
    drop((store, log));
    let (store, log) = open(&disk);
    assert_eq!((&store.report().corrupted[..], store.report().torn_tails.len()), (&[][..], 0));
    (disk, store, log)
}

/// A batch of these records, each with a key, a value of `size` bytes and a time, at an offset.
fn batch_at(base: u64, records: &[(u8, i64)], size: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for (index, (key, ms)) in records.iter().enumerate() {
        builder.push(Some(&[*key]), Some(&numbered(base + index as u64, size)), *ms, &[]);
    }
    let mut bytes = Vec::new();
    builder.build(&mut bytes).unwrap();
    write_offsets(&mut bytes, base, 0);
    bytes
}

/// What a sieve leaves of these batches, one by one: no record below `start`, and these offsets covered.
fn sieved(batches: &[Vec<u8>], start: u64, offsets: Range<u64>) -> Vec<Vec<u8>> {
    let mut keys = KeyMap::with_memory(1 << 16).unwrap();
    for batch in batches {
        let _ = keys.note(&Batch::parse(batch).unwrap().0);
    }
    let rules = SieveRules { start: Offset(start), tombstones_below: Offset(0), batch_bytes_max: 1 << 20 };
    let mut sieve = Sieve::new(&keys, Offset(offsets.start), rules);
    let mut out = Vec::new();
    for batch in batches {
        sieve.batch(&Batch::parse(batch).unwrap().0, &mut out);
    }
    sieve.finish(Offset(offsets.end), &mut out);
    split(&out)
}

fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut batches = Vec::new();
    while !bytes.is_empty() {
        let (batch, rest) = Batch::parse(bytes).unwrap();
        batches.push(batch.bytes().to_vec());
        bytes = rest;
    }
    batches
}

fn copy(log: &Log, bytes: &[u8]) {
    let (batch, _) = Batch::parse(bytes).unwrap();
    let appended = log.append_copied(&batch).unwrap();
    assert_eq!((appended.base_offset.0, appended.end_offset.0), (batch.base_offset(), batch.end_offset()));
    appended.commit.wait().unwrap();
}

/// All batches that a log gives, in reads of some thousand bytes.
fn batches_of(log: &Log) -> Vec<Vec<u8>> {
    let (mut batches, mut next) = (Vec::new(), log.start_offset());
    while next < log.durable_offset() {
        let slices = log.read(next, 5000).unwrap();
        batches.extend(slices.batches.iter().map(|bytes| bytes.to_vec()));
        next = slices.next_offset;
    }
    batches
}

/// The offset and the time of each record.
fn times_of(batches: &[Vec<u8>]) -> Vec<(u64, i64)> {
    let mut times = Vec::new();
    for bytes in batches {
        times.extend(
            Batch::parse(bytes)
                .unwrap()
                .0
                .records()
                .map(|record| record.unwrap())
                .map(|record| (record.offset, record.timestamp_ms)),
        );
    }
    times
}

#[test]
fn a_copy_of_batches_without_some_records_is_the_same_log_whenever_it_was_opened_again() {
    // 100 keys that come again and again, so that whole batches go; the first ones were deleted.
    let mut random = Random(7);
    let mut batches = Vec::new();
    for number in 0..400_u64 {
        let records: Vec<_> =
            (0..3).map(|_| (random.below(100) as u8, random.below(1000) as i64 - 100)).collect();
        batches.push(batch_at(number * 3, &records, 600));
    }
    // The batch in front of the end is one of keys that do not come again, whatever was drawn.
    batches.push(batch_at(1200, &[(200, 5), (201, 5), (200, 7)], 600));
    let mut copied = sieved(&batches, 400, 0..1250);
    let is_gap = |bytes: &Vec<u8>| Batch::parse(bytes).unwrap().0.header().records_left() == 0;
    let gaps: Vec<bool> = copied.iter().map(is_gap).collect();
    assert!(gaps[0] && gaps[gaps.len() - 1] && gaps[1..gaps.len() - 1].contains(&true));
    let is_sparse = |bytes: &Vec<u8>| {
        let header = *Batch::parse(bytes).unwrap().0.header();
        header.records_left() > 0 && !header.is_dense()
    };
    assert!(copied.iter().any(is_sparse));
    for bytes in &mut copied {
        let base = Batch::parse(bytes).unwrap().0.base_offset();
        write_offsets(bytes, base, 1);
    }
    let times = times_of(&copied);
    let newest = times.iter().map(|(_, ms)| *ms).max().unwrap();
    // A header keeps the time of records that are gone, as long as one of the batch is there.
    let bounds = copied.iter().filter(|bytes| !is_gap(bytes));
    let bound = bounds.map(|bytes| Batch::parse(bytes).unwrap().0.max_timestamp()).max().unwrap();
    for kind in KINDS {
        let plain_disk = SimulatedDisk::new(kind);
        let (_plain_store, plain) = create(&plain_disk);
        let mut disk = SimulatedDisk::new(kind);
        let (mut store, mut log) = create(&disk);
        assert!(matches!(log.append(&Batch::parse(&copied[0]).unwrap().0), Err(Error::Batch(_))));
        for (index, bytes) in copied.iter().enumerate() {
            copy(&plain, bytes);
            copy(&log, bytes);
            if index % 23 == 0 {
                (disk, store, log) = reopened(disk, store, log, index % 2 == 0);
                assert_eq!((log.end_offset(), log.digest()), (plain.end_offset(), plain.digest()));
            }
        }
        let is_whole = |log: &Log| {
            assert_eq!(batches_of(log), copied, "{kind:?}");
            assert_eq!((log.digest(), log.newest_timestamp()), (plain.digest(), Some(bound)));
            for ms in [-200, 0, 500, 898, 2000] {
                let expected = times.iter().find(|(_, at)| *at >= ms);
                assert_eq!(offset_at(log, ms), expected.map(|(offset, _)| Offset(*offset)), "{ms}");
            }
            let first = times.iter().find(|(_, ms)| *ms == newest).unwrap();
            let found = TimedOffset { offset: Offset(first.0), timestamp_ms: newest };
            assert_eq!(log.find_newest(Offset(0)..Offset(u64::MAX)).unwrap().found, Some(found));
            // A read in a gap gives the gap.
            let slices = log.read(Offset(200), 1).unwrap();
            let first = Batch::parse(&slices.batches[0]).unwrap().0;
            assert!(
                first.base_offset() <= 200 && first.end_offset() > 200 && first.records().next().is_none()
            );
        };
        is_whole(&log);
        (disk, store, log) = reopened(disk, store, log, true);
        is_whole(&log);
        assert_eq!(log.seal(b"v").unwrap(), plain.seal(b"v").unwrap());
        is_whole(&log);
        for is_crash in [false, true] {
            (disk, store, log) = reopened(disk, store, log, is_crash);
            assert!(log.is_sealed());
            is_whole(&log);
        }
    }
}

#[test]
fn a_gap_of_more_offsets_than_a_batch_can_say_is_several_and_has_no_time() {
    const END: u64 = (1 << 33) + 5;
    for kind in KINDS {
        let gaps = sieved(&[], 0, 0..END);
        assert_eq!(gaps.len(), 5);
        let mut disk = SimulatedDisk::new(kind);
        let (mut store, mut log) = create(&disk);
        for gap in &gaps {
            copy(&log, gap);
        }
        for round in 0..3 {
            assert_eq!((log.end_offset(), log.newest_timestamp()), (Offset(END), None));
            assert_eq!(log.find_newest(Offset(0)..Offset(END)).unwrap().found, None);
            let slices = log.read(Offset(1 << 32), 1).unwrap();
            let batch = Batch::parse(&slices.batches[0]).unwrap().0;
            assert!((batch.base_offset()..batch.end_offset()).contains(&(1 << 32)));
            (disk, store, log) = reopened(disk, store, log, round == 1);
        }
        // A record in front of the Unix epoch is newer than a gap.
        copy(&log, &batch_at(END, &[(1, -500)], 100));
        copy(&log, &sieved(&[], 0, END + 1..END + 2)[0]);
        assert_eq!(log.newest_timestamp(), Some(-500));
        (disk, store, log) = reopened(disk, store, log, false);
        assert_eq!(log.newest_timestamp(), Some(-500));
        log.seal(b"v").unwrap();
        (_, _, log) = reopened(disk, store, log, false);
        assert_eq!(log.newest_timestamp(), Some(-500));
        assert_eq!(offset_at(&log, -600), Some(Offset(END)));
    }
}

fn epochs_of(log: &Log) -> Vec<(u64, u32)> {
    let batches = batches_of(log);
    let epoch = |bytes: &Vec<u8>| {
        let batch = Batch::parse(bytes).unwrap().0;
        (batch.base_offset(), batch.header().leader_epoch.cast_unsigned())
    };
    batches.iter().map(epoch).collect()
}

#[test]
fn epochs_hold_from_the_next_batch_on_and_are_forgotten_at_a_restart() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let (store, log) = create(&disk);
    let put = |log: &Log| copy(log, &batch_at(log.end_offset().0, &[(1, 1)], 100));
    put(&log);
    let runs = |runs: &[(u64, u32)]| {
        runs.iter().map(|&(offset, epoch)| (Offset(offset), Epoch(epoch))).collect::<Vec<_>>()
    };
    for wrong in [&[][..], &[(2, 5)], &[(0, 5), (0, 6)], &[(0, 5), (7, 6), (6, 7)]] {
        let refused = log.set_epochs(&runs(wrong)).unwrap_err();
        assert!(matches!(refused, Error::InvalidOption { option: "epochs", .. }), "{refused}");
    }
    put(&log);
    log.set_epochs(&runs(&[(0, 5), (3, 9)])).unwrap();
    put(&log);
    put(&log);
    let (disk, store, log) = reopened(disk, store, log, false);
    put(&log); // goes on in the block, whose header has the runs
    log.set_epochs(&runs(&[(4, 4)])).unwrap();
    put(&log);
    assert_eq!(epochs_of(&log), [(0, 1), (1, 1), (2, 5), (3, 9), (4, 9), (5, 4)]);
    let (_disk, _store, log) = reopened(disk, store, log, true);
    let large = batch_at(6, &[(1, 1)], 60_000);
    copy(&log, &large); // opens a block
    assert_eq!(epochs_of(&log)[5..], [(5, 4), (6, 1)]);
    log.seal(b"v").unwrap();
    assert!(matches!(log.set_epochs(&runs(&[(0, 1)])), Err(Error::Sealed { .. })));
}

#[test]
fn a_block_ends_in_front_of_the_first_run_that_its_header_does_not_hold() {
    for kind in KINDS {
        let runs: Vec<_> = (0..700).map(|run| (Offset(run), Epoch(run as u32 * 3))).collect();
        let mut disk = SimulatedDisk::new(kind);
        let (mut store, mut log) = create(&disk);
        log.set_epochs(&runs).unwrap();
        for offset in 0..700 {
            copy(&log, &sieved(&[], 0, offset..offset + 1)[0]);
            if offset % 150 == 149 {
                (disk, store, log) = reopened(disk, store, log, offset == 449);
                log.set_epochs(&runs).unwrap();
            }
        }
        let expected: Vec<_> = (0..700).map(|run| (run, run as u32 * 3)).collect();
        assert_eq!(epochs_of(&log), expected);
        assert_eq!(epochs_of(&reopened(disk, store, log, false).2), expected);
    }
}

/// A step of a copy: so many offsets with a batch of so many bytes a record, or without records; then maybe a restart.
type Step = (u8, u16, bool, Option<bool>);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(60) as u32))]

    #[test]
    fn each_batch_of_a_copy_has_the_epoch_of_its_run(
        widths in prop::collection::vec((1..6_u64, 0..4_u32), 1..500),
        steps in prop::collection::vec((1..4_u8, 0..3000_u16, prop::bool::weighted(0.2), prop::option::weighted(0.05, any::<bool>())), 1..300),
        kind in prop::sample::select(&KINDS[..]),
    ) {
        let mut runs: Vec<(Offset, Epoch)> = Vec::new();
        let mut first_offset = 0;
        for (width, epoch) in widths {
            runs.push((Offset(first_offset), Epoch(epoch)));
            first_offset += width;
        }
        let mut disk = SimulatedDisk::new(kind);
        let (mut store, mut log) = create(&disk);
        log.set_epochs(&runs).unwrap();
        let steps: Vec<Step> = steps;
        let mut expected = Vec::new();
        for (records, size, is_gap, restart) in steps {
            let base = log.end_offset().0;
            let run = runs.iter().rev().find(|(offset, _)| offset.0 <= base).unwrap();
            let end = base + u64::from(records);
            let bytes = match is_gap {
                true => sieved(&[], 0, base..end).remove(0),
                false => batch_at(base, &vec![(1, 1); usize::from(records)], usize::from(size)),
            };
            let (batch, _) = Batch::parse(&bytes).unwrap();
            log.append_copied(&batch).unwrap().commit.wait().unwrap();
            expected.push((base, run.1.0));
            if let Some(is_crash) = restart {
                (disk, store, log) = reopened(disk, store, log, is_crash);
                log.set_epochs(&runs).unwrap();
            }
        }
        prop_assert_eq!(epochs_of(&log), &expected[..]);
        log.seal(b"v").unwrap();
        let (_disk, _store, log) = reopened(disk, store, log, false);
        prop_assert_eq!(epochs_of(&log), expected);
    }
}
