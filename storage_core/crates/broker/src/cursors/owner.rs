//! What the owner of a partition of `__cursors` does with its cursors: it reads entries ahead, reserves them for those
//! who ask, and notes what was delivered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use walrus_metadata::ReadMark;
use walrus_model::TopicId;
use walrus_owners::Term;

use super::ledger::{Ledger, Step};
use super::messages::HandedCursor;
use super::pages::{Lookup, Page};
use super::progress::CursorKey;
use super::reservation::HolderId;
use super::terms::{EntryRef, HolderReport, TopicRef};
use crate::node::error::{Error, Result};
use crate::node::names::PartitionRef;
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::owners::Owner;
use crate::reading::reader::ReadOptions;
use crate::topics::Topics;

/// About how many bytes of a topic are read ahead at a time.
const PAGE_BYTES: usize = 256 << 10;

/// The cursors of one partition of `__cursors`, as far as this node owns them.
pub(super) struct CursorOwner {
    owner: Arc<Owner<Ledger>>,
}

impl CursorOwner {
    pub(super) fn new(log: PartitionRef) -> Self {
        Self { owner: Arc::new(Owner::new(log)) }
    }

    /// The partition.
    pub(super) fn log(&self) -> &PartitionRef {
        self.owner.log()
    }

    /// Stops serving segments below `number`; says what the next owner cannot read there.
    pub(super) fn hand_over(&self, number: u64) -> Vec<HandedCursor> {
        self.owner.hand_over(number)
    }

    /// Waits until everything delivered is recorded.
    pub(super) async fn drain(&self) {
        self.owner.drain().await;
    }

    /// Reserves the next free entry of a topic for `holder`.
    pub(super) async fn next(
        &self,
        topics: &Arc<Topics>,
        topic: &TopicRef,
        holder: HolderId,
        report: &HolderReport,
    ) -> Result<Option<(EntryRef, Bytes)>> {
        let term = self.owner.serve(topics).await?;
        let partitions = partitions(topics, topic)?;
        let order = self.owner.with(term, |ledger| {
            ledger.note_deliveries(topic.id, partitions, holder, (&report.delivered, &[]));
            ledger.order_partitions(topic.id, partitions, holder, &report.kept)
        })?;
        self.owner.record(topics);
        let mut problem = None;
        for partition in order {
            match self.next_of(topics, term, topic, partition, holder).await {
                Ok(Some(next)) => return Ok(Some(next)),
                Ok(None) => {}
                Err(error) => {
                    let key = CursorKey { topic: topic.id, partition };
                    self.owner.with(term, |ledger| ledger.note_failed(key))?;
                    problem = Some(error);
                }
            }
        }
        problem.map_or(Ok(None), Err)
    }

    /// Notes which entries were delivered and which returned; says how many deliveries came too late. With `durable` it waits
    /// until every delivery of the topic so far is recorded.
    pub(super) async fn note_deliveries(
        &self,
        topics: &Arc<Topics>,
        topic: &TopicRef,
        holder: HolderId,
        entries: (&[EntryRef], &[EntryRef]),
        durable: bool,
    ) -> Result<u32> {
        let term = self.owner.serve(topics).await?;
        let partitions = partitions(topics, topic)?;
        let mut recorded = self.owner.watch_recorded();
        let (lost, revisions) = self.owner.with(term, |ledger| {
            let lost = ledger.note_deliveries(topic.id, partitions, holder, entries);
            (lost, if durable { ledger.unrecorded(topic.id, partitions) } else { Vec::new() })
        })?;
        self.owner.record(topics);
        let deadline = tokio::time::Instant::now() + patience::CURSOR_DURABLE;
        let mut lost_nodes = topics.cluster().liveness().watch_lost();
        while self.owner.with(term, |ledger| ledger.lacks(&revisions))? {
            topics.cluster().check_reach(self.log())?;
            tokio::select! {
                tick = recorded.changed() => tick.expect("the owner holds the sender"),
                tick = lost_nodes.changed() => tick.expect("the cluster holds the sender"),
                () = tokio::time::sleep_until(deadline) => {
                    return Err(Obstacle::CursorsUnrecorded { log: self.log().to_string() }.into());
                }
            }
        }
        Ok(lost)
    }

    /// Up to where each cursor has come, durably. Fails on a node that does not own them.
    pub(super) async fn positions(&self, topics: &Arc<Topics>) -> Result<Vec<(CursorKey, u64)>> {
        let term = self.owner.serve(topics).await?;
        self.owner.with(term, |ledger| ledger.positions())
    }

    /// Up to where the cursor of a topic has come, durably. Fails on a node that does not own it.
    pub(super) async fn marks(
        &self,
        topics: &Arc<Topics>,
        topic: TopicId,
        partitions: u32,
    ) -> Result<Vec<ReadMark>> {
        let term = self.owner.serve(topics).await?;
        self.owner.with(term, |ledger| ledger.marks(topic, partitions))
    }

    /// Reserves the next free entry of one partition; reads it first if need be.
    async fn next_of(
        &self,
        topics: &Arc<Topics>,
        term: Term,
        topic: &TopicRef,
        partition: u32,
        holder: HolderId,
    ) -> Result<Option<(EntryRef, Bytes)>> {
        let key = CursorKey { topic: topic.id, partition };
        let from = PartitionRef { topic: topic.path.clone(), partition };
        let asked = Instant::now();
        loop {
            let log_start = topics.cluster().routing().partition(&from)?.1.log_start().0;
            let (offset, reading) =
                match self.owner.with(term, |ledger| ledger.step(key, holder, log_start))? {
                    Step::Take(entry, value) => return Ok(Some((entry, value))),
                    Step::Read { offset, reading } => (offset, reading),
                };
            let _reading = reading.lock().await;
            let is_empty = |ledger: &mut Ledger| ledger.is_empty_since(key, offset, asked);
            if self.owner.with(term, is_empty)? {
                return Ok(None);
            }
            if self.owner.with(term, |ledger| ledger.pages.find(key, offset) != Lookup::Unread)? {
                continue; // somebody read it while we waited
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
                    self.owner.with(term, |ledger| ledger.note_empty(key, offset, began))?;
                    return Ok(None);
                }
                Ok(page) => {
                    let page = Page::open(key, offset, &page)?;
                    self.owner.with(term, |ledger| ledger.pages.insert(page))?;
                }
                Err(Error::OffsetOutOfRange { start, .. }) if offset < start => {
                    self.owner.with(term, |ledger| ledger.skip(key, start))?;
                }
                Err(problem) => return Err(problem),
            }
        }
    }
}

/// How many partitions a topic has; `UnknownTopic` if another one has its name by now.
fn partitions(topics: &Arc<Topics>, topic: &TopicRef) -> Result<u32> {
    match topics.topic(&topic.path) {
        Some(info) if info.id == topic.id => Ok(info.partitions),
        _ => Err(Error::UnknownTopic { topic: topic.path.to_string() }),
    }
}
