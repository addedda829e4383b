//! Repairs: a store whose journal is lost or damaged opens again with everything that its blocks hold, and nothing is
//! deleted.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::*;
use walrus_log::{Error, FsyncSchedule, LogId, Offset, Options, Store, repair, verify};

fn options() -> Options {
    Options { mark_interval: std::time::Duration::ZERO, ..Options::small() }
}

/// Makes a store with two logs of several blocks; the first is trimmed, the second has a cursor.
fn fill(directory: &Path) {
    let store = open(directory, &options());
    let logs = [1, 2].map(|id| store.create_log(spec(id, &format!("log {id}"))).unwrap());
    for i in 0..150 {
        append(&logs[0], &numbered(i, 1000)).unwrap();
        append(&logs[1], &numbered(1000 + i, 700)).unwrap();
    }
    logs[0].delete_before(Offset(70)).unwrap();
    logs[1].cursor("c").unwrap().seek(Offset(20)).unwrap();
    store.drain();
    store.close().unwrap();
}

fn journal(directory: &Path) -> PathBuf {
    let paths = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    paths.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("journal-")).max().unwrap()
}

fn log(store: &Store, id: u128) -> walrus_log::Log {
    store.log(LogId(uuid::Uuid::from_u128(id))).unwrap()
}

fn check_log_2(store: &Store) {
    let second = log(store, 2);
    assert_eq!(values(&second), (1000..1150).map(|i| numbered(i, 700)).collect::<Vec<_>>());
    assert_eq!(second.name(), "log 2");
    append(&second, b"goes on").unwrap();
}

/// Checks that the store knows of lost promises. Nobody knows what else the journal said, so a reader that must not get
/// an entry twice is refused.
fn check_promises(store: &Store) {
    assert!(store.has_lost_promises());
    for id in [1, 2] {
        let read = log(store, id).cursor("c").unwrap().read_next(true);
        assert!(matches!(read, Err(Error::DoubtedCursor { .. })), "log {id}: {read:?}");
    }
}

#[test]
fn a_lost_journal_is_made_again_from_the_headers_of_blocks() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    fs::remove_file(journal(directory.path())).unwrap();
    assert!(matches!(Store::open(directory.path(), options()), Err(Error::Damaged { .. })));
    let repaired = repair(directory.path()).unwrap();
    let journal = repaired.journal.unwrap();
    assert_eq!((journal.moved_to, journal.logs_known, journal.logs_found.len()), (None, 0, 2));
    assert!(repaired.inspection.has_lost_promises);
    let store = open(directory.path(), &options());
    check_promises(&store);
    check_log_2(&store);
    // The trim is forgotten, but the blocks that it freed are gone.
    let first = log(&store, 1);
    assert!(
        first.start_offset() <= Offset(70) && first.start_offset() > Offset(0),
        "{}",
        first.start_offset()
    );
    assert_eq!(values(&first).last().unwrap(), &numbered(149, 1000));
    assert!(store.logs().iter().all(walrus_log::Log::is_suspect));
}

#[test]
fn of_a_damaged_journal_everything_before_the_damage_counts() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    let path = journal(directory.path());
    let good = fs::read(&path).unwrap();
    let used = good.iter().rposition(|byte| *byte != 0).unwrap();
    let (mut knew_all, mut knew_nothing) = (0, 0);
    // The damage lies in the first record, then in places all over the journal.
    for at in [100].into_iter().chain((0..used).step_by(used / 15)) {
        let copy = tempfile::tempdir().unwrap();
        for file in fs::read_dir(directory.path()).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        fs::write(copy.path().join(path.file_name().unwrap()), &bad).unwrap();
        if !matches!(Store::open(copy.path(), options()), Err(Error::Damaged { .. })) {
            // Damage in padding, or in the last group, which may be torn, refuses no start.
            continue;
        }
        let repaired = repair(copy.path()).unwrap();
        let journal = repaired.journal.clone().unwrap_or_else(|| panic!("byte {at}"));
        let kept = fs::read(copy.path().join(journal.moved_to.unwrap())).unwrap();
        assert!(kept == bad, "byte {at}: nothing of the old journal is lost");
        assert!(repaired.lost_something(), "byte {at}");
        let store = open(copy.path(), &options());
        check_promises(&store);
        check_log_2(&store);
        let first = log(&store, 1);
        knew_all += u32::from(journal.logs_known == 2);
        knew_nothing += u32::from(journal.logs_known == 0);
        // If the log is known and its trim is not, the offsets that the trim freed count as damaged.
        let (records, fences) = read_from(&first, first.start_offset(), 10_000);
        let Some(&(begin, _)) = records.first() else {
            panic!(
                "byte {at}: nothing of {first:?}; {:?} {fences:?} {:?}",
                repaired.inspection,
                store.report()
            );
        };
        assert!(
            fences.is_empty() || first.start_offset() == Offset(0) && fences == [(0, begin)],
            "byte {at}"
        );
        let expected: Vec<_> = (begin..150).map(|i| (i, numbered(i, 1000))).collect();
        assert!(records == expected && records.len() >= 80, "byte {at}");
        drop(first);
        store.close().unwrap();
        let again = repair(copy.path()).unwrap();
        assert_eq!(
            (again.journal, again.inspection.report.lost_end),
            (None, None),
            "byte {at}: once is enough"
        );
        assert!(again.inspection.has_lost_promises, "byte {at}: and known for good");
    }
    assert!(knew_nothing > 0 && knew_all > 8, "{knew_nothing} {knew_all}");
}

