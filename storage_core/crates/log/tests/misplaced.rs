//! Writes that went astray: right bytes of a log, at a place where other bytes belong. Nothing in a batch once named its
//! log; base offset, epoch and checksum sufficed, and a reader of one topic was given the records of another.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::collections::BTreeMap;

use support::*;
use walrus_log::batch::{Batch, write_offsets};
use walrus_log::{Epoch, Error, LogId, LogSpec, Offset, Options, SimulatedDisk, TailKind};

const PAGE: usize = 4096;
const BLOCK: usize = 16 << 10;
/// Size of values whose batch is a quarter of a page, so that batches of equal offsets lie in equal places of their
/// blocks.
const VALUE_BYTES: usize = 954;
const RECORDS: u64 = 40;

type Contents = BTreeMap<String, Vec<u8>>;

fn options() -> Options {
    Options { block_bytes: BLOCK as u64, blocks_per_file: 4, ..Options::small() }
}

fn value(log: u64, offset: u64) -> Vec<u8> {
    numbered(log << 32 | offset, VALUE_BYTES)
}

/// A store with two logs that have equal offsets in equal places; it was closed in order or killed.
fn filled(kind: TailKind, closes: bool) -> Contents {
    let disk = SimulatedDisk::new(kind);
    let store = open_on(&disk, &options()).unwrap();
    let logs = [1, 2].map(|log| store.create_log(spec(log, "weather or salaries")).unwrap());
    for offset in 0..RECORDS {
        for (log, number) in logs.iter().zip(1..) {
            append(log, &value(number, offset)).unwrap();
        }
    }
    store.drain();
    if closes {
        store.close().unwrap();
    }
    disk.contents()
}

/// Opens the store, reads everything, and returns how many records are lost. Each record must be its log's own, or its
/// loss must be told.
fn lost(contents: &Contents, kind: TailKind, what: &str) -> u64 {
    let disk = SimulatedDisk::from_contents(kind, contents);
    let store = open_on(&disk, &options()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut lost = 0;
    for number in [1, 2] {
        let log = store.log(LogId(uuid::Uuid::from_u128(number.into()))).unwrap();
        let (records, fences) = read_from(&log, Offset(0), 5_000);
        for (offset, bytes) in &records {
            assert!(*bytes == value(number, *offset), "{what}: another record at {offset} of log {number}");
        }
        let fenced: u64 = fences.iter().map(|(start, end)| end - start).sum();
        assert_eq!(records.len() as u64 + fenced, RECORDS, "{what}: {fences:?} of log {number}");
        lost += fenced;
    }
    lost
}

/// File and position of all aligned places of that size that hold something.
fn places(contents: &Contents, bytes: usize) -> Vec<(String, usize)> {
    let files = contents.iter().filter(|(name, _)| name.ends_with(".wal"));
    let used = |file: &Vec<u8>, at: &usize| file[*at..at + bytes].iter().any(|byte| *byte != 0);
    files
        .flat_map(|(name, file)| {
            let used = (0..file.len()).step_by(bytes).filter(move |at| used(file, at));
            used.map(|at| (name.clone(), at))
        })
        .collect()
}

fn copy(contents: &mut Contents, from: &(String, usize), to: &(String, usize), bytes: usize) {
    let moved = contents[&from.0][from.1..from.1 + bytes].to_vec();
    contents.get_mut(&to.0).unwrap()[to.1..to.1 + bytes].copy_from_slice(&moved);
}

/// Single pages were moved 400 times, and 37 of them were once served as right.
#[test]
fn a_page_that_landed_in_another_place_is_not_served() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let contents = filled(kind, true);
        assert_eq!(lost(&contents, kind, "nothing moved"), 0);
        let pages = places(&contents, PAGE);
        let (mut random, mut found) = (Random(1), 0);
        for _ in 0..400 {
            let [from, to] = [(); 2].map(|()| &pages[random.below(pages.len() as u64) as usize]);
            let mut moved = contents.clone();
            copy(&mut moved, from, to, PAGE);
            let lost = lost(&moved, kind, &format!("{from:?} at {to:?}"));
            found += u64::from(lost > 0);
            assert!(lost <= 2 * 12, "damage in one block costs that block: {lost} records");
        }
        assert!(found > 200, "{found}");
    }
}

#[test]
fn blocks_that_changed_places_are_not_served() {
    let kind = TailKind::Buffered;
    let contents = filled(kind, true);
    let blocks = places(&contents, BLOCK);
    let mut found = 0;
    for a in &blocks {
        for b in blocks.iter().filter(|b| *b > a) {
            let mut moved = contents.clone();
            copy(&mut moved, a, b, BLOCK);
            moved.get_mut(&a.0).unwrap()[a.1..a.1 + BLOCK].copy_from_slice(&contents[&b.0][b.1..b.1 + BLOCK]);
            found += u64::from(lost(&moved, kind, &format!("{a:?} and {b:?}")) > 0);
        }
    }
    assert!(found > 10, "{found}");
}

