//! One log of a store: append, read, seal, trim. A handle is cheap to clone and works as long as it lives.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::life::Life;
use super::member::Member;
use super::ticket::CommitTicket;
use crate::batch::Batch;
use crate::error::Result;
use crate::log::Slices;
use crate::log::append::{Admit, AppendOutcome};
use crate::log::producers::ProducerTable;
use crate::log::state::{Extent, LogState};
use crate::options::FsyncSchedule;
use crate::resources::Resources;
use crate::resources::journal::Record;
use crate::types::{Epoch, LogId, Offset};

/// Where an append went.
#[derive(Debug)]
pub struct Appended {
    /// Offset of the batch's first record.
    pub base_offset: Offset,
    /// First offset behind the batch.
    pub end_offset: Offset,
    /// The batch was there already, with these offsets; nothing was written.
    pub duplicate: bool,
    /// Resolves when it is durable.
    pub commit: CommitTicket,
}

/// The end of a sealed log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// First offset behind the last record.
    pub end: Offset,
    /// Equal for logs with equal batches, wherever they are stored.
    pub digest: u64,
}

/// A log of an open store.
#[derive(Clone)]
pub struct Log {
    member: Arc<Member>,
    /// Keeps the store's threads running.
    _life: Arc<Life>,
}

impl Log {
    pub(crate) fn new(log: Arc<LogState>, life: Arc<Life>) -> Self {
        Self { member: Arc::new(Member { log, committer: Arc::clone(&life.committer) }), _life: life }
    }

    pub(crate) fn state(&self) -> &LogState {
        &self.member.log
    }

    pub(super) fn member(&self) -> &Arc<Member> {
        &self.member
    }

    pub(crate) fn resources(&self) -> &Resources {
        self.member.resources()
    }

    /// What the log is.
    pub fn id(&self) -> LogId {
        self.member.log.id
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.member.log.name
    }

    /// Written into its batches.
    pub fn epoch(&self) -> Epoch {
        self.member.log.epoch
    }

    /// When its data is synced.
    pub fn fsync(&self) -> FsyncSchedule {
        self.member.log.fsync
    }

    /// Offset of its first record ever.
    pub fn base_offset(&self) -> Offset {
        Offset(self.member.log.base_offset)
    }

    /// First offset that was not trimmed.
    pub fn start_offset(&self) -> Offset {
        Offset(self.member.log.start.load(Ordering::Acquire))
    }

    /// First offset not yet written.
    pub fn end_offset(&self) -> Offset {
        Offset(self.member.log.end.load(Ordering::Acquire))
    }

    /// First offset that cannot be read yet: what the schedule promises is kept below. Under `Milliseconds` and
    /// `NoFsync` that is what was written.
    pub fn durable_offset(&self) -> Offset {
        Offset(self.member.log.readable.load(Ordering::Acquire))
    }

    /// Bytes of its batches.
    pub fn size_bytes(&self) -> u64 {
        self.member.log.size_bytes.load(Ordering::Relaxed)
    }

    /// Whether its end is decided.
    pub fn is_sealed(&self) -> bool {
        self.member.log.sealed.get().is_some()
    }

    /// Whether a torn tail was cut, or what is damaged goes up to the end, or the log does not sync each append and the
    /// store was not closed in order; and it was not cleared since: it may have ended later than it does. Damage with good
    /// batches behind it is none of that: [`Log::recount`] tells which offsets are missing.
    pub fn is_suspect(&self) -> bool {
        self.member.log.suspect.load(Ordering::Acquire)
    }

    /// Says that the log has been filled from its copies. Durable on return, but where the log never syncs.
    pub fn clear_suspect(&self) -> Result<()> {
        self.resources().check_open()?;
        self.member.log.say(&Record::Cleared { log: self.id() })?;
        self.member.log.suspect.store(false, Ordering::Release);
        Ok(())
    }

    /// Appends a batch: assigns its offsets (base offset and leader epoch are written into the stored copy), refuses
    /// or recognises repetitions of its producer. Copies bytes only, unless the log outgrew the space made ready, or
    /// megabytes of it wait for a commit. Durable when the ticket resolves.
    ///
    /// Errors: `Sealed`, `OutOfOrderSequence`, `ProducerFenced`, `TooLarge`, `UnknownLog` (deleted) and `NoSpace`, after
    /// which nothing has changed; `Poisoned` after a failed write.
    #[inline]
    pub fn append(&self, batch: &Batch<'_>) -> Result<Appended> {
        self.append_as(batch, Admit::InSequence)
    }

    /// The same with a batch of another copy of this log: its producer's sequence is remembered and not checked, for the
    /// batch before may be among those that are left out (see [`Log::skip_to`]).
    pub fn append_copied(&self, batch: &Batch<'_>) -> Result<Appended> {
        self.append_as(batch, Admit::AsCopied)
    }

    #[inline]
    fn append_as(&self, batch: &Batch<'_>, admit: Admit) -> Result<Appended> {
        self.resources().check_open()?;
        let outcome = self.member.log.append(batch, admit)?;
        let AppendOutcome { base_offset, end_offset, duplicate, generation, waiting_bytes } = outcome;
        self.member.committer.relieve(&self.member.log, waiting_bytes);
        Ok(Appended {
            base_offset: Offset(base_offset),
            end_offset: Offset(end_offset),
            duplicate,
            commit: CommitTicket::new(&self.member, Extent { end: end_offset, generation }),
        })
    }

