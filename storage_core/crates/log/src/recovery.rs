//! Makes logs out of what lies on the disk. Only tails that may not be synced are scanned. What is torn there is cut,
//! moved aside and reported; what is damaged below the synced mark is fenced and stays where it is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use uuid::Uuid;

use crate::arrivals::Arrivals;
use crate::blocks::{BlockFile, SlotState, Slots};
use crate::digest::Digest;
use crate::disk::{Disk, FileKind, Prepare};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::block_header::{BlockHeader, HeaderPage};
use crate::format::footer::{Footer, data_max};
use crate::format::{FORMAT_VERSION, PAGE_BYTES, page_up};
use crate::journal::{JournalState, LogEntry, Record};
use crate::log::block::{Block, BlockIndex, ClosedBlock};
use crate::log::retaining::Retaining;
use crate::log::state::{Directory, LogState, Phase, Resume, Trimmed, Writer};
use crate::options::FsyncSchedule;
use crate::producers::ProducerTable;
use crate::scan::{Bounds, Walked, Window, walk};
use crate::seeded;
use crate::space::Space;
use crate::types::{LogId, Offset};

/// What opening a store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// The store was closed in order the last time, or is new.
    pub clean: bool,
    /// Tails that were cut.
    pub torn_tails: Vec<TornTail>,
    /// Damaged ranges of offsets.
    pub corrupted: Vec<CorruptedRange>,
    /// Blocks whose header is damaged, or that belong to no log.
    pub unknown_blocks: Vec<UnknownBlock>,
    /// Bytes of the journal's last group that were cut.
    pub journal_cut_bytes: u64,
    /// Open logs that do not sync each append, where the end of the store before does not vouch for what they had: they
    /// may end earlier than they did, and are suspect.
    pub unsynced_logs: Vec<LogId>,
    /// Cursors beyond the end of their log, set to the end.
    pub moved_cursors: Vec<MovedCursor>,
}

/// Bytes that no acknowledged append covers, as far as the store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The log.
    pub log: LogId,
    /// Where it was cut: its end.
    pub offset: Offset,
    /// How many bytes were moved aside.
    pub bytes: u64,
    /// File that they were moved to, in the store's directory.
    pub moved_to: String,
}

/// Offsets that cannot be read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptedRange {
    /// The log.
    pub log: LogId,
    /// First damaged offset.
    pub start: Offset,
    /// First offset behind.
    pub end: Offset,
}

/// A block that nobody can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownBlock {
    /// Its file.
    pub path: String,
    /// Its place in the file, from 0.
    pub slot: u32,
    /// Where its bytes were moved to: no log misses anything, so it is the torn first write of a block. Else it is
    /// left as it is.
    pub moved_to: Option<String>,
}

/// A cursor that was beyond the end of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedCursor {
    /// The log.
    pub log: LogId,
    /// The cursor.
    pub name: String,
    /// Where it was.
    pub from: Offset,
    /// Where it is.
    pub to: Offset,
}

/// A block with a valid header.
struct Found {
    header: BlockHeader,
    slots: Slots,
}

/// Reads all files and builds the logs of the journal.
pub(crate) fn recover(engine: &Arc<Engine>, state: &JournalState, report: &mut OpenReport) -> Result<()> {
    let Headers { mut found, damaged } = read_headers(engine, state, report)?;
    let mut unsynced: Vec<Arc<BlockFile>> = Vec::new();
    let boot = engine.disk.boot();
    for (&id, entry) in &state.logs {
        let blocks = found.remove(&id).unwrap_or_default();
        if entry.deleted {
            for Found { slots, .. } in blocks {
                engine.blocks.free(&slots);
            }
            engine.deleted.lock().push(id);
            continue;
        }
        let fsync = entry.fsync.unwrap_or(engine.fsync);
        if entry.sealed.is_none() && !is_vouched_for(state, entry, boot) {
            report.unsynced_logs.push(id);
        }
        let trims_are_synced = entry.fsync.or(state.fsync).unwrap_or_default() == FsyncSchedule::SyncEach;
        let unsynced = &mut unsynced;
        let log = Rebuild { engine, id, entry, fsync, trims_are_synced, report, unsynced }.run(blocks)?;
        engine.logs.write().insert(id, log);
    }
    for slots in damaged {
        let moved_to =
            if report.corrupted.is_empty() { Some(set_block_aside(engine, &slots)?) } else { None };
        let (path, slot) = (slots.file.path.clone(), slots.first);
        report.unknown_blocks.push(UnknownBlock { path, slot, moved_to });
    }
    // What a killed process wrote may be in the page cache only, and is served from now on.
    for file in &unsynced {
        file.file.sync().map_err(|e| file.error("sync", e))?;
    }
    let logs: Vec<_> = engine.logs.read().values().cloned().collect();
    for log in logs.iter().filter(|log| log.syncs()) {
        let end = log.end.load(Ordering::Acquire);
        log.synced.store(end, Ordering::Release);
        if end > state.logs[&log.id].synced {
            engine.journal.append(&Record::Synced { log: log.id, end })?;
        }
    }
    Ok(())
}

