//! The state of the journal: records are folded into it, and it can be written as the fewest records.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use uuid::Uuid;

use super::record::{DIRTY, Record};
use crate::digest::Digest;
use crate::types::{Epoch, FsyncSchedule, LogId};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalState {
    pub(crate) logs: BTreeMap<LogId, LogEntry>,
    pub(crate) properties: BTreeMap<String, Bytes>,
    /// The store's schedule, once a record has named it.
    pub(crate) fsync: Option<FsyncSchedule>,
    /// Whether the last record says that the store was closed.
    pub(crate) closed: bool,
    /// Least sequence of the last durable record, if the journal once lost its end; promises are forgotten then.
    pub(crate) end_lost: Option<u64>,
    /// Boot id under which data that was not synced is in memory, noted right before the store was closed.
    pub(crate) left_unsynced: Option<Uuid>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogEntry {
    pub(crate) name: String,
    pub(crate) base_offset: u64,
    pub(crate) epoch: Epoch,
    /// Encoded producer table that the log started with.
    pub(crate) producers: Vec<u8>,
    /// The log's own schedule.
    pub(crate) fsync: Option<FsyncSchedule>,
    pub(crate) start: u64,
    /// Offset at which the trimmed blocks end, at or below `start`.
    pub(crate) freed: u64,
    /// Sequence above those of the trimmed blocks.
    pub(crate) freed_before: u64,
    /// Digest of the batches in the trimmed blocks.
    pub(crate) trimmed_digest: Digest,
    /// Encoded producer table at the end of the trimmed blocks.
    pub(crate) trimmed_producers: Option<Vec<u8>>,
    pub(crate) sealed: Option<SealedEntry>,
    /// Pairs `(end, before)`: offsets from `end` on in blocks with a sequence below `before` are gone.
    pub(crate) truncations: Vec<(u64, u64)>,
    /// Compacted blocks, each of which stands for blocks before it.
    pub(crate) compactions: Vec<Compaction>,
    /// Everything below this offset was synced.
    pub(crate) synced: u64,
    pub(crate) suspect: bool,
    pub(crate) deleted: bool,
    pub(crate) cursors: BTreeMap<String, u64>,
    /// Set if the log existed when the journal lost its end: all its cursors may have moved, except these, which moved
    /// since.
    pub(crate) doubted: Option<BTreeSet<String>>,
    /// Offset at which the log is clean if it ends there; a new log is clean.
    pub(crate) clean_at: u64,
}

/// The block of `sequence` has the offsets from `start` to `end`; those in blocks with a lower sequence are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compaction {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) sequence: u64,
}

