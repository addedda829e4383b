//! The search of offsets by time: first over the blocks, then over the index of a block, then over a few batches.

use std::sync::atomic::Ordering;

use super::reader::SLACK_BYTES;
use super::state::LogState;
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::types::Offset;

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

    /// Finds the first readable offset whose record's timestamp is not lower; `None` if there is none.
    pub(crate) fn find_by_timestamp(&self, timestamp: i64) -> Result<Option<Offset>> {
        let start = self.start.load(Ordering::Acquire);
        let mut from = start;
        loop {
            let Some(block) = self.directory.read().first_not_older(timestamp, from) else {
                return Ok(None);
            };
            let failed = |e| block.slots.file.error("read", e);
            let entry = block.entry_for_timestamp(timestamp, &self.resources.indexes).map_err(failed)?;
            let mut offset = entry.map_or(block.base_offset, |entry| entry.offset).max(start);
            let end = block.closed.get().map_or(u64::MAX, |closed| closed.end_offset);
            while offset < end {
                let slices = match self.read(offset, SLACK_BYTES as usize) {
                    Ok(slices) if slices.batches.is_empty() => return Ok(None),
                    Ok(slices) => slices,
                    // Damaged batches have no time, so the search skips them.
                    Err(Error::Corrupted { end, .. }) => {
                        offset = end.0;
                        continue;
                    }
                    Err(Error::OffsetOutOfRange { .. }) => return Ok(None),
                    Err(error) => return Err(error),
                };
                for bytes in &slices.batches {
                    let (batch, _) = Batch::parse(bytes)?;
                    if let Some(found) = first_at(&batch, timestamp, start) {
                        return Ok(Some(Offset(found)));
                    }
                }
                offset = slices.next_offset.0;
            }
            from = end;
        }
    }
}

/// The first record of a batch from `start` on that is not older. A compressed batch that cannot be opened answers
/// with its first offset.
fn first_at(batch: &Batch<'_>, timestamp: i64, start: u64) -> Option<u64> {
    if batch.max_timestamp() < timestamp {
        return None;
    }
    let Ok(opened) = batch.open() else { return Some(batch.base_offset().max(start)) };
    let records = batch.header().records_in(&opened).map_while(Result::ok);
    let mut not_older = records.filter(|record| record.timestamp_ms >= timestamp && record.offset >= start);
    not_older.next().map(|record| record.offset)
}
