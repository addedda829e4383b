//! The owner of one partition of the internal topic `__cursors`: the node that leads its open segment.
//!
//! It keeps the cursors of the topics that hash there. Taking over, it asks every other node to stop serving the
//! partition and to say what it had handed out, then replays the partition. What was delivered is appended to the
//! partition, one append in flight, the latest state of each cursor in it; when older segments hold little that is
//! still needed, that little is appended again and they are trimmed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use uuid::Uuid;
use walrus_log::batch::{Batch, BatchBuilder};

use super::consumer::EntryRef;
use super::pages::{Lookup, Page, Pages};
use super::progress::{BadRecord, CursorKey, Progress};
use super::reservation::{HolderId, Reservation, Reservations};
use super::service::{Settlement, TopicRef};
use crate::broker::{Broker, Leadership, ReadOptions};
use crate::clock;
use crate::error::{Error, Result};
use crate::topic::{PartitionRef, TopicName};

/// A holder that gives no sign for so long loses what it holds.
pub(super) const HOLD: Duration = Duration::from_secs(30);
/// Bytes of a topic that are read ahead.
const PAGE_BYTES: usize = 256 << 10;
/// Bytes of `__cursors` that are replayed at a time.
const REPLAY_BYTES: usize = 1 << 20;
/// Cursors in one append to `__cursors`.
const RECORDS_MAX: usize = 1_024;
/// Entries in older segments of `__cursors` that are not worth a snapshot.
const SNAPSHOT_ENTRIES_MIN: u64 = 1_000;
/// Older entries for each live cursor that are not worth one either.
const SNAPSHOT_FACTOR: u64 = 4;
/// Pause before a failed append to `__cursors` is tried again.
const RECORD_RETRY: Duration = Duration::from_millis(200);

/// What another node says when it hands a partition of `__cursors` over.
#[derive(Debug)]
pub(super) struct HandedOver {
    pub(super) key: CursorKey,
    pub(super) progress: Progress,
    pub(super) reserved: Vec<(u64, Reservation)>,
}

/// The cursors of one partition of `__cursors`, as far as this node owns them.
pub(super) struct Owner {
    log: PartitionRef,
    state: Mutex<State>,
    /// One taking over at a time.
    taking_over: tokio::sync::Mutex<()>,
    /// Ticks when records became durable, or when the ownership ended.
    recorded: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// Segment of `__cursors` under which this node serves; `None`: it does not.
    serving: Option<Serving>,
    /// Segments below this number were handed over.
    handed_over_below: u64,
    cursors: HashMap<CursorKey, Cursor>,
    /// Partition after the one that served last, by topic.
    turns: HashMap<Uuid, u32>,
    pages: Pages,
    /// Cursors with deliveries that are not recorded.
    dirty: HashSet<CursorKey>,
    /// A task appends records.
    recording: bool,
    /// When nothing is dirty any more, segments below this number can go.
    trim_below: Option<Trim>,
    /// First offset of the partition.
    log_start: u64,
}

/// A segment of `__cursors`; what lies before it is not needed once all cursors are recorded behind.
#[derive(Clone, Copy)]
struct Trim {
    number: u64,
    base: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Serving {
    segment: Uuid,
    number: u64,
}

#[derive(Default)]
struct Cursor {
    reservations: Reservations,
    /// Revision of `reservations` that is durable.
    recorded_revision: u64,
    /// Place of its latest record in `__cursors`.
    recorded_at: Option<u64>,
    /// One read of its partition at a time.
    reading: Arc<tokio::sync::Mutex<()>>,
    /// Nothing was there at this offset when a read began at this time.
    empty: Option<(u64, Instant)>,
}

/// What to do about a partition when an entry is wanted.
enum Step {
    Take(EntryRef, Bytes),
    Read { offset: u64, reading: Arc<tokio::sync::Mutex<()>> },
}

impl Owner {
    pub(super) fn new(log: PartitionRef) -> Self {
        let (state, taking_over) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { log, state, taking_over, recorded: watch::Sender::new(0) }
    }

    /// Reserves the next free entry of a topic for `holder`.
    pub(super) async fn next(
        self: &Arc<Self>,
        broker: &Broker,
        topic: &TopicRef,
        holder: HolderId,
        settlement: &Settlement,
    ) -> Result<Option<(EntryRef, Bytes)>> {
        let serving = self.serve(broker).await?;
        let partitions = partitions(broker, topic)?;
        let order = {
            let mut state = self.locked(serving)?;
            state.settle(topic.id, holder, &settlement.delivered, &[]);
            state.order(topic.id, partitions, holder, &settlement.kept)
        };
        self.record(broker);
        let mut problem = None;
        for partition in order {
            match self.next_of(broker, serving, topic, partition, holder).await {
                Ok(Some(next)) => return Ok(Some(next)),
                Ok(None) => {}
                Err(error) => problem = Some(error),
            }
        }
        problem.map_or(Ok(None), Err)
    }

