//! Creations: a count of the topics that were created lately, for the limits on them.

use serde::{Deserialize, Serialize};

/// Limit on the difference of two clocks of a cluster; with a larger one, a clock is wrong.
const CLOCKS_APART_SECONDS_MAX: u64 = 10;

/// The number of topics created in the latest second, by the proposers' clocks, in which one was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Creations {
    /// Seconds since the epoch.
    pub second: u64,
    /// Topics created in it.
    pub count: u64,
}

impl Creations {
    /// The count with one more topic, created at a proposer's time. Proposers' clocks differ: the latest of them counts, unless
    /// it is so far ahead that it must be wrong.
    pub(crate) fn with_one_at(self, at_ms: u64) -> Self {
        let (Self { second, count }, now) = (self, at_ms / 1_000);
        let is_ahead = second > now && second - now <= CLOCKS_APART_SECONDS_MAX;
        if is_ahead || second == now {
            Self { second, count: count + 1 }
        } else {
            Self { second: now, count: 1 }
        }
    }
}
