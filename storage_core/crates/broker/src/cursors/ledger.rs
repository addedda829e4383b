//! The ledger of the owner of a partition of `__cursors`, in memory: its cursors, what it has read ahead for them, and what
//! is not recorded yet. It does no I/O; the owner does that.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use walrus_log::batch::Record as LogRecord;
use walrus_metadata::ReadMark;
use walrus_model::{Offset, TopicId};
use walrus_owners::{Entry, Late};

use super::messages::{HandedCursor, decode_answer, handed_cursor_of, request_payload, unexpected};
use super::pages::{Lookup, Pages};
use super::progress::{BadRecord, CursorKey, Progress};
use super::reservation::{HolderId, Reservations};
use super::terms::EntryRef;
use crate::node::clock;
use crate::node::error::Result;
use crate::node::patience;
use crate::node::proto::peer::{CursorHandOver, cursor_answer, cursor_request};
use crate::owners::{self, Unreadable};
use crate::peer::Request;

/// Limit on the cursors in one append to `__cursors`.
const RECORDS_MAX: usize = 1_024;
/// The state of a cursor, to be appended to `__cursors`.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) key: CursorKey,
    pub(super) progress: Progress,
    revision: u64,
}

/// All cursors of a partition: what the records of each say together, and the offset of the last one.
pub(super) type ReplayedCursors = HashMap<CursorKey, (Progress, u64)>;

/// What the owner is to do when an entry of a partition is wanted.
pub(super) enum Step {
    /// Answer this entry, which is reserved, with its value.
    Take(EntryRef, Bytes),
    /// Read the partition from an offset on, one reader at a time.
    Read { offset: u64, reading: Arc<tokio::sync::Mutex<()>> },
}

/// The memory of one owner: cursors, what it has read ahead for them, and what is not recorded yet.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) pages: Pages,
    cursors: HashMap<CursorKey, Cursor>,
    /// The partition after the one of which an entry was last reserved, by topic.
    turns: HashMap<TopicId, u32>,
    /// Cursors whose latest state is not recorded.
    dirty: HashSet<CursorKey>,
}

#[derive(Default)]
struct Cursor {
    reservations: Reservations,
    /// Revision of `reservations` that is durable.
    recorded_revision: u64,
    /// Place of its latest record in `__cursors`.
    recorded_at: Option<u64>,
    /// Everything below is delivered, by that record.
    recorded_below: u64,
    /// Held by whoever reads its partition.
    reading: Arc<tokio::sync::Mutex<()>>,
    /// The offset at which nothing was, and when the read began that found so.
    empty: Option<(u64, Instant)>,
    /// When its partition last could not be read.
    failed: Option<Instant>,
}

impl Ledger {
    /// Notes which entries were delivered and which returned; says how many deliveries came too late.
    pub(super) fn note_deliveries(
        &mut self,
        topic: TopicId,
        partitions: u32,
        holder: HolderId,
        (delivered, returned): (&[EntryRef], &[EntryRef]),
    ) -> u32 {
        let mut lost = 0;
        for entry in delivered.iter().filter(|entry| entry.partition < partitions) {
            let key = CursorKey { topic, partition: entry.partition };
            let cursor = self.cursors.entry(key).or_default();
            let before = cursor.reservations.revision();
            if !cursor.reservations.deliver(entry.offset, holder) {
                lost += 1;
            }
            if cursor.reservations.revision() != before {
                self.dirty.insert(key);
            }
        }
        for entry in returned {
            let key = CursorKey { topic, partition: entry.partition };
            if let Some(cursor) = self.cursors.get_mut(&key) {
                cursor.reservations.give_back(entry.offset, holder);
            }
        }
        lost
    }

    /// The partitions of a topic in the order in which to look for an entry: first those where one was given back,
    /// then in turn, those that could not be read last. Also renews what the holder keeps, and puts back what had no sign of its
    /// holder.
    pub(super) fn order_partitions(
        &mut self,
        topic: TopicId,
        partitions: u32,
        holder: HolderId,
        kept: &[EntryRef],
    ) -> Vec<u32> {
        let now = Instant::now();
        for partition in 0..partitions {
            let cursor = self.cursors.entry(CursorKey { topic, partition }).or_default();
            let kept: BTreeSet<u64> =
                kept.iter().filter(|entry| entry.partition == partition).map(|entry| entry.offset).collect();
            cursor.reservations.renew(holder, &kept, now + patience::HOLDER_SILENCE);
            cursor.reservations.expire(now);
        }
        let turn = self.turns.get(&topic).copied().unwrap_or(0);
        let mut order: Vec<u32> = (0..partitions).map(|n| (turn + n) % partitions).collect();
        order.sort_by_key(|&partition| {
            let cursor = &self.cursors[&CursorKey { topic, partition }];
            let has_failed =
                cursor.failed.is_some_and(|at| now.duration_since(at) < patience::UNREADABLE_PARTITION_LAST);
            (has_failed, !cursor.reservations.has_returned())
        });
        order
    }

