//! Room on this node's disk: whoever finds none says so here, and `upkeep/space.rs` tells the metadata.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Writes that found no room.
#[derive(Default)]
pub(crate) struct DiskRoom {
    was_refused: AtomicBool,
    changed: Notify,
}

impl DiskRoom {
    /// Notes that a write found no room, and wakes who waits for that.
    pub(crate) fn note_refusal(&self) {
        if !self.was_refused.swap(true, Ordering::Relaxed) {
            self.changed.notify_one();
        }
    }

    /// Returns when a write found no room.
    pub(crate) async fn await_refusal(&self) {
        self.changed.notified().await;
    }

    /// Whether a write found no room since this was last called.
    pub(crate) fn take_refusal(&self) -> bool {
        self.was_refused.swap(false, Ordering::Relaxed)
    }
}
