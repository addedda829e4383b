//! The owner of one partition of the internal topic `__cursors`: the node that leads its open segment.
//!
//! It keeps the cursors of the topics that hash there. Taking over, it asks every other node to stop serving the
//! partition and to say what it had handed out, then replays the partition. What was delivered is appended to the
//! partition, one append in flight, the latest state of each cursor in it; when older segments hold little that is
//! still needed, that little is appended again and they are trimmed.

use parking_lot::MutexGuard;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::watch;
use walrus_log::batch::{Batch, BatchBuilder};
use walrus_metadata::ReadMark;
use walrus_model::TopicId;

use super::hand_over;
use super::ledger::{HandedCursor, Ledger, Record, ServedSegment, Step, Trim};
use super::pages::{Lookup, Page};
use super::progress::{BadRecord, CursorKey, Progress};
use super::reservation::HolderId;
use super::terms::{EntryRef, HolderReport, TopicRef};
use crate::cluster::leadership::Leadership;
use crate::node::clock;
use crate::node::error::{Error, Result};
use crate::node::locks::{Lock, Turn};
use crate::node::names::{PartitionRef, TopicPath};
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::reading::reader::ReadOptions;
use crate::topics::Topics;

/// About how many bytes of a topic are read ahead at a time.
const PAGE_BYTES: usize = 256 << 10;
/// About how many bytes of `__cursors` are replayed at a time.
const REPLAY_BYTES: usize = 1 << 20;

/// The cursors of one partition of `__cursors`, as far as this node owns them.
pub(super) struct Owner {
    log: PartitionRef,
    ledger: Lock<Ledger>,
    /// Held while this node takes the partition over, so that it does so once.
    taking_over: tokio::sync::Mutex<()>,
    /// Ticks when records became durable, or when the ownership ended.
    recorded: watch::Sender<u64>,
    /// Whether the last try to record failed, which was logged.
    is_stuck: AtomicBool,
}

impl Owner {
    pub(super) fn new(log: PartitionRef) -> Self {
        let (ledger, taking_over) = (Lock::default(), tokio::sync::Mutex::default());
        Self { log, ledger, taking_over, recorded: watch::Sender::new(0), is_stuck: AtomicBool::new(false) }
    }

    /// Reserves the next free entry of a topic for `holder`.
    pub(super) async fn next(
        self: &Arc<Self>,
        topics: &Arc<Topics>,
        topic: &TopicRef,
        holder: HolderId,
        report: &HolderReport,
    ) -> Result<Option<(EntryRef, Bytes)>> {
        let serving = self.serve(topics).await?;
        let partitions = partitions(topics, topic)?;
        let order = {
            let mut ledger = self.lock_ledger(serving)?;
            ledger.note_deliveries(topic.id, partitions, holder, (&report.delivered, &[]));
            ledger.order_partitions(topic.id, partitions, holder, &report.kept)
        };
        self.record(topics);
        let mut problem = None;
        for partition in order {
            match self.next_of(topics, serving, topic, partition, holder).await {
                Ok(Some(next)) => return Ok(Some(next)),
                Ok(None) => {}
                Err(error) => {
                    self.lock_ledger(serving)?.note_failed(CursorKey { topic: topic.id, partition });
                    problem = Some(error);
                }
            }
        }
        problem.map_or(Ok(None), Err)
    }

    /// Notes which entries were delivered and which returned; says how many deliveries came too late. With `durable` it waits
    /// until every delivery of the topic so far is recorded.
    pub(super) async fn note_deliveries(
        self: &Arc<Self>,
        topics: &Arc<Topics>,
        topic: &TopicRef,
        holder: HolderId,
        entries: (&[EntryRef], &[EntryRef]),
        durable: bool,
    ) -> Result<u32> {
        let serving = self.serve(topics).await?;
        let partitions = partitions(topics, topic)?;
        let mut recorded = self.recorded.subscribe();
        let (lost, revisions) = {
            let mut ledger = self.lock_ledger(serving)?;
            let lost = ledger.note_deliveries(topic.id, partitions, holder, entries);
            (lost, if durable { ledger.unrecorded(topic.id, partitions) } else { Vec::new() })
        };
        self.record(topics);
        let deadline = tokio::time::Instant::now() + patience::CURSOR_DURABLE;
        let mut lost_nodes = topics.cluster().liveness().watch_lost();
        while self.lock_ledger(serving)?.lacks(&revisions) {
            topics.cluster().check_reach(&self.log)?;
            tokio::select! {
                tick = recorded.changed() => tick.expect("the owner holds the sender"),
                tick = lost_nodes.changed() => tick.expect("the cluster holds the sender"),
                () = tokio::time::sleep_until(deadline) => {
                    return Err(Obstacle::CursorsUnrecorded { log: self.log.to_string() }.into());
                }
            }
        }
        Ok(lost)
    }

