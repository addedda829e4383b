//! What the listeners call. Any node takes any request; what another node must do is forwarded to it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;
use walrus_log::batch::Batch;
use walrus_log::{Log, ProducerTable};
use walrus_metadata::{Descriptor, Metadata, Node, Presence, Present, Segment, SegmentState, TopicId};

use crate::bucket::Bucket;
use crate::catalogue::ProducerIds;
use crate::clock;
use crate::config::Config;
use crate::control::ControlQueue;
use crate::creation::TopicCreations;
use crate::cursors::CursorService;
use crate::error::{Error, Result};
use crate::leader::{Carried, Leader};
use crate::liveness::Liveness;
use crate::metrics::Metrics;
use crate::peer::{Peers, Request};
use crate::proto::peer::{ReplicaAnswer, ReplicaRequest, SegmentFacts, SegmentInfo, SegmentInfoAnswer};
use crate::replication::copies::Copies;
use crate::replication::copy::{Copy, Readable, Said};
use crate::replication::{catch_up, convert, follower, pages, wire};
use crate::rollover::Limits;
use crate::routing::{Routing, TopicRoute, is_led_by, open_segment};
use crate::segment::{Place, label, log_id, log_spec};
use crate::space::Space;
use crate::ticket::Ticket;
use crate::topic::{PartitionRef, TopicName};

/// Longest batch that a broker takes. Two of them fit a frame between brokers.
pub(crate) const BATCH_BYTES_MAX: usize = 24 << 20;
/// For a look at another node's copy of a segment.
const INFO_PATIENCE: Duration = Duration::from_secs(2);

/// A batch that is durable and readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendAck {
    /// Offset of its first record.
    pub base_offset: u64,
    /// First offset behind it.
    pub end_offset: u64,
    /// It was stored before, at these offsets.
    pub duplicate: bool,
}

/// How to read.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// About how much; at least one batch is always answered.
    pub bytes_max: usize,
    /// How long to wait at the high watermark.
    pub wait: Duration,
    /// Only from this segment; its end answers an empty page.
    pub segment: Option<Uuid>,
}

/// Whole batches of one segment; the first contains the wanted offset. Empty at the high watermark.
#[derive(Clone, Debug)]
pub struct ReadPage {
    /// RecordBatch v2, as stored.
    pub batches: Vec<Bytes>,
    /// Where to go on.
    pub next_offset: u64,
    /// First offset not readable yet, as far as known: of a page from a sealed segment at least its end.
    pub high_watermark: u64,
    /// First offset still there.
    pub log_start: u64,
}

/// Who leads a partition's open segment, as this node's snapshot of the metadata says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The open segment.
    pub segment: Uuid,
    /// Its number.
    pub number: u64,
    /// Its first offset.
    pub base_offset: u64,
    /// Its epoch.
    pub epoch: u32,
    /// Node.
    pub node: u32,
    /// This process leads it: this node, and not an earlier process of it.
    pub ours: bool,
}

/// The data plane as the listeners see it. Cheap to clone.
#[derive(Clone)]
pub struct Broker {
    inner: Arc<Inner>,
}

/// Does not keep the broker alive; for what the broker owns.
#[derive(Clone)]
pub struct WeakBroker {
    inner: Weak<Inner>,
}

