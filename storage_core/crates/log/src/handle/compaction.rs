//! Compaction: the last record of each key stays, at its offset. Filled blocks are written again without the other
//! records, a few at a time. The journal says of each new block which old ones it stands for, and the old ones go only
//! after that.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::log::Log;
use super::member::Member;
use crate::batch::{Batch, Record as BatchRecord, each_key, retain_records, write_epoch, write_gap};
use crate::clock::now_ms;
use crate::digest::Digest;
use crate::disk::{AlignedPage, write_all};
use crate::error::{Error, Result};
use crate::format::block_header::BlockHeader;
use crate::format::epochs::Epochs;
use crate::format::footer::IndexEntry;
use crate::format::mark::BlockKey;
use crate::log::block::{Block, BlockIndex, ClosedBlock};
use crate::log::scan::{Bounds, Window, walk};
use crate::log::state::{LogState, Phase, Writer};
use crate::page::PAGE_BYTES;
use crate::resources::journal::Record;
use crate::seeded;
use crate::types::Offset;

/// How many bytes are read at a time in search of the last record of each key.
const READ_BYTES: usize = 1 << 20;

/// Result of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionReport {
    /// Number of records that are gone.
    pub records: u64,
    /// Number of blocks that were written again.
    pub blocks: u64,
    /// Bytes of batches that are gone; their space is given back in the background.
    pub bytes: u64,
}

impl Log {
    /// Keeps the last record of each key, in filled blocks; the block that is being filled stays as it is. Offsets
    /// stay, and reads skip those that are gone. Records without a key stay. Compressed batches are opened, and
    /// compressed again with their codec where a record goes. A tombstone (a key without a value) goes when it is
    /// older than `tombstone_delay`, unless something in front of it has to stay as it is and may hold an older value
    /// of its key: a block with damage, a batch whose records cannot be read, or one that its producer compressed
    /// better than is done here. Appends, reads and cursors go on meanwhile. A crash leaves every record as it was or
    /// gone, never the last of its key.
    ///
    /// The call holds every key of the log in memory, and up to three times the opened records of one batch; it needs
    /// space for one more block at a time. Durable on return, unless the log never syncs. [`Log::digest`] changes, so
    /// copies of a log must be compacted alike; a sealed log is refused.
    ///
    /// Errors: `Sealed`, `UnknownLog` (deleted), `Closed`, `NoSpace` (what was done so far stays), `Poisoned`.
    pub fn compact(&self, tombstone_delay: Duration) -> Result<CompactionReport> {
        self.resources().check_open()?;
        self.member().compact(tombstone_delay, now_ms())
    }
}

/// The records that stay in a compaction.
struct Survivors {
    /// Offset of the last record of each key.
    last: HashMap<Box<[u8]>, u64>,
    /// Offsets below were trimmed.
    start: u64,
    /// Tombstones of this time or older go.
    tombstones_until_ms: i64,
    /// Whether a block or batch before stays as it is and may hold values of any key. Then no tombstone behind it
    /// goes, or a key that was deleted would have a value again.
    tombstones_stay: bool,
}

impl Survivors {
    fn has(&self, record: &BatchRecord<'_>) -> bool {
        let Some(key) = record.key else { return record.offset >= self.start };
        let is_last = self.last.get(key).is_none_or(|last| record.offset >= *last);
        let is_forgotten = record.value.is_none()
            && record.timestamp_ms <= self.tombstones_until_ms
            && !self.tombstones_stay;
        is_last && !is_forgotten && record.offset >= self.start
    }
}

/// Neighbouring blocks that are written again as one.
#[derive(Default)]
struct Run {
    blocks: Vec<Arc<Block>>,
    /// Batches back to back, without marks: where they will lie is not known yet.
    batches: Vec<u8>,
    gone: u64,
    /// Leader epochs of the batches in `blocks`; `None` if the run has no block yet.
    epochs: Option<Epochs>,
}

