//! Batch groups, in which a batch is stored that is too large for one block: all of its entries are there or none, after a
//! crash at any point and to every reader.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::*;
use walrus_log::batch::Batch;
use walrus_log::{
    CrashChoice, Error, FsyncSchedule, Log, LogId, Offset, Options, SimulatedDisk, TailKind, Walrus,
};

/// Options with files of 48 KiB; a batch of more becomes a group.
fn options() -> Options {
    Options { block_bytes: 16 << 10, blocks_per_file: 3, journal_bytes_max: 8 << 10, ..Options::default() }
}

/// Batches of two large values each, which are numbered from `first` on; and all of the values.
fn group_of(batches: u64, first: u64) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let values: Vec<_> = (0..batches * 2).map(|i| numbered(first + i, 9000)).collect();
    let batches = values.chunks(2).map(|pair| batch_of(&[&pair[0], &pair[1]])).collect();
    (batches, values)
}

fn append_group(log: &Log, batches: &[Vec<u8>]) -> Result<std::ops::Range<Offset>, Error> {
    let batches: Vec<_> = batches.iter().map(|bytes| Batch::parse(bytes).unwrap().0).collect();
    log.append_group(&batches)
}

fn the_log(store: &walrus_log::Store) -> Log {
    store.log(LogId(uuid::Uuid::from_u128(1))).unwrap()
}

#[test]
fn more_entries_than_a_file_holds_are_one_batch_of_the_topic() {
    for options in all_options() {
        let directory = tempfile::tempdir().unwrap();
        let walrus = Walrus::open(directory.path(), options.clone()).unwrap();
        let entries: Vec<_> = (0..150).map(|i| numbered(i, 6000)).collect();
        let slices: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
        walrus.append_for_topic("t", b"before").unwrap();
        assert_eq!(
            walrus.batch_append_for_topic("t", &slices).unwrap(),
            Offset(1)..Offset(151),
            "{options:?}"
        );
        assert_eq!(walrus.append_for_topic("t", b"behind").unwrap(), Offset(151));
        let mut expected = vec![b"before".to_vec()];
        expected.extend(entries);
        expected.push(b"behind".to_vec());
        assert_eq!(values(walrus.topic("t").unwrap().log()), expected, "{options:?}");
        walrus.close().unwrap();
        drop(walrus);
        let walrus = Walrus::open(directory.path(), options.clone()).unwrap();
        assert!(walrus.store().report().clean);
        assert_eq!(values(walrus.topic("t").unwrap().log()), expected, "{options:?}");
        let mut read = Vec::new();
        while let Some(entry) = walrus.read_next("t", true).unwrap() {
            read.push(entry.data.to_vec());
        }
        assert_eq!(read, expected, "{options:?}");
    }
}

#[test]
fn an_entry_that_fits_into_no_file_is_refused_and_nothing_changes() {
    let directory = tempfile::tempdir().unwrap();
    let walrus = Walrus::open(directory.path(), Options::small()).unwrap();
    let (small, large) = (vec![1; 100_000], vec![2; 300_000]);
    let error = walrus.batch_append_for_topic("t", &[&small, &small, &large]).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    assert_eq!(walrus.append_for_topic("t", b"first").unwrap(), Offset(0));
    assert_eq!(walrus.batch_append_for_topic("t", &[&small, &small, &small]).unwrap(), Offset(1)..Offset(4));
}

#[test]
fn a_full_disk_refuses_a_group_before_anything_is_accepted() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &options()).unwrap();
        let log = store.create_log(spec(1, "a")).unwrap();
        append(&log, b"before").unwrap();
        let (batches, grouped) = group_of(6, 10);
        disk.set_full(true);
        let error = append_group(&log, &batches).unwrap_err();
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        append(&log, b"still").unwrap();
        disk.set_full(false);
        store.drain();
        assert_eq!(append_group(&log, &batches).unwrap(), Offset(2)..Offset(14));
        let expected: Vec<_> = [b"before".to_vec(), b"still".to_vec()].into_iter().chain(grouped).collect();
        assert_eq!(values(&log), expected);
    }
}

