//! Compactions keep the last record of each key, at its offset, whatever else happens and wherever a crash comes.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use support::*;
use walrus_log::batch::{Batch, BatchBuilder, ProducerRef};
use walrus_log::{CrashChoice, Error, Log, LogId, Offset, Options, SimulatedDisk, Store, TailKind, Walrus};

const NEVER: Duration = Duration::from_secs(1 << 40);

fn options() -> Options {
    Options { block_bytes: 16 << 10, blocks_per_file: 3, journal_bytes_max: 8 << 10, ..Options::default() }
}

fn the_log(store: &Store) -> Log {
    store.log(LogId(uuid::Uuid::from_u128(1))).unwrap()
}

/// Key and value of a record. Key 0 stands for none, and a value of 0 bytes for a tombstone.
type Entry = (u8, Vec<u8>);

fn append_entries(log: &Log, entries: &[Entry]) -> Result<Offset, Error> {
    append_compressed(log, 0, entries)
}

/// Appends the entries as one batch, compressed with a codec by Kafka's number; 0 is none.
fn append_compressed(log: &Log, codec: u8, entries: &[Entry]) -> Result<Offset, Error> {
    let mut builder = BatchBuilder::new();
    for (key, value) in entries {
        let key = [*key];
        let value = Some(value.as_slice()).filter(|value| !value.is_empty());
        builder.push(Some(&key[..]).filter(|key| key[0] > 0), value, 1, &[]);
    }
    let mut bytes = Vec::new();
    let batch = builder.build_in(&mut bytes).unwrap();
    append_batch(log, &batch.compressed(codec).unwrap())
}

/// Writes the right checksum into a changed batch.
fn write_checksum(batch: &mut [u8]) {
    let crc = crc_fast::crc32_iscsi(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

fn append_batch(log: &Log, bytes: &[u8]) -> Result<Offset, Error> {
    let appended = log.append(&Batch::parse(bytes).unwrap().0)?;
    appended.commit.wait()?;
    Ok(appended.base_offset)
}

/// Reads all records that can be read, by offset.
fn readable(log: &Log) -> BTreeMap<u64, Entry> {
    let mut found = BTreeMap::new();
    let mut next = log.start_offset();
    loop {
        let slices = log.read(next, 5000).unwrap();
        if slices.batches.is_empty() {
            return found;
        }
        for bytes in &slices.batches {
            let (batch, _) = Batch::parse(bytes).unwrap();
            let Ok(opened) = batch.open() else { continue };
            for record in batch.header().records_in(&opened) {
                let record = record.unwrap();
                if record.offset >= next.0 {
                    let key = record.key.map_or(0, |key| key[0]);
                    found.insert(record.offset, (key, record.value.unwrap_or_default().to_vec()));
                }
            }
        }
        assert!(slices.next_offset > next);
        next = slices.next_offset;
    }
}

/// Checks that every record that is there was appended there, and that each missing one has a later record of its key, or
/// is an old tombstone of whose key nothing is left.
fn check(found: &BTreeMap<u64, Entry>, all: &[Entry], start: u64, end: u64, tombstones_go: bool) {
    let mut last: HashMap<u8, u64> = HashMap::new();
    for (offset, (key, _)) in (0..end).zip(all) {
        last.insert(*key, offset);
    }
    for (offset, entry) in found {
        assert_eq!(all.get(*offset as usize), Some(entry), "offset {offset}");
    }
    for offset in start..end {
        let (key, value) = &all[offset as usize];
        let may_go = *key > 0 && (last[key] > offset || (tombstones_go && value.is_empty()));
        assert!(may_go || found.contains_key(&offset), "offset {offset} of key {key} is gone");
    }
    for (offset, (key, _)) in found.iter().filter(|(_, (key, _))| *key > 0) {
        assert!(found.contains_key(&last[key]), "the deleted key {key} is back, from offset {offset}");
    }
}

#[test]
fn the_last_record_of_each_key_stays_at_its_offset_and_space_is_given_back() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &options()).unwrap();
        let log = store.create_log(spec(1, "a")).unwrap();
        let all: Vec<Entry> = (0..400).map(|i| ((i % 7) as u8, numbered(i, 700))).collect();
        for pair in all.chunks(2) {
            append_entries(&log, pair).unwrap();
        }
        store.drain();
        let (size, files, digest) = (log.size_bytes(), store.stats().files, log.digest());
        let compacted = log.compact(NEVER).unwrap();
        store.drain();
        assert!(compacted.records > 250 && compacted.blocks > 20, "{compacted:?}");
        assert_eq!(log.size_bytes() + compacted.bytes, size);
        assert!(store.stats().files < files, "{} of {files} files", store.stats().files);
        assert_ne!(log.digest(), digest);
        let found = readable(&log);
        check(&found, &all, 0, 400, false);
        assert_eq!(found.len() as u64, 400 - compacted.records);
        // A second compaction has nothing to do, and the log goes on.
        assert_eq!(log.compact(NEVER).unwrap().records, 0);
        let (end, digest) = (log.end_offset(), log.digest());
        assert_eq!(append_entries(&log, &[(0, b"behind".to_vec())]).unwrap(), end);
        log.truncate_to(end).unwrap();
        assert_eq!(log.digest(), digest);
        drop((log, store));
        let image = disk.crash_image(disk.changes(), CrashChoice::Nothing);
        let again = open_on(&image, &options()).unwrap();
        assert_eq!(readable(&the_log(&again)), found);
        assert_eq!(the_log(&again).digest(), digest);
        assert!(again.report().corrupted.is_empty() && again.report().unknown_blocks.is_empty());
    }
}

