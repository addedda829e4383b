//! The state of a log that is being assembled, and the questions that each step asks of its blocks.

use std::sync::Arc;

use super::lost::write_lost_if_room;
use super::report::{CorruptedRange, TornTail};
use super::slots::FoundBlock;
use crate::digest::Digest;
use crate::disk::Prepare;
use crate::error::Result;
use crate::format::footer::data_max;
use crate::log::block::{Block, ClosedBlock};
use crate::log::directory::Directory;
use crate::log::open_block::Resume;
use crate::log::queues::Queues;
use crate::log::scan::{BatchesBehind, Window};
use crate::page::PAGE_BYTES;
use crate::producers::ProducerTable;
use crate::resources::Resources;
use crate::resources::blocks::{BlockFile, Slots};
use crate::resources::journal::LogEntry;
use crate::resources::space::Space;
use crate::seeded;
use crate::types::{FsyncSchedule, LogId, Offset};

/// One log that is being assembled.
pub(super) struct Rebuild<'a> {
    pub(super) resources: &'a Arc<Resources>,
    pub(super) queues: &'a Arc<Queues>,
    pub(super) id: LogId,
    pub(super) entry: &'a LogEntry,
    pub(super) fsync: FsyncSchedule,
    /// Whether trims prove that what they trimmed was synced, because only synced records could be read.
    pub(super) trims_are_synced: bool,
    /// Whether truncations prove that what they left was synced.
    pub(super) cuts_are_synced: bool,
    /// Whether everything that the log had is there, as far as its schedule tells.
    pub(super) is_vouched_for: bool,
    /// Whether the store was closed in order with all of the log on the disk, so that only zeros follow its data.
    pub(super) is_complete: bool,
    /// Offsets below were durable, as a commit behind them proves.
    pub(super) proven: u64,
    pub(super) findings: Findings,
}

/// Facts that were found while the log was assembled.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) torn_tails: Vec<TornTail>,
    pub(super) corrupted: Vec<CorruptedRange>,
    /// Slots of dead blocks that hold another block's data.
    pub(super) foreign: Vec<Slots>,
    /// Damaged footers that are written again, by file and slot.
    pub(super) made_again: Vec<String>,
    /// Files with data of the log that may be in the page cache only.
    pub(super) unsynced: Vec<Arc<BlockFile>>,
}

/// The log so far, block by block.
pub(super) struct Chain {
    pub(super) directory: Directory,
    pub(super) end: u64,
    pub(super) producers: ProducerTable,
    pub(super) digest: Digest,
    pub(super) size_bytes: u64,
    pub(super) resume: Option<Resume>,
    pub(super) is_torn: bool,
    /// Whether bytes behind the log's end were moved aside, or lie there still.
    pub(super) is_cut: bool,
}

impl Chain {
    /// Closes the block in which the log would have gone on: it is not the last one after all.
    pub(super) fn close_resume(&mut self) {
        if let Some(Resume { block, data_end, max_timestamp, digest, .. }) = self.resume.take() {
            let _ = block.closed.set(ClosedBlock { end_offset: self.end, max_timestamp, data_end, digest });
        }
    }
}

