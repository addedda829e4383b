//! What the listeners call. Any node takes any request; what another node must do is forwarded to it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use crate::config::Config;
use crate::cursors::CursorService;
use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::peer::Peers;
use crate::topic::{NodeView, PartitionRef, PartitionView, TopicInfo, TopicState};

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
    /// First offset not readable yet.
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
    metrics: Metrics,
    peers: Peers,
    cursors: CursorService,
    shutdown: tokio_util::sync::CancellationToken,
}

impl WeakBroker {
    /// The broker, unless it is stopped.
    pub fn upgrade(&self) -> Result<Broker> {
        let stopped = || Error::Unavailable { what: "this node is stopping".to_owned() };
        self.inner.upgrade().map(|inner| Broker { inner }).ok_or_else(stopped)
    }
}

impl Broker {
    /// Creates a topic, or answers the one that is there (`false`) if it has as many partitions (0 = any).
    pub async fn create_topic(
        &self,
        _name: &str,
        _partitions: u32,
        _internal: bool,
    ) -> Result<(TopicInfo, bool)> {
        Err(skeleton())
    }

    /// Drops a topic with all its records. Refuses internal topics.
    pub async fn delete_topic(&self, _name: &str) -> Result<()> {
        Err(skeleton())
    }

    /// Topics by name; `internal` ones on demand.
    #[must_use]
    pub fn topics(&self, _internal: bool) -> Vec<TopicInfo> {
        Vec::new()
    }

    /// A topic by name.
    #[must_use]
    pub fn topic(&self, _name: &str) -> Option<TopicInfo> {
        None
    }

    /// Appends one RecordBatch v2 of a client; durable and readable on return. Goes to the leader, waits through a
    /// rollover, creates an unknown topic if `auto_create_topics`. Refuses internal topics. Calls for one partition
    /// that are polled first in some order reach its log in this order, as long as none of them fails.
    pub async fn append(&self, _to: &PartitionRef, _batch: Bytes) -> Result<AppendAck> {
        Err(skeleton())
    }

    /// [`Broker::append`] to a topic of Walrus's own.
    pub async fn append_internal(&self, _to: &PartitionRef, _batch: Bytes) -> Result<AppendAck> {
        Err(skeleton())
    }

    /// Reads below the high watermark: sealed segments from a replica, the open one from its leader.
    pub async fn read(&self, _from: &PartitionRef, _offset: u64, _options: ReadOptions) -> Result<ReadPage> {
        Err(skeleton())
    }

    /// All partitions of a topic with their segments; asks the nodes that store them for sizes and watermarks.
    pub async fn segments(&self, _topic: &str) -> Result<Vec<PartitionView>> {
        Err(skeleton())
    }

    /// `STATE` of the text protocol (partition 0).
    pub async fn topic_state(&self, _topic: &str) -> Result<TopicState> {
        Err(skeleton())
    }

    /// A producer id that nobody else gets, and its epoch.
    pub async fn init_producer(&self) -> Result<(i64, i16)> {
        Err(skeleton())
    }

    /// Drops the sealed segments of a partition below a segment's number.
    pub async fn trim(&self, _partition: &PartitionRef, _below_number: u64) -> Result<()> {
        Err(skeleton())
    }

    /// Who leads a partition now.
    pub fn leadership(&self, _partition: &PartitionRef) -> Result<Leadership> {
        Err(skeleton())
    }

    /// Version of the published metadata; changes wake the receiver.
    #[must_use]
    pub fn watch_metadata(&self) -> tokio::sync::watch::Receiver<u64> {
        tokio::sync::watch::channel(0).1
    }

    /// `METRICS` of the text protocol: what the metadata store published about Raft, and ours.
    #[must_use]
    pub fn cluster_metrics(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// Every node of the cluster, by id.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeView> {
        Vec::new()
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
    pub fn shutdown_signal(&self) -> &tokio_util::sync::CancellationToken {
        &self.inner.shutdown
    }

    /// Does not keep the broker alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakBroker {
        WeakBroker { inner: Arc::downgrade(&self.inner) }
    }
}

fn skeleton() -> Error {
    Error::Unavailable { what: "not wired yet".to_owned() }
}
