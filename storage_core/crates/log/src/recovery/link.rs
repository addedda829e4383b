//! The step that adds the next block to a log: a footer that lies below the synced mark is trusted, and without one
//! the batches are walked to their end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::rebuild::{Chain, Rebuild};
use super::slots::FoundBlock;
use crate::error::Result;
use crate::format::block_header::BlockHeader;
use crate::format::footer::{Footer, data_max};
use crate::log::block::{Block, BlockIndex, ClosedBlock};
use crate::log::open_block::Resume;
use crate::log::scan::{BatchesBehind, Bounds, Walk, Window, walk};
use crate::page::{PAGE_BYTES, page_up};
use crate::producers::{ProducerChanges, ProducerTable};
use crate::seeded;

/// How many bytes are read at a time where zeros are expected.
const PIECE_BYTES: usize = 256 << 10;

/// A block that is added to the chain, and the facts about it that are known before its batches are walked.
struct Link<'a> {
    block: Block,
    /// Data of its first page, if that was read already.
    first: Option<&'a [u8]>,
    /// Blocks of the log behind this one.
    later: &'a [FoundBlock],
    /// Base offset of the first of them.
    next_base: Option<u64>,
    /// Limit of the block's offsets: from here on they belong to another block, were cut off, or lie behind the seal.
    limit: u64,
    is_compacted: bool,
    /// Whether the log ends in the block and the first page holds all of it.
    is_known: bool,
    /// Footer of the block, if it has a valid one that fits its header.
    footer: Option<Footer>,
    is_footer_damaged: bool,
}

/// The way in which a walked block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockEnd {
    /// The block takes no more batches: the log went on elsewhere, or may not be appended to.
    Closed,
    /// The log ends in the block, and may go on in it.
    GoesOn,
    /// The batches end before the next block begins, and nothing behind them counts.
    Torn,
}

