//! Group commit without a timer or a thread of its own: the first caller does the work in its own thread, and callers
//! that arrive meanwhile are the next group.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::seeded;
use crate::sync::{Condvar, Mutex, atomic::AtomicUsize, now, thread};

/// The caller that works waits for others to come back at most this part of the time that the last work took.
const GATHERING_SHARE: u32 = 2;
/// Limit on that wait: the time of a disk that once stood still does not tell how soon callers come.
const GATHERING_MAX: Duration = Duration::from_micros(200);

/// Lets one caller at a time work for all.
#[derive(Default)]
pub(crate) struct Group {
    turn: Mutex<TurnState>,
    done: Condvar,
    /// Number of callers that wait for the current work to end.
    waiting: AtomicUsize,
}

#[derive(Default)]
struct TurnState {
    is_taken: bool,
    /// Number of callers that the last work let go: they are likely to come again at once.
    crowd: usize,
    /// Duration of the last work.
    took: Duration,
}

impl Group {
    /// Returns once `reached`; runs `work` in this thread if nobody else does. `work` must bring `reached` about for
    /// everything that was asked for before it started.
    pub(crate) fn wait(&self, reached: impl Fn() -> bool, work: impl Fn()) {
        self.wait_by(&now, reached, work);
    }

    /// Does what `wait` does, with another clock.
    fn wait_by(&self, clock: &dyn Fn() -> Instant, reached: impl Fn() -> bool, work: impl Fn()) {
        while !reached() {
            let mut turn = self.turn.lock();
            if turn.is_taken {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                drop(self.done.wait(turn));
                continue;
            }
            turn.is_taken = true;
            let (crowd, took) = (turn.crowd, turn.took);
            drop(turn);
            let mut turn = Turn { group: self, clock, start: clock() };
            // Work of another caller between the first look and this turn may have done it already.
            if !reached() {
                let limit = (took / GATHERING_SHARE).min(GATHERING_MAX);
                turn.start = self.gather(crowd, clock, turn.start, limit);
                work();
            }
            drop(turn);
        }
    }

    /// Waits a moment for the callers that the last work let go. Otherwise the first of a crowd that comes back would
    /// work for itself alone, and the others would wait twice. A caller that is alone never waits here. Returns the
    /// time at the end.
    fn gather(&self, crowd: usize, clock: &dyn Fn() -> Instant, start: Instant, limit: Duration) -> Instant {
        let mut now = start;
        while self.waiting.load(Ordering::Relaxed) < crowd && now - start < limit {
            thread::yield_now();
            now = clock();
        }
        now
    }

    /// Whether nobody works and the last work took no longer than `took_at_most`.
    pub(crate) fn is_free_and_quick(&self, took_at_most: Duration) -> bool {
        let turn = self.turn.lock();
        !turn.is_taken && turn.took <= took_at_most
    }

    /// Runs `work` while no other work runs.
    pub(crate) fn exclusive<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut turn = self.turn.lock();
        while turn.is_taken {
            turn = self.done.wait(turn);
        }
        turn.is_taken = true;
        drop(turn);
        let _turn = Turn { group: self, clock: &now, start: now() };
        work()
    }
}

/// The turn of a caller; dropping it ends the turn, also when the work panics.
struct Turn<'a> {
    group: &'a Group,
    clock: &'a dyn Fn() -> Instant,
    start: Instant,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let took = (self.clock)() - self.start;
        if seeded!(LetGoBeforeDone) {
            self.group.done.notify_all();
        }
        let mut turn = self.group.turn.lock();
        let crowd = self.group.waiting.swap(0, Ordering::Relaxed);
        *turn = TurnState { is_taken: false, crowd, took };
        drop(turn);
        if !seeded!(LetGoBeforeDone) {
            self.group.done.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Arc, Barrier, OnceLock};
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

    /// Nanoseconds that have passed; each look at the clock adds one microsecond.
    #[derive(Default)]
    struct Clock(AtomicU64);

    impl Clock {
        fn now(&self) -> Instant {
            static START: OnceLock<Instant> = OnceLock::new();
            let nanos = self.0.fetch_add(1_000, Ordering::SeqCst);
            *START.get_or_init(Instant::now) + Duration::from_nanos(nanos)
        }
    }

    /// Lets a crowd of three callers wait for one work that takes `took`.
    fn let_a_crowd_go(group: &Group, clock: &Clock, took: Duration) {
        let done = AtomicBool::new(false);
        let wait = |work: &dyn Fn()| group.wait_by(&|| clock.now(), || done.load(Ordering::SeqCst), work);
        thread::scope(|scope| {
            wait(&|| {
                for _ in 0..3 {
                    scope.spawn(|| wait(&|| panic!("the first works for all")));
                }
                while group.waiting.load(Ordering::SeqCst) < 3 {
                    thread::yield_now();
                }
                clock.0.fetch_add(took.as_nanos() as u64, Ordering::SeqCst);
                done.store(true, Ordering::SeqCst);
            });
        });
    }

    /// How long one caller behind that crowd waits before it works.
    fn waits_behind(group: &Group, clock: &Clock) -> Duration {
        let (start, done) = (clock.now(), AtomicBool::new(false));
        let began = Mutex::new(start);
        group.wait_by(
            &|| clock.now(),
            || done.load(Ordering::SeqCst),
            || {
                *began.lock() = clock.now();
                done.store(true, Ordering::SeqCst);
            },
        );
        *began.lock() - start
    }

    /// The wait once was half of what the last work took: behind a disk that stood still for three seconds, a second
    /// and a half.
    #[test]
    fn a_crowd_that_does_not_come_back_is_waited_for_no_longer_than_the_limit() {
        for (took, at_most) in [(3_000_000, 200), (400, 200), (100, 50), (0, 0)] {
            let (group, clock) = (Group::default(), Clock::default());
            let_a_crowd_go(&group, &clock, Duration::from_micros(took));
            let waited = waits_behind(&group, &clock);
            let looks = Duration::from_micros(8);
            let at_most = Duration::from_micros(at_most);
            assert!(waited <= at_most + looks, "work of {took} us: waited {waited:?}");
            assert!(waited >= at_most.saturating_sub(looks), "work of {took} us: waited {waited:?} only");
            // Nobody came, so the next caller is alone and does not wait.
            assert!(waits_behind(&group, &clock) <= looks);
        }
    }
}
