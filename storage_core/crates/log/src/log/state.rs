//! A log in memory: what its one writer holds under a short mutex, and what readers see without it.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use super::block::Block;
use super::open_block::{OpenBlock, Resume};
use super::times::TimeIndex;
use crate::batch::{Batch, OFFSETS_END};
use crate::commit::engine::{Engine, poison};
use crate::digest::Digest;
use crate::disk::TailKind;
use crate::error::{Error, Result};
use crate::handle::LogSpec;
use crate::handle::arrivals::Arrivals;
use crate::handle::cursors::CursorPlace;
use crate::handle::retention::Retaining;
use crate::log::producers::{Admission, ProducerTable};
use crate::options::FsyncSchedule;
use crate::resources::journal::{Record, SealedEntry};
use crate::seeded;
use crate::sync::{
    Condvar, Mutex, MutexGuard, RwLock,
    atomic::{AtomicBool, AtomicU64},
};
use crate::types::{Epoch, LogId, Offset};

pub(crate) struct LogState {
    pub(crate) id: LogId,
    pub(crate) name: String,
    pub(crate) base_offset: u64,
    pub(crate) epoch: Epoch,
    /// Encoded table that the log started with.
    pub(crate) first_producers: Vec<u8>,
    /// Its own schedule; the store's without one.
    pub(crate) own_fsync: Option<FsyncSchedule>,
    pub(crate) fsync: FsyncSchedule,
    pub(crate) engine: Arc<Engine>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) directory: RwLock<Directory>,
    /// First offset not yet written.
    pub(crate) end: AtomicU64,
    /// Readers see what lies below; never goes beyond what the schedule promises.
    pub(crate) readable: AtomicU64,
    /// Everything below is on the disk.
    pub(crate) synced: AtomicU64,
    pub(crate) start: AtomicU64,
    /// What is remembered of the batches in blocks that were trimmed.
    pub(crate) trimmed: Mutex<Trimmed>,
    pub(crate) size_bytes: AtomicU64,
    pub(crate) sealed: OnceLock<SealedEntry>,
    pub(crate) poisoned: OnceLock<Arc<str>>,
    pub(crate) suspect: AtomicBool,
    /// In the engine's list of logs to commit.
    pub(crate) dirty: AtomicBool,
    /// In the engine's list of logs whose synced mark is behind.
    pub(crate) unmarked: AtomicBool,
    /// Synced bytes since the last mark.
    pub(crate) unmarked_bytes: AtomicU64,
    /// In memory only, right after the last commit.
    pub(crate) waiting_bytes: AtomicU64,
    /// Seals, trims, truncations and batch groups come one at a time.
    pub(crate) changing: Mutex<()>,
    /// Compactions come one at a time.
    pub(crate) compacting: Mutex<()>,
    /// A batch group is at its end.
    pub(crate) grouped: Condvar,
    /// Held for writing by truncations and trims, from before their promise to when memory says it; for reading by
    /// cursors while they read and move.
    pub(crate) reshaping: RwLock<()>,
    /// Changes when what was readable does not count any more: a truncation.
    pub(crate) generation: AtomicU64,
    pub(crate) cursors: Mutex<HashMap<String, Arc<CursorPlace>>>,
    /// Who waits for records.
    pub(crate) arrivals: Arrivals,
    pub(crate) retaining: Retaining,
}

/// What is remembered of blocks that are gone.
#[derive(Clone)]
pub(crate) struct Trimmed {
    /// Where they end.
    pub(crate) end: u64,
    pub(crate) digest: Digest,
    /// Encoded table at the end of the last of them, or that the log started with.
    pub(crate) producers: Vec<u8>,
}

/// Blocks in order of offset, and damage.
#[derive(Default)]
pub(crate) struct Directory {
    /// Each starts where the one before ends, but for damage.
    pub(crate) blocks: Vec<Arc<Block>>,
    /// Damaged ranges, in order.
    pub(crate) fences: Vec<(u64, u64)>,
    pub(crate) times: TimeIndex,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Active,
    /// Takes no appends while its end is being made durable.
    Sealing,
    Sealed,
    Deleted,
}

