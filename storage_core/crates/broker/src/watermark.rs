//! The high watermark of an open segment: the first offset not yet on `w` disks. It never moves back.

use parking_lot::Mutex;
use tokio::sync::watch;

/// Durable ends of a segment's replicas, and what follows from them.
pub(crate) struct HighWatermark {
    write_quorum: usize,
    /// One for each replica, in the descriptor's order. Each only grows.
    durable_ends: Mutex<Vec<u64>>,
    published: watch::Sender<u64>,
}

impl HighWatermark {
    /// For `replicas` copies that all end at `end`. `1 <= write_quorum <= replicas`.
    pub(crate) fn new(replicas: usize, write_quorum: usize, end: u64) -> Self {
        assert!(
            (1..=replicas).contains(&write_quorum),
            "a write quorum of {write_quorum} of {replicas} replicas"
        );
        Self {
            write_quorum,
            durable_ends: Mutex::new(vec![end; replicas]),
            published: watch::Sender::new(end),
        }
    }

    /// A replica has everything below `end` on its disk. An older report changes nothing.
    pub(crate) fn record(&self, replica: usize, end: u64) {
        let mut ends = self.durable_ends.lock();
        if ends[replica] >= end {
            return;
        }
        ends[replica] = end;
        let reached = if ends.len() == 1 {
            end
        } else {
            let mut sorted = ends.clone();
            sorted.sort_unstable_by(|left, right| right.cmp(left));
            sorted[self.write_quorum - 1]
        };
        // Still under the lock, so that two reports publish in the order of their values.
        self.published.send_if_modified(|published| {
            let grows = reached > *published;
            *published = reached.max(*published);
            grows
        });
    }

    /// First offset that is not readable yet.
    pub(crate) fn get(&self) -> u64 {
        *self.published.borrow()
    }

    /// Wakes when it grows.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.published.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_wth_largest_durable_end_and_never_moves_back() {
        let watermark = HighWatermark::new(3, 2, 5);
        watermark.record(0, 10);
        assert_eq!(watermark.get(), 5);
        watermark.record(2, 8);
        assert_eq!(watermark.get(), 8);
        watermark.record(1, 20);
        assert_eq!(watermark.get(), 10);
        watermark.record(1, 7);
        assert_eq!(watermark.get(), 10);
    }

    #[test]
    fn with_one_replica_it_is_its_durable_end() {
        let watermark = HighWatermark::new(1, 1, 0);
        let mut watch = watermark.watch();
        watermark.record(0, 3);
        assert_eq!(*watch.borrow_and_update(), 3);
        watermark.record(0, 3);
        assert!(!watch.has_changed().unwrap());
    }
}
