//! The search of offsets by time: first over the blocks, then over the index of a block, then over a few batches.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::block::Block;
use super::reader::SLACK_BYTES;
use super::state::LogState;
use crate::batch::{Batch, Record};
use crate::error::{Error, Result};
use crate::types::Offset;

/// About how many bytes are read at a time where the headers of all batches of a block are looked at.
const WALK_BYTES: usize = 64 << 10;

/// A record that a search by time has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOffset {
    /// Offset of the record.
    pub offset: Offset,
    /// Timestamp of the record, milliseconds since the epoch.
    pub timestamp_ms: i64,
}

impl TimedOffset {
    /// Whether no record can be newer whose timestamp is at most `bound` and whose offset is at least `offset`; of two with the
    /// same timestamp the first is the newer one.
    pub fn is_newer_than(&self, bound: i64, offset: u64) -> bool {
        (self.timestamp_ms, Reverse(self.offset.0)) > (bound, Reverse(offset))
    }
}

/// What a search by time has found, and whether it saw everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSearch {
    /// The record; `None` if there is none.
    pub found: Option<TimedOffset>,
    /// Whether damaged batches were skipped on the way: another copy of the log may have a better answer.
    pub has_skipped: bool,
}

impl LogState {
    /// The greatest timestamp in the log's blocks, milliseconds since the epoch; `None` if it has no batch.
    pub(crate) fn newest_timestamp(&self) -> Option<i64> {
        let open = {
            let writer = self.writer.lock();
            let open = writer.pending.iter().chain(&writer.open).map(|open| open.max_timestamp).max();
            open.max(writer.resume.as_ref().map(|resume| resume.max_timestamp))
        };
        let directory = self.directory.read();
        let closed = directory.blocks.iter().filter_map(|block| block.closed.get());
        let newest = closed.map(|closed| closed.max_timestamp).max().max(open)?;
        (newest != i64::MIN).then_some(newest)
    }

    /// Finds the first readable record of some offsets whose timestamp is not lower.
    pub(crate) fn find_by_timestamp(&self, timestamp: i64, within: Range<u64>) -> Result<TimeSearch> {
        let mut search = TimeSearch::default();
        let mut from = within.start.max(self.start.load(Ordering::Acquire));
        while from < within.end {
            let Some(block) = self.directory.read().first_not_older(timestamp, from) else { break };
            let failed = |e| block.slots.file.error("read", e);
            let entry = block.entry_for_timestamp(timestamp, &self.resources.indexes).map_err(failed)?;
            let start = entry.map_or(block.base_offset, |entry| entry.offset).max(from);
            let end = block.closed_end().unwrap_or(u64::MAX);
            let from_here = from..within.end;
            let walk = self.walk(start..end.min(within.end), SLACK_BYTES as usize, |batch| {
                first_at(batch, timestamp, &from_here)
            })?;
            search.has_skipped |= walk.has_skipped;
            search.found = walk.found;
            if search.found.is_some() || walk.is_at_end {
                break;
            }
            from = end;
        }
        Ok(search)
    }

    /// Finds the readable record of some offsets whose timestamp is the greatest; the first of those that have it.
    pub(crate) fn find_newest(&self, within: Range<u64>) -> Result<TimeSearch> {
        let mut search = TimeSearch::default();
        for (bound, block) in self.newest_first(&within) {
            if search.found.is_some_and(|found| found.is_newer_than(bound, block.base_offset)) {
                break;
            }
            let end = block.closed_end().unwrap_or(u64::MAX);
            let range = block.base_offset.max(within.start)..end.min(within.end);
            let mut batches: Vec<(i64, u64)> = Vec::new();
            let walk = self.walk(range, WALK_BYTES, |batch| {
                batches.push((batch.max_timestamp(), batch.base_offset()));
                None
            })?;
            search.has_skipped |= walk.has_skipped;
            // A header has the greatest timestamp of all its records, and some of them may not be among these offsets.
            batches.sort_unstable_by_key(|&(bound, offset)| (Reverse(bound), offset));
            for (bound, offset) in batches {
                if search.found.is_some_and(|found| found.is_newer_than(bound, offset)) {
                    break;
                }
                let from = offset.max(within.start).max(self.start.load(Ordering::Acquire));
                let walk = self.walk(from..from + 1, 0, |batch| newest_in(batch, &within))?;
                search.has_skipped |= walk.has_skipped;
                search.found = newer(search.found, walk.found);
            }
        }
        Ok(search)
    }