#[test]
fn groups_and_appends_of_several_threads_wait_for_each_other_and_readers_see_all_or_nothing() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &options()).unwrap();
        let log = store.create_log(spec(1, "a")).unwrap();
        let (batches, grouped) = group_of(4, 1);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let (log, batches) = (&log, &batches);
                    scope.spawn(move || {
                        for _ in 0..5 {
                            if writer == 2 {
                                append(log, b"single").unwrap();
                            } else {
                                append_group(log, batches).unwrap();
                            }
                        }
                    })
                })
                .collect();
            let reader = scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    let (records, _) = read_from(&log, Offset(0), 10_000);
                    check_order(&records.into_iter().map(|(_, value)| value).collect::<Vec<_>>(), &grouped);
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            is_over.store(true, Ordering::Release);
            reader.join().unwrap();
        });
        assert_eq!(values(&log).len(), 10 * grouped.len() + 5);
        check_order(&values(&log), &grouped);
    }
}

/// Checks that there is nothing but single values and whole groups.
fn check_order(values: &[Vec<u8>], group: &[Vec<u8>]) {
    let mut rest = values;
    while let Some(first) = rest.first() {
        if first == b"single" {
            rest = &rest[1..];
        } else {
            rest = rest.strip_prefix(group).expect("a whole group");
        }
    }
}

#[test]
fn every_crash_image_has_all_of_a_group_or_nothing() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        for fsync in [FsyncSchedule::SyncEach, FsyncSchedule::NoFsync] {
            let options = Options { fsync, ..options() };
            let disk = SimulatedDisk::new(kind);
            let store = open_on(&disk, &options).unwrap();
            let log = store.create_log(spec(1, "a")).unwrap();
            let (batches, grouped) = group_of(4, 10);
            append(&log, b"before").unwrap();
            append_group(&log, &batches).unwrap();
            let acknowledged = disk.changes();
            append(&log, b"behind").unwrap();
            store.drain();
            let all: Vec<_> =
                [b"before".to_vec()].into_iter().chain(grouped).chain([b"behind".to_vec()]).collect();
            let mut replay = disk.replay();
            let mut random = Random(7);
            loop {
                for round in 0..effort(4) {
                    let choice = match round % 4 {
                        0 => CrashChoice::Everything,
                        1 => CrashChoice::Pages(random.next()),
                        _ => CrashChoice::Some(random.next()),
                    };
                    let what = format!("{kind:?}, {fsync:?}, {} changes, {choice:?}", replay.changes());
                    let image = replay.crash_image(choice);
                    let again = open_on(&image, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
                    let Some(log) = again.log(LogId(uuid::Uuid::from_u128(1))) else { continue };
                    let found = values(&log);
                    assert!([0, 1, 9, 10].contains(&found.len()), "{what}: {} values", found.len());
                    assert_eq!(found, all[..found.len()], "{what}");
                    if fsync == FsyncSchedule::SyncEach && replay.changes() >= acknowledged {
                        assert!(found.len() >= 9, "{what}: the group is gone");
                    }
                    // New appends take the place of those that were lost, and survive the next open.
                    let (next, more) = group_of(3, 500);
                    append_group(&log, &next).unwrap();
                    append(&log, b"last").unwrap();
                    again.close().unwrap();
                    drop((log, again));
                    let expected: Vec<_> = found.into_iter().chain(more).chain([b"last".to_vec()]).collect();
                    assert_eq!(values(&the_log(&open_on(&image, &options).unwrap())), expected, "{what}");
                }
                if !replay.step() {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_group_that_was_trimmed_or_truncated_in_its_middle_stays_as_it_is() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        for (trim, cut) in [(3, None), (0, Some(5)), (5, Some(7)), (2, Some(3))] {
            let disk = SimulatedDisk::new(kind);
            // Synced marks stay behind, so that only the group itself tells that it is whole.
            let options = Options { mark_interval: std::time::Duration::from_secs(3600), ..options() };
            let store = open_on(&disk, &options).unwrap();
            let log = store.create_log(spec(1, "a")).unwrap();
            append(&log, b"before").unwrap();
            let (batches, grouped) = group_of(4, 10);
            append_group(&log, &batches).unwrap();
            let mut expected: Vec<_> = [b"before".to_vec()].into_iter().chain(grouped).collect();
            if let Some(cut) = cut {
                log.truncate_to(Offset(cut)).unwrap();
                expected.truncate(cut as usize);
            }
            log.delete_before(Offset(trim)).unwrap();
            store.drain();
            let image = disk.crash_image(disk.changes(), CrashChoice::Nothing);
            let again = open_on(&image, &options).unwrap();
            assert_eq!(values(&the_log(&again)), expected[trim as usize..], "{kind:?}, {trim}, {cut:?}");
            append(&the_log(&again), b"behind").unwrap();
            expected.push(b"behind".to_vec());
            let image = image.crash_image(image.changes(), CrashChoice::Nothing);
            let again = open_on(&image, &options).unwrap();
            assert_eq!(values(&the_log(&again)), expected[trim as usize..], "{kind:?}, {trim}, {cut:?}");
        }
    }
}

#[test]
fn what_is_appended_behind_a_group_in_a_store_that_was_opened_again_survives_a_kill() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &options()).unwrap();
        let log = store.create_log(spec(1, "a")).unwrap();
        // The last part is small enough for an open to read all of it at the first look.
        let (mut batches, mut expected) = group_of(2, 10);
        batches.push(batch_of(&[b"last"]));
        expected.push(b"last".to_vec());
        append_group(&log, &batches).unwrap();
        store.close().unwrap();
        drop((log, store));
        let store = open_on(&disk, &options()).unwrap();
        assert!(store.report().clean);
        append(&the_log(&store), b"behind").unwrap();
        expected.push(b"behind".to_vec());
        let image = disk.crash_image(disk.changes(), CrashChoice::Nothing);
        assert_eq!(values(&the_log(&open_on(&image, &options()).unwrap())), expected, "{kind:?}");
    }
}

