//! The tasks that wait for a commit.

use std::sync::Arc;
use std::task::Waker;

use crate::log::state::{Extent, LogState};
use crate::sync::Mutex;

/// The tasks that wait for a commit, each until its wait is over.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<Vec<Waiter>>);

struct Waiter {
    log: Arc<LogState>,
    /// The end of the log that has to be committed.
    extent: Extent,
    waker: Waker,
}

impl Waiter {
    fn is_over(&self) -> bool {
        self.log.is_answered(self.extent)
    }
}

impl Waiters {
    /// Registers a task to be woken when the log is committed up to `extent`; false if the wait is over already. With
    /// `is_noted` the same task was registered before.
    pub(crate) fn note(&self, log: &Arc<LogState>, extent: Extent, waker: &Waker, is_noted: bool) -> bool {
        let mut waiters = self.0.lock();
        if log.is_answered(extent) {
            return false;
        }
        if !is_noted {
            waiters.push(Waiter { log: Arc::clone(log), extent, waker: waker.clone() });
        }
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Wakes the tasks whose wait is over. Called after a commit, once another commit may begin.
    pub(crate) fn wake_answered(&self) {
        let mut waiters = self.0.lock();
        let mut answered: Vec<Waiter> = waiters.extract_if(.., |waiter| waiter.is_over()).collect();
        drop(waiters);
        // A task that waits for many appends is woken once for all of them.
        answered.dedup_by(|waiter, before| waiter.waker.will_wake(&before.waker));
        for waiter in answered {
            waiter.waker.wake();
        }
    }
}