    /// The blocks that reach into some offsets, each with a bound on its timestamps; the highest bound first.
    fn newest_first(&self, within: &Range<u64>) -> Vec<(i64, Arc<Block>)> {
        let directory = self.directory.read();
        let reaches = |block: &&Arc<Block>| {
            block.base_offset < within.end && block.closed_end().is_none_or(|end| end > within.start)
        };
        let bound = |block: &Arc<Block>| block.closed.get().map_or(i64::MAX, |closed| closed.max_timestamp);
        let mut blocks: Vec<_> =
            directory.blocks.iter().filter(reaches).map(|block| (bound(block), Arc::clone(block))).collect();
        blocks.sort_by_key(|(bound, block)| (Reverse(*bound), block.base_offset));
        blocks
    }

    /// Shows the readable batches of some offsets, about `bytes` at a time, until `look` finds something.
    fn walk(
        &self,
        mut range: Range<u64>,
        bytes: usize,
        mut look: impl FnMut(&Batch<'_>) -> Option<TimedOffset>,
    ) -> Result<Walk> {
        let mut walk = Walk::default();
        while range.start < range.end {
            let slices = match self.read(range.start, bytes) {
                Ok(slices) => slices,
                // Damaged batches have no time, so the search skips them.
                Err(Error::Corrupted { end, .. }) => {
                    walk.has_skipped = true;
                    range.start = end.0;
                    continue;
                }
                // Records were deleted meanwhile.
                Err(Error::OffsetOutOfRange { start, .. }) if range.start < start.0 => {
                    range.start = start.0;
                    continue;
                }
                Err(Error::OffsetOutOfRange { .. }) => {
                    walk.is_at_end = true;
                    break;
                }
                Err(error) => return Err(error),
            };
            if slices.batches.is_empty() {
                walk.is_at_end = true;
                break;
            }
            for bytes in &slices.batches {
                let (batch, _) = Batch::parse(bytes)?;
                if batch.base_offset() >= range.end {
                    return Ok(walk);
                }
                walk.found = look(&batch);
                if walk.found.is_some() {
                    return Ok(walk);
                }
            }
            range.start = slices.next_offset.0;
        }
        Ok(walk)
    }
}

/// How a look at some batches ended.
#[derive(Default)]
struct Walk {
    found: Option<TimedOffset>,
    has_skipped: bool,
    /// Whether the log has nothing readable behind.
    is_at_end: bool,
}

/// The first record of a batch, among some offsets, that is not older.
fn first_at(batch: &Batch<'_>, timestamp: i64, within: &Range<u64>) -> Option<TimedOffset> {
    if batch.max_timestamp() < timestamp {
        return None;
    }
    fold_records(batch, within, |first, record| {
        first.or_else(|| Some(record).filter(|record| record.timestamp_ms >= timestamp))
    })
}

/// The first of those records of a batch, among some offsets, that have the greatest timestamp.
fn newest_in(batch: &Batch<'_>, within: &Range<u64>) -> Option<TimedOffset> {
    fold_records(batch, within, |best, record| newer(best, Some(record)))
}

/// Folds the records of a batch that are among some offsets. A compressed batch that cannot be opened counts as one record at
/// its first offset, with the batch's greatest timestamp.
fn fold_records(
    batch: &Batch<'_>,
    within: &Range<u64>,
    pick: impl FnMut(Option<TimedOffset>, TimedOffset) -> Option<TimedOffset>,
) -> Option<TimedOffset> {
    let is_within = |found: &TimedOffset| within.contains(&found.offset.0);
    let Ok(opened) = batch.open() else {
        let offset = Offset(batch.base_offset().max(within.start));
        let all = TimedOffset { offset, timestamp_ms: batch.max_timestamp() };
        return std::iter::once(all).filter(is_within).fold(None, pick);
    };
    let records = batch.header().records_in(&opened).map_while(std::result::Result::ok);
    let timed = records.map(|record: Record<'_>| TimedOffset {
        offset: Offset(record.offset),
        timestamp_ms: record.timestamp_ms,
    });
    timed.filter(is_within).fold(None, pick)
}

/// The record with the greater timestamp; of two with the same one the first.
fn newer(one: Option<TimedOffset>, other: Option<TimedOffset>) -> Option<TimedOffset> {
    one.into_iter().chain(other).min_by_key(|found| (Reverse(found.timestamp_ms), found.offset))
}