impl Member {
    fn compact(&self, tombstone_delay: Duration, now_ms: i64) -> Result<CompactionReport> {
        let _alone = self.log.compacting.lock();
        self.log.check_active(&self.log.writer.lock())?;
        let blocks = blocks_at_rest(&self.log);
        let delay_ms = i64::try_from(tombstone_delay.as_millis()).unwrap_or(i64::MAX);
        let mut kept = Survivors {
            last: last_of_keys(&self.log)?,
            start: self.log.start.load(Ordering::Acquire),
            tombstones_until_ms: now_ms.saturating_sub(delay_ms),
            tombstones_stay: false,
        };
        let room = self.resources().blocks.room_of_block();
        let mut done = CompactionReport::default();
        let mut run = Run::default();
        // Blocks go from the first to the last, so that a tombstone goes after all that it deletes.
        for block in blocks {
            let written = without_others(&block, &mut kept)?;
            kept.tombstones_stay |= written.is_none();
            let Some((batches, gone)) = written.filter(|(_, gone)| *gone > 0) else {
                if !self.replace(std::mem::take(&mut run), &mut done)? {
                    return Ok(done);
                }
                continue;
            };
            let joined = run.epochs.as_ref().and_then(|epochs| epochs.followed_by(&block.epochs));
            let has_room = (run.batches.len() + batches.len()) as u64 <= room && joined.is_some();
            if !has_room && !self.replace(std::mem::take(&mut run), &mut done)? {
                return Ok(done);
            }
            run.epochs = joined.filter(|_| has_room).or_else(|| Some(block.epochs.clone()));
            run.batches.extend_from_slice(&batches);
            run.gone += gone;
            run.blocks.push(block);
        }
        self.replace(run, &mut done)?;
        Ok(done)
    }

    /// Writes a run as one block and puts it in the place of the old ones. False if the log was cut meanwhile: the
    /// records that the run leaves out may still be there, so nothing behind it may rely on their being gone.
    fn replace(&self, mut run: Run, done: &mut CompactionReport) -> Result<bool> {
        let (Some(first), Some(last)) = (run.blocks.first(), run.blocks.last()) else { return Ok(true) };
        let range = first.base_offset..last.closed.get().expect("at rest").end_offset;
        let blocks = &self.resources().blocks;
        let bytes = run.batches.len() as u64;
        let size =
            blocks.classes.smallest(bytes).map_err(|bytes_max| Error::TooLarge { bytes, bytes_max })?;
        let (slots, space) = blocks.allocate(size, self.log.fsync)?;
        let header = BlockHeader {
            replaces_to: range.end,
            epochs: run.epochs.take().expect("a run with blocks has theirs"),
            ..self.log.new_header(&slots, 0, range.start)
        };
        let block = Block::new(slots.clone(), space, &header);
        let producers = producers_at_end(last)?;
        if let Err(error) = self.write_block(&block, &header, &mut run.batches, producers) {
            // The journal does not name the new block, so no start takes it for the log's.
            blocks.free(&slots);
            return Err(error);
        }
        let old = run.blocks.len() as u64;
        let before: u64 = run.blocks.iter().map(|block| data_bytes(block)).sum();
        let is_shown = self.show_block(Arc::new(block), &range, &run.blocks)?;
        if is_shown {
            done.records += run.gone;
            done.blocks += old;
            done.bytes += before.saturating_sub(bytes);
        }
        Ok(is_shown)
    }

    /// Writes header, batches and footer, and syncs them if the log syncs.
    fn write_block(
        &self,
        block: &Block,
        header: &BlockHeader,
        batches: &mut [u8],
        producers: Option<Vec<u8>>,
    ) -> Result<()> {
        let file = &block.slots.file;
        let failed = |e| file.poison("write", e);
        let data_end = PAGE_BYTES + batches.len() as u64;
        block.space.reach(data_end).map_err(|e| file.error("grow", e))?;
        let (entries, max_timestamp, digest) = mark_all(block.key, batches)?;
        let bytes: Vec<u8> = header.encode().into_iter().chain(batches.iter().copied()).collect();
        let pages: Vec<AlignedPage> = bytes.chunks(PAGE_BYTES as usize).map(AlignedPage::padded).collect();
        let parts: Vec<&[u8]> = pages.iter().map(|page| &**page).collect();
        write_all(block.file(), block.start, &parts, false).map_err(failed)?;
        *block.index.write() = BlockIndex::Loaded(Arc::new(entries));
        block.readable.store(data_end, Ordering::Release);
        let _ =
            block.closed.set(ClosedBlock { end_offset: header.replaces_to, max_timestamp, data_end, digest });
        block.write_footer(producers, &self.resources().indexes).map_err(failed)?;
        if self.log.syncs() && !seeded!(CompactedNotSynced) {
            self.resources().sync_files(&[file])
        } else {
            Ok(())
        }
    }

