//! Journals that lost their end. Cut, or with a last page of zeros, a journal looks just like one whose last records were
//! never written: once topics vanished so, offsets started again at 0, entries that must come once came again, and
//! nothing told it.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::collections::BTreeMap;

use support::*;
use walrus_log::{
    Error, FsyncSchedule, Log, LogId, Offset, Options, ReadConsistency, SimulatedDisk, Store, TailKind,
};

const KIND: TailKind = TailKind::Buffered;

fn options() -> Options {
    Options { block_bytes: 16 << 10, blocks_per_file: 4, ..Options::small() }
}

fn log(store: &Store, id: u128) -> Log {
    store.log(LogId(uuid::Uuid::from_u128(id))).unwrap()
}

/// A store with two logs, the second made later, and a cursor of the first that must not give an entry twice.
fn filled(closes: bool) -> BTreeMap<String, Vec<u8>> {
    let disk = SimulatedDisk::new(KIND);
    let store = open_on(&disk, &options()).unwrap();
    let first = store.create_log(spec(1, "first")).unwrap();
    for i in 0..10 {
        append(&first, &numbered(i, 700)).unwrap();
    }
    let second = store.create_log(spec(2, "second")).unwrap();
    for i in 0..30 {
        append(&second, &numbered(100 + i, 700)).unwrap();
    }
    let cursor = first.cursor("strict").unwrap();
    for _ in 0..5 {
        cursor.read_next(true).unwrap().unwrap();
    }
    store.put_property("key", b"value").unwrap();
    store.drain();
    if closes {
        store.close().unwrap();
    }
    disk.contents()
}

fn journal(contents: &BTreeMap<String, Vec<u8>>) -> String {
    contents.keys().find(|name| name.starts_with("journal")).unwrap().clone()
}

fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

fn open(contents: &BTreeMap<String, Vec<u8>>) -> (SimulatedDisk, Store) {
    let disk = SimulatedDisk::from_contents(KIND, contents);
    let store = open_on(&disk, &options()).unwrap();
    (disk, store)
}

/// Checks that the blocks give the logs back, with names and ends, after the journal has lost its records of them.
fn check_adopted(contents: &BTreeMap<String, Vec<u8>>, what: &str) {
    let (disk, store) = open(contents);
    let lost = store.report().lost_end.clone().unwrap_or_else(|| panic!("{what}: nothing is said"));
    assert!(lost.last_sequence < lost.durable_sequence, "{what}: {lost:?}");
    assert!(store.report().lost_something() && store.has_lost_promises());
    let (first, second) = (log(&store, 1), log(&store, 2));
    assert_eq!((first.name(), second.name()), ("first", "second"), "{what}");
    assert_eq!(values(&first), (0..10).map(|i| numbered(i, 700)).collect::<Vec<_>>(), "{what}");
    assert_eq!(values(&second), (100..130).map(|i| numbered(i, 700)).collect::<Vec<_>>(), "{what}");
    assert!(first.is_suspect() && second.is_suspect(), "{what}");
    assert_eq!((append(&first, b"x"), append(&second, b"y")).0.unwrap(), Offset(10), "{what}");
    // Nobody knows how far the cursor was, neither now nor after the next start.
    let refused = |store: &Store, name: &str| {
        let refused = log(store, 1).cursor(name).unwrap().read_next(true);
        assert!(matches!(refused, Err(Error::DoubtedCursor { .. })), "{what}: {refused:?}");
    };
    refused(&store, "strict");
    let at_least = ReadConsistency::AtLeastOnce { persist_every: 1 };
    assert!(first.cursor_with("loose", at_least).unwrap().read_next(true).unwrap().is_some());
    assert!(first.cursor("strict").unwrap().read_next(false).unwrap().is_some());
    store.close().unwrap();
    drop((first, second, store));
    let store = open_on(&disk, &options()).unwrap();
    assert_eq!(store.report().lost_end, None, "it is found once");
    assert!(store.has_lost_promises(), "and known for good");
    refused(&store, "strict");
    refused(&store, "of a reader that is new to the journal");
    let cursor = log(&store, 1).cursor("strict").unwrap();
    cursor.seek(Offset(5)).unwrap();
    assert_eq!(cursor.read_next(true).unwrap().unwrap().offset, Offset(5));
    let later = store.create_log(spec(3, "later")).unwrap();
    append(&later, b"z").unwrap();
    assert!(later.cursor("strict").unwrap().read_next(true).unwrap().is_some());
    store.close().unwrap();
    drop((later, cursor, store));
    let store = open_on(&disk, &options()).unwrap();
    assert_eq!(log(&store, 1).cursor("strict").unwrap().read_next(true).unwrap().unwrap().offset, Offset(6));
}

