//! The logs of a store: all that exist, the deleted ones that have blocks left, and those that forget by age.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::Result;
use crate::log::state::LogState;
use crate::resources::Resources;
use crate::resources::journal::Record;
use crate::sync::{Mutex, RwLock};
use crate::types::LogId;

#[derive(Default)]
pub(crate) struct Registry {
    logs: RwLock<HashMap<LogId, Arc<LogState>>>,
    /// Deleted logs whose blocks may not be zeroed yet.
    deleted: Mutex<Vec<LogId>>,
    /// Logs whose retention has an age.
    aged: Mutex<BTreeSet<LogId>>,
}

impl Registry {
    /// The log of an id.
    pub(crate) fn get(&self, id: LogId) -> Option<Arc<LogState>> {
        self.logs.read().get(&id).cloned()
    }

    /// The logs of these ids, without those that were deleted.
    pub(crate) fn get_all(&self, ids: &[LogId]) -> SmallVec<[Arc<LogState>; 1]> {
        let logs = self.logs.read();
        ids.iter().filter_map(|id| logs.get(id).cloned()).collect()
    }

    /// All logs, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<LogState>> {
        self.logs.read().values().cloned().collect()
    }

    /// Runs `work` while the log of an id cannot be deleted; does nothing if it was.
    pub(crate) fn while_there(&self, id: LogId, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let logs = self.logs.read();
        if logs.contains_key(&id) { work() } else { Ok(()) }
    }

    pub(crate) fn insert(&self, log: Arc<LogState>) {
        self.logs.write().insert(log.id, log);
    }

    pub(crate) fn remove(&self, id: LogId) {
        self.logs.write().remove(&id);
    }

    /// Drops all logs, because the store is closed.
    pub(crate) fn clear(&self) {
        self.logs.write().clear();
    }

    /// Notes that the blocks of a deleted log were freed; the journal forgets the log once they are zeroed.
    pub(crate) fn note_deleted(&self, id: LogId) {
        self.deleted.lock().push(id);
    }

    /// Zeroes freed slots, removes empty files, and lets the journal forget deleted logs of which nothing is left.
    pub(crate) fn reclaim(&self, resources: &Resources) -> Result<()> {
        let deleted = std::mem::take(&mut *self.deleted.lock());
        let reclaimed = resources.blocks.reclaim();
        if matches!(reclaimed, Ok(true)) {
            for log in deleted {
                resources.journal.append(&Record::LogForgotten { log })?;
            }
        } else {
            self.deleted.lock().extend(deleted);
        }
        reclaimed.map(drop)
    }

    /// Notes whether the log forgets by age.
    pub(crate) fn set_aged(&self, id: LogId, is_aged: bool) {
        let mut aged = self.aged.lock();
        if is_aged {
            aged.insert(id);
        } else {
            aged.remove(&id);
        }
    }

    /// Asks to apply the retention of each log that forgets by age; false if there are none.
    pub(crate) fn ask_retention_of_aged(&self) -> bool {
        let mut aged = self.aged.lock();
        aged.retain(|id| self.get(*id).inspect(|log| log.ask_retention()).is_some());
        !aged.is_empty()
    }
}