    /// Stops serving segments of `__cursors` below `number`; says what the next owner cannot read there.
    pub(super) fn hand_over(&self, number: u64) -> Vec<HandedCursor> {
        let mut ledger = self.ledger.lock();
        ledger.handed_over_below = ledger.handed_over_below.max(number);
        if ledger.serving.is_some_and(|serving| serving.number >= number) {
            return Vec::new();
        }
        let unknown = ledger.hand_over();
        drop(ledger);
        self.recorded.send_modify(|tick| *tick += 1);
        unknown
    }

    /// Waits until everything delivered is recorded.
    pub(super) async fn drain(&self) {
        let mut recorded = self.recorded.subscribe();
        while self.ledger.lock().recording {
            if recorded.changed().await.is_err() {
                return;
            }
        }
    }

    /// Up to where the cursor of a topic has come, durably. Fails on a node that does not own it.
    pub(super) async fn marks(
        self: &Arc<Self>,
        topics: &Arc<Topics>,
        topic: TopicId,
        partitions: u32,
    ) -> Result<Vec<ReadMark>> {
        let serving = self.serve(topics).await?;
        Ok(self.lock_ledger(serving)?.marks(topic, partitions))
    }

    /// Makes sure that this node owns the partition, under the segment that is answered.
    async fn serve(self: &Arc<Self>, topics: &Arc<Topics>) -> Result<ServedSegment> {
        if let Some(serving) = self.serving_under(&self.leadership(topics)?) {
            return Ok(serving);
        }
        let _taking_over = self.taking_over.lock().await;
        let leadership = self.leadership(topics)?;
        if let Some(serving) = self.serving_under(&leadership) {
            return Ok(serving);
        }
        let serving = ServedSegment { segment: leadership.segment, number: leadership.number };
        let led_before = self.ledger.lock().serving.is_some_and(|before| before.number + 1 == serving.number);
        if led_before {
            self.ledger.lock().serving = Some(serving); // our own roll: nobody else can have served in between
        } else {
            self.take_over(topics, serving).await?;
        }
        let live: HashSet<TopicId> =
            topics.cluster().routing().topics().map(|route| route.topic.id).collect();
        let before = Trim { number: leadership.number, base: leadership.base_offset };
        self.ledger.lock().plan_snapshot(&live, before);
        self.record(topics);
        Ok(serving)
    }

    /// The leadership of the open segment, if it is ours and not handed over.
    fn leadership(&self, topics: &Arc<Topics>) -> Result<Leadership> {
        let leadership = topics.cluster().leadership(&self.log)?;
        let handed_over = leadership.number < self.ledger.lock().handed_over_below;
        if leadership.ours && !handed_over {
            topics.cluster().check_reach(&self.log)?; // else another node may own it by now
            return Ok(leadership);
        }
        let hint = (!leadership.ours).then_some(leadership.node);
        Err(Error::NotLeader { key: self.log.to_string(), hint })
    }

    /// The segment under which this node serves, if it is the one of this leadership.
    fn serving_under(&self, leadership: &Leadership) -> Option<ServedSegment> {
        self.ledger.lock().serving.filter(|serving| serving.segment == leadership.segment)
    }

