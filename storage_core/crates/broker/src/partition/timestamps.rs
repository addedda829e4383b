//! The timestamps of a batch that comes in: what its records have, and whether its topic takes them at the leader's time.

use walrus_log::batch::{Batch, RecordsSeen};
use walrus_metadata::Timestamps;

use crate::node::error::{Error, Result};
use crate::partition::walking::walk;

/// The timestamps of a batch's records, as far as somebody has looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    /// Nobody has looked.
    Unknown,
    /// No record has one, or a leader has taken the batch already.
    Free,
    /// The lowest and the greatest.
    Between(i64, i64),
}

impl Times {
    /// The timestamps of records that somebody has looked at.
    pub(crate) fn of(seen: &RecordsSeen) -> Self {
        seen.timestamps.as_ref().map_or(Self::Free, |span| Self::Between(*span.start(), *span.end()))
    }
}

/// Looks at the timestamps of a batch whose topic bounds them.
///
/// `InvalidBatch` if the records cannot be read: nobody could say what times they have.
pub(crate) fn look(batch: &Batch<'_>) -> Result<Times> {
    let seen = walk(batch).map_err(|problem| Error::InvalidBatch { problem: problem.to_string() })?;
    Ok(Times::of(&seen))
}

/// Whether the rule refuses any timestamp.
pub(crate) fn is_bounded(rule: Timestamps) -> bool {
    match rule {
        Timestamps::Created { before_ms_max, after_ms_max } => {
            before_ms_max.is_some() || after_ms_max.is_some()
        }
        Timestamps::Appended => false,
    }
}

/// Refuses timestamps that lie too far from the leader's clock. The bounds themselves are taken.
pub(crate) fn check(rule: Timestamps, times: Times, now_ms: i64) -> Result<()> {
    let Timestamps::Created { before_ms_max, after_ms_max } = rule else { return Ok(()) };
    let Times::Between(first, last) = times else { return Ok(()) };
    let oldest_ms = before_ms_max.map_or(i64::MIN, |most| now_ms.saturating_sub_unsigned(most));
    let newest_ms = after_ms_max.map_or(i64::MAX, |most| now_ms.saturating_add_unsigned(most));
    let wrong = [first, last].into_iter().find(|time| !(oldest_ms..=newest_ms).contains(time));
    wrong.map_or(Ok(()), |timestamp_ms| Err(Error::InvalidTimestamp { timestamp_ms, oldest_ms, newest_ms }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_further_from_the_clock_than_allowed_is_refused_with_the_bounds() {
        let rule = |before_ms_max, after_ms_max| Timestamps::Created { before_ms_max, after_ms_max };
        let refused =
            |timestamp_ms| Err(Error::InvalidTimestamp { timestamp_ms, oldest_ms: 900, newest_ms: 1_005 });
        let both = rule(Some(100), Some(5));
        assert_eq!(check(both, Times::Between(900, 1_005), 1_000), Ok(()));
        assert_eq!(check(both, Times::Between(899, 1_000), 1_000), refused(899));
        assert_eq!(check(both, Times::Between(900, 1_006), 1_000), refused(1_006));
        assert_eq!(check(both, Times::Free, 1_000), Ok(()));
        assert_eq!(check(rule(None, Some(0)), Times::Between(i64::MIN, 1_000), 1_000), Ok(()));
        let any = Times::Between(i64::MIN, i64::MAX);
        assert_eq!(check(rule(Some(u64::MAX), None), any, i64::MAX), Ok(()));
        assert_eq!(check(Timestamps::Appended, any, 0), Ok(()));
        assert!(!is_bounded(rule(None, None)) && is_bounded(rule(Some(1), None)));
        assert!(!is_bounded(Timestamps::Appended));
    }
}