struct Inner {
    config: Config,
    limits: ArcSwap<Limits>,
    metrics: Arc<Metrics>,
    bucket: Bucket,
    copies: Copies,
    liveness: Liveness,
    presence: Mutex<Presence>,
    routing: ArcSwap<Routing>,
    /// Serialises publications.
    publishing: Mutex<()>,
    version: watch::Sender<u64>,
    /// Of open segments that this process leads and that somebody has asked for, by segment.
    leaders: Mutex<HashMap<Uuid, Arc<Leader>>>,
    /// Held while a log is made, so that it is made once.
    opening: tokio::sync::Mutex<()>,
    control: ControlQueue,
    peers: Peers,
    cursors: CursorService,
    producer_ids: ProducerIds,
    creations: TopicCreations,
    raft_status: Mutex<serde_json::Value>,
    space: Space,
    runtime: tokio::runtime::Handle,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

impl WeakBroker {
    /// The broker, unless it is stopped.
    pub fn upgrade(&self) -> Result<Broker> {
        let stopped = || Error::Unavailable { what: "this node is stopping".to_owned() };
        self.inner.upgrade().map(|inner| Broker { inner }).ok_or_else(stopped)
    }
}

/// Requests.
impl Broker {
    /// Appends one RecordBatch v2 of a client; durable and readable on return. Goes to the leader, waits through a
    /// rollover, creates an unknown topic if `auto_create_topics`. Refuses internal topics. Calls for one partition
    /// that are polled first in some order reach its log in this order, as long as none of them fails.
    pub async fn append(&self, to: &PartitionRef, batch: Bytes) -> Result<AppendAck> {
        self.append_as(to, batch, false).await
    }

    /// [`Broker::append`] to a topic of Walrus's own.
    pub async fn append_internal(&self, to: &PartitionRef, batch: Bytes) -> Result<AppendAck> {
        self.append_as(to, batch, true).await
    }

    async fn append_as(&self, to: &PartitionRef, bytes: Bytes, internal: bool) -> Result<AppendAck> {
        let started = Instant::now();
        // Nothing is awaited before the batch has its place: this keeps the callers' order.
        let ticket = self.submit(to, bytes, internal, started + self.append_patience());
        let result = ticket.finish(self).await;
        match &result {
            Ok(_) => self.metrics().append_seconds.observe(started.elapsed().as_secs_f64()),
            Err(error) => self.metrics().count_error(error),
        }
        result
    }

    fn submit(&self, to: &PartitionRef, bytes: Bytes, internal: bool, deadline: Instant) -> Ticket {
        let batch = match check_batch(&bytes) {
            Ok(batch) => batch,
            Err(error) => return Ticket::failed(error),
        };
        let routing = self.inner.routing.load();
        if let Some(route) = routing.find(&to.topic)
            && !self.inner.creations.is_waited_for(&to.topic)
        {
            return match check_access(route, to.partition, internal) {
                Ok(()) => {
                    let sequencer = &route.sequencers[to.partition as usize];
                    sequencer.submit(self, bytes.clone(), &batch, deadline)
                }
                Err(error) => Ticket::failed(self.as_claim(error)),
            };
        }
        if internal || !self.config().auto_create_topics {
            return Ticket::failed(self.as_claim(Error::UnknownTopic { topic: to.topic.to_string() }));
        }
        self.inner.creations.submit(self, to, bytes.clone(), deadline)
    }

    /// An append that another node sent here. Its place in the order is fixed when this returns.
    pub(crate) fn submit_forwarded(
        &self,
        topic: TopicId,
        partition: u32,
        segment: Uuid,
        bytes: &Bytes,
        patience: Duration,
    ) -> Ticket {
        let deadline = Instant::now() + patience.min(self.append_patience());
        let batch = match check_batch(bytes) {
            Ok(batch) => batch,
            Err(error) => return Ticket::failed(error),
        };
        let routing = self.inner.routing.load();
        let Some(route) = routing.topic(topic) else {
            return Ticket::failed(Error::UnknownTopic { topic: topic.0.to_string() });
        };
        match check_access(route, partition, true) {
            Ok(()) => {
                let sequencer = &route.sequencers[partition as usize];
                sequencer.submit_forwarded(self, bytes.clone(), &batch, segment, deadline)
            }
            Err(error) => Ticket::failed(error),
        }
    }

