//! Blocks that a thread of its own makes ready before a log asks for them. As many are ready as were used in a second,
//! within limits: a small store stays small, and a busy one does not wait. More would cost what they save: the zeros of a
//! block are written beside the appends of others.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::classes::{Class, Classes};
use super::file::Slots;
use crate::disk::{Prepare, TailKind};
use crate::sync::{Condvar, Mutex, now};

/// Bytes that are prepared together, with one sync for all of them.
const PIECE_BYTES: u64 = 16 << 20;
/// Time over which uses are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// Limit on the ready bytes of each kind, if zeros are written.
const WRITTEN_BYTES_MAX: u64 = 256 << 20;
/// Limit on the ready bytes of each kind, if space is only reserved.
const RESERVED_BYTES_MAX: u64 = 128 << 20;

/// Kind of slots: a log can take any slot of the kind that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    pub(crate) class: Class,
    /// The way in which the logs write that take the slots.
    pub(crate) tails: TailKind,
    /// Whether the slots are for logs that sync their data.
    pub(crate) synced: bool,
    /// Whether the slots are for large commits. Zeros written ahead would double the work of those, and the higher
    /// price of their syncs in reserved space does not show.
    pub(crate) bulk: bool,
}

impl Kind {
    pub(crate) fn how(self) -> Prepare {
        if self.bulk { Prepare::Reserved } else { Prepare::fitting(self.tails, self.synced) }
    }
}

/// The ready slots of each kind, and the thread that makes them.
#[derive(Default)]
pub(super) struct Ahead {
    queue: Mutex<Queue>,
    wake: Condvar,
    idle: Condvar,
}

#[derive(Default)]
struct Queue {
    kinds: BTreeMap<Kind, Stock>,
    /// Whether something changed since the thread last looked.
    look: bool,
    working: bool,
    stop: bool,
}

#[derive(Default)]
struct Stock {
    ready: VecDeque<Slots>,
    uses: Uses,
    /// Whether logs will want slots of the kind soon.
    is_expected: bool,
}

/// How fast slots are used.
#[derive(Clone, Copy, Default)]
struct Uses {
    /// Start of the window that is running; `None` as long as nothing was used.
    window: Option<Instant>,
    /// Slots that were used in it so far.
    now: u64,
    /// Slots that were used in the one before.
    before: u64,
}

impl Uses {
    fn count(&mut self, at: Instant) {
        let passed = self.window.map_or(WINDOW, |window| at.saturating_duration_since(window));
        if passed >= WINDOW {
            self.before = if passed < 2 * WINDOW { self.now } else { 0 };
            (self.window, self.now) = (Some(at), 0);
        }
        self.now += 1;
    }

    /// Slots that are used in a window, as far as the last two show it.
    fn rate(&self) -> u64 {
        self.now.max(self.before)
    }
}

/// Slots to prepare next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) kind: Kind,
    /// Limit on the number of slots.
    pub(super) slots: usize,
}

impl Ahead {
    /// Takes a ready slot, if there is one; counts it as used in any case, and asks for more.
    pub(super) fn take(&self, kind: Kind, classes: &Classes) -> Option<Slots> {
        let mut queue = self.queue.lock();
        if kind.class < classes.largest() {
            let larger = Kind { class: kind.class + 1, ..kind };
            queue.kinds.entry(larger).or_default().is_expected = true;
        }
        let stock = queue.kinds.entry(kind).or_default();
        stock.uses.count(now());
        let mut slots = stock.ready.pop_front();
        while slots.as_ref().is_some_and(|slots| slots.file.poisoned.get().is_some()) {
            slots = stock.ready.pop_front();
        }
        queue.look = true;
        self.wake.notify_one();
        slots
    }

    /// Notes that logs of the kind are about to come.
    pub(super) fn expect(&self, kind: Kind) {
        let mut queue = self.queue.lock();
        queue.kinds.entry(kind).or_default().is_expected = true;
        queue.look = true;
        self.wake.notify_one();
    }

    pub(super) fn put(&self, kind: Kind, slots: Slots) {
        self.queue.lock().kinds.entry(kind).or_default().ready.push_back(slots);
    }

    pub(super) fn stop(&self) {
        self.queue.lock().stop = true;
        self.wake.notify_one();
        self.idle.notify_all();
    }

    /// Forgets the slots that are ready.
    pub(super) fn let_go(&self) {
        self.queue.lock().kinds.clear();
    }

    /// Blocks until nothing is left to prepare.
    pub(super) fn await_idle(&self) {
        let mut queue = self.queue.lock();
        while !queue.stop && (queue.working || queue.look) {
            queue = self.idle.wait(queue);
        }
    }

