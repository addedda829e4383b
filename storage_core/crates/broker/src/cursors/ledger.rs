//! The ledger of the owner of a partition of `__cursors`, in memory: its cursors, what it has read ahead for them, and what
//! is not recorded yet. It does no I/O; the owner does that.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use walrus_metadata::ReadMark;
use walrus_model::{Offset, SegmentId, TopicId};

use super::pages::{Lookup, Pages};
use super::progress::{CursorKey, Progress};
use super::reservation::{HolderId, Reservation, Reservations};
use super::terms::EntryRef;
use crate::node::patience;

/// Limit on the cursors in one append to `__cursors`.
const RECORDS_MAX: usize = 1_024;
/// Entries in older segments of `__cursors` below which a snapshot is not worth it.
const SNAPSHOT_ENTRIES_MIN: u64 = 1_000;
/// Entries in older segments for each live cursor below which a snapshot is not worth it either.
const SNAPSHOT_FACTOR: u64 = 4;

/// The segment of `__cursors` under which a node serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServedSegment {
    pub(super) segment: SegmentId,
    pub(super) number: u64,
}

/// A trim of `__cursors` below a segment, which may be done once all cursors are recorded at or behind the segment's base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trim {
    pub(super) number: u64,
    pub(super) base: u64,
}

/// What another node knows of a cursor when it hands a partition of `__cursors` over.
#[derive(Debug)]
pub(super) struct HandedCursor {
    pub(super) key: CursorKey,
    pub(super) progress: Progress,
    pub(super) reserved: Vec<(u64, Reservation)>,
}

