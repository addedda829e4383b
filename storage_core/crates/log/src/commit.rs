//! Group commit that clocks itself: the first caller does the work in its own thread, those who arrive meanwhile are
//! the next group. No timer, no thread of its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Who works waits for callers to come back for at most this part of what the last work took.
const GATHERING_SHARE: u32 = 2;
/// And for no longer than that: a disk that once stood still says nothing of how soon they come.
const GATHERING_MAX: Duration = Duration::from_micros(200);

/// Lets one caller at a time work for all.
#[derive(Default)]
pub(crate) struct Group {
    turn: Mutex<TurnState>,
    done: Condvar,
    /// Callers that wait for the work under way to end.
    waiting: AtomicUsize,
}

#[derive(Default)]
struct TurnState {
    is_taken: bool,
    /// How many the last work let go: they are likely to come again at once.
    crowd: usize,
    /// How long it was.
    took: Duration,
}

impl Group {
    /// Returns once `reached`; runs `work` in this thread as long as nobody else does. `work` must bring `reached`
    /// about for everything that was asked for before it started.
    pub(crate) fn wait(&self, reached: impl Fn() -> bool, work: impl Fn()) {
        while !reached() {
            let mut turn = self.turn.lock();
            if turn.is_taken {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                self.done.wait(&mut turn);
                continue;
            }
            turn.is_taken = true;
            let (crowd, took) = (turn.crowd, turn.took);
            drop(turn);
            let mut turn = Turn { group: self, start: Instant::now() };
            // What happened between the first look and the turn may have done it already.
            if !reached() {
                let limit = (took / GATHERING_SHARE).min(GATHERING_MAX);
                turn.start = self.gather(crowd, turn.start, limit);
                work();
            }
            drop(turn);
        }
    }

    /// Without it the first of a crowd that comes back would work for itself alone, and the others would wait twice.
    /// Somebody who is alone never waits here. Says when it was over.
    fn gather(&self, crowd: usize, start: Instant, limit: Duration) -> Instant {
        let mut now = start;
        while self.waiting.load(Ordering::Relaxed) < crowd && now - start < limit {
            thread::yield_now();
            now = Instant::now();
        }
        now
    }

    /// Runs `work` while no other work runs.
    pub(crate) fn exclusive<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut turn = self.turn.lock();
        while turn.is_taken {
            self.done.wait(&mut turn);
        }
        turn.is_taken = true;
        drop(turn);
        let _turn = Turn { group: self, start: Instant::now() };
        work()
    }
}

/// Ends the turn, also when the work panics.
struct Turn<'a> {
    group: &'a Group,
    start: Instant,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let took = self.start.elapsed();
        let mut turn = self.group.turn.lock();
        let crowd = self.group.waiting.swap(0, Ordering::Relaxed);
        *turn = TurnState { is_taken: false, crowd, took };
        drop(turn);
        self.group.done.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Barrier};
    use std::thread;

    use super::*;

    #[test]
    fn callers_that_arrive_during_the_work_share_the_next() {
        let group = Arc::new(Group::default());
        let (asked, done, works) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let barrier = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        barrier.wait();
                        let mine = asked.fetch_add(1, Ordering::SeqCst) + 1;
                        let work = || {
                            works.fetch_add(1, Ordering::SeqCst);
                            let all = asked.load(Ordering::SeqCst);
                            thread::yield_now();
                            done.store(all, Ordering::SeqCst);
                        };
                        group.wait(|| done.load(Ordering::SeqCst) >= mine, work);
                    }
                });
            }
        });
        assert_eq!(done.load(Ordering::SeqCst), 800);
        assert!(works.load(Ordering::SeqCst) < 800);
    }
}