    /// Reserves the next entry of a partition from `log_start` on, if it is read: pages that were read before may have older ones.
    pub(super) fn step(&mut self, key: CursorKey, holder: HolderId, log_start: u64) -> Step {
        loop {
            let cursor = self.cursors.entry(key).or_default();
            let offset = cursor.reservations.candidate();
            if offset < log_start {
                self.skip(key, log_start);
                continue;
            }
            match self.pages.find(key, offset) {
                Lookup::Entry(value) => {
                    let offset =
                        cursor.reservations.reserve(holder, Instant::now() + patience::HOLDER_SILENCE);
                    self.turns.insert(key.topic, key.partition + 1);
                    return Step::Take(EntryRef { partition: key.partition, offset }, value);
                }
                Lookup::Absent { exists } => self.skip(key, exists),
                Lookup::Unread => return Step::Read { offset, reading: Arc::clone(&cursor.reading) },
            }
        }
    }

    /// Skips the offsets from the next one up to `exists`, at which there are no entries.
    pub(super) fn skip(&mut self, key: CursorKey, exists: u64) {
        self.cursors.entry(key).or_default().reservations.skip_to(exists);
        self.dirty.insert(key);
    }

    /// Notes that a read that began at `began` found nothing at `offset`.
    pub(super) fn note_empty(&mut self, key: CursorKey, offset: u64, began: Instant) {
        self.cursors.entry(key).or_default().empty = Some((offset, began));
    }

    /// Whether a read that began after `asked` found nothing at `offset`.
    pub(super) fn is_empty_since(&self, key: CursorKey, offset: u64, asked: Instant) -> bool {
        let empty = self.cursors.get(&key).and_then(|cursor| cursor.empty);
        empty.is_some_and(|(at, began)| at == offset && began >= asked)
    }

    /// Notes that a partition cannot be read now.
    pub(super) fn note_failed(&mut self, key: CursorKey) {
        self.cursors.entry(key).or_default().failed = Some(Instant::now());
    }

    /// Revisions of a topic's cursors that are not recorded.
    pub(super) fn unrecorded(&self, topic: TopicId, partitions: u32) -> Vec<(CursorKey, u64)> {
        let keys = (0..partitions).map(|partition| CursorKey { topic, partition });
        let revision = |key| self.cursors.get(&key).map(|cursor| (key, cursor.reservations.revision()));
        keys.filter(|key| self.dirty.contains(key)).filter_map(revision).collect()
    }

    /// Whether one of the revisions is still not recorded.
    pub(super) fn lacks(&self, revisions: &[(CursorKey, u64)]) -> bool {
        revisions.iter().any(|(key, revision)| {
            let recorded = self.cursors.get(key).is_some_and(|cursor| cursor.recorded_revision >= *revision);
            self.dirty.contains(key) && !recorded
        })
    }

    /// Up to where each cursor has come, by what is durable.
    pub(super) fn positions(&self) -> Vec<(CursorKey, u64)> {
        let recorded = self.cursors.iter().filter(|(_, cursor)| cursor.recorded_at.is_some());
        recorded.map(|(key, cursor)| (*key, cursor.recorded_below)).collect()
    }

    /// Up to where the cursor of a topic has come in each partition, by what is durable.
    pub(super) fn marks(&self, topic: TopicId, partitions: u32) -> Vec<ReadMark> {
        let mark = |partition| {
            let cursor = self.cursors.get(&CursorKey { topic, partition })?;
            Some(ReadMark { partition, next: Offset(cursor.recorded_below) })
        };
        (0..partitions).filter_map(mark).collect()
    }
}

impl owners::Ledger for Ledger {
    const WHAT: &'static str = "cursors";
    // An entry, once delivered, stays delivered, so the records of two owners never contradict each other.
    const LATE: Late = Late::Harmless;

    fn nothing() -> Entry {
        let key = CursorKey { topic: TopicId::from_u128(0), partition: 0 }.encode().to_vec();
        Entry { key, value: Some(Progress::default().encode()), timestamp_ms: clock::now_ms() }
    }

    fn hand_over_request(partition: u32, number: u64, metadata_version: u64) -> Request {
        let asked = CursorHandOver { partition, number, metadata_version };
        Request::Cursor(request_payload(cursor_request::Request::HandOver(asked)))
    }

