//! The floor of a log as it stands now, and the requests to the background to apply its retention.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::block::Block;
use super::floor::{BlockStanding, Floor, Standing, floor};
use super::state::LogState;
use crate::page::PAGE_BYTES;

impl LogState {
    /// Decides the floor of the log from what it holds now, at the time `now_ms` in milliseconds since the Unix epoch.
    pub(crate) fn floor(&self, now_ms: i64) -> Floor {
        let rules = self.retention.rules.lock();
        let mut holds: Vec<_> = rules.holds.values().cloned().collect();
        let start = self.start.load(Ordering::Acquire);
        let place = |name: &String| self.cursor_place(name).unwrap_or(start);
        let consumers: Vec<u64> = rules.retention.consumed_by.iter().map(place).collect();
        holds.extend(rules.retention.pinned_by.iter().map(|name| (name.clone(), place(name))));
        let closed = |block: &Arc<Block>| {
            let closed = block.closed.get()?;
            let bytes = closed.data_end - PAGE_BYTES;
            Some(BlockStanding { end: closed.end_offset, max_timestamp: closed.max_timestamp, bytes })
        };
        let blocks: Vec<_> = self.directory.read().blocks.iter().map_while(closed).collect();
        let standing = Standing {
            start,
            end: self.readable.load(Ordering::Acquire),
            now_ms,
            blocks: &blocks,
            size_bytes: self.size_bytes.load(Ordering::Relaxed),
            trim: rules.trim,
            consumers: &consumers,
            holds: &holds,
        };
        floor(&rules.retention, &standing)
    }

    /// Asks the background to apply the log's retention, if that was not asked already.
    pub(crate) fn ask_retention(&self) {
        if !self.retention.is_asked.swap(true, Ordering::AcqRel) {
            self.queues.chores.apply_retention(self.id);
        }
    }

    /// Asks for retention when a block was filled, if the log has rules: it may be one block too many.
    pub(crate) fn ask_retention_if_ruled(&self) {
        if self.retention.has_rules.load(Ordering::Relaxed) {
            self.ask_retention();
        }
    }

    /// Notes that a cursor has moved to `next`: where the rules count consumption, blocks before it may go.
    pub(crate) fn note_consumed(&self, next: u64) {
        if self.retention.is_consumed.load(Ordering::Relaxed) && self.frees_blocks(next) {
            self.ask_retention();
        }
    }

    /// Whether a log that began at `start` would have a block less.
    pub(crate) fn frees_blocks(&self, start: u64) -> bool {
        let directory = self.directory.read();
        let first = directory.blocks.first().and_then(|block| block.closed.get());
        first.is_some_and(|closed| closed.end_offset <= start)
    }
}
