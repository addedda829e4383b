//! What is known of a log that is put together, and what each step of it asks of its blocks.

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
use crate::log::producers::ProducerTable;
use crate::log::queues::Queues;
use crate::log::scan::{BatchesBehind, Window};
use crate::options::FsyncSchedule;
use crate::page::PAGE_BYTES;
use crate::resources::Resources;
use crate::resources::blocks::{BlockFile, Slots};
use crate::resources::journal::LogEntry;
use crate::resources::space::Space;
use crate::seeded;
use crate::types::{LogId, Offset};

/// One log being put together.
pub(super) struct Rebuild<'a> {
    pub(super) resources: &'a Arc<Resources>,
    pub(super) queues: &'a Arc<Queues>,
    pub(super) id: LogId,
    pub(super) entry: &'a LogEntry,
    pub(super) fsync: FsyncSchedule,
    /// Only what was synced could be read, and so trimmed.
    pub(super) trims_are_synced: bool,
    /// What a truncation left was synced.
    pub(super) cuts_are_synced: bool,
    /// All that it had is there, as far as its schedule tells.
    pub(super) is_vouched_for: bool,
    /// The store was closed in order with all of it on the disk: it ends with its data, and zeros follow.
    pub(super) is_complete: bool,
    /// Offsets below were durable, as a commit behind them proves.
    pub(super) proven: u64,
    pub(super) findings: Findings,
}

/// What was found on the way.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) torn_tails: Vec<TornTail>,
    pub(super) corrupted: Vec<CorruptedRange>,
    /// Slots of dead blocks whose data is not their own.
    pub(super) foreign: Vec<Slots>,
    /// Footers that were damaged, by file and slot: they are written again.
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
    /// Something behind its end was taken away, or lies there still.
    pub(super) is_cut: bool,
}

impl Chain {
    /// The block that would have been gone on in is not the last after all.
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
        // Before it cuts, a truncation syncs what stays.
        let cut = self.entry.truncations.iter().map(|(end, _)| *end).max().filter(|_| self.cuts_are_synced);
        self.entry.synced.max(sealed).max(trimmed).max(cut.unwrap_or(0)).max(self.proven)
    }

    /// Where the log was sealed.
    pub(super) fn sealed_end(&self) -> u64 {
        self.entry.sealed.as_ref().map_or(u64::MAX, |sealed| sealed.end)
    }

    /// Where the block was cut by a later truncation.
    pub(super) fn cap(&self, sequence: u64) -> u64 {
        let caps =
            self.entry.truncations.iter().filter(|(_, before)| sequence < *before).map(|(end, _)| *end);
        caps.min().unwrap_or(u64::MAX)
    }

    /// Looks for a commit that begins in the blocks behind a place where the log is torn: what is in front of it was durable, so
    /// what is bad there is damage, and no tail. Whether there is one.
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
        let proof = behind.durable_to.filter(|to| *to > self.known() && !seeded!(CommitsProveNothing));
        self.proven = proof.unwrap_or(self.proven);
        proof.is_some()
    }

    /// What of the log a block holds behind a position, of that offset or a later one.
    pub(super) fn behind(&self, block: &Block, position: u64, offset: u64) -> Result<BatchesBehind> {
        let mut window = Window::new(block, data_max(block.bytes));
        let behind = window.behind(position, offset..self.cap(block.sequence));
        behind.map_err(|e| block.slots.file.error("read", e))
    }

    /// Moves what a block behind the torn place holds aside, and frees its slots.
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
        let space = Space::new(file, slots.range(), 0, Prepare::fitting(self.fsync));
        Block::new(slots.clone(), Arc::new(space), header)
    }

    /// Copies what lies behind a position, if anything but the rest of a footer does, to a file of its own; whether anything
    /// lies there at all.
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
