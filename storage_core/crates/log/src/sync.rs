//! What threads share and wait with: locks of `parking_lot`, atomics and threads of the standard library. With the feature
//! `schedules` the same names are those of a scheduler that decides who runs next at each of their uses, and time goes on
//! only when somebody looks at it or waits: `walrus-trials` runs the store in thousands of orders of its threads.

#[cfg(not(feature = "schedules"))]
pub(crate) use free::*;
#[cfg(feature = "schedules")]
pub(crate) use scheduled::*;

#[cfg(not(feature = "schedules"))]
mod free {
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread;

    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

    /// The time.
    #[inline]
    pub(crate) fn now() -> std::time::Instant {
        std::time::Instant::now()
    }
}

#[cfg(feature = "schedules")]
mod scheduled {
    use std::cell::Cell;
    use std::ops::{Deref, DerefMut};
    use std::sync::{OnceLock, PoisonError};
    use std::time::{Duration, Instant};

    use shuttle::rand::{Rng, thread_rng};
    use shuttle::sync;
    pub(crate) use shuttle::sync::atomic;
    pub(crate) use shuttle::thread;

    /// What a look at the clock takes.
    const LOOK: Duration = Duration::from_micros(50);

    thread_local! {
        /// Since the process first looked. All threads of a schedule run in one of the system.
        static ELAPSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    fn start() -> Instant {
        static START: OnceLock<Instant> = OnceLock::new();
        *START.get_or_init(Instant::now)
    }

    /// The time, which goes on a little by this.
    pub(crate) fn now() -> Instant {
        ELAPSED.set(ELAPSED.get() + LOOK);
        start() + ELAPSED.get()
    }

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(sync::Mutex<T>);

    /// `None` only while a condition is waited for.
    pub(crate) struct MutexGuard<'a, T>(&'a Mutex<T>, Option<sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(self, Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
        }

        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.1.as_ref().expect("held")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.1.as_mut().expect("held")
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> sync::RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn write(&self) -> sync::RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(sync::Condvar);

    pub(crate) struct TimedOut(bool);

    impl TimedOut {
        pub(crate) fn timed_out(&self) -> bool {
            self.0
        }
    }

    impl Condvar {
        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.1.take().expect("held");
            guard.1 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }

        pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> TimedOut {
            self.wait_until(guard, now() + time)
        }

        /// The time is over at once, or only after whatever else can happen has happened and notified.
        pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> TimedOut {
            let is_over = thread_rng().gen_bool(0.5);
            if is_over {
                guard.1 = None;
                thread::yield_now();
                guard.1 = guard.0.lock().1;
                ELAPSED.set(ELAPSED.get().max(until - start()));
            } else {
                self.wait(guard);
            }
            TimedOut(is_over)
        }
    }
}
