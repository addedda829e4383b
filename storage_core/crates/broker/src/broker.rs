//! The facade that the listeners call. Any node takes any request; what another node must do is forwarded to it. The facade
//! decides nothing: it holds the parts of the data plane and hands each call on to one of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry::KeyValue;
use serde_json::Value;
use tokio::sync::watch;
use walrus_log::batch::{Batch, BatchHeader, RecordsSeen};
use walrus_metadata::Remains;
use walrus_model::TopicId;

use crate::bucket::Bucket;
use crate::cluster::Cluster;
use crate::cluster::leadership::Leadership;
use crate::copies::Copies;
use crate::cursors::{Consumer, CursorService};
use crate::groups::GroupService;
use crate::node::error::Result;
use crate::node::names::{OrgName, PartitionRef, TopicPath};
use crate::node::spans::Spans;
use crate::partition::Partitions;
use crate::partition::ack::AppendAck;
use crate::reading::Reading;
use crate::reading::by_time::{FoundOffset, OffsetAt};
use crate::reading::reader::{ReadOptions, ReadPage};
use crate::topics::Topics;
use crate::topics::catalogue::{ConfigChange, NewTopic};
use crate::topics::view::{NodeView, PartitionView, TopicDescription, TopicInfo, TopicState};

/// Names of the spans of an append and of a read.
const PRODUCE_SPAN: &str = "walrus.broker.produce.store";
const FETCH_SPAN: &str = "walrus.broker.fetch.read";

/// The data plane as the listeners see it. Cheap to clone.
#[derive(Clone)]
pub struct Broker {
    topics: Arc<Topics>,
    cursors: CursorService,
    groups: GroupService,
    spans: Arc<Spans>,
}

/// Appends and reads of records.
impl Broker {
    /// Appends one RecordBatch v2; durable and readable on return. Goes to the leader, waits through a rollover, creates an
    /// unknown topic of an organisation if `auto_create_topics`. Calls for one partition that are polled first in some order
    /// reach its log in this order, as long as none of them fails.
    pub async fn append(&self, to: &PartitionRef, batch: Bytes) -> Result<AppendAck> {
        let begun = self.spans.begin(|| size_of(&batch));
        let result = self.topics.append(to, batch).await;
        self.spans.end(PRODUCE_SPAN, begun, &result, |size, ack| facts_of_append(to, size, ack));
        result
    }

    /// Does the same, and creates no topic.
    pub(crate) async fn append_to_existing(&self, to: &PartitionRef, batch: Bytes) -> Result<AppendAck> {
        self.topics.append_to_existing(to, batch).await
    }

    /// Does the same with a batch that was parsed and whose records were looked at, and creates no topic. Gives up after
    /// `patience`.
    pub(crate) async fn append_walked(
        &self,
        to: &PartitionRef,
        batch: Bytes,
        walked: (&Batch<'_>, &RecordsSeen),
        patience: Duration,
    ) -> Result<AppendAck> {
        let begun = self.spans.begin(|| size_of(&batch));
        let result = self.topics.append_walked(to, batch, walked, patience).await;
        self.spans.end(PRODUCE_SPAN, begun, &result, |size, ack| facts_of_append(to, size, ack));
        result
    }

    /// Reads below the high watermark. Waits at it for `options.wait`, then answers an empty page.
    pub async fn read(&self, from: &PartitionRef, offset: u64, options: ReadOptions) -> Result<ReadPage> {
        let begun = self.spans.begin(|| ());
        let result = self.topics.reading().read(from, offset, options).await;
        self.spans.end(FETCH_SPAN, begun, &result, |(), page| facts_of_read(from, offset, page));
        result
    }

    /// The offsets of a topic's partitions at points of time, one answer for each question; see [`OffsetAt`].
    pub async fn list_offsets(
        &self,
        topic: &TopicPath,
        questions: &[(u32, OffsetAt)],
    ) -> Result<Vec<Result<FoundOffset>>> {
        self.topics.reading().list_offsets(topic, questions).await
    }

    /// A producer id that nobody else gets and nobody can guess, and its epoch.
    #[must_use]
    pub fn init_producer(&self) -> (i64, i16) {
        self.topics.init_producer()
    }

    /// The shared cursors of topics (`GET`).
    #[must_use]
    pub fn cursors(&self) -> &CursorService {
        &self.cursors
    }

    /// Consumer groups of Kafka's clients.
    pub(crate) fn groups(&self) -> &GroupService {
        &self.groups
    }

    /// A consumer of the shared cursors, for a new connection.
    #[must_use]
    pub fn consumer(&self) -> Consumer {
        Consumer::new(self.cursors.clone())
    }
}

/// The catalogue of topics.
impl Broker {
    /// Creates a topic, or answers the one that is there (`false`) if it has as many partitions and these settings.
    pub async fn create_topic(
        &self,
        path: &TopicPath,
        new: impl Into<NewTopic>,
    ) -> Result<(TopicInfo, bool)> {
        self.topics.create_topic(path, new.into()).await
    }