#[test]
fn entries_of_a_topic_have_keys_and_tombstones_go_after_their_delay() {
    let directory = tempfile::tempdir().unwrap();
    let walrus = Walrus::open(directory.path(), options()).unwrap();
    for round in 0..30_u8 {
        for key in [b"kept", b"gone"] {
            walrus.append_keyed_for_topic("t", key, Some(&[round; 900])).unwrap();
        }
    }
    walrus.append_keyed_for_topic("t", b"gone", None).unwrap();
    // The block that is being filled is not compacted, so more entries fill blocks.
    for _ in 0..30 {
        walrus.append_for_topic("t", &[0; 900]).unwrap();
    }
    let keys = |walrus: &Walrus| {
        let mut keys = Vec::new();
        let mut next = Offset(0);
        loop {
            let entries = walrus.batch_read_for_topic("t", 1 << 20, false, Some(next)).unwrap();
            let Some(last) = entries.last() else { return keys };
            next = Offset(last.offset.0 + 1);
            keys.extend(entries.into_iter().filter_map(|entry| Some((entry.key?, entry.data.len()))));
        }
    };
    assert_eq!(walrus.compact("none", NEVER).unwrap(), None);
    assert_eq!(walrus.compact("t", NEVER).unwrap().unwrap().records, 59);
    assert_eq!(keys(&walrus), [("kept".into(), 900), ("gone".into(), 0)]);
    assert_eq!(walrus.compact("t", Duration::ZERO).unwrap().unwrap().records, 1);
    assert_eq!(keys(&walrus), [("kept".into(), 900)]);
    // A cursor passes the records that are gone.
    let mut read = 0;
    while walrus.read_next("t", true).unwrap().is_some() {
        read += 1;
    }
    assert_eq!((read, walrus.get_topic_entry_count("t")), (31, 0));
}

/// Fills blocks, so that everything in front of it is compacted.
fn append_filling(log: &Log, all: &mut Vec<Entry>) {
    for i in 0..60 {
        all.push((0, numbered(i, 900)));
        append_entries(log, &all[all.len() - 1..]).unwrap();
    }
}

#[test]
fn a_deleted_key_does_not_come_back_out_of_a_compressed_batch() {
    for codec in 1..=4 {
        let disk = SimulatedDisk::new(TailKind::Buffered);
        let store = open_on(&disk, &options()).unwrap();
        let log = store.create_log(spec(1, "a")).unwrap();
        // Three keys in one batch: one is deleted, one is written again, one stays.
        let mut all: Vec<Entry> = (1..4).map(|key| (key, vec![key; 400])).collect();
        append_compressed(&log, codec, &all).unwrap();
        all.extend([(1, Vec::new()), (2, vec![9; 400])]);
        append_compressed(&log, codec, &all[3..]).unwrap();
        append_filling(&log, &mut all);
        assert_eq!(log.compact(Duration::ZERO).unwrap().records, 3, "codec {codec}");
        let found = readable(&log);
        assert_eq!(found.keys().take(3).copied().collect::<Vec<_>>(), [2, 4, 5], "codec {codec}");
        check(&found, &all, 0, all.len() as u64, true);
        let batches = log.read(Offset(0), 1).unwrap().batches;
        assert_eq!(Batch::parse(&batches[0]).unwrap().0.header().codec(), codec, "it stays compressed");
        // A second compaction has nothing to do, and the next open finds the same.
        assert_eq!(log.compact(Duration::ZERO).unwrap().records, 0, "codec {codec}");
        store.close().unwrap();
        drop((log, store));
        assert_eq!(readable(&the_log(&open_on(&disk, &options()).unwrap())), found);
    }
}

