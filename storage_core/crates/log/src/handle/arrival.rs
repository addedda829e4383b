//! Waiting for a log to grow. Nobody who appends pays for it as long as nobody waits.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::handle::Log;
use crate::log::state::{LogState, Phase};
use crate::seeded;
use crate::sync::now;
use crate::types::Offset;

/// What a look at the log said.
enum LookOutcome {
    Data,
    /// None will come.
    End,
    Nothing,
}

impl Log {
    /// Blocks until the log has a record at `offset` that can be read, or until the time is over. False: there is none
    /// yet, or the log was sealed before it. Errors: `Closed`, `UnknownLog` (deleted), `Poisoned`.
    pub fn wait_for(&self, offset: Offset, timeout: Duration) -> Result<bool> {
        self.resources().check_open()?;
        let log = self.state();
        // A time that no clock reaches is none.
        let deadline = now().checked_add(timeout);
        let mut tasks = log.arrivals.tasks();
        loop {
            match look_for(log, offset.0)? {
                LookOutcome::Data => return Ok(true),
                LookOutcome::End => return Ok(false),
                LookOutcome::Nothing => {}
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
        log.resources().check_open()?;
        let log = log.state();
        let mut tasks = log.arrivals.tasks();
        match look_for(log, offset.0)? {
            LookOutcome::Data => Poll::Ready(Ok(true)),
            LookOutcome::End => Poll::Ready(Ok(false)),
            LookOutcome::Nothing => {
                let replaced = tasks.note(task, context.waker());
                drop((tasks, replaced));
                Poll::Pending
            }
        }
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that is not there.
        if self.log.resources().check_origin().is_ok() {
            self.log.state().arrivals.forget(self.task);
        }
    }
}

/// Looks for a record at an offset; who calls it holds the log's waiting tasks and is woken by what comes later.
fn look_for(log: &LogState, offset: u64) -> Result<LookOutcome> {
    if seeded!(WishAfterLook) && log.readable.load(Ordering::Acquire) > offset {
        return Ok(LookOutcome::Data);
    }
    let phase = {
        let writer = log.writer.lock();
        log.arrivals.set_awaited();
        if writer.is_closed { None } else { Some(writer.phase) }
    };
    fence(Ordering::SeqCst);
    if !seeded!(WishAfterLook) && log.readable.load(Ordering::Acquire) > offset {
        return Ok(LookOutcome::Data);
    }
    match phase {
        None => Err(Error::Closed),
        Some(Phase::Deleted) => Err(Error::UnknownLog { log: log.id }),
        Some(Phase::Sealed) => Ok(LookOutcome::End),
        Some(Phase::Active | Phase::Sealing) => log.check_poisoned().map(|()| LookOutcome::Nothing),
    }
}
