//! The thread that commits for tasks and for schedules; callers that wait in threads commit themselves.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::commit::engine::{Engine, UNSYNCED_WRITE_BYTES};
use crate::sync::{Condvar, Mutex, atomic::AtomicBool, now};

/// Memory that a burst of appends needed is kept so long for the next.
const MEMORY_KEPT: Duration = Duration::from_secs(10);

/// What the committing thread is asked to do, and by when.
#[derive(Default)]
pub(crate) struct Committing {
    /// As `Asked::now`: who sees it set need not lock.
    is_asked: AtomicBool,
    asked: Mutex<Asked>,
    wake: Condvar,
}

#[derive(Default)]
struct Asked {
    now: bool,
    /// The earliest time that a schedule asks for.
    later: Option<Instant>,
    stop: bool,
}

impl Committing {
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

    pub(crate) fn commit_in(&self, interval: Duration) {
        let due = now() + interval;
        let mut asked = self.asked.lock();
        if asked.later.is_none_or(|later| due < later) {
            asked.later = Some(due);
            self.wake.notify_one();
        }
    }

    pub(crate) fn stop(&self) {
        self.asked.lock().stop = true;
        self.wake.notify_one();
    }

    /// The thread.
    pub(crate) fn run(&self, engine: &Engine) {
        let mut asked = self.asked.lock();
        let mut is_trimmed = true;
        while !asked.stop {
            match asked.later {
                _ if asked.now => {}
                Some(due) if due <= now() => {}
                Some(due) => {
                    (asked, _) = self.wake.wait_until(asked, due);
                    continue;
                }
                None => {
                    let is_over;
                    (asked, is_over) = if is_trimmed {
                        (self.wake.wait(asked), false)
                    } else {
                        self.wake.wait_for(asked, MEMORY_KEPT)
                    };
                    if is_over {
                        // No burst has come again: what the last one needed is given back.
                        engine.pool.trim();
                        is_trimmed = true;
                    }
                    continue;
                }
            }
            // The commit takes all there is.
            (asked.now, asked.later) = (false, None);
            self.is_asked.store(false, Ordering::Relaxed);
            drop(asked);
            engine.commit_in_turn(UNSYNCED_WRITE_BYTES);
            is_trimmed = false;
            asked = self.asked.lock();
        }
    }
}
