//! The unsealed copies of this disk that have holes: batches that rotted.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::node::locks::Lock;
use tokio::sync::Notify;
use walrus_model::SegmentId;

/// The unsealed copies of this disk in which something rotted, as far as they were looked through.
#[derive(Default)]
pub(crate) struct Holed {
    segments: Lock<HashSet<SegmentId>>,
    /// Wakes who waits for another copy with holes.
    found: Notify,
    /// All copies that were here at the start have been looked through.
    is_complete: AtomicBool,
}

impl Holed {
    /// Notes what a look through a copy found.
    pub(crate) fn note(&self, segment: SegmentId, is_holed: bool) {
        if !is_holed {
            self.segments.lock().remove(&segment);
        } else if self.segments.lock().insert(segment) {
            self.found.notify_one();
        }
    }

    /// Segments with holes here.
    pub(crate) fn all(&self) -> Vec<SegmentId> {
        self.segments.lock().iter().copied().collect()
    }

    /// Whether a copy is known to have everything below its end.
    pub(crate) fn knows_as_whole(&self, segment: SegmentId) -> bool {
        self.is_complete.load(Ordering::Acquire) && !self.segments.lock().contains(&segment)
    }

    /// Notes that all copies that a start found were looked through.
    pub(crate) fn set_complete(&self) {
        self.is_complete.store(true, Ordering::Release);
    }

    /// Returns when another copy with holes was found.
    pub(crate) async fn await_found(&self) {
        self.found.notified().await;
    }
}
