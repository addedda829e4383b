//! What is known of producers at the end of a block: from its footer, or from its batches.

use std::sync::atomic::Ordering;

use super::block::Block;
use super::producers::ProducerTable;
use super::scan::{Bounds, Walked, Window, walk};
use crate::error::Result;
use crate::format::footer::Footer;

/// The table at the end of a closed block, if its footer is there and has it.
pub(crate) fn in_footer(block: &Block) -> Result<Option<ProducerTable>> {
    let footer = block.read_footer().map_err(|e| block.slots.file.error("read", e))?;
    let is_own = |footer: &Footer| block.closed_end() == Some(footer.end_offset);
    Ok(footer.filter(is_own).and_then(|footer| ProducerTable::decode(footer.producers.as_deref()?)))
}

/// Brings the table up to `limit` by what a block holds.
pub(crate) fn walk_to(block: &Block, limit: u64, table: &mut ProducerTable) -> Result<Walked> {
    let bounds = Bounds { base_offset: block.base_offset, known: limit, limit };
    let mut window = Window::new(block, block.readable.load(Ordering::Acquire));
    let walked = walk(&mut window, bounds, |batch| {
        if let Some(producer) = batch.producer() {
            table.record(producer, batch.record_count(), batch.base_offset());
        }
    });
    walked.map_err(|e| block.slots.file.error("read", e))
}
