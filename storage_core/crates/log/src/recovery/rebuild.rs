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
use crate::format::footer::{Footer, data_max};
use crate::log::block::{Block, BlockIndex, ClosedBlock};
use crate::log::directory::Directory;
use crate::log::open_block::Resume;
use crate::log::producers::ProducerTable;
use crate::log::queues::Queues;
use crate::log::restore::Contents;
use crate::log::scan::{Behind, Bounds, Walked, Window, walk};
use crate::log::state::LogState;
use crate::options::FsyncSchedule;
use crate::page::{PAGE_BYTES, page_up};
use crate::resources::Resources;
use crate::resources::blocks::{BlockFile, Slots};
use crate::resources::journal::{Compaction, LogEntry, Record};
use crate::resources::space::Space;
use crate::seeded;
use crate::types::{LogId, Offset};

/// How much is read at a time of what is zero as a rule.
const PIECE_BYTES: usize = 256 << 10;

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
struct Chain {
    directory: Directory,
    end: u64,
    producers: ProducerTable,
    digest: Digest,
    size_bytes: u64,
    resume: Option<Resume>,
    is_torn: bool,
    /// Something behind its end was taken away, or lies there still.
    is_cut: bool,
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
                self.add(&mut chain, found, rest.make_contiguous())?;
            }
        }
        // What was synced was there: if no block has it any more, that is damage, and its offsets are not given again.
        let known = self.known();
        if chain.end < known {
            chain.directory.fences.push((chain.end, known));
            self.close_resume(&mut chain);
            chain.end = known;
        }
        // Trimmed, and nothing of it was synced: no offset below is given again.
        if chain.end < entry.start {
            self.close_resume(&mut chain);
            chain.end = entry.start;
        }
        if chain.is_cut && !seeded!(FollowersNotCut) {
            // Until the slots of what was behind are zeroed, it follows in order again once the log has grown: it is cut as
            // by a truncation. And the log goes on in a new block: a position is not used twice under one sequence.
            self.close_resume(&mut chain);
            let before = self.resources.blocks.peek_sequence();
            self.resources.journal.append(&Record::LogTruncated { log: self.id, end: chain.end, before })?;
        }
        if entry.sealed.is_some() {
            self.close_resume(&mut chain);
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

    fn note_proof(&mut self, behind: Behind) -> bool {
        let proof = behind.durable_to.filter(|to| *to > self.known() && !seeded!(CommitsProveNothing));
        self.proven = proof.unwrap_or(self.proven);
        proof.is_some()
    }

    /// What of the log a block holds behind a position, of that offset or a later one.
    fn behind(&self, block: &Block, position: u64, offset: u64) -> Result<Behind> {
        let mut window = Window::new(block, data_max(block.bytes));
        let behind = window.behind(position, offset..self.cap(block.sequence));
        behind.map_err(|e| block.slots.file.error("read", e))
    }

    /// Moves what a block behind the torn place holds aside, and frees its slots.
    fn take_away(&mut self, chain: &mut Chain, found: &Found) -> Result<()> {
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

    /// Adds the next block to the log, or finds that the log is torn before or in it.
    fn add(&mut self, chain: &mut Chain, found: Found, later: &[Found]) -> Result<()> {
        let base_offset = found.header.base_offset;
        let next_base = later.first().map(|next| next.header.base_offset);
        if base_offset > chain.end {
            if chain.end >= self.known()
                && !self.find_proof(later)?
                && !self.find_proof(std::slice::from_ref(&found))?
            {
                // A block that was not synced is missing in between.
                chain.is_torn = true;
                return self.take_away(chain, &found);
            }
            chain.directory.fences.push((chain.end, base_offset));
        }
        self.close_resume(chain);
        let sealed_end = self.entry.sealed.as_ref().map_or(u64::MAX, |sealed| sealed.end);
        let limit = self.cap(found.header.sequence).min(next_base.unwrap_or(u64::MAX)).min(sealed_end);
        let block = self.block(&found);
        let failed = |e| block.slots.file.error("read", e);
        // The last block of a log that goes on has none, unless it closed with its batch group or was compacted; and the first page of a
        // short one tells all.
        let is_compacted = found.header.replaces_to > 0;
        let is_single = found.header.group.0.is_nil() && !is_compacted;
        let is_open = next_base.is_none() && limit == u64::MAX && is_single;
        let is_known = self.is_settled && is_open && found.first.is_some();
        let footer = if is_known { None } else { block.read_footer().map_err(failed)? };
        let footer = footer.filter(|footer| is_of(footer, &found.header, &block));
        let is_footer_damaged = footer.is_none() && !is_known && block.had_footer().map_err(failed)?;
        // The snapshot counts only with the rest: a footer says nothing about what was not synced.
        let trusted = footer.as_ref().filter(|footer| {
            (footer.end_offset <= self.entry.synced || seeded!(StaleIndexTrusted))
                && footer.end_offset <= limit
                && next_base.is_none_or(|next| next == footer.end_offset)
        });
        if let Some(footer) = trusted
            && let Some(table) = footer.producers.as_deref().and_then(ProducerTable::decode)
        {
            chain.producers = table;
            chain.digest = chain.digest.concat(footer.digest);
            chain.end = footer.end_offset;
            let &Footer { end_offset, max_timestamp, data_end, digest, .. } = footer;
            let closed = ClosedBlock { end_offset, max_timestamp, data_end, digest };
            chain.size_bytes += data_end - PAGE_BYTES;
            self.push(chain, block, closed, BlockIndex::OnDisk);
            return Ok(());
        }
        let producers = chain.producers.clone();
        let (walked, lies_behind) = loop {
            let bounds = Bounds { base_offset, known: self.known().min(limit), limit };
            let mut window = Window::new(&block, data_max(block.bytes));
            if let Some(first) = &found.first {
                window.load_page(PAGE_BYTES, first.clone());
            }
            let walked = walk(&mut window, bounds, |batch| {
                if let Some(producer) = batch.producer() {
                    chain.producers.record(producer, batch.record_count(), batch.base_offset());
                }
            })
            .map_err(failed)?;
            let is_whole = walked.end_offset >= limit && next_base.is_some();
            if is_known || is_whole || is_compacted || walked.ends_damaged() {
                break (walked, Behind::default());
            }
            let behind = if self.is_zero_behind(&block, walked.data_end)? {
                Behind::default()
            } else {
                self.behind(&block, walked.data_end - 1, walked.end_offset + 1)?
            };
            // Then it is walked again, over the damage.
            let is_proven = self.note_proof(behind) || (next_base.is_some() && self.find_proof(later)?);
            if !is_proven {
                break (walked, behind);
            }
            chain.producers = producers.clone();
        };
        if self.fsync.syncs()
            && walked.end_offset > self.entry.synced
            && !self.findings.unsynced.iter().any(|f| f.number == block.slots.file.number)
        {
            self.findings.unsynced.push(Arc::clone(&block.slots.file));
        }
        let ends_damaged = walked.ends_damaged();
        let Walked { entries, end_offset, data_end, max_timestamp, digest, fences } = walked;
        chain.directory.fences.extend(fences);
        chain.digest = chain.digest.concat(digest);
        chain.end = end_offset;
        chain.size_bytes += data_end - PAGE_BYTES;
        let was_closed =
            footer.is_some_and(|footer| footer.end_offset == end_offset && footer.data_end == data_end);
        let block = Arc::new(block);
        block.readable.store(data_end, Ordering::Release);
        *block.index.write() = BlockIndex::Loaded(Arc::new(entries));
        let goes_on =
            next_base.is_none() && limit == u64::MAX && !was_closed && !ends_damaged && !is_compacted;
        let is_torn = end_offset < limit && next_base.is_some();
        let mut is_cut = false;
        if (goes_on || is_torn) && !ends_damaged && !is_known {
            is_cut = self.set_aside(end_offset, &block, data_end, lies_behind.batches)? || is_torn;
            chain.is_torn = is_torn;
            chain.is_cut |= is_cut;
        }
        chain.directory.blocks.push(Arc::clone(&block));
        if goes_on && !is_cut {
            chain.resume = Some(Resume { block, data_end, max_timestamp, digest });
        } else {
            let _ = block.closed.set(ClosedBlock { end_offset, max_timestamp, data_end, digest });
            if limit == next_base.unwrap_or(sealed_end) {
                if is_footer_damaged {
                    self.note_footer(&block);
                }
                self.queues.chores.write_footer(block, Some(chain.producers.encode()));
            }
        }
        Ok(())
    }

    /// A damaged footer costs nothing but a scan, and is told like all that is made again.
    fn note_footer(&mut self, block: &Block) {
        let (path, slot) = (&block.slots.file.path, block.slots.first);
        tracing::warn!(log = %self.id, path, slot, "the footer of a block was damaged: the block was scanned, and it is written again");
        let name = path.rsplit('/').next().unwrap_or(path);
        self.findings.made_again.push(format!("{name}: footer of slot {slot}"));
    }

    fn push(&self, chain: &mut Chain, block: Block, closed: ClosedBlock, index: BlockIndex) {
        block.readable.store(closed.data_end, Ordering::Release);
        let _ = block.closed.set(closed);
        *block.index.write() = index;
        chain.directory.blocks.push(Arc::new(block));
    }

    /// The block that would have been gone on in is not the last after all.
    fn close_resume(&self, chain: &mut Chain) {
        if let Some(Resume { block, data_end, max_timestamp, digest, .. }) = chain.resume.take() {
            let _ = block.closed.set(ClosedBlock { end_offset: chain.end, max_timestamp, data_end, digest });
        }
    }

    pub(super) fn block(&self, found: &Found) -> Block {
        let Found { header, slots, .. } = found;
        let file = Arc::clone(&slots.file.file);
        let space = Space::new(file, slots.range(), 0, Prepare::fitting(self.fsync));
        Block::new(slots.clone(), Arc::new(space), header)
    }

    /// Whether nothing lies behind a position of a block.
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

    /// Copies what lies behind a position, if anything but the rest of a footer does, to a file of its own; whether anything
    /// lies there at all.
    fn set_aside(&mut self, offset: u64, block: &Block, from: u64, batches: u64) -> Result<bool> {
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

/// Whether a footer is the block's own and makes sense in it.
fn is_of(footer: &Footer, header: &BlockHeader, block: &Block) -> bool {
    footer.base_offset == header.base_offset
        && footer.end_offset >= footer.base_offset
        && (PAGE_BYTES..=page_up(data_max(block.bytes))).contains(&footer.data_end)
        && footer.entries.iter().all(|entry| u64::from(entry.position) < footer.data_end)
}