    /// Takes in what became of entries; says how many deliveries came too late. With `durable` it waits until every
    /// delivery of the topic is recorded.
    pub(super) async fn settle(
        self: &Arc<Self>,
        broker: &Broker,
        topic: &TopicRef,
        holder: HolderId,
        (delivered, returned): (&[EntryRef], &[EntryRef]),
        durable: bool,
    ) -> Result<u32> {
        let serving = self.serve(broker).await?;
        let partitions = partitions(broker, topic)?;
        let mut recorded = self.recorded.subscribe();
        let (lost, revisions) = {
            let mut state = self.locked(serving)?;
            let lost = state.settle(topic.id, holder, delivered, returned);
            (lost, if durable { state.revisions(topic.id, partitions) } else { Vec::new() })
        };
        self.record(broker);
        while self.locked(serving)?.lacks(&revisions) {
            recorded.changed().await.expect("the owner holds the sender");
        }
        Ok(lost)
    }

    /// Serves segments of `__cursors` below `number` no more; says what the next owner cannot read there.
    pub(super) fn hand_over(&self, number: u64) -> Vec<HandedOver> {
        let mut state = self.state.lock();
        state.handed_over_below = state.handed_over_below.max(number);
        if state.serving.is_none_or(|serving| serving.number >= number) {
            return Vec::new();
        }
        let State { cursors, dirty, .. } = state.begin_again(HashMap::new());
        drop(state);
        self.recorded.send_modify(|tick| *tick += 1);
        let state_of = |(key, cursor): (CursorKey, Cursor)| HandedOver {
            key,
            progress: cursor.reservations.progress(),
            reserved: cursor.reservations.reserved().collect(),
        };
        let is_unrecorded = |(key, cursor): &(CursorKey, Cursor)| {
            dirty.contains(key) || cursor.reservations.reserved().next().is_some()
        };
        cursors.into_iter().filter(is_unrecorded).map(state_of).collect()
    }

    /// Waits until everything delivered is recorded.
    pub(super) async fn drain(&self) {
        let mut recorded = self.recorded.subscribe();
        while self.state.lock().recording {
            if recorded.changed().await.is_err() {
                return;
            }
        }
    }

    /// Makes sure that this node owns the partition, under the segment that is answered.
    async fn serve(self: &Arc<Self>, broker: &Broker) -> Result<Serving> {
        if let Some(serving) = self.is_serving(&self.leadership(broker)?) {
            return Ok(serving);
        }
        let _taking_over = self.taking_over.lock().await;
        let leadership = self.leadership(broker)?;
        if let Some(serving) = self.is_serving(&leadership) {
            return Ok(serving);
        }
        let serving = Serving { segment: leadership.segment, number: leadership.number };
        let led_before = self.state.lock().serving.is_some_and(|before| before.number + 1 == serving.number);
        if led_before {
            self.state.lock().serving = Some(serving); // our own roll: nobody else can have served in between
        } else {
            self.take_over(broker, serving).await?;
        }
        self.plan_snapshot(broker, &leadership);
        self.record(broker);
        Ok(serving)
    }

    /// The leadership of the open segment, if it is ours and not handed over.
    fn leadership(&self, broker: &Broker) -> Result<Leadership> {
        let leadership = broker.leadership(&self.log)?;
        let handed_over = leadership.number < self.state.lock().handed_over_below;
        if leadership.ours && !handed_over {
            return Ok(leadership);
        }
        let hint = (!leadership.ours).then_some(leadership.node);
        Err(Error::NotLeader { key: self.log.to_string(), hint })
    }

    fn is_serving(&self, leadership: &Leadership) -> Option<Serving> {
        self.state.lock().serving.filter(|serving| serving.segment == leadership.segment)
    }