#[test]
fn a_compressed_batch_of_whose_records_none_stays_is_a_gap() {
    for codec in 1..=4 {
        for producer in [None, Some(ProducerRef { id: 5, epoch: 0, base_sequence: 0 })] {
            let disk = SimulatedDisk::new(TailKind::Buffered);
            let store = open_on(&disk, &options()).unwrap();
            let log = store.create_log(spec(1, "a")).unwrap();
            let mut all: Vec<Entry> = vec![(1, vec![7; 500]), (2, vec![7; 500])];
            let mut builder = BatchBuilder::new();
            if let Some(producer) = producer {
                builder.producer(producer);
            }
            for (key, value) in &all {
                builder.push(Some(&[*key]), Some(value), 1, &[]);
            }
            let mut bytes = Vec::new();
            let batch = builder.build_in(&mut bytes).unwrap();
            append_batch(&log, &batch.compressed(codec).unwrap()).unwrap();
            all.extend([(1, Vec::new()), (2, Vec::new())]);
            append_compressed(&log, codec, &all[2..]).unwrap();
            append_filling(&log, &mut all);
            assert_eq!(log.compact(Duration::ZERO).unwrap().records, 4);
            let found = readable(&log);
            assert_eq!(found.first_key_value().unwrap().0, &4, "codec {codec}, {producer:?}");
            check(&found, &all, 0, all.len() as u64, true);
            store.close().unwrap();
            drop((log, store));
            let again = open_on(&disk, &options()).unwrap();
            assert_eq!((readable(&the_log(&again)), &again.report().corrupted[..]), (found, &[][..]));
        }
    }
}

#[test]
fn tombstones_stay_behind_a_batch_that_cannot_be_read() {
    // The producer wrote bytes that are no stream of their codec, or no records.
    for codec in 0..=4 {
        let disk = SimulatedDisk::new(TailKind::Buffered);
        let store = open_on(&disk, &options()).unwrap();
        let log = store.create_log(spec(1, "a")).unwrap();
        let mut all: Vec<Entry> = vec![(1, vec![7; 500])];
        let mut bytes = Vec::new();
        BatchBuilder::new().push(Some(&[1]), Some(&all[0].1), 1, &[]).build(&mut bytes).unwrap();
        let mut bytes = Batch::parse(&bytes).unwrap().0.compressed(codec).unwrap();
        bytes[61..].fill(0xff);
        write_checksum(&mut bytes);
        append_batch(&log, &bytes).unwrap();
        all.extend([(2, vec![8; 500]), (1, Vec::new()), (2, Vec::new())]);
        append_entries(&log, &all[1..]).unwrap();
        append_filling(&log, &mut all);
        assert_eq!(log.compact(Duration::ZERO).unwrap().records, 1, "the value of key 2, codec {codec}");
        let (first, last) = (&log.read(Offset(0), 1).unwrap().batches[0], log.read(Offset(1), 1).unwrap());
        assert_eq!(first[16..], bytes[16..], "it is as it was");
        let left: Vec<_> =
            Batch::parse(&last.batches[0]).unwrap().0.records().map(|r| r.unwrap().offset).collect();
        assert_eq!(left, [2, 3], "both tombstones, codec {codec}");
    }
}

#[test]
fn tombstones_stay_behind_a_block_that_is_damaged() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = open_on(&disk, &options()).unwrap();
    let log = store.create_log(spec(1, "a")).unwrap();
    let mut all: Vec<Entry> = vec![(1, numbered(1, 900)), (2, numbered(2, 900))];
    for index in 0..2 {
        append_entries(&log, &all[index..=index]).unwrap();
    }
    append_filling(&log, &mut all);
    all.extend([(1, Vec::new()), (2, Vec::new())]);
    append_entries(&log, &all[62..]).unwrap();
    append_filling(&log, &mut all);
    store.close().unwrap();
    drop((log, store));
    // The value of key 2 rots; that of key 1 lies in the same block.
    let mut contents = disk.contents();
    let value = numbered(2, 900);
    let rots = contents.values_mut().find_map(|bytes| {
        let at = bytes.windows(value.len()).position(|window| window == value)?;
        Some(&mut bytes[at])
    });
    *rots.unwrap() ^= 1;
    let store = open_on(&SimulatedDisk::from_contents(TailKind::Buffered, &contents), &options()).unwrap();
    let log = the_log(&store);
    log.compact(Duration::ZERO).unwrap();
    let (records, fences) = read_from(&log, Offset(0), 5000);
    assert_eq!((records[0].0, fences), (0, vec![(1, 2)]), "a block with damage stays as it is");
    assert!(records.iter().any(|(offset, _)| *offset == 62), "and so does what deletes the key in it");
}

