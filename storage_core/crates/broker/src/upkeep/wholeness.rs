//! Raises an alarm for copies on this disk that have lacked something for longer than `lacking_ms_max` and got no further:
//! mending takes seconds, and a copy that is being made grows all the time, so somebody should look.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use walrus_model::SegmentId;

use crate::copies::Copies;
use crate::node::patience;

/// The copies that lack something, with the time since which each got no further.
struct LackingCopies {
    patience: Duration,
    since: HashMap<SegmentId, StuckCopy>,
    /// The alarm for the present ones was raised.
    is_told: bool,
}

/// A copy that lacks something.
struct StuckCopy {
    /// First offset behind what it has.
    end: u64,
    since: Instant,
}

/// What a look found.
#[derive(Debug, PartialEq, Eq)]
struct Look {
    /// Copies that have lacked something for longer than the patience.
    lasting: usize,
    /// The look before found none of these.
    is_news: bool,
}

impl LackingCopies {
    fn new(patience: Duration) -> Self {
        Self { patience, since: HashMap::new(), is_told: false }
    }

    fn look(&mut self, now: Instant, lacking: &HashMap<SegmentId, u64>) -> Look {
        self.since.retain(|segment, known| lacking.get(segment) == Some(&known.end));
        for (segment, end) in lacking {
            self.since.entry(*segment).or_insert(StuckCopy { end: *end, since: now });
        }
        let is_lasting = |known: &&StuckCopy| now.duration_since(known.since) >= self.patience;
        let lasting = self.since.values().filter(is_lasting).count();
        let is_news = lasting > 0 && !self.is_told;
        self.is_told = lasting > 0;
        Look { lasting, is_news }
    }
}

/// Counts such copies in the metrics, and raises an alarm when the first appears, until the node stops.
pub(crate) async fn keep_watch(copies: Arc<Copies>) {
    let watching = async {
        let mut known = LackingCopies::new(Duration::from_millis(copies.cluster().config().lacking_ms_max));
        loop {
            let lacking = copies.table().lacking();
            let Look { lasting, is_news } = known.look(Instant::now(), &lacking);
            copies.cluster().metrics().copies_not_whole.set(i64::try_from(lasting).unwrap_or(i64::MAX));
            if is_news {
                copies.cluster().metrics().alarms.inc();
                tracing::error!(
                    alarm = "copies_not_whole",
                    copies = lasting,
                    lacking_ms_max = copies.cluster().config().lacking_ms_max,
                    "copies on this disk are not whole and get no further: records have fewer copies than they should"
                );
            }
            tokio::time::sleep(patience::UPKEEP_LOOK).await;
        }
    };
    copies.tasks().until_stopped(watching).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ends of copies, by the number of their segment.
    fn segments(numbers: &[(u128, u64)]) -> HashMap<SegmentId, u64> {
        numbers.iter().map(|(number, end)| (SegmentId::from_u128(*number), *end)).collect()
    }

    #[test]
    fn copies_are_told_once_they_have_lacked_something_for_a_minute_and_again_after_all_was_well() {
        let (start, mut known) = (Instant::now(), LackingCopies::new(Duration::from_secs(60)));
        let mut look = |seconds: u64, numbers: &[u128]| {
            let lacking: Vec<_> = numbers.iter().map(|number| (*number, 0)).collect();
            let Look { lasting, is_news } =
                known.look(start + Duration::from_secs(seconds), &segments(&lacking));
            (lasting, is_news)
        };
        assert_eq!(look(0, &[1, 2]), (0, false));
        assert_eq!(look(59, &[1, 3]), (0, false));
        assert_eq!(look(60, &[1, 2, 3]), (1, true), "2 was whole in between");
        assert_eq!(look(119, &[1, 3]), (2, false), "once");
        assert_eq!(look(120, &[]), (0, false));
        assert_eq!(look(130, &[1]), (0, false));
        assert_eq!(look(190, &[1]), (1, true));
    }

    /// A copy that was merely being made, and was large, was told as one that lost something.
    #[test]
    fn a_copy_that_grows_is_not_told_until_it_stands_still_for_a_minute() {
        let (start, mut known) = (Instant::now(), LackingCopies::new(Duration::from_secs(60)));
        let mut lasting = |seconds: u64, end: u64| {
            known.look(start + Duration::from_secs(seconds), &segments(&[(1, end)])).lasting
        };
        for minutes in 0..10 {
            assert_eq!(lasting(minutes * 50, minutes), 0);
        }
        assert_eq!(lasting(9 * 50 + 59, 9), 0);
        assert_eq!(lasting(9 * 50 + 60, 9), 1);
    }
}
