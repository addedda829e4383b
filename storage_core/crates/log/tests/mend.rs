//! Mends of a sealed log: damaged batches are written again from another copy's bytes, in their place or not at all.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::collections::BTreeMap;

use support::*;
use walrus_log::{Epoch, Error, Log, LogId, LogSpec, Offset, Options, SimulatedDisk, Store, TailKind};

const COUNT: u64 = 60;
const KINDS: [TailKind; 2] = [TailKind::Mapped, TailKind::Buffered];

fn value(number: u64) -> Vec<u8> {
    numbered(number, 700)
}

/// Makes a log of one record in each batch, over several blocks.
fn filled(kind: TailKind, epoch: u32) -> (SimulatedDisk, Store, Log) {
    let disk = SimulatedDisk::new(kind);
    let store = open_on(&disk, &Options::small()).unwrap();
    let log = store.create_log(LogSpec { epoch: Epoch(epoch), ..spec(1, "a") }).unwrap();
    for number in 0..COUNT {
        append(&log, &value(number)).unwrap();
    }
    (disk, store, log)
}

fn sealed(kind: TailKind) -> (SimulatedDisk, Store, Log) {
    let (disk, store, log) = filled(kind, 1);
    log.seal(b"v").unwrap();
    store.drain();
    (disk, store, log)
}

/// The stored bytes of these batches, from an undamaged copy.
fn good(offsets: std::ops::Range<u64>) -> Vec<u8> {
    let (_, _store, log) = sealed(TailKind::Buffered);
    stored(&log, offsets)
}

fn stored(log: &Log, offsets: std::ops::Range<u64>) -> Vec<u8> {
    let one = |offset| log.read(Offset(offset), 1).unwrap().batches[0].to_vec();
    offsets.flat_map(one).collect()
}

/// Flips a bit of a record's value on the disk.
fn flip(disk: &SimulatedDisk, number: u64) {
    let needle = value(number);
    let place = disk.contents().into_iter().find_map(|(name, bytes)| {
        let at = bytes.windows(needle.len()).position(|window| window == needle)?;
        Some((name, at))
    });
    let (name, at) = place.unwrap();
    disk.flip(&name, at + 300, 4);
}

fn is_damaged(log: &Log, offset: u64) -> bool {
    matches!(log.read(Offset(offset), 1), Err(Error::Corrupted { .. }))
}

fn data(disk: &SimulatedDisk) -> BTreeMap<String, Vec<u8>> {
    disk.contents().into_iter().filter(|(name, _)| name.ends_with(".wal")).collect()
}

fn all_values() -> Vec<Vec<u8>> {
    (0..COUNT).map(value).collect()
}

#[test]
fn damaged_batches_are_as_before_for_readers_at_once_and_after_a_restart() {
    for kind in KINDS {
        let (disk, store, log) = sealed(kind);
        let (before, digest) = (data(&disk), log.digest());
        for ranges in [20..21, 30..33, 0..1, COUNT - 1..COUNT] {
            ranges.clone().for_each(|number| flip(&disk, number));
            assert!(is_damaged(&log, ranges.start));
            assert!(log.mend(Offset(ranges.start), &good(ranges)).unwrap());
            assert_eq!(values(&log), all_values());
        }
        // The marks of mended batches may tell other commits; nothing else may differ.
        let differing =
            data(&disk).values().flatten().zip(before.values().flatten()).filter(|(a, b)| a != b).count();
        assert!(differing <= 4 * 6, "{differing} bytes");
        store.close().unwrap();
        drop((store, log));
        let store = open_on(&disk, &Options::small()).unwrap();
        let log = store.log(LogId(uuid::Uuid::from_u128(1))).unwrap();
        assert_eq!(values(&log), all_values());
        assert_eq!(log.digest(), digest);
    }
}

#[test]
fn damage_that_was_there_when_the_store_was_opened_is_mended() {
    for kind in KINDS {
        let (disk, store, log) = sealed(kind);
        store.close().unwrap();
        drop((store, log));
        flip(&disk, 7);
        let store = open_on(&disk, &Options::small()).unwrap();
        let log = store.log(LogId(uuid::Uuid::from_u128(1))).unwrap();
        assert!(is_damaged(&log, 7));
        assert!(log.mend(Offset(7), &good(7..8)).unwrap());
        assert_eq!(values(&log), all_values());
    }
}

#[test]
fn what_is_mended_is_synced() {
    for kind in KINDS {
        let (disk, _store, log) = sealed(kind);
        flip(&disk, 20);
        assert!(is_damaged(&log, 20));
        let syncs = disk.syncs();
        assert!(log.mend(Offset(20), &good(20..21)).unwrap());
        assert!(disk.syncs() > syncs);
    }
}

#[test]
fn what_does_not_fit_exactly_is_not_written() {
    let (disk, _store, log) = sealed(TailKind::Buffered);
    (20..22).for_each(|number| flip(&disk, number));
    let (_, _other_store, other_epoch) = filled(TailKind::Buffered, 2);
    let longer = batch_of(&[&numbered(20, 800), &value(21)]);
    (30..33).for_each(|number| flip(&disk, number));
    let before_them = disk.contents();
    let wrong: [(&str, u64, Vec<u8>); 8] = [
        ("the one in the middle of three damaged ones", 31, good(31..32)),
        ("one that is sound, and the first damaged one", 19, good(19..21)),
        ("the last damaged one, and one that is sound", 21, good(21..23)),
        ("the last cut", 20, good(20..22)[..1500].to_vec()),
        ("at another offset", 22, good(20..22)),
        ("of another epoch", 20, stored(&other_epoch, 20..22)),
        ("other bytes, of offset 0", 20, longer),
        ("nothing", 20, Vec::new()),
    ];
    for (what, offset, bytes) in wrong {
        assert!(!log.mend(Offset(offset), &bytes).unwrap_or(false), "{what}");
        assert_eq!(disk.contents(), before_them, "{what}");
    }
    assert!(log.mend(Offset(20), &good(20..22)).unwrap());
    assert!(log.mend(Offset(30), &good(30..33)).unwrap());
    assert_eq!(values(&log), all_values());
}

#[test]
fn batches_that_come_from_different_copies_are_written_from_both_ends() {
    let (disk, _store, log) = sealed(TailKind::Buffered);
    (20..23).for_each(|number| flip(&disk, number));
    assert!(is_damaged(&log, 20));
    assert!(log.mend(Offset(22), &good(22..23)).unwrap());
    assert!(!is_damaged(&log, 22) && is_damaged(&log, 21));
    assert!(log.mend(Offset(20), &good(20..21)).unwrap());
    assert!(!is_damaged(&log, 20) && is_damaged(&log, 21));
    assert!(log.mend(Offset(21), &good(21..22)).unwrap());
    assert_eq!(values(&log), all_values());
}

#[test]
fn the_block_that_takes_appends_is_not_written_to_from_elsewhere() {
    let (disk, store, log) = filled(TailKind::Buffered, 1);
    store.drain();
    flip(&disk, COUNT - 1);
    let before = data(&disk);
    assert!(!log.mend(Offset(COUNT - 1), &good(COUNT - 1..COUNT)).unwrap());
    assert_eq!(data(&disk), before);
}
