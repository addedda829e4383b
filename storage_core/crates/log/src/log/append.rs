//! The append: a batch gets its offsets under the log's mutex, and its bytes go into the tail of the open block.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::open_block::OpenBlock;
use super::state::{LogState, Writer};
use crate::batch::{Batch, OFFSETS_END};
use crate::disk::TailKind;
use crate::error::{Error, Result};
use crate::format::epochs::{EpochRun, EpochRuns};
use crate::producers::Admission;
use crate::sync::MutexGuard;
use crate::types::{Epoch, Offset};

/// Rule by which batches of producers are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admit {
    /// Takes the next batch of each producer; one that is there already is recognised.
    InSequence,
    /// Takes all batches: another copy has taken them, and the one before may be lost. A compaction may have taken records
    /// out of them.
    AsCopied,
}

/// Where a batch went, and how much of its log waits to be written.
pub(crate) struct AppendOutcome {
    pub(crate) base_offset: u64,
    pub(crate) end_offset: u64,
    pub(crate) duplicate: bool,
    /// Generation of the log when the batch was placed.
    pub(crate) generation: u64,
    /// Bytes of the log that are in memory only.
    pub(crate) waiting_bytes: u64,
}

impl LogState {
    /// Appends a batch under the log's mutex, without a system call where the next block and its space are ready.
    #[inline]
    pub(crate) fn append(&self, batch: &Batch<'_>, admit: Admit) -> Result<AppendOutcome> {
        let records = batch.record_count();
        if admit == Admit::InSequence {
            batch.check_dense()?;
        }
        let mut guard = self.writer.lock();
        if guard.is_grouping {
            guard = self.wait_for_group(guard);
        }
        let writer = &mut *guard;
        self.check_active(writer)?;
        let generation = self.generation.load(Ordering::Relaxed);
        let producer = batch.producer();
        if let (Some(producer), Admit::InSequence) = (producer, admit)
            && let Admission::Duplicate { base_offset, end_offset } =
                writer.producers.check(producer, records)?
        {
            return Ok(AppendOutcome {
                base_offset,
                end_offset,
                duplicate: true,
                generation,
                waiting_bytes: 0,
            });
        }
        let base_offset = writer.end;
        let end_offset = base_offset + u64::from(records);
        if end_offset > i64::MAX as u64 {
            return Err(Error::OffsetsExhausted {
                records: u64::from(records),
                offsets_left: i64::MAX as u64 - base_offset,
            });
        }
        let bytes = batch.bytes();
        if let Some(resume) = &writer.resume {
            if resume.block.slots.file.name.tails == self.tails {
                writer.open = Some(self.reopen(resume)?);
                writer.resume = None;
            } else {
                // The log's schedule or the backend has changed, and a file is always written in the same way.
                self.close_block(writer);
            }
        }
        let epoch = writer.epochs.as_ref().map(|epochs| epochs.at(base_offset));
        let takes = |open: &OpenBlock| {
            open.tail.written() + bytes.len() as u64 <= open.data_max
                && epoch.is_none_or(|epoch| open.block.epochs.at(base_offset) == epoch)
        };
        if !writer.open.as_ref().is_some_and(takes) {
            self.open_block(writer, bytes.len() as u64)?;
        }
        let open = writer.open.as_mut().expect("opened above");
        if let Some(reason) = open.block.slots.file.poisoned.get() {
            self.poison(reason);
            return Err(Error::Poisoned { reason: Arc::clone(reason) });
        }
        let position = open.tail.written();
        let end = position + bytes.len() as u64;
        open.block.space.reach(end).map_err(|e| open.block.slots.file.error("grow", e))?;
        // Base offset and mark are outside of the batch's checksum, so they are patched on the way.
        let begins_commit = self.begins_commit(base_offset, writer.taken);
        let mark = open.block.key.mark(position, base_offset, batch.header(), begins_commit);
        let front = batch.front_with(base_offset, mark);
        let appended = open.tail.append(&front).and_then(|()| open.tail.append(&bytes[OFFSETS_END..]));
        if let Err(error) = appended {
            let file = &open.block.slots.file;
            let error = file.poison("write", error);
            self.poison(file.poisoned.get().expect("just now"));
            return Err(error);
        }
        open.note(position, base_offset, batch);
        writer.digest.push(base_offset, records, batch.header().crc);
        if let Some(producer) = producer {
            writer.producers.record(producer, records, base_offset);
        }
        writer.end = end_offset;
        self.end.store(end_offset, Ordering::Release);
        self.size_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if self.fsync.publishes_at_append() {
            open.block.readable.store(end, Ordering::Release);
            self.readable.store(end_offset, Ordering::Release);
        }
        if open.block.space.is_short(end) && !open.block.extending.swap(true, Ordering::AcqRel) {
            self.queues.chores.extend(&open.block, end);
        }
        if self.commits_appends() && !self.dirty.swap(true, Ordering::AcqRel) {
            self.queues.commits.push(self.id, self.fsync);
        }
        if self.tails == TailKind::Buffered {
            writer.waiting_bytes += bytes.len() as u64;
        }
        let waiting_bytes = writer.waiting_bytes;
        let is_awaited = self.fsync.publishes_at_append() && self.arrivals.are_awaited();
        drop(guard);
        if is_awaited {
            self.arrivals.announce();
        }
        Ok(AppendOutcome { base_offset, end_offset, duplicate: false, generation, waiting_bytes })
    }

    /// Sets the epochs of the batches that are appended from now on, as [`crate::Log::set_epochs`] says.
    pub(crate) fn set_epochs(&self, runs: &[(Offset, Epoch)]) -> Result<()> {
        let runs =
            runs.iter().map(|&(Offset(first_offset), epoch)| EpochRun { first_offset, epoch }).collect();
        let mut writer = self.writer.lock();
        self.check_active(&writer)?;
        let end = writer.end;
        let epochs = EpochRuns::covering(runs, end).ok_or_else(|| Error::InvalidOption {
            option: "epochs",
            reason: format!("the runs must ascend by offset, and the first must begin at or before {end}"),
        })?;
        writer.epochs = Some(epochs);
        Ok(())
    }

    /// Whether everything in front of a batch will be durable before the batch can be written; its mark then says so
    /// to a recovery. Bytes in memory are written by the commit after the one that took what was in front of them, and
    /// only if that one succeeded. Pages of a mapping are written whenever the kernel likes.
    #[inline]
    fn begins_commit(&self, base_offset: u64, taken: u64) -> bool {
        let durable_first = match self.tails {
            TailKind::Buffered => taken,
            TailKind::Mapped => self.synced.load(Ordering::Acquire),
        };
        self.syncs() && base_offset == durable_first
    }

    #[cold]
    fn wait_for_group<'a>(&self, mut writer: MutexGuard<'a, Writer>) -> MutexGuard<'a, Writer> {
        while writer.is_grouping {
            writer = self.grouped.wait(writer);
        }
        writer
    }
}
