//! Tasks that wait for a commit.

use std::task::Waker;

use crate::handle::ticket::Wait;
use crate::sync::Mutex;

/// The tasks that wait for a commit.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<Vec<Waiter>>);

struct Waiter {
    wait: Wait,
    waker: Waker,
}

impl Waiters {
    /// The task is woken when the wait is over; false: it is. `is_noted`: this was asked before, for the same task.
    pub(crate) fn note(&self, wait: &Wait, waker: &Waker, is_noted: bool) -> bool {
        let mut waiters = self.0.lock();
        if wait.is_over() {
            return false;
        }
        if !is_noted {
            waiters.push(Waiter { wait: wait.clone(), waker: waker.clone() });
        }
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Wakes the tasks whose wait is over: after a commit, and when others may commit again.
    pub(crate) fn wake_answered(&self) {
        let mut waiters = self.0.lock();
        let mut answered: Vec<Waiter> = waiters.extract_if(.., |waiter| waiter.wait.is_over()).collect();
        drop(waiters);
        // A task that waits for many appends is woken once for all of them.
        answered.dedup_by(|waiter, before| waiter.waker.will_wake(&before.waker));
        for waiter in answered {
            waiter.waker.wake();
        }
    }
}
