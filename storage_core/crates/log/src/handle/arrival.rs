//! The wait for a log to grow. Appends pay nothing for it as long as nobody waits.

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

/// Result of a look for a record at an offset.
enum LookOutcome {
    Data,
    /// No record will ever come there.
    End,
    Nothing,
}

impl Log {
    /// Blocks until the log has a record at `offset` that can be read, or until the time is over. False if there is
    /// none yet, or the log was sealed before `offset`. Errors: `Closed`, `UnknownLog` (deleted), `Poisoned`.
    pub fn wait_for(&self, offset: Offset, timeout: Duration) -> Result<bool> {
        self.resources().check_open()?;
        let log = self.state();
        // A deadline that no clock can hold is no deadline.
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

    /// Waits as [`Log::wait_for`] does, to be awaited in any runtime and without a limit of time.
    pub fn arrival(&self, offset: Offset) -> Arrival {
        Arrival { log: self.clone(), offset, task: None }
    }
}

/// Resolves when a log has a record at an offset (true), or never will have (false). Dropping it forgets the wait.
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
        // A forked child cannot take the lock: the thread that holds it may not exist there.
        if self.log.resources().check_origin().is_ok() {
            self.log.state().arrivals.forget(self.task);
        }
    }
}

/// Looks for a record at an offset. The caller holds the log's waiting tasks, so that a record that comes later wakes
/// it.
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