#[test]
fn files_that_changed_names_and_doubled_files_are_not_served() {
    let kind = TailKind::Buffered;
    let contents = filled(kind, true);
    let names: Vec<String> = contents.keys().filter(|name| name.ends_with(".wal")).cloned().collect();
    let mut swapped = contents.clone();
    swapped.insert(names[0].clone(), contents[&names[1]].clone());
    swapped.insert(names[1].clone(), contents[&names[0]].clone());
    assert!(lost(&swapped, kind, "swapped files") > 0);
    let mut doubled = contents.clone();
    doubled.insert("00000099.wal".to_owned(), contents[&names[0]].clone());
    assert_eq!(lost(&doubled, kind, "a doubled file"), 0);
}

/// The pages are old copies, from before the last append.
#[test]
fn a_page_that_was_not_written_is_damage_below_the_synced_mark_and_a_torn_tail_above() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &options()).unwrap();
        let log = store.create_log(spec(1, "t")).unwrap();
        for offset in 0..2 {
            append(&log, &value(1, offset)).unwrap();
        }
        let before = disk.contents();
        append(&log, &value(1, 2)).unwrap();
        let killed = disk.contents();
        store.close().unwrap();
        let closed = disk.contents();
        let stale = |contents: &Contents| {
            let mut stale = contents.clone();
            stale.insert("00000001.wal".to_owned(), before["00000001.wal"].clone());
            let disk = SimulatedDisk::from_contents(kind, &stale);
            let store = open_on(&disk, &options()).unwrap();
            let log = store.log(LogId(uuid::Uuid::from_u128(1))).unwrap();
            (log.end_offset().0, read_from(&log, Offset(0), 5_000).1)
        };
        assert_eq!(stale(&closed), (3, vec![(2, 3)]), "{kind:?}");
        assert_eq!(stale(&killed), (2, vec![]), "{kind:?}");
    }
}

/// A record can hold a batch, with the offset that comes next; behind damage that once counted as a batch of the log.
#[test]
fn a_batch_inside_of_a_record_does_not_count_behind_damage() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &options()).unwrap();
        let log = store.create_log(spec(1, "t")).unwrap();
        let mut inner = Vec::new();
        for offset in 2..4 {
            let mut batch = batch_of(&[b"forged"]);
            write_offsets(&mut batch, offset, 1);
            inner.extend(batch);
        }
        for value in [&b"first"[..], &inner, b"third", b"fourth"] {
            append(&log, value).unwrap();
        }
        let at = disk.contents()["00000001.wal"].windows(inner.len()).position(|it| it == inner).unwrap();
        store.close().unwrap();
        disk.flip("00000001.wal", at - 3, 1);
        let store = open_on(&disk, &options()).unwrap();
        let log = store.log(LogId(uuid::Uuid::from_u128(1))).unwrap();
        let (records, fences) = read_from(&log, Offset(0), 10_000);
        assert_eq!(fences, [(1, 2)], "{kind:?}");
        let expected = [(0, b"first".to_vec()), (2, b"third".to_vec()), (3, b"fourth".to_vec())];
        assert_eq!(records, expected, "{kind:?}");
    }
}

#[test]
fn what_leaves_a_store_is_verbatim() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &options()).unwrap();
        let log = store.create_log(LogSpec { epoch: Epoch(77), ..spec(1, "t") }).unwrap();
        let mut expected = Vec::new();
        for offset in 0..30 {
            let mut bytes = batch_of(&[&value(1, offset)]);
            log.append(&Batch::parse(&bytes).unwrap().0).unwrap().commit.wait().unwrap();
            write_offsets(&mut bytes, offset, 77);
            expected.push(bytes);
        }
        let check = |log: &walrus_log::Log| {
            let slices = log.read(Offset(0), usize::MAX).unwrap();
            assert!(slices.batches.iter().map(|batch| batch.to_vec()).eq(expected.iter().cloned()));
        };
        check(&log);
        store.close().unwrap();
        drop((log, store));
        let store = open_on(&disk, &options()).unwrap();
        check(&store.log(LogId(uuid::Uuid::from_u128(1))).unwrap());
    }
}

/// Base offset and sequence of the blocks that were opened, by their headers.
fn blocks(disk: &SimulatedDisk) -> Vec<(u64, u64)> {
    let contents = disk.contents();
    let pages = contents.values().flat_map(|bytes| bytes.chunks(PAGE));
    let number = |page: &[u8], at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
    let headers = pages.filter(|page| page.starts_with(b"WALRUSBK"));
    let mut blocks: Vec<_> = headers.map(|page| (number(page, 64), number(page, 48))).collect();
    blocks.sort_unstable();
    blocks
}

