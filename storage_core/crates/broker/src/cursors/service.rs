//! Finds the owner of a topic's cursor and asks it, here or on another node, again when it moves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use prometheus_client::metrics::counter::Counter;
use prost::Message as _;
use uuid::Uuid;
use walrus_log::batch::BatchBuilder;
use walrus_model::TopicId;

use super::consumer::{Consumer, EntryRef};
use super::ledger::HandedOver;
use super::owner::{Owner, log_name};
use super::progress::{CursorKey, Progress};
use super::reservation::{HolderId, Reservation};
use crate::broker::{Broker, WeakBroker};
use crate::cluster::segment::uuid_bytes;
use crate::node::clock;
use crate::node::error::{Error, Result};
use crate::node::metrics::Metrics;
use crate::node::names::{PartitionRef, TopicName};
use crate::node::proto::peer::{
    CursorAnswer, CursorEntry, CursorHandOver, CursorHandOverAnswer, CursorNext, CursorNextAnswer,
    CursorRequest, CursorReservation, CursorSettle, CursorSettleAnswer, CursorState, CursorTopic,
    cursor_answer, cursor_request,
};
use crate::partition::leadership::Leadership;
use crate::peer::Request;
use crate::topics::view::NodeView;

/// Partitions of `__cursors`. A topic's place is its uuid modulo this, so it never changes.
const PARTITIONS: u32 = 8;
/// How long an owner is looked for on behalf of a client that waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same on behalf of a client that waits for something else.
const PATIENCE_ASIDE: Duration = Duration::from_secs(2);
/// The same when the node stops.
const PATIENCE_STOPPING: Duration = Duration::from_millis(500);
/// One call to an owner; longer than its own read of a topic takes.
const CALL: Duration = Duration::from_secs(5);
/// One call to a node that may own what we take over.
const HAND_OVER_CALL: Duration = Duration::from_secs(2);
/// The same to a node whose lease has lapsed: it is most likely down, and must not hold the others up.
const HAND_OVER_CALL_LAPSED: Duration = Duration::from_millis(300);
/// How long the metadata have to name another leader before the one named is asked to open a new segment.
const PAUSE: Duration = Duration::from_millis(50);

/// A topic as a cursor knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopicRef {
    pub(super) id: TopicId,
    pub(super) name: TopicName,
}

/// What a holder tells with its wish for the next entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Settlement {
    pub(super) delivered: Vec<EntryRef>,
    /// Everything else that it holds.
    pub(super) kept: Vec<EntryRef>,
}

/// When a settlement must have been heard, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settle {
    /// Heard if possible; the client waits for something else.
    Soon,
    /// Heard, whatever it takes; no client waits.
    Finally,
    /// Durable on return.
    Durable,
}

/// Shared cursors of topics. Cheap to clone.
#[derive(Clone)]
pub struct CursorService {
    inner: Arc<Inner>,
}

struct Inner {
    broker: WeakBroker,
    owners: Vec<Arc<Owner>>,
    reserved: Counter,
    delivered: Counter,
    returned: Counter,
}

impl CursorService {
    /// Made while the broker is made: `broker` upgrades only later. Spawns nothing before the first call.
    #[must_use]
    pub fn new(broker: WeakBroker, metrics: &Metrics) -> Self {
        let log = |partition| PartitionRef { topic: log_name(), partition };
        let owners = (0..PARTITIONS).map(|partition| Arc::new(Owner::new(log(partition)))).collect();
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
        Self { inner: Arc::new(Inner { broker, owners, reserved, delivered, returned }) }
    }

    /// The part of a new connection.
    #[must_use]
    pub fn consumer(&self) -> Consumer {
        Consumer::new(self.clone())
    }

