//! The logs of a store: all that there are, those that were deleted and have blocks left, and those that forget what is old.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

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
    /// Logs that forget what is old.
    aged: Mutex<BTreeSet<LogId>>,
}

impl Registry {
    /// The log of an id.
    pub(crate) fn get(&self, id: LogId) -> Option<Arc<LogState>> {
        self.logs.read().get(&id).cloned()
    }

    /// The logs of these ids, but for those that were deleted meanwhile.
    pub(crate) fn get_all(&self, ids: &[LogId]) -> Vec<Arc<LogState>> {
        let logs = self.logs.read();
        ids.iter().filter_map(|id| logs.get(id).cloned()).collect()
    }

    /// All logs, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<LogState>> {
        self.logs.read().values().cloned().collect()
    }

    /// Does something while the log of an id cannot be deleted; nothing if it was.
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

    /// A closed store has no logs.
    pub(crate) fn clear(&self) {
        self.logs.write().clear();
    }

    /// The blocks of a deleted log were freed: it is forgotten once they are zeroed.
    pub(crate) fn note_deleted(&self, id: LogId) {
        self.deleted.lock().push(id);
    }

    /// Zeroes freed slots and removes empty files; then deleted logs can be forgotten.
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

    /// Whether the log is one that forgets what is old.
    pub(crate) fn set_aged(&self, id: LogId, is_aged: bool) {
        let mut aged = self.aged.lock();
        if is_aged {
            aged.insert(id);
        } else {
            aged.remove(&id);
        }
    }

    /// Asks for a look at each log that forgets what is old; whether there are any.
    pub(crate) fn ask_retention_of_aged(&self) -> bool {
        let mut aged = self.aged.lock();
        aged.retain(|id| self.get(*id).inspect(|log| log.ask_retention()).is_some());
        !aged.is_empty()
    }
}
