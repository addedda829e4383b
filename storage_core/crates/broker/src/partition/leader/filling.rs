//! The fill of a leader's segment, and what follows from it.

use std::time::{Duration, Instant};

use walrus_metadata::rolling::Limits;

use super::Leader;
use crate::partition::fullness::{self, Decision, Fill, Hold};

impl Leader {
    /// How full the segment is now.
    pub(crate) fn fill(&self) -> Fill {
        Fill {
            entries: self.key.log.end_offset().0.saturating_sub(self.key.log.base_offset().0),
            bytes: self.key.log.size_bytes(),
            age: self.opened.elapsed(),
        }
    }

    /// What to do with the segment as it is now.
    pub(crate) fn decide(&self, limits: Limits) -> Decision {
        let fill = self.fill();
        match fullness::decide(fill, limits) {
            Decision::SealAfterThis(_) if self.is_held() && self.may_outgrow(limits) => Decision::Continue,
            other => other,
        }
    }

    /// Lets the segment go on for a while after a roll that found no successor: it is not rolled again before that.
    pub(crate) fn hold(&self, time: Duration) {
        let fill = self.fill();
        let mut hold = self.hold.lock();
        let due = hold.map_or(fill, |hold| hold.due);
        *hold = Some(Hold { until: Instant::now() + time, due });
    }

    /// Whether it may go on without a successor.
    pub(crate) fn may_outgrow(&self, limits: Limits) -> bool {
        let fill = self.fill();
        let due = self.hold.lock().map_or(fill, |hold| hold.due);
        fullness::may_outgrow(fill, due, limits)
    }

    /// Whether the last roll found no successor and is not to be tried again yet.
    pub(crate) fn is_held(&self) -> bool {
        self.hold.lock().is_some_and(|hold| Instant::now() < hold.until)
    }
}