    /// Answers a [`crate::peer::Request::Cursor`] of another node.
    pub async fn answer_peer(&self, from: u32, request: Bytes) -> Result<Bytes> {
        let broker = self.inner.broker.upgrade()?;
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
                // What is handed over once is not served again below that number.
                let log = PartitionRef { topic: log_name(), partition };
                broker.cluster().lists(&log, number, metadata_version).await?;
                let cursors = owner.hand_over(number).into_iter().map(handed_over_message).collect();
                cursor_answer::Answer::HandOver(CursorHandOverAnswer { cursors })
            }
            request => self.answer(&broker, request).await?,
        };
        Ok(CursorAnswer { answer: Some(answer) }.encode_to_vec().into())
    }

    /// Waits until what the owners on this node know to be delivered is durable, within a node's time to stop.
    pub async fn drain(&self, limit: Duration) {
        let drained = join_all(self.inner.owners.iter().map(|owner| owner.drain()));
        if tokio::time::timeout(limit, drained).await.is_err() {
            tracing::warn!(
                "cursors stop before all deliveries are recorded: some entries are delivered again"
            );
        }
    }

    pub(super) async fn resolve(&self, name: &TopicName) -> Result<TopicRef> {
        let broker = self.inner.broker.upgrade()?;
        let unknown = || Error::UnknownTopic { topic: name.to_string() };
        let topic = broker.cluster().confirmed(|| broker.topic(name.as_str()).ok_or_else(unknown)).await?;
        if topic.internal {
            let problem = format!("topic {name} is internal, it has no shared cursor");
            return Err(Error::InvalidRequest { problem });
        }
        Ok(TopicRef { id: topic.id, name: name.clone() })
    }

    /// Reserves the next entry of a topic.
    pub(super) async fn next(
        &self,
        topic: &TopicRef,
        holder: HolderId,
        settlement: Settlement,
    ) -> Result<Option<(EntryRef, Bytes)>> {
        let delivered = settlement.delivered.len() as u64;
        let request = cursor_request::Request::Next(CursorNext {
            topic: Some(topic_message(topic)),
            holder: uuid_bytes(holder.0),
            delivered: entry_messages(&settlement.delivered),
            held: entry_messages(&settlement.kept),
        });
        let cursor_answer::Answer::Next(answer) = self.ask(topic, request, PATIENCE).await? else {
            return Err(unexpected());
        };
        self.inner.delivered.inc_by(delivered);
        Ok(answer.entry.map(|entry| {
            self.inner.reserved.inc();
            (entry_of(&entry), answer.value)
        }))
    }

    /// Tells what became of entries; says how many deliveries came too late.
    pub(super) async fn settle(
        &self,
        topic: &TopicRef,
        holder: HolderId,
        delivered: Vec<EntryRef>,
        returned: Vec<EntryRef>,
        when: Settle,
    ) -> Result<u32> {
        let request = cursor_request::Request::Settle(CursorSettle {
            topic: Some(topic_message(topic)),
            holder: uuid_bytes(holder.0),
            delivered: entry_messages(&delivered),
            returned: entry_messages(&returned),
            durable: when == Settle::Durable,
        });
        let patience = if when == Settle::Soon { PATIENCE_ASIDE } else { PATIENCE };
        let cursor_answer::Answer::Settle(answer) = self.ask(topic, request, patience).await? else {
            return Err(unexpected());
        };
        self.inner.delivered.inc_by(delivered.len() as u64);
        self.inner.returned.inc_by(returned.len() as u64);
        Ok(answer.lost)
    }

    /// Asks every other node to stop serving a partition of `__cursors` below segment `number`, and for what it knows.
    /// A node that cannot be asked is taken for stopped: what it had handed out may go out again.
    pub(super) async fn collect(&self, broker: &Broker, partition: u32, number: u64) -> Vec<HandedOver> {
        let request = cursor_request::Request::HandOver(CursorHandOver {
            partition,
            number,
            metadata_version: broker.cluster().metadata_version(),
        });
        let request: Bytes = CursorRequest { request: Some(request) }.encode_to_vec().into();
        let others = broker.nodes().into_iter().filter(|node| node.id != broker.cluster().node_id());
        let ask = |node: NodeView| {
            let request = Request::Cursor(request.clone());
            let limit = if node.alive { HAND_OVER_CALL } else { HAND_OVER_CALL_LAPSED };
            async move {
                let answer =
                    broker.cluster().peers().call(node.id, request, limit).await.and_then(decode_answer);
                match answer {
                    Ok(cursor_answer::Answer::HandOver(answer)) => answer.cursors,
                    Ok(_) => Vec::new(),
                    Err(problem) => {
                        tracing::info!(node = node.id, partition, %problem, "takes cursors over without a node");
                        Vec::new()
                    }
                }
            }
        };
        join_all(others.map(ask))
            .await
            .into_iter()
            .flatten()
            .filter_map(|state| handed_over_of(&state))
            .collect()
    }

    /// Asks the owner, for as long as there is patience. Every request may be asked twice.
    async fn ask(
        &self,
        topic: &TopicRef,
        request: cursor_request::Request,
        patience: Duration,
    ) -> Result<cursor_answer::Answer> {
        let broker = self.inner.broker.upgrade()?;
        let log = PartitionRef { topic: log_name(), partition: partition_of(topic.id) };
        let is_stopping = broker.cluster().tasks().shutdown().is_cancelled();
        let deadline = Instant::now() + if is_stopping { PATIENCE_STOPPING.min(patience) } else { patience };
        loop {
            let mut metadata = broker.watch_metadata();
            metadata.mark_unchanged();
            let leadership = broker.leadership(&log);
            let mut problem = match self.ask_once(&broker, leadership.clone(), &request, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(problem) => problem,
            };
            match &problem {
                Error::UnknownTopic { topic: name } if leadership.is_err() => {
                    broker.create_topic(name, PARTITIONS, true).await?;
                    continue;
                }
                Error::UnknownTopic { topic: name } if name != log.topic.as_str() => {
                    let listed = || broker.topic(topic.name.as_str()).filter(|listed| listed.id == topic.id);
                    broker.cluster().confirmed(|| listed().ok_or_else(|| problem.clone())).await?;
                    problem =
                        Error::Unavailable { what: format!("the owner has not heard of {} yet", topic.name) };
                }
                Error::UnknownTopic { .. } => {} // the owner has not heard of its log yet
                Error::NotLeader { .. } | Error::OutcomeUnknown { .. } => {}
                other if other.retryable() => {}
                _ => return Err(problem),
            }
            if Instant::now() + PAUSE >= deadline {
                return Err(problem);
            }
            broker.cluster().check_reach(&log)?;
            let moved = tokio::time::timeout(PAUSE, metadata.changed()).await.is_ok();
            if let (Error::NotLeader { .. }, Ok(leadership), false) = (&problem, leadership, moved) {
                self.wake_leader(&broker, &log, topic, leadership, deadline).await;
            }
        }
    }

    async fn ask_once(
        &self,
        broker: &Broker,
        leadership: Result<Leadership>,
        request: &cursor_request::Request,
        deadline: Instant,
    ) -> Result<cursor_answer::Answer> {
        let leadership = leadership?;
        if leadership.ours {
            return self.answer(broker, request.clone()).await;
        }
        if leadership.node == broker.cluster().node_id() {
            let key = format!("{}/{}", log_name(), leadership.number);
            return Err(Error::NotLeader { key, hint: None }); // led by an earlier process of this node
        }
        let payload = CursorRequest { request: Some(request.clone()) }.encode_to_vec();
        let limit = CALL.min(deadline.saturating_duration_since(Instant::now()));
        broker
            .cluster()
            .peers()
            .call(leadership.node, Request::Cursor(payload.into()), limit)
            .await
            .and_then(decode_answer)
    }

    /// The leader that the metadata name serves no more: its process was replaced. It opens a new segment when an
    /// append asks for it; this one says nothing that is not known.
    async fn wake_leader(
        &self,
        broker: &Broker,
        log: &PartitionRef,
        topic: &TopicRef,
        seen: Leadership,
        deadline: Instant,
    ) {
        if broker.leadership(log).is_ok_and(|now| now != seen) {
            return;
        }
        let key = CursorKey { topic: topic.id, partition: 0 }.encode();
        let mut batch = Vec::new();
        let built = BatchBuilder::new()
            .push(Some(&key), Some(&Progress::default().encode()), clock::now_ms(), &[])
            .build(&mut batch);
        if built.is_ok() {
            let append = broker.append_internal(log, batch.into());
            let left = deadline.saturating_duration_since(Instant::now());
            if let Ok(Err(problem)) = tokio::time::timeout(left, append).await {
                tracing::debug!(%log, %problem, "cannot open a new segment of cursors");
            }
        }
    }

    /// Answers as the owner.
    async fn answer(
        &self,
        broker: &Broker,
        request: cursor_request::Request,
    ) -> Result<cursor_answer::Answer> {
        Ok(match request {
            cursor_request::Request::Next(request) => {
                let (topic, holder) = (topic_of(request.topic)?, HolderId(uuid_of(&request.holder)?));
                let settlement =
                    Settlement { delivered: entries_of(&request.delivered), kept: entries_of(&request.held) };
                let next = self.owner(topic.id).next(broker, &topic, holder, &settlement).await?;
                let (entry, value) =
                    next.map_or((None, Bytes::new()), |(entry, value)| (Some(entry_message(&entry)), value));
                cursor_answer::Answer::Next(CursorNextAnswer { entry, value })
            }
            cursor_request::Request::Settle(request) => {
                let (topic, holder) = (topic_of(request.topic)?, HolderId(uuid_of(&request.holder)?));
                let entries = (&entries_of(&request.delivered)[..], &entries_of(&request.returned)[..]);
                let lost =
                    self.owner(topic.id).settle(broker, &topic, holder, entries, request.durable).await?;
                cursor_answer::Answer::Settle(CursorSettleAnswer { lost })
            }
            cursor_request::Request::HandOver(_) => return Err(unexpected()),
        })
    }

    fn owner(&self, topic: TopicId) -> &Arc<Owner> {
        &self.inner.owners[partition_of(topic) as usize]
    }
}

