//! The repair of rotted batches: their bytes are written again, in their place.

use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::block::Block;
use super::state::LogState;
use crate::batch::{Batch, OFFSETS_END};
use crate::disk::{AlignedPage, write_all};
use crate::error::Result;
use crate::format::footer::data_max;
use crate::log::scan::Window;
use crate::page::{PAGE_BYTES, page_up};

impl LogState {
    /// Writes damaged batches again, as [`crate::Log::mend`] says.
    pub(crate) fn mend(&self, offset: u64, batches: &[u8]) -> Result<bool> {
        let _changing = self.changing.lock();
        let Some(end) = self.check_batches(offset, batches)? else { return Ok(false) };
        let found = {
            let directory = self.directory.read();
            let after = directory.blocks.partition_point(|block| block.base_offset <= offset);
            after.checked_sub(1).map(|index| directory.blocks[index].clone())
        };
        // A block that takes appends is not written to from elsewhere.
        let Some(block) = found.filter(|block| block.is_written()) else { return Ok(false) };
        // What the disk has is in question, and memory may have it whole.
        *block.recent.write() = None;
        let failed = |e| block.slots.file.error("mend", e);
        let place = self.place_of(&block, offset..end, batches.len() as u64).map_err(failed)?;
        let Some(position) = place.filter(|_| block.is_still_there()) else { return Ok(false) };
        let Some(stored) = as_stored(&block, position, batches)? else { return Ok(false) };

        let first_page = position - position % PAGE_BYTES;
        let last_page = page_up(position + batches.len() as u64).min(block.bytes);
        let mut whole = Vec::new();
        let length = (last_page - first_page) as usize;
        block.file().read(block.start + first_page, length, &mut whole).map_err(failed)?;
        let from = (position - first_page) as usize;
        whole[from..from + stored.len()].copy_from_slice(&stored);
        let pages: Vec<AlignedPage> = whole.chunks(PAGE_BYTES as usize).map(AlignedPage::padded).collect();
        let parts: Vec<&[u8]> = pages.iter().map(|page| &**page).collect();
        write_all(block.file(), block.start + first_page, &parts, false).map_err(failed)?;
        block.file().sync().map_err(failed)?;
        block.readable.fetch_max(position + batches.len() as u64, Ordering::AcqRel);
        self.unfence(offset, end);
        tracing::info!(log = %self.id, start = offset, end, "damaged batches were written again");
        Ok(true)
    }

    /// The position in a block at which batches of these offsets belong, if so many bytes fit there exactly: behind
    /// the good batch before them or in front of the good one behind them, and over neither.
    fn place_of(&self, block: &Block, offsets: Range<u64>, bytes: u64) -> io::Result<Option<u64>> {
        let Some(closed) = block.closed.get() else { return Ok(None) };
        if offsets.end > closed.end_offset {
            return Ok(None);
        }
        let entry = block.entry_for(offsets.start, &self.resources.indexes)?;
        let (mut next, mut position) =
            entry.map_or((block.base_offset, PAGE_BYTES), |entry| (entry.offset, u64::from(entry.position)));
        let data_end = data_max(block.bytes);
        let mut window = Window::new(block, data_end);
        loop {
            while next < offsets.start
                && let Some(stored) = window.batch(position, next)?
            {
                next = stored.batch.end_offset();
                position += stored.batch.bytes().len() as u64;
            }
            if window.batch(position, next)?.is_some() {
                return Ok(None); // a good batch is not written over
            }
            // Damage starts here and goes up to the next good batch or to the end of the block.
            let behind = window.next_batch(position, next + 1..closed.end_offset)?;
            let (limit, damaged_to) = behind.unwrap_or((data_end, closed.end_offset));
            if offsets.start >= damaged_to && behind.is_some() {
                (position, next) = (limit, damaged_to);
                continue;
            }
            let fits = position + bytes <= limit && offsets.end <= damaged_to;
            let is_first = next == offsets.start;
            let is_last = offsets.end == damaged_to && behind.is_some();
            return Ok(match (is_first, is_last) {
                // The batches fill the gap between two good ones, where there is neither too little room nor too much.
                (true, true) => (position + bytes == limit).then_some(position),
                (true, false) => fits.then_some(position),
                (false, true) => (fits && offsets.start > next).then(|| limit - bytes),
                (false, false) => None,
            });
        }
    }

    /// Takes these offsets out of the damaged ranges.
    fn unfence(&self, offset: u64, end: u64) {
        let mut directory = self.directory.write();
        let fences = std::mem::take(&mut directory.fences).into_iter();
        directory.fences = fences
            .flat_map(|(start, fence_end)| {
                let parts = [(start, fence_end.min(offset)), (start.max(end), fence_end)];
                parts.into_iter().filter(|(start, end)| start < end)
            })
            .collect();
    }

    /// The offset behind the batches; `None` if they are not whole batches one behind the other from `offset` on.
    fn check_batches(&self, offset: u64, batches: &[u8]) -> Result<Option<u64>> {
        let (mut next, mut rest) = (offset, batches);
        while !rest.is_empty() {
            let (batch, behind) = Batch::parse(rest)?;
            if batch.base_offset() != next {
                return Ok(None);
            }
            next = batch.end_offset();
            rest = behind;
        }
        Ok((next > offset).then_some(next))
    }
}

/// The batches with the marks of a position in the block; `None` if their epochs are not the block's.
fn as_stored(block: &Block, position: u64, batches: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut stored = Vec::with_capacity(batches.len());
    let mut rest = batches;
    while !rest.is_empty() {
        let (batch, behind) = Batch::parse(rest)?;
        let (header, offset) = (batch.header(), batch.base_offset());
        if header.leader_epoch.cast_unsigned() != block.epochs.at(offset).0 {
            return Ok(None);
        }
        // Nobody knows whether the batch began a commit, and below the synced mark that says nothing.
        let mark = block.key.mark(position + stored.len() as u64, offset, header, false);
        stored.extend_from_slice(&batch.front_with(offset, mark));
        stored.extend_from_slice(&batch.bytes()[OFFSETS_END..]);
        rest = behind;
    }
    Ok(Some(stored))
}
