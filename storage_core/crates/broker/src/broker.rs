//! What the listeners call. Any node takes any request; what another node must do is forwarded to it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
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
use walrus_metadata::{Descriptor, Metadata, Segment, SegmentState, TopicId};

use crate::bucket::Bucket;
use crate::catalogue::ProducerIds;
use crate::config::Config;
use crate::control::{ControlQueue, Event};
use crate::creation::TopicCreations;
use crate::cursors::CursorService;
use crate::error::{Error, Result};
use crate::leader::Leader;
use crate::metrics::Metrics;
use crate::peer::{Peers, Request};
use crate::proto::peer::{SegmentFacts, SegmentInfo, SegmentInfoAnswer};
use crate::rollover::Limits;
use crate::routing::{Routing, TopicRoute, is_led_by, open_segment};
use crate::segment::{Place, label, log_id, log_spec};
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
    has_space: AtomicBool,
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
                Err(error) => Ticket::failed(error),
            };
        }
        if internal || !self.config().auto_create_topics {
            return Ticket::failed(Error::UnknownTopic { topic: to.topic.to_string() });
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
        let (_, found) = routing.partition(partition)?;
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
            has_space: AtomicBool::new(true),
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
        self.inner.peers.update(&metadata);
        let version = metadata.version;
        let (routing, changed) = old.next(metadata, self.config());
        self.bucket().update_leases(&routing.leases);
        self.inner
            .leaders
            .lock()
            .retain(|segment, _| routing.leases.by_key.contains_key(&walrus_log::LogId(*segment)));
        self.inner.routing.store(Arc::new(routing));
        for route in changed {
            for (partition, sequencer) in route.topic.partitions.iter().zip(&route.sequencers) {
                sequencer.metadata_changed(self, open_segment(partition));
            }
        }
        self.inner.version.send_replace(version);
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
        let mut leaders = self.inner.leaders.lock();
        if let Some(leader) = leaders.get(&uuid) {
            return Ok(leader.clone());
        }
        let label: Arc<str> = label(topic.as_str(), &segment.descriptor).into();
        let leader = Leader::new(segment, label.clone(), log, self.node_id())
            .ok_or_else(|| Error::Internal { message: format!("{label} is led here and not stored here") })?;
        let leader = Arc::new(leader);
        tracing::info!(
            segment = label.as_ref(),
            epoch = leader.key.epoch.0,
            base = leader.log().base_offset().0,
            "leads"
        );
        leaders.insert(uuid, leader.clone());
        Ok(leader)
    }

    /// A leader that has been asked for before.
    pub(crate) fn known_leader(&self, segment: Uuid) -> Option<Arc<Leader>> {
        self.inner.leaders.lock().get(&segment).cloned()
    }

    pub(crate) fn leaders(&self) -> Vec<Arc<Leader>> {
        self.inner.leaders.lock().values().cloned().collect()
    }

    /// The log of a segment that this node stores. A first segment's is made on the spot, another's was prepared; one
    /// that was not gets its producer table from the leader of the segment before.
    pub(crate) async fn open_log(&self, topic: &TopicName, segment: &Descriptor) -> Result<Log> {
        if let Some(log) = self.bucket().log(log_id(segment)) {
            return Ok(log);
        }
        let _turn = self.inner.opening.lock().await;
        let producers =
            if segment.number == 0 { ProducerTable::new() } else { self.fetch_producers(segment).await? };
        let label = label(topic.as_str(), segment);
        let spec = log_spec(segment, producers)
            .ok_or_else(|| Error::Internal { message: format!("{label} is listed without a base") })?;
        tracing::info!(segment = label, base = spec.base_offset.0, "log created");
        let creating = self.clone();
        self.blocking(move || creating.bucket().create(spec)).await
    }

    /// The producer table at the end of the segment before, from a node that stores it.
    async fn fetch_producers(&self, segment: &Descriptor) -> Result<ProducerTable> {
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
        tracing::warn!(segment = %segment.uuid, "the log was not prepared, asking the leader of the segment before");
        for replica in &descriptor.replicas {
            let info = SegmentInfo { segments: vec![uuid_bytes(descriptor.uuid)], producers: true };
            let facts = if replica.node.0 == self.node_id() {
                self.segment_facts(&info)
            } else {
                let answer =
                    self.peers().call(replica.node.0, Request::SegmentInfo(info), INFO_PATIENCE).await;
                answer.ok().and_then(|payload| prost::Message::decode(payload).ok()).unwrap_or_default()
            };
            let facts = facts.segments.first();
            if let Some(table) = facts.and_then(|facts| ProducerTable::decode(&facts.producers)) {
                return Ok(table);
            }
        }
        let what = format!("no node with segment {} answers for its producers", descriptor.uuid);
        Err(Error::Unavailable { what })
    }

    /// Makes the log of a successor that this process will lead, durably.
    pub(crate) async fn prepare(&self, successor: &Descriptor, producers: &[u8]) -> Result<()> {
        let invalid = |problem: &str| Error::InvalidRequest { problem: format!("prepare: {problem}") };
        if !is_led_by(successor.leader, self.config()) {
            let key = Place::of(successor).to_string();
            return Err(Error::NotLeader { key, hint: Some(successor.leader.node.0) });
        }
        let producers =
            ProducerTable::decode(producers).ok_or_else(|| invalid("the producer table is damaged"))?;
        let spec = log_spec(successor, producers).ok_or_else(|| invalid("the base offset is missing"))?;
        tracing::debug!(segment = spec.name, base = spec.base_offset.0, "log prepared");
        let creating = self.clone();
        self.blocking(move || creating.bucket().create(spec)).await.map(drop)
    }

    /// Facts about own copies of segments.
    pub(crate) fn segment_facts(&self, wanted: &SegmentInfo) -> SegmentInfoAnswer {
        let facts = |bytes: &Bytes| {
            let segment = Uuid::from_slice(bytes).ok()?;
            let log = self.bucket().log(walrus_log::LogId(segment))?;
            let end_offset =
                self.known_leader(segment).map_or(log.durable_offset().0, |leader| leader.high_watermark());
            let producers = if wanted.producers { log.producers().encode().into() } else { Bytes::new() };
            let (bytes, sealed) = (self.bucket().size_bytes(log.id()).unwrap_or(0), log.is_sealed());
            Some(SegmentFacts { segment: uuid_bytes(segment), end_offset, bytes, sealed, producers })
        };
        SegmentInfoAnswer { segments: wanted.segments.iter().filter_map(facts).collect() }
    }

    /// The disk is full, or has space again: tells the metadata when that changes.
    pub(crate) fn note_space(&self, has_space: bool) {
        let known = &self.inner.has_space;
        if known.load(Ordering::Relaxed) == has_space || known.swap(has_space, Ordering::Relaxed) == has_space
        {
            return;
        }
        tracing::warn!(has_space, "the disk's space changed");
        let (broker, state) = (self.clone(), if has_space { "up" } else { "full" });
        self.spawn("node state", async move {
            if let Err(refusal) = broker.control().ask(&Event::NodeState { state }, INFO_PATIENCE).await {
                tracing::warn!(state, ?refusal, "the metadata does not know the state of this node's disk");
            }
        });
    }
}

pub(crate) fn uuid_bytes(uuid: Uuid) -> Bytes {
    Bytes::copy_from_slice(uuid.as_bytes())
}
