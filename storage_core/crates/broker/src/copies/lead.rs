//! The facts that the leader of an open segment tells those who answer for this node's copy of it. They lie below the leader,
//! and do not know it.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::copies::high_watermark::HighWatermark;

/// How far an open segment that this process leads is acknowledged, and whether its leader can go on.
pub(crate) struct Lead {
    pub(crate) high_watermark: HighWatermark,
    is_left: AtomicBool,
    is_deposed: AtomicBool,
}

impl Lead {
    /// What a leader tells whose segment begins at `first`.
    pub(crate) fn new(first: u64) -> Self {
        Self {
            high_watermark: HighWatermark::new(first),
            is_left: AtomicBool::new(false),
            is_deposed: AtomicBool::new(false),
        }
    }

    /// Notes that too many of its replicas said, when they were asked, that they follow it no more.
    pub(crate) fn note_left(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    /// Notes that too many of its replicas refuse its appends; `false` once its segment has ended, when nobody has to do
    /// anything about that.
    pub(crate) fn set_deposed(&self, is_deposed: bool) {
        self.is_deposed.store(is_deposed, Ordering::Release);
    }

    /// Whether no append is acknowledged any more while nobody knows yet where the segment ends.
    pub(crate) fn is_in_vain(&self) -> bool {
        self.is_left.load(Ordering::Acquire) || self.is_deposed.load(Ordering::Acquire)
    }
}
