//! The time of the day, for what is stored with a record, and the time since the start of the machine, for leases.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since the epoch; 0 on a machine whose clock is set before it.
#[must_use]
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Time since the start of the machine (CLOCK_BOOTTIME). It only goes forward, at the same pace whatever the time of the day is
/// set to, and counts what the machine slept.
#[must_use]
pub(crate) fn boottime() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default() // never before the start
}