/// A repair once numbered on from the last record that it could read, and wrote the whole state again. With many logs the
/// new journal went further than END and blocks say, so the next open believed that nothing was lost: a cursor went back,
/// and entries that must come once came again.
#[test]
fn a_repaired_journal_of_many_logs_does_not_pass_for_a_whole_one() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), &options());
    let first = store.create_log(spec(1, "log 1")).unwrap();
    for i in 0..10 {
        append(&first, &numbered(i, 100)).unwrap();
    }
    for id in 2..202 {
        store.create_log(spec(id, "nothing in it")).unwrap();
    }
    let cursor = first.cursor("c").unwrap();
    for _ in 0..9 {
        cursor.read_next(true).unwrap().unwrap();
    }
    store.close().unwrap();
    drop((cursor, first, store));
    let path = journal(directory.path());
    let mut bytes = fs::read(&path).unwrap();
    // One move in the middle is damaged; those behind it prove that it was there.
    let is_move = |at: &usize| bytes[at + 24] == 10 && bytes[at + 4..at + 8] == 29u32.to_le_bytes();
    let moves: Vec<usize> = (0..bytes.len() - 64).step_by(8).filter(is_move).collect();
    assert_eq!(moves.len(), 9);
    bytes[moves[4] + 40] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert!(matches!(Store::open(directory.path(), options()), Err(Error::Damaged { .. })));
    assert_eq!(repair(directory.path()).unwrap().journal.unwrap().logs_known, 201);
    let store = open(directory.path(), &options());
    assert_eq!(store.report().lost_end, None, "it is known already");
    check_promises(&store);
    // Not even the logs that nothing was ever appended to look new.
    assert_eq!(store.logs().len(), 201);
}

/// A record of an unknown kind, with the right checksum, once counted as damage: a repair by an older program threw away
/// what a newer one had promised.
#[test]
fn a_record_of_a_newer_program_is_refused_by_name_and_no_repair_touches_it() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    let path = journal(directory.path());
    let mut bytes = fs::read(&path).unwrap();
    // The last record, which says that the store was closed, becomes one of kind 200.
    let closed = (0..bytes.len() - 32).step_by(8).rfind(|&at| bytes[at + 24] == 14).unwrap();
    bytes[closed + 24] = 200;
    let checksum = crc(&bytes[closed + 4..closed + 32]);
    bytes[closed..closed + 4].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    let before = contents(directory.path());
    for refused in [Store::open(directory.path(), options()).map(drop), repair(directory.path()).map(drop)] {
        let Err(error @ Error::UnsupportedFormat { found: 200, .. }) = refused else { panic!("{refused:?}") };
        assert!(error.to_string().contains("newer program"), "{error}");
        assert_eq!(contents(directory.path()), before, "nothing is changed");
    }
}

/// Computes CRC-32C bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    files.sort();
    files
}

#[test]
fn blocks_of_a_log_of_which_only_the_creation_is_known_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    let path = journal(directory.path());
    let mut bytes = fs::read(&path).unwrap();
    // The creation of the second log is damaged. That of the first lies before it, synced marks and the trim behind it.
    let at = bytes.windows(5).position(|window| window == b"log 2").unwrap();
    bytes[at] ^= 0x40;
    fs::write(&path, &bytes).unwrap();
    let repaired = repair(directory.path()).unwrap();
    let journal = repaired.journal.unwrap();
    assert_eq!((journal.logs_known, journal.logs_found.len()), (1, 1));
    let store = open(directory.path(), &options());
    check_log_2(&store);
    let (records, fences) = read_from(&log(&store, 1), Offset(0), 10_000);
    let Some(&(begin, _)) = records.first() else { panic!("{:?}", store.report()) };
    assert_eq!(fences, [(0, begin)]);
    assert_eq!(records, (begin..150).map(|i| (i, numbered(i, 1000))).collect::<Vec<_>>());
}

#[test]
fn a_store_that_opens_is_opened_and_keeps_what_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let never = Options { fsync: FsyncSchedule::NoFsync, ..options() };
    let store = open(directory.path(), &never);
    let one = store.create_log(spec(1, "t")).unwrap();
    append(&one, b"x").unwrap();
    assert!(matches!(repair(directory.path()), Err(Error::Locked { .. })));
    drop(one);
    store.close().unwrap();
    drop(store);
    let repaired = repair(directory.path()).unwrap();
    assert_eq!(repaired.journal, None);
    assert_eq!(repaired.inspection.logs[0].end, Offset(1));
    assert!(!repaired.inspection.logs[0].is_suspect);
    assert_eq!(verify(directory.path()).unwrap().batches, 1);
    let nothing = tempfile::tempdir().unwrap();
    assert!(matches!(repair(nothing.path()), Err(Error::Damaged { .. })));
    assert_eq!(fs::read_dir(nothing.path()).unwrap().count(), 0, "nothing was made");
}
