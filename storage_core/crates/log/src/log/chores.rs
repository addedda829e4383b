//! The chores that logs ask the background thread for, and the time by which they are due. No answer to a caller needs
//! them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::block::Block;
use crate::producers::ProducerChanges;
use crate::sync::{Condvar, Mutex, now};
use crate::types::LogId;

/// How often the logs that forget by age are looked at.
const AGE_INTERVAL: Duration = Duration::from_secs(10);

/// The queue of the thread that tends the store. The thread sleeps here while there is nothing to do.
#[derive(Default)]
pub(crate) struct Chores {
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Signalled when the queue is empty and nothing is being done.
    idle: Condvar,
}

#[derive(Default)]
struct Queue {
    chores: VecDeque<Chore>,
    /// Whether upkeep was asked for.
    upkeep: bool,
    /// Whether a log needs its synced mark before `marks_at`.
    marks_soon: bool,
    /// Time by which all logs need their synced marks.
    marks_at: Option<Instant>,
    /// Time of the next retention by age.
    aged_retention_at: Option<Instant>,
    working: bool,
    stop: bool,
}

/// One thing for the background thread to do.
pub(crate) enum Chore {
    /// Prepare space of the block ahead of its writer, who is at that position.
    Extend(Arc<Block>, u64),
    /// Write the block's footer, with the producers at its end where they are known.
    Footer(Arc<Block>, Option<ProducerChanges>),
    /// Apply the retention of the log.
    Retention(LogId),
    /// Zero freed slots, and prepare or compact the journal if it needs that.
    Upkeep,
    /// Write the synced marks of the logs that synced much since their last one.
    MarkBusy,
    /// Write the synced marks of all logs.
    MarkAll,
    /// Apply the retention of all logs that forget by age.
    AgedRetention,
}

impl Chores {
    /// Asks for upkeep of the journal and of freed slots.
    pub(crate) fn ask_upkeep(&self) {
        let mut queue = self.queue.lock();
        if !std::mem::replace(&mut queue.upkeep, true) {
            self.wake.notify_one();
        }
    }

    /// Asks for space ahead of the writer of a block, who is at the position `written`.
    pub(crate) fn extend(&self, block: &Arc<Block>, written: u64) {
        self.push(Chore::Extend(Arc::clone(block), written));
    }

    /// Asks for a block's footer, which is not urgent.
    pub(crate) fn write_footer(&self, block: Arc<Block>, producers: Option<ProducerChanges>) {
        self.push(Chore::Footer(block, producers));
    }

    /// Asks to apply the retention of a log.
    pub(crate) fn apply_retention(&self, log: LogId) {
        self.push(Chore::Retention(log));
    }

    fn push(&self, chore: Chore) {
        self.queue.lock().chores.push_back(chore);
        self.wake.notify_one();
    }

    /// Asks to apply the retention of all logs that forget by age, after [`AGE_INTERVAL`].
    pub(crate) fn apply_aged_retention_later(&self) {
        let mut queue = self.queue.lock();
        if queue.aged_retention_at.is_none() {
            queue.aged_retention_at = Some(now() + AGE_INTERVAL);
            self.wake.notify_one();
        }
    }

    /// Asks for the synced marks of all logs, after `interval`.
    pub(crate) fn mark_later(&self, interval: Duration) {
        let mut queue = self.queue.lock();
        if queue.marks_at.is_none() {
            queue.marks_at = Some(now() + interval);
            self.wake.notify_one();
        }
    }

    /// Asks for the synced marks of the logs that synced much since their last one.
    pub(crate) fn mark_soon(&self) {
        if !std::mem::replace(&mut self.queue.lock().marks_soon, true) {
            self.wake.notify_one();
        }
    }

    /// Blocks until everything that is due at once is done; marks and ages that wait for their time are left out.
    pub(crate) fn await_idle(&self) {
        let mut queue = self.queue.lock();
        while !queue.stop && (queue.working || queue.upkeep || !queue.chores.is_empty()) {
            queue = self.idle.wait(queue);
        }
    }

    /// Tells the thread to end once everything that is due is done.
    pub(crate) fn stop(&self) {
        self.queue.lock().stop = true;
        self.wake.notify_one();
    }

    /// Gives the thread its next chore; the one before counts as done. Blocks until there is one; `None` tells the
    /// thread to end.
    pub(crate) fn next(&self) -> Option<Chore> {
        let mut queue = self.queue.lock();
        loop {
            queue.working = true;
            if let Some(chore) = queue.take() {
                return Some(chore);
            }
            queue.working = false;
            self.idle.notify_all();
            let times = [queue.marks_at, queue.aged_retention_at];
            match times.into_iter().flatten().min() {
                _ if queue.stop => return None,
                Some(at) => (queue, _) = self.wake.wait_until(queue, at),
                None => queue = self.wake.wait(queue),
            }
        }
    }
}

impl Queue {
    /// The most urgent chore that is due.
    fn take(&mut self) -> Option<Chore> {
        if let Some(chore) = self.chores.pop_front() {
            Some(chore)
        } else if std::mem::take(&mut self.upkeep) {
            Some(Chore::Upkeep)
        } else if std::mem::take(&mut self.marks_soon) {
            Some(Chore::MarkBusy)
        } else if self.marks_at.take_if(|at| *at <= now()).is_some() {
            Some(Chore::MarkAll)
        } else {
            self.aged_retention_at.take_if(|at| *at <= now()).map(|_| Chore::AgedRetention)
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const LOG: LogId = LogId(Uuid::from_u128(1));

    #[test]
    fn chores_come_in_their_order_and_all_before_the_end() {
        let chores = Chores::default();
        chores.mark_soon();
        chores.ask_upkeep();
        chores.ask_upkeep();
        chores.apply_retention(LOG);
        chores.mark_later(Duration::ZERO);
        chores.stop();
        assert!(matches!(chores.next(), Some(Chore::Retention(LOG))));
        assert!(matches!(chores.next(), Some(Chore::Upkeep)));
        assert!(matches!(chores.next(), Some(Chore::MarkBusy)));
        assert!(matches!(chores.next(), Some(Chore::MarkAll)));
        assert!(chores.next().is_none());
    }

    /// The last chore counts as done only when the thread comes for the next one.
    #[test]
    fn the_background_is_idle_once_the_last_chore_is_done() {
        let chores = Chores::default();
        chores.ask_upkeep();
        std::thread::scope(|scope| {
            assert!(matches!(chores.next(), Some(Chore::Upkeep)));
            let waits = scope.spawn(|| chores.await_idle());
            assert!(!waits.is_finished());
            scope.spawn(|| assert!(chores.next().is_none()));
            waits.join().expect("the wait ends");
            chores.stop();
        });
    }
}
