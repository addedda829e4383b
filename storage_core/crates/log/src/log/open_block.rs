//! The block that takes a log's appends, and the recovered block in which it goes on after a start.

use std::sync::Arc;
use std::time::Instant;

use super::block::Block;
use crate::batch::Batch;
use crate::digest::Digest;
use crate::format::footer::IndexEntry;
use crate::page::PAGE_BYTES;
use crate::producers::ProducerChanges;
use crate::resources::tail::Tail;

/// The block that takes appends.
pub(crate) struct OpenBlock {
    pub(crate) block: Arc<Block>,
    pub(crate) tail: Tail,
    pub(super) opened_at: Instant,
    /// Position below which commits have written everything.
    pub(crate) flushed: u64,
    /// How many commits have written to the block.
    pub(super) commits: u64,
    /// Position at which data ends at the latest, since the footer needs the rest.
    pub(super) data_max: u64,
    /// Position from which the next batch gets an index entry.
    pub(super) index_next: u64,
    pub(super) max_timestamp: i64,
    pub(super) digest: Digest,
    /// The producers at the block's end; set when the log goes on in another block.
    pub(super) producers: Option<ProducerChanges>,
}

/// The end of a recovered block with only zeros behind it. A block with anything else there is not gone on in, so that
/// no position is used twice under one block sequence.
pub(crate) struct Resume {
    pub(crate) block: Arc<Block>,
    pub(crate) data_end: u64,
    pub(crate) max_timestamp: i64,
    pub(crate) digest: Digest,
}

impl OpenBlock {
    /// Adds a batch at a position to the block's index, totals and digest.
    #[inline]
    pub(super) fn note(&mut self, position: u64, base_offset: u64, batch: &Batch<'_>) {
        if position >= self.index_next {
            let entry =
                IndexEntry { offset: base_offset, max_timestamp: i64::MAX, position: position as u32 };
            self.block.push_index(entry, self.max_timestamp);
            self.index_next = position + PAGE_BYTES;
        }
        self.max_timestamp = self.max_timestamp.max(batch.newest());
        self.digest.push(base_offset, batch.record_count(), batch.header().crc);
    }
}