    async fn take_over(&self, topics: &Arc<Topics>, serving: ServedSegment) -> Result<()> {
        let said = hand_over::collect(topics, self.log.partition, serving.number).await;
        self.ledger.lock().hear(said); // kept should the replay fail: nobody says it twice
        let (replayed, log_start) = self.replay(topics).await?;
        tracing::info!(log = %self.log, number = serving.number, cursors = replayed.len(), "owns cursors");
        let mut ledger = self.ledger.lock();
        ledger.begin(replayed);
        ledger.log_start = log_start;
        ledger.serving = (serving.number >= ledger.handed_over_below).then_some(serving);
        Ok(())
    }

    /// Reads all records of the partition; says also where it begins.
    async fn replay(&self, topics: &Arc<Topics>) -> Result<(ReplayedCursors, u64)> {
        let mut replayed = ReplayedCursors::new();
        let options =
            ReadOptions { bytes_max: REPLAY_BYTES, wait: Duration::ZERO, segment: None, unconfirmed: false };
        let mut offset = 0;
        let log_start = loop {
            let page = match topics.reading().read(&self.log, offset, options).await {
                Err(Error::OffsetOutOfRange { start, .. }) if offset < start => {
                    offset = start;
                    continue;
                }
                page => page?,
            };
            for batch in page.batches() {
                let batch = batch.map_err(|problem| self.unreadable(problem))?;
                replay_batch(&batch, &mut replayed).map_err(|problem| self.unreadable(problem))?;
            }
            if page.next_offset <= offset || page.pieces.is_empty() {
                break page.log_start;
            }
            offset = page.next_offset;
        };
        Ok((replayed, log_start))
    }

    fn unreadable(&self, problem: impl std::fmt::Display) -> Error {
        Error::Internal { message: format!("cannot replay {}: {problem}", self.log) }
    }

    /// Locks the ledger if this node still serves under the same segment.
    fn lock_ledger(&self, serving: ServedSegment) -> Result<Turn<MutexGuard<'_, Ledger>>> {
        let ledger = self.ledger.lock();
        if ledger.serving != Some(serving) {
            return Err(Error::NotLeader { key: self.log.to_string(), hint: None });
        }
        Ok(ledger)
    }

    /// Reserves the next free entry of one partition; reads it first if need be.
    async fn next_of(
        &self,
        topics: &Arc<Topics>,
        serving: ServedSegment,
        topic: &TopicRef,
        partition: u32,
        holder: HolderId,
    ) -> Result<Option<(EntryRef, Bytes)>> {
        let key = CursorKey { topic: topic.id, partition };
        let from = PartitionRef { topic: topic.path.clone(), partition };
        let asked = Instant::now();
        loop {
            let log_start = topics.cluster().routing().partition(&from)?.1.log_start().0;
            let (offset, reading) = match self.lock_ledger(serving)?.step(key, holder, log_start) {
                Step::Take(entry, value) => return Ok(Some((entry, value))),
                Step::Read { offset, reading } => (offset, reading),
            };
            let _reading = reading.lock().await;
            {
                let mut ledger = self.lock_ledger(serving)?;
                if ledger.is_empty_since(key, offset, asked) {
                    return Ok(None);
                }
                if ledger.pages.find(key, offset) != Lookup::Unread {
                    continue; // somebody read it while we waited
                }
            }
            let began = Instant::now();
            let options = ReadOptions {
                bytes_max: PAGE_BYTES,
                wait: Duration::ZERO,
                segment: None,
                unconfirmed: false,
            };
            match topics.reading().read(&from, offset, options).await {
                Ok(page) if page.pieces.is_empty() => {
                    self.lock_ledger(serving)?.note_empty(key, offset, began);
                    return Ok(None);
                }
                Ok(page) => {
                    let page = Page::open(key, offset, &page)?;
                    self.lock_ledger(serving)?.pages.insert(page);
                }
                Err(Error::OffsetOutOfRange { start, .. }) if offset < start => {
                    self.lock_ledger(serving)?.skip(key, start);
                }
                Err(problem) => return Err(problem),
            }
        }
    }

    /// Starts the task that appends records, unless it runs or nothing is to do.
    fn record(self: &Arc<Self>, topics: &Arc<Topics>) {
        let mut ledger = self.ledger.lock();
        if ledger.recording || !ledger.has_work() {
            return;
        }
        ledger.recording = true;
        drop(ledger);
        let (owner, topics) = (Arc::clone(self), topics.clone());
        tokio::spawn(async move { while owner.record_once(&topics).await {} });
    }

    /// Appends the latest state of what is dirty, or trims. `false` if nothing is left to do.
    async fn record_once(&self, topics: &Arc<Topics>) -> bool {
        let (serving, records, trim) = {
            let mut ledger = self.ledger.lock();
            let (records, trim) = (ledger.to_record(), ledger.take_trim());
            ledger.recording = !records.is_empty() || trim.is_some();
            (ledger.serving, records, trim)
        };
        if !records.is_empty() {
            match self.append(topics, &records).await {
                Ok(base_offset) => {
                    if self.is_stuck.swap(false, Ordering::Relaxed) {
                        tracing::info!(log = %self.log, "cursors are recorded again");
                    }
                    self.ledger.lock().note_recorded(serving, &records, base_offset);
                }
                Err(problem) => self.back_off(topics, &problem).await,
            }
        } else if let Some(Trim { number, base }) = trim {
            match topics.trim(&self.log, number).await {
                Ok(()) => self.ledger.lock().log_start = base,
                Err(problem) => {
                    tracing::warn!(log = %self.log, %problem, "old cursor records stay until the next roll");
                }
            }
        }
        self.recorded.send_modify(|tick| *tick += 1);
        !records.is_empty() || trim.is_some()
    }

    /// Waits before the next try to record. A node that stops gives up, and stops serving.
    async fn back_off(&self, topics: &Arc<Topics>, problem: &Error) {
        if !self.is_stuck.swap(true, Ordering::Relaxed) {
            tracing::warn!(log = %self.log, %problem, "cursors are not recorded, trying on");
        }
        if topics
            .cluster()
            .tasks()
            .shutdown()
            .run_until_cancelled(tokio::time::sleep(patience::CURSOR_RECORD_RETRY))
            .await
            .is_none()
        {
            self.ledger.lock().serving = None;
        }
    }

    async fn append(&self, topics: &Arc<Topics>, records: &[Record]) -> Result<u64> {
        let mut builder = BatchBuilder::new();
        let now = clock::now_ms();
        for record in records {
            builder.push(Some(&record.key.encode()), Some(&record.progress.encode()), now, &[]);
        }
        let mut batch = Vec::new();
        builder.build(&mut batch).map_err(|problem| Error::Internal { message: problem.to_string() })?;
        Ok(topics.append(&self.log, batch.into()).await?.base_offset)
    }
}

