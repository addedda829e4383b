//! One log made of its blocks: footers that lie below the synced mark are believed, tails are scanned.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::lost::write_lost_if_room;
use super::report::{CorruptedRange, TornTail};
use super::slots::Found;
use crate::digest::Digest;
use crate::disk::Prepare;
use crate::error::Result;
use crate::format::block_header::BlockHeader;
use crate::format::footer::data_max;
use crate::log::block::{Block, ClosedBlock};
use crate::log::directory::Directory;
use crate::log::open_block::Resume;
use crate::log::producers::ProducerTable;
use crate::log::queues::Queues;
use crate::log::restore::Contents;
use crate::log::scan::{Behind, Window};
use crate::log::state::LogState;
use crate::options::FsyncSchedule;
use crate::page::PAGE_BYTES;
use crate::resources::Resources;
use crate::resources::blocks::{BlockFile, Slots};
use crate::resources::journal::{Compaction, LogEntry, Record};
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
    pub(super) is_settled: bool,
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
    /// The log, of its blocks in any order.
    pub(super) fn run(mut self, mut found: Vec<Found>) -> Result<(Arc<LogState>, Findings)> {
        let entry = self.entry;
        found.sort_unstable_by_key(|found| (found.header.base_offset, found.header.sequence));
        let live = self.drop_dead(found)?;
        let last_sequence = live.iter().map(|found| found.header.sequence).max().unwrap_or(0);
        let trimmed_producers = entry.trimmed_producers.as_ref().unwrap_or(&entry.producers);
        let mut chain = Chain {
            directory: Directory::default(),
            end: live.first().map_or(entry.start, |first| first.header.base_offset.min(entry.start)),
            producers: ProducerTable::decode(trimmed_producers).unwrap_or_default(),
            digest: entry.trimmed_digest,
            size_bytes: 0,
            resume: None,
            is_torn: false,
            is_cut: false,
        };
        let torn_group = self.torn_group(&live)?;
        let mut rest = VecDeque::from(live);
        for index in 0.. {
            let Some(found) = rest.pop_front() else { break };
            chain.is_torn |= torn_group == Some(index);
            if chain.is_torn {
                self.take_away(&mut chain, &found)?;
            } else {
                self.add(&mut chain, &found, rest.make_contiguous())?;
            }
        }
        // What was synced was there: if no block has it any more, that is damage, and its offsets are not given again.
        let known = self.known();
        if chain.end < known {
            chain.directory.fences.push((chain.end, known));
            chain.close_resume();
            chain.end = known;
        }
        // Trimmed, and nothing of it was synced: no offset below is given again.
        if chain.end < entry.start {
            chain.close_resume();
            chain.end = entry.start;
        }
        if chain.is_cut && !seeded!(FollowersNotCut) {
            // Until the slots of what was behind are zeroed, it follows in order again once the log has grown: it is cut as
            // by a truncation. And the log goes on in a new block: a position is not used twice under one sequence.
            chain.close_resume();
            let before = self.resources.blocks.peek_sequence();
            self.resources.journal.append(&Record::LogTruncated { log: self.id, end: chain.end, before })?;
        }
        if entry.sealed.is_some() {
            chain.close_resume();
        }
        self.finish(chain, last_sequence)
    }

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

    /// Whether a compaction put another block in its place, or it is one that nothing was said of.
    fn is_replaced(&self, header: &BlockHeader) -> bool {
        let &BlockHeader { sequence, base_offset, replaces_to, .. } = header;
        let compactions = &self.entry.compactions;
        let is_said = replaces_to == 0 || compactions.iter().any(|said| said.sequence == sequence);
        let is_replaced = |said: &Compaction| sequence < said.sequence && said.has(base_offset);
        !is_said || compactions.iter().any(is_replaced)
    }

    /// Frees blocks that compactions, truncations and trims left over.
    fn drop_dead(&mut self, found: Vec<Found>) -> Result<Vec<Found>> {
        let (cut, live): (Vec<_>, Vec<_>) = found.into_iter().partition(|Found { header, .. }| {
            header.base_offset >= self.cap(header.sequence) || self.is_replaced(header)
        });
        // A trim may have left blocks though its start lies behind: digest and producers do not cover them yet.
        let below = live.iter().take_while(|found| found.header.base_offset < self.entry.freed).count();
        let mut live = live;
        let kept = live.split_off(below);
        for dead in cut.into_iter().chain(live) {
            self.findings.foreign.extend(dead.let_go(&self.resources.blocks)?);
        }
        Ok(kept)
    }

    /// Looks for a commit that begins in the blocks behind a place where the log is torn: what is in front of it was durable, so
    /// what is bad there is damage, and no tail. Whether there is one.
    pub(super) fn find_proof(&mut self, later: &[Found]) -> Result<bool> {
        for found in later.iter().rev() {
            let behind = self.behind(&self.block(found), PAGE_BYTES - 1, found.header.base_offset)?;
            if self.note_proof(behind) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn note_proof(&mut self, behind: Behind) -> bool {
        let proof = behind.durable_to.filter(|to| *to > self.known() && !seeded!(CommitsProveNothing));
        self.proven = proof.unwrap_or(self.proven);
        proof.is_some()
    }

    /// What of the log a block holds behind a position, of that offset or a later one.
    pub(super) fn behind(&self, block: &Block, position: u64, offset: u64) -> Result<Behind> {
        let mut window = Window::new(block, data_max(block.bytes));
        let behind = window.behind(position, offset..self.cap(block.sequence));
        behind.map_err(|e| block.slots.file.error("read", e))
    }

    /// Moves what a block behind the torn place holds aside, and frees its slots.
    pub(super) fn take_away(&mut self, chain: &mut Chain, found: &Found) -> Result<()> {
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

    pub(super) fn block(&self, found: &Found) -> Block {
        let Found { header, slots, .. } = found;
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

    fn finish(self, chain: Chain, last_sequence: u64) -> Result<(Arc<LogState>, Findings)> {
        let Self { resources, queues, id, entry, is_vouched_for, mut findings, .. } = self;
        let Chain { directory, end, producers, digest, size_bytes, resume, is_torn, .. } = chain;
        for &(start, end) in &directory.fences {
            tracing::error!(log = %id, start, end, "stored batches are damaged");
            resources.corrupted_ranges.fetch_add(1, Ordering::Relaxed);
            findings.corrupted.push(CorruptedRange { log: id, start: Offset(start), end: Offset(end) });
        }
        let was_cut = is_torn || !findings.torn_tails.is_empty();
        let may_lack = entry.sealed.is_none() && !is_vouched_for;
        // Damage in the middle is known for what it is; at the end there may have been more.
        let ends_damaged = directory.fences.last().is_some_and(|(_, fence_end)| *fence_end == end);
        let suspect = was_cut || ends_damaged || may_lack;
        if suspect && !entry.suspect {
            resources.journal.append(&Record::Suspect { log: id, end })?;
        }
        let contents = Contents { directory, end, producers, digest, size_bytes, resume, last_sequence };
        let log = LogState::restored(Arc::clone(resources), Arc::clone(queues), id, entry, contents);
        log.suspect.fetch_or(suspect, Ordering::AcqRel);
        Ok((Arc::new(log), findings))
    }
}