    /// Promises that the new block stands for the old ones, then lets readers see it. False if the log was cut
    /// meanwhile.
    fn show_block(&self, new: Arc<Block>, range: &Range<u64>, old: &[Arc<Block>]) -> Result<bool> {
        let _changing = self.log.changing.lock();
        let mut writer = self.log.writer.lock();
        let place = {
            let directory = self.log.directory.read();
            let at = directory.blocks.iter().position(|block| Arc::ptr_eq(block, &old[0]));
            at.filter(|at| {
                let here = directory.blocks.get(*at..at + old.len()).unwrap_or_default();
                here.iter().zip(old).filter(|(a, b)| Arc::ptr_eq(a, b)).count() == old.len()
            })
        };
        let (Some(at), Phase::Active, None) = (place, writer.phase, self.log.poisoned.get()) else {
            self.resources().blocks.free(&new.slots);
            self.queues().chores.ask_upkeep();
            return Ok(false);
        };
        let replaced = Record::LogCompacted {
            log: self.log.id,
            start: range.start,
            end: range.end,
            sequence: new.sequence,
        };
        let synced = Record::Synced { log: self.log.id, end: self.log.synced.load(Ordering::Acquire) };
        let said = self.resources().journal.append(&synced).and_then(|_| self.log.say_or_stop(&replaced));
        if let Err(error) = said {
            // A restart may find the record in the journal, and then needs the new block, unless nothing was written.
            if matches!(error, Error::NoSpace { .. }) {
                self.resources().blocks.free(&new.slots);
            }
            return Err(error);
        }
        let mut directory = self.log.directory.write();
        directory.blocks.splice(at..at + old.len(), [Arc::clone(&new)]);
        directory.forget_times();
        drop(directory);
        self.log.size_bytes.fetch_add(data_bytes(&new), Ordering::Relaxed);
        writer.digest = digest_of_blocks(&self.log, &writer);
        self.log.free(old.to_vec());
        Ok(true)
    }
}

/// Builds the batches of a block with the records that stay and gaps for the others, and counts the records that go.
/// `None` if the block is damaged or was freed.
fn without_others(block: &Block, kept: &mut Survivors) -> Result<Option<(Vec<u8>, u64)>> {
    let Some(&ClosedBlock { end_offset, data_end, .. }) = block.closed.get() else { return Ok(None) };
    let (mut out, mut gone, mut next) = (Vec::new(), 0, block.base_offset);
    let bounds = Bounds { base_offset: next, known: end_offset, limit: end_offset };
    let mut window = Window::new(block, data_end);
    let walked = walk(&mut window, bounds, |batch| {
        let mut rest = Vec::new();
        match retain_records(batch, &mut rest, batch.bytes().len(), |record| kept.has(record)) {
            Some(count) => gone += u64::from(count),
            None => kept.tombstones_stay = true,
        }
        let is_gap = rest.is_empty() || (batch.header().records_left() == 0 && batch.producer().is_none());
        if !is_gap {
            write_gap(next..batch.base_offset(), &mut out);
            out.extend_from_slice(&rest);
            next = batch.end_offset();
        }
    });
    let walked = walked.map_err(|e| block.slots.file.error("read", e))?;
    write_gap(next..end_offset, &mut out);
    let is_whole = walked.fences.is_empty() && walked.end_offset == end_offset;
    Ok((is_whole && block.is_still_there()).then_some((out, gone)))
}

