//! The cluster as this node knows it, for whoever must ask before it acts.

pub(crate) mod barrier;
pub(crate) mod control;
pub(crate) mod known;
pub(crate) mod leadership;
pub(crate) mod listed;
pub(crate) mod liveness;
pub(crate) mod news;
pub(crate) mod pings;
mod reach;
pub(crate) mod room;
pub(crate) mod routing;
pub(crate) mod segment;
pub(crate) mod standing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::{Value, json};
use tokio::sync::watch;
use walrus_metadata::{Metadata, Node, Presence, Present};

use barrier::Barrier;
use control::ControlQueue;
use liveness::Liveness;
use news::News;
use room::DiskRoom;
use routing::Routing;

use crate::node::budget::{Budget, Purpose, Share};
use crate::node::clock;
use crate::node::config::Config;
use crate::node::locks::Lock;
use crate::node::metrics::Metrics;
use crate::node::secret::Secrets;
use crate::node::tasks::Tasks;
use crate::peer::Peers;

/// The cluster as this node sees it: the published metadata, which nodes answer, how they are reached, and the queue of what
/// is asked of the metadata store.
pub(crate) struct Cluster {
    config: Config,
    metrics: Arc<Metrics>,
    tasks: Tasks,
    secrets: Arc<Secrets>,
    budget: Arc<Budget>,
    peers: Peers,
    liveness: Liveness,
    presence: Lock<Presence>,
    routing: ArcSwap<Routing>,
    version: watch::Sender<u64>,
    control: ControlQueue,
    barrier: Barrier,
    room: DiskRoom,
    leaves: AtomicBool,
    raft_status: Lock<Value>,
}

/// The parts of this node that others use, and its options.
impl Cluster {
    pub(crate) fn new(config: Config, secrets: Secrets, metrics: Arc<Metrics>, tasks: Tasks) -> Self {
        let budget = Arc::new(Budget::new(config.memory_budget_bytes));
        let secrets = Arc::new(secrets);
        Self {
            peers: Peers::new(&config, secrets.clone(), budget.clone(), tasks.runtime().clone()),
            presence: Lock::new(Presence::new(Duration::from_millis(config.lease_ms))),
            liveness: Liveness::default(),
            routing: ArcSwap::from_pointee(Routing::empty()),
            version: watch::Sender::new(0),
            control: ControlQueue::new(),
            barrier: Barrier::default(),
            room: DiskRoom::default(),
            leaves: AtomicBool::new(false),
            raft_status: Lock::new(json!({})),
            config,
            metrics,
            tasks,
            secrets,
            budget,
        }
    }

    /// This node's id.
    pub(crate) fn node_id(&self) -> u32 {
        self.config.node_id
    }

    /// Options of this node.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Counters of this node.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The tasks and threads of this node.
    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// The secrets by which brokers prove to each other who they are.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The budget of bytes that this node holds for others.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The share of the budget that is set aside for a purpose.
    pub(crate) fn share(&self, purpose: Purpose) -> &Arc<Share> {
        self.budget.share(purpose)
    }

    /// RPC to other brokers.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// The record of which nodes answer.
    pub(crate) fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// The queue of requests to the metadata store.
    pub(crate) fn control(&self) -> &ControlQueue {
        &self.control
    }

    /// The barrier to pass before this node says that something is not there.
    pub(crate) fn barrier(&self) -> &Barrier {
        &self.barrier
    }

    /// The place where writes that found no room on the disk are noted.
    pub(crate) fn room(&self) -> &DiskRoom {
        &self.room
    }

    /// Whether this process is about to stop and hands over what it leads: it begins to lead nothing more.
    pub(crate) fn leaves(&self) -> bool {
        self.leaves.load(Ordering::Acquire)
    }

    /// Has [`Cluster::leaves`] be true from here on.
    pub(crate) fn leave(&self) {
        self.leaves.store(true, Ordering::Release);
    }

    /// The status of Raft as Raft itself reports it.
    pub(crate) fn raft_status(&self) -> &Lock<Value> {
        &self.raft_status
    }
}

/// The published metadata.
impl Cluster {
    pub(crate) fn routing(&self) -> arc_swap::Guard<Arc<Routing>> {
        self.routing.load()
    }

    /// Replaces the table that this node goes by. Who waits for news hears of it with [`Cluster::tell_version`].
    pub(crate) fn set_routing(&self, routing: Routing) {
        self.routing.store(Arc::new(routing));
    }

    /// Wakes who waits for news of the metadata.
    pub(crate) fn tell_version(&self, version: u64) {
        self.version.send_replace(version);
    }

    pub(crate) fn metadata_version(&self) -> u64 {
        *self.version.borrow()
    }

    /// Version of the published metadata; changes wake the receiver.
    pub(crate) fn watch_metadata(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Takes the place from which on published metadata are news.
    pub(crate) fn news(&self) -> News {
        News::new(self.watch_metadata())
    }

    /// Waits until this node knows as much as another one did, for at most `patience`.
    pub(crate) async fn metadata_reaches(&self, version: u64, patience: Duration) {
        let mut watch = self.watch_metadata();
        drop(tokio::time::timeout(patience, watch.wait_for(|known| *known >= version)).await);
    }

    /// Notes the leases of nodes that the metadata say were renewed.
    pub(crate) fn observe_leases(&self, metadata: &Metadata) {
        self.presence.lock().observe(metadata, clock::boottime());
    }

    /// The nodes that are there now, as far as this one has seen their leases renewed.
    pub(crate) fn present(&self, metadata: &Metadata) -> Present {
        self.presence.lock().look(metadata, clock::boottime())
    }

    /// The nodes that are there by their leases and that answer this one.
    pub(crate) fn answering(&self, metadata: &Metadata) -> Present {
        let mut present = self.present(metadata);
        present.alive.retain(|node| !self.liveness.is_silent(node.0));
        present
    }

    /// Whether this process holds the lease of its node.
    pub(crate) fn holds_lease(&self, me: &Node) -> bool {
        self.presence.lock().is_held(me, self.config.process, clock::boottime())
    }
}