#[test]
fn what_a_stronger_encoder_made_shorter_stays_whole_with_the_tombstones_behind_it() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = open_on(&disk, &options()).unwrap();
    let log = store.create_log(spec(1, "a")).unwrap();
    // The producer's zstd worked harder than ours does: our batch is longer than its, even with one small record less.
    let mut random = Random(1);
    let words: Vec<String> =
        (0..300).map(|_| format!("{:x} ", random.next() >> (24 + random.next() % 32))).collect();
    let text: String = (0..3000).map(|_| words[(random.next() % 300) as usize].as_str()).collect();
    let mut all: Vec<Entry> = vec![(1, b"x".to_vec()), (2, text.into_bytes())];
    let mut bytes = Vec::new();
    let mut builder = BatchBuilder::new();
    for (key, value) in &all {
        builder.push(Some(&[*key]), Some(value), 1, &[]);
    }
    builder.build(&mut bytes).unwrap();
    let ours = Batch::parse(&bytes).unwrap().0.compressed(4).unwrap();
    let strong = zstd::encode_all(&bytes[61..], 19).unwrap();
    assert!(strong.len() + 61 + 64 < ours.len(), "{} and {}", strong.len(), ours.len());
    bytes.truncate(61);
    bytes.extend_from_slice(&strong);
    bytes[22] |= 4;
    let length = bytes.len() as i32 - 12;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    write_checksum(&mut bytes);
    append_batch(&log, &bytes).unwrap();
    all.push((1, Vec::new()));
    append_entries(&log, &all[2..]).unwrap();
    append_filling(&log, &mut all);
    assert_eq!(log.compact(Duration::ZERO).unwrap().records, 0);
    check(&readable(&log), &all, 0, all.len() as u64, true);
}

#[test]
fn appends_and_readers_go_on_beside_it() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &options()).unwrap();
        let log = store.create_log(spec(1, "a")).unwrap();
        let all: Vec<Entry> = (0..1200).map(|i| (1 + (i % 5) as u8, numbered(i, 300))).collect();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Acquire) {
                        let end = log.durable_offset().0;
                        let found = readable(&log);
                        for (offset, entry) in &found {
                            assert_eq!(all.get(*offset as usize), Some(entry), "offset {offset}");
                        }
                        // The last record of a key may come while the log is read; then it lies behind `end`.
                        let keys: HashMap<u8, u64> =
                            found.iter().map(|(offset, (key, _))| (*key, *offset)).collect();
                        assert!(keys.len() as u64 >= end.min(5), "{keys:?} of {end} records");
                    }
                });
            }
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    log.compact(NEVER).unwrap();
                }
            });
            for (offset, entry) in (0..).zip(&all) {
                assert_eq!(append_entries(&log, std::slice::from_ref(entry)).unwrap(), Offset(offset));
            }
            is_over.store(true, Ordering::Release);
        });
        check(&readable(&log), &all, 0, 1200, false);
    }
}

#[test]
fn every_crash_image_of_a_compaction_has_the_last_of_each_key() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &options()).unwrap();
        let log = store.create_log(spec(1, "a")).unwrap();
        let all: Vec<Entry> = (0..90).map(|i| (1 + (i * i % 11) as u8, numbered(i, 600))).collect();
        for entry in &all {
            append_entries(&log, std::slice::from_ref(entry)).unwrap();
        }
        store.drain();
        let begin = disk.changes();
        assert!(log.compact(NEVER).unwrap().records > 20);
        let done = disk.changes();
        let left = readable(&log);
        store.drain();
        let mut random = Random(3);
        for at in begin..=disk.changes() {
            for round in 0..effort(6) {
                let choice = match round % 4 {
                    0 => CrashChoice::Everything,
                    1 => CrashChoice::Pages(random.next()),
                    2 => CrashChoice::Torn(random.next()),
                    _ => CrashChoice::Some(random.next()),
                };
                let what = format!("{kind:?}, {} changes, {choice:?}", at - begin);
                let image = disk.crash_image(at, choice);
                let again = open_on(&image, &options()).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(again.report().corrupted, [], "{what}");
                let log = the_log(&again);
                let found = readable(&log);
                check(&found, &all, 0, 90, false);
                if at >= done {
                    assert_eq!(found, left, "{what}");
                }
                append_entries(&log, &[(0, b"behind".to_vec())]).unwrap();
                log.compact(NEVER).unwrap();
                again.drain();
                let mut more = all.clone();
                more.push((0, b"behind".to_vec()));
                check(&readable(&log), &more, 0, 91, false);
                let second = image.crash_image(image.changes(), CrashChoice::Nothing);
                check(&readable(&the_log(&open_on(&second, &options()).unwrap())), &more, 0, 91, false);
            }
        }
    }
}