impl Compaction {
    pub(crate) fn has(&self, offset: u64) -> bool {
        (self.start..self.end).contains(&offset)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SealedEntry {
    pub(crate) end: u64,
    pub(crate) digest: Digest,
    pub(crate) value: Bytes,
}

impl JournalState {
    /// Folds a record into the state. False if it contradicts the records before, for example by naming a log that
    /// does not exist.
    pub(crate) fn apply(&mut self, record: &Record<'_>) -> bool {
        self.closed = matches!(record, Record::Closed);
        if !self.closed {
            self.left_unsynced = None;
        }
        match record {
            Record::LogCreated { log, base_offset, epoch, name, producers, fsync } => {
                let entry = LogEntry {
                    name: (*name).to_owned(),
                    base_offset: *base_offset,
                    epoch: *epoch,
                    producers: producers.to_vec(),
                    fsync: *fsync,
                    start: *base_offset,
                    freed: *base_offset,
                    freed_before: 0,
                    trimmed_digest: Digest::default(),
                    trimmed_producers: None,
                    sealed: None,
                    truncations: Vec::new(),
                    compactions: Vec::new(),
                    synced: *base_offset,
                    suspect: false,
                    deleted: false,
                    cursors: BTreeMap::new(),
                    doubted: None,
                    clean_at: *base_offset,
                };
                if self.logs.contains_key(log) {
                    return false;
                }
                self.logs.insert(*log, entry);
            }
            Record::LogForgotten { log } => return self.logs.remove(log).is_some(),
            Record::Property { key, value: [] } => drop(self.properties.remove(*key)),
            Record::Property { key, value } => {
                self.properties.insert((*key).to_owned(), Bytes::copy_from_slice(value));
            }
            Record::Schedule { fsync } => self.fsync = Some(*fsync),
            Record::EndLost { durable } => {
                self.end_lost = Some(*durable);
                self.logs.values_mut().for_each(|entry| entry.doubted = Some(BTreeSet::new()));
            }
            Record::LeftUnsynced { boot } => self.left_unsynced = Some(*boot),
            Record::Mark | Record::Closed => {}
            _ => match record.log().and_then(|log| self.logs.get_mut(&log)) {
                Some(entry) => entry.apply(record),
                None => return false,
            },
        }
        true
    }

    /// Gives the fewest records that lead to this state.
    pub(super) fn for_each_record(&self, mut give: impl FnMut(Record<'_>)) {
        if let Some(fsync) = self.fsync {
            give(Record::Schedule { fsync });
        }
        for (key, value) in &self.properties {
            give(Record::Property { key, value });
        }
        // Cursors that moved since the end was lost, and logs made since, come behind the record of the loss.
        self.for_each_log(|entry| entry.doubted.is_some(), &mut give);
        if let Some(durable) = self.end_lost {
            give(Record::EndLost { durable });
        }
        for (&log, entry) in &self.logs {
            for name in entry.doubted.iter().flatten() {
                give(Record::Cursor { log, name, offset: entry.cursors[name] });
            }
        }
        self.for_each_log(|entry| entry.doubted.is_none(), &mut give);
        if let Some(boot) = self.left_unsynced {
            give(Record::LeftUnsynced { boot });
        }
        if self.closed {
            give(Record::Closed);
        }
    }

    /// Gives the records of some of the logs.
    fn for_each_log(&self, wanted: impl Fn(&LogEntry) -> bool, give: &mut impl FnMut(Record<'_>)) {
        for (&log, entry) in self.logs.iter().filter(|(_, entry)| wanted(entry)) {
            let LogEntry { base_offset, epoch, name, producers, fsync, .. } = entry;
            let (base_offset, epoch, fsync) = (*base_offset, *epoch, *fsync);
            give(Record::LogCreated { log, base_offset, epoch, name, producers, fsync });
            if let Some(producers) = &entry.trimmed_producers {
                let (start, freed, before) = (entry.start, entry.freed, entry.freed_before);
                let digest = entry.trimmed_digest;
                give(Record::LogTrimmed { log, start, freed, before, digest, producers });
            }
            for &(end, before) in &entry.truncations {
                give(Record::LogTruncated { log, end, before });
            }
            for &Compaction { start, end, sequence } in &entry.compactions {
                give(Record::LogCompacted { log, start, end, sequence });
            }
            if entry.synced > entry.base_offset {
                give(Record::Synced { log, end: entry.synced });
            }
            if entry.suspect {
                give(Record::Suspect { log, end: entry.synced });
            }
            if let Some(SealedEntry { end, digest, value }) = &entry.sealed {
                give(Record::LogSealed { log, end: *end, digest: *digest, value: value.clone() });
            }
            let moved_since =
                |name: &String| entry.doubted.as_ref().is_some_and(|since| since.contains(name));
            for (name, &offset) in entry.cursors.iter().filter(|(name, _)| !moved_since(name)) {
                give(Record::Cursor { log, name, offset });
            }
            if entry.clean_at != entry.base_offset {
                give(Record::CleanMark { log, end: entry.clean_at });
            }
            if entry.deleted {
                give(Record::LogDeleted { log });
            }
        }
    }
}

impl LogEntry {
    fn apply(&mut self, record: &Record<'_>) {
        match record {
            Record::LogSealed { end, digest, value, .. } => {
                self.sealed = Some(SealedEntry { end: *end, digest: *digest, value: value.clone() });
            }
            Record::LogDeleted { .. } => {
                self.deleted = true;
                self.cursors.clear();
                self.doubted.iter_mut().for_each(BTreeSet::clear);
            }
            Record::LogTrimmed { start, freed, before, digest, producers, .. } => {
                (self.start, self.freed, self.trimmed_digest) = (*start, *freed, *digest);
                self.freed_before = *before;
                self.trimmed_producers = Some(producers.to_vec());
                self.compactions.retain(|compaction| compaction.end > *freed);
            }
            Record::LogTruncated { end, before, .. } => {
                // A lower end says everything that an earlier, higher one said.
                self.truncations.retain(|(earlier, _)| earlier < end);
                self.truncations.push((*end, *before));
                self.compactions.retain(|compaction| compaction.start < *end);
                self.synced = self.synced.min(*end);
                if self.clean_at > *end {
                    self.clean_at = DIRTY;
                }
                for cursor in self.cursors.values_mut() {
                    *cursor = (*cursor).min(*end);
                }
            }
            Record::LogCompacted { start, end, sequence, .. } => {
                let new = Compaction { start: *start, end: *end, sequence: *sequence };
                // The new block stands for the blocks that those blocks stood for.
                self.compactions.retain(|old| old.start < new.start || new.end < old.end);
                self.compactions.push(new);
            }
            Record::Synced { end, .. } => self.synced = self.synced.max(*end),
            Record::Suspect { .. } => self.suspect = true,
            Record::Cleared { .. } => self.suspect = false,
            Record::Cursor { name, offset, .. } => {
                match self.cursors.get_mut(*name) {
                    Some(known) => *known = *offset,
                    None => drop(self.cursors.insert((*name).to_owned(), *offset)),
                }
                if let Some(moved_since) = &mut self.doubted
                    && !moved_since.contains(*name)
                {
                    moved_since.insert((*name).to_owned());
                }
            }
            Record::CursorDeleted { name, .. } => {
                self.cursors.remove(*name);
                self.doubted.iter_mut().for_each(|since| _ = since.remove(*name));
            }
            Record::CleanMark { end, .. } => self.clean_at = *end,
            Record::LogCreated { .. }
            | Record::LogForgotten { .. }
            | Record::Property { .. }
            | Record::Mark
            | Record::Closed
            | Record::Schedule { .. }
            | Record::EndLost { .. }
            | Record::LeftUnsynced { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_back_from_its_own_records() {
        let (a, b) = (LogId(Uuid::from_u128(1)), LogId(Uuid::from_u128(2)));
        let digest = Digest { value: 1, batches: 2 };
        let created = |log, fsync| Record::LogCreated {
            log,
            base_offset: 10,
            epoch: Epoch(1),
            name: "n",
            producers: &[],
            fsync,
        };
        let records = [
            Record::Schedule { fsync: FsyncSchedule::SyncEach },
            created(a, None),
            created(b, Some(FsyncSchedule::NoFsync)),
            Record::Property { key: "k", value: b"1" },
            Record::Property { key: "k", value: b"2" },
            Record::Property { key: "removed", value: b"1" },
            Record::Property { key: "removed", value: b"" },
            Record::Synced { log: a, end: 90 },
            Record::LogTruncated { log: a, end: 80, before: 4 },
            Record::LogTruncated { log: a, end: 50, before: 5 },
            Record::LogTruncated { log: a, end: 60, before: 7 },
            Record::LogTrimmed { log: a, start: 20, freed: 15, before: 3, digest, producers: &[3] },
            Record::Cursor { log: a, name: "x", offset: 30 },
            Record::Cursor { log: a, name: "y", offset: 31 },
            Record::CursorDeleted { log: a, name: "x" },
            Record::CleanMark { log: a, end: 40 },
            Record::LogCompacted { log: a, start: 20, end: 30, sequence: 8 },
            Record::LogCompacted { log: a, start: 10, end: 40, sequence: 9 },
            Record::LogCompacted { log: a, start: 40, end: 50, sequence: 10 },
            Record::Suspect { log: a, end: 50 },
            Record::EndLost { durable: 99 },
            Record::Cursor { log: a, name: "moved since", offset: 40 },
            created(LogId(Uuid::from_u128(9)), None),
            Record::LogSealed { log: a, end: 60, digest, value: Bytes::from_static(b"v") },
            Record::Cursor { log: b, name: "x", offset: 30 },
            Record::LogDeleted { log: b },
            Record::LeftUnsynced { boot: Uuid::from_u128(3) },
            Record::Closed,
        ];
        let mut state = JournalState::default();
        assert!(records.iter().all(|record| state.apply(record)));
        assert_eq!(state.logs[&a].truncations, [(50, 5), (60, 7)]);
        assert_eq!(state.logs[&a].synced, 50);
        assert_eq!(state.logs[&a].compactions.iter().map(|c| c.sequence).collect::<Vec<_>>(), [9, 10]);
        let mut again = JournalState::default();
        state.for_each_record(|record| assert!(again.apply(&record)));
        assert_eq!(again, state);
        assert!(again.apply(&Record::Mark));
        assert_eq!((again.closed, again.left_unsynced), (false, None));
        assert!(state.apply(&Record::LogForgotten { log: b }));
        assert!(!state.apply(&Record::Synced { log: b, end: 1 }));
    }
}