pub(crate) struct Writer {
    pub(crate) phase: Phase,
    /// The store was closed.
    pub(crate) is_closed: bool,
    /// A batch group is being written: appends wait.
    pub(crate) is_grouping: bool,
    pub(crate) open: Option<OpenBlock>,
    /// Earlier blocks with bytes that a commit must still write or sync.
    pub(crate) pending: Vec<OpenBlock>,
    /// Unwritten bytes of the open block and the pending ones; counted where commits write appends.
    pub(crate) waiting_bytes: u64,
    /// A recovered block to go on in, opened by the first append.
    pub(crate) resume: Option<Resume>,
    pub(crate) end: u64,
    /// Offsets below were taken by commits that are over, or succeed before a later one may write.
    pub(crate) taken: u64,
    /// Sequence of the log's last block.
    pub(crate) last_sequence: u64,
    pub(crate) producers: ProducerTable,
    /// Over all batches since the log's base.
    pub(crate) digest: Digest,
}

/// Which batches of producers are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admit {
    /// The next of each producer; one that is there already is recognised.
    InSequence,
    /// All: another copy has taken them, and the one before may be lost.
    AsCopied,
}

/// Where an append went.
pub(crate) struct Placed {
    pub(crate) base_offset: u64,
    pub(crate) end_offset: u64,
    pub(crate) duplicate: bool,
    /// The log's generation when the batch was placed.
    pub(crate) generation: u64,
    /// Bytes of the log that are in memory only.
    pub(crate) waiting_bytes: u64,
}

impl LogState {
    /// A new log without blocks.
    pub(crate) fn new(engine: Arc<Engine>, spec: LogSpec, first_producers: Vec<u8>) -> Self {
        let LogSpec { id, name, base_offset: Offset(base_offset), epoch, producers, fsync } = spec;
        let writer = Writer {
            phase: Phase::Active,
            is_closed: false,
            is_grouping: false,
            open: None,
            pending: Vec::new(),
            waiting_bytes: 0,
            resume: None,
            end: base_offset,
            taken: base_offset,
            last_sequence: 0,
            producers,
            digest: Digest::default(),
        };
        Self {
            id,
            name,
            base_offset,
            epoch,
            own_fsync: fsync,
            fsync: fsync.unwrap_or(engine.fsync),
            engine,
            writer: Mutex::new(writer),
            directory: RwLock::default(),
            end: AtomicU64::new(base_offset),
            readable: AtomicU64::new(base_offset),
            synced: AtomicU64::new(base_offset),
            start: AtomicU64::new(base_offset),
            trimmed: Mutex::new(Trimmed {
                end: base_offset,
                digest: Digest::default(),
                producers: first_producers.clone(),
            }),
            first_producers,
            size_bytes: AtomicU64::new(0),
            sealed: OnceLock::new(),
            poisoned: OnceLock::new(),
            suspect: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
            unmarked: AtomicBool::new(false),
            unmarked_bytes: AtomicU64::new(0),
            waiting_bytes: AtomicU64::new(0),
            changing: Mutex::new(()),
            compacting: Mutex::new(()),
            grouped: Condvar::default(),
            reshaping: RwLock::default(),
            generation: AtomicU64::new(0),
            cursors: Mutex::default(),
            arrivals: Arrivals::default(),
            retaining: Retaining::default(),
        }
    }

    /// Whether its data is ever synced.
    pub(crate) fn syncs(&self) -> bool {
        self.fsync.syncs()
    }

    /// Appends are followed by a commit: of the caller, the committer or a timer.
    pub(super) fn commits_appends(&self) -> bool {
        self.syncs() || self.engine.tail_kind == TailKind::Buffered
    }

    /// Says something of the log in the journal, as durably as its data is.
    pub(crate) fn say(&self, record: &Record<'_>) -> Result<()> {
        self.engine.journal.say(record, self.syncs())
    }

    /// The store closes; a group that is under way comes first.
    pub(crate) fn refuse_appends(&self) {
        let _changing = self.changing.lock();
        self.writer.lock().is_closed = true;
    }

