//! Group commit that clocks itself: the first caller does the work in its own thread, those who arrive meanwhile are
//! the next group. No timer, no thread of its own.

use parking_lot::{Condvar, Mutex};

/// Lets one caller at a time work for all.
#[derive(Default)]
pub(crate) struct Group {
    running: Mutex<bool>,
    done: Condvar,
}

impl Group {
    /// Returns once `reached`; runs `work` in this thread as long as nobody else does. `work` must bring `reached`
    /// about for everything that was asked for before it started.
    pub(crate) fn wait(&self, reached: impl Fn() -> bool, work: impl Fn()) {
        while !reached() {
            let mut running = self.running.lock();
            if *running {
                self.done.wait(&mut running);
                continue;
            }
            *running = true;
            drop(running);
            let turn = Turn(self);
            // What happened between the first look and the turn may have done it already.
            if !reached() {
                work();
            }
            drop(turn);
        }
    }

    /// Runs `work` while no other work runs.
    pub(crate) fn exclusive<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut running = self.running.lock();
        while *running {
            self.done.wait(&mut running);
        }
        *running = true;
        drop(running);
        let _turn = Turn(self);
        work()
    }
}

/// Ends the turn, also when the work panics.
struct Turn<'a>(&'a Group);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.running.lock() = false;
        self.0.done.notify_all();
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