/// Whether all that a log had is there, as far as its schedule tells.
fn is_vouched_for(state: &JournalState, entry: &LogEntry, boot: Option<Uuid>) -> bool {
    match entry.fsync.or(state.fsync).unwrap_or_default() {
        FsyncSchedule::SyncEach => true,
        // A close in order syncs it.
        FsyncSchedule::Milliseconds(_) => state.closed,
        FsyncSchedule::NoFsync => state.closed && boot.is_some() && state.left_unsynced == boot,
    }
}

/// What the headers of all blocks say.
struct Headers {
    found: HashMap<LogId, Vec<Found>>,
    /// Slots whose header is neither empty nor valid.
    damaged: Vec<Slots>,
}

/// Reads all headers; the files are handed to the allocator with the states of their slots.
fn read_headers(engine: &Engine, state: &JournalState, report: &mut OpenReport) -> Result<Headers> {
    let blocks = &engine.blocks;
    let mut found: HashMap<LogId, Vec<Found>> = HashMap::new();
    let mut damaged = Vec::new();
    let mut last_sequence = 0;
    for (number, class) in blocks.list()? {
        let file = blocks.open(number, class)?;
        let slots_per_file = blocks.classes.slots(class);
        let mut states = vec![SlotState::Free; slots_per_file as usize];
        // Slots that were never used are not read: most of a file may be.
        let data =
            file.file.data_ranges(0..blocks.classes.file_bytes()).map_err(|e| file.error("read", e))?;
        let mut data = data.into_iter().peekable();
        let mut slot = 0;
        while slot < slots_per_file {
            let start = u64::from(slot) * file.slot_bytes;
            while data.next_if(|range| range.end <= start).is_some() {}
            if data.peek().is_none_or(|range| start + file.slot_bytes <= range.start) {
                slot += 1;
                continue;
            }
            let mut page = Vec::new();
            file.file.read(start, PAGE_BYTES as usize, &mut page).map_err(|e| file.error("read", e))?;
            let mut count = 1;
            states[slot as usize] = match BlockHeader::decode(&page) {
                HeaderPage::Empty => SlotState::Freed,
                HeaderPage::Newer(found) => {
                    let path = file.path.clone();
                    return Err(Error::UnsupportedFormat { path, found, supported: FORMAT_VERSION });
                }
                HeaderPage::Header(header)
                    if header.store == engine.store
                        && (1..=slots_per_file - slot).contains(&header.slots)
                        && state.logs.contains_key(&owner(state, &header)) =>
                {
                    count = header.slots;
                    last_sequence = last_sequence.max(header.sequence);
                    let slots = Slots { file: Arc::clone(&file), first: slot, count };
                    found.entry(owner(state, &header)).or_default().push(Found { header, slots });
                    SlotState::Used
                }
                HeaderPage::Header(_) => {
                    let path = file.path.clone();
                    report.unknown_blocks.push(UnknownBlock { path, slot, moved_to: None });
                    SlotState::Kept
                }
                HeaderPage::Damaged => {
                    damaged.push(Slots { file: Arc::clone(&file), first: slot, count });
                    SlotState::Kept
                }
            };
            let first = states[slot as usize];
            states[slot as usize..(slot + count) as usize].fill(first);
            slot += count;
        }
        blocks.adopt(file, states);
    }
    let marks = state.logs.values().flat_map(|entry| &entry.truncations).map(|(_, before)| *before);
    blocks.start_sequences_at(marks.max().unwrap_or(0).max(last_sequence + 1));
    Ok(Headers { found, damaged })
}