#[test]
fn damage_in_a_group_that_was_promised_is_fenced() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = open_on(&disk, &options()).unwrap();
    let log = store.create_log(spec(1, "a")).unwrap();
    let (batches, grouped) = group_of(3, 10);
    append_group(&log, &batches).unwrap();
    store.close().unwrap();
    drop((log, store));
    let contents = disk.contents();
    let place = |bytes: &Vec<u8>| bytes.windows(100).position(|window| window == &grouped[2][100..200]);
    let (name, at) = contents.iter().find_map(|(name, bytes)| Some((name.clone(), place(bytes)?))).unwrap();
    assert!(disk.flip(&name, at, 1));
    let store = open_on(&disk, &options()).unwrap();
    let (records, fences) = read_from(&the_log(&store), Offset(0), 10_000);
    assert_eq!(fences, [(2, 4)]);
    assert_eq!(records.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), [0, 1, 4, 5]);
}

#[test]
fn a_write_of_a_group_that_fails_poisons_the_log_and_leaves_nothing() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let mut failures = 0;
        for call in 0.. {
            let disk = SimulatedDisk::new(kind);
            let store = open_on(&disk, &options()).unwrap();
            let log = store.create_log(spec(1, "a")).unwrap();
            append(&log, b"before").unwrap();
            store.drain();
            let begin = disk.calls();
            let (batches, grouped) = group_of(3, 10);
            disk.fail_call(begin + call, walrus_log::Fault::Eio);
            let appended = append_group(&log, &batches);
            let made = disk.calls() - begin;
            disk.heal();
            let later = append(&log, b"behind");
            if appended.is_err() {
                failures += 1;
                assert_eq!(values(&log)[0], b"before");
                assert!(values(&log).len() <= 2, "{kind:?}, call {call}");
            }
            let (promised, was_later) = (values(&log), later.is_ok());
            drop((log, store));
            let again = open_on(&disk, &options()).unwrap();
            let found = values(&the_log(&again));
            assert!(found.starts_with(&promised), "{kind:?}, call {call}");
            let whole: Vec<_> = [b"before".to_vec()].into_iter().chain(grouped).collect();
            assert!(found == promised || found == whole, "{kind:?}, call {call}, {was_later}");
            if call > made + 20 {
                break;
            }
        }
        assert!(failures >= 4, "{kind:?}: {failures}");
    }
}
