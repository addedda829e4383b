//! Putting right what rotted: the bytes of damaged batches of a sealed log are written again, in their place.

use std::sync::atomic::Ordering;

use super::state::LogState;
use crate::batch::Batch;
use crate::disk::{AlignedPage, write_all};
use crate::error::Result;
use crate::format::{PAGE_BYTES, page_up};

impl LogState {
    /// See [`crate::Log::mend`].
    pub(crate) fn mend(&self, offset: u64, batches: &[u8]) -> Result<bool> {
        let _changing = self.changing.lock();
        let Some(end) = self.check_batches(offset, batches)?.filter(|_| self.sealed.get().is_some()) else {
            return Ok(false);
        };
        let found = {
            let directory = self.directory.read();
            let after = directory.blocks.partition_point(|block| block.base_offset <= offset);
            after.checked_sub(1).map(|index| directory.blocks[index].clone())
        };
        let Some(block) = found else { return Ok(false) };
        let failed = |e| block.slots.file.error("mend", e);
        let data_end = block.readable.load(Ordering::Acquire);

        // Where they belong: behind the good batches before them.
        let entry = block.entry_for(offset, &self.engine.indexes).map_err(failed)?;
        let (mut next, mut position) =
            entry.map_or((block.base_offset, PAGE_BYTES), |entry| (entry.offset, u64::from(entry.position)));
        let mut bytes = Vec::new();
        block.read(position..data_end, &mut bytes).map_err(failed)?;
        let mut at = 0;
        while next < offset {
            match Batch::parse(&bytes[at..]) {
                Ok((batch, _)) if batch.base_offset() == next => {
                    next = batch.end_offset();
                    at += batch.bytes().len();
                }
                _ => return Ok(false), // there is damage before: it must be mended first
            }
        }
        position += at as u64;
        let behind = at + batches.len();
        // And right before what is good behind them, or the end of what the block holds.
        let fits = match bytes.get(behind..) {
            _ if next != offset => false,
            None => false,
            Some([]) => block.closed.get().is_some_and(|closed| closed.end_offset == end),
            Some(rest) => Batch::parse(rest).is_ok_and(|(batch, _)| batch.base_offset() == end),
        };
        if !fits || !block.is_still_there() {
            return Ok(false);
        }

        let first_page = position - position % PAGE_BYTES;
        let last_page = page_up(position + batches.len() as u64).min(block.bytes);
        let mut whole = Vec::new();
        let length = (last_page - first_page) as usize;
        block.file().read(block.start + first_page, length, &mut whole).map_err(failed)?;
        let from = (position - first_page) as usize;
        whole[from..from + batches.len()].copy_from_slice(batches);
        let pages: Vec<AlignedPage> = whole.chunks(PAGE_BYTES as usize).map(AlignedPage::padded).collect();
        let parts: Vec<&[u8]> = pages.iter().map(|page| &**page).collect();
        write_all(block.file(), block.start + first_page, &parts, true).map_err(failed)?;
        block.file().sync().map_err(failed)?;
        self.directory.write().fences.retain(|(start, fence_end)| *fence_end <= offset || *start >= end);
        tracing::info!(log = %self.id, start = offset, end, "damaged batches were written again");
        Ok(true)
    }

    /// The offset behind them, if they are whole batches of this log from the offset on.
    fn check_batches(&self, offset: u64, batches: &[u8]) -> Result<Option<u64>> {
        let (mut next, mut rest) = (offset, batches);
        while !rest.is_empty() {
            let (batch, behind) = Batch::parse(rest)?;
            if batch.base_offset() != next || batch.header().leader_epoch.cast_unsigned() != self.epoch.0 {
                return Ok(None);
            }
            next = batch.end_offset();
            rest = behind;
        }
        Ok((next > offset).then_some(next))
    }
}
