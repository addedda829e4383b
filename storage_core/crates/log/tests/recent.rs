//! What was written just now is read from memory, although the disk has it; the rest is read from the disk.
#![allow(clippy::unwrap_used, reason = "tests unwrap")]

mod support;

use support::*;
use walrus_log::batch::Batch;
use walrus_log::{FsyncSchedule, Log, Offset, Options, SimulatedDisk, TailKind};

const RECORD_BYTES: usize = 100_000;
/// This many records are 12 MB; a store keeps 8 MiB of all its logs in memory, besides the chunks that take appends.
const RECORDS: u64 = 120;

fn options() -> Options {
    Options { fsync: FsyncSchedule::SyncEach, block_bytes: 32 << 20, ..Options::small() }
}

fn reads_of(disk: &SimulatedDisk, log: &Log, offset: u64) -> u64 {
    let before = disk.reads();
    let read = log.read(Offset(offset), 1).unwrap();
    assert_eq!(read.next_offset, Offset(offset + 1));
    disk.reads() - before
}

#[test]
fn a_reader_close_behind_the_writer_asks_the_disk_for_nothing() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = open_on(&disk, &Options { block_bytes: 2 << 20, ..options() }).unwrap(); // several are filled
    let log = store.create_log(spec(1, "log")).unwrap();
    for number in 0..RECORDS {
        append(&log, &numbered(number, RECORD_BYTES)).unwrap();
        let behind = number.saturating_sub(1);
        assert!(log.is_in_memory(Offset(behind)), "{behind} behind {number}");
        store.drain(); // Chores open files, which counts as a read.
        assert_eq!(reads_of(&disk, &log, behind), 0, "{behind} behind {number}");
    }
}

#[test]
fn a_block_leaves_the_memory_when_the_next_one_is_full_or_the_log_is_sealed() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = open_on(&disk, &Options { block_bytes: 64 << 10, ..options() }).unwrap();
    let log = store.create_log(spec(1, "log")).unwrap();
    for number in 0..300 {
        append(&log, &numbered(number, 1000)).unwrap();
    }
    store.drain();
    assert!(!log.is_in_memory(Offset(0)) && log.is_in_memory(Offset(295)));
    log.seal(b"end").unwrap();
    assert!(!log.is_in_memory(Offset(295)));
    assert!(reads_of(&disk, &log, 295) > 0);
}

#[test]
fn of_blocks_that_end_together_the_last_one_stays_in_memory() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = open_on(&disk, &Options { block_bytes: 64 << 10, ..options() }).unwrap();
    let log = store.create_log(spec(1, "log")).unwrap();
    let appended = (0..180).map(|number| {
        let bytes = batch_of(&[&numbered(number, 1000)]);
        log.append(&Batch::parse(&bytes).unwrap().0).unwrap()
    });
    let appended: Vec<_> = appended.collect();
    for one in appended {
        one.commit.wait().unwrap();
    }
    store.drain();
    // All blocks but the last one are full.
    let in_memory: Vec<bool> = (0..180).map(|number| log.is_in_memory(Offset(number))).collect();
    let first = in_memory.iter().position(|is_in_memory| *is_in_memory).unwrap();
    assert!(in_memory[first..].iter().all(|is_in_memory| *is_in_memory), "{in_memory:?}");
    assert!((20..170).contains(&first), "from {first} on");
}

#[test]
fn what_was_written_long_ago_by_all_logs_together_is_read_from_the_disk() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = open_on(&disk, &options()).unwrap();
    let (idle, busy) =
        (store.create_log(spec(1, "idle")).unwrap(), store.create_log(spec(2, "busy")).unwrap());
    for number in 0..3 {
        append(&idle, &numbered(number, RECORD_BYTES)).unwrap();
    }
    assert!(idle.is_in_memory(Offset(0)));
    let expected: Vec<_> = (0..RECORDS).map(|number| numbered(number, RECORD_BYTES)).collect();
    for value in &expected {
        append(&busy, value).unwrap();
    }
    assert!(!idle.is_in_memory(Offset(0)) && !busy.is_in_memory(Offset(0)));
    assert!(reads_of(&disk, &idle, 0) > 0 && reads_of(&disk, &busy, 0) > 0);
    // Half of it comes from the disk, and half from memory.
    assert!(values(&busy) == expected);
    assert!(values(&idle) == expected[..3]);
}
