//! The fill of a leader's segment, and what follows from it.

use std::time::{Duration, Instant};

use walrus_metadata::rolling::Limits;

use super::Leader;
use crate::partition::fullness::{self, Decision, Fill};

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
        let decision = fullness::decide(fill, limits);
        match decision {
            Decision::SealAfterThis(_) if self.is_held() && fullness::may_outgrow(fill, limits) => {
                Decision::Continue
            }
            other => other,
        }
    }

    /// Lets the segment go on for a while after a roll that found no successor: it is not rolled again before that.
    pub(crate) fn hold(&self, time: Duration) {
        *self.hold_until.lock() = Some(Instant::now() + time);
    }

    /// Whether it may go on without a successor.
    pub(crate) fn may_outgrow(&self, limits: Limits) -> bool {
        fullness::may_outgrow(self.fill(), limits)
    }

    /// Whether the last roll found no successor and is not to be tried again yet.
    pub(crate) fn is_held(&self) -> bool {
        self.hold_until.lock().is_some_and(|until| Instant::now() < until)
    }
}
