//! The service that finds the owner of a topic's cursor and asks it, here or on another node, and again when the owner moves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use prometheus_client::metrics::counter::Counter;
use prost::Message as _;
use walrus_metadata::ReadMark;
use walrus_model::TopicId;

use super::ledger::Ledger;
use super::messages::{
    decode_answer, entries_of, entry_message, entry_messages, entry_of, handed_cursor_message,
    request_payload, topic_message, topic_of, unexpected, uuid_of,
};
use super::owner::CursorOwner;
use super::reservation::HolderId;
use super::terms::{EntryRef, HolderReport, TopicRef, Urgency};
use crate::cluster::leadership::Leadership;
use crate::cluster::segment::uuid_bytes;
use crate::node::error::{Error, Result};
use crate::node::metrics::Metrics;
use crate::node::names::TopicPath;
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::node::proto::peer::{
    CursorAnswer, CursorHandOver, CursorHandOverAnswer, CursorNext, CursorNextAnswer, CursorPosition,
    CursorPositions, CursorPositionsAnswer, CursorRequest, CursorSettle, CursorSettleAnswer, cursor_answer,
    cursor_request,
};
use crate::owners::{Finder, Ledger as _};
use crate::peer::Request;
use crate::topics::Topics;

/// Number of partitions of `__cursors`. A topic's cursor is in the one of its uuid modulo this number, so it never changes.
const PARTITIONS: u32 = 8;

/// Shared cursors of topics. Cheap to clone.
#[derive(Clone)]
pub struct CursorService {
    inner: Arc<Inner>,
}

struct Inner {
    topics: Arc<Topics>,
    finder: Finder,
    owners: Vec<CursorOwner>,
    reserved: Counter,
    delivered: Counter,
    returned: Counter,
}

impl CursorService {
    /// Spawns nothing before the first call.
    pub(crate) fn new(topics: Arc<Topics>, metrics: &Metrics) -> Self {
        let path = TopicPath::internal("__cursors").expect("it is of the alphabet");
        let finder = Finder::new(topics.clone(), path, PARTITIONS, BTreeMap::new(), Ledger::nothing);
        let owners = (0..PARTITIONS).map(|partition| CursorOwner::new(finder.log(partition))).collect();
        let (reserved, delivered, returned) = (Counter::default(), Counter::default(), Counter::default());
        metrics.register(|registry| {
            let entries = "Entries of shared cursors, by this node's connections:";
            registry.register(
                "walrus_cursor_reserved",
                format!("{entries} answered to GET"),
                reserved.clone(),
            );
            registry.register(
                "walrus_cursor_delivered",
                format!("{entries} known to have arrived"),
                delivered.clone(),
            );
            registry.register("walrus_cursor_returned", format!("{entries} put back"), returned.clone());
        });
        Self { inner: Arc::new(Inner { topics, finder, owners, reserved, delivered, returned }) }
    }

    /// Answers a [`crate::peer::Request::Cursor`] of another node.
    pub async fn answer_peer(&self, from: u32, request: Bytes) -> Result<Bytes> {
        let topics = &self.inner.topics;
        let malformed =
            |what: &str| Error::InvalidRequest { problem: format!("cursor request of node {from}: {what}") };
        let request = CursorRequest::decode(request).map_err(|problem| malformed(&problem.to_string()))?;
        let answer = match request.request.ok_or_else(|| malformed("a kind that this node does not know"))? {
            cursor_request::Request::HandOver(CursorHandOver { partition, number, metadata_version }) => {
                let owner = self
                    .inner
                    .owners
                    .get(partition as usize)
                    .ok_or_else(|| malformed("no such partition"))?;
                // A hand-over is final, so the segment must be known: below its number this node never serves again.
                topics.cluster().await_listed(owner.log(), number, metadata_version).await?;
                let cursors = owner.hand_over(number).into_iter().map(handed_cursor_message).collect();
                cursor_answer::Answer::HandOver(CursorHandOverAnswer { cursors })
            }
            request => self.answer(topics, request).await?,
        };
        Ok(CursorAnswer { answer: Some(answer) }.encode_to_vec().into())
    }