    /// Who leads a partition now.
    pub fn leadership(&self, partition: &PartitionRef) -> Result<Leadership> {
        let routing = self.inner.routing.load();
        let (_, found) = routing.partition(partition).map_err(|unknown| self.as_claim(unknown))?;
        let nobody = || Error::Unavailable { what: format!("{partition} has no open segment") };
        let Descriptor { uuid, number, base_offset, epoch, leader, .. } =
            &open_segment(found).ok_or_else(nobody)?.descriptor;
        Ok(Leadership {
            segment: *uuid,
            number: *number,
            base_offset: base_offset.map_or(0, |base| base.0),
            epoch: epoch.0,
            node: leader.node.0,
            ours: is_led_by(*leader, self.config()),
        })
    }
}

fn check_batch(bytes: &Bytes) -> Result<Batch<'_>> {
    if bytes.len() > BATCH_BYTES_MAX {
        let (bytes, bytes_max) = (bytes.len() as u64, BATCH_BYTES_MAX as u64);
        return Err(Error::TooLarge { what: "the batch".to_owned(), bytes, bytes_max });
    }
    let invalid = |problem: String| Error::InvalidBatch { problem };
    let (batch, rest) = Batch::parse(bytes).map_err(|problem| invalid(problem.to_string()))?;
    if !rest.is_empty() {
        return Err(invalid(format!("{} bytes follow it; send one batch at a time", rest.len())));
    }
    Ok(batch)
}

fn check_access(route: &TopicRoute, partition: u32, internal: bool) -> Result<()> {
    route.partition(partition)?;
    if route.topic.internal && !internal {
        let problem = "it belongs to Walrus itself".to_owned();
        return Err(Error::InvalidTopic { topic: route.name.to_string(), problem });
    }
    Ok(())
}

/// Parts and options.
impl Broker {
    /// Version of the published metadata; changes wake the receiver.
    #[must_use]
    pub fn watch_metadata(&self) -> watch::Receiver<u64> {
        self.inner.version.subscribe()
    }

    /// This node's id.
    #[must_use]
    pub fn node_id(&self) -> u32 {
        self.inner.config.node_id
    }

    /// RPC to other brokers.
    #[must_use]
    pub fn peers(&self) -> &Peers {
        &self.inner.peers
    }

    /// Shared cursors of topics (`GET`).
    #[must_use]
    pub fn cursors(&self) -> &CursorService {
        &self.inner.cursors
    }

    /// Counters.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Options.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Cancelled when the node stops: accept nothing new, finish what is there.
    #[must_use]
    pub fn shutdown_signal(&self) -> &CancellationToken {
        &self.inner.shutdown
    }

    /// Does not keep the broker alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakBroker {
        WeakBroker { inner: Arc::downgrade(&self.inner) }
    }

    /// The logs of this node.
    #[must_use]
    pub fn bucket(&self) -> &Bucket {
        &self.inner.bucket
    }

    pub(crate) fn copies(&self) -> &Copies {
        &self.inner.copies
    }

    /// Which nodes answer.
    pub(crate) fn liveness(&self) -> &Liveness {
        &self.inner.liveness
    }

    pub(crate) fn control(&self) -> &ControlQueue {
        &self.inner.control
    }

    pub(crate) fn creations(&self) -> &TopicCreations {
        &self.inner.creations
    }

    pub(crate) fn producer_ids(&self) -> &ProducerIds {
        &self.inner.producer_ids
    }

    pub(crate) fn raft_status(&self) -> &Mutex<serde_json::Value> {
        &self.inner.raft_status
    }

    pub(crate) fn routing(&self) -> arc_swap::Guard<Arc<Routing>> {
        self.inner.routing.load()
    }

    pub(crate) fn metadata_version(&self) -> u64 {
        *self.inner.version.borrow()
    }

    pub(crate) fn limits(&self) -> Limits {
        **self.inner.limits.load()
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        self.inner.limits.store(Arc::new(limits));
    }

    fn append_patience(&self) -> Duration {
        Duration::from_millis(self.inner.config.append_wait_ms)
    }

    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.inner.tasks
    }
}