    async fn take_over(&self, broker: &Broker, serving: Serving) -> Result<()> {
        let handed_over = broker.cursors().collect(broker, self.log.partition, serving.number).await;
        let (mut cursors, log_start) = self.replay(broker).await?;
        let mut dirty = HashSet::new();
        for HandedOver { key, progress, reserved } in handed_over {
            let cursor = cursors.entry(key).or_default();
            let mut known = cursor.reservations.progress();
            known.merge(&progress);
            cursor.reservations = Reservations::resume(known);
            for (offset, reservation) in reserved {
                cursor.reservations.adopt(offset, reservation);
            }
            dirty.insert(key);
        }
        tracing::info!(log = %self.log, number = serving.number, cursors = cursors.len(), "owns cursors");
        let mut state = self.state.lock();
        state.begin_again(cursors);
        state.dirty = dirty;
        state.log_start = log_start;
        state.serving = (serving.number >= state.handed_over_below).then_some(serving);
        Ok(())
    }

    /// Reads all records of the partition; says where it begins, too.
    async fn replay(&self, broker: &Broker) -> Result<(HashMap<CursorKey, Cursor>, u64)> {
        let mut progress: HashMap<CursorKey, (Progress, u64)> = HashMap::new();
        let options = ReadOptions { bytes_max: REPLAY_BYTES, wait: Duration::ZERO, segment: None };
        let mut offset = 0;
        let log_start = loop {
            let page = match broker.read(&self.log, offset, options).await {
                Err(Error::OffsetOutOfRange { start, .. }) if offset < start => {
                    offset = start;
                    continue;
                }
                page => page?,
            };
            for batch in &page.batches {
                replay_batch(batch, &mut progress).map_err(|problem| self.unreadable(problem))?;
            }
            if page.next_offset <= offset || page.batches.is_empty() {
                break page.log_start;
            }
            offset = page.next_offset;
        };
        let resume = |(key, (progress, recorded_at))| {
            let reservations = Reservations::resume(progress);
            (key, Cursor { reservations, recorded_at: Some(recorded_at), ..Cursor::default() })
        };
        Ok((progress.into_iter().map(resume).collect(), log_start))
    }

    fn unreadable(&self, problem: impl std::fmt::Display) -> Error {
        Error::Internal { message: format!("cannot replay {}: {problem}", self.log) }
    }

    /// Marks what must be recorded again so that the segments before this one can go, if that is worth it.
    fn plan_snapshot(&self, broker: &Broker, leadership: &Leadership) {
        let live: HashSet<Uuid> = broker.topics(true).into_iter().map(|topic| topic.id).collect();
        let mut state = self.state.lock();
        let base = leadership.base_offset;
        let is_old = |cursor: &Cursor| cursor.recorded_at.is_some_and(|recorded_at| recorded_at < base);
        // A topic of a record in a sealed segment was created before this segment was opened, so if the metadata that
        // names us its leader do not know it, it is deleted.
        let State { cursors, dirty, log_start, trim_below, .. } = &mut *state;
        cursors.retain(|key, cursor| !is_old(cursor) || live.contains(&key.topic));
        dirty.retain(|key| cursors.contains_key(key));
        let old_entries = base.saturating_sub(*log_start);
        if old_entries >= SNAPSHOT_ENTRIES_MIN.max(cursors.len() as u64 * SNAPSHOT_FACTOR) {
            dirty.extend(cursors.iter().filter(|(_, cursor)| is_old(cursor)).map(|(key, _)| *key));
            *trim_below = Some(Trim { number: leadership.number, base });
        }
    }

    /// The state, if this node still serves under the same segment.
    fn locked(&self, serving: Serving) -> Result<parking_lot::MappedMutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.serving != Some(serving) {
            return Err(Error::NotLeader { key: self.log.to_string(), hint: None });
        }
        Ok(parking_lot::MutexGuard::map(state, |state| state))
    }

    /// Reserves the next free entry of one partition; reads it first if need be.
    async fn next_of(
        &self,
        broker: &Broker,
        serving: Serving,
        topic: &TopicRef,
        partition: u32,
        holder: HolderId,
    ) -> Result<Option<(EntryRef, Bytes)>> {
        let key = CursorKey { topic: topic.id, partition };
        let from = PartitionRef { topic: topic.name.clone(), partition };
        let asked = Instant::now();
        loop {
            let (offset, reading) = match self.locked(serving)?.step(key, holder) {
                Step::Take(entry, value) => return Ok(Some((entry, value))),
                Step::Read { offset, reading } => (offset, reading),
            };
            let _reading = reading.lock().await;
            {
                let mut state = self.locked(serving)?;
                let empty = state.cursors.get(&key).and_then(|cursor| cursor.empty);
                if empty.is_some_and(|(at, began)| at == offset && began >= asked) {
                    return Ok(None);
                }
                if state.pages.find(key, offset) != Lookup::Unread {
                    continue; // somebody read it while we waited
                }
            }
            let began = Instant::now();
            let options = ReadOptions { bytes_max: PAGE_BYTES, wait: Duration::ZERO, segment: None };
            match broker.read(&from, offset, options).await {
                Ok(page) if page.batches.is_empty() => {
                    let mut state = self.locked(serving)?;
                    if let Some(cursor) = state.cursors.get_mut(&key) {
                        cursor.empty = Some((offset, began));
                    }
                    return Ok(None);
                }
                Ok(page) => {
                    let page = Page::open(key, offset, &page)?;
                    self.locked(serving)?.pages.insert(page);
                }
                Err(Error::OffsetOutOfRange { start, .. }) if offset < start => {
                    self.locked(serving)?.skip(key, start);
                }
                Err(problem) => return Err(problem),
            }
        }
    }