/// How many partitions a topic has; `UnknownTopic` if another one has its name by now.
fn partitions(topics: &Arc<Topics>, topic: &TopicRef) -> Result<u32> {
    match topics.topic(&topic.path) {
        Some(info) if info.id == topic.id => Ok(info.partitions),
        _ => Err(Error::UnknownTopic { topic: topic.path.to_string() }),
    }
}

/// All cursors of the partition: what the records of each say together, and the offset of the last one.
type ReplayedCursors = HashMap<CursorKey, (Progress, u64)>;

fn replay_batch(batch: &[u8], replayed: &mut ReplayedCursors) -> Result<(), String> {
    let (batch, _) = Batch::parse(batch).map_err(|problem| problem.to_string())?;
    for record in batch.records() {
        let record = record.map_err(|problem| problem.to_string())?;
        let read = CursorKey::decode(record.key.unwrap_or_default())
            .and_then(|key| Ok((key, Progress::decode(record.value.unwrap_or_default())?)));
        match read {
            Ok((key, delivered)) => {
                let (known, at) = replayed.entry(key).or_default();
                known.merge(&delivered);
                *at = record.offset;
            }
            Err(problem @ BadRecord::Version { .. }) => return Err(problem.to_string()),
            // Without the record only knowledge of what was delivered is lost: entries may go out again.
            Err(problem) => tracing::warn!(offset = record.offset, %problem, "skips a cursor record"),
        }
    }
    Ok(())
}

/// The path of the internal topic in which cursors are recorded.
pub(super) fn log_path() -> TopicPath {
    TopicPath::internal("__cursors").expect("it is of the alphabet")
}