    /// Whether an append would only copy: it waits neither for a sync, by the schedule, nor for memory, as far as the last
    /// commit saw.
    pub fn appends_at_once(&self) -> bool {
        self.member.log.fsync.publishes_at_append() && self.member.committer.has_memory_for(&self.member.log)
    }

    /// Blocks until everything appended so far is as durable as the schedule promises.
    pub fn commit(&self) -> Result<()> {
        self.resources().check_origin()?;
        self.member.committer.wait(&self.member.log, self.member.log.extent())
    }

    /// As [`Log::commit`], to be awaited in any runtime.
    pub fn committed(&self) -> CommitTicket {
        CommitTicket::new(&self.member, self.member.log.extent())
    }

    /// Whole batches from the one that contains `offset`, about `bytes_max` bytes: at least one batch, unless `offset`
    /// is the durable offset. Checksums are verified. May read from the disk.
    ///
    /// Errors: `OffsetOutOfRange`; `Corrupted` if the batch of `offset` is damaged (read on at the range's end).
    pub fn read(&self, offset: Offset, bytes_max: usize) -> Result<Slices> {
        self.resources().check_open()?;
        self.member.log.read(offset.0, bytes_max)
    }

    /// First readable offset whose record is not older than that time, in milliseconds since the epoch.
    pub fn find_by_timestamp(&self, ms: i64) -> Result<Option<Offset>> {
        self.resources().check_open()?;
        self.member.log.find_by_timestamp(ms)
    }

    /// Ends the log: appends are refused from now on. First its data is synced, then end, digest and `value` (opaque to
    /// the engine) are; where the log never syncs neither is. The same value again answers the same; another is refused with
    /// `Sealed`. After `NoSpace` the log is open as before.
    pub fn seal(&self, value: &[u8]) -> Result<Sealed> {
        self.resources().check_open()?;
        self.member.seal(value).map(|entry| Sealed { end: Offset(entry.end), digest: entry.digest.value })
    }

    /// What the log was sealed with.
    pub fn sealed_value(&self) -> Option<Bytes> {
        self.member.log.sealed.get().map(|entry| entry.value.clone())
    }

    /// End and digest, once sealed.
    pub fn sealed(&self) -> Option<Sealed> {
        self.member
            .log
            .sealed
            .get()
            .map(|entry| Sealed { end: Offset(entry.end), digest: entry.digest.value })
    }

    /// What is known of producers at the log's end.
    pub fn producers(&self) -> ProducerTable {
        self.resources().assert_origin();
        self.member.log.writer.lock().producers.clone()
    }

    /// See [`ProducerTable::is_crowded`].
    pub fn is_crowded_with_producers(&self) -> bool {
        self.resources().assert_origin();
        self.member.log.writer.lock().producers.is_crowded()
    }

    /// What was known of producers before the log's first batch, encoded.
    pub fn first_producers(&self) -> Bytes {
        Bytes::copy_from_slice(&self.member.log.first_producers)
    }

    /// Over all batches as they are now: equal for logs with equal batches, wherever they are stored. A compaction changes
    /// it, for what it leaves is another generation of the log.
    pub fn digest(&self) -> u64 {
        self.resources().assert_origin();
        self.member.log.writer.lock().digest.value
    }

    /// Writes damaged batches again, as another copy has them: whole batches from `offset` on, which must be those at the
    /// front or at the back of a damaged range. Durable on return. False: they do not fit there exactly, or the block there
    /// takes appends (see [`Log::recount`]); then nothing was written.
    pub fn mend(&self, offset: Offset, batches: &[u8]) -> Result<bool> {
        self.resources().check_open()?;
        self.member.log.mend(offset.0, batches)
    }

    /// Reads every batch of an open log and says what is damaged, as ranges of offsets in order. From then on
    /// [`Log::digest`] and [`Log::producers`] are over the good batches, also after [`Log::mend`], and all that there is
    /// can be mended: the log goes on in a new block. `Sealed` logs are not counted.
    pub fn recount(&self) -> Result<Vec<(Offset, Offset)>> {
        self.resources().check_open()?;
        self.member.recount()
    }

    /// Leaves out the offsets from the end of an open log up to `to`: they are a damaged range for ever, since no copy has
    /// them. Durable on return. Errors: `OffsetOutOfRange` unless `to` is behind the end, `Sealed`.
    pub fn skip_to(&self, to: Offset) -> Result<()> {
        self.resources().check_open()?;
        self.member.skip_to(to.0)
    }

    /// Drops records from `end` on, which must be the start of a batch. Durable on return, and so is everything before
    /// `end`. `Sealed` logs are not cut.
    pub fn truncate_to(&self, end: Offset) -> Result<()> {
        self.resources().check_open()?;
        self.member.truncate_to(end.0)
    }

    /// Drops records below `offset`; offsets of the others stay. Durable on return; space of whole blocks is given back
    /// in the background. Waits for a batch group of the log that is being written.
    pub fn delete_before(&self, offset: Offset) -> Result<()> {
        self.resources().check_open()?;
        self.member.delete_before(offset.0)
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (start, end) = (self.start_offset(), self.end_offset());
        f.debug_struct("Log")
            .field("id", &self.id().0)
            .field("name", &self.name())
            .field("offsets", &(start..end))
            .finish()
    }
}
