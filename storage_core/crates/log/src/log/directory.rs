//! The blocks of a log in their order, their damaged ranges, and an index by time.

use std::sync::Arc;

use super::block::Block;
use crate::sync::Mutex;

/// The blocks and the damaged ranges of a log.
#[derive(Default)]
pub(crate) struct Directory {
    /// Blocks in order; each starts where the one before ends, unless what is between them is damaged.
    pub(crate) blocks: Vec<Arc<Block>>,
    /// Damaged ranges, in order.
    pub(crate) fences: Vec<(u64, u64)>,
    times: TimeIndex,
}

/// An index of the first blocks of a log, as many as were closed at the last search: for each the greatest timestamp
/// in it and all before it, which never falls and so can be searched. It is dropped when blocks go, and the next
/// search makes it again.
#[derive(Default)]
struct TimeIndex {
    newest: Mutex<Vec<i64>>,
}

impl Directory {
    /// The first block from the one of offset `from` on that may hold a record which is not older.
    pub(super) fn first_not_older(&self, timestamp: i64, from: u64) -> Option<Arc<Block>> {
        let mut newest = self.times.newest.lock();
        while let Some(closed) = self.blocks.get(newest.len()).and_then(|block| block.closed.get()) {
            let before = newest.last().copied().unwrap_or(i64::MIN);
            newest.push(before.max(closed.max_timestamp));
        }
        let older = newest.partition_point(|newest| *newest < timestamp);
        let below = self.blocks.partition_point(|block| block.base_offset <= from).saturating_sub(1);
        let may = |block: &&Arc<Block>| {
            block
                .closed
                .get()
                .is_none_or(|closed| closed.max_timestamp >= timestamp && closed.end_offset > from)
        };
        self.blocks.get(older.max(below)..)?.iter().find(may).cloned()
    }

    /// Says that blocks went, or were put in the place of others: the index by time is made again by the next search.
    pub(crate) fn forget_times(&mut self) {
        self.times = TimeIndex::default();
    }
}