/// Whose block it is.
fn owner(state: &JournalState, header: &BlockHeader) -> LogId {
    let namesake = |(_, entry): &(&LogId, &LogEntry)| entry.name == header.name && !entry.deleted;
    let found = state.logs.iter().rfind(|named| seeded!(OldIdentity) && namesake(named));
    found.map_or(header.log, |(id, _)| *id)
}

/// Moves a block without a readable header out of the way and frees its slot.
fn set_block_aside(engine: &Engine, slots: &Slots) -> Result<String> {
    let file = &slots.file;
    let range = slots.range();
    let start = range.start;
    let failed = |e| file.error("read", e);
    let ranges = file.file.data_ranges(range).map_err(failed)?;
    let end = ranges.last().map_or(start, |range| range.end);
    let mut bytes = Vec::new();
    file.file.read(start, (end - start) as usize, &mut bytes).map_err(failed)?;
    let moved_to = write_lost(&*engine.disk, &format!("block-{}-{}", file.number, slots.first), &bytes)?;
    tracing::warn!(
        path = file.path,
        slot = slots.first,
        moved_to,
        "a block without a readable header was moved"
    );
    engine.blocks.free(slots);
    Ok(moved_to)
}

/// Writes bytes that were cut to a file of their own, durably; gives its name.
pub(crate) fn write_lost(disk: &dyn Disk, what: &str, bytes: &[u8]) -> Result<String> {
    let names = disk.list().map_err(|e| Error::io("list", &disk.path(""), e))?;
    let name = (0..)
        .map(|n: u32| format!("lost-{what}-{n}"))
        .find(|name| !names.contains(name))
        .expect("numbers do not end");
    let failed = |e| Error::io("write", &disk.path(&name), e);
    let file = disk.create(&name, 0, FileKind::Plain).map_err(failed)?;
    crate::disk::write_all(&*file, 0, &[bytes], false).map_err(failed)?;
    file.sync().and_then(|()| disk.sync_directory()).map_err(failed)?;
    Ok(name)
}

/// One log being put together.
struct Rebuild<'a> {
    engine: &'a Arc<Engine>,
    id: LogId,
    entry: &'a LogEntry,
    fsync: FsyncSchedule,
    /// Only what was synced could be read, and so trimmed.
    trims_are_synced: bool,
    report: &'a mut OpenReport,
    unsynced: &'a mut Vec<Arc<BlockFile>>,
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
    /// Blocks behind the torn place were taken away.
    lacks_blocks: bool,
}