#[test]
fn a_journal_cut_in_front_of_the_logs_says_so_and_their_blocks_give_them_back() {
    for closes in [true, false] {
        let contents = filled(closes);
        let name = journal(&contents);
        // The cuts leave the records that the journal was made with, which tell nothing of the logs.
        for length in [128, 208] {
            let mut cut = contents.clone();
            cut.get_mut(&name).unwrap().truncate(length);
            check_adopted(&cut, &format!("closed: {closes}, cut to {length} bytes"));
        }
        let mut zeroed = contents.clone();
        let bytes = zeroed.get_mut(&name).unwrap();
        let end = used(bytes);
        bytes[160..end].fill(0);
        check_adopted(&zeroed, &format!("closed: {closes}, zeroed"));
    }
}

/// Wherever the journal is cut, the loss is told and the logs are whole, or the store does not open.
#[test]
fn a_journal_of_a_closed_store_cut_anywhere_is_told() {
    let contents = filled(true);
    let name = journal(&contents);
    for length in 96..used(&contents[&name]) {
        let mut cut = contents.clone();
        cut.get_mut(&name).unwrap().truncate(length);
        let disk = SimulatedDisk::from_contents(KIND, &cut);
        match open_on(&disk, &options()) {
            Ok(store) => {
                assert!(store.report().lost_end.is_some(), "cut to {length} bytes");
                assert_eq!(
                    (log(&store, 1).end_offset(), log(&store, 2).end_offset()),
                    (Offset(10), Offset(30))
                );
            }
            Err(error) => assert!(matches!(error, Error::Damaged { .. }), "cut to {length} bytes: {error}"),
        }
    }
}

/// END once told nothing of the records of such a store, since it noted only synced ones, and no record is synced there.
#[test]
fn a_cut_journal_of_a_store_that_never_syncs_is_told_on_the_machine_that_closed_it() {
    for kind in [TailKind::Buffered, TailKind::Mapped] {
        let never = Options { fsync: FsyncSchedule::NoFsync, ..options() };
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &never).unwrap();
        let first = store.create_log(spec(1, "first")).unwrap();
        append(&first, b"x").unwrap();
        first.cursor("strict").unwrap().read_next(true).unwrap().unwrap();
        store.close().unwrap();
        drop((first, store));
        disk.truncate(&journal(&disk.contents()), 208);
        let store = open_on(&disk, &never).unwrap();
        assert!(store.report().lost_end.is_some() && !store.report().clean, "{kind:?}");
        assert_eq!(log(&store, 1).name(), "first");
        store.close().unwrap();
        drop(store);
        // Another run of the machine never had the journal in memory, so there nobody can tell a cut journal from one that
        // was not written.
        let other = SimulatedDisk::from_contents(kind, &disk.contents());
        assert_eq!(open_on(&other, &never).unwrap().report().lost_end, None, "{kind:?}");
    }
}

#[test]
fn the_blocks_alone_tell_it_too() {
    let mut contents = filled(false);
    contents.remove("END");
    let name = journal(&contents);
    contents.get_mut(&name).unwrap().truncate(208);
    check_adopted(&contents, "without END");
    // A damaged END is made again, too.
    let mut contents = filled(true);
    contents.get_mut("END").unwrap().fill(0xa5);
    let (_, store) = open(&contents);
    assert_eq!(
        (store.report().made_again.clone(), store.report().lost_end.clone()),
        (vec!["END".to_owned()], None)
    );
}

/// After a crash in the middle of an open that notes the loss, the next open finds the same.
#[test]
fn a_crash_while_the_loss_is_noted_loses_nothing_of_it() {
    let mut contents = filled(true);
    let name = journal(&contents);
    contents.get_mut(&name).unwrap().truncate(208);
    let disk = SimulatedDisk::from_contents(KIND, &contents);
    let began = disk.changes();
    drop(open_on(&disk, &options()).unwrap());
    for changes in began..=disk.changes() {
        let image = disk.crash_image(changes, walrus_log::CrashChoice::Some(changes as u64));
        let store = open_on(&image, &options()).unwrap();
        assert!(store.has_lost_promises(), "after {} changes", changes - began);
        assert_eq!(values(&log(&store, 2)).len(), 30, "after {} changes", changes - began);
    }
}

#[test]
fn no_crash_makes_a_journal_look_shorter_than_it_was() {
    for seed in 0..effort(4) {
        let disk = SimulatedDisk::new(KIND);
        let small =
            Options { journal_bytes_max: 2 << 10, mark_interval: std::time::Duration::ZERO, ..options() };
        let store = open_on(&disk, &small).unwrap();
        let log = store.create_log(spec(1, "t")).unwrap();
        for i in 0..40 {
            append(&log, &numbered(i, 700)).unwrap();
            log.cursor("c").unwrap().read_next(true).unwrap();
        }
        store.close().unwrap();
        for changes in 0..=disk.changes() {
            let image = disk.crash_image(changes, walrus_log::CrashChoice::Some(seed));
            let store = open_on(&image, &small).unwrap();
            assert_eq!(store.report().lost_end, None, "seed {seed}, after {changes} changes");
        }
    }
}
