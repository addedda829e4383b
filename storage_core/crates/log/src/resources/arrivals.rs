//! Waiting for something to come: records of a log, a topic of a store. Who brings it pays nothing as long as nobody waits.

use std::collections::BTreeMap;
use std::sync::atomic::{Ordering, fence};
use std::task::Waker;
use std::time::Instant;

use crate::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicBool};

/// Those who wait for something to come: records of a log, a topic of a store.
#[derive(Default)]
pub(crate) struct Arrivals {
    /// Set by who is about to wait, and before looking whether there is something: for records under the mutex of the log's
    /// writer.
    is_awaited: AtomicBool,
    /// Never locked while the writer is.
    tasks: Mutex<Tasks>,
    threads: Condvar,
}

/// Tasks to wake, each until it is woken or forgets its wait.
#[derive(Default)]
pub(crate) struct Tasks {
    last_id: u64,
    /// In the order in which they came.
    wakers: BTreeMap<u64, Waker>,
}

impl Tasks {
    /// The task of a wait, which keeps its `id`, is woken by what comes next. Gives the waker that this one replaces, to be
    /// dropped without the lock: the last waker of a task may drop a wait.
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
    /// Whether somebody is to be woken: for those who hold the writer's mutex.
    #[inline]
    pub(crate) fn are_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed)
    }

    /// Something became readable, or nothing will any more. Not under the writer's mutex.
    pub(crate) fn announce(&self) {
        // Either this sees the wish, or who wishes sees what is announced: both look after a fence.
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

    /// Those who wait, for who is about to look whether there is something to wait for.
    pub(crate) fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock()
    }

    /// Says that who holds the tasks is about to wait: for records, under the mutex of the log's writer.
    pub(crate) fn set_awaited(&self) {
        self.is_awaited.store(true, Ordering::Relaxed);
    }

    /// Says that who holds the tasks is about to wait for what has no mutex of its own; a look at it follows.
    pub(crate) fn expect(&self) -> MutexGuard<'_, Tasks> {
        let tasks = self.tasks();
        self.set_awaited();
        fence(Ordering::SeqCst);
        tasks
    }

    /// Lets go of the tasks until something is announced. True: the time was over before (`None`: it never is).
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

    /// The wait is over, or nobody waits any more.
    pub(crate) fn forget(&self, id: Option<u64>) {
        if let Some(id) = id {
            let forgotten = self.tasks.lock().wakers.remove(&id);
            drop(forgotten);
        }
    }
}