fn partition_of(topic: TopicId) -> u32 {
    u32::try_from(topic.as_u128() % u128::from(PARTITIONS)).expect("less than PARTITIONS")
}

fn decode_answer(payload: Bytes) -> Result<cursor_answer::Answer> {
    let answer =
        CursorAnswer::decode(payload).map_err(|problem| Error::Internal { message: problem.to_string() })?;
    answer.answer.ok_or_else(unexpected)
}

fn unexpected() -> Error {
    Error::Internal { message: "a cursor message of a kind that does not belong here".to_owned() }
}

fn topic_message(topic: &TopicRef) -> CursorTopic {
    CursorTopic { uuid: uuid_bytes(topic.id.0), name: topic.name.to_string() }
}

fn topic_of(topic: Option<CursorTopic>) -> Result<TopicRef> {
    let topic = topic.unwrap_or_default();
    Ok(TopicRef { id: TopicId(uuid_of(&topic.uuid)?), name: TopicName::parse(&topic.name)? })
}

fn entry_message(entry: &EntryRef) -> CursorEntry {
    CursorEntry { partition: entry.partition, offset: entry.offset }
}

fn entry_of(entry: &CursorEntry) -> EntryRef {
    EntryRef { partition: entry.partition, offset: entry.offset }
}

fn entry_messages(entries: &[EntryRef]) -> Vec<CursorEntry> {
    entries.iter().map(entry_message).collect()
}

