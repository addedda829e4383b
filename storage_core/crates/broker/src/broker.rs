//! What the listeners call: the parts of the data plane, and the metadata that they go by. Any node takes any request; what
//! another node must do is forwarded to it. Its methods are where what they are about is: appends and leaders in
//! `partition/`, reads in `reading/`, copies stored here in `copies/`.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;
use walrus_metadata::Metadata;
use walrus_metadata::rolling::Limits;
use walrus_model::SegmentId;

use crate::bucket::Bucket;
use crate::cluster::Cluster;
use crate::cluster::routing::open_segment;
use crate::copies::Copies;
use crate::cursors::CursorService;
use crate::node::error::{Error, Result};
use crate::partition::leader::Leader;
use crate::topics::creation::TopicCreations;

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
    cluster: Arc<Cluster>,
    limits: ArcSwap<Limits>,
    copies: Arc<Copies>,
    /// Serialises publications.
    publishing: Mutex<()>,
    /// Leaders of the open segments that this process leads and that somebody has asked for, by segment.
    leaders: Mutex<HashMap<SegmentId, Arc<Leader>>>,
    /// Held while a leader begins, so that it begins once.
    opening: tokio::sync::Mutex<()>,
    cursors: CursorService,
    creations: TopicCreations,
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
        self.cluster().watch_metadata()
    }

    /// Shared cursors of topics (`GET`).
    #[must_use]
    pub fn cursors(&self) -> &CursorService {
        &self.inner.cursors
    }

    /// Does not keep the broker alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakBroker {
        WeakBroker { inner: Arc::downgrade(&self.inner) }
    }

    /// The logs of this node.
    #[must_use]
    pub fn bucket(&self) -> &Bucket {
        self.copies().bucket()
    }

    /// What lies on this disk of topics that the metadata here neither name nor call deleted.
    #[must_use]
    pub fn remains(&self) -> Vec<walrus_metadata::Remains> {
        self.copies().remains()
    }

    /// The cluster as this node sees it.
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.inner.cluster
    }

    /// The copies on this node.
    pub(crate) fn copies(&self) -> &Arc<Copies> {
        &self.inner.copies
    }

    pub(crate) fn creations(&self) -> &TopicCreations {
        &self.inner.creations
    }

    pub(crate) fn limits(&self) -> Limits {
        **self.inner.limits.load()
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        self.inner.limits.store(Arc::new(limits));
    }

    pub(crate) fn append_patience(&self) -> Duration {
        Duration::from_millis(self.cluster().config().append_wait_ms)
    }

    /// Leaders of the open segments that this process leads and that somebody has asked for, by segment.
    pub(crate) fn led(&self) -> &Mutex<HashMap<SegmentId, Arc<Leader>>> {
        &self.inner.leaders
    }

    /// Held while a leader begins, so that it begins once.
    pub(crate) fn opening(&self) -> &tokio::sync::Mutex<()> {
        &self.inner.opening
    }
}

/// What happens inside.
impl Broker {
    pub(crate) fn new(cluster: Arc<Cluster>, copies: Arc<Copies>, metrics: &crate::Metrics) -> Self {
        let inner = Arc::new_cyclic(|weak: &Weak<Inner>| Inner {
            limits: ArcSwap::from_pointee(cluster.config().limits()),
            copies,
            publishing: Mutex::default(),
            leaders: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            cursors: CursorService::new(WeakBroker { inner: weak.clone() }, metrics),
            creations: TopicCreations::default(),
            cluster,
        });
        Self { inner }
    }

    /// Takes a snapshot of the metadata. On return leases and routes follow it. An older one than before is ignored.
    pub(crate) fn publish(&self, metadata: Arc<Metadata>) {
        let _turn = self.inner.publishing.lock();
        let cluster = self.cluster();
        let old = Arc::clone(&cluster.routing());
        if metadata.version < old.metadata.version {
            tracing::warn!(
                version = metadata.version,
                published = old.metadata.version,
                "older metadata is not published"
            );
            return;
        }
        cluster.observe_leases(&metadata);
        cluster.peers().update(&metadata);
        let version = metadata.version;
        let (routing, changed) = old.next(metadata, cluster.config());
        self.bucket().update_leases(&routing.leases);
        self.end_leaders(&routing);
        cluster.set_routing(routing);
        for route in changed {
            for (partition, sequencer) in route.topic.partitions.iter().zip(&route.sequencers) {
                sequencer.metadata_changed(self, open_segment(partition));
            }
        }
        cluster.tell_version(version);
    }

    /// Brings the leases in line with the published metadata. It takes its turn with publications: leases of older
    /// metadata must not replace those of newer.
    pub(crate) fn update_leases(&self) {
        let _turn = self.inner.publishing.lock();
        self.bucket().update_leases(&self.cluster().routing().leases);
    }
}
