//! Files that somebody cuts while they are mapped: a store that closes in order afterwards has lost nothing, and one that
//! has lost something says so.

use std::sync::Arc;

use walrus_log::batch::{Batch, BatchBuilder};
use walrus_log::{Error, Log, Options, SimulatedDisk, Store, TailKind};

use crate::checks::read_from;
use crate::facts::{log_id, new_log};
use crate::owner::LATER;
use crate::random::{Random, Value};

/// Bytes of a block, and so of the files: pages are made ready where a writer has come far into its block.
const BLOCK_BYTES: u64 = 512 << 10;
/// Bytes that are written before the cut, at least: pages are made ready from here on.
const READY_FROM_BYTES: u64 = 64 << 10;
/// A cut of every second life keeps fewer bytes: pages are first made ready when little more is written, and what was
/// written is lost only by a cut in front of its end.
const EARLY_BYTES: u64 = 16 << 10;

/// Cuts a mapped file in front of its writer or behind it, or not at all, at the moment when pages are made ready, and
/// goes on. Answers how many records were there at the end of a store that was closed in order; none if it noticed.
pub fn cut(seed: u64) -> u64 {
    let mut random = Random(seed ^ 0x6375_7473);
    let disk = SimulatedDisk::new(TailKind::Mapped);
    let options =
        Options { fsync: LATER, block_bytes: BLOCK_BYTES, blocks_per_file: 2, ..Options::default() };
    let store = Store::open_on(Arc::new(disk.clone()), options.clone()).expect("a new store");
    let log = store.create_log(new_log(log_id(1), "cut".to_owned())).expect("a new log");
    let kept_below = if random.below(2) == 0 { EARLY_BYTES } else { 3 * BLOCK_BYTES };
    disk.cut_at_ready(random.below(kept_below) as usize);
    let mut values = Vec::new();
    let count = READY_FROM_BYTES / 900 + random.below(300);
    let went_on = (0..count).all(|number| {
        let value = Value { number: number + 1, bytes: 900 + random.below(400) as usize };
        let is_taken = append(&log, &value);
        values.extend(is_taken.is_ok().then_some(value));
        is_taken.is_ok()
    });
    let was_cut = !disk.will_cut();
    let closed = store.close();
    drop((log, store));
    // Nobody notices a cut behind the last sync before the next open.
    let is_cut_since = !was_cut && !disk.will_cut();
    if !went_on || closed.is_err() || is_cut_since {
        return 0;
    }
    let store = Store::open_on(Arc::new(disk), options).expect("it opens");
    let log = store.log(log_id(1)).expect("the log is there");
    let (records, fences) = read_from(&log, 0);
    assert_eq!(fences, [], "a store that was closed in order is damaged");
    let is_right = |((_, bytes), value): (&(u64, Vec<u8>), &Value)| value.is(bytes);
    let is_there = records.len() == values.len() && records.iter().zip(&values).all(is_right);
    assert!(is_there, "{} of {} records are there after a close in order", records.len(), values.len());
    values.len() as u64
}

fn append(log: &Log, value: &Value) -> Result<(), Error> {
    let mut builder = BatchBuilder::new();
    builder.push(None, Some(&value.to_bytes()), 0, &[]);
    let mut bytes = Vec::new();
    builder.build(&mut bytes).expect("small");
    let (batch, _) = Batch::parse(&bytes).expect("just built");
    log.append(&batch)?.commit.wait()
}