/// What happens inside.
impl Broker {
    pub(crate) fn new(
        config: Config,
        store: walrus_log::Store,
        metrics: Arc<Metrics>,
        runtime: tokio::runtime::Handle,
    ) -> Self {
        let inner = Arc::new_cyclic(|weak: &Weak<Inner>| Inner {
            limits: ArcSwap::from_pointee(config.limits()),
            copies: Copies::new(&config, store.clone()),
            liveness: Liveness::default(),
            presence: Mutex::new(Presence::new(Duration::from_millis(config.lease_ms))),
            bucket: Bucket::new(store, config.node_id, metrics.clone()),
            routing: ArcSwap::from_pointee(Routing::empty()),
            publishing: Mutex::default(),
            version: watch::Sender::new(0),
            leaders: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            control: ControlQueue::new(),
            peers: Peers::new(&config, runtime.clone()),
            cursors: CursorService::new(WeakBroker { inner: weak.clone() }, &metrics),
            producer_ids: ProducerIds::default(),
            creations: TopicCreations::default(),
            raft_status: Mutex::new(serde_json::json!({})),
            space: Space::default(),
            runtime,
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
            metrics,
            config,
        });
        Self { inner }
    }

    /// Takes a snapshot of the metadata. On return leases and routes follow it. An older one than before is ignored.
    pub(crate) fn publish(&self, metadata: Arc<Metadata>) {
        let _turn = self.inner.publishing.lock();
        let old = self.inner.routing.load_full();
        if metadata.version < old.metadata.version {
            tracing::warn!(
                version = metadata.version,
                published = old.metadata.version,
                "older metadata is not published"
            );
            return;
        }
        self.inner.presence.lock().observe(&metadata, clock::boottime());
        self.inner.peers.update(&metadata);
        let version = metadata.version;
        let (routing, changed) = old.next(metadata, self.config());
        self.bucket().update_leases(&routing.leases);
        self.end_leaders(&routing);
        self.inner.routing.store(Arc::new(routing));
        for route in changed {
            for (partition, sequencer) in route.topic.partitions.iter().zip(&route.sequencers) {
                sequencer.metadata_changed(self, open_segment(partition));
            }
        }
        self.inner.version.send_replace(version);
    }

    /// Who hears that the disk is full.
    pub(crate) fn space(&self) -> &Space {
        &self.inner.space
    }

    /// Which nodes are there now, as far as this one has seen their leases renewed.
    pub(crate) fn present(&self, metadata: &Metadata) -> Present {
        let presence = self.inner.presence.lock();
        presence.look(metadata, clock::boottime())
    }

    /// Whether this process holds the lease of its node.
    pub(crate) fn holds_lease(&self, me: &Node) -> bool {
        self.inner.presence.lock().is_held(me, self.config().process, clock::boottime())
    }

    /// Leaders whose segments metadata has sealed, or does not list any more, learn it before anybody is routed past them.
    fn end_leaders(&self, routing: &Routing) {
        let is_led = |segment: &Uuid| routing.leases.by_key.contains_key(&walrus_log::LogId(*segment));
        let ended: Vec<_> = self
            .inner
            .leaders
            .lock()
            .extract_if(|segment, _| !is_led(segment))
            .map(|(_, leader)| leader)
            .collect();
        for leader in ended {
            let segment = &leader.descriptor;
            let partition =
                routing.topic(segment.topic).and_then(|route| route.partition(segment.partition).ok());
            let mut listed = partition.into_iter().flat_map(|partition| partition.segments.iter().rev());
            let state =
                listed.find(|listed| listed.descriptor.uuid == segment.uuid).map(|listed| &listed.state);
            if let Some(SegmentState::Sealed(value)) = state {
                leader.learned(self, convert::value(value));
            }
            leader.closed.cancel();
        }
    }

    /// Appends that their segment ended without go on in the next one.
    pub(crate) fn carry(&self, segment: &Descriptor, carried: Vec<Carried>) {
        let route = self.routing().topic(segment.topic).cloned();
        match route.as_ref().and_then(|route| route.sequencers.get(segment.partition as usize)) {
            Some(sequencer) => sequencer.carry(self, carried),
            None => {
                for append in carried {
                    let error = self.as_claim(Error::UnknownTopic { topic: segment.topic.0.to_string() });
                    drop(append.reply.send(Err(error))); // whoever asked may be gone
                }
            }
        }
    }