    /// Leaves cursors out whose form this node cannot read.
    fn handed_over(answer: Bytes) -> Result<Vec<HandedCursor>> {
        let cursor_answer::Answer::HandOver(answer) = decode_answer(answer)? else {
            return Err(unexpected());
        };
        Ok(answer.cursors.iter().filter_map(handed_cursor_of).collect())
    }

    fn replay(known: &mut ReplayedCursors, record: &LogRecord<'_>) -> std::result::Result<(), Unreadable> {
        let read = CursorKey::decode(record.key.unwrap_or_default())
            .and_then(|key| Ok((key, Progress::decode(record.value.unwrap_or_default())?)));
        match read {
            Ok((key, delivered)) => {
                let (known, at) = known.entry(key).or_default();
                known.merge(&delivered);
                *at = record.offset;
            }
            Err(problem @ BadRecord::Version { .. }) => return Err(Unreadable(problem.to_string())),
            // Without the record only knowledge of what was delivered is lost: entries may go out again.
            Err(problem) => tracing::warn!(offset = record.offset, %problem, "skips a cursor record"),
        }
        Ok(())
    }
}

impl walrus_owners::Ledger for Ledger {
    type Replayed = ReplayedCursors;
    type Handed = HandedCursor;
    type Lot = Vec<Record>;

    fn begin(&mut self, known: ReplayedCursors, handed: Vec<HandedCursor>) {
        let turns = std::mem::take(&mut self.turns);
        *self = Self { turns, ..Self::default() };
        for (key, (progress, recorded_at)) in known {
            let (recorded_at, recorded_below) = (Some(recorded_at), progress.position());
            let reservations = Reservations::resume(progress);
            self.cursors
                .insert(key, Cursor { reservations, recorded_at, recorded_below, ..Cursor::default() });
        }
        for HandedCursor { key, progress, reserved } in handed {
            let cursor = self.cursors.entry(key).or_default();
            let mut known = cursor.reservations.progress();
            known.merge(&progress);
            cursor.reservations = Reservations::resume(known);
            for (offset, reservation) in reserved {
                cursor.reservations.adopt(offset, reservation);
            }
            self.dirty.insert(key);
        }
    }

    fn end(&mut self) -> Vec<HandedCursor> {
        let turns = std::mem::take(&mut self.turns);
        let Self { cursors, dirty, .. } = std::mem::replace(self, Self { turns, ..Self::default() });
        let is_unknown = |key: &CursorKey, cursor: &Cursor| {
            dirty.contains(key) || cursor.reservations.reserved().next().is_some()
        };
        let unknown = cursors.into_iter().filter(|(key, cursor)| is_unknown(key, cursor));
        let handed = unknown.map(|(key, cursor)| HandedCursor {
            key,
            progress: cursor.reservations.progress(),
            reserved: cursor.reservations.reserved().collect(),
        });
        handed.collect()
    }

    fn has_lot(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The latest state of cursors that are not recorded, as many as one append takes.
    fn next_lot(&mut self) -> Option<(Vec<Record>, Vec<Entry>)> {
        let record = |key: &CursorKey| {
            let reservations = &self.cursors.get(key)?.reservations;
            Some(Record { key: *key, progress: reservations.progress(), revision: reservations.revision() })
        };
        let records: Vec<Record> = self.dirty.iter().filter_map(record).take(RECORDS_MAX).collect();
        let timestamp_ms = clock::now_ms();
        let entry = |record: &Record| Entry {
            key: record.key.encode().to_vec(),
            value: Some(record.progress.encode()),
            timestamp_ms,
        };
        let entries = records.iter().map(entry).collect();
        (!records.is_empty()).then_some((records, entries))
    }

    fn recorded(&mut self, lot: Vec<Record>, base_offset: u64) {
        for (offset, record) in (base_offset..).zip(lot) {
            let Some(cursor) = self.cursors.get_mut(&record.key) else { continue };
            cursor.recorded_at = Some(offset);
            cursor.recorded_below = record.progress.position();
            cursor.recorded_revision = record.revision;
            if cursor.reservations.revision() == record.revision {
                self.dirty.remove(&record.key);
            }
        }
    }

    fn entries(&self) -> u64 {
        self.cursors.len() as u64
    }

    fn drop_dead(&mut self, live: &HashSet<TopicId>, base: u64) {
        self.cursors.retain(|key, cursor| !cursor.is_recorded_below(base) || live.contains(&key.topic));
        self.dirty.retain(|key| self.cursors.contains_key(key));
    }

    fn record_again(&mut self, base: u64) {
        let old = self.cursors.iter().filter(|(_, cursor)| cursor.is_recorded_below(base));
        self.dirty.extend(old.map(|(key, _)| *key));
    }

    fn records_again(&self) -> bool {
        !self.dirty.is_empty()
    }
}

impl Cursor {
    fn is_recorded_below(&self, base: u64) -> bool {
        self.recorded_at.is_some_and(|recorded_at| recorded_at < base)
    }
}

#[cfg(test)]
mod tests {
    use walrus_owners::Ledger as _;

