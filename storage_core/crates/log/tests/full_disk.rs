//! Stores on a full disk. After about 960 moves of cursors on one, a store once could not trim, delete or close, and after
//! a restart it did not open, not even to be read.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use support::*;
use walrus_log::{CrashChoice, Error, Log, LogId, Offset, Options, SimulatedDisk, Store, TailKind};

const KINDS: [TailKind; 2] = [TailKind::Buffered, TailKind::Mapped];
/// Number of moves for which no journal has room.
const MOVES: u64 = 20_000;

fn options() -> Options {
    Options { block_bytes: 16 << 10, blocks_per_file: 4, ..Options::small() }
}

fn log(store: &Store, id: u128) -> Log {
    store.log(LogId(uuid::Uuid::from_u128(id))).unwrap()
}

/// Moves a cursor until the disk has no room for it.
fn move_until_full(store: &Store) {
    let cursor = log(store, 1).cursor("c").unwrap();
    let (start, end) = (log(store, 1).start_offset().0, log(store, 1).end_offset().0);
    let refused = (0..MOVES).find_map(|i| cursor.seek(Offset(start + i % (end - start))).err());
    assert!(matches!(refused, Some(Error::NoSpace { .. })), "{refused:?}");
}

#[test]
fn a_store_on_a_full_disk_trims_seals_votes_deletes_closes_and_opens_again() {
    for kind in KINDS {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &options()).unwrap();
        for id in 1..=3 {
            let log = store.create_log(spec(id, "t")).unwrap();
            for i in 0..40 {
                append(&log, &numbered(i, 1000)).unwrap();
            }
        }
        store.drain();
        disk.set_full(true);
        move_until_full(&store);
        assert!(matches!(store.create_log(spec(9, "new")), Err(Error::NoSpace { .. })), "{kind:?}");
        for start in 1..=35 {
            log(&store, 1).delete_before(Offset(start)).unwrap();
            store.put_property("vote", &[start as u8; 100]).unwrap();
        }
        log(&store, 2).seal(b"value").unwrap();
        log(&store, 1).truncate_to(Offset(38)).unwrap();
        store.delete_log(LogId(uuid::Uuid::from_u128(3))).unwrap();
        store.drain();
        store.close().unwrap();
        drop(store);
        let store = open_on(&disk, &options()).unwrap();
        let expected: Vec<_> = (35..38).map(|i| numbered(i, 1000)).collect();
        assert_eq!(values(&log(&store, 1)), expected, "{kind:?}");
        assert!(log(&store, 2).is_sealed() && store.logs().len() == 2, "{kind:?}");
        assert_eq!(store.property("vote").unwrap(), [35; 100][..], "{kind:?}");
        // The journal of this open has room for moves again, until the disk is full.
        move_until_full(&store);
        log(&store, 1).delete_before(Offset(37)).unwrap();
        disk.set_full(false);
        store.create_log(spec(9, "new")).unwrap();
        append(&log(&store, 1), b"goes on").unwrap();
        store.close().unwrap();
    }
}

#[test]
fn a_torn_tail_stays_in_its_place_where_a_full_disk_has_no_room_for_it() {
    // The tail is torn in the last block only, or from an earlier block on.
    for torn_from in [30, 12] {
        let disk = SimulatedDisk::new(TailKind::Buffered);
        let unmarked = Options { mark_interval: std::time::Duration::from_secs(3600), ..options() };
        let store = open_on(&disk, &unmarked).unwrap();
        let torn = store.create_log(spec(1, "t")).unwrap();
        for i in 0..30 {
            append(&torn, &numbered(i, 1000)).unwrap();
        }
        store.drain();
        append(&torn, &numbered(30, 1000)).unwrap();
        let image = disk.crash_image(disk.changes(), CrashChoice::Everything);
        let contents = image.contents();
        let flip = |number: u64| {
            let value = numbered(number, 1000);
            let at = |bytes: &Vec<u8>| bytes.windows(1000).position(|window| window == value);
            let (name, at) = contents.iter().find_map(|(name, bytes)| Some((name, at(bytes)?))).unwrap();
            assert!(image.flip(name, at, 1));
        };
        (torn_from..=30).for_each(flip);
        image.set_full(true);
        let store = open_on(&image, &unmarked).unwrap();
        let found = store.report().torn_tails.clone();
        assert!(found.iter().all(|tail| tail.moved_to.is_none()) && !found.is_empty(), "{found:?}");
        assert!(store.report().lost_something());
        let expected: Vec<_> = (0..torn_from).map(|i| numbered(i, 1000)).collect();
        assert_eq!(values(&log(&store, 1)), expected);
        assert!(!image.contents().keys().any(|name| name.starts_with("lost-")));
        image.set_full(false);
        assert_eq!(append(&log(&store, 1), b"goes on").unwrap(), Offset(torn_from));
        store.close().unwrap();
        drop(store);
        let store = open_on(&image, &unmarked).unwrap();
        assert_eq!(values(&log(&store, 1))[torn_from as usize..], [b"goes on"]);
        assert!(store.report().torn_tails.is_empty());
    }
}