    /// Brings the leases in line with the published metadata. It takes its turn with publications: leases of older
    /// metadata must not replace those of newer.
    pub(crate) fn update_leases(&self) {
        let _turn = self.inner.publishing.lock();
        self.bucket().update_leases(&self.routing().leases);
    }

    /// Waits until other metadata is published, for at most `patience`.
    pub(crate) async fn metadata_change(&self, patience: Duration) {
        let mut version = self.watch_metadata();
        drop(tokio::time::timeout(patience, version.changed()).await); // both ends of the wait are fine
    }

    /// Waits until this node knows as much as another one did, for at most `patience`.
    pub(crate) async fn metadata_reaches(&self, version: u64, patience: Duration) {
        let mut watch = self.watch_metadata();
        drop(tokio::time::timeout(patience, watch.wait_for(|known| *known >= version)).await);
    }

    /// Runs a task that is waited for at the stop. A panic is reported.
    pub(crate) fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        use futures_util::FutureExt as _;
        let metrics = self.inner.metrics.clone();
        let guarded = async move {
            if std::panic::AssertUnwindSafe(task).catch_unwind().await.is_err() {
                metrics.panics.inc();
                tracing::error!(task = name, "a task panicked");
            }
        };
        self.inner.tasks.spawn_on(guarded, &self.inner.runtime);
    }

    /// Runs what waits for the disk on a thread for such things.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let done = self.inner.runtime.spawn_blocking(work).await;
        done.unwrap_or_else(|problem| {
            Err(Error::Internal { message: format!("work on the disk: {problem}") })
        })
    }

    /// The leader of an open segment that metadata gives to this process. Makes its log if need be.
    pub(crate) async fn leader(&self, topic: &TopicName, segment: &Segment) -> Result<Arc<Leader>> {
        let uuid = segment.descriptor.uuid;
        let known = || self.inner.leaders.lock().get(&uuid).cloned();
        if let Some(leader) = known() {
            return Ok(leader);
        }
        let log = self.open_log(topic, &segment.descriptor).await?;
        let _turn = self.inner.opening.lock().await;
        if let Some(leader) = known() {
            return Ok(leader);
        }
        let label: Arc<str> = label(topic.as_str(), &segment.descriptor).into();
        let copy = self.copies().open(&segment.descriptor)?;
        let (opening, named, node) = (segment.clone(), label.clone(), self.node_id());
        let leader = self.blocking(move || Leader::open(&opening, named, log, copy, node)).await?;
        let leader = Arc::new(leader);
        tracing::info!(
            segment = label.as_ref(),
            epoch = leader.key.epoch.0,
            base = leader.log().base_offset().0,
            replicas = ?segment.descriptor.replicas.iter().map(|replica| replica.node.0).collect::<Vec<_>>(),
            "leads"
        );
        self.inner.leaders.lock().insert(uuid, leader.clone());
        for place in leader.followers() {
            self.spawn("follower", follower::follow(self.clone(), leader.clone(), place));
        }
        Ok(leader)
    }

    /// Whether this process may begin to lead a segment that metadata gives it: nobody has written it yet (R7).
    pub(crate) fn may_lead(&self, segment: &Segment) -> bool {
        let descriptor = &segment.descriptor;
        if self.known_leader(descriptor.uuid).is_some() {
            return true;
        }
        let is_fresh = |log: Log| log.end_offset() == log.base_offset() && !log.is_sealed();
        let takes_appends = || match self.copies().find(descriptor.uuid) {
            Ok(Some(copy)) => copy.takes_appends().unwrap_or(false),
            Ok(None) => true,
            Err(_) => false,
        };
        segment.state == SegmentState::Open
            && self.bucket().log(log_id(descriptor)).is_none_or(is_fresh)
            && takes_appends()
    }

    /// A leader that has been asked for before.
    pub(crate) fn known_leader(&self, segment: Uuid) -> Option<Arc<Leader>> {
        self.inner.leaders.lock().get(&segment).cloned()
    }

    pub(crate) fn leaders(&self) -> Vec<Arc<Leader>> {
        self.inner.leaders.lock().values().cloned().collect()
    }

    /// The log of a segment that this node stores. A first segment's is made on the spot, another's was prepared; one
    /// that was not gets its producer table from a node that stores the segment before.
    pub(crate) async fn open_log(&self, topic: &TopicName, segment: &Descriptor) -> Result<Log> {
        if let Some(log) = self.bucket().log(log_id(segment)) {
            return Ok(log);
        }
        let producers =
            if segment.number == 0 { ProducerTable::new() } else { self.producers_at_base(segment).await? };
        tracing::info!(segment = label(topic.as_str(), segment), "log created");
        self.make_log(segment, producers).await
    }

    /// Makes the log of a segment, durably, or answers the one that is there.
    pub(crate) async fn make_log(&self, segment: &Descriptor, producers: ProducerTable) -> Result<Log> {
        let _turn = self.inner.opening.lock().await;
        if let Some(log) = self.bucket().log(log_id(segment)) {
            return Ok(log);
        }
        let unknown =
            || Error::InvalidRequest { problem: format!("the base of segment {} is missing", segment.uuid) };
        let spec = log_spec(segment, producers).ok_or_else(unknown)?;
        let creating = self.clone();
        self.blocking(move || creating.bucket().create(spec)).await
    }

    /// The producer table at a segment's base: from another copy of it, or of the sealed segment before.
    pub(crate) async fn producers_at_base(&self, segment: &Descriptor) -> Result<ProducerTable> {
        let first = |facts: &SegmentFacts| {
            let is_there = !facts.first_producers.is_empty();
            is_there.then(|| ProducerTable::decode(&facts.first_producers)).flatten()
        };
        if let Some(table) = self.find_fact(segment, first).await {
            return Ok(table);
        }
        let before = {
            let routing = self.routing();
            let partition =
                routing.topic(segment.topic).and_then(|route| route.partition(segment.partition).ok());
            let mut listed = partition.into_iter().flat_map(|partition| &partition.segments);
            listed.find(|listed| listed.descriptor.number + 1 == segment.number).cloned()
        };
        let Some(Segment { descriptor, state: SegmentState::Sealed(_), .. }) = before else {
            let what = format!("segment {} was not prepared and has no sealed one before it", segment.uuid);
            return Err(Error::Unavailable { what });
        };
        let last =
            |facts: &SegmentFacts| facts.sealed.then(|| ProducerTable::decode(&facts.producers)).flatten();
        if let Some(table) = self.find_fact(&descriptor, last).await {
            return Ok(table);
        }
        let what =
            format!("no node with a sealed copy of segment {} answers for its producers", descriptor.uuid);
        Err(Error::Unavailable { what })
    }

    /// Asks the replicas of a segment about their copies, producers included, until one knows what is wanted: the own one
    /// first, those that do not answer last.
    async fn find_fact<T>(
        &self,
        segment: &Descriptor,
        pick: impl Fn(&SegmentFacts) -> Option<T>,
    ) -> Option<T> {
        let info = SegmentInfo { segments: vec![uuid_bytes(segment.uuid)], producers: true };
        if let Some(found) = self.segment_facts(&info).await.segments.iter().find_map(&pick) {
            return Some(found);
        }
        let others = pages::holders(self, segment).into_iter().filter(|node| *node != self.node_id());
        for node in others {
            let answer = self.peers().call(node, Request::SegmentInfo(info.clone()), INFO_PATIENCE).await;
            let decoded =
                answer.ok().and_then(|payload| <SegmentInfoAnswer as prost::Message>::decode(payload).ok());
            if let Some(found) = decoded.unwrap_or_default().segments.iter().find_map(&pick) {
                return Some(found);
            }
        }
        None
    }

    /// Makes the log of a segment that this disk will store, durably.
    pub(crate) async fn prepare(&self, segment: &Descriptor, producers: &[u8]) -> Result<()> {
        let invalid = |problem: &str| Error::InvalidRequest { problem: format!("prepare: {problem}") };
        if segment.leader.node.0 == self.node_id() && !is_led_by(segment.leader, self.config()) {
            let key = Place::of(segment).to_string();
            return Err(Error::NotLeader { key, hint: None });
        }
        let producers =
            ProducerTable::decode(producers).ok_or_else(|| invalid("the producer table is damaged"))?;
        self.copies().open(segment)?;
        self.make_log(segment, producers).await.map(drop)
    }

    /// A message to a replica on this node. What must have a place in an order has it when this returns.
    pub(crate) fn ask_replica(&self, request: ReplicaRequest) -> Result<AskedReplica> {
        let (segment, disk, ask) = wire::decode_ask(request)?;
        if !self.copies().is_me(disk) {
            let reply = walrus_replica::Reply::Refused(walrus_replica::Refusal::OtherReplica);
            return Ok(AskedReplica::Answered(reply));
        }
        match ask {
            wire::Ask::Append(_) | wire::Ask::Assigned(_) => {
                let unknown = || Error::UnknownSegment { segment: segment.to_string() };
                let copy = self.copies().find(segment)?.ok_or_else(unknown)?;
                let said = copy.ask(ask)?;
                Ok(AskedReplica::Said { copy, said })
            }
            ask => Ok(AskedReplica::Waits { segment, ask }),
        }
    }

    /// The answer of a replica on this node, to an append when it is durable.
    pub(crate) async fn finish_replica(&self, asked: AskedReplica) -> Result<ReplicaAnswer> {
        let (copy, said) = match asked {
            AskedReplica::Answered(reply) => return Ok(wire::encode_reply(reply)),
            AskedReplica::Said { copy, said } => (copy, said),
            AskedReplica::Waits { segment, ask } => {
                let (wire::Ask::Fence(_, descriptor) | wire::Ask::Accept(.., descriptor)) = &ask else {
                    return Err(Error::InvalidRequest { problem: "nothing to wait for".to_owned() });
                };
                if descriptor.uuid != segment {
                    return Err(Error::InvalidRequest { problem: "another segment's descriptor".to_owned() });
                }
                let copy = self.copies().open(descriptor)?;
                let needs_log = matches!(&ask, wire::Ask::Accept(accept, ..)
                    if Some(accept.value.end.0) > descriptor.base_offset.map(|base| base.0));
                if needs_log && copy.log().is_none() {
                    catch_up::make_log(self, descriptor).await?;
                }
                let asked = copy.clone();
                (copy, self.blocking(move || asked.ask(ask)).await?)
            }
        };
        let silent = || Error::Unavailable { what: "the replica has nothing to say".to_owned() };
        if let Said { answer: Some(reply), .. } = said {
            return Ok(wire::encode_reply(reply));
        }
        let commit = said.commit.ok_or_else(silent)?;
        commit.await.map_err(|error| Error::Storage { node: self.node_id(), message: error.to_string() })?;
        copy.note_durable()?.map(wire::encode_reply).ok_or_else(silent)
    }

    /// The same for a message of this very node.
    pub(crate) async fn answer_replica(&self, request: ReplicaRequest) -> Result<ReplicaAnswer> {
        let asked = self.ask_replica(request)?;
        self.finish_replica(asked).await
    }

    /// Batches of the own copy of a segment, acknowledged or not: for its other replicas.
    pub(crate) fn durable_batches(&self, segment: Uuid, from: u64, bytes_max: usize) -> Result<Vec<Bytes>> {
        let unknown = || Error::UnknownSegment { segment: segment.to_string() };
        let log = self.bucket().log(walrus_log::LogId(segment)).ok_or_else(unknown)?;
        let read = self.bucket().read_by_key(&log, from, bytes_max);
        if let Err(Error::Corrupted { .. }) = &read {
            self.copies().note_damage(segment);
        }
        Ok(read?.batches)
    }

    /// How far a segment may be read on this node.
    pub(crate) fn readable(&self, segment: Uuid, log: &Log) -> Result<Readable> {
        let all = |end| Ok(Readable { end, is_all: true });
        if let Some(sealed) = log.sealed() {
            return all(sealed.end.0);
        }
        if let Some(leader) = self.known_leader(segment) {
            return all(leader.high_watermark());
        }
        match self.copies().find(segment)? {
            Some(copy) => copy.readable(),
            // Nobody has written it.
            None => all(log.base_offset().0),
        }
    }

    /// Facts about own copies of segments, and about open ones that this process leads and has not written yet.
    pub(crate) async fn segment_facts(&self, wanted: &SegmentInfo) -> SegmentInfoAnswer {
        let mut answer = self.known_facts(wanted);
        if !wanted.producers {
            self.settle(wanted, &mut answer.segments).await;
        }
        answer
    }

    /// Says of the ends of open segments whether they are sure.
    async fn settle(&self, wanted: &SegmentInfo, known: &mut Vec<SegmentFacts>) {
        let mut open = Vec::new();
        {
            let routing = self.routing();
            let wanted: HashSet<&Bytes> = wanted.segments.iter().collect();
            let partitions = routing.metadata.topics.values().flat_map(|topic| &topic.partitions);
            for Segment { descriptor, .. } in partitions.filter_map(open_segment) {
                let segment = uuid_bytes(descriptor.uuid);
                if !wanted.contains(&segment) {
                    continue;
                }
                match known.iter().position(|facts| facts.segment == segment) {
                    Some(place) if known[place].sealed => {}
                    Some(place) => open.push((place, descriptor.clone())),
                    None if is_led_by(descriptor.leader, self.config()) => {
                        let end_offset = descriptor.base_offset.map_or(0, |base| base.0);
                        open.push((known.len(), descriptor.clone()));
                        known.push(SegmentFacts { segment, end_offset, ..SegmentFacts::default() });
                    }
                    None => {}
                }
            }
        }
        let (places, descriptors): (Vec<usize>, Vec<Descriptor>) = open.into_iter().unzip();
        let claims = self.may_claim_ends(&descriptors).await;
        for (place, claim) in places.into_iter().zip(claims) {
            known[place].unsettled |= claim.is_err();
        }
    }

    fn known_facts(&self, wanted: &SegmentInfo) -> SegmentInfoAnswer {
        let facts = |bytes: &Bytes| {
            let segment = Uuid::from_slice(bytes).ok()?;
            let log = self.bucket().log(walrus_log::LogId(segment))?;
            let Readable { end: end_offset, is_all } = self.readable(segment, &log).ok()?;
            let (producers, first_producers) = match wanted.producers {
                true => (log.producers().encode().into(), log.first_producers()),
                false => Default::default(),
            };
            let (bytes, sealed) = (self.bucket().size_bytes(log.id()).unwrap_or(0), log.is_sealed());
            let segment = uuid_bytes(segment);
            let unsettled = !is_all;
            Some(SegmentFacts { segment, end_offset, bytes, sealed, producers, first_producers, unsettled })
        };
        SegmentInfoAnswer { segments: wanted.segments.iter().filter_map(facts).collect() }
    }
}

/// A message to a replica on its way to the answer.
pub(crate) enum AskedReplica {
    Answered(walrus_replica::Reply),
    /// In its place; the answer may wait for the disk.
    Said {
        copy: Arc<Copy>,
        said: Said,
    },
    /// Needs no place, and waits for the disk.
    Waits {
        segment: Uuid,
        ask: wire::Ask,
    },
}

pub(crate) fn uuid_bytes(uuid: Uuid) -> Bytes {
    Bytes::copy_from_slice(uuid.as_bytes())
}
