//! The handle of one log: append, read, seal, trim. It is cheap to clone, and the store stays open as long as a handle
//! lives.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::life::Life;
use super::member::Member;
use super::ticket::CommitTicket;
use crate::batch::Batch;
use crate::error::Result;
use crate::log::append::{Admit, AppendOutcome};
use crate::log::state::{Extent, LogState};
use crate::log::{Slices, TimeSearch};
use crate::producers::ProducerTable;
use crate::resources::Resources;
use crate::resources::journal::Record;
use crate::types::{Epoch, FsyncSchedule, LogId, Offset};

/// Result of an append.
#[derive(Debug)]
pub struct AppendReceipt {
    /// Offset of the batch's first record.
    pub base_offset: Offset,
    /// First offset behind the batch.
    pub end_offset: Offset,
    /// Whether the batch was there already, with these offsets; then nothing was written.
    pub duplicate: bool,
    /// Ticket that resolves when the batch is durable.
    pub commit: CommitTicket,
}

/// The seal of a log: its end and its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// First offset behind the last record.
    pub end: Offset,
    /// Digest of the log: equal for logs with equal batches, wherever they are stored.
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

    /// Identity of the log.
    pub fn id(&self) -> LogId {
        self.member.log.id
    }

    /// Name of the log.
    pub fn name(&self) -> &str {
        &self.member.log.name
    }

    /// Epoch that the log was made with, which is written into its batches unless [`Log::set_epochs`] names others.
    pub fn epoch(&self) -> Epoch {
        self.member.log.epoch
    }

    /// Schedule of the log's syncs: its own, else the store's.
    pub fn fsync(&self) -> FsyncSchedule {
        self.member.log.fsync
    }

    /// Offset of the log's first record ever.
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

    /// First offset that cannot be read yet; below it the promise of the schedule is kept. Under `Milliseconds` and
    /// `NoFsync` it is the end offset.
    pub fn durable_offset(&self) -> Offset {
        Offset(self.member.log.readable.load(Ordering::Acquire))
    }

    /// Bytes of the log's batches.
    pub fn size_bytes(&self) -> u64 {
        self.member.log.size_bytes.load(Ordering::Relaxed)
    }

    /// The greatest timestamp of the log's records, written or not, milliseconds since the epoch; `None` if it has none. A
    /// record that a compaction has taken out of its batch still counts as long as another one of the batch is there.
    pub fn newest_timestamp(&self) -> Option<i64> {
        self.member.log.newest_timestamp()
    }

    /// Whether the log was sealed.
    pub fn is_sealed(&self) -> bool {
        self.member.log.sealed.get().is_some()
    }

    /// Whether the log may have ended later than it does: a torn tail was cut, its end is damaged, or it does not sync
    /// each append and the store was not closed in order. [`Log::clear_suspect`] ends that. Damage with good batches
    /// behind it does not count; [`Log::recount`] tells which offsets are missing.
    pub fn is_suspect(&self) -> bool {
        self.member.log.suspect.load(Ordering::Acquire)
    }

    /// Notes that the log has been filled from its copies and is not suspect any more. Durable on return, unless the
    /// log never syncs.
    pub fn clear_suspect(&self) -> Result<()> {
        self.resources().check_open()?;
        self.member.log.say(&Record::Cleared { log: self.id() })?;
        self.member.log.suspect.store(false, Ordering::Release);
        Ok(())
    }

    /// Appends a batch and assigns its offsets: base offset and leader epoch are written into the stored copy. A
    /// repetition of its producer is recognised or refused. The call only copies bytes, unless the log outgrew the
    /// space made ready, or megabytes of it wait for a commit. The batch is durable when the ticket resolves.
    ///
    /// Errors after which nothing has changed: `Sealed`, `OutOfOrderSequence`, `ProducerFenced`, `TooLarge`,
    /// `OffsetsExhausted`, `UnknownLog` (deleted), `NoSpace`. Error after a failed write: `Poisoned`.
    #[inline]
    pub fn append(&self, batch: &Batch<'_>) -> Result<AppendReceipt> {
        self.append_as(batch, Admit::InSequence)
    }

    /// Appends a batch that another copy of this log has. The sequence of its producer is remembered and not checked,
    /// since the batch before may be among those that are left out (see [`Log::skip_to`]). A compaction may have taken
    /// records out of the batch, or all of them; it takes as many offsets as it was made with.
    pub fn append_copied(&self, batch: &Batch<'_>) -> Result<AppendReceipt> {
        self.append_as(batch, Admit::AsCopied)
    }

    /// Sets the epochs of the batches that are appended from now on, for a log that holds the batches of several segments:
    /// a batch has the epoch of the last run that begins at or before it, and a read gives it back. The runs ascend, and
    /// the first begins at or before the log's end. A batch whose epoch the open block does not know opens the next block.
    ///
    /// The runs are in memory only; those of written blocks are durable with them. So after a restart appends take the epoch
    /// that the last block has at its end, or the log's own in a new block, until the runs are set again. The batches of a
    /// batch group have the log's own.
    ///
    /// Errors: `InvalidOption` if the runs do not ascend or begin behind the log's end; `Sealed`, `UnknownLog` (deleted),
    /// `Poisoned`, `Closed`.
    pub fn set_epochs(&self, runs: &[(Offset, Epoch)]) -> Result<()> {
        self.resources().check_open()?;
        self.member.log.set_epochs(runs)
    }

    #[inline]
    fn append_as(&self, batch: &Batch<'_>, admit: Admit) -> Result<AppendReceipt> {
        self.resources().check_open()?;
        let outcome = self.member.log.append(batch, admit)?;
        let AppendOutcome { base_offset, end_offset, duplicate, generation, waiting_bytes } = outcome;
        self.member.committer.relieve(&self.member.log, waiting_bytes);
        Ok(AppendReceipt {
            base_offset: Offset(base_offset),
            end_offset: Offset(end_offset),
            duplicate,
            commit: CommitTicket::new(&self.member, Extent { end: end_offset, generation }),
        })
    }

    /// Whether an append would only copy bytes: the schedule lets it not wait for a sync, and the last commit left
    /// enough memory.
    pub fn appends_at_once(&self) -> bool {
        self.member.log.fsync.publishes_at_append() && self.member.committer.has_memory_for(&self.member.log)
    }

    /// Blocks until everything appended so far is as durable as the schedule promises.
    pub fn commit(&self) -> Result<()> {
        self.resources().check_origin()?;
        self.member.committer.wait(&self.member.log, self.member.log.extent())
    }

    /// Gives a ticket for what [`Log::commit`] waits for, to be awaited in any runtime.
    pub fn committed(&self) -> CommitTicket {
        CommitTicket::new(&self.member, self.member.log.extent())
    }

    /// Reads whole batches from the one that contains `offset`, about `bytes_max` bytes: at least one batch, unless
    /// `offset` is the durable offset. Verifies checksums. May block on the disk.
    ///
    /// Errors: `OffsetOutOfRange`; `Corrupted` if the batch of `offset` is damaged (read on at the range's end).
    pub fn read(&self, offset: Offset, bytes_max: usize) -> Result<Slices> {
        self.resources().check_open()?;
        self.member.log.read(offset.0, bytes_max)
    }

    /// Whether a read from an offset on will hardly wait for the disk: it was written just now, and is in memory. May be wrong a
    /// moment later.
    pub fn is_in_memory(&self, offset: Offset) -> bool {
        self.member.log.is_in_memory(offset.0)
    }

    /// Finds the first readable record of some offsets that is not older than `ms`, in milliseconds since the Unix epoch.
    /// May block on the disk; reads little more than the batch that has it.
    pub fn find_by_timestamp(&self, ms: i64, within: Range<Offset>) -> Result<TimeSearch> {
        self.resources().check_open()?;
        self.member.log.find_by_timestamp(ms, within.start.0..within.end.0)
    }

    /// Finds the readable record of some offsets that has the greatest timestamp; the first of those that have it. May block
    /// on the disk; reads the block that has it.
    pub fn find_newest(&self, within: Range<Offset>) -> Result<TimeSearch> {
        self.resources().check_open()?;
        self.member.log.find_newest(within.start.0..within.end.0)
    }

    /// Ends the log: appends are refused from now on. Its data is synced first, then its end, its digest and `value`
    /// (opaque to the engine); if the log never syncs, none of them is. A second seal with the same value gives the
    /// same answer, one with another value fails with `Sealed`. After `NoSpace` the log is open as before.
    pub fn seal(&self, value: &[u8]) -> Result<Seal> {
        self.resources().check_open()?;
        self.member.seal(value).map(|entry| Seal { end: Offset(entry.end), digest: entry.digest.value })
    }

    /// The value that the log was sealed with, once it is sealed.
    pub fn sealed_value(&self) -> Option<Bytes> {
        self.member.log.sealed.get().map(|entry| entry.value.clone())
    }

    /// End and digest of the log, once it is sealed.
    pub fn sealed(&self) -> Option<Seal> {
        self.member.log.sealed.get().map(|entry| Seal { end: Offset(entry.end), digest: entry.digest.value })
    }

    /// The producer table at the log's end.
    pub fn producers(&self) -> ProducerTable {
        self.resources().assert_origin();
        self.member.log.writer.lock().producers.clone()
    }

    /// Whether [`ProducerTable::is_crowded`] holds for the table at the log's end.
    pub fn is_crowded_with_producers(&self) -> bool {
        self.resources().assert_origin();
        self.member.log.writer.lock().producers.is_crowded()
    }

    /// The producer table before the log's first batch; `None` if the journal has lost it.
    pub fn first_producers(&self) -> Option<ProducerTable> {
        self.member.log.first_producers.clone()
    }

    /// Digest of all batches as they are now: equal for logs with equal batches, wherever they are stored. A
    /// compaction changes it, since it leaves other batches.
    pub fn digest(&self) -> u64 {
        self.resources().assert_origin();
        self.member.log.writer.lock().digest.value
    }

    /// Writes damaged batches again, from the bytes that another copy has: whole batches from `offset` on, which must
    /// be those at the front or at the back of a damaged range. Durable on return. False if they do not fit there
    /// exactly, or the block there takes appends (see [`Log::recount`]); then nothing was written.
    pub fn mend(&self, offset: Offset, batches: &[u8]) -> Result<bool> {
        self.resources().check_open()?;
        self.member.log.mend(offset.0, batches)
    }

    /// Reads every batch of an open log and gives the damaged ranges of offsets, in order. From then on
    /// [`Log::digest`] and [`Log::producers`] cover the good batches, also after [`Log::mend`]. Everything damaged can
    /// be mended afterwards, since the log goes on in a new block. Fails with `Sealed` for a sealed log.
    pub fn recount(&self) -> Result<Vec<(Offset, Offset)>> {
        self.resources().check_open()?;
        self.member.recount()
    }

    /// Leaves out the offsets from the end of an open log up to `to`: they are a damaged range for ever, since no copy
    /// has them. Durable on return, unless the log never syncs. Errors: `OffsetOutOfRange` unless `to` is behind the
    /// end; `Sealed`.
    pub fn skip_to(&self, to: Offset) -> Result<()> {
        self.resources().check_open()?;
        self.member.skip_to(to.0)
    }

    /// Drops records from `end` on, which must be the start of a batch. Durable on return, and so is everything before
    /// `end`, unless the log never syncs. Fails with `Sealed` for a sealed log.
    pub fn truncate_to(&self, end: Offset) -> Result<()> {
        self.resources().check_open()?;
        self.member.truncate_to(end.0)
    }

    /// Drops records below `offset`; offsets of the others stay. Durable on return, unless the log never syncs; space
    /// of whole blocks is given back in the background. Waits for a batch group of the log that is being written.
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