    use super::*;

    const TOPIC: TopicId = TopicId::from_u128(1);
    const KEY: CursorKey = CursorKey { topic: TOPIC, partition: 0 };

    fn holder(n: u128) -> HolderId {
        HolderId(uuid::Uuid::from_u128(n))
    }

    fn entry(offset: u64) -> EntryRef {
        EntryRef { partition: 0, offset }
    }

    fn reserve(ledger: &mut Ledger, by: u128) -> u64 {
        ledger
            .cursors
            .entry(KEY)
            .or_default()
            .reservations
            .reserve(holder(by), Instant::now() + patience::HOLDER_SILENCE)
    }

    #[test]
    fn the_next_owner_knows_what_is_held_and_what_was_delivered_but_not_recorded() {
        let mut first = Ledger::default();
        for by in [1, 2, 3] {
            reserve(&mut first, by);
        }
        assert_eq!(first.note_deliveries(TOPIC, 1, holder(2), (&[entry(1)], &[])), 0);
        let mut second = Ledger::default();
        second.begin(HashMap::new(), first.end());
        assert!(!first.has_lot() && first.entries() == 0);
        let reservations = &second.cursors[&KEY].reservations;
        assert_eq!(reservations.progress(), Progress { next: 3, pending: [0, 2].into() });
        assert_eq!(reservations.candidate(), 3, "0 and 2 are still held");
        assert_eq!(second.note_deliveries(TOPIC, 1, holder(1), (&[entry(0)], &[])), 0);
        assert_eq!(second.note_deliveries(TOPIC, 1, holder(9), (&[entry(2)], &[])), 1, "it is another's");
    }

    #[test]
    fn a_record_counts_only_for_what_it_says() {
        let mut ledger = Ledger::default();
        reserve(&mut ledger, 1);
        reserve(&mut ledger, 1);
        ledger.note_deliveries(TOPIC, 1, holder(1), (&[entry(0)], &[]));
        let wanted = ledger.unrecorded(TOPIC, 1);
        let (lot, _) = ledger.next_lot().unwrap();
        ledger.note_deliveries(TOPIC, 1, holder(1), (&[entry(1)], &[])); // while the append is in flight
        let later = ledger.unrecorded(TOPIC, 1);
        assert!(ledger.lacks(&wanted));
        ledger.recorded(lot, 0);
        assert!(!ledger.lacks(&wanted));
        assert!(ledger.lacks(&later), "the second delivery needs a record of its own");
        let (lot, _) = ledger.next_lot().unwrap();
        ledger.recorded(lot, 1);
        assert!(!ledger.lacks(&later) && !ledger.has_lot());
    }

    #[test]
    fn what_is_needed_of_older_segments_is_recorded_again_but_for_topics_that_are_gone() {
        let gone = CursorKey { topic: TopicId::from_u128(2), partition: 0 };
        let mut ledger = Ledger::default();
        let progress = Progress { next: 5, pending: BTreeSet::new() };
        ledger.begin([(KEY, (progress.clone(), 3)), (gone, (progress, 4))].into(), Vec::new());
        ledger.drop_dead(&HashSet::from([TOPIC]), 100);
        assert!(!ledger.records_again());
        ledger.record_again(100);
        assert!(ledger.records_again());
        let (lot, entries) = ledger.next_lot().unwrap();
        let keys: Vec<_> = entries.iter().map(|entry| entry.key.clone()).collect();
        assert_eq!(keys, [KEY.encode()], "the other topic is deleted");
        ledger.recorded(lot, 100);
        assert!(!ledger.records_again() && ledger.next_lot().is_none());
        ledger.record_again(100);
        assert!(!ledger.records_again(), "it was recorded behind");
    }

    #[test]
    fn partitions_take_turns_those_with_returned_entries_first_and_failed_ones_last() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.order_partitions(TOPIC, 3, holder(1), &[]), [0, 1, 2]);
        ledger.turns.insert(TOPIC, 1);
        assert_eq!(ledger.order_partitions(TOPIC, 3, holder(1), &[]), [1, 2, 0]);
        ledger.note_failed(CursorKey { topic: TOPIC, partition: 1 });
        assert_eq!(ledger.order_partitions(TOPIC, 3, holder(1), &[]), [2, 0, 1]);
        reserve(&mut ledger, 1); // partition 0; an answer that got lost: the holder does not know of it
        assert_eq!(ledger.order_partitions(TOPIC, 3, holder(1), &[]), [0, 2, 1]);
    }
}
