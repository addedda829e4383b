//! What changes a log as a whole: seal, trim, truncate, delete. Each is a promise in the journal first, then a change
//! of memory; space is given back last.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::format::footer::{Footer, IndexEntry};
use crate::log::block::{Block, BlockIndex, ClosedBlock};
use crate::log::directory::Directory;
use crate::log::producers::ProducerTable;
use crate::log::scan::{Bounds, Walked, Window, walk};
use crate::log::state::{LogState, Phase, Trimmed, Writer};
use crate::options::FsyncSchedule;
use crate::page::PAGE_BYTES;
use crate::resources::journal::{Record, SealedEntry};
use crate::types::Offset;

/// Limit on the value that a log is sealed with.
const VALUE_BYTES_MAX: usize = 1 << 20;

impl LogState {
    pub(crate) fn seal(self: &Arc<Self>, value: &[u8]) -> Result<&SealedEntry> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::TooLarge { bytes: value.len() as u64, bytes_max: VALUE_BYTES_MAX as u64 });
        }
        let _changing = self.changing.lock();
        let end = {
            let mut writer = self.writer.lock();
            match writer.phase {
                Phase::Deleted => return Err(Error::UnknownLog { log: self.id }),
                Phase::Sealed => return self.sealed_as(value),
                Phase::Active | Phase::Sealing => {}
            }
            self.check_poisoned()?;
            writer.phase = Phase::Sealing;
            writer.end
        };
        let sealed = self.promise_seal(end, value);
        let mut writer = self.writer.lock();
        match sealed {
            Ok(entry) => {
                writer.phase = Phase::Sealed;
                self.close_block(&mut writer);
                drop(writer);
                self.arrivals.announce();
                Ok(self.sealed.get_or_init(|| entry))
            }
            // Whatever failed: if the journal holds the seal after all, a restart shows it, and sealing again with the
            // same value is right in both cases. Appends are not, but where nothing was written.
            Err(error @ Error::NoSpace { .. }) => {
                writer.phase = Phase::Active;
                Err(error)
            }
            Err(error) => {
                self.poison(&error.to_string().into());
                Err(error)
            }
        }
    }

    fn sealed_as(&self, value: &[u8]) -> Result<&SealedEntry> {
        let entry = self.sealed.get().expect("set before the phase says so, under the same mutex");
        if entry.value == value {
            Ok(entry)
        } else {
            Err(Error::Sealed { log: self.id, end: Offset(entry.end) })
        }
    }

    fn promise_seal(self: &Arc<Self>, end: u64, value: &[u8]) -> Result<SealedEntry> {
        let generation = self.generation.load(Ordering::Acquire);
        match self.fsync {
            FsyncSchedule::SyncEach => self.engine.wait(self, end, generation)?,
            FsyncSchedule::Milliseconds(_) => self.engine.wait_synced(self, end)?,
            FsyncSchedule::NoFsync => {}
        }
        let digest = self.writer.lock().digest;
        let value = Bytes::copy_from_slice(value);
        self.engine
            .journal
            .append(&Record::Synced { log: self.id, end: self.synced.load(Ordering::Acquire) })?;
        self.say(&Record::LogSealed { log: self.id, end, digest, value: value.clone() })?;
        Ok(SealedEntry { end, digest, value })
    }

    /// Forgets offsets below; whole blocks are freed.
    pub(crate) fn delete_before(&self, offset: u64) -> Result<()> {
        let _changing = self.changing.lock();
        let _reshaping = self.reshaping.write();
        let trimmed = self.engine.group.exclusive(|| {
            // Blocks that go may have to be read once more.
            self.engine.commit(u64::MAX);
            let mut writer = self.writer.lock();
            if writer.phase == Phase::Deleted {
                return Err(Error::UnknownLog { log: self.id });
            }
            let (start, end) = (self.start.load(Ordering::Acquire), self.readable.load(Ordering::Acquire));
            if offset > end {
                let (requested, start, end) = (Offset(offset), Offset(start), Offset(end));
                return Err(Error::OffsetOutOfRange { requested, start, end });
            }
            if offset <= start {
                return Ok(());
            }
            let is_below = |block: &Arc<_>| closed_end(block).is_some_and(|end| end <= offset);
            let below = self.directory.read().blocks.iter().take_while(|block| is_below(block)).count();
            let trimmed = self.trim_blocks(below)?;
            let Trimmed { end: freed, digest, ref producers } = trimmed;
            let before = self.engine.blocks.peek_sequence();
            let promise =
                Record::LogTrimmed { log: self.id, start: offset, freed, before, digest, producers };
            self.say(&promise)?;
            *self.trimmed.lock() = trimmed;
            self.start.store(offset, Ordering::Release);
            let mut directory = self.directory.write();
            directory.fences.retain(|(_, end)| *end > offset);
            let freed: Vec<_> = directory.blocks.drain(..below).collect();
            directory.forget_times();
            drop(directory);
            writer.pending.retain(|open| !freed.iter().any(|block| Arc::ptr_eq(block, &open.block)));
            self.free(freed);
            Ok(())
        });
        self.engine.waiters.wake_answered();
        trimmed
    }

    /// What must be remembered when the first `below` blocks go. Everything of them is with the disk.
    fn trim_blocks(&self, below: usize) -> Result<Trimmed> {
        let blocks = self.directory.read().blocks[..below].to_vec();
        let Trimmed { mut end, mut digest, producers } = self.trimmed.lock().clone();
        let mut table = ProducerTable::decode(&producers).unwrap_or_default();
        for block in &blocks {
            let Some(closed) = block.closed.get() else { continue };
            digest = digest.concat(closed.digest);
            end = closed.end_offset;
            match self.producers_in_footer(block)? {
                Some(known) => table = known,
                None => drop(self.walk_producers(block, end, &mut table)?),
            }
        }
        Ok(Trimmed { end, digest, producers: table.encode() })
    }

    /// The table at the end of a closed block, if its footer is there and has it.
    fn producers_in_footer(&self, block: &Block) -> Result<Option<ProducerTable>> {
        let footer = block.read_footer().map_err(|e| block.slots.file.error("read", e))?;
        let is_own = |footer: &Footer| closed_end(block) == Some(footer.end_offset);
        Ok(footer.filter(is_own).and_then(|footer| ProducerTable::decode(footer.producers.as_deref()?)))
    }

    /// Brings the table up to `limit` by what a block holds.
    fn walk_producers(&self, block: &Block, limit: u64, table: &mut ProducerTable) -> Result<Walked> {
        let bounds = Bounds { base_offset: block.base_offset, known: limit, limit };
        let mut window = Window::new(block, block.readable.load(Ordering::Acquire));
        let walked = walk(&mut window, bounds, |batch| {
            if let Some(producer) = batch.producer() {
                table.record(producer, batch.record_count(), batch.base_offset());
            }
        });
        walked.map_err(|e| block.slots.file.error("read", e))
    }

    /// Forgets offsets from `end` on.
    pub(crate) fn truncate_to(&self, end: u64) -> Result<()> {
        let _changing = self.changing.lock();
        let _reshaping = self.reshaping.write();
        let truncated = self.engine.group.exclusive(|| {
            // What is in memory only has no place to be cut at: first everything is with the disk.
            self.engine.commit(u64::MAX);
            let mut writer = self.writer.lock();
            match writer.phase {
                Phase::Deleted => return Err(Error::UnknownLog { log: self.id }),
                Phase::Sealed | Phase::Sealing => {
                    return Err(Error::Sealed { log: self.id, end: Offset(writer.end) });
                }
                Phase::Active => {}
            }
            self.check_poisoned()?;
            let start = self.start.load(Ordering::Acquire);
            if end < start || end > writer.end {
                let (requested, start, end) = (Offset(end), Offset(start), Offset(writer.end));
                return Err(Error::OffsetOutOfRange { requested, start, end });
            }
            if end == writer.end {
                return Ok(());
            }
            let cut = self.cut(end)?;
            let before = self.engine.blocks.peek_sequence();
            self.say_or_stop(&Record::LogTruncated { log: self.id, end, before })?;
            self.apply_cut(&mut writer, cut);
            Ok(())
        });
        self.engine.waiters.wake_answered();
        truncated
    }

    /// What is left when the log ends there; nothing is changed yet.
    fn cut(&self, end: u64) -> Result<Cut> {
        let blocks = self.directory.read().blocks.clone();
        let kept = blocks.partition_point(|block| block.base_offset < end);
        let Trimmed { mut digest, producers, .. } = self.trimmed.lock().clone();
        let mut producers = ProducerTable::decode(&producers).unwrap_or_default();
        let mut last = None;
        for (index, block) in blocks[..kept].iter().enumerate() {
            // Footers know the producers of whole blocks; without one, the batches do.
            let is_last = index + 1 == kept;
            if let (false, Some(closed)) = (is_last, block.closed.get())
                && let Some(table) = self.producers_in_footer(block)?
            {
                producers = table;
                digest = digest.concat(closed.digest);
                continue;
            }
            let limit = closed_end(block).unwrap_or(end).min(end);
            let walked = self.walk_producers(block, limit, &mut producers)?;
            if is_last && walked.fences.last().is_some_and(|(_, fence_end)| *fence_end == end) {
                // Either the offset is inside of a batch, or what is there is damaged.
                let (start, _) = walked.fences[walked.fences.len() - 1];
                return Err(Error::Corrupted { log: self.id, start: Offset(start), end: Offset(end) });
            }
            digest = digest.concat(walked.digest);
            last = Some(walked);
        }
        let closed = last.filter(|_| kept > 0).map(|walked| {
            let (max_timestamp, data_end, digest) = (walked.max_timestamp, walked.data_end, walked.digest);
            (ClosedBlock { end_offset: end, max_timestamp, data_end, digest }, walked.entries)
        });
        Ok(Cut { end, kept, closed, producers, digest })
    }

    fn apply_cut(&self, writer: &mut Writer, cut: Cut) {
        let Cut { end, kept, closed, producers, digest } = cut;
        self.drop_open(writer);
        (writer.end, writer.taken) = (end, end);
        writer.producers = producers;
        writer.digest = digest;
        self.end.store(end, Ordering::Release);
        self.readable.store(end, Ordering::Release);
        self.synced.fetch_min(end, Ordering::AcqRel);
        self.generation.fetch_add(1, Ordering::AcqRel);
        let mut directory = self.directory.write();
        let freed: Vec<_> = directory.blocks.drain(kept..).collect();
        directory.forget_times();
        directory.fences.retain(|(start, _)| *start < end);
        if let (Some(last), Some((closed, entries))) = (directory.blocks.last_mut(), closed) {
            // The same slots, as a block that ended there; who still has the old one looks again.
            let cut = Arc::new(last.cut_to(closed, BlockIndex::Loaded(Arc::new(entries))));
            std::mem::replace(last, cut).freed.store(true, Ordering::Release);
        }
        let closed = directory.blocks.iter().filter_map(|block| block.closed.get());
        let size = closed.map(|closed| closed.data_end - PAGE_BYTES).sum();
        self.size_bytes.store(size, Ordering::Relaxed);
        drop(directory);
        self.free(freed);
    }

    /// Everything of the log goes. The promise is in the journal.
    pub(crate) fn apply_delete(&self) {
        let mut writer = self.writer.lock();
        writer.phase = Phase::Deleted;
        self.drop_open(&mut writer);
        let Directory { blocks, .. } = std::mem::take(&mut *self.directory.write());
        self.free(blocks);
    }

    /// The store is closed: lets go of the log's files.
    pub(crate) fn let_go(&self) {
        let mut writer = self.writer.lock();
        writer.open = None;
        writer.resume = None;
        writer.pending.clear();
        drop(writer);
        self.directory.write().blocks.clear();
    }

    /// What was appended and not written goes.
    fn drop_open(&self, writer: &mut Writer) {
        writer.open = None;
        writer.resume = None;
        writer.pending.clear();
        writer.waiting_bytes = 0;
        self.waiting_bytes.store(0, Ordering::Release);
    }

    pub(super) fn free(&self, blocks: Vec<Arc<Block>>) {
        for block in &blocks {
            let data_end = block.closed.get().map_or(0, |closed| closed.data_end - PAGE_BYTES);
            let _ = self.size_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |size| {
                Some(size.saturating_sub(data_end))
            });
            block.freed.store(true, Ordering::Release);
            self.engine.blocks.free(&block.slots);
        }
        if !blocks.is_empty() {
            self.engine.tending.wake();
        }
    }
}

/// A log that ends earlier.
struct Cut {
    end: u64,
    /// Blocks that stay.
    kept: usize,
    /// The last of them, closed at the end, and its index.
    closed: Option<(ClosedBlock, Vec<IndexEntry>)>,
    producers: ProducerTable,
    digest: Digest,
}

fn closed_end(block: &Block) -> Option<u64> {
    block.closed.get().map(|closed| closed.end_offset)
}