    /// Runs the thread: hands one task after the other to `prepare`, which returns whether it worked. After a failure
    /// the thread waits for the next change, since space may be there then; a log that needs a block before meets the
    /// error itself.
    pub(super) fn run(&self, classes: &Classes, prepare: impl Fn(Task) -> bool) {
        let mut queue = self.queue.lock();
        while !queue.stop {
            if std::mem::take(&mut queue.look) {
                queue.working = true;
                while let (Some(task), false) = (next_task(&queue.kinds, classes), queue.stop) {
                    drop(queue);
                    let worked = prepare(task);
                    queue = self.queue.lock();
                    if !worked {
                        break;
                    }
                }
                queue.working = false;
            } else {
                self.idle.notify_all();
                queue = self.wake.wait(queue);
            }
        }
    }
}

/// The task for the kind that lacks most; at most one piece of it.
fn next_task(kinds: &BTreeMap<Kind, Stock>, classes: &Classes) -> Option<Task> {
    let missing = |(kind, stock): (&Kind, &Stock)| {
        let slot_bytes = classes.slot_bytes(kind.class);
        let wanted = wanted(*kind, stock, classes);
        let missing = wanted.saturating_sub(stock.ready.len() as u64);
        let slots = missing.min((PIECE_BYTES / slot_bytes).max(1)) as usize;
        (missing > 0).then(|| (missing * 1000 / wanted, Task { kind: *kind, slots }))
    };
    kinds.iter().filter_map(missing).max_by_key(|(share, _)| *share).map(|(_, task)| task)
}

/// Number of slots of a kind that should be ready: a quarter of a file at most.
fn wanted(kind: Kind, stock: &Stock, classes: &Classes) -> u64 {
    let bytes_max = match kind.how() {
        Prepare::Written => WRITTEN_BYTES_MAX,
        Prepare::Reserved => RESERVED_BYTES_MAX,
    };
    let of_bytes = bytes_max / classes.slot_bytes(kind.class);
    let of_file = u64::from(classes.slots(kind.class)) / 4;
    let most = of_bytes.min(of_file).max(1);
    stock.uses.rate().min(most).max(u64::from(stock.is_expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stock(used: u64, is_expected: bool) -> Stock {
        Stock { uses: Uses { now: used, ..Uses::default() }, is_expected, ..Stock::default() }
    }

    #[test]
    fn a_log_that_uses_a_block_now_and_then_has_one_ready_and_a_fast_one_those_of_a_second() {
        let start = Instant::now();
        let mut uses = Uses::default();
        let mut rate_after = |ms: &[u64]| {
            ms.iter().for_each(|ms| uses.count(start + Duration::from_millis(*ms)));
            uses.rate()
        };
        assert_eq!(rate_after(&[]), 0);
        assert_eq!([rate_after(&[0]), rate_after(&[1_300]), rate_after(&[2_600])], [1, 1, 1]);
        assert_eq!(rate_after(&[2_700, 2_800, 3_000]), 4);
        assert_eq!(rate_after(&[3_700]), 4, "those of the second before");
        assert_eq!(rate_after(&[60_000]), 1, "what is long ago does not count");
    }

    #[test]
    fn as_much_is_wanted_as_is_used_within_limits() {
        let classes = Classes::new(10 << 20, 100);
        let kind = |class, synced| Kind { class, tails: TailKind::Buffered, synced, bulk: false };
        let task = |class, used, is_expected| {
            next_task(&BTreeMap::from([(kind(class, true), stock(used, is_expected))]), &classes)
        };
        assert_eq!(task(0, 0, false), None);
        assert_eq!(task(3, 0, true).map(|task| task.slots), Some(1));
        assert_eq!(task(0, 40, false).map(|task| task.slots), Some(40));
        assert_eq!(task(0, 1 << 40, false).map(|task| task.slots), Some(256));
        assert_eq!(task(3, 1 << 40, false).map(|task| task.slots), Some(1));
        assert_eq!(wanted(kind(3, true), &stock(1 << 40, false), &classes), 25);
        assert_eq!(wanted(kind(3, false), &stock(1 << 40, false), &classes), 12);
        let small = Classes::new(64 << 10, 4);
        assert_eq!(wanted(kind(0, true), &stock(100, false), &small), 1);
    }

    #[test]
    fn who_lacks_most_comes_first() {
        let classes = Classes::new(10 << 20, 100);
        let kind = |class| Kind { class, tails: TailKind::Buffered, synced: true, bulk: false };
        let (few, many) = (kind(0), kind(3));
        let ahead = Ahead::default();
        ahead.expect(few);
        for _ in 0..5 {
            assert!(ahead.take(many, &classes).is_none());
        }
        let next = |ahead: &Ahead| next_task(&ahead.queue.lock().kinds, &classes).map(|task| task.kind);
        assert_eq!(next(&ahead), Some(many));
    }
}
