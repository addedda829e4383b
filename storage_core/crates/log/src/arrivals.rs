//! Waiting for a log to grow. Nobody who appends pays for it as long as nobody waits.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::log::Log;
use crate::log::state::{LogState, Phase};
use crate::seeded;
use crate::sync::{Condvar, Mutex, atomic::AtomicBool, now};
use crate::types::Offset;

/// Those who wait for a log.
#[derive(Default)]
pub(crate) struct Arrivals {
    /// Set by who is about to wait, under the mutex of the log's writer, and before looking whether there is something.
    is_awaited: AtomicBool,
    /// Never locked while the writer is.
    tasks: Mutex<Vec<Waker>>,
    threads: Condvar,
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
            let woken = std::mem::take(&mut *tasks);
            drop(tasks);
            woken.into_iter().for_each(Waker::wake);
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
            (tasks, is_over) = match deadline {
                Some(deadline) => log.arrivals.threads.wait_until(tasks, deadline),
                None => (log.arrivals.threads.wait(tasks), false),
            };
            if is_over {
                return Ok(log.readable.load(Ordering::Acquire) > offset.0);
            }
        }
    }

    /// As [`Log::wait_for`], to be awaited in any runtime, without a limit of time.
    pub fn arrival(&self, offset: Offset) -> Arrival {
        Arrival { log: self.clone(), offset }
    }
}

/// Resolves when a log has a record at an offset (true), or never will have (false).
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Arrival {
    log: Log,
    offset: Offset,
}

impl Future for Arrival {
    type Output = Result<bool>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let log = self.log.state();
        log.engine.check_open()?;
        let mut tasks = log.arrivals.tasks.lock();
        match log.look_for(self.offset.0)? {
            Seen::Data => Poll::Ready(Ok(true)),
            Seen::End => Poll::Ready(Ok(false)),
            Seen::Nothing => {
                tasks.push(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
