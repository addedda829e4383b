//! Power failures. The images that a crash can leave, at every sync and between, hold everything that was acknowledged
//! by then, in order and with nothing torn; and a store that recovers from them survives the next crash too.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use support::*;
use walrus_log::batch::Batch;
use walrus_log::{CrashChoice, FsyncSchedule, LogId, Offset, Options, SimulatedDisk, Store, TailKind};

/// The acknowledged calls on three logs, by the number of changes of the disk when they were acknowledged.
#[derive(Default)]
struct History {
    /// Every value that was appended, by log and in order.
    values: Vec<Vec<Vec<u8>>>,
    /// Changes, log, and number of its values that were acknowledged, for each append.
    appended: Vec<(usize, usize, usize)>,
    /// Changes, log, and place of its cursor, for each move.
    moved: Vec<(usize, usize, u64)>,
    /// Changes and log, for each seal.
    sealed: Vec<(usize, usize)>,
    /// Changes, log, and its start, for each trim.
    trimmed: Vec<(usize, usize, u64)>,
}

fn id(log: usize) -> LogId {
    LogId(uuid::Uuid::from_u128(log as u128 + 1))
}

fn run(disk: &SimulatedDisk, options: &Options, seed: u64) -> History {
    let mut random = Random(seed);
    let mut history = History { values: vec![Vec::new(); 3], ..History::default() };
    let store = open_on(disk, options).unwrap();
    let logs: Vec<_> = (0..3).map(|log| store.create_log(spec(log + 1, "log")).unwrap()).collect();
    for step in 0..70 {
        let log = random.below(3) as usize;
        match random.below(20) {
            0 if step > 40 => {
                let place = random.below(logs[log].end_offset().0 + 1);
                logs[log].delete_before(Offset(place)).unwrap();
                history.trimmed.push((disk.changes(), log, logs[log].start_offset().0));
            }
            1 | 2 => {
                let cursor = logs[log].cursor("c").unwrap();
                if let Some(entry) = cursor.read_next(true).unwrap() {
                    history.moved.push((disk.changes(), log, entry.offset.0 + 1));
                }
            }
            3 if step > 60 => {
                logs[log].seal(b"end").unwrap();
                history.sealed.push((disk.changes(), log));
            }
            _ if logs[log].is_sealed() => {}
            _ => {
                let count = 1 + random.below(3);
                let size = if random.below(8) == 0 { 9000 } else { random.below(1200) as usize };
                let values: Vec<_> = (0..count).map(|_| numbered(random.next(), size)).collect();
                let slices: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
                history.values[log].extend(values.iter().cloned());
                append_all(&logs[log], &slices).unwrap();
                history.appended.push((disk.changes(), log, history.values[log].len()));
            }
        }
    }
    history
}

/// Checks that the store holds all that it must hold if the crash came after so many changes.
fn check(store: &Store, history: &History, changes: usize, what: &str) {
    for log in 0..3 {
        let acknowledged = history
            .appended
            .iter()
            .filter(|(at, of, _)| *at <= changes && *of == log)
            .map(|(.., n)| *n)
            .max();
        let Some(found) = store.log(id(log)) else {
            assert_eq!(acknowledged, None, "{what}: log {log} is gone");
            continue;
        };
        let start = found.start_offset().0 as usize;
        let trims = history.trimmed.iter().filter(|(_, of, _)| *of == log);
        let least =
            trims.clone().filter(|(at, ..)| *at <= changes).map(|(.., start)| *start).max().unwrap_or(0);
        assert!(start as u64 >= least, "{what}: log {log} starts at {start}, was trimmed to {least}");
        assert!(
            start == 0 || trims.clone().any(|(.., to)| *to == start as u64),
            "{what}: log {log} starts at {start}"
        );
        let values = values(&found);
        assert!(
            start + values.len() >= acknowledged.unwrap_or(0),
            "{what}: log {log} lost acknowledged values"
        );
        assert_eq!(values, history.values[log][start..start + values.len()], "{what}: log {log}");
        let cursor =
            history.moved.iter().filter(|(at, of, _)| *at <= changes && *of == log).map(|(.., c)| *c).max();
        let position = found.cursor("c").unwrap().position().0;
        assert!(position >= cursor.unwrap_or(0), "{what}: the cursor of log {log} went back to {position}");
        if history.sealed.iter().any(|(at, of)| *at <= changes && *of == log) {
            assert_eq!(found.sealed_value().as_deref(), Some(&b"end"[..]), "{what}: log {log}");
            assert_eq!(start + values.len(), history.values[log].len(), "{what}: log {log}");
        }
    }
    assert_eq!(store.report().corrupted, [], "{what}");
    // The first write of a block may be torn in its header; then the block is moved aside.
    assert!(store.report().unknown_blocks.iter().all(|block| block.moved_to.is_some()), "{what}");
}