/// The state of a cursor, to be appended to `__cursors`.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) key: CursorKey,
    pub(super) progress: Progress,
    revision: u64,
}

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
    /// The segment under which this node serves; `None` if it does not.
    pub(super) serving: Option<ServedSegment>,
    /// Number of the segment below which all were handed over.
    pub(super) handed_over_below: u64,
    /// Whether a task appends records.
    pub(super) recording: bool,
    /// First offset of the partition of `__cursors`.
    pub(super) log_start: u64,
    pub(super) pages: Pages,
    cursors: HashMap<CursorKey, Cursor>,
    /// The partition after the one of which an entry was last reserved, by topic.
    turns: HashMap<TopicId, u32>,
    /// Cursors whose latest state is not recorded.
    dirty: HashSet<CursorKey>,
    /// The trim that is due when nothing is dirty any more.
    trim: Option<Trim>,
    /// Cursors that other nodes handed over and that are not taken in yet.
    heard: Vec<HandedCursor>,
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

    /// Whether anything is to be appended or trimmed.
    pub(super) fn has_work(&self) -> bool {
        !self.dirty.is_empty() || self.trim.is_some()
    }

    /// The latest state of cursors that are not recorded, as many as one append takes.
    pub(super) fn to_record(&self) -> Vec<Record> {
        if self.serving.is_none() {
            return Vec::new();
        }
        let record = |key: &CursorKey| {
            let reservations = &self.cursors.get(key)?.reservations;
            Some(Record { key: *key, progress: reservations.progress(), revision: reservations.revision() })
        };
        self.dirty.iter().filter_map(record).take(RECORDS_MAX).collect()
    }

    /// Notes that records that were taken while `serving` are durable, from `base_offset` on.
    pub(super) fn note_recorded(
        &mut self,
        serving: Option<ServedSegment>,
        records: &[Record],
        base_offset: u64,
    ) {
        if self.serving != serving {
            return; // revisions are of the cursors that were served then
        }
        for (offset, record) in (base_offset..).zip(records) {
            let Some(cursor) = self.cursors.get_mut(&record.key) else { continue };
            cursor.recorded_at = Some(offset);
            cursor.recorded_below = record.progress.position();
            cursor.recorded_revision = record.revision;
            if cursor.reservations.revision() == record.revision {
                self.dirty.remove(&record.key);
            }
        }
    }

    /// Up to where the cursor of a topic has come in each partition, by what is durable.
    pub(super) fn marks(&self, topic: TopicId, partitions: u32) -> Vec<ReadMark> {
        let mark = |partition| {
            let cursor = self.cursors.get(&CursorKey { topic, partition })?;
            Some(ReadMark { partition, next: Offset(cursor.recorded_below) })
        };
        (0..partitions).filter_map(mark).collect()
    }

    /// Takes the trim that is due, once every record is written.
    pub(super) fn take_trim(&mut self) -> Option<Trim> {
        self.trim.take_if(|_| self.dirty.is_empty())
    }

    /// Keeps what other nodes handed over until the next begin.
    pub(super) fn hear(&mut self, said: Vec<HandedCursor>) {
        self.heard.extend(said);
    }

    /// Begins with what was replayed, and with what other nodes handed over.
    pub(super) fn begin(&mut self, replayed: HashMap<CursorKey, (Progress, u64)>) {
        let heard = self.forget().heard;
        for (key, (progress, recorded_at)) in replayed {
            let (recorded_at, recorded_below) = (Some(recorded_at), progress.position());
            let reservations = Reservations::resume(progress);
            self.cursors
                .insert(key, Cursor { reservations, recorded_at, recorded_below, ..Cursor::default() });
        }
        for HandedCursor { key, progress, reserved } in heard {
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

    /// Ends serving; answers what the next owner cannot read in the log.
    pub(super) fn hand_over(&mut self) -> Vec<HandedCursor> {
        let Self { cursors, dirty, heard, .. } = self.forget();
        let is_unknown = |key: &CursorKey, cursor: &Cursor| {
            dirty.contains(key) || cursor.reservations.reserved().next().is_some()
        };
        let unknown = cursors.into_iter().filter(|(key, cursor)| is_unknown(key, cursor));
        let own = unknown.map(|(key, cursor)| HandedCursor {
            key,
            progress: cursor.reservations.progress(),
            reserved: cursor.reservations.reserved().collect(),
        });
        own.chain(heard).collect()
    }

    /// Marks what must be recorded again so that the segments before this one can go, if that is worth it. A topic of
    /// a record in a sealed segment was created before this segment was opened: if it is not `live` in the metadata
    /// that name us the leader, it is deleted.
    pub(super) fn plan_snapshot(&mut self, live: &HashSet<TopicId>, Trim { number, base }: Trim) {
        let is_old = |cursor: &Cursor| cursor.recorded_at.is_some_and(|recorded_at| recorded_at < base);
        self.cursors.retain(|key, cursor| !is_old(cursor) || live.contains(&key.topic));
        self.dirty.retain(|key| self.cursors.contains_key(key));
        let old_entries = base.saturating_sub(self.log_start);
        if old_entries >= SNAPSHOT_ENTRIES_MIN.max(self.cursors.len() as u64 * SNAPSHOT_FACTOR) {
            self.dirty.extend(self.cursors.iter().filter(|(_, cursor)| is_old(cursor)).map(|(key, _)| *key));
            self.trim = Some(Trim { number, base });
        }
    }

    /// Empties the ledger, but for what outlives the serving, and answers what it was.
    fn forget(&mut self) -> Self {
        let (handed_over_below, recording) = (self.handed_over_below, self.recording);
        let turns = std::mem::take(&mut self.turns);
        std::mem::replace(self, Self { handed_over_below, recording, turns, ..Self::default() })
    }
}

#[cfg(test)]
mod tests {
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

    fn serving(number: u64) -> Option<ServedSegment> {
        Some(ServedSegment { segment: SegmentId::from_u128(number.into()), number })
    }

    #[test]
    fn the_next_owner_knows_what_is_held_and_what_was_delivered_but_not_recorded() {
        let mut first = Ledger { serving: serving(0), ..Ledger::default() };
        for by in [1, 2, 3] {
            reserve(&mut first, by);
        }
        assert_eq!(first.note_deliveries(TOPIC, 1, holder(2), (&[entry(1)], &[])), 0);
        let (mut passing_on, mut second) = (Ledger::default(), Ledger::default());
        passing_on.hear(first.hand_over());
        second.hear(passing_on.hand_over());
        second.begin(HashMap::new());
        assert_eq!(first.serving, None);
        let reservations = &second.cursors[&KEY].reservations;
        assert_eq!(reservations.progress(), Progress { next: 3, pending: [0, 2].into() });
        assert_eq!(reservations.candidate(), 3, "0 and 2 are still held");
        assert_eq!(second.note_deliveries(TOPIC, 1, holder(1), (&[entry(0)], &[])), 0);
        assert_eq!(second.note_deliveries(TOPIC, 1, holder(9), (&[entry(2)], &[])), 1, "it is another's");
    }

    #[test]
    fn a_record_counts_only_for_what_it_says() {
        let mut ledger = Ledger { serving: serving(0), ..Ledger::default() };
        reserve(&mut ledger, 1);
        reserve(&mut ledger, 1);
        ledger.note_deliveries(TOPIC, 1, holder(1), (&[entry(0)], &[]));
        let (wanted, records) = (ledger.unrecorded(TOPIC, 1), ledger.to_record());
        ledger.note_deliveries(TOPIC, 1, holder(1), (&[entry(1)], &[])); // while the append is in flight
        let later = ledger.unrecorded(TOPIC, 1);
        assert!(ledger.lacks(&wanted));
        ledger.note_recorded(serving(7), &records, 0);
        assert!(ledger.lacks(&wanted), "records of another term say nothing");
        ledger.note_recorded(serving(0), &records, 0);
        assert!(!ledger.lacks(&wanted));
        assert!(ledger.lacks(&later), "the second delivery needs a record of its own");
        let records = ledger.to_record();
        ledger.note_recorded(serving(0), &records, 1);
        assert!(!ledger.lacks(&later) && !ledger.has_work());
    }

    #[test]
    fn older_segments_go_when_all_that_is_needed_of_them_is_recorded_again() {
        let gone = CursorKey { topic: TopicId::from_u128(2), partition: 0 };
        let mut ledger = Ledger::default();
        let progress = Progress { next: 5, pending: BTreeSet::new() };
        ledger.begin([(KEY, (progress.clone(), 3)), (gone, (progress, 4))].into());
        ledger.serving = serving(1);
        let live = HashSet::from([TOPIC]);
        ledger.plan_snapshot(&live, Trim { number: 1, base: SNAPSHOT_ENTRIES_MIN - 1 });
        assert!(!ledger.has_work(), "not worth it");
        ledger.plan_snapshot(&live, Trim { number: 1, base: SNAPSHOT_ENTRIES_MIN });
        assert_eq!(ledger.take_trim(), None, "not before the record");
        let records = ledger.to_record();
        assert_eq!(
            records.iter().map(|record| record.key).collect::<Vec<_>>(),
            [KEY],
            "the other topic is deleted"
        );
        ledger.note_recorded(serving(1), &records, SNAPSHOT_ENTRIES_MIN);
        assert_eq!(ledger.take_trim(), Some(Trim { number: 1, base: SNAPSHOT_ENTRIES_MIN }));
        assert!(!ledger.has_work());
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
