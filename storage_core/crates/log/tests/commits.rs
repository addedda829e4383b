//! Batches that begin a commit, which proves that everything in front of them was durable. A damaged batch above the synced
//! mark was once a torn tail, whatever lay behind it: one flipped bit took 14 undamaged, acknowledged records of 20 with
//! it, their offsets were given again, and nothing told it.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use support::*;
use walrus_log::batch::Batch;
use walrus_log::{Log, LogId, Offset, Options, SimulatedDisk, Store, TailKind, Walrus};

const KINDS: [TailKind; 2] = [TailKind::Mapped, TailKind::Buffered];
const VALUE_BYTES: usize = 954;

fn options() -> Options {
    // With this interval no synced mark is written before the crash.
    Options {
        block_bytes: 16 << 10,
        blocks_per_file: 4,
        mark_interval: Duration::from_secs(3600),
        ..Options::small()
    }
}

fn value(offset: u64) -> Vec<u8> {
    numbered(offset, VALUE_BYTES)
}

/// The disk that a kill leaves of a store with so many records, each acknowledged before the next was appended.
fn killed(kind: TailKind, records: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::new(kind);
    let store = open_on(&disk, &options()).unwrap();
    let log = store.create_log(spec(1, "t")).unwrap();
    for offset in 0..records {
        append(&log, &value(offset)).unwrap();
    }
    store.drain();
    SimulatedDisk::from_contents(kind, &disk.contents())
}

/// Flips a bit in the value of a record.
fn flip(disk: &SimulatedDisk, offset: u64) {
    let wanted = value(offset);
    let contents: BTreeMap<_, _> = disk.contents();
    let found = contents.iter().find_map(|(name, bytes)| {
        let at = bytes.windows(20).position(|window| window == &wanted[..20])?;
        Some((name.clone(), at))
    });
    let (name, at) = found.unwrap();
    assert!(disk.flip(&name, at + 10, 4));
}

fn open(disk: &SimulatedDisk) -> (Store, Log) {
    let store = open_on(disk, &options()).unwrap();
    let log = store.log(LogId(uuid::Uuid::from_u128(1))).unwrap();
    (store, log)
}

#[test]
fn a_flipped_bit_in_front_of_a_later_commit_is_fenced_and_costs_its_record_alone() {
    for kind in KINDS {
        for damaged in [0, 5, 11, 12, 13, 18] {
            let disk = killed(kind, 20);
            flip(&disk, damaged);
            let (store, log) = open(&disk);
            let (records, fences) = read_from(&log, Offset(0), 5_000);
            assert_eq!(fences, [(damaged, damaged + 1)], "{kind:?}, {damaged}");
            assert_eq!(records.len(), 19, "{kind:?}, {damaged}");
            assert!(records.iter().all(|(offset, bytes)| *bytes == value(*offset)));
            let report = store.report();
            assert_eq!((report.corrupted.len(), report.torn_tails.len()), (1, 0), "{kind:?}, {damaged}");
            assert!(report.lost_something());
            // No offset is given again, neither now nor after the next open.
            assert_eq!(append(&log, b"later").unwrap(), Offset(20));
            store.close().unwrap();
            drop((log, store));
            let (_, log) = open(&disk);
            assert_eq!((log.end_offset(), read_from(&log, Offset(0), 5_000).1), (Offset(21), fences));
        }
    }
}

#[test]
fn several_damaged_records_are_fenced_one_by_one() {
    for kind in KINDS {
        let disk = killed(kind, 20);
        [3, 5, 6, 14].into_iter().for_each(|offset| flip(&disk, offset));
        let (_, log) = open(&disk);
        let (records, fences) = read_from(&log, Offset(0), 5_000);
        assert_eq!((fences, records.len()), (vec![(3, 4), (5, 7), (14, 15)], 16), "{kind:?}");
    }
}

#[test]
fn a_block_that_is_lost_in_front_of_a_later_commit_is_damage() {
    for kind in KINDS {
        let disk = killed(kind, 30);
        let mut contents = disk.contents();
        // Which slots a log gets depends on how far the thread is that makes them ready.
        let headers = contents.iter().flat_map(|(name, bytes)| {
            let pages = (0..bytes.len()).step_by(4096).filter(|at| bytes[*at..].starts_with(b"WALRUSBK"));
            pages
                .map(|at| (u64::from_le_bytes(bytes[at + 64..at + 72].try_into().unwrap()), name.clone(), at))
        });
        let (second, name, at) = headers.filter(|(base, ..)| *base > 0).min().unwrap();
        contents.get_mut(&name).unwrap()[at..at + 4096].fill(0);
        let (store, log) = open(&SimulatedDisk::from_contents(kind, &contents));
        let (records, fences) = read_from(&log, Offset(0), 5_000);
        assert_eq!((fences.len(), fences[0].0, log.end_offset()), (1, second, Offset(30)), "{kind:?}");
        assert_eq!(records.len() as u64 + fences[0].1 - fences[0].0, 30, "{kind:?}");
        assert!(store.report().torn_tails.is_empty());
    }
}