    /// A topic with all its settings as they are in force, and where each comes from.
    pub async fn describe_topic(&self, path: &TopicPath) -> Result<TopicDescription> {
        self.topics.describe_topic(path).await
    }

    /// Gives a topic more partitions, so that it has this number; one that has as many stays as it is.
    pub async fn add_partitions(&self, path: &TopicPath, partitions: u32) -> Result<TopicInfo> {
        self.topics.add_partitions(path, partitions).await
    }

    /// Waits until the other nodes know the topics that this one does, for a second at most.
    pub(crate) async fn await_routed(&self) {
        self.topics.await_routed().await;
    }

    /// Changes settings of a topic, all of the change or nothing; answers with what is in force then.
    pub async fn alter_topic(&self, path: &TopicPath, change: ConfigChange) -> Result<TopicDescription> {
        self.topics.alter_topic(path, change).await
    }

    /// Deletes the records of partitions below an offset, or all that are acknowledged now where there is none; answers with the
    /// first offset that each has then.
    pub async fn delete_records(
        &self,
        path: &TopicPath,
        before: BTreeMap<u32, Option<u64>>,
    ) -> Result<BTreeMap<u32, u64>> {
        self.topics.delete_records(path, before).await
    }

    /// Drops a topic with all its records; with `only` not another one that has the name.
    pub async fn delete_topic(&self, path: &TopicPath, only: Option<TopicId>) -> Result<()> {
        self.topics.delete_topic(path, only).await
    }

    /// Drops the sealed segments of a partition below a segment's number.
    pub async fn trim(&self, partition: &PartitionRef, below_number: u64) -> Result<()> {
        self.topics.trim(partition, below_number).await
    }

    /// The topics of an organisation as far as this node knows, by name.
    #[must_use]
    pub fn topics(&self, org: &OrgName) -> Vec<TopicInfo> {
        self.topics.topics(org)
    }

    /// All topics that an organisation has, for a client; with `internal` Walrus's own ones too, behind them. `Unavailable` from
    /// a node that may have missed some.
    pub async fn list_topics(&self, org: &OrgName, internal: bool) -> Result<Vec<TopicInfo>> {
        self.topics.list_topics(org, internal).await
    }

    /// A topic by its path.
    #[must_use]
    pub fn topic(&self, path: &TopicPath) -> Option<TopicInfo> {
        self.topics.topic(path)
    }

    /// All partitions of a topic with their segments; asks the nodes that store them for sizes and watermarks.
    /// `Unavailable` where the leader of an open segment does not answer, or its end is just being decided: a guess at
    /// what can be read would let readers take a part for the whole.
    pub async fn segments(&self, path: &TopicPath) -> Result<Vec<PartitionView>> {
        self.topics.segments(path).await
    }

