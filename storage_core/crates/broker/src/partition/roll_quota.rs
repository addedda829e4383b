//! How many segments a node may roll in a second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bits of the count in the one word that holds a second and what was taken in it.
const COUNT_BITS: u32 = 24;

/// A count of what was taken in the second that is running. Nothing is locked: appends ask while segments wait for their turn.
pub(crate) struct RollQuota {
    began: Instant,
    second_and_count: AtomicU64,
}

impl RollQuota {
    /// A quota of which nothing was taken; its seconds begin at `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, second_and_count: AtomicU64::new(0) }
    }

    /// Takes one of the `max` of the second in which `now` lies, if one is left.
    pub(crate) fn take(&self, now: Instant, max: u64) -> bool {
        let second = now.saturating_duration_since(self.began).as_secs();
        let max = max.min((1 << COUNT_BITS) - 1);
        let taken = self.second_and_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
            let is_now = before >> COUNT_BITS == second;
            let count = if is_now { before & ((1 << COUNT_BITS) - 1) } else { 0 };
            (count < max).then_some((second << COUNT_BITS) + count + 1)
        });
        taken.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_second_has_as_many_and_none_is_saved_up() {
        let began = Instant::now();
        let quota = RollQuota::new(began);
        let taken = |ms, max| {
            let now = began + Duration::from_millis(ms);
            (0..100).filter(|_| quota.take(now, max)).count()
        };
        assert_eq!([taken(0, 5), taken(999, 5), taken(999, 7), taken(1_000, 5)], [5, 0, 2, 5]);
        assert_eq!([taken(60_000, 5), taken(60_500, 1 << 40), taken(61_000, 0)], [5, 100, 0]);
    }

    #[test]
    fn threads_that_ask_at_a_time_share_a_second() {
        let began = Instant::now();
        let quota = RollQuota::new(began);
        let taken: usize = std::thread::scope(|scope| {
            let ask = || (0..1_000).filter(|_| quota.take(began, 700)).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 700);
    }
}
