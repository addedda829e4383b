//! Power failures while a log is compacted, its old blocks are freed and used again: the last record of each key is there,
//! whatever the disk lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use walrus_log::batch::BatchBuilder;
use walrus_log::{Log, Options, SimulatedDisk, Store, TailKind};

use crate::checks::read_from;
use crate::facts::{log_id, new_log};
use crate::images::told;
use crate::random::{Random, Value};
use crate::tails::any_choice;

const KEYS: u64 = 6;
/// Delay after which tombstones go: none is ever so old.
const NEVER: Duration = Duration::from_secs(1 << 40);

/// The records that a log was given: the key and the value of each offset.
type Given = Vec<(u64, Value)>;

/// Compacts a log twice, appends to it meanwhile, and crashes that after each change of the disk. Answers how many images
/// were opened.
pub fn compact(seed: u64) -> u64 {
    let mut random = Random(seed ^ 0x636f_6d70);
    let kind = if seed.is_multiple_of(2) { TailKind::Mapped } else { TailKind::Buffered };
    let disk = SimulatedDisk::new(kind);
    let store = open(&disk);
    let log = store.create_log(new_log(log_id(1), "compacted".to_owned())).expect("nothing fails");
    let mut given = Given::new();
    grow(&log, 40 + random.below(30), &mut given, &mut random);
    store.drain();
    let began = disk.changes();
    // Each entry has a number of changes of the disk and the end that was acknowledged by then.
    let mut promised = vec![(began, given.len())];
    for _ in 0..2 {
        log.compact(NEVER).expect("nothing fails");
        grow(&log, 10 + random.below(20), &mut given, &mut random);
        promised.push((disk.changes(), given.len()));
        store.drain();
    }
    let ended = disk.changes();
    let mut images = 0;
    let mut replay = disk.replay();
    while replay.changes() < ended && replay.step() {
        let at = replay.changes();
        if at < began {
            continue;
        }
        let end = promised.iter().rfind(|(changes, _)| *changes <= at).map_or(0, |(_, end)| *end);
        let choice = any_choice(&mut random);
        let image = replay.crash_image(choice);
        told(&format!("{kind:?}, seed {seed}, after {at} changes, {choice:?}"), || {
            check(&image, &given, end);
        });
        images += 1;
    }
    images
}

fn check(image: &SimulatedDisk, given: &Given, promised: usize) {
    let store = open(image);
    let log = store.log(log_id(1)).expect("the log is there");
    let (records, fences) = read_from(&log, 0);
    let end = log.durable_offset().0 as usize;
    assert!(end >= promised, "the log ends at {end}, {promised} was acknowledged");
    assert_eq!(fences, [], "fences");
    let found: HashMap<u64, Vec<u8>> = records.into_iter().collect();
    for (offset, bytes) in &found {
        assert!(given[*offset as usize].1.is(bytes), "offset {offset} holds another value");
    }
    for (offset, (key, _)) in given[..end].iter().enumerate() {
        let is_last = given[offset + 1..end].iter().all(|(later, _)| later != key);
        assert!(
            !is_last || found.contains_key(&(offset as u64)),
            "the last record of key {key} is gone: {offset}"
        );
    }
}

fn open(disk: &SimulatedDisk) -> Store {
    let options = Options {
        block_bytes: 16 << 10,
        blocks_per_file: 3,
        mark_interval: Duration::from_secs(3600),
        ..Options::default()
    };
    Store::open_on(Arc::new(disk.clone()), options).expect("it opens")
}

fn grow(log: &Log, count: u64, given: &mut Given, random: &mut Random) {
    for _ in 0..count {
        let key = random.below(KEYS);
        let value = Value { number: given.len() as u64 + 1, bytes: 300 + random.below(1200) as usize };
        given.push((key, value));
        let mut builder = BatchBuilder::new();
        builder.push(Some(&key.to_le_bytes()), Some(&value.to_bytes()), 1, &[]);
        let mut bytes = Vec::new();
        let batch = builder.build_in(&mut bytes).expect("small");
        log.append(&batch).and_then(|appended| appended.commit.wait()).expect("nothing fails");
    }
}
