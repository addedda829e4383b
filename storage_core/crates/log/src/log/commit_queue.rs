//! The logs with bytes that wait for a commit, and the time by which one is asked for.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::sync::{Condvar, Mutex, atomic::AtomicBool, now};
use crate::types::{FsyncSchedule, LogId};

/// How long the bytes of a buffered log that never syncs stay in memory before they are written.
const WRITE_BEHIND: Duration = Duration::from_millis(100);

/// Queue of the logs to commit. Logs put themselves in, and a commit takes all of them out. The thread that commits
/// for tasks and schedules waits here.
#[derive(Default)]
pub(crate) struct CommitQueue {
    /// Each log is here at most once: its own flag `dirty` says that it is.
    dirty: Mutex<SmallVec<[LogId; 2]>>,
    /// Copy of `Requests::now`: whoever sees it set need not lock.
    is_asked: AtomicBool,
    asked: Mutex<Requests>,
    wake: Condvar,
}

/// Requests to the committing thread.
#[derive(Default)]
struct Requests {
    now: bool,
    /// The earliest time at which a schedule wants a commit.
    later: Option<Instant>,
    stop: bool,
}

/// Reason for which the committing thread is woken.
pub(crate) enum Call {
    /// Somebody asked for a commit, or a schedule does.
    Commit,
    /// Nobody asked for one for as long as the thread wanted to wait.
    Idle,
    /// The store closes.
    Stop,
}

impl CommitQueue {
    /// Queues a log whose bytes wait for a commit; `fsync` decides when the thread commits it.
    pub(crate) fn push(&self, log: LogId, fsync: FsyncSchedule) {
        self.dirty.lock().push(log);
        match fsync {
            // The caller that waits for the append commits.
            FsyncSchedule::SyncEach => {}
            FsyncSchedule::Milliseconds(n) => self.commit_in(Duration::from_millis(n.get())),
            FsyncSchedule::NoFsync => self.commit_in(WRITE_BEHIND),
        }
    }

    /// Queues a log of which a commit has left bytes for the next one.
    pub(crate) fn push_rest(&self, log: LogId) {
        self.dirty.lock().push(log);
        self.commit_now();
    }

    /// Takes all logs out of the queue.
    pub(crate) fn take(&self) -> SmallVec<[LogId; 2]> {
        std::mem::take(&mut *self.dirty.lock())
    }

    /// Asks the committing thread for a commit.
    pub(crate) fn commit_now(&self) {
        if self.is_asked.load(Ordering::Relaxed) {
            return;
        }
        let mut asked = self.asked.lock();
        self.is_asked.store(true, Ordering::Relaxed);
        if !std::mem::replace(&mut asked.now, true) {
            self.wake.notify_one();
        }
    }

    fn commit_in(&self, interval: Duration) {
        let due = now() + interval;
        let mut asked = self.asked.lock();
        if asked.later.is_none_or(|later| due < later) {
            asked.later = Some(due);
            self.wake.notify_one();
        }
    }

    /// Tells the committing thread to end.
    pub(crate) fn stop(&self) {
        self.asked.lock().stop = true;
        self.wake.notify_one();
    }

    /// Blocks the committing thread until there is something for it to do. Returns `Idle` after `patience` without a
    /// request; with `None` it waits for ever.
    pub(crate) fn wait(&self, patience: Option<Duration>) -> Call {
        let mut asked = self.asked.lock();
        while !asked.stop {
            match (asked.later, patience) {
                (later, _) if asked.now || later.is_some_and(|due| due <= now()) => {
                    // One commit takes everything that is queued and so answers both requests.
                    (asked.now, asked.later) = (false, None);
                    self.is_asked.store(false, Ordering::Relaxed);
                    return Call::Commit;
                }
                (Some(due), _) => (asked, _) = self.wake.wait_until(asked, due),
                (None, None) => asked = self.wake.wait(asked),
                (None, Some(patience)) => {
                    let is_over;
                    (asked, is_over) = self.wake.wait_for(asked, patience);
                    if is_over {
                        return Call::Idle;
                    }
                }
            }
        }
        Call::Stop
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const LOG: LogId = LogId(Uuid::from_u128(1));

    /// The caller that waits for such an append commits in its own thread; another one that woke for it would only be
    /// in the way.
    #[test]
    fn a_log_that_syncs_each_append_wakes_no_thread() {
        let queue = CommitQueue::default();
        queue.push(LOG, FsyncSchedule::SyncEach);
        assert!(matches!(queue.wait(Some(Duration::ZERO)), Call::Idle));
        assert_eq!(*queue.take(), [LOG]);
        assert!(queue.take().is_empty());
    }

    #[test]
    fn a_log_that_never_syncs_is_written_after_a_while() {
        let queue = CommitQueue::default();
        queue.push(LOG, FsyncSchedule::NoFsync);
        assert!(matches!(queue.wait(Some(Duration::ZERO)), Call::Commit));
        assert!(matches!(queue.wait(Some(Duration::ZERO)), Call::Idle));
    }

    #[test]
    fn what_a_commit_has_left_is_committed_at_once_and_nothing_behind_the_stop() {
        let queue = CommitQueue::default();
        queue.push_rest(LOG);
        assert!(matches!(queue.wait(None), Call::Commit));
        assert_eq!(*queue.take(), [LOG]);
        queue.commit_now();
        queue.stop();
        assert!(matches!(queue.wait(None), Call::Stop));
    }
}
