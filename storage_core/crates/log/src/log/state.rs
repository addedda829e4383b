//! A log in memory: the state that its one writer holds under a short mutex, and the state that readers see without
//! it.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use super::block::Block;
use super::directory::Directory;
use super::open_block::{OpenBlock, Resume};
use super::place::CursorPlace;
use super::queues::Queues;
use super::rules::RetentionState;
use super::spec::LogSpec;
use crate::digest::Digest;
use crate::disk::TailKind;
use crate::error::{Error, Result};
use crate::format::epochs::EpochRuns;
use crate::producers::{ProducerChanges, ProducerTable};
use crate::resources::Resources;
use crate::resources::arrivals::Arrivals;
use crate::resources::journal::{Record, SealedEntry};
use crate::seeded;
use crate::sync::{
    Condvar, Mutex, RwLock,
    atomic::{AtomicBool, AtomicU64},
};
use crate::types::{Epoch, FsyncSchedule, LogId, Offset};

/// A log of an open store.
pub(crate) struct LogState {
    pub(crate) id: LogId,
    pub(crate) name: String,
    pub(crate) base_offset: u64,
    pub(crate) epoch: Epoch,
    /// Producer table that the log started with; `None` if the journal has lost it.
    pub(crate) first_producers: Option<ProducerTable>,
    /// The log's own schedule; `None` if it follows the store's.
    pub(crate) own_fsync: Option<FsyncSchedule>,
    pub(crate) fsync: FsyncSchedule,
    /// The way in which appended bytes reach the files of the log's new blocks; older ones may lie in files of another.
    pub(crate) tails: TailKind,
    pub(super) resources: Arc<Resources>,
    /// Queues in which the log asks for commits and chores.
    pub(super) queues: Arc<Queues>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) directory: RwLock<Directory>,
    /// First offset not yet written.
    pub(crate) end: AtomicU64,
    /// First offset that readers do not see; never beyond what the schedule promises.
    pub(crate) readable: AtomicU64,
    /// Everything below this offset is on the disk.
    pub(crate) synced: AtomicU64,
    pub(crate) start: AtomicU64,
    /// End, digest and producers of the blocks that were trimmed.
    pub(crate) trimmed: Mutex<TrimmedPrefix>,
    pub(crate) size_bytes: AtomicU64,
    pub(crate) sealed: OnceLock<SealedEntry>,
    pub(crate) poisoned: OnceLock<Arc<str>>,
    pub(crate) suspect: AtomicBool,
    /// Whether the journal says that the log is deleted: commits take nothing of it any more.
    pub(crate) deleted: AtomicBool,
    /// Whether the log is in the queue of logs to commit.
    pub(crate) dirty: AtomicBool,
    /// Whether the log is in the list of logs whose synced mark is behind.
    pub(crate) unmarked: AtomicBool,
    /// Bytes that were synced since the last synced mark.
    pub(crate) unmarked_bytes: AtomicU64,
    /// Bytes that were in memory only right after the last commit.
    pub(crate) waiting_bytes: AtomicU64,
    /// Lets one seal, trim, truncation or batch group happen at a time.
    pub(crate) changing: Mutex<()>,
    /// Lets one compaction happen at a time.
    pub(crate) compacting: Mutex<()>,
    /// Signalled when a batch group ends.
    pub(crate) grouped: Condvar,
    /// Guards which offsets the log has, and where they lie. Truncations, trims, recounts and skips hold it for writing,
    /// from before their promise until memory agrees with it; cursors hold it for reading while they read and move.
    pub(crate) layout: RwLock<()>,
    /// Number of truncations so far: a place or a wait of an older generation may be about batches that are gone.
    pub(crate) generation: AtomicU64,
    pub(crate) cursors: Mutex<HashMap<String, Arc<CursorPlace>>>,
    /// Tasks and threads that wait for records.
    pub(crate) arrivals: Arrivals,
    pub(crate) retention: RetentionState,
}

/// The facts about trimmed blocks that outlive them, since the digest and the producers of the log cover their batches.
#[derive(Clone)]
pub(crate) struct TrimmedPrefix {
    /// First offset behind the trimmed blocks.
    pub(crate) end: u64,
    pub(crate) digest: Digest,
    /// Producer table at the end of the last trimmed block; without one, the table that the log started with.
    pub(crate) producers: ProducerTable,
}

/// End of a log at some moment, and its generation then.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) end: u64,
    pub(crate) generation: u64,
}

/// Stage in the life of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Active,
    /// The log takes no appends while its end is being made durable.
    Sealing,
    Sealed,
    Deleted,
}

/// The state of a log that changes with each append.
pub(crate) struct Writer {
    pub(crate) phase: Phase,
    /// Whether the store was closed.
    pub(crate) is_closed: bool,
    /// Whether a batch group is being written; appends wait until it ends.
    pub(crate) is_grouping: bool,
    pub(crate) open: Option<OpenBlock>,
    /// Earlier blocks with bytes that a commit must still write or sync.
    pub(crate) pending: Vec<OpenBlock>,
    /// Unwritten bytes of the open block and the pending ones; counted only where the tail is buffered.
    pub(crate) waiting_bytes: u64,
    /// A recovered block in which the log goes on; the first append opens it.
    pub(crate) resume: Option<Resume>,
    pub(crate) end: u64,
    /// End of what commits have taken. Those commits are over, or must succeed before a later one may write.
    pub(crate) taken: u64,
    /// Epochs of the batches from now on, if they were set; without them all batches have the log's.
    pub(crate) epochs: Option<EpochRuns>,
    /// Sequence of the log's last block.
    pub(crate) last_sequence: u64,
    pub(crate) producers: ProducerTable,
    /// Digest of all batches since the log's base.
    pub(crate) digest: Digest,
}