    /// Waits until what the owners on this node know to be delivered is durable, but for `limit` at most.
    pub async fn drain(&self, limit: Duration) {
        let drained = join_all(self.inner.owners.iter().map(|owner| owner.drain()));
        if tokio::time::timeout(limit, drained).await.is_err() {
            tracing::warn!(
                "cursors stop before all deliveries are recorded: some entries are delivered again"
            );
        }
    }

    /// Up to where the cursor of a topic has come, durably; an error on a node that does not own it.
    pub(super) async fn marks(&self, topic: TopicId, partitions: u32) -> Result<Vec<ReadMark>> {
        self.owner(topic).marks(&self.inner.topics, topic, partitions).await
    }

    pub(super) fn topics(&self) -> &Arc<Topics> {
        &self.inner.topics
    }

    pub(super) async fn resolve(&self, path: &TopicPath) -> Result<TopicRef> {
        let topics = &self.inner.topics;
        let unknown = || Error::UnknownTopic { topic: path.to_string() };
        let topic = topics.cluster().find_confirmed(|| topics.topic(path).ok_or_else(unknown)).await?;
        Ok(TopicRef { id: topic.id, path: path.clone() })
    }

    /// Reserves the next entry of a topic.
    pub(super) async fn next(
        &self,
        topic: &TopicRef,
        holder: HolderId,
        report: HolderReport,
    ) -> Result<Option<(EntryRef, Bytes)>> {
        let delivered = report.delivered.len() as u64;
        let request = cursor_request::Request::Next(CursorNext {
            topic: Some(topic_message(topic)),
            holder: uuid_bytes(holder.0),
            delivered: entry_messages(&report.delivered),
            held: entry_messages(&report.kept),
        });
        let cursor_answer::Answer::Next(answer) = self.ask(topic, request, patience::CURSOR_OWNER).await?
        else {
            return Err(unexpected());
        };
        self.inner.delivered.inc_by(delivered);
        Ok(answer.entry.map(|entry| {
            self.inner.reserved.inc();
            (entry_of(&entry), answer.value)
        }))
    }

    /// Tells the owner which entries were delivered and which returned; says how many deliveries came too late.
    pub(super) async fn report_deliveries(
        &self,
        topic: &TopicRef,
        holder: HolderId,
        delivered: Vec<EntryRef>,
        returned: Vec<EntryRef>,
        urgency: Urgency,
    ) -> Result<u32> {
        let request = cursor_request::Request::Settle(CursorSettle {
            topic: Some(topic_message(topic)),
            holder: uuid_bytes(holder.0),
            delivered: entry_messages(&delivered),
            returned: entry_messages(&returned),
            durable: urgency == Urgency::Durable,
        });
        let patience =
            if urgency == Urgency::Soon { patience::CURSOR_OWNER_ASIDE } else { patience::CURSOR_OWNER };
        let cursor_answer::Answer::Settle(answer) = self.ask(topic, request, patience).await? else {
            return Err(unexpected());
        };
        self.inner.delivered.inc_by(delivered.len() as u64);
        self.inner.returned.inc_by(returned.len() as u64);
        Ok(answer.lost)
    }

    /// Asks the owner, again and again, for at most `patience`. Every request may be asked twice.
    async fn ask(
        &self,
        topic: &TopicRef,
        request: cursor_request::Request,
        patience: Duration,
    ) -> Result<cursor_answer::Answer> {
        let is_stopping = self.inner.topics.cluster().tasks().shutdown().is_cancelled();
        let patience = if is_stopping { patience::CURSOR_OWNER_STOPPING.min(patience) } else { patience };
        let request = &request;
        let ask_once = |leadership, deadline| async move {
            let asked = self.ask_once(leadership, request, deadline).await;
            let Err(problem @ Error::UnknownTopic { .. }) = asked else { return asked };
            // The owner may not have heard of the topic yet.
            let topics = &self.inner.topics;
            let listed = || topics.topic(&topic.path).filter(|listed| listed.id == topic.id);
            topics.cluster().find_confirmed(|| listed().ok_or_else(|| problem.clone())).await?;
            Err(Obstacle::OwnerUninformed { topic: topic.path.to_string() }.into())
        };
        self.inner.finder.ask(partition_of(topic.id), patience, ask_once).await
    }

