//! Torn tails, torn again: what a crash left behind the end of a log must not come back once the log has grown over it.
//! All batches have one size, a part of a page: what lay in a place before looks just like what belongs there.

use std::sync::Arc;
use std::time::Duration;

use walrus_log::batch::{Batch, BatchBuilder};
use walrus_log::{CommitTicket, CrashChoice, Log, Options, SimulatedDisk, Store, TailKind};

use crate::checks::read_from;
use crate::facts::{log_id, new_log};
use crate::images::told;
use crate::random::{Random, Value};

/// A value whose batch is a quarter of a page.
const VALUE_BYTES: usize = 954;
const BATCH_BYTES: usize = 1024;
/// Logs of each life: two, so that a commit is writes and a sync, not one durable write.
const LOGS: u64 = 2;
/// Crashes of each life.
const FIRST: u64 = 4;
/// Crashes of what each of these left.
const SECOND: u64 = 8;

/// Crashes a small life in the middle of a commit, and then what the recovery and more appends make of it. Answers how many
/// images were opened.
pub fn tear(seed: u64) -> u64 {
    let mut random = Random(seed ^ 0x7465_6172);
    let kind = if seed.is_multiple_of(2) { TailKind::Mapped } else { TailKind::Buffered };
    let disk = SimulatedDisk::new(kind);
    let store = open(&disk);
    let mut numbers = 1..;
    let mut known: Vec<Vec<Value>> = vec![Vec::new(); LOGS as usize];
    let logs: Vec<Log> = (0..LOGS).map(|log| create(&store, log)).collect();
    grow(&logs, random.below(4), &mut numbers, &mut known).into_iter().for_each(wait);
    let waited_for = known.iter().map(Vec::len).collect::<Vec<_>>();
    let began = disk.changes();
    grow(&logs, 1 + random.below(16), &mut numbers, &mut known).into_iter().for_each(wait);
    let ended = disk.changes();
    let mut images = 0;
    for _ in 0..FIRST {
        let at = began + random.below((ended - began) as u64 + 1) as usize;
        let choice = any_choice(&mut random);
        let image = disk.crash_image(at, choice);
        let what = format!("{kind:?}, seed {seed}, after {at} changes, {choice:?}");
        images += told(&what, || tear_again(&image, &known, &waited_for, &mut numbers, &mut random));
    }
    images
}

fn tear_again(
    image: &SimulatedDisk,
    known: &[Vec<Value>],
    waited_for: &[usize],
    numbers: &mut impl Iterator<Item = u64>,
    random: &mut Random,
) -> u64 {
    let given = image.changes();
    let store = open(image);
    let logs: Vec<Log> =
        (0..LOGS).map(|log| store.log(log_id(log)).unwrap_or_else(|| panic!("log {log} is gone"))).collect();
    let mut expected = Vec::new();
    for ((log, known), waited_for) in logs.iter().zip(known).zip(waited_for) {
        let count = count_of(log, known);
        assert!(count >= *waited_for, "{count} values are left of {waited_for}");
        expected.push(known[..count].to_vec());
    }
    let found: Vec<usize> = expected.iter().map(Vec::len).collect();
    let tickets = grow(&logs, 1 + random.below(14), numbers, &mut expected);
    let grown = image.changes();
    tickets.into_iter().for_each(wait);
    let promised = image.changes();
    for _ in 0..SECOND {
        // Most that can go wrong is between the appends and their sync.
        let from = if random.one_in(2) { grown - 1 } else { given };
        let at = from + random.below((promised - from) as u64 + 1) as usize;
        let choice = any_choice(random);
        let second = image.crash_image(at, choice);
        told(&format!("and again after {} changes, {choice:?}", at - given), || {
            let store = open(&second);
            for (log, (expected, found)) in (0..).zip(expected.iter().zip(&found)) {
                let log = store.log(log_id(log)).unwrap_or_else(|| panic!("log {log} is gone"));
                let count = count_of(&log, expected);
                let least = if at >= promised { expected.len() } else { *found };
                assert!(count >= least, "{count} values are left of {least}");
            }
        });
    }
    1 + SECOND
}

pub(crate) fn any_choice(random: &mut Random) -> CrashChoice {
    match random.below(6) {
        0 => CrashChoice::Everything,
        1 | 2 => CrashChoice::Pages(random.number()),
        3 => CrashChoice::Torn(random.number()),
        _ => CrashChoice::Some(random.number()),
    }
}

/// The number of values that a log has; they must be the first of those that it may have.
fn count_of(log: &Log, expected: &[Value]) -> usize {
    let (records, fences) = read_from(log, 0);
    assert_eq!(fences, [], "nothing is damaged, only torn");
    for (at, (offset, bytes)) in records.iter().enumerate() {
        assert_eq!(*offset, at as u64);
        assert!(expected.get(at).is_some_and(|value| value.is(bytes)), "offset {at} holds another value");
    }
    records.len()
}

fn open(disk: &SimulatedDisk) -> Store {
    let options = Options {
        block_bytes: 16 << 10,
        blocks_per_file: 3,
        journal_bytes_max: 64 << 10,
        mark_interval: Duration::from_secs(3600),
        ..Options::default()
    };
    Store::open_on(Arc::new(disk.clone()), options)
        .unwrap_or_else(|error| panic!("it does not open: {error}"))
}

fn create(store: &Store, log: u64) -> Log {
    let spec = new_log(log_id(log), format!("log {log}"));
    store.create_log(spec).unwrap_or_else(|error| panic!("no log: {error}"))
}

/// Appends so many values to each log, in turn, without waiting.
fn grow(
    logs: &[Log],
    count: u64,
    numbers: &mut impl Iterator<Item = u64>,
    known: &mut [Vec<Value>],
) -> Vec<CommitTicket> {
    let mut tickets = Vec::new();
    for _ in 0..count {
        for ((log, known), number) in logs.iter().zip(&mut *known).zip(&mut *numbers) {
            let value = Value { number, bytes: VALUE_BYTES };
            let mut bytes = Vec::new();
            let mut builder = BatchBuilder::new();
            let built = builder.push(None, Some(&value.to_bytes()), 0, &[]).build(&mut bytes);
            assert!(built.is_ok() && bytes.len() == BATCH_BYTES, "{} bytes", bytes.len());
            let (batch, _) = Batch::parse(&bytes).expect("just built");
            let appended = log.append(&batch).unwrap_or_else(|error| panic!("no append: {error}"));
            assert_eq!(appended.base_offset.0, known.len() as u64, "where the append went");
            known.push(value);
            tickets.push(appended.commit);
        }
    }
    tickets
}

fn wait(ticket: CommitTicket) {
    ticket.wait().unwrap_or_else(|error| panic!("no commit: {error}"));
}
