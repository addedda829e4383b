//! The truncation that drops the end of a log: the promise goes into the journal first, then memory changes, and space
//! is given back last.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::member::Member;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::format::footer::IndexEntry;
use crate::log::block::{BlockIndex, ClosedBlock};
use crate::log::block_producers;
use crate::log::state::{LogState, TrimmedPrefix, Writer};
use crate::page::PAGE_BYTES;
use crate::producers::ProducerTable;
use crate::resources::journal::Record;
use crate::types::Offset;

impl Member {
    /// Forgets offsets from `end` on.
    pub(super) fn truncate_to(&self, end: u64) -> Result<()> {
        let log = &*self.log;
        self.between_appends(|writer| {
            let start = log.start.load(Ordering::Acquire);
            if end < start || end > writer.end {
                let (requested, start, end) = (Offset(end), Offset(start), Offset(writer.end));
                return Err(Error::OffsetOutOfRange { requested, start, end });
            }
            if end == writer.end {
                return Ok(());
            }
            let cut = cut(log, end)?;
            let before = self.resources().blocks.peek_sequence();
            log.say_or_stop(&Record::LogTruncated { log: log.id, end, before })?;
            apply(log, writer, cut);
            Ok(())
        })
    }
}

/// The parts of a log that remain when it ends earlier.
struct Cut {
    end: u64,
    /// Number of blocks that stay.
    kept: usize,
    /// The last of them, closed at the end, and its index.
    closed: Option<(ClosedBlock, Vec<IndexEntry>)>,
    producers: ProducerTable,
    digest: Digest,
}

/// Computes what remains when the log ends at `end`; changes nothing.
fn cut(log: &LogState, end: u64) -> Result<Cut> {
    let blocks = log.directory.read().blocks.clone();
    let kept = blocks.partition_point(|block| block.base_offset < end);
    let TrimmedPrefix { mut digest, mut producers, .. } = log.trimmed.lock().clone();
    let first = log.first_producers.clone().unwrap_or_default();
    let mut last = None;
    for (index, block) in blocks[..kept].iter().enumerate() {
        // The producers of a whole block come from its footer; without one, from its batches.
        let is_last = index + 1 == kept;
        if let (false, Some(closed)) = (is_last, block.closed.get())
            && let Some(table) = block_producers::in_footer(block, &first)?
        {
            producers = table;
            digest = digest.concat(closed.digest);
            continue;
        }
        let limit = block.closed_end().unwrap_or(end).min(end);
        let walked = block_producers::walk_to(block, limit, &mut producers)?;
        if is_last && walked.fences.last().is_some_and(|(_, fence_end)| *fence_end == end) {
            // The offset lies inside of a batch, or the bytes there are damaged.
            let (start, _) = walked.fences[walked.fences.len() - 1];
            return Err(Error::Corrupted { log: log.id, start: Offset(start), end: Offset(end) });
        }
        digest = digest.concat(walked.digest);
        last = Some(walked);
    }
    let closed = last.filter(|_| kept > 0).map(|walked| {
        let (max_timestamp, data_end, digest) = (walked.max_timestamp, walked.data_end, walked.digest);
        (ClosedBlock { end_offset: end, max_timestamp, data_end, digest }, walked.entries)
    });
    Ok(Cut { end, kept, closed, producers, digest })
}

/// Makes the log in memory what the journal says of it.
fn apply(log: &LogState, writer: &mut Writer, cut: Cut) {
    let Cut { end, kept, closed, producers, digest } = cut;
    log.drop_open(writer);
    (writer.end, writer.taken) = (end, end);
    writer.producers = producers;
    writer.digest = digest;
    log.end.store(end, Ordering::Release);
    log.readable.store(end, Ordering::Release);
    log.synced.fetch_min(end, Ordering::AcqRel);
    log.generation.fetch_add(1, Ordering::AcqRel);
    let mut directory = log.directory.write();
    let freed: Vec<_> = directory.blocks.drain(kept..).collect();
    directory.forget_times();
    directory.fences.retain(|(start, _)| *start < end);
    if let (Some(last), Some((closed, entries))) = (directory.blocks.last_mut(), closed) {
        // The last block keeps its slots as a block that ends earlier; readers of the old one look again.
        let cut = Arc::new(last.cut_to(closed, BlockIndex::Loaded(Arc::new(entries))));
        std::mem::replace(last, cut).freed.store(true, Ordering::Release);
    }
    let closed = directory.blocks.iter().filter_map(|block| block.closed.get());
    let size = closed.map(|closed| closed.data_end - PAGE_BYTES).sum();
    log.size_bytes.store(size, Ordering::Relaxed);
    drop(directory);
    log.free(freed);
}