    /// Starts the task that appends records, unless it runs or nothing is to do.
    fn record(self: &Arc<Self>, broker: &Broker) {
        let mut state = self.state.lock();
        if state.recording || (state.dirty.is_empty() && state.trim_below.is_none()) {
            return;
        }
        state.recording = true;
        drop(state);
        let (owner, broker) = (Arc::clone(self), broker.downgrade());
        tokio::spawn(async move {
            while let Ok(broker) = broker.upgrade() {
                if !owner.record_once(&broker).await {
                    break;
                }
            }
        });
    }

    /// Appends the latest state of what is dirty. False: nothing is left to do.
    async fn record_once(&self, broker: &Broker) -> bool {
        let (serving, records, trim) = {
            let mut state = self.state.lock();
            let records = state.to_record();
            let trim = if records.is_empty() { state.trim_below.take() } else { None };
            state.recording = !records.is_empty() || trim.is_some();
            (state.serving, records, trim)
        };
        if !records.is_empty() {
            match self.append(broker, &records).await {
                Ok(base_offset) => self.state.lock().have_recorded(serving, &records, base_offset),
                Err(problem) => self.not_recorded(broker, &problem).await,
            }
        } else if let Some(Trim { number, base }) = trim {
            match broker.trim(&self.log, number).await {
                Ok(()) => self.state.lock().log_start = base,
                Err(problem) => {
                    tracing::warn!(log = %self.log, %problem, "old cursor records stay until the next roll");
                }
            }
        }
        self.recorded.send_modify(|tick| *tick += 1);
        !records.is_empty() || trim.is_some()
    }

    /// Waits before the next try. A node that stops gives up, and the cursors with it.
    async fn not_recorded(&self, broker: &Broker, problem: &Error) {
        tracing::warn!(log = %self.log, %problem, "cursors are not recorded, trying again");
        if broker.shutdown_signal().run_until_cancelled(tokio::time::sleep(RECORD_RETRY)).await.is_none() {
            self.state.lock().serving = None;
        }
    }

    async fn append(&self, broker: &Broker, records: &[Record]) -> Result<u64> {
        let mut builder = BatchBuilder::new();
        let now = clock::now_ms();
        for record in records {
            builder.push(Some(&record.key.encode()), Some(&record.progress.encode()), now, &[]);
        }
        let mut batch = Vec::new();
        builder.build(&mut batch).map_err(|problem| Error::Internal { message: problem.to_string() })?;
        Ok(broker.append_internal(&self.log, batch.into()).await?.base_offset)
    }
}

struct Record {
    key: CursorKey,
    progress: Progress,
    revision: u64,
}

impl State {
    /// Serves nothing, knows `cursors`; answers the state before.
    fn begin_again(&mut self, cursors: HashMap<CursorKey, Cursor>) -> Self {
        let (handed_over_below, recording) = (self.handed_over_below, self.recording);
        let turns = std::mem::take(&mut self.turns);
        std::mem::replace(self, Self { cursors, handed_over_below, recording, turns, ..Self::default() })
    }

    /// Revisions of a topic's cursors that are not recorded.
    fn revisions(&self, topic: Uuid, partitions: u32) -> Vec<(CursorKey, u64)> {
        let keys = (0..partitions).map(|partition| CursorKey { topic, partition });
        let revision = |key| self.cursors.get(&key).map(|cursor| (key, cursor.reservations.revision()));
        keys.filter(|key| self.dirty.contains(key)).filter_map(revision).collect()
    }

    /// Whether one of the revisions is still not recorded.
    fn lacks(&self, revisions: &[(CursorKey, u64)]) -> bool {
        revisions.iter().any(|(key, revision)| {
            let recorded = self.cursors.get(key).is_some_and(|cursor| cursor.recorded_revision >= *revision);
            self.dirty.contains(key) && !recorded
        })
    }

