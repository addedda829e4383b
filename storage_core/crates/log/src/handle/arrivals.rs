//! Waiting for a log to grow, or for a topic to be made. Nobody who appends pays for it as long as nobody waits.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::handle::Log;
use crate::log::state::{LogState, Phase};
use crate::seeded;
use crate::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicBool, now};
use crate::types::Offset;

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

    /// Says that who holds the tasks is about to wait for what has no mutex of its own; a look at it follows.
    pub(crate) fn expect(&self) -> MutexGuard<'_, Tasks> {
        let tasks = self.tasks.lock();
        self.is_awaited.store(true, Ordering::Relaxed);
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

/// What a look at the log said.
enum Seen {
    Data,
    /// None will come.
    End,
    Nothing,
}

impl LogState {
    /// Looks for a record at an offset; who calls it holds the lock of `tasks` and is woken by what comes later.
    fn look_for(&self, offset: u64) -> Result<Seen> {
        if seeded!(WishAfterLook) && self.readable.load(Ordering::Acquire) > offset {
            return Ok(Seen::Data);
        }
        let phase = {
            let writer = self.writer.lock();
            self.arrivals.is_awaited.store(true, Ordering::Relaxed);
            if writer.is_closed { None } else { Some(writer.phase) }
        };
        fence(Ordering::SeqCst);
        if !seeded!(WishAfterLook) && self.readable.load(Ordering::Acquire) > offset {
            return Ok(Seen::Data);
        }
        match phase {
            None => Err(Error::Closed),
            Some(Phase::Deleted) => Err(Error::UnknownLog { log: self.id }),
            Some(Phase::Sealed) => Ok(Seen::End),
            Some(Phase::Active | Phase::Sealing) => self.check_poisoned().map(|()| Seen::Nothing),
        }
    }
}

impl Log {
    /// Blocks until the log has a record at `offset` that can be read, or until the time is over. False: there is none
    /// yet, or the log was sealed before it. Errors: `Closed`, `UnknownLog` (deleted), `Poisoned`.
    pub fn wait_for(&self, offset: Offset, timeout: Duration) -> Result<bool> {
        self.state().engine.check_open()?;
        let log = self.state();
        // A time that no clock reaches is none.
        let deadline = now().checked_add(timeout);
        let mut tasks = log.arrivals.tasks.lock();
        loop {
            match log.look_for(offset.0)? {
                Seen::Data => return Ok(true),
                Seen::End => return Ok(false),
                Seen::Nothing => {}
            }
            let is_over;
            (tasks, is_over) = log.arrivals.wait(tasks, deadline);
            if is_over {
                return Ok(log.readable.load(Ordering::Acquire) > offset.0);
            }
        }
    }

    /// As [`Log::wait_for`], to be awaited in any runtime, without a limit of time.
    pub fn arrival(&self, offset: Offset) -> Arrival {
        Arrival { log: self.clone(), offset, task: None }
    }
}

/// Resolves when a log has a record at an offset (true), or never will have (false). One that is dropped leaves nothing
/// behind.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Arrival {
    log: Log,
    offset: Offset,
    task: Option<u64>,
}

impl Future for Arrival {
    type Output = Result<bool>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { log, offset, task } = &mut *self;
        let log = log.state();
        log.engine.check_open()?;
        let mut tasks = log.arrivals.tasks.lock();
        match log.look_for(offset.0)? {
            Seen::Data => Poll::Ready(Ok(true)),
            Seen::End => Poll::Ready(Ok(false)),
            Seen::Nothing => {
                let replaced = tasks.note(task, context.waker());
                drop((tasks, replaced));
                Poll::Pending
            }
        }
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let log = self.log.state();
        // In a forked child the lock may be held by a thread that is not there.
        if log.engine.check_origin().is_ok() {
            log.arrivals.forget(self.task);
        }
    }
}