/// Nothing lies behind the last record that would prove that it was durable, so it is cut, and told.
#[test]
fn the_last_record_of_all_is_a_torn_tail_when_it_is_damaged() {
    for kind in KINDS {
        let disk = killed(kind, 20);
        flip(&disk, 19);
        let (store, log) = open(&disk);
        assert_eq!((log.end_offset(), read_from(&log, Offset(0), 5_000).1), (Offset(19), vec![]), "{kind:?}");
        let report = store.report();
        assert_eq!((report.torn_tails.len(), report.torn_tails[0].batches), (1, 0), "{kind:?}");
        assert!(report.lost_something());
    }
}

/// Records of one commit can reach the disk in any order, so none of them proves another.
#[test]
fn what_was_not_synced_between_two_records_is_torn_and_the_report_says_what_lay_behind() {
    for kind in KINDS {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &options()).unwrap();
        let log = store.create_log(spec(1, "t")).unwrap();
        append(&log, &value(0)).unwrap();
        let tickets: Vec<_> = (1..6)
            .map(|offset| {
                let bytes = batch_of(&[&value(offset)]);
                log.append(&Batch::parse(&bytes).unwrap().0).unwrap().commit
            })
            .collect();
        tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
        let disk = SimulatedDisk::from_contents(kind, &disk.contents());
        flip(&disk, 2);
        let (store, log) = open(&disk);
        assert_eq!((log.end_offset(), read_from(&log, Offset(0), 5_000).1), (Offset(2), vec![]), "{kind:?}");
        assert_eq!(store.report().torn_tails[0].batches, 3, "{kind:?}");
    }
}

/// A power failure may keep any part of the unsynced bytes, at any moment; no recovery then calls anything damaged, since
/// nothing is.
#[test]
fn no_crash_makes_a_batch_vouch_for_what_was_never_durable() {
    for kind in KINDS {
        for seed in 0..effort(12) {
            let disk = SimulatedDisk::new(kind);
            let store = open_on(&disk, &options()).unwrap();
            let log = store.create_log(spec(1, "t")).unwrap();
            let mut random = Random(seed);
            for offset in 0..24 {
                let bytes = batch_of(&[&value(offset)]);
                let ticket = log.append(&Batch::parse(&bytes).unwrap().0).unwrap().commit;
                if random.below(3) > 0 {
                    ticket.wait().unwrap();
                }
            }
            for changes in 0..=disk.changes() {
                for choice in [walrus_log::CrashChoice::Some(seed), walrus_log::CrashChoice::Torn(seed)] {
                    let image = disk.crash_image(changes, choice);
                    let store = open_on(&image, &options()).unwrap();
                    assert_eq!(store.report().corrupted, [], "{kind:?}, seed {seed}, {changes}, {choice:?}");
                }
            }
        }
    }
}

#[test]
fn damage_in_front_of_a_batch_group_is_fenced_and_the_group_stays() {
    for kind in KINDS {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &options()).unwrap();
        let log = store.create_log(spec(1, "t")).unwrap();
        for offset in 0..4 {
            append(&log, &value(offset)).unwrap();
        }
        let parts = [batch_of(&[&value(4)]), batch_of(&[&value(5)])];
        log.append_group(&parts.iter().map(|part| Batch::parse(part).unwrap().0).collect::<Vec<_>>())
            .unwrap();
        let disk = SimulatedDisk::from_contents(kind, &disk.contents());
        flip(&disk, 3);
        let (_, log) = open(&disk);
        let (records, fences) = read_from(&log, Offset(0), 5_000);
        assert_eq!((fences, records.len()), (vec![(3, 4)], 5), "{kind:?}");
    }
}

#[test]
fn the_walrus_says_what_its_recovery_did() {
    let disk = killed(TailKind::Buffered, 20);
    flip(&disk, 7);
    let store = open_on(&disk, &options()).unwrap();
    let walrus = Walrus::on(store).unwrap();
    assert_eq!(walrus.recovery().corrupted.len(), 1);
    let json = walrus.recovery().to_json();
    assert_eq!((&json["lost_something"], &json["damaged"][0]["start"]), (&true.into(), &7.into()));
}
