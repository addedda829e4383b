//! Decides when an open segment ends. Pure: it is told how full the segment is and answers what to do, and why.

use std::time::{Duration, Instant};

use walrus_metadata::rolling::{Limits, Reason};

/// Part of a limit, in percent, from which the successor is allotted ahead, so that the roll itself waits for nothing.
const AHEAD_PERCENT: u128 = 80;
/// Factor by which an open segment may outgrow its limits while no successor can be had, because metadata is away.
const HARD_CAP_FACTOR: u128 = 4;

/// How full a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    /// Records in it.
    pub(crate) entries: u64,
    /// Bytes of its batches.
    pub(crate) bytes: u64,
    /// Time since it was opened.
    pub(crate) age: Duration,
}

/// What a roll left that found no successor.
#[derive(Clone, Copy)]
pub(crate) struct Hold {
    /// When the next one may be tried.
    pub(crate) until: Instant,
    /// How full the segment was at the first one.
    pub(crate) due: Fill,
}

/// What to do with an open segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing is to be done.
    Continue,
    /// It will end soon: have its successor allotted.
    AllotSuccessor(Reason),
    /// It is full: nothing more is appended to it, and it is rolled.
    SealAfterThis(Reason),
}

/// Decides what to do with a segment, after an append or now and then. An empty segment never ends by itself, and a young one
/// goes on beyond its limits.
#[must_use]
pub(crate) fn decide(fill: Fill, limits: Limits) -> Decision {
    if fill.entries == 0 {
        return Decision::Continue;
    }
    if let Some(reason) = reached(fill, limits, 100).filter(|_| fill.age >= limits.age_min) {
        return Decision::SealAfterThis(reason);
    }
    reached(fill, limits, AHEAD_PERCENT).map_or(Decision::Continue, Decision::AllotSuccessor)
}

/// Whether a segment that should have ended, but got no successor, may still take appends. `due` is its fill when it should
/// have ended: that of one that was young is beyond its limits already. Age does not count: what is bounded is the work that
/// a late roll leaves.
#[must_use]
pub(crate) fn may_outgrow(fill: Fill, due: Fill, limits: Limits) -> bool {
    let bounds = Limits {
        entries_max: limits.entries_max.max(due.entries),
        bytes_max: limits.bytes_max.max(due.bytes),
        age_max: None,
        ..limits
    };
    reached(fill, bounds, 100 * HARD_CAP_FACTOR).is_none()
}

/// The first limit of which a segment has reached so many percent.
fn reached(fill: Fill, limits: Limits, percent: u128) -> Option<Reason> {
    let is_over = |value: u128, limit: u128| value * 100 >= limit * percent;
    if is_over(fill.entries.into(), limits.entries_max.into()) {
        Some(Reason::Entries)
    } else if is_over(fill.bytes.into(), limits.bytes_max.into()) {
        Some(Reason::Bytes)
    } else if limits.age_max.is_some_and(|age_max| is_over(fill.age.as_millis(), age_max.as_millis())) {
        Some(Reason::Age)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        entries_max: 10,
        bytes_max: 1_000,
        age_max: Some(Duration::from_secs(100)),
        age_min: Duration::from_secs(1),
    };

    fn fill(entries: u64, bytes: u64, age_s: u64) -> Fill {
        Fill { entries, bytes, age: Duration::from_secs(age_s) }
    }

    #[test]
    fn a_segment_ends_at_the_batch_that_reaches_a_limit() {
        assert_eq!(decide(fill(9, 10, 1), LIMITS), Decision::AllotSuccessor(Reason::Entries));
        assert_eq!(decide(fill(10, 10, 1), LIMITS), Decision::SealAfterThis(Reason::Entries));
        assert_eq!(decide(fill(14, 10, 1), LIMITS), Decision::SealAfterThis(Reason::Entries));
        assert_eq!(decide(fill(1, 1_000, 1), LIMITS), Decision::SealAfterThis(Reason::Bytes));
        assert_eq!(decide(fill(1, 10, 100), LIMITS), Decision::SealAfterThis(Reason::Age));
    }

    #[test]
    fn its_successor_is_allotted_at_four_fifths() {
        assert_eq!(decide(fill(7, 799, 79), LIMITS), Decision::Continue);
        assert_eq!(decide(fill(8, 10, 1), LIMITS), Decision::AllotSuccessor(Reason::Entries));
        assert_eq!(decide(fill(1, 800, 1), LIMITS), Decision::AllotSuccessor(Reason::Bytes));
        assert_eq!(decide(fill(1, 10, 80), LIMITS), Decision::AllotSuccessor(Reason::Age));
    }

    #[test]
    fn a_young_segment_goes_on_and_has_its_successor_allotted() {
        for reached in [fill(10, 10, 0), fill(1_000, 10, 0), fill(1, 1_000_000, 0)] {
            assert!(matches!(decide(reached, LIMITS), Decision::AllotSuccessor(_)));
            assert!(matches!(
                decide(Fill { age: LIMITS.age_min, ..reached }, LIMITS),
                Decision::SealAfterThis(_)
            ));
        }
        let younger = Limits { age_max: Some(Duration::from_millis(5)), ..LIMITS };
        let old = Fill { age: Duration::from_millis(5), ..fill(1, 1, 0) };
        assert_eq!(decide(old, younger), Decision::AllotSuccessor(Reason::Age));
    }

    #[test]
    fn an_empty_segment_does_not_age() {
        assert_eq!(decide(fill(0, 0, 1_000), LIMITS), Decision::Continue);
    }

    #[test]
    fn a_segment_without_successor_grows_to_four_times_its_limits() {
        let due = fill(10, 1_000, 5);
        assert!(may_outgrow(fill(39, 3_999, 1_000_000), due, LIMITS));
        assert!(!may_outgrow(fill(40, 10, 1), due, LIMITS));
        assert!(!may_outgrow(fill(1, 4_000, 1), due, LIMITS));
        let late = fill(500, 100_000, 1); // it was young when it reached its limits
        assert!(may_outgrow(fill(1_999, 399_999, 2), late, LIMITS));
        assert!(!may_outgrow(fill(2_000, 100_000, 2), late, LIMITS));
    }

    #[test]
    fn limits_at_the_end_of_their_range_do_not_overflow() {
        let limits =
            Limits { entries_max: u64::MAX, bytes_max: u64::MAX, age_max: Some(Duration::MAX), ..LIMITS };
        let full = Fill { entries: u64::MAX - 1, bytes: u64::MAX - 1, age: Duration::from_secs(1) };
        assert_eq!(decide(full, limits), Decision::AllotSuccessor(Reason::Entries));
    }
}