    fn settle(
        &mut self,
        topic: Uuid,
        holder: HolderId,
        delivered: &[EntryRef],
        returned: &[EntryRef],
    ) -> u32 {
        let mut lost = 0;
        for entry in delivered {
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
    /// then in turn. On the way, what has no sign of its holder goes back.
    fn order(&mut self, topic: Uuid, partitions: u32, holder: HolderId, kept: &[EntryRef]) -> Vec<u32> {
        let now = Instant::now();
        for partition in 0..partitions {
            let cursor = self.cursors.entry(CursorKey { topic, partition }).or_default();
            let kept: BTreeSet<u64> =
                kept.iter().filter(|e| e.partition == partition).map(|e| e.offset).collect();
            cursor.reservations.renew(holder, &kept, now + HOLD);
            cursor.reservations.expire(now);
        }
        let turn = self.turns.get(&topic).copied().unwrap_or(0);
        let mut order: Vec<u32> = (0..partitions).map(|n| (turn + n) % partitions).collect();
        order.sort_by_key(|&partition| {
            !self.cursors.get(&CursorKey { topic, partition }).is_some_and(|c| c.reservations.has_returned())
        });
        order
    }

    fn step(&mut self, key: CursorKey, holder: HolderId) -> Step {
        loop {
            let cursor = self.cursors.entry(key).or_default();
            let offset = cursor.reservations.candidate();
            match self.pages.find(key, offset) {
                Lookup::Entry(value) => {
                    let offset = cursor.reservations.reserve(holder, Instant::now() + HOLD);
                    self.turns.insert(key.topic, key.partition + 1);
                    return Step::Take(EntryRef { partition: key.partition, offset }, value);
                }
                Lookup::Absent { exists } => self.skip(key, exists),
                Lookup::Unread => return Step::Read { offset, reading: Arc::clone(&cursor.reading) },
            }
        }
    }

    fn skip(&mut self, key: CursorKey, exists: u64) {
        self.cursors.entry(key).or_default().reservations.skip_to(exists);
        self.dirty.insert(key);
    }

    fn to_record(&self) -> Vec<Record> {
        if self.serving.is_none() {
            return Vec::new();
        }
        let record = |key: &CursorKey| {
            let reservations = &self.cursors.get(key)?.reservations;
            Some(Record { key: *key, progress: reservations.progress(), revision: reservations.revision() })
        };
        self.dirty.iter().filter_map(record).take(RECORDS_MAX).collect()
    }

    fn have_recorded(&mut self, serving: Option<Serving>, records: &[Record], base_offset: u64) {
        if self.serving != serving {
            return; // revisions are of the cursors that were served then
        }
        for (offset, record) in (base_offset..).zip(records) {
            let Some(cursor) = self.cursors.get_mut(&record.key) else { continue };
            cursor.recorded_at = Some(offset);
            cursor.recorded_revision = record.revision;
            if cursor.reservations.revision() == record.revision {
                self.dirty.remove(&record.key);
            }
        }
    }
}

fn partitions(broker: &Broker, topic: &TopicRef) -> Result<u32> {
    match broker.topic(topic.name.as_str()) {
        Some(info) if info.id == topic.id => Ok(info.partitions),
        _ => Err(Error::UnknownTopic { topic: topic.name.to_string() }),
    }
}

fn replay_batch(batch: &[u8], progress: &mut HashMap<CursorKey, (Progress, u64)>) -> Result<(), String> {
    let (batch, _) = Batch::parse(batch).map_err(|problem| problem.to_string())?;
    for record in batch.records() {
        let record = record.map_err(|problem| problem.to_string())?;
        let read = CursorKey::decode(record.key.unwrap_or_default())
            .and_then(|key| Ok((key, Progress::decode(record.value.unwrap_or_default())?)));
        match read {
            Ok((key, delivered)) => {
                let (known, at) = progress.entry(key).or_default();
                known.merge(&delivered);
                *at = record.offset;
            }
            Err(problem @ BadRecord::Version { .. }) => return Err(problem.to_string()),
            // Nothing is lost without it but knowledge of what was delivered: entries may go out again.
            Err(problem) => tracing::warn!(offset = record.offset, %problem, "skips a cursor record"),
        }
    }
    Ok(())
}

/// The name of the internal topic.
pub(super) fn log_name() -> TopicName {
    TopicName::parse("__cursors").expect("it is of the alphabet")
}