    async fn ask_once(
        &self,
        leadership: Leadership,
        request: &cursor_request::Request,
        deadline: Instant,
    ) -> Result<cursor_answer::Answer> {
        let topics = &self.inner.topics;
        if leadership.ours {
            return self.answer(topics, request.clone()).await;
        }
        if leadership.node == topics.cluster().node_id() {
            return Err(self.inner.finder.led_by_an_earlier_process(&leadership));
        }
        let limit = patience::CURSOR_CALL.min(deadline.saturating_duration_since(Instant::now()));
        let payload = request_payload(request.clone());
        let peers = topics.cluster().peers();
        peers.call(leadership.node, Request::Cursor(payload), limit).await.and_then(decode_answer)
    }

    /// Up to where the shared cursors of all topics have come, durably: a topic, a partition, and the first offset that is not known to be
    /// delivered. Asks the owners, wherever they are.
    pub(crate) async fn positions(&self) -> Result<Vec<(TopicId, u32, u64)>> {
        let cluster = self.inner.topics.cluster();
        let log = self.inner.finder.log(0);
        match cluster.find_confirmed(|| cluster.routing().partition(&log).map(drop)).await {
            Ok(()) => {}
            Err(error) if error.is_unknown() => return Ok(Vec::new()), // nobody has asked for an entry yet
            Err(error) => return Err(error),
        }
        let mut positions = Vec::new();
        for partition in 0..PARTITIONS {
            let request = &cursor_request::Request::Positions(CursorPositions { partition });
            let ask = |leadership, deadline| self.ask_once(leadership, request, deadline);
            let answer = self.inner.finder.ask(partition, patience::CURSOR_OWNER, ask).await?;
            let cursor_answer::Answer::Positions(answer) = answer else { return Err(unexpected()) };
            for CursorPosition { topic, partition, next } in answer.positions {
                positions.push((TopicId(uuid_of(&topic)?), partition, next));
            }
        }
        Ok(positions)
    }

    /// Answers as the owner.
    async fn answer(
        &self,
        topics: &Arc<Topics>,
        request: cursor_request::Request,
    ) -> Result<cursor_answer::Answer> {
        Ok(match request {
            cursor_request::Request::Next(request) => {
                let (topic, holder) = (topic_of(request.topic)?, HolderId(uuid_of(&request.holder)?));
                let report = HolderReport {
                    delivered: entries_of(&request.delivered),
                    kept: entries_of(&request.held),
                };
                let next = self.owner(topic.id).next(topics, &topic, holder, &report).await?;
                let (entry, value) =
                    next.map_or((None, Bytes::new()), |(entry, value)| (Some(entry_message(&entry)), value));
                cursor_answer::Answer::Next(CursorNextAnswer { entry, value })
            }
            cursor_request::Request::Settle(request) => {
                let (topic, holder) = (topic_of(request.topic)?, HolderId(uuid_of(&request.holder)?));
                let entries = (&entries_of(&request.delivered)[..], &entries_of(&request.returned)[..]);
                let lost = self
                    .owner(topic.id)
                    .note_deliveries(topics, &topic, holder, entries, request.durable)
                    .await?;
                cursor_answer::Answer::Settle(CursorSettleAnswer { lost })
            }
            cursor_request::Request::Positions(CursorPositions { partition }) => {
                let owner = self.inner.owners.get(partition as usize).ok_or_else(unexpected)?;
                let positions = owner.positions(topics).await?.into_iter().map(|(key, next)| {
                    CursorPosition { topic: uuid_bytes(key.topic.0), partition: key.partition, next }
                });
                cursor_answer::Answer::Positions(CursorPositionsAnswer { positions: positions.collect() })
            }
            cursor_request::Request::HandOver(_) => return Err(unexpected()),
        })
    }

    fn owner(&self, topic: TopicId) -> &CursorOwner {
        &self.inner.owners[partition_of(topic) as usize]
    }
}

fn partition_of(topic: TopicId) -> u32 {
    u32::try_from(topic.as_u128() % u128::from(PARTITIONS)).expect("less than PARTITIONS")
}