fn options() -> Options {
    Options { block_bytes: 16 << 10, blocks_per_file: 3, journal_bytes_max: 8 << 10, ..Options::default() }
}

#[test]
fn every_image_holds_what_was_acknowledged() {
    for tail_kind in [TailKind::Mapped, TailKind::Buffered] {
        for seed in 0..effort(3) {
            let disk = SimulatedDisk::new(tail_kind);
            let history = run(&disk, &options(), seed);
            let syncs = disk.sync_points();
            assert!(syncs.len() > 50);
            // Crashes come after each sync, right before it, and at random points.
            let mut random = Random(seed);
            let points: Vec<usize> = syncs
                .iter()
                .flat_map(|&at| [at - 1, at])
                .chain((0..30).map(|_| random.below(disk.changes() as u64) as usize))
                .collect();
            for at in points {
                let choice = match random.below(4) {
                    0 => CrashChoice::Nothing,
                    1 => CrashChoice::Everything,
                    _ => CrashChoice::Some(random.next()),
                };
                let what = format!("{tail_kind:?}, seed {seed}, crash after {at} changes, {choice:?}");
                let image = disk.crash_image(at, choice);
                match open_on(&image, &options()) {
                    Ok(store) => check(&store, &history, at, &what),
                    Err(error) => panic!("{what}: {error}"),
                }
            }
        }
    }
}

#[test]
fn a_recovery_that_crashes_is_recovered() {
    for tail_kind in [TailKind::Mapped, TailKind::Buffered] {
        let disk = SimulatedDisk::new(tail_kind);
        let history = run(&disk, &options(), 77);
        let mut random = Random(7);
        for round in 0..effort(60) {
            let at = random.below(disk.changes() as u64) as usize;
            let image = disk.crash_image(at, CrashChoice::Some(random.next()));
            let before = image.changes();
            {
                let store = open_on(&image, &options()).unwrap();
                check(&store, &history, at, "first");
                for log in store.logs().iter().filter(|log| !log.is_sealed()) {
                    append(log, &numbered(round, 3000)).unwrap();
                }
            }
            // The second crash comes between the begin of the first recovery and the appends behind it.
            let again = before + random.below((image.changes() - before) as u64) as usize;
            let what = format!("{tail_kind:?}, round {round}, crashes after {at} and {again}");
            let second = image.crash_image(again, CrashChoice::Some(random.next()));
            let store = open_on(&second, &options()).unwrap_or_else(|error| panic!("{what}: {error}"));
            for log in store.logs() {
                let index = (0..3).find(|&index| id(index) == log.id()).unwrap();
                let acknowledged = history
                    .appended
                    .iter()
                    .filter(|(n, of, _)| *n <= at && *of == index)
                    .map(|(.., n)| *n)
                    .max();
                let mut values = values(&log);
                if values.last() == Some(&numbered(round, 3000)) {
                    values.pop();
                }
                let start = log.start_offset().0 as usize;
                assert!(start + values.len() >= acknowledged.unwrap_or(0), "{what}");
                assert_eq!(values, history.values[index][start..start + values.len()], "{what}");
            }
        }
    }
}