fn entries_of(entries: &[CursorEntry]) -> Vec<EntryRef> {
    entries.iter().map(entry_of).collect()
}

fn handed_over_message(HandedOver { key, progress, reserved }: HandedOver) -> CursorState {
    let now = Instant::now();
    let left_ms =
        |until: Instant| until.saturating_duration_since(now).as_millis().try_into().unwrap_or(u32::MAX);
    let reservation = |(offset, reservation): (u64, Reservation)| CursorReservation {
        offset,
        holder: uuid_bytes(reservation.holder.0),
        left_ms: left_ms(reservation.until),
    };
    let reserved = reserved.into_iter().map(reservation).collect();
    CursorState {
        topic: uuid_bytes(key.topic.0),
        partition: key.partition,
        progress: progress.encode().into(),
        reserved,
    }
}

/// What a node of another version says in a way that we cannot read is as if it had not been said.
fn handed_over_of(state: &CursorState) -> Option<HandedOver> {
    let now = Instant::now();
    let key = CursorKey { topic: TopicId(uuid_of(&state.topic).ok()?), partition: state.partition };
    let reservation = |reserved: &CursorReservation| {
        let until = now + Duration::from_millis(reserved.left_ms.into());
        Some((reserved.offset, Reservation { holder: HolderId(uuid_of(&reserved.holder).ok()?), until }))
    };
    let reserved = state.reserved.iter().filter_map(reservation).collect();
    Some(HandedOver { key, progress: Progress::decode(&state.progress).ok()?, reserved })
}

fn uuid_of(bytes: &[u8]) -> Result<Uuid> {
    let malformed = |_| Error::InvalidRequest { problem: format!("a uuid of {} bytes", bytes.len()) };
    Uuid::from_slice(bytes).map_err(malformed)
}
