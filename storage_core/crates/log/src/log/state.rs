//! A log in memory: what its one writer holds under a short mutex, and what readers see without it.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use super::block::Block;
use super::directory::Directory;
use super::open_block::{OpenBlock, Resume};
use super::place::CursorPlace;
use super::producers::ProducerTable;
use super::queues::Queues;
use super::rules::RetentionState;
use super::spec::LogSpec;
use crate::digest::Digest;
use crate::disk::TailKind;
use crate::error::{Error, Result};
use crate::options::FsyncSchedule;
use crate::resources::Resources;
use crate::resources::arrivals::Arrivals;
use crate::resources::journal::{Record, SealedEntry};
use crate::seeded;
use crate::sync::{
    Condvar, Mutex, RwLock,
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
    pub(super) resources: Arc<Resources>,
    /// Where the log asks for commits and chores.
    pub(super) queues: Arc<Queues>,
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
    /// The journal says that it is deleted: no commit takes anything of it any more.
    pub(crate) deleted: AtomicBool,
    /// In the queue of logs to commit.
    pub(crate) dirty: AtomicBool,
    /// In the list of logs whose synced mark is behind.
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
    pub(crate) retention: RetentionState,
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

/// How far a log reaches at some moment, and in which generation of it.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) end: u64,
    pub(crate) generation: u64,
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

impl LogState {
    /// A new log without blocks.
    pub(crate) fn new(
        resources: Arc<Resources>,
        queues: Arc<Queues>,
        spec: LogSpec,
        first_producers: Vec<u8>,
    ) -> Self {
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
            fsync: fsync.unwrap_or(resources.fsync),
            resources,
            queues,
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
            deleted: AtomicBool::new(false),
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
            retention: RetentionState::default(),
        }
    }

    /// Whether its data is ever synced.
    pub(crate) fn syncs(&self) -> bool {
        self.fsync.syncs()
    }

    /// Appends are followed by a commit: of the caller, the committer or a timer.
    pub(super) fn commits_appends(&self) -> bool {
        self.syncs() || self.resources.tail_kind == TailKind::Buffered
    }

    /// Says something of the log in the journal, as durably as its data is.
    pub(crate) fn say(&self, record: &Record<'_>) -> Result<()> {
        self.resources.journal.say(record, self.syncs())
    }

    /// The store closes; a group that is under way comes first.
    pub(crate) fn refuse_appends(&self) {
        let _changing = self.changing.lock();
        self.writer.lock().is_closed = true;
    }

    pub(crate) fn check_active(&self, writer: &Writer) -> Result<()> {
        match writer.phase {
            Phase::Active if writer.is_closed => Err(Error::Closed),
            Phase::Active => self.check_poisoned(),
            Phase::Sealing | Phase::Sealed => Err(Error::Sealed { log: self.id, end: Offset(writer.end) }),
            Phase::Deleted => Err(Error::UnknownLog { log: self.id }),
        }
    }

    /// What was appended so far.
    pub(crate) fn extent(&self) -> Extent {
        let generation = self.generation.load(Ordering::Acquire);
        Extent { end: self.end.load(Ordering::Acquire), generation }
    }

    /// Whether a wait for the commit of what was appended up to there is over. A truncation commits everything before it
    /// cuts: what it cut off had been committed.
    pub(crate) fn is_answered(&self, extent: Extent) -> bool {
        self.is_committed(extent) || self.is_dead()
    }

    /// What such a wait ends with.
    pub(crate) fn commit_result(&self, extent: Extent) -> Result<()> {
        if self.is_committed(extent) { Ok(()) } else { self.check_alive() }
    }

    fn is_committed(&self, extent: Extent) -> bool {
        self.readable.load(Ordering::Acquire) >= extent.end
            || self.generation.load(Ordering::Acquire) != extent.generation
    }

    /// Whether nothing of it will be committed any more: it was deleted, or a write failed.
    pub(crate) fn is_dead(&self) -> bool {
        self.deleted.load(Ordering::Acquire) || self.poisoned.get().is_some()
    }

    /// Fails with the reason why nothing of it will be committed any more.
    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.deleted.load(Ordering::Acquire) {
            return Err(Error::UnknownLog { log: self.id });
        }
        self.check_poisoned()
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