#[test]
fn without_syncs_a_crash_leaves_a_prefix_and_the_store_opens() {
    for tail_kind in [TailKind::Mapped, TailKind::Buffered] {
        for fsync in
            [FsyncSchedule::NoFsync, FsyncSchedule::Milliseconds(std::num::NonZeroU64::new(1).unwrap())]
        {
            let disk = SimulatedDisk::new(tail_kind);
            let options = Options { fsync, ..options() };
            let history = run(&disk, &options, 5);
            let mut random = Random(9);
            for _ in 0..effort(100) {
                let at = random.below(disk.changes() as u64) as usize;
                let choice = CrashChoice::Some(random.next());
                let what = format!("{tail_kind:?}, {fsync:?}, crash after {at} changes, {choice:?}");
                let image = disk.crash_image(at, choice);
                let store = open_on(&image, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
                for log in store.logs() {
                    let index = (0..3).find(|&index| id(index) == log.id()).unwrap();
                    let (records, _) = read_from(&log, log.start_offset(), 10_000);
                    for (offset, value) in records {
                        assert_eq!(value, history.values[index][offset as usize], "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn nosync_never_syncs_data_or_records() {
    let disk = SimulatedDisk::new(TailKind::Mapped);
    let options = Options { fsync: FsyncSchedule::NoFsync, journal_bytes_max: 1 << 20, ..Options::small() };
    let store = open_on(&disk, &options).unwrap();
    let at_open = disk.syncs();
    let log = store.create_log(spec(1, "a")).unwrap();
    for i in 0..500 {
        append(&log, &numbered(i, 500)).unwrap();
        log.cursor("c").unwrap().read_next(true).unwrap();
    }
    log.seal(b"").unwrap();
    store.close().unwrap();
    assert_eq!(disk.syncs(), at_open);
}

/// Another thread writes the mark; it may have read the end from before the truncation.
#[test]
fn no_synced_mark_names_what_a_truncation_cut_off() {
    let options = Options { mark_interval: std::time::Duration::ZERO, ..Options::small() };
    for life in 0..400 {
        let disk = SimulatedDisk::new(TailKind::Buffered);
        let store = open_on(&disk, &options).unwrap();
        let log = store.create_log(spec(1, "log")).unwrap();
        append(&log, b"stays").unwrap();
        append(&log, b"goes").unwrap();
        log.truncate_to(Offset(1)).unwrap();
        // The durable property takes along a mark that was appended to the journal before it.
        store.put_property("key", b"value").unwrap();
        let image = disk.crash_image(disk.changes(), CrashChoice::Everything);
        let store = open_on(&image, &options).unwrap();
        assert_eq!(store.report().corrupted, [], "life {life}");
        assert_eq!(store.log(id(0)).unwrap().durable_offset(), Offset(1), "life {life}");
    }
}

#[test]
fn what_was_cut_from_a_tail_does_not_come_back_after_a_close_in_order() {
    for kind in [TailKind::Buffered, TailKind::Mapped] {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &Options::small()).unwrap();
        let log = store.create_log(spec(1, "log")).unwrap();
        append(&log, b"stays").unwrap();
        // Both records are of one commit, so the second does not prove that the first was durable.
        let tickets = [b"tears", b"goes!"].map(|value| {
            let bytes = batch_of(&[value]);
            log.append(&Batch::parse(&bytes).unwrap().0).unwrap().commit
        });
        tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
        let image = disk.crash_image(disk.changes(), CrashChoice::Everything);
        // Which block a log gets depends on how far the thread is that makes them ready.
        let place = |bytes: &[u8]| bytes.windows(5).position(|window| window == b"tears");
        let torn = image.contents().into_iter().find_map(|(name, bytes)| Some((name, place(&bytes)?)));
        let (file, at) = torn.unwrap();
        assert!(file.ends_with(".wal") && image.flip(&file, at, 1));

        let store = open_on(&image, &Options::small()).unwrap();
        assert_eq!(store.report().torn_tails.len(), 1, "{kind:?}: {:?}", store.report());
        store.close().unwrap();
        let store = open_on(&image, &Options::small()).unwrap();
        assert!(store.report().clean && store.report().torn_tails.is_empty(), "{kind:?}");
        // The new record is as long as the torn one, so the record behind that would follow it now if it were still there.
        append(&store.log(id(0)).unwrap(), b"comes").unwrap();

        let image = image.crash_image(image.changes(), CrashChoice::Everything);
        let store = open_on(&image, &Options::small()).unwrap();
        assert_eq!(values(&store.log(id(0)).unwrap()), [b"stays", b"comes"], "{kind:?}");
    }
}

#[test]
fn what_a_deleted_log_had_does_not_come_back_under_a_new_block_where_nothing_was_synced() {
    for tail_kind in [TailKind::Mapped, TailKind::Buffered] {
        let options = Options { fsync: FsyncSchedule::NoFsync, ..options() };
        let disk = SimulatedDisk::new(tail_kind);
        let store = open_on(&disk, &options).unwrap();
        let log = store.create_log(spec(1, "old")).unwrap();
        for i in 0..8 {
            append(&log, &numbered(i, 900)).unwrap();
        }
        store.close().unwrap();
        drop((log, store));
        // The records reached the disk without a sync; the zeros that replace them do not.
        let disk = disk.crash_image(disk.changes(), CrashChoice::Everything);
        let store = open_on(&disk, &options).unwrap();
        store.create_log(spec(2, "other")).unwrap();
        store.delete_log(id(0)).unwrap();
        append(&store.log(id(1)).unwrap(), b"keeps the file").unwrap();
        store.drain();
        store.close().unwrap();
        drop(store);
        let store = open_on(&disk, &options).unwrap();
        let log = store.create_log(spec(3, "new")).unwrap();
        append(&log, &numbered(100, 900)).unwrap();
        store.drain();
        for seed in 0..effort(200) {
            let choice = if seed % 2 == 0 { CrashChoice::Pages(seed) } else { CrashChoice::Some(seed) };
            let image = disk.crash_image(disk.changes(), choice);
            let again = open_on(&image, &options).unwrap();
            let Some(log) = again.log(id(2)) else { continue };
            let (records, _) = read_from(&log, Offset(0), 10_000);
            let is_own = records.is_empty() || records == [(0, numbered(100, 900))];
            assert!(is_own, "{tail_kind:?}, {choice:?}: {} records", records.len());
        }
    }
}

/// A power cut once tore the first batch of a block within the four bytes of its mark, which the batch's own checksum does
/// not cover. The next open took the block, dead by then, for one whose header had come back from an earlier use of the
/// slot: the slot was never used again, and each later open reported the block once more.
#[test]
fn a_block_whose_first_batch_was_torn_in_its_mark_is_moved_aside_once() {
    const PAGE: usize = 4096;
    const MARK: std::ops::Range<usize> = PAGE + 12..PAGE + 16;
    let kind = TailKind::Mapped;
    let disk = SimulatedDisk::new(kind);
    let options = Options {
        fsync: FsyncSchedule::Milliseconds(std::num::NonZeroU64::new(3_600_000).unwrap()),
        ..options()
    };
    let store = open_on(&disk, &options).unwrap();
    let log = store.create_log(spec(1, "log")).unwrap();
    let began = disk.changes();
    append(&log, &numbered(1, 900)).unwrap();
    let mut torn = 0;
    for changes in began..disk.changes() {
        let mut contents = disk.crash_image(changes, CrashChoice::Everything).contents();
        for file in contents.iter_mut().filter(|(name, _)| name.ends_with(".wal")).map(|(_, file)| file) {
            if file.starts_with(b"WALRUSBK") {
                file[MARK].copy_from_slice(&[0x8a, 0, 0, 0]);
            }
        }
        // The store is killed after each open; nothing of the block was promised.
        for open in 0..4 {
            let disk = SimulatedDisk::from_contents(kind, &contents);
            let store = open_on(&disk, &options).unwrap();
            let report = store.report();
            assert_eq!(report.corrupted, []);
            torn += usize::from(!report.torn_tails.is_empty());
            let is_moved = report.unknown_blocks.iter().all(|block| block.moved_to.is_some());
            assert!(is_moved, "open {open} after {changes} changes: {:?}", report.unknown_blocks);
            assert!(open < 2 || report.unknown_blocks.is_empty(), "open {open}: it is told again");
            store.drain();
            contents = disk.contents();
        }
    }
    assert!(torn > 0, "no tail was torn");
}
