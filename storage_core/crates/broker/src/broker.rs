//! What the listeners call: the parts of the data plane, and the metadata that they go by. Any node takes any request; what
//! another node must do is forwarded to it. Its methods are where what they are about is: appends and leaders in
//! `partition/`, reads in `reading/`, copies stored here in `copies/`.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use walrus_metadata::rolling::Limits;
use walrus_metadata::{Metadata, Node, Presence, Present};
use walrus_model::SegmentId;

use crate::bucket::Bucket;
use crate::cluster::barrier::Barrier;
use crate::cluster::control::ControlQueue;
use crate::cluster::liveness::Liveness;
use crate::cluster::news::News;
use crate::cluster::routing::{Routing, open_segment};
use crate::copies::left::LeftLogs;
use crate::copies::table::Copies;
use crate::cursors::CursorService;
use crate::node::budget::{Budget, Purpose, Share};
use crate::node::clock;
use crate::node::config::Config;
use crate::node::error::{Error, Result};
use crate::node::metrics::Metrics;
use crate::node::secret::Secrets;
use crate::partition::leader::Leader;
use crate::peer::Peers;
use crate::topics::creation::TopicCreations;
use crate::upkeep::space::Space;

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
    left: LeftLogs,
    budget: Arc<Budget>,
    secrets: Arc<Secrets>,
    liveness: Liveness,
    presence: Mutex<Presence>,
    routing: ArcSwap<Routing>,
    /// Serialises publications.
    publishing: Mutex<()>,
    version: watch::Sender<u64>,
    /// Leaders of the open segments that this process leads and that somebody has asked for, by segment.
    leaders: Mutex<HashMap<SegmentId, Arc<Leader>>>,
    /// Held while a log is made, so that it is made once.
    opening: tokio::sync::Mutex<()>,
    control: ControlQueue,
    barrier: Barrier,
    peers: Peers,
    cursors: CursorService,
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

    /// Logs of disks that this node was before.
    pub(crate) fn left(&self) -> &LeftLogs {
        &self.inner.left
    }

    /// What brokers prove to each other.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.inner.secrets
    }

    /// Bytes that this node holds for others.
    pub(crate) fn budget(&self) -> &Budget {
        &self.inner.budget
    }

    pub(crate) fn share(&self, purpose: Purpose) -> &Arc<Share> {
        self.inner.budget.share(purpose)
    }

    /// Which nodes answer.
    pub(crate) fn liveness(&self) -> &Liveness {
        &self.inner.liveness
    }

    pub(crate) fn control(&self) -> &ControlQueue {
        &self.inner.control
    }

    /// Before this node says that something is not there.
    pub(crate) fn barrier(&self) -> &Barrier {
        &self.inner.barrier
    }

    pub(crate) fn creations(&self) -> &TopicCreations {
        &self.inner.creations
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

    pub(crate) fn append_patience(&self) -> Duration {
        Duration::from_millis(self.inner.config.append_wait_ms)
    }

    /// Leaders of the open segments that this process leads and that somebody has asked for, by segment.
    pub(crate) fn led(&self) -> &Mutex<HashMap<SegmentId, Arc<Leader>>> {
        &self.inner.leaders
    }

    /// Held while a log is made, so that it is made once.
    pub(crate) fn opening(&self) -> &tokio::sync::Mutex<()> {
        &self.inner.opening
    }

    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.inner.tasks
    }
}

/// What happens inside.
impl Broker {
    pub(crate) fn new(
        config: Config,
        secrets: Secrets,
        store: walrus_log::Store,
        copies: Copies,
        left: LeftLogs,
        metrics: Arc<Metrics>,
        runtime: tokio::runtime::Handle,
    ) -> Self {
        let budget = Arc::new(Budget::new(config.memory_budget_bytes));
        let secrets = Arc::new(secrets);
        let inner = Arc::new_cyclic(|weak: &Weak<Inner>| Inner {
            limits: ArcSwap::from_pointee(config.limits()),
            copies,
            left,
            budget: budget.clone(),
            liveness: Liveness::default(),
            presence: Mutex::new(Presence::new(Duration::from_millis(config.lease_ms))),
            bucket: Bucket::new(store, config.node_id, metrics.clone()),
            routing: ArcSwap::from_pointee(Routing::empty()),
            publishing: Mutex::default(),
            version: watch::Sender::new(0),
            leaders: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            control: ControlQueue::new(),
            barrier: Barrier::default(),
            peers: Peers::new(&config, secrets.clone(), budget.clone(), runtime.clone()),
            secrets: secrets.clone(),
            cursors: CursorService::new(WeakBroker { inner: weak.clone() }, &metrics),
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

    /// Brings the leases in line with the published metadata. It takes its turn with publications: leases of older
    /// metadata must not replace those of newer.
    pub(crate) fn update_leases(&self) {
        let _turn = self.inner.publishing.lock();
        self.bucket().update_leases(&self.routing().leases);
    }

    /// News of the metadata from here on.
    pub(crate) fn news(&self) -> News {
        News::new(self.watch_metadata())
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
}
