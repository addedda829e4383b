//! The pace at which bytes are copied or read in the background: a limit on their average per second.

use std::time::{Duration, Instant};

/// A limit on bytes a second. Whoever takes more than there is waits the longer before the next bytes.
pub(crate) struct Pace {
    /// When the bytes that were taken so far are paid for.
    paid_until: Instant,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { paid_until: Instant::now() }
    }

    /// Takes bytes, and says how long to wait after them. A wait grows by at most a minute with each call.
    pub(crate) fn take(&mut self, now: Instant, bytes: u64, bytes_per_second: u64) -> Duration {
        let start = self.paid_until.max(now);
        #[allow(clippy::cast_precision_loss, reason = "a pace")]
        let cost = Duration::from_secs_f64((bytes as f64 / bytes_per_second.max(1) as f64).min(60.0));
        self.paid_until = start + cost;
        self.paid_until.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_cost_their_time_and_idle_time_is_not_saved_up() {
        let start = Instant::now();
        let mut pace = Pace { paid_until: start };
        assert_eq!(pace.take(start, 500, 1_000), Duration::from_millis(500));
        assert_eq!(pace.take(start, 500, 1_000), Duration::from_secs(1));
        let later = start + Duration::from_secs(100);
        assert_eq!(pace.take(later, 100, 1_000), Duration::from_millis(100));
        assert!(pace.take(later, u64::MAX, 1) <= Duration::from_secs(61));
    }
}
