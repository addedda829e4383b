//! Open logs in which batches rotted. The missing batches are told, and filled from another copy or left out; then the
//! log is the same as one without the damage, or as one that never had the batches.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use support::*;
use walrus_log::batch::{Batch, ProducerRef};
use walrus_log::{Error, Log, LogId, Offset, Options, SimulatedDisk, Store, TailKind};

const COUNT: u64 = 60;
const KINDS: [TailKind; 2] = [TailKind::Mapped, TailKind::Buffered];

fn value(number: u64) -> Vec<u8> {
    numbered(number, 700)
}

fn put(log: &Log, number: u64) {
    let producer = ProducerRef { id: (number % 3) as i64, epoch: 0, base_sequence: (number / 3) as i32 };
    let bytes = batch_by(&[&value(number)], Some(producer), 0);
    let (batch, _) = Batch::parse(&bytes).unwrap();
    log.append(&batch).unwrap().commit.wait().unwrap();
}

/// A disk with a log of one record in each batch, over several blocks, of three producers; its store was closed in order.
fn filled(kind: TailKind) -> SimulatedDisk {
    let disk = SimulatedDisk::new(kind);
    let store = open_on(&disk, &Options::small()).unwrap();
    let log = store.create_log(spec(1, "a")).unwrap();
    (0..COUNT).for_each(|number| put(&log, number));
    store.close().unwrap();
    disk
}

fn open(disk: &SimulatedDisk) -> (Store, Log) {
    let store = open_on(disk, &Options::small()).unwrap();
    let log = store.log(LogId(uuid::Uuid::from_u128(1))).unwrap();
    (store, log)
}

fn stored(log: &Log, offset: u64) -> Vec<u8> {
    log.read(Offset(offset), 1).unwrap().batches[0].to_vec()
}

fn flip(disk: &SimulatedDisk, number: u64) {
    let needle = value(number);
    let place = disk.contents().into_iter().find_map(|(name, bytes)| {
        let at = bytes.windows(needle.len()).position(|window| window == needle)?;
        Some((name, at))
    });
    let (name, at) = place.unwrap();
    disk.flip(&name, at + 300, 4);
}

fn ranges(pairs: &[(u64, u64)]) -> Vec<(Offset, Offset)> {
    pairs.iter().map(|&(start, end)| (Offset(start), Offset(end))).collect()
}

/// The offsets that a reader gets, in order.
fn offsets(log: &Log) -> Vec<u64> {
    read_from(log, Offset(0), 10_000).0.into_iter().map(|(offset, _)| offset).collect()
}

#[test]
fn a_hole_of_an_open_log_is_filled_and_the_log_is_as_if_nothing_had_rotted() {
    for kind in KINDS {
        let (sound_disk, disk) = (filled(kind), filled(kind));
        let (_sound_store, sound) = open(&sound_disk);
        for number in [0, 20, 21, 40, COUNT - 1] {
            flip(&disk, number);
        }
        let (store, log) = open(&disk);
        let holes = ranges(&[(0, 1), (20, 22), (40, 41), (COUNT - 1, COUNT)]);
        assert_eq!(log.recount().unwrap(), holes, "{kind:?}");
        for number in [0, 20, 21, 40, COUNT - 1] {
            assert!(log.mend(Offset(number), &stored(&sound, number)).unwrap(), "{kind:?} {number}");
        }
        assert_eq!(log.recount().unwrap(), []);
        let is_as_sound = |log: &Log| {
            assert_eq!(offsets(log), (0..COUNT).collect::<Vec<_>>(), "{kind:?}");
            assert_eq!((log.digest(), log.producers()), (sound.digest(), sound.producers()), "{kind:?}");
        };
        is_as_sound(&log);
        store.close().unwrap();
        let (store, log) = open(&disk);
        is_as_sound(&log);
        store.close().unwrap();
        put(&sound, COUNT);
        let (_store, log) = open(&disk);
        put(&log, COUNT);
        assert_eq!(log.seal(b"v").unwrap(), sound.seal(b"v").unwrap());
        assert_eq!(offsets(&log), (0..=COUNT).collect::<Vec<_>>());
    }
}

#[test]
fn what_rotted_is_left_out_of_digests_and_a_log_without_it_is_the_same() {
    for kind in KINDS {
        let (sound_disk, disk) = (filled(kind), filled(kind));
        let (_sound_store, sound) = open(&sound_disk);
        (20..23).for_each(|number| flip(&disk, number));
        let (_store, log) = open(&disk);
        assert_eq!(log.recount().unwrap(), ranges(&[(20, 23)]));

        // A new copy never gets those batches.
        let fresh_disk = SimulatedDisk::new(kind);
        let store = open_on(&fresh_disk, &Options::small()).unwrap();
        let fresh = store.create_log(spec(1, "a")).unwrap();
        let copy = |log: &Log, number: u64| {
            let bytes = stored(&sound, number);
            let (batch, _) = Batch::parse(&bytes).unwrap();
            assert_eq!(log.append_copied(&batch).unwrap().base_offset, Offset(number));
        };
        (0..20).for_each(|number| copy(&fresh, number));
        fresh.skip_to(Offset(23)).unwrap();
        let before = (store, fresh);
        (23..30).for_each(|number| copy(&before.1, number));
        before.0.close().unwrap();
        drop(before);
        let (_store, fresh) = open(&fresh_disk);
        assert!(!fresh.is_suspect(), "it is known what is missing");
        (30..COUNT).for_each(|number| copy(&fresh, number));
        assert_eq!(fresh.recount().unwrap(), ranges(&[(20, 23)]));
        assert!(matches!(
            fresh.read(Offset(21), 1),
            Err(Error::Corrupted { start: Offset(20), end: Offset(23), .. })
        ));
        assert_eq!(offsets(&fresh), offsets(&log));
        let (sealed, also) = (log.seal(b"v").unwrap(), fresh.seal(b"v").unwrap());
        assert_eq!((sealed, fresh.producers()), (also, log.producers()), "{kind:?}");
    }
}

#[test]
fn a_log_that_ends_with_a_hole_goes_on_behind_it() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = open_on(&disk, &Options::small()).unwrap();
    let log = store.create_log(spec(1, "a")).unwrap();
    log.skip_to(Offset(5)).unwrap();
    assert!(matches!(log.skip_to(Offset(5)), Err(Error::OffsetOutOfRange { .. })));
    store.close().unwrap();
    drop((store, log));
    let (_store, log) = open(&disk);
    assert_eq!((log.end_offset(), log.recount().unwrap()), (Offset(5), ranges(&[(0, 5)])));
    append(&log, b"x").unwrap();
    assert_eq!(offsets(&log), [5]);
    log.seal(b"v").unwrap();
    assert!(matches!(log.skip_to(Offset(9)), Err(Error::Sealed { .. })));
    assert!(matches!(log.recount(), Err(Error::Sealed { .. })));
}

#[test]
fn damage_in_the_middle_makes_no_log_suspect_and_damage_at_its_end_does() {
    for (number, is_suspect) in [(20, false), (COUNT - 1, true)] {
        let disk = filled(TailKind::Buffered);
        flip(&disk, number);
        assert_eq!(open(&disk).1.is_suspect(), is_suspect);
    }
}
