//! The state of the journal: records are folded into it, and it can be written as the fewest records.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use bytes::Bytes;
use uuid::Uuid;

use super::record::{DIRTY, Record, TableTold};
use crate::digest::Digest;
use crate::producers::{ProducerChanges, ProducerTable};
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
    /// Producer table that the log started with; `None` if it was lost with a journal.
    pub(crate) producers: Option<ProducerTable>,
    /// The log that this one continues. It may be forgotten by now, while the table stays.
    after: Option<LogId>,
    /// The log's own schedule.
    pub(crate) fsync: Option<FsyncSchedule>,
    pub(crate) start: u64,
    /// Offset at which the trimmed blocks end, at or below `start`.
    pub(crate) freed: u64,
    /// Sequence above those of the trimmed blocks.
    pub(crate) freed_before: u64,
    /// Digest of the batches in the trimmed blocks.
    pub(crate) trimmed_digest: Digest,
    /// Producer table at the end of the trimmed blocks, if there are any.
    trimmed_producers: Option<ProducerTable>,
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
            Record::LogCreated { log, base_offset, epoch, name, after, producers, fsync } => {
                let Some(producers) = self.first_producers(*after, producers) else { return false };
                let entry = LogEntry {
                    name: (*name).to_owned(),
                    base_offset: *base_offset,
                    epoch: *epoch,
                    producers,
                    after: *after,
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
                Some(entry) => return entry.apply(record),
                None => return false,
            },
        }
        true
    }

    /// The table that a new log starts with, as its record tells it: the inner value is `None` if nobody knows the table, the
    /// outer one if the record makes no sense here.
    fn first_producers(&self, after: Option<LogId>, told: &TableTold<'_>) -> Option<Option<ProducerTable>> {
        let since = match after {
            Some(after) => self.logs.get(&after)?.producers.clone()?,
            None if *told == TableTold::Bytes(&[]) => return Some(None),
            None => ProducerTable::new(),
        };
        told.table(&since).map(Some)
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

    /// Gives the records of some of the logs; each comes behind the log that it continues.
    fn for_each_log(&self, wanted: impl Fn(&LogEntry) -> bool, give: &mut impl FnMut(Record<'_>)) {
        let mut given = BTreeSet::new();
        for &log in self.logs.keys() {
            let entry =
                |log: LogId| self.logs.get(&log).filter(|entry| wanted(entry)).map(|entry| (log, entry));
            let before = |(_, continuing): &(LogId, &LogEntry)| entry(continuing.after?);
            let is_due = |(log, _): &(LogId, &LogEntry)| given.insert(*log);
            let due: Vec<_> = iter::successors(entry(log), before).take_while(is_due).collect();
            due.into_iter().rev().for_each(|(log, entry)| self.give_log(log, entry, give));
        }
    }

    /// Gives the records of a log.
    fn give_log(&self, log: LogId, entry: &LogEntry, give: &mut impl FnMut(Record<'_>)) {
        let &LogEntry { base_offset, epoch, ref name, fsync, .. } = entry;
        let known = entry.after.and_then(|after| Some((after, self.logs.get(&after)?.producers.clone()?)));
        let (after, since) = known.map_or_else(Default::default, |(after, since)| (Some(after), since));
        let producers = match entry.producers.clone() {
            Some(now) => TableTold::Changes(ProducerChanges { since, now }),
            None => TableTold::Bytes(&[]),
        };
        give(Record::LogCreated { log, base_offset, epoch, name, after, producers, fsync });
        if let Some(producers) = &entry.trimmed_producers {
            let (start, freed, before) = (entry.start, entry.freed, entry.freed_before);
            let digest = entry.trimmed_digest;
            let since = entry.producers.clone().unwrap_or_default();
            let producers = TableTold::Changes(ProducerChanges { since, now: producers.clone() });
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
        let moved_since = |name: &String| entry.doubted.as_ref().is_some_and(|since| since.contains(name));
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

impl LogEntry {
    /// The producer table at the end of what was trimmed; of a log that was not, the one that it started with.
    pub(crate) fn producers_behind_trim(&self) -> ProducerTable {
        self.trimmed_producers.as_ref().or(self.producers.as_ref()).cloned().unwrap_or_default()
    }

    /// Folds a record about the log into its entry. False if it contradicts the records before.
    fn apply(&mut self, record: &Record<'_>) -> bool {
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
                let first = self.producers.clone().unwrap_or_default();
                let Some(producers) = producers.table(&first) else { return false };
                (self.start, self.freed, self.trimmed_digest) = (*start, *freed, *digest);
                self.freed_before = *before;
                self.trimmed_producers = Some(producers);
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
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::StoredRecord;
    use super::*;
    use crate::batch::ProducerRef;

    /// A log that continues others had their whole table in its record; each log of 50,000 producers cost megabytes.
    #[test]
    fn a_log_that_continues_another_starts_with_its_table_and_tells_only_what_differs() {
        // The ids descend: a log is told behind the one that it continues, whatever their order is.
        let log = |number: u64| LogId(Uuid::from_u128(u128::from(99 - number)));
        let mut producers = ProducerTable::new();
        for id in 0..1000 {
            producers.record(ProducerRef { id, epoch: 0, base_sequence: 0 }, 1, id.unsigned_abs());
        }
        let (mut state, mut since, mut after) = (JournalState::default(), ProducerTable::new(), None);
        for number in 0..5 {
            let changes = producers.changes_since(&since);
            assert!(changes.len() < 120 || number == 0);
            assert!(state.apply(&Record::LogCreated {
                log: log(number),
                base_offset: 1000 + number,
                epoch: Epoch(1),
                name: "n",
                after,
                producers: TableTold::Bytes(&changes),
                fsync: None,
            }));
            (since, after) = (producers.clone(), Some(log(number)));
            producers.record(ProducerRef { id: 7, epoch: 1, base_sequence: 0 }, 1, 1000 + number);
            producers.forget_silent(number, 0);
        }
        let written = |state: &JournalState| {
            let (mut again, mut bytes) = (JournalState::default(), Vec::new());
            state.for_each_record(|record| {
                let from = bytes.len();
                record.encode(1, 0, &mut bytes);
                let read = StoredRecord::decode(&bytes[from..]).unwrap();
                assert!(again.apply(&read.record().unwrap()));
            });
            let tables = |state: &JournalState| -> Vec<_> {
                state.logs.values().map(|entry| entry.producers.clone()).collect()
            };
            assert_eq!(tables(&again), tables(state));
            bytes.len()
        };
        let whole = producers.encode().len();
        assert!((whole..whole + 1000).contains(&written(&state)));
        // The first and a middle one go: the one behind each tells all of its table then.
        for gone in [0, 2] {
            assert!(state.apply(&Record::LogForgotten { log: log(gone) }));
        }
        assert!((2 * whole..2 * whole + 1000).contains(&written(&state)));
        assert_eq!(state.logs[&log(4)].producers, Some(since));
    }

    #[test]
    fn a_state_comes_back_from_its_own_records() {
        let (a, b) = (LogId(Uuid::from_u128(1)), LogId(Uuid::from_u128(2)));
        let digest = Digest { value: 1, batches: 2 };
        let created = |log, fsync| Record::LogCreated {
            log,
            base_offset: 10,
            epoch: Epoch(1),
            name: "n",
            after: None,
            producers: TableTold::Bytes(&[]),
            fsync,
        };
        let mut producers = ProducerTable::new();
        producers.record(ProducerRef { id: 3, epoch: 0, base_sequence: 0 }, 1, 14);
        let producers = TableTold::Bytes(&producers.encode());
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
            Record::LogTrimmed { log: a, start: 20, freed: 15, before: 3, digest, producers },
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