    /// Appends under the log's mutex: no system call where the next block and its space are ready.
    #[inline]
    pub(crate) fn append(self: &Arc<Self>, batch: &Batch<'_>, admit: Admit) -> Result<Placed> {
        let records = batch.record_count();
        batch.check_dense()?;
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
            return Ok(Placed { base_offset, end_offset, duplicate: true, generation, waiting_bytes: 0 });
        }
        let base_offset = writer.end;
        let end_offset = base_offset + u64::from(records);
        if end_offset > i64::MAX as u64 {
            return Err(Error::TooLarge {
                bytes: u64::from(records),
                bytes_max: i64::MAX as u64 - base_offset,
            });
        }
        let bytes = batch.bytes();
        if let Some(resume) = &writer.resume {
            writer.open = Some(self.reopen(resume)?);
            writer.resume = None;
        }
        let has_room = |open: &OpenBlock| open.tail.written() + bytes.len() as u64 <= open.data_max;
        if !writer.open.as_ref().is_some_and(has_room) {
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
        // Base offset and mark are outside the batch's checksum: patched on the way.
        let begins_commit = self.begins_commit(base_offset, writer.taken);
        let mark = open.block.key.mark(position, base_offset, batch.header(), begins_commit);
        let front = batch.front_with(base_offset, mark);
        let appended = open.tail.append(&front).and_then(|()| open.tail.append(&bytes[OFFSETS_END..]));
        if let Err(error) = appended {
            let file = &open.block.slots.file;
            let error = poison(file, "write", error);
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
            self.engine.tending.extend(&open.block, end);
        }
        if self.commits_appends() && !self.dirty.swap(true, Ordering::AcqRel) {
            self.engine.mark_dirty(self);
        }
        if self.engine.tail_kind == TailKind::Buffered {
            writer.waiting_bytes += bytes.len() as u64;
        }
        let waiting_bytes = writer.waiting_bytes;
        let is_awaited = self.fsync.publishes_at_append() && self.arrivals.are_awaited();
        drop(guard);
        if is_awaited {
            self.arrivals.announce();
        }
        Ok(Placed { base_offset, end_offset, duplicate: false, generation, waiting_bytes })
    }

    /// Whether everything in front of a batch will be durable before the batch can be written. Bytes in memory are written by
    /// the commit after the one that took what was in front of them, and only if that one succeeded; pages of a mapping are
    /// written whenever the kernel likes.
    #[inline]
    fn begins_commit(&self, base_offset: u64, taken: u64) -> bool {
        let durable_first = match self.engine.tail_kind {
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

    pub(crate) fn check_active(&self, writer: &Writer) -> Result<()> {
        match writer.phase {
            Phase::Active if writer.is_closed => Err(Error::Closed),
            Phase::Active => self.check_poisoned(),
            Phase::Sealing | Phase::Sealed => Err(Error::Sealed { log: self.id, end: Offset(writer.end) }),
            Phase::Deleted => Err(Error::UnknownLog { log: self.id }),
        }
    }

    /// Whether a wait for the commit of what was appended up to `end` is over. A truncation commits everything before it
    /// cuts: what it cut off had been committed.
    pub(crate) fn is_answered(&self, end: u64, generation: u64) -> bool {
        self.is_committed(end, generation) || self.poisoned.get().is_some()
    }

    /// What such a wait ends with.
    pub(crate) fn commit_result(&self, end: u64, generation: u64) -> Result<()> {
        if self.is_committed(end, generation) { Ok(()) } else { self.check_poisoned() }
    }

    fn is_committed(&self, end: u64, generation: u64) -> bool {
        self.readable.load(Ordering::Acquire) >= end || self.generation.load(Ordering::Acquire) != generation
    }

    pub(crate) fn check_poisoned(&self) -> Result<()> {
        match self.poisoned.get() {
            Some(reason) => Err(Error::Poisoned { reason: Arc::clone(reason) }),
            None => Ok(()),
        }
    }

    /// As [`LogState::say`], for what changes the log's end: where it fails, a restart may find it said, and nothing that
    /// is appended afterwards could be promised.
    pub(crate) fn say_or_stop(&self, record: &Record<'_>) -> Result<()> {
        self.say(record).inspect_err(|error| {
            if !matches!(error, Error::NoSpace { .. }) && !seeded!(FailedTruncationGoesOn) {
                self.poison(&error.to_string().into());
            }
        })
    }

    pub(crate) fn poison(&self, reason: &Arc<str>) {
        let _ = self.poisoned.set(Arc::clone(reason));
    }
}

impl Writer {
    /// Digest of the batches of a block that is not closed.
    pub(crate) fn digest_of_open(&self, block: &Arc<Block>) -> Digest {
        match (&self.open, &self.resume) {
            (Some(open), _) if Arc::ptr_eq(&open.block, block) => open.digest,
            (_, Some(resume)) if Arc::ptr_eq(&resume.block, block) => resume.digest,
            _ => Digest::default(),
        }
    }
}