impl Rebuild<'_> {
    fn run(mut self, mut found: Vec<Found>) -> Result<Arc<LogState>> {
        let entry = self.entry;
        found.sort_unstable_by_key(|found| (found.header.base_offset, found.header.sequence));
        let live = self.drop_dead(found);
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
            lacks_blocks: false,
        };
        let mut bases =
            live.iter().skip(1).map(|found| found.header.base_offset).collect::<Vec<_>>().into_iter();
        for found in live {
            let next_base = bases.next();
            if chain.is_torn {
                self.take_away(&mut chain, &found)?;
                continue;
            }
            self.add(&mut chain, found, next_base)?;
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
        if chain.lacks_blocks {
            // Until their slots are zeroed those blocks follow in order again once the log has grown: they are cut as by
            // a truncation, which the block in front of them must not outgrow.
            self.close_resume(&mut chain);
            let before = self.engine.blocks.peek_sequence();
            self.engine.journal.append(&Record::LogTruncated { log: self.id, end: chain.end, before })?;
        }
        if entry.sealed.is_some() {
            self.close_resume(&mut chain);
        }
        self.finish(chain, last_sequence)
    }

    /// Offsets below were promised.
    fn known(&self) -> u64 {
        if seeded!(CutInsteadOfFence) {
            return self.entry.start;
        }
        let sealed = self.entry.sealed.as_ref().map_or(0, |sealed| sealed.end);
        let trimmed = if self.trims_are_synced { self.entry.start } else { 0 };
        self.entry.synced.max(sealed).max(trimmed)
    }

    /// Where the block was cut by a later truncation.
    fn cap(&self, sequence: u64) -> u64 {
        let caps =
            self.entry.truncations.iter().filter(|(_, before)| sequence < *before).map(|(end, _)| *end);
        caps.min().unwrap_or(u64::MAX)
    }

    /// Frees blocks that truncations and trims left over.
    fn drop_dead(&self, found: Vec<Found>) -> Vec<Found> {
        let (cut, live): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|found| found.header.base_offset >= self.cap(found.header.sequence));
        // A trim may have left blocks though its start lies behind: digest and producers do not cover them yet.
        let below = live.iter().take_while(|found| found.header.base_offset < self.entry.freed).count();
        let mut live = live;
        let kept = live.split_off(below);
        for Found { slots, .. } in cut.into_iter().chain(live) {
            self.engine.blocks.free(&slots);
        }
        kept
    }

    /// Moves what a block behind the torn place holds aside, and frees its slots.
    fn take_away(&mut self, chain: &mut Chain, found: &Found) -> Result<()> {
        self.set_aside(chain.end, &self.block(found)?, PAGE_BYTES)?;
        self.engine.blocks.free(&found.slots);
        chain.lacks_blocks = !seeded!(FollowersNotCut);
        Ok(())
    }

    /// Adds the next block to the log, or finds that the log is torn before or in it.
    fn add(&mut self, chain: &mut Chain, found: Found, next_base: Option<u64>) -> Result<()> {
        let base_offset = found.header.base_offset;
        if base_offset > chain.end {
            if chain.end >= self.known() {
                // A block that was not synced is missing in between.
                chain.is_torn = true;
                return self.take_away(chain, &found);
            }
            chain.directory.fences.push((chain.end, base_offset));
        }
        self.close_resume(chain);
        let sealed_end = self.entry.sealed.as_ref().map_or(u64::MAX, |sealed| sealed.end);
        let limit = self.cap(found.header.sequence).min(next_base.unwrap_or(u64::MAX)).min(sealed_end);
        let block = self.block(&found)?;
        let failed = |e| block.slots.file.error("read", e);
        let footer =
            block.read_footer().map_err(failed)?.filter(|footer| is_of(footer, &found.header, &block));
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
        let known = self.known().min(limit);
        let bounds = Bounds { base_offset, epoch: self.entry.epoch, known, limit };
        let data_limit = data_max(block.bytes);
        let mut window = Window::new(block.file(), block.start, data_limit);
        let walked = walk(&mut window, bounds, |batch| {
            if let Some(producer) = batch.producer() {
                chain.producers.record(producer, batch.record_count(), batch.base_offset());
            }
        })
        .map_err(failed)?;
        if self.fsync.syncs()
            && walked.end_offset > self.entry.synced
            && !self.unsynced.iter().any(|f| f.number == block.slots.file.number)
        {
            self.unsynced.push(Arc::clone(&block.slots.file));
        }
        let Walked { entries, end_offset, data_end, max_timestamp, digest, fences } = walked;
        let ends_damaged = fences.last().is_some_and(|(_, end)| *end == end_offset);
        chain.directory.fences.extend(fences);
        chain.digest = chain.digest.concat(digest);
        chain.end = end_offset;
        chain.size_bytes += data_end - PAGE_BYTES;
        let was_closed =
            footer.is_some_and(|footer| footer.end_offset == end_offset && footer.data_end == data_end);
        let block = Arc::new(block);
        block.readable.store(data_end, Ordering::Release);
        *block.index.write() = BlockIndex::Loaded(Arc::new(entries));
        let goes_on = next_base.is_none() && limit == u64::MAX && !was_closed && !ends_damaged;
        let is_torn = end_offset < limit && next_base.is_some();
        let mut dirty_end = data_end;
        if (goes_on || is_torn) && !ends_damaged {
            dirty_end = self.set_aside(end_offset, &block, data_end)?;
            chain.is_torn = is_torn;
        }
        chain.directory.blocks.push(Arc::clone(&block));
        if goes_on || is_torn {
            chain.resume = Some(Resume { block, data_end, dirty_end, max_timestamp, digest });
        } else {
            let _ = block.closed.set(ClosedBlock { end_offset, max_timestamp, data_end, digest });
            if limit == next_base.unwrap_or(u64::MAX) {
                self.engine.tending.write_footer(block, Some(chain.producers.encode()));
            }
        }
        Ok(())
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

    fn block(&self, found: &Found) -> Result<Block> {
        let range = found.slots.range();
        let (start, bytes) = (range.start, range.end - range.start);
        let file = Arc::clone(&found.slots.file.file);
        Ok(Block {
            slots: found.slots.clone(),
            space: Arc::new(Space::new(file, range, 0, Prepare::fitting(self.fsync))),
            start,
            bytes,
            sequence: found.header.sequence,
            base_offset: found.header.base_offset,
            readable: AtomicU64::new(PAGE_BYTES),
            recent: RwLock::new(None),
            index: RwLock::new(BlockIndex::OnDisk),
            closed: OnceLock::new(),
            freed: AtomicBool::new(false),
            extending: AtomicBool::new(false),
        })
    }

    /// Copies what lies behind a position, if anything but the rest of a footer does, to a file of its own; says where
    /// it ends.
    fn set_aside(&mut self, offset: u64, block: &Block, from: u64) -> Result<u64> {
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
            let moved_to = write_lost(&*self.engine.disk, &what, &bytes)?;
            tracing::warn!(log = %self.id, offset, bytes = end - from, moved_to, "a torn tail was cut");
            let tail = TornTail { log: self.id, offset: Offset(offset), bytes: end - from, moved_to };
            self.report.torn_tails.push(tail);
        }
        Ok(end)
    }

    fn finish(self, chain: Chain, last_sequence: u64) -> Result<Arc<LogState>> {
        let Self { engine, id, entry, fsync, report, .. } = self;
        let Chain { directory, end, producers, digest, size_bytes, resume, is_torn, .. } = chain;
        for &(start, end) in &directory.fences {
            tracing::error!(log = %id, start, end, "stored batches are damaged");
            engine.corrupted_ranges.fetch_add(1, Ordering::Relaxed);
            report.corrupted.push(CorruptedRange { log: id, start: Offset(start), end: Offset(end) });
        }
        let was_cut = is_torn || report.torn_tails.iter().any(|tail| tail.log == id);
        let suspect = was_cut || !directory.fences.is_empty() || report.unsynced_logs.last() == Some(&id);
        if suspect && !entry.suspect {
            engine.journal.append(&Record::Suspect { log: id, end })?;
        }
        let phase = if entry.sealed.is_some() { Phase::Sealed } else { Phase::Active };
        let writer = Writer {
            phase,
            is_closed: false,
            open: None,
            pending: Vec::new(),
            waiting_bytes: 0,
            resume,
            end,
            last_sequence,
            producers,
            digest,
        };
        let sealed = OnceLock::new();
        if let Some(entry) = &entry.sealed {
            let _ = sealed.set(entry.clone());
        }
        Ok(Arc::new(LogState {
            id,
            name: entry.name.clone(),
            base_offset: entry.base_offset,
            epoch: entry.epoch,
            first_producers: entry.producers.clone(),
            own_fsync: entry.fsync,
            fsync,
            engine: Arc::clone(engine),
            writer: Mutex::new(writer),
            directory: RwLock::new(directory),
            end: AtomicU64::new(end),
            readable: AtomicU64::new(end),
            synced: AtomicU64::new(entry.synced.min(end)),
            start: AtomicU64::new(entry.start),
            trimmed: Mutex::new(Trimmed {
                end: entry.freed,
                digest: entry.trimmed_digest,
                producers: entry.trimmed_producers.as_ref().unwrap_or(&entry.producers).clone(),
            }),
            size_bytes: AtomicU64::new(size_bytes),
            sealed,
            poisoned: OnceLock::new(),
            suspect: AtomicBool::new(suspect || entry.suspect),
            dirty: AtomicBool::new(false),
            unmarked: AtomicBool::new(false),
            unmarked_bytes: AtomicU64::new(0),
            waiting_bytes: AtomicU64::new(0),
            changing: Mutex::new(()),
            reshaping: RwLock::default(),
            generation: AtomicU64::new(0),
            cursors: Mutex::default(),
            arrivals: Arrivals::default(),
            retaining: Retaining::default(),
        }))
    }
}

/// Whether a footer is the block's own and makes sense in it.
fn is_of(footer: &Footer, header: &BlockHeader, block: &Block) -> bool {
    footer.sequence == header.sequence
        && footer.base_offset == header.base_offset
        && footer.end_offset >= footer.base_offset
        && (PAGE_BYTES..=page_up(data_max(block.bytes))).contains(&footer.data_end)
        && footer.entries.iter().all(|entry| u64::from(entry.position) < footer.data_end)
}
