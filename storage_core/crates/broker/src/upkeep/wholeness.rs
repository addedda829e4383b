//! Copies on this disk that have not been whole for a minute: mending and copying take seconds, so somebody should look.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::broker::Broker;

/// How long a copy may lack something before it is told.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Since when copies have lacked something.
#[derive(Default)]
struct Lacking {
    since: HashMap<Uuid, Instant>,
    /// Somebody was told that there are such.
    is_told: bool,
}

/// What a look found.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    /// Copies that have lacked something for longer than the patience.
    lasting: usize,
    /// There were none of these before.
    is_news: bool,
}

impl Lacking {
    fn look(&mut self, now: Instant, lacking: &HashSet<Uuid>) -> Found {
        self.since.retain(|segment, _| lacking.contains(segment));
        for segment in lacking {
            self.since.entry(*segment).or_insert(now);
        }
        let lasting = self.since.values().filter(|since| now.duration_since(**since) >= PATIENCE).count();
        let is_news = lasting > 0 && !self.is_told;
        self.is_told = lasting > 0;
        Found { lasting, is_news }
    }
}

/// Shows how many there are, and says so once, until the node stops.
pub(crate) async fn keep_watch(broker: Broker) {
    let watching = async {
        let mut known = Lacking::default();
        loop {
            let lacking = broker.copies().lacking();
            let Found { lasting, is_news } = known.look(Instant::now(), &lacking);
            broker.metrics().copies_not_whole.set(i64::try_from(lasting).unwrap_or(i64::MAX));
            if is_news {
                broker.metrics().alarms.inc();
                tracing::error!(
                    alarm = "copies_not_whole",
                    copies = lasting,
                    "copies on this disk have not been whole for a minute: records have fewer copies than they should"
                );
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    let _stopped = broker.shutdown_signal().run_until_cancelled(watching).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(numbers: &[u128]) -> HashSet<Uuid> {
        numbers.iter().copied().map(Uuid::from_u128).collect()
    }

    #[test]
    fn copies_are_told_once_they_have_lacked_something_for_a_minute_and_again_after_all_was_well() {
        let (start, mut known) = (Instant::now(), Lacking::default());
        let mut look = |seconds: u64, numbers: &[u128]| {
            let Found { lasting, is_news } =
                known.look(start + Duration::from_secs(seconds), &segments(numbers));
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
}