/// In the old block the cut records could count again, at their old places under the old block sequence.
#[test]
fn a_log_that_was_cut_goes_on_in_a_new_block() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &options()).unwrap();
        let log = store.create_log(spec(1, "t")).unwrap();
        for offset in 0..6 {
            append(&log, &value(1, offset)).unwrap();
        }
        let torn = SimulatedDisk::from_contents(kind, &disk.contents());
        log.truncate_to(Offset(4)).unwrap();
        append(&log, b"behind a truncation").unwrap();
        assert_eq!(blocks(&disk), [(0, 1), (4, 2)], "{kind:?}");
        // A log whose tail was torn by a crash goes on in a new block too.
        let last = value(1, 5);
        let at = torn.contents()["00000001.wal"].windows(20).position(|it| it == &last[..20]).unwrap();
        torn.flip("00000001.wal", at, 1);
        let store = open_on(&torn, &options()).unwrap();
        let log = store.log(LogId(uuid::Uuid::from_u128(1))).unwrap();
        assert_eq!((log.end_offset(), store.report().torn_tails.len()), (Offset(5), 1), "{kind:?}");
        append(&log, b"behind a torn tail").unwrap();
        assert_eq!(blocks(&torn), [(0, 1), (5, 2)], "{kind:?}");
        // The cut is told once.
        store.close().unwrap();
        drop((log, store));
        let store = open_on(&torn, &options()).unwrap();
        assert_eq!(store.report().torn_tails, []);
        let log = store.log(LogId(uuid::Uuid::from_u128(1))).unwrap();
        assert_eq!(values(&log).len(), 6);
    }
}

#[test]
fn a_journal_under_another_number_is_refused() {
    let kind = TailKind::Buffered;
    let mut contents = filled(kind, true);
    let name = contents.keys().find(|name| name.starts_with("journal")).unwrap().clone();
    let journal = contents.remove(&name).unwrap();
    contents.insert("journal-00000077".to_owned(), journal);
    let error = open_on(&SimulatedDisk::from_contents(kind, &contents), &options()).map(drop).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("another number"), "{error}");
}

/// A header page of zeros once made its block a free slot: the data behind it was thrown away, and if it was the last block
/// of its log, nothing was told.
#[test]
fn data_behind_a_header_of_zeros_is_told_and_kept() {
    let kind = TailKind::Buffered;
    let mut blocks = 0;
    for closes in [true, false] {
        let contents = filled(kind, closes);
        let places = contents.iter().filter(|(name, _)| name.ends_with(".wal")).flat_map(|(name, bytes)| {
            let headers = (0..bytes.len()).step_by(BLOCK).filter(|&at| bytes[at..].starts_with(b"WALRUSBK"));
            headers.map(move |at| (name.clone(), at))
        });
        for (name, at) in places {
            let mut zeroed = contents.clone();
            zeroed.get_mut(&name).unwrap()[at..at + PAGE].fill(0);
            let disk = SimulatedDisk::from_contents(kind, &zeroed);
            let store = open_on(&disk, &options()).unwrap();
            store.drain();
            assert_eq!(store.report().unknown_blocks.len(), 1, "closed: {closes}, {name} at {at}");
            let first = &contents[&name][at + PAGE..at + PAGE + VALUE_BYTES];
            let is_kept = |bytes: &Vec<u8>| bytes.windows(VALUE_BYTES).any(|window| window == first);
            assert!(disk.contents().values().any(is_kept), "closed: {closes}, {name} at {at}");
            blocks += 1;
        }
    }
    assert!(blocks > 10, "{blocks}");
}

/// An old header page once came back to a slot that was used again since. It named a block that nobody needs, so the slot
/// was freed, and the data of the log that lives there was zeroed.
#[test]
fn an_old_header_that_comes_back_frees_no_slot_of_another_block() {
    let kind = TailKind::Buffered;
    let disk = SimulatedDisk::new(kind);
    let store = open_on(&disk, &options()).unwrap();
    let logs = [1, 2, 3].map(|log| store.create_log(spec(log, "weather or salaries")).unwrap());
    for offset in 0..RECORDS {
        append(&logs[0], &value(1, offset)).unwrap();
        append(&logs[2], &value(3, offset)).unwrap();
    }
    let before = disk.contents();
    logs[0].delete_before(Offset(RECORDS)).unwrap();
    store.delete_log(logs[2].id()).unwrap();
    store.drain();
    for offset in 0..RECORDS {
        append(&logs[1], &value(2, offset)).unwrap();
    }
    store.drain();
    store.close().unwrap();
    let after = disk.contents();
    let mut slots = 0;
    for (name, bytes) in after.iter().filter(|(name, _)| name.ends_with(".wal") && before.contains_key(*name))
    {
        let is_header = |contents: &Contents, at: usize| contents[name][at..].starts_with(b"WALRUSBK");
        for at in
            (0..bytes.len()).step_by(BLOCK).filter(|&at| is_header(&before, at) && is_header(&after, at))
        {
            let old = &before[name][at..at + PAGE];
            if bytes[at..at + PAGE] == *old {
                continue;
            }
            let mut stale = after.clone();
            stale.get_mut(name).unwrap()[at..at + PAGE].copy_from_slice(old);
            let disk = SimulatedDisk::from_contents(kind, &stale);
            let store = open_on(&disk, &options()).unwrap();
            store.drain();
            assert!(store.report().lost_something(), "{name} at {at}");
            let data = at + PAGE..at + PAGE + VALUE_BYTES;
            assert_eq!(
                disk.contents()[name][data.clone()],
                bytes[data],
                "{name} at {at}: the data was zeroed"
            );
            slots += 1;
        }
    }
    assert!(slots > 0, "no slot was used again");
}