#[test]
fn whichever_call_of_a_compaction_fails_nothing_is_lost() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        for fault in [walrus_log::Fault::Eio, walrus_log::Fault::Enospc] {
            for call in 0.. {
                let disk = SimulatedDisk::new(kind);
                let store = open_on(&disk, &options()).unwrap();
                let log = store.create_log(spec(1, "a")).unwrap();
                let all: Vec<Entry> = (0..60).map(|i| (1 + (i % 3) as u8, numbered(i, 600))).collect();
                for entry in &all {
                    append_entries(&log, std::slice::from_ref(entry)).unwrap();
                }
                store.drain();
                let begin = disk.calls();
                disk.fail_call(begin + call, fault);
                let compacted = log.compact(NEVER);
                let made = disk.calls() - begin;
                store.drain();
                disk.heal();
                check(&readable(&log), &all, 0, 60, false);
                drop((log, store));
                check(&readable(&the_log(&open_on(&disk, &options()).unwrap())), &all, 0, 60, false);
                if call > made + 5 {
                    compacted.unwrap();
                    break;
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Codec of a batch, and key and size of the value of each of its records.
    Append(u8, Vec<(u8, u16)>),
    Compact(bool),
    Trim(prop::sample::Index),
    Reopen,
    PowerFailure(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let entry = (0..6_u8, prop_oneof![1 => Just(0_u16), 6 => 8..1500_u16]);
    let step = prop_oneof![
        12 => (prop_oneof![3 => Just(0_u8), 2 => 1..5_u8], prop::collection::vec(entry, 1..6))
            .prop_map(|(codec, entries)| Step::Append(codec, entries)),
        3 => any::<bool>().prop_map(Step::Compact),
        1 => any::<prop::sample::Index>().prop_map(Step::Trim),
        1 => Just(Step::Reopen),
        1 => any::<u64>().prop_map(Step::PowerFailure),
    ];
    prop::collection::vec(step, 10..80)
}

fn run(kind: TailKind, steps: &[Step]) {
    let mut disk = SimulatedDisk::new(kind);
    let mut store = open_on(&disk, &options()).unwrap();
    store.create_log(spec(1, "a")).unwrap();
    let (mut all, mut start, mut tombstones_go): (Vec<Entry>, u64, bool) = (Vec::new(), 0, false);
    for step in steps {
        let log = the_log(&store);
        match step {
            Step::Append(codec, entries) => {
                let base = all.len() as u64;
                let numbered = |(index, (key, size)): (usize, &(u8, u16))| {
                    let value = if *size == 0 {
                        Vec::new()
                    } else {
                        numbered(base + index as u64, usize::from(*size))
                    };
                    // A record with neither key nor value would be no tombstone.
                    (*key, if *key == 0 && value.is_empty() { vec![1] } else { value })
                };
                let entries: Vec<_> = entries.iter().enumerate().map(numbered).collect();
                assert_eq!(append_compressed(&log, *codec, &entries).unwrap(), Offset(base));
                all.extend(entries);
            }
            Step::Compact(tombstones) => {
                tombstones_go |= tombstones;
                log.compact(if *tombstones { Duration::ZERO } else { NEVER }).unwrap();
            }
            Step::Trim(to) => {
                start += to.index((all.len() as u64 - start) as usize + 1) as u64;
                log.delete_before(Offset(start)).unwrap();
            }
            Step::Reopen => {
                store.close().unwrap();
                drop(log);
                store = open_on(&disk, &options()).unwrap();
                assert!(store.report().clean);
            }
            Step::PowerFailure(seed) => {
                drop(log);
                disk = disk.crash_image(disk.changes(), CrashChoice::Some(*seed));
                store = open_on(&disk, &options()).unwrap();
            }
        }
        let log = the_log(&store);
        assert_eq!((log.start_offset().0, log.durable_offset().0), (start, all.len() as u64));
        assert_eq!(store.report().corrupted, []);
        check(&readable(&log), &all, start, all.len() as u64, tombstones_go);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: effort(60) as u32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_that_is_compacted_at_any_time_keeps_the_last_of_each_key(mapped: bool, steps in steps()) {
        run(if mapped { TailKind::Mapped } else { TailKind::Buffered }, &steps);
    }
}