/// Reads the encoded producers at the end of a block from its footer, if it has them.
fn producers_at_end(block: &Block) -> Result<Option<Vec<u8>>> {
    let footer = block.read_footer().map_err(|e| block.slots.file.error("read", e))?;
    let end = block.closed.get().map(|closed| closed.end_offset);
    Ok(footer.filter(|footer| Some(footer.end_offset) == end).and_then(|footer| footer.producers))
}

/// The filled blocks at the front of a log that are with the disk.
fn blocks_at_rest(log: &LogState) -> Vec<Arc<Block>> {
    let synced = if log.syncs() { log.synced.load(Ordering::Acquire) } else { u64::MAX };
    let directory = log.directory.read();
    let is_at_rest =
        |block: &&Arc<Block>| block.is_written() && block.closed_end().is_some_and(|end| end <= synced);
    directory.blocks.iter().take_while(is_at_rest).cloned().collect()
}

/// Finds the offset of the last record of each key that can be read now.
fn last_of_keys(log: &LogState) -> Result<HashMap<Box<[u8]>, u64>> {
    let mut last: HashMap<Box<[u8]>, u64> = HashMap::new();
    let mut next = log.start.load(Ordering::Acquire);
    loop {
        let slices = match log.read(next, READ_BYTES) {
            Ok(slices) if slices.batches.is_empty() => return Ok(last),
            Ok(slices) => slices,
            Err(Error::Corrupted { end: Offset(end), .. }) => {
                next = end;
                continue;
            }
            // The log was trimmed meanwhile.
            Err(Error::OffsetOutOfRange { start: Offset(start), .. }) if next < start => {
                next = start;
                continue;
            }
            // The log was truncated meanwhile, and nothing lies behind.
            Err(Error::OffsetOutOfRange { .. }) => return Ok(last),
            Err(error) => return Err(error),
        };
        for bytes in &slices.batches {
            let (batch, _) = Batch::parse(bytes)?;
            // A batch that cannot be read to its end stays as it is, and its records make no others old.
            let _ = each_key(&batch, |key, offset| match last.get_mut(key) {
                Some(last) => *last = offset,
                None => drop(last.insert(key.into(), offset)),
            });
        }
        next = slices.next_offset.0;
    }
}

fn digest_of_blocks(log: &LogState, writer: &Writer) -> Digest {
    let directory = log.directory.read();
    let digest_of = |block: &Arc<Block>| match block.closed.get() {
        Some(closed) => closed.digest,
        None => writer.digest_of_open(block),
    };
    directory.blocks.iter().map(digest_of).fold(log.trimmed.lock().digest, Digest::concat)
}

fn data_bytes(block: &Block) -> u64 {
    block.closed.get().map_or(0, |closed| closed.data_end - PAGE_BYTES)
}

/// Gives batches that lie back to back from the start of a block's data their marks; returns their index, greatest
/// timestamp and digest.
fn mark_all(key: BlockKey, batches: &mut [u8]) -> Result<(Vec<IndexEntry>, i64, Digest)> {
    let (mut entries, mut max_timestamp, mut digest) =
        (Vec::<IndexEntry>::new(), i64::MIN, Digest::default());
    let (mut at, mut index_next) = (0, 0);
    while at < batches.len() {
        let position = PAGE_BYTES + at as u64;
        let (batch, _) = Batch::parse(&batches[at..])?;
        max_timestamp = max_timestamp.max(batch.newest());
        let offset = batch.base_offset();
        if position >= index_next {
            entries.push(IndexEntry { offset, max_timestamp, position: position as u32 });
            index_next = position + PAGE_BYTES;
        } else if let Some(entry) = entries.last_mut() {
            entry.max_timestamp = max_timestamp;
        }
        digest.push(offset, batch.record_count(), batch.header().crc);
        let size = batch.bytes().len();
        let mark = key.mark(position, offset, batch.header(), false);
        write_epoch(&mut batches[at..], mark);
        at += size;
    }
    Ok((entries, max_timestamp, digest))
}
