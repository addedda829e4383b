//! The ticket of an append: wait for it in a thread, or await it in any runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use super::member::Member;
use crate::error::Result;
use crate::log::state::Extent;

/// Resolves when an append is as durable as the log's schedule promises; at once where it promises nothing. Dropping
/// it takes nothing back.
#[must_use = "an append is durable when its ticket resolves"]
pub struct CommitTicket {
    /// The wait; `None` if the append was durable when the ticket was made.
    waits_for: Option<Wait>,
    /// The waker that was registered last.
    noted: Option<Waker>,
}

/// The end that has to be committed; a truncation ends the wait, too.
struct Wait {
    member: Arc<Member>,
    extent: Extent,
}

impl Wait {
    fn is_over(&self) -> bool {
        self.member.log.is_answered(self.extent)
    }
}

impl CommitTicket {
    pub(super) fn new(member: &Arc<Member>, extent: Extent) -> Self {
        let is_done = member.log.readable.load(Ordering::Acquire) >= extent.end;
        let waits_for = (!is_done).then(|| Wait { member: Arc::clone(member), extent });
        Self { waits_for, noted: None }
    }

    /// Whether waiting would return at once.
    pub fn is_over(&self) -> bool {
        self.waits_for.as_ref().is_none_or(Wait::is_over)
    }

    /// Whether this thread had better [wait](Self::wait) than await: nobody else waits, and the last commit was short
    /// and small. Handing the commit to another thread and back would take about as long as the commit.
    pub fn is_better_waited_for(&self) -> bool {
        self.waits_for.as_ref().is_none_or(|wait| wait.member.committer.is_quiet())
    }

    /// Blocks until the append is durable. If no commit is under way, this thread does it for all who wait.
    ///
    /// Errors: `Poisoned` if the commit failed, and then nobody knows whether the append will be there after a
    /// restart; `UnknownLog` if the log was deleted before.
    pub fn wait(&self) -> Result<()> {
        match &self.waits_for {
            None => Ok(()),
            Some(Wait { member, extent }) => {
                member.resources().check_origin()?;
                member.committer.wait(&member.log, *extent)
            }
        }
    }
}

impl Future for CommitTicket {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { waits_for, noted } = self.get_mut();
        let Some(Wait { member, extent }) = waits_for else { return Poll::Ready(Ok(())) };
        member.resources().check_origin()?;
        let task = context.waker();
        let is_noted = noted.as_ref().is_some_and(|known| known.will_wake(task));
        if member.committer.wake_after(&member.log, *extent, task, is_noted) {
            if !is_noted {
                *noted = Some(task.clone());
            }
            return Poll::Pending;
        }
        Poll::Ready(member.log.commit_result(*extent))
    }
}

impl std::fmt::Debug for CommitTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommitTicket").field("waits", &self.waits_for.is_some()).finish()
    }
}
