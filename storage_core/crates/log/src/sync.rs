//! The locks, atomics and threads of the crate, which are those of the standard library. With the feature `schedules` the
//! same names are those of a scheduler, which decides at each of their uses who runs next; time then goes on only when
//! somebody looks at it or waits. So `walrus-trials` runs the store in thousands of orders of its threads.
//!
//! A lock keeps all that it needs in itself. `parking_lot` keeps the threads that wait in a table of the process: a forked
//! child inherits their entries, the stacks that these point into become those of its own threads, and now and then a
//! store that the child had opened never woke one up.

#[cfg(feature = "schedules")]
pub(crate) use scheduled::*;
#[cfg(not(feature = "schedules"))]
pub(crate) use {plain::*, std::sync::atomic, std::thread};

/// Locks over those of the module `base`. A thread that locks after a holder has panicked finds the data as it was
/// left.
macro_rules! locks {
    () => {
        #[derive(Debug, Default)]
        pub(crate) struct Mutex<T>(base::Mutex<T>);

        /// A guard with the mutex that it came from. A wait for a condition gives up the second field and takes it
        /// again from the first.
        pub(crate) struct MutexGuard<'a, T>(&'a Mutex<T>, base::MutexGuard<'a, T>);

        impl<T> Mutex<T> {
            pub(crate) fn new(value: T) -> Self {
                Self(base::Mutex::new(value))
            }

            #[inline]
            pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
                MutexGuard(self, self.0.lock().unwrap_or_else(PoisonError::into_inner))
            }

            pub(crate) fn get_mut(&mut self) -> &mut T {
                self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
            }
        }

        impl<T> Deref for MutexGuard<'_, T> {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                &self.1
            }
        }

        impl<T> DerefMut for MutexGuard<'_, T> {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                &mut self.1
            }
        }

        #[derive(Debug, Default)]
        pub(crate) struct RwLock<T>(base::RwLock<T>);

        impl<T> RwLock<T> {
            pub(crate) fn new(value: T) -> Self {
                Self(base::RwLock::new(value))
            }

            #[inline]
            pub(crate) fn read(&self) -> base::RwLockReadGuard<'_, T> {
                self.0.read().unwrap_or_else(PoisonError::into_inner)
            }

            #[inline]
            pub(crate) fn write(&self) -> base::RwLockWriteGuard<'_, T> {
                self.0.write().unwrap_or_else(PoisonError::into_inner)
            }
        }

        /// A condition of the data of a `Mutex`. A wait may also end without a notification.
        #[derive(Debug, Default)]
        pub(crate) struct Condvar(base::Condvar);

        impl Condvar {
            pub(crate) fn notify_one(&self) {
                self.0.notify_one();
            }

            pub(crate) fn notify_all(&self) {
                self.0.notify_all();
            }

            pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
                let MutexGuard(mutex, held) = guard;
                MutexGuard(mutex, self.0.wait(held).unwrap_or_else(PoisonError::into_inner))
            }

            /// Waits until a notification, or until that time at most; the flag tells whether the time is over.
            pub(crate) fn wait_until<'a, T>(
                &self,
                guard: MutexGuard<'a, T>,
                until: Instant,
            ) -> (MutexGuard<'a, T>, bool) {
                self.wait_for(guard, until.saturating_duration_since(now()))
            }
        }
    };
}

/// The locks of the standard library, also where a scheduler decides over the others; for data that is no part of a
/// schedule.
#[cfg_attr(feature = "schedules", expect(dead_code, reason = "few use them beside a scheduler"))]
pub(crate) mod plain {
    use std::ops::{Deref, DerefMut};
    use std::sync::{self as base, PoisonError};
    use std::time::{Duration, Instant};

    locks!();

    /// The current time.
    #[inline]
    pub(crate) fn now() -> Instant {
        Instant::now()
    }

    impl Condvar {
        /// Waits for a notification, or for that long at most; the flag tells whether the time is over.
        pub(crate) fn wait_for<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            time: Duration,
        ) -> (MutexGuard<'a, T>, bool) {
            let MutexGuard(mutex, held) = guard;
            let (held, waited) = self.0.wait_timeout(held, time).unwrap_or_else(PoisonError::into_inner);
            (MutexGuard(mutex, held), waited.timed_out())
        }
    }
}

#[cfg(feature = "schedules")]
mod scheduled {
    use std::cell::Cell;
    use std::ops::{Deref, DerefMut};
    use std::sync::{OnceLock, PoisonError};
    use std::time::{Duration, Instant};

    use shuttle::rand::{Rng, thread_rng};
    use shuttle::sync as base;
    pub(crate) use shuttle::sync::atomic;
    pub(crate) use shuttle::thread;

    locks!();

    /// Time that a look at the clock takes.
    const LOOK: Duration = Duration::from_micros(50);

    thread_local! {
        /// Time since the process first looked. All threads of a schedule run in one thread of the system.
        static ELAPSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    fn start() -> Instant {
        static START: OnceLock<Instant> = OnceLock::new();
        *START.get_or_init(Instant::now)
    }

    /// The current time, which each call moves on a little.
    pub(crate) fn now() -> Instant {
        ELAPSED.set(ELAPSED.get() + LOOK);
        start() + ELAPSED.get()
    }

    impl Condvar {
        /// Ends the wait at once as if the time was over, or only after everything else that can happen has happened
        /// and notified.
        pub(crate) fn wait_for<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            time: Duration,
        ) -> (MutexGuard<'a, T>, bool) {
            if !thread_rng().gen_bool(0.5) {
                return (self.wait(guard), false);
            }
            let MutexGuard(mutex, held) = guard;
            let until = ELAPSED.get() + time;
            drop(held);
            thread::yield_now();
            let guard = mutex.lock();
            ELAPSED.set(ELAPSED.get().max(until));
            (guard, true)
        }
    }
}