impl Rebuild<'_> {
    /// Offsets below were promised.
    pub(super) fn known(&self) -> u64 {
        if seeded!(CutInsteadOfFence) {
            return self.entry.start;
        }
        let sealed = self.entry.sealed.as_ref().map_or(0, |sealed| sealed.end);
        let trimmed = if self.trims_are_synced { self.entry.start } else { 0 };
        // A truncation syncs what it leaves before it cuts.
        let cut = self.entry.truncations.iter().map(|(end, _)| *end).max().filter(|_| self.cuts_are_synced);
        self.entry.synced.max(sealed).max(trimmed).max(cut.unwrap_or(0)).max(self.proven)
    }

    /// Offset at which the log was sealed; the greatest number if it was not.
    pub(super) fn sealed_end(&self) -> u64 {
        self.entry.sealed.as_ref().map_or(u64::MAX, |sealed| sealed.end)
    }

    /// Offset at which a later truncation has cut the block of a sequence.
    pub(super) fn cap(&self, sequence: u64) -> u64 {
        let caps =
            self.entry.truncations.iter().filter(|(_, before)| sequence < *before).map(|(end, _)| *end);
        caps.min().unwrap_or(u64::MAX)
    }

    /// Looks in the blocks behind a torn place for a batch that begins a commit. If there is one, everything in front
    /// of it was durable, and bad bytes there are damage and no torn tail; returns whether there is one.
    pub(super) fn find_proof(&mut self, later: &[FoundBlock]) -> Result<bool> {
        for found in later.iter().rev() {
            let behind = self.behind(&self.block(found), PAGE_BYTES - 1, found.header.base_offset)?;
            if self.note_proof(behind) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn note_proof(&mut self, behind: BatchesBehind) -> bool {
        // Recovery walks a block again after each proof, so the mistake that ignores what is proven must find no proof.
        let told = behind.durable_to.filter(|_| !seeded!(CutInsteadOfFence));
        let proof = told.filter(|to| *to > self.known() && !seeded!(CommitsProveNothing));
        self.proven = proof.unwrap_or(self.proven);
        proof.is_some()
    }

    /// Finds the batches of the log in a block behind a position, of this offset or later ones.
    pub(super) fn behind(&self, block: &Block, position: u64, offset: u64) -> Result<BatchesBehind> {
        let mut window = Window::new(block, data_max(block.bytes));
        let behind = window.behind(position, offset..self.cap(block.sequence));
        behind.map_err(|e| block.slots.file.error("read", e))
    }

    /// Moves the bytes of a block behind the torn place aside, and frees its slots.
    pub(super) fn take_away(&mut self, chain: &mut Chain, found: &FoundBlock) -> Result<()> {
        let block = self.block(found);
        let batches = self.behind(&block, PAGE_BYTES - 1, found.header.base_offset)?.batches;
        let known = self.findings.torn_tails.len();
        self.set_aside(chain.end, &block, PAGE_BYTES, batches)?;
        if self.findings.torn_tails[known..].iter().any(|tail| tail.moved_to.is_none()) {
            self.resources.blocks.keep(&found.slots);
        } else {
            self.resources.blocks.free(&found.slots);
        }
        chain.is_cut = true;
        Ok(())
    }

    pub(super) fn block(&self, found: &FoundBlock) -> Block {
        let FoundBlock { header, slots, .. } = found;
        let file = Arc::clone(&slots.file.file);
        let how = Prepare::fitting(slots.file.name.tails, self.fsync.syncs());
        let space = Space::new(file, slots.range(), 0, how);
        Block::new(slots.clone(), Arc::new(space), header)
    }

    /// Copies the bytes behind a position to a file of their own, if they are more than the rest of a footer; returns
    /// whether anything lies there at all.
    pub(super) fn set_aside(&mut self, offset: u64, block: &Block, from: u64, batches: u64) -> Result<bool> {
        let failed = |e| block.slots.file.error("read", e);
        let ranges =
            block.file().data_ranges(block.start + from..block.start + block.bytes).map_err(failed)?;
        let footer_start = block.footer_start().map_err(failed)?.max(from);
        let (mut end, mut is_torn) = (from, false);
        for range in ranges {
            let mut bytes = Vec::new();
            block.file().read(range.start, (range.end - range.start) as usize, &mut bytes).map_err(failed)?;
            let at = range.start - block.start;
            if let Some(last) = bytes.iter().rposition(|&byte| byte != 0) {
                end = at + last as u64 + 1;
            }
            let data = footer_start.saturating_sub(at).min(bytes.len() as u64) as usize;
            is_torn |= bytes[..data].iter().any(|&byte| byte != 0);
        }
        if is_torn {
            let mut bytes = Vec::new();
            block.file().read(block.start + from, (end - from) as usize, &mut bytes).map_err(failed)?;
            let what = format!("{}-{offset}-{}", self.id, block.sequence);
            let moved_to = write_lost_if_room(&*self.resources.disk, &what, &bytes)?;
            tracing::warn!(log = %self.id, offset, bytes = end - from, batches, ?moved_to, "a torn tail was cut");
            let bytes = end - from;
            let tail = TornTail { log: self.id, offset: Offset(offset), bytes, batches, moved_to };
            self.findings.torn_tails.push(tail);
        }
        Ok(end > from)
    }
}
