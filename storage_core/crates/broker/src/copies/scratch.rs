//! The logs that this node writes for segments that are to take the place of others, and that the metadata do not know yet. Each is
//! noted before it is made: after a crash nobody misses it, and it goes.

use std::collections::HashSet;

use uuid::Uuid;
use walrus_log::{LogId, Store};
use walrus_model::SegmentId;

use crate::node::locks::Lock;

/// Prefix of the keys under which the notes lie.
const KEYS: &str = "scratch/";

/// The logs that are noted as scratch.
pub(crate) struct Scratch {
    store: Store,
    noted: Lock<HashSet<SegmentId>>,
}

impl Scratch {
    /// Reads the notes of the store.
    pub(crate) fn open(store: &Store) -> Self {
        let noted = store.properties().into_iter().filter_map(|(key, _)| parse(&key)).collect();
        Self { store: store.clone(), noted: Lock::new(noted) }
    }

    /// Notes a log that is about to be made; durable on return.
    pub(crate) fn note(&self, segment: SegmentId) -> walrus_log::Result<()> {
        self.store.put_property(&key(segment), &[])?;
        self.noted.lock().insert(segment);
        Ok(())
    }

    /// Whether a log is scratch.
    pub(crate) fn contains(&self, segment: SegmentId) -> bool {
        self.noted.lock().contains(&segment)
    }

    /// All that are noted.
    pub(crate) fn all(&self) -> Vec<SegmentId> {
        self.noted.lock().iter().copied().collect()
    }

    /// Notes that the metadata know a log: from now on they decide what becomes of it.
    pub(crate) fn forget(&self, segment: SegmentId) -> walrus_log::Result<()> {
        self.store.remove_property(&key(segment))?;
        self.noted.lock().remove(&segment);
        Ok(())
    }

    /// Deletes a log, and then the note about it.
    pub(crate) fn delete(&self, segment: SegmentId) -> walrus_log::Result<()> {
        if self.store.log(LogId(segment.0)).is_some() {
            self.store.delete_log(LogId(segment.0))?;
        }
        self.forget(segment)
    }
}

fn key(segment: SegmentId) -> String {
    format!("{KEYS}{segment}")
}

fn parse(key: &str) -> Option<SegmentId> {
    Some(SegmentId(Uuid::try_parse(key.strip_prefix(KEYS)?).ok()?))
}