impl LogState {
    /// A new log without blocks.
    pub(crate) fn new(
        resources: Arc<Resources>,
        queues: Arc<Queues>,
        spec: LogSpec,
        first_producers: Option<ProducerTable>,
    ) -> Self {
        let LogSpec { id, name, base_offset: Offset(base_offset), epoch, producers, fsync, .. } = spec;
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
            epochs: None,
            last_sequence: 0,
            producers,
            digest: Digest::default(),
        };
        let (own_fsync, fsync) = (fsync, fsync.unwrap_or(resources.fsync));
        Self {
            id,
            name,
            base_offset,
            epoch,
            own_fsync,
            fsync,
            tails: resources.blocks.tails(fsync),
            resources,
            queues,
            writer: Mutex::new(writer),
            directory: RwLock::default(),
            end: AtomicU64::new(base_offset),
            readable: AtomicU64::new(base_offset),
            synced: AtomicU64::new(base_offset),
            start: AtomicU64::new(base_offset),
            trimmed: Mutex::new(TrimmedPrefix {
                end: base_offset,
                digest: Digest::default(),
                producers: first_producers.clone().unwrap_or_default(),
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
            layout: RwLock::default(),
            generation: AtomicU64::new(0),
            cursors: Mutex::default(),
            arrivals: Arrivals::default(),
            retention: RetentionState::default(),
        }
    }

    /// How a producer table of this log differs from the one that it started with, as footers and trims tell it.
    pub(crate) fn changes_to(&self, producers: &ProducerTable) -> ProducerChanges {
        ProducerChanges { since: self.first_producers.clone().unwrap_or_default(), now: producers.clone() }
    }

    /// Whether the log's data is ever synced.
    pub(crate) fn syncs(&self) -> bool {
        self.fsync.syncs()
    }

    /// Whether appends need a commit, which the caller, the committing thread or a schedule asks for.
    pub(super) fn commits_appends(&self) -> bool {
        self.syncs() || self.tails == TailKind::Buffered
    }

    /// Writes a record about the log into the journal; durable on return, unless the log never syncs.
    pub(crate) fn say(&self, record: &Record<'_>) -> Result<()> {
        self.resources.journal.say(record, self.syncs())
    }

    /// Refuses appends from now on, because the store closes. A batch group that is being written ends first.
    pub(crate) fn refuse_appends(&self) {
        let _changing = self.changing.lock();
        self.writer.lock().is_closed = true;
    }

    /// Fails unless the log takes appends.
    pub(crate) fn check_active(&self, writer: &Writer) -> Result<()> {
        match writer.phase {
            Phase::Active if writer.is_closed => Err(Error::Closed),
            Phase::Active => self.check_poisoned(),
            Phase::Sealing | Phase::Sealed => Err(Error::Sealed { log: self.id, end: Offset(writer.end) }),
            Phase::Deleted => Err(Error::UnknownLog { log: self.id }),
        }
    }

    /// The end of everything appended so far.
    pub(crate) fn extent(&self) -> Extent {
        let generation = self.generation.load(Ordering::Acquire);
        Extent { end: self.end.load(Ordering::Acquire), generation }
    }

    /// Whether a wait for the commit of `extent` is over: it is committed, or never will be. A truncation counts as a
    /// commit, for it commits everything before it cuts.
    pub(crate) fn is_answered(&self, extent: Extent) -> bool {
        self.is_committed(extent) || self.is_dead()
    }

    /// The result of a wait for the commit of `extent`, once [`LogState::is_answered`] says that it is over.
    pub(crate) fn commit_result(&self, extent: Extent) -> Result<()> {
        if self.is_committed(extent) { Ok(()) } else { self.check_alive() }
    }

    fn is_committed(&self, extent: Extent) -> bool {
        self.readable.load(Ordering::Acquire) >= extent.end
            || self.generation.load(Ordering::Acquire) != extent.generation
    }

    /// Whether nothing of the log will be committed any more: it was deleted, or a write failed.
    pub(crate) fn is_dead(&self) -> bool {
        self.deleted.load(Ordering::Acquire) || self.poisoned.get().is_some()
    }

    /// Fails if nothing of the log will be committed any more, with the reason.
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

    /// Does what [`LogState::say`] does, for a record that changes the log's end. A failure other than a full disk
    /// poisons the log: a restart may find the record, and then later appends would be lost.
    pub(crate) fn say_or_stop(&self, record: &Record<'_>) -> Result<()> {
        self.say(record).inspect_err(|error| {
            if !matches!(error, Error::NoSpace { .. }) && !seeded!(FailedTruncationGoesOn) {
                self.poison(&error.to_string().into());
            }
        })
    }

    /// Refuses appends and commits from now on; the first reason is kept.
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
