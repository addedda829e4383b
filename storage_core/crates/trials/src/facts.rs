//! The facts that a store must hold: the owner's own record of what was done, and of what was promised about it.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;
use walrus_log::batch::ProducerRef;
use walrus_log::{Epoch, FsyncSchedule, LogId, LogSpec, Offset, ProducerTable};

use crate::random::Value;

/// The facts about all logs at one moment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The logs that were ever created, the deleted ones too.
    pub logs: BTreeMap<LogId, Arc<LogFacts>>,
    /// Whether there ever was a log that never synced.
    pub had_unsynced: bool,
    /// Properties of the store, by key.
    pub properties: BTreeMap<String, Vec<u8>>,
}

/// The facts about one log at one moment.
#[derive(Clone, Debug)]
pub struct LogFacts {
    /// Its name.
    pub name: String,
    /// Its own schedule of syncs; `None` if it follows its store's.
    pub own_fsync: Option<FsyncSchedule>,
    /// Its schedule of syncs now, which says what its appends promise.
    pub fsync: FsyncSchedule,
    /// The value at every offset from 0, and where its batch starts.
    pub values: Vec<(Value, u64)>,
    /// (start, end) of batches that were appended all or not at all.
    pub groups: Vec<(u64, u64)>,
    /// First offset that was not trimmed.
    pub start: u64,
    /// Offsets below may be damaged: they were trimmed, and a power failure has taken the trim back.
    pub lost_to: u64,
    /// End of the offsets that survive a power failure.
    pub promised: u64,
    /// Places of cursors that were promised.
    pub cursors: BTreeMap<String, u64>,
    /// The bytes with which it was sealed, if it was.
    pub sealed: Option<Vec<u8>>,
    /// Whether it was deleted, for good.
    pub is_deleted: bool,
    /// Batches of an idempotent producer: who, records, base offset.
    pub produced: Vec<(ProducerRef, u32, u64)>,
}

impl Facts {
    /// Notes whether there is a log now that never syncs.
    pub fn note_unsynced(&mut self) {
        self.had_unsynced |= self.logs.values().any(|log| log.fsync == FsyncSchedule::NoFsync);
    }

    /// The facts about one log, to be changed.
    pub fn log(&mut self, id: LogId) -> &mut LogFacts {
        Arc::make_mut(self.logs.get_mut(&id).expect("the log is known"))
    }
}

impl LogFacts {
    /// The facts about a new log with a schedule of its own, or else its store's.
    pub fn new(name: &str, own_fsync: Option<FsyncSchedule>, of_store: FsyncSchedule) -> Self {
        Self {
            name: name.to_owned(),
            own_fsync,
            fsync: own_fsync.unwrap_or(of_store),
            values: Vec::new(),
            groups: Vec::new(),
            start: 0,
            lost_to: 0,
            promised: 0,
            cursors: BTreeMap::new(),
            sealed: None,
            is_deleted: false,
            produced: Vec::new(),
        }
    }

    /// First offset behind the last value.
    pub fn end(&self) -> u64 {
        self.values.len() as u64
    }

    /// Whether each append is promised.
    pub fn is_synced(&self) -> bool {
        self.fsync == FsyncSchedule::SyncEach
    }

    /// Drops what lies at and behind an offset.
    pub fn truncate(&mut self, end: u64) {
        self.values.truncate(end as usize);
        self.promised = self.promised.min(end);
        self.groups.retain(|(_, group_end)| *group_end <= end);
        self.produced.retain(|(_, records, base)| base + u64::from(*records) <= end);
        for cursor in self.cursors.values_mut() {
            *cursor = (*cursor).min(end);
        }
    }
}

/// The id of a log by number.
pub fn log_id(number: u64) -> LogId {
    LogId(Uuid::from_u128(u128::from(number)))
}

/// Epoch of all logs in the trials.
pub const EPOCH: Epoch = Epoch(1);

/// An empty log from offset 0 on, synced as its store says.
pub fn new_log(id: LogId, name: String) -> LogSpec {
    let (base_offset, producers) = (Offset(0), ProducerTable::new());
    LogSpec { id, name, base_offset, epoch: EPOCH, producers, after: None, fsync: None }
}

/// One call of the owner: the changes of the disk between which it was under way, and the facts behind it.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Changes of the disk when the call began.
    pub began: usize,
    /// Changes of the disk when it returned.
    pub ended: usize,
    /// The facts from then on.
    pub facts: Facts,
    /// The call, for messages.
    pub call: String,
}
