//! The wait for something to come: records of a log, a topic of a store. Whoever brings it pays nothing as long as
//! nobody waits.

use std::collections::BTreeMap;
use std::sync::atomic::{Ordering, fence};
use std::task::Waker;
use std::time::Instant;

use crate::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicBool};

/// The tasks and threads that wait for something to come: records of a log, a topic of a store.
#[derive(Default)]
pub(crate) struct Arrivals {
    /// Whether somebody may be waiting. It is set before the look whether there is something; a wait for records sets
    /// it under the mutex of the log's writer.
    is_awaited: AtomicBool,
    /// The waiting tasks. This mutex is never locked while the writer's is held.
    tasks: Mutex<Tasks>,
    threads: Condvar,
}

/// Tasks to wake, each until it is woken or forgets its wait.
#[derive(Default)]
pub(crate) struct Tasks {
    last_id: u64,
    /// Wakers by the number of their wait, in the order in which they came.
    wakers: BTreeMap<u64, Waker>,
}

impl Tasks {
    /// Registers the waker of a wait, whose number is kept in `id`; the next announcement wakes it. Returns the waker
    /// that this one replaces, which must be dropped without the lock: the last waker of a task may drop a wait.
    #[must_use]
    pub(crate) fn note(&mut self, id: &mut Option<u64>, waker: &Waker) -> Option<Waker> {
        let id = *id.get_or_insert_with(|| {
            self.last_id += 1;
            self.last_id
        });
        self.wakers.insert(id, waker.clone())
    }
}

impl Arrivals {
    /// Whether somebody is to be woken; asked under the writer's mutex.
    #[inline]
    pub(crate) fn are_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed)
    }

    /// Wakes all who wait: something became readable, or nothing will any more. Must not be called under the writer's
    /// mutex.
    pub(crate) fn announce(&self) {
        // Either this side sees the wait, or the waiting side sees what is announced: both look after a fence.
        fence(Ordering::SeqCst);
        if self.are_awaited() {
            let mut tasks = self.tasks.lock();
            self.is_awaited.store(false, Ordering::Relaxed);
            self.threads.notify_all();
            let woken = std::mem::take(&mut tasks.wakers);
            drop(tasks);
            woken.into_values().for_each(Waker::wake);
        }
    }

    /// Locks the waiting tasks, for a caller that is about to look whether there is something to wait for.
    pub(crate) fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock()
    }

    /// Notes that the caller, who holds the tasks, is about to wait. For records it is called under the mutex of the
    /// log's writer.
    pub(crate) fn set_awaited(&self) {
        self.is_awaited.store(true, Ordering::Relaxed);
    }

    /// Locks the tasks and notes that the caller is about to wait for something without a mutex of its own; the caller
    /// looks for it afterwards.
    pub(crate) fn expect(&self) -> MutexGuard<'_, Tasks> {
        let tasks = self.tasks();
        self.set_awaited();
        fence(Ordering::SeqCst);
        tasks
    }

    /// Unlocks the tasks until something is announced, or until `deadline`; true if the time is over. `None` is no
    /// deadline.
    pub(crate) fn wait<'a>(
        &self,
        tasks: MutexGuard<'a, Tasks>,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, Tasks>, bool) {
        match deadline {
            Some(deadline) => self.threads.wait_until(tasks, deadline),
            None => (self.threads.wait(tasks), false),
        }
    }

    /// Forgets a wait that is over or was dropped.
    pub(crate) fn forget(&self, id: Option<u64>) {
        if let Some(id) = id {
            let forgotten = self.tasks.lock().wakers.remove(&id);
            drop(forgotten);
        }
    }
}
