//! The last batches of an open segment, in order: those that are not acknowledged yet, and acknowledged ones as long as there
//! is room, for replicas that are a little behind.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use walrus_model::{Offset, SegmentId};
use walrus_replica::Batch;

/// Bytes of batches that are kept for sending; older acknowledged ones are read from the log.
const KEPT_BYTES: usize = 16 << 20;

/// The last batches of one open segment, in order.
#[derive(Default)]
pub(crate) struct Window {
    recent: VecDeque<RecentBatch>,
    bytes: usize,
}

/// A batch, with what must be known should it go on to the next segment.
pub(crate) struct RecentBatch {
    pub(crate) batch: Batch,
    pub(crate) bytes: Bytes,
    /// The segment for which another node sent it.
    pub(crate) for_segment: Option<SegmentId>,
    pub(crate) deadline: Instant,
}

impl Window {
    /// Puts a batch behind the others.
    pub(crate) fn push(&mut self, recent: RecentBatch) {
        self.bytes += recent.bytes.len();
        self.recent.push_back(recent);
    }

    /// Forgets the oldest acknowledged batches where there is no room for them. Above [`KEPT_BYTES`] nothing is left but
    /// what is not acknowledged.
    pub(crate) fn trim(&mut self, high_watermark: Offset) {
        while self.bytes > KEPT_BYTES
            && self.recent.front().is_some_and(|recent| recent.batch.end <= high_watermark)
            && let Some(recent) = self.recent.pop_front()
        {
            self.bytes -= recent.bytes.len();
        }
    }

    /// Size of all batches in the window.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Batches from an offset on, about `bytes_max` bytes and one at least; `None` if they are not at hand any more.
    pub(crate) fn from(&self, next: Offset, bytes_max: usize) -> Option<Vec<Bytes>> {
        let first = self.recent.binary_search_by_key(&next, |recent| recent.batch.base).ok()?;
        let mut left = bytes_max;
        let mut taken = Vec::new();
        for recent in self.recent.range(first..) {
            if !taken.is_empty() && recent.bytes.len() > left {
                break;
            }
            left = left.saturating_sub(recent.bytes.len());
            taken.push(recent.bytes.clone());
        }
        Some(taken)
    }

    /// Takes out the batches that lie behind an end, in order.
    pub(crate) fn take_behind(&mut self, end: Offset) -> Vec<RecentBatch> {
        let behind = self.recent.partition_point(|recent| recent.batch.end <= end);
        let taken: Vec<RecentBatch> = self.recent.drain(behind..).collect();
        self.bytes -= taken.iter().map(|recent| recent.bytes.len()).sum::<usize>();
        taken
    }
}

#[cfg(test)]
mod tests {
    use walrus_model::Digest;

    use super::*;

    const MIB: usize = 1 << 20;

    /// A window with `count` batches of one record and a MiB each.
    fn window(count: u64) -> Window {
        let mut window = Window::default();
        for base in 0..count {
            let batch = Batch { base: Offset(base), end: Offset(base + 1), digest: Digest(0) };
            let bytes = Bytes::from(vec![0; MIB]);
            window.push(RecentBatch { batch, bytes, for_segment: None, deadline: Instant::now() });
        }
        window
    }

    #[test]
    fn what_is_not_acknowledged_stays_however_much_it_is() {
        let mut window = window(40);
        window.trim(Offset(0));
        assert_eq!(window.bytes(), 40 * MIB);
        window.trim(Offset(10));
        assert_eq!((window.bytes(), window.recent[0].batch.base), (30 * MIB, Offset(10)));
        // Acknowledged batches stay as long as there is room for them.
        window.trim(Offset(40));
        assert_eq!((window.bytes(), window.recent[0].batch.base), (KEPT_BYTES, Offset(24)));
    }

    #[test]
    fn batches_are_given_from_an_offset_on_and_one_at_least() {
        let mut window = window(20);
        window.trim(Offset(20));
        assert!(window.from(Offset(3), MIB).is_none(), "it is not kept any more");
        assert_eq!(window.from(Offset(4), 3 * MIB).unwrap().len(), 3);
        assert_eq!(window.from(Offset(4), 1).unwrap().len(), 1);
        assert_eq!(window.from(Offset(18), 9 * MIB).unwrap().len(), 2);
    }

    #[test]
    fn what_lies_behind_an_end_leaves_with_its_bytes() {
        let mut window = window(5);
        let bases: Vec<u64> =
            window.take_behind(Offset(3)).iter().map(|recent| recent.batch.base.0).collect();
        assert_eq!((bases, window.bytes()), (vec![3, 4], 3 * MIB));
    }
}
