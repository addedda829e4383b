//! The check of batch groups after a crash: a group counts only if every part is there. Headers tell which parts
//! exist, checksums tell which are whole.

use super::rebuild::Rebuild;
use super::slots::FoundBlock;
use crate::error::Result;
use crate::format::footer::data_max;
use crate::log::scan::Window;
use crate::page::PAGE_BYTES;
use crate::seeded;

impl Rebuild<'_> {
    /// Finds the first block of the first group that is not whole; it was never promised, and so was nothing behind
    /// it. A group that was promised, or that a later commit proves durable, counts; what it lacks is found like other
    /// damage.
    pub(super) fn torn_group(&mut self, live: &[FoundBlock]) -> Result<Option<usize>> {
        let mut at = 0;
        while at < live.len() {
            let group = live[at].header.group.0;
            let count = live[at..].iter().take_while(|part| part.header.group.0 == group).count();
            let is_promised = live[at].header.base_offset < self.known() || seeded!(GroupKeptInPart);
            if !group.is_nil()
                && !is_promised
                && !self.is_whole(&live[at..at + count])?
                && !self.find_proof(&live[at + count..])?
            {
                return Ok(Some(at));
            }
            at += count;
        }
        Ok(None)
    }

    /// Whether all parts of a group are there. Parts below the log's start, behind a truncation or replaced by a
    /// compaction count as there: only a group that was shown can be trimmed, cut or compacted.
    fn is_whole(&self, parts: &[FoundBlock]) -> Result<bool> {
        let (_, first, count) = parts[0].header.group;
        let is_compacted = |offset| self.entry.compactions.iter().any(|said| said.has(offset));
        let base = parts[0].header.base_offset;
        if first > 0 && base > self.entry.start && !is_compacted(base - 1) {
            return Ok(false);
        }
        let mut next = parts[0].header.base_offset;
        for (number, part) in (first..).zip(parts) {
            let (_, part_number, part_count) = part.header.group;
            let is_next = (part_number, part_count, part.header.base_offset) == (number, count, next);
            let Some(end) = self.batch_end(part)?.filter(|_| is_next) else { return Ok(false) };
            next = end;
        }
        let last = &parts[parts.len() - 1].header;
        Ok(last.group.1 + 1 == count || next >= self.cap(last.sequence) || is_compacted(next))
    }

    /// End of the batch of a part; `None` if the batch is not whole.
    fn batch_end(&self, part: &FoundBlock) -> Result<Option<u64>> {
        let block = self.block(part);
        let mut window = Window::new(&block, data_max(block.bytes));
        let stored = window.batch(PAGE_BYTES, block.base_offset);
        let stored = stored.map_err(|e| part.slots.file.error("read", e))?;
        Ok(stored.map(|stored| stored.batch.end_offset()))
    }
}