impl Rebuild<'_> {
    /// Adds the next block to the log, or finds that the log is torn before it or in it.
    pub(super) fn add(&mut self, chain: &mut Chain, found: &FoundBlock, later: &[FoundBlock]) -> Result<()> {
        let base_offset = found.header.base_offset;
        if base_offset > chain.end {
            if chain.end >= self.known()
                && !self.find_proof(later)?
                && !self.find_proof(std::slice::from_ref(found))?
            {
                // A block that was not synced is missing in between.
                chain.is_torn = true;
                return self.take_away(chain, found);
            }
            chain.directory.fences.push((chain.end, base_offset));
        }
        chain.close_resume();
        let link = self.link(found, later)?;
        match self.trusted_footer(&link) {
            Some((closed, producers)) => {
                read_closed(chain, link.block, closed, producers);
                Ok(())
            }
            None => self.scan_open(chain, link),
        }
    }

    fn link<'a>(&self, found: &'a FoundBlock, later: &'a [FoundBlock]) -> Result<Link<'a>> {
        let next_base = later.first().map(|next| next.header.base_offset);
        let limit = self.cap(found.header.sequence).min(next_base.unwrap_or(u64::MAX)).min(self.sealed_end());
        let block = self.block(found);
        let failed = |e| block.slots.file.error("read", e);
        // The last block of a log that goes on has a footer only if it closed with its batch group or was compacted;
        // so of a short block the first page is enough.
        let is_compacted = found.header.replaces_to > 0;
        let is_single = found.header.group.0.is_nil() && !is_compacted;
        let is_open = next_base.is_none() && limit == u64::MAX && is_single;
        let is_known = self.is_complete && is_open && found.first.is_some();
        let footer = if is_known { None } else { block.read_footer().map_err(failed)? };
        let footer = footer.filter(|footer| is_of(footer, &found.header, &block));
        let is_footer_damaged = footer.is_none() && !is_known && block.had_footer().map_err(failed)?;
        let first = found.first.as_deref();
        Ok(Link { block, first, later, next_base, limit, is_compacted, is_known, footer, is_footer_damaged })
    }

    /// Gives the totals and producers that a footer holds, if it covers the whole block and everything in it was
    /// synced. A footer proves nothing about what was not synced.
    fn trusted_footer(&self, link: &Link<'_>) -> Option<(ClosedBlock, ProducerTable)> {
        let footer = link.footer.as_ref()?;
        let &Footer { end_offset, max_timestamp, data_end, digest, .. } = footer;
        let is_trusted = (end_offset <= self.entry.synced || seeded!(StaleIndexTrusted))
            && end_offset <= link.limit
            && link.next_base.is_none_or(|next| next == end_offset);
        // The footer's producers count only together with the rest of it.
        let first = self.entry.producers.clone().unwrap_or_default();
        let producers = footer.producers.as_deref().filter(|_| is_trusted);
        let producers = producers.and_then(|changes| first.with_changes(changes))?;
        Some((ClosedBlock { end_offset, max_timestamp, data_end, digest }, producers))
    }

    /// Adds a block by walking its batches.
    fn scan_open(&mut self, chain: &mut Chain, link: Link<'_>) -> Result<()> {
        let (walked, behind) = self.walk_link(chain, &link)?;
        self.note_unsynced(&link.block, walked.end_offset);
        let end = link.end(&walked);
        let Walk { entries, end_offset, data_end, max_timestamp, digest, fences } = walked;
        let Link { block, next_base, limit, is_known, is_footer_damaged, .. } = link;
        chain.directory.fences.extend(fences);
        chain.digest = chain.digest.concat(digest);
        chain.end = end_offset;
        chain.size_bytes += data_end - PAGE_BYTES;
        let block = Arc::new(block);
        block.readable.store(data_end, Ordering::Release);
        *block.index.write() = BlockIndex::Loaded(Arc::new(entries));
        chain.directory.blocks.push(Arc::clone(&block));
        let has_rest = end != BlockEnd::Closed
            && !is_known
            && self.set_aside(end_offset, &block, data_end, behind.batches)?;
        chain.is_torn = end == BlockEnd::Torn;
        chain.is_cut |= has_rest || chain.is_torn;
        if end == BlockEnd::GoesOn && !has_rest {
            chain.resume = Some(Resume { block, data_end, max_timestamp, digest });
            return Ok(());
        }
        let _ = block.closed.set(ClosedBlock { end_offset, max_timestamp, data_end, digest });
        if limit == next_base.unwrap_or(self.sealed_end()) {
            if is_footer_damaged {
                self.note_footer(&block);
            }
            let since = self.entry.producers.clone().unwrap_or_default();
            let producers = ProducerChanges { since, now: chain.producers.clone() };
            self.queues.chores.write_footer(block, Some(producers));
        }
        Ok(())
    }

    /// Walks the batches of a block and looks for batches behind their end. If a commit behind a bad place proves that
    /// what lies before it was durable, the block is walked again, over the damage.
    fn walk_link(&mut self, chain: &mut Chain, link: &Link<'_>) -> Result<(Walk, BatchesBehind)> {
        let block = &link.block;
        let producers = chain.producers.clone();
        loop {
            let known = self.known().min(link.limit);
            let bounds = Bounds { base_offset: block.base_offset, known, limit: link.limit };
            let mut window = Window::new(block, data_max(block.bytes));
            if let Some(first) = link.first {
                window.load_page(PAGE_BYTES, first.to_vec());
            }
            let walked = walk(&mut window, bounds, |batch| {
                if let Some(producer) = batch.producer() {
                    chain.producers.record(producer, batch.record_count(), batch.base_offset());
                }
            });
            let walked = walked.map_err(|e| block.slots.file.error("read", e))?;
            let is_whole = walked.end_offset >= link.limit && link.next_base.is_some();
            if link.is_known || is_whole || link.is_compacted || walked.ends_damaged() {
                return Ok((walked, BatchesBehind::default()));
            }
            let behind = if self.is_zero_behind(block, walked.data_end)? {
                BatchesBehind::default()
            } else {
                self.behind(block, walked.data_end - 1, walked.end_offset + 1)?
            };
            let is_proven =
                self.note_proof(behind) || (link.next_base.is_some() && self.find_proof(link.later)?);
            if !is_proven {
                return Ok((walked, behind));
            }
            chain.producers = producers.clone();
        }
    }

    /// Notes the block's file if the block holds bytes that may be in the page cache only.
    fn note_unsynced(&mut self, block: &Block, end_offset: u64) {
        let file = &block.slots.file;
        if self.fsync.syncs()
            && end_offset > self.entry.synced
            && !self.findings.unsynced.iter().any(|known| known.name == file.name)
        {
            self.findings.unsynced.push(Arc::clone(file));
        }
    }

    /// Notes a damaged footer, which costs nothing but a scan and is written again, for the report.
    fn note_footer(&mut self, block: &Block) {
        let (path, slot) = (&block.slots.file.path, block.slots.first);
        tracing::warn!(
            log = %self.id,
            path,
            slot,
            "the footer of a block was damaged: the block was scanned, and it is written again"
        );
        let name = path.rsplit('/').next().unwrap_or(path);
        self.findings.made_again.push(format!("{name}: footer of slot {slot}"));
    }

    /// Whether only zeros lie behind a position of a block.
    fn is_zero_behind(&self, block: &Block, from: u64) -> Result<bool> {
        let failed = |e| block.slots.file.error("read", e);
        let range = block.start + from..block.start + data_max(block.bytes);
        let mut bytes = Vec::new();
        for range in block.file().data_ranges(range).map_err(failed)? {
            for at in range.clone().step_by(PIECE_BYTES) {
                bytes.clear();
                let length = (range.end - at).min(PIECE_BYTES as u64) as usize;
                block.file().read(at, length, &mut bytes).map_err(failed)?;
                if bytes.iter().any(|&byte| byte != 0) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

impl Link<'_> {
    /// Decides from the end of its batches how the block ends.
    fn end(&self, walked: &Walk) -> BlockEnd {
        let was_closed = self.footer.as_ref().is_some_and(|footer| {
            footer.end_offset == walked.end_offset && footer.data_end == walked.data_end
        });
        if walked.ends_damaged() || was_closed && self.next_base.is_none() {
            return BlockEnd::Closed;
        }
        match self.next_base {
            Some(_) if walked.end_offset < self.limit => BlockEnd::Torn,
            None if self.limit == u64::MAX && !self.is_compacted => BlockEnd::GoesOn,
            _ => BlockEnd::Closed,
        }
    }
}

/// Adds a block that its footer describes.
fn read_closed(chain: &mut Chain, block: Block, closed: ClosedBlock, producers: ProducerTable) {
    chain.producers = producers;
    chain.digest = chain.digest.concat(closed.digest);
    chain.end = closed.end_offset;
    chain.size_bytes += closed.data_end - PAGE_BYTES;
    block.readable.store(closed.data_end, Ordering::Release);
    let _ = block.closed.set(closed);
    *block.index.write() = BlockIndex::OnDisk;
    chain.directory.blocks.push(Arc::new(block));
}

/// Whether a footer belongs to the block and its totals are possible there.
fn is_of(footer: &Footer, header: &BlockHeader, block: &Block) -> bool {
    footer.base_offset == header.base_offset
        && footer.end_offset >= footer.base_offset
        && (PAGE_BYTES..=page_up(data_max(block.bytes))).contains(&footer.data_end)
        && footer.entries.iter().all(|entry| u64::from(entry.position) < footer.data_end)
}
