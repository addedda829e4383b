//! The producer table at the end of a block, read from its footer or computed from its batches.

use std::sync::atomic::Ordering;

use super::block::Block;
use super::scan::{Bounds, Walk, Window, walk};
use crate::error::Result;
use crate::format::footer::Footer;
use crate::producers::ProducerTable;

/// Reads the producer table at the end of a closed block from its footer, which tells it by what has changed since the log's
/// `first` table; `None` if there is no valid footer with producers.
pub(crate) fn in_footer(block: &Block, first: &ProducerTable) -> Result<Option<ProducerTable>> {
    let footer = block.read_footer().map_err(|e| block.slots.file.error("read", e))?;
    let is_own = |footer: &Footer| block.closed_end() == Some(footer.end_offset);
    Ok(footer.filter(is_own).and_then(|footer| first.with_changes(footer.producers.as_deref()?)))
}

/// Adds the batches of a block below `limit` to the producer table.
pub(crate) fn walk_to(block: &Block, limit: u64, table: &mut ProducerTable) -> Result<Walk> {
    let bounds = Bounds { base_offset: block.base_offset, known: limit, limit };
    let mut window = Window::new(block, block.readable.load(Ordering::Acquire));
    let walked = walk(&mut window, bounds, |batch| {
        if let Some(producer) = batch.producer() {
            table.record(producer, batch.record_count(), batch.base_offset());
        }
    });
    walked.map_err(|e| block.slots.file.error("read", e))
}
