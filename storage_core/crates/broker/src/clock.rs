//! The time, for the one thing that may depend on it: what is stored with a record.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the epoch; 0 on a machine whose clock is set before it.
#[must_use]
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