    /// The answer to `STATE` of the text protocol (partition 0), as it was at the time of the question or later.
    pub async fn topic_state(&self, path: &TopicPath) -> Result<TopicState> {
        self.topics.topic_state(path).await
    }
}

/// Facts about the cluster and this node.
impl Broker {
    /// Version of the published metadata; changes wake the receiver.
    #[must_use]
    pub fn watch_metadata(&self) -> watch::Receiver<u64> {
        self.cluster().watch_metadata()
    }

    /// The leadership of a partition, as far as this node knows: neither an answer nor an error is final.
    pub fn leadership(&self, partition: &PartitionRef) -> Result<Leadership> {
        self.cluster().leadership(partition)
    }

    /// Every node of the cluster, by id.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeView> {
        self.topics.nodes()
    }

    /// The answer to `METRICS` of the text protocol: what the metadata store published about Raft, and facts of this node.
    #[must_use]
    pub fn cluster_metrics(&self) -> Value {
        self.topics.cluster_metrics()
    }

    /// The logs of this node.
    #[must_use]
    pub fn bucket(&self) -> &Bucket {
        self.copies().bucket()
    }

    /// The remains on this disk of topics that the metadata here neither name nor call deleted.
    #[must_use]
    pub fn remains(&self) -> Vec<Remains> {
        self.copies().remains()
    }
}

/// The parts that it is made of.
impl Broker {
    pub(crate) fn new(topics: Arc<Topics>, spans: Arc<Spans>) -> Self {
        let cursors = CursorService::new(topics.clone(), topics.cluster().metrics());
        let groups = GroupService::new(topics.clone());
        Self { topics, cursors, groups, spans }
    }

    /// The cluster as this node sees it.
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        self.topics.cluster()
    }

    /// What tells a collector of appends and reads.
    pub(crate) fn spans(&self) -> &Spans {
        &self.spans
    }

    /// The copies on this node.
    pub(crate) fn copies(&self) -> &Arc<Copies> {
        self.topics.copies()
    }

    /// All partitions.
    pub(crate) fn partitions(&self) -> &Arc<Partitions> {
        self.topics.partitions()
    }

    /// Reads of records.
    pub(crate) fn reading(&self) -> &Arc<Reading> {
        self.topics.reading()
    }
}

/// Numbers of records and of bytes in a batch.
fn size_of(batch: &[u8]) -> (u32, usize) {
    (BatchHeader::peek(batch).map_or(0, |header| header.record_count()), batch.len())
}

/// What a span tells of an append.
fn facts_of_append(
    to: &PartitionRef,
    (records, bytes): (u32, usize),
    ack: Option<&AppendAck>,
) -> Vec<KeyValue> {
    let mut facts = place_of(to);
    facts.extend([number("record_count", records.into()), number("bytes", bytes as u64)]);
    facts.extend(ack.map(|ack| number("base_offset", ack.base_offset)));
    facts
}

/// What a span tells of a read.
fn facts_of_read(from: &PartitionRef, offset: u64, page: Option<&ReadPage>) -> Vec<KeyValue> {
    let mut facts = place_of(from);
    facts.push(number("fetch_offset", offset));
    if let Some(page) = page {
        let bytes: usize = page.pieces.iter().map(Bytes::len).sum();
        facts.extend([
            number("returned_count", page.record_count()),
            number("high_watermark", page.high_watermark),
            number("bytes", bytes as u64),
        ]);
    }
    facts
}

fn place_of(partition: &PartitionRef) -> Vec<KeyValue> {
    vec![
        KeyValue::new("organisation", partition.topic.org.to_string()),
        KeyValue::new("topic", partition.topic.name.to_string()),
        KeyValue::new("partition", i64::from(partition.partition)),
    ]
}

fn number(name: &'static str, number: u64) -> KeyValue {
    KeyValue::new(name, i64::try_from(number).unwrap_or(i64::MAX))
}
