//! The catalogue: making, dropping and describing topics, and the ids of producers. What changes metadata is asked of the
//! host.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use futures_util::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;
use walrus_metadata::{
    CopyState, Metadata, Partition, PartitionStart, Request, Response, Segment, SegmentState, verdict,
};
use walrus_model::{NodeId, Offset, ReplicaRef, SegmentId, TopicId, producer_id};

use crate::cluster::routing::{TopicRoute, base_of};
use crate::node::error::{Error, Result};
use crate::node::names::{OrgName, PartitionRef, TopicPath};
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::node::proto::peer::Confirm;
use crate::peer::Request as PeerRequest;
use crate::reading::ends::{Size, end_of};
use crate::topics::Topics;
use crate::topics::view::{
    KeptView, NodeView, PartitionView, SegmentStateView, SegmentView, TopicDescription, TopicInfo, TopicState,
};

/// Limit on the partitions of a topic.
const PARTITIONS_MAX: u32 = 10_000;

/// A topic as it is to be created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTopic {
    /// Number of partitions; 0: one, or as many as a topic of that name has.
    pub partitions: u32,
    /// Settings that it is to have, by name.
    pub config: BTreeMap<String, String>,
}

impl From<u32> for NewTopic {
    /// A topic with so many partitions and no settings of its own.
    fn from(partitions: u32) -> Self {
        Self { partitions, ..Self::default() }
    }
}

/// A change of a topic's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigChange {
    /// Names and their new values.
    pub set: BTreeMap<String, String>,
    /// Names that go back to the default.
    pub unset: BTreeSet<String>,
    /// The change is refused where the settings have another version.
    pub expect: Option<u64>,
}

impl Topics {
    /// Creates a topic, or answers the one that is there (`false`) if it has as many partitions and these settings.
    pub(crate) async fn create_topic(&self, path: &TopicPath, new: NewTopic) -> Result<(TopicInfo, bool)> {
        let NewTopic { partitions, config } = new;
        check_partitions(partitions)?;
        if self.topic(path).is_some() {
            // The topic may have been dropped elsewhere.
            self.cluster().await_all_metadata(&format!("whether there is a topic {path}")).await?;
            if let Some(topic) = self.alike(path, partitions, &config)? {
                return Ok((topic, false));
            }
        }
        let event = Request::CreateTopic {
            org: path.org.to_string(),
            name: path.name.to_string(),
            partitions: partitions.max(1),
            internal: path.org.is_internal(),
            config: config.clone(),
        };
        let answer = self.cluster().control().ask(&event, patience::METADATA_ANSWER_TO_CLIENT).await?;
        let created = matches!(answer, Response::Topic { created: true, .. });
        let missing = || Obstacle::TopicUnpublished { topic: path.to_string() };
        let topic = self.alike(path, partitions, &config)?.ok_or_else(missing)?;
        tracing::info!(topic = %path, partitions = topic.partitions, created, "topic created");
        Ok((topic, created))
    }

    /// A topic that is there, if it is as it should be: it has so many partitions (0 is any number), and these settings.
    fn alike(
        &self,
        path: &TopicPath,
        wanted: u32,
        config: &BTreeMap<String, String>,
    ) -> Result<Option<TopicInfo>> {
        let Some(route) = self.cluster().routing().find(path).cloned() else { return Ok(None) };
        let topic = TopicInfo::of(&route.topic);
        if wanted != 0 && wanted != topic.partitions {
            return Err(Error::TopicExists { topic: topic.name, partitions: topic.partitions, wanted });
        }
        if !route.topic.config.has(config) {
            return Err(Error::TopicDiffers { topic: topic.name });
        }
        Ok(Some(topic))
    }

    /// Gives a topic more partitions, so that it has this number; one that has as many stays as it is.
    pub(crate) async fn add_partitions(&self, path: &TopicPath, partitions: u32) -> Result<TopicInfo> {
        check_partitions(partitions)?;
        self.cluster().await_all_metadata(&format!("how many partitions topic {path} has")).await?;
        let unknown = || Error::UnknownTopic { topic: path.to_string() };
        let before = self.topic(path).ok_or_else(unknown)?;
        let request = Request::AddPartitions { topic: before.id, partitions };
        self.cluster().control().ask(&request, patience::METADATA_ANSWER_TO_CLIENT).await?;
        let topic = self.topic(path).ok_or_else(unknown)?;
        tracing::info!(topic = %path, before = before.partitions, partitions = topic.partitions, "partitions added");
        Ok(topic)
    }

    /// A topic with all its settings as they are in force, and where each comes from.
    pub(crate) async fn describe_topic(&self, path: &TopicPath) -> Result<TopicDescription> {
        self.cluster().await_all_metadata(&format!("the settings of topic {path}")).await?;
        self.described(path)
    }

    /// The same by the metadata that this node has.
    fn described(&self, path: &TopicPath) -> Result<TopicDescription> {
        let routing = self.cluster().routing();
        let route = routing.find(path).ok_or_else(|| Error::UnknownTopic { topic: path.to_string() })?;
        let metadata = &routing.metadata;
        let node = (self.partitions().leaders().limits(), self.cluster().config().fsync());
        Ok(TopicDescription {
            topic: TopicInfo::of(&route.topic),
            version: route.topic.config.version,
            settings: route.topic.config.in_force(&metadata.config.entries, metadata.replication, node),
            kept: route
                .topic
                .partitions
                .iter()
                .map(|partition| kept_view(metadata, route, partition))
                .collect(),
        })
    }

    /// Waits until the other nodes that answer know the metadata that this one does, for a second at most.
    pub(crate) async fn await_routed(&self) {
        let cluster = self.cluster();
        let question = Confirm { metadata_version: cluster.metadata_version(), replicas: Vec::new() };
        let others = cluster.answering(&cluster.routing().metadata).alive.into_iter();
        let others = others.filter(|node| node.0 != cluster.node_id());
        // A node that does not answer is not waited for any longer.
        let asked = others.map(|node| {
            cluster.peers().call(node.0, PeerRequest::Confirm(question.clone()), patience::TOPICS_ROUTED)
        });
        drop(join_all(asked).await);
    }

    /// Changes settings of a topic, all of the change or nothing; answers with what is in force then.
    pub(crate) async fn alter_topic(
        &self,
        path: &TopicPath,
        change: ConfigChange,
    ) -> Result<TopicDescription> {
        self.cluster().await_all_metadata(&format!("which topic {path} is")).await?;
        let topic = self.topic(path).ok_or_else(|| Error::UnknownTopic { topic: path.to_string() })?;
        let ConfigChange { set, unset, expect } = change;
        let request = Request::AlterTopic { topic: topic.id, set, unset, expect };
        self.cluster().control().ask(&request, patience::METADATA_ANSWER_TO_CLIENT).await?;
        let described = self.described(path)?;
        tracing::info!(topic = %path, version = described.version, "topic altered");
        Ok(described)
    }

    /// Deletes the records of partitions below an offset, or all that are acknowledged now where there is none; answers with the
    /// first offset that each has then. Either all of the partitions are changed or none. Their space is freed a little later, by
    /// whole segments.
    pub(crate) async fn delete_records(
        &self,
        path: &TopicPath,
        before: BTreeMap<u32, Option<u64>>,
    ) -> Result<BTreeMap<u32, u64>> {
        let unknown = || Error::UnknownTopic { topic: path.to_string() };
        let decided_by = Instant::now() + patience::END_DECIDED;
        let (topic, starts) = loop {
            let news = self.cluster().news();
            match self.starts(path, &before).await {
                // The leader has just ended the segment, or is gone: soon it is decided what follows.
                Err(Error::Unavailable { obstacle: Obstacle::EndUnknown { .. } })
                    if Instant::now() < decided_by =>
                {
                    news.wait(patience::NEWS_LOOK).await;
                }
                looked => break looked?,
            }
        };
        let request = Request::DeleteRecords { topic, starts };
        self.cluster().control().ask(&request, patience::METADATA_ANSWER_TO_CLIENT).await?;
        let routing = self.cluster().routing();
        let route = routing.topic(topic).ok_or_else(unknown)?;
        let start = |index: &u32| Ok((*index, route.partition(*index)?.log_start().0));
        let starts: BTreeMap<u32, u64> = before.keys().map(start).collect::<Result<_>>()?;
        tracing::info!(topic = %path, ?starts, "records deleted");
        Ok(starts)
    }

    /// Where partitions are to begin, of which topic: before the given offsets, or at their ends.
    async fn starts(
        &self,
        path: &TopicPath,
        before: &BTreeMap<u32, Option<u64>>,
    ) -> Result<(TopicId, Vec<PartitionStart>)> {
        self.cluster().await_all_metadata(&format!("where topic {path} begins")).await?;
        let unknown = || Error::UnknownTopic { topic: path.to_string() };
        let route = self.cluster().routing().find(path).cloned().ok_or_else(unknown)?;
        let mut last = Vec::with_capacity(before.len());
        for index in before.keys() {
            let mut partition = route.partition(*index)?.clone();
            partition.segments.drain(..partition.segments.len().saturating_sub(1));
            last.push(partition);
        }
        let sizes = self.reading().sure_sizes(path, &last.iter().collect::<Vec<_>>()).await?;
        let mut starts = Vec::with_capacity(before.len());
        for (partition, wanted) in last.iter().zip(before.values()) {
            let end = partition
                .segments
                .last()
                .map_or(0, |segment| end_of(segment, sizes.get(&segment.descriptor.id)));
            let requested = wanted.unwrap_or(end);
            if requested > end {
                let start = route.partition(partition.index)?.log_start().0;
                return Err(Error::OffsetOutOfRange { requested, start, end });
            }
            starts.push(PartitionStart { partition: partition.index, start: Offset(requested) });
        }
        Ok((route.topic.id, starts))
    }

    /// Drops a topic with all its records; with `only` not another one that has the name.
    pub(crate) async fn delete_topic(&self, path: &TopicPath, only: Option<TopicId>) -> Result<()> {
        self.cluster().await_all_metadata(&format!("which topic {path} is")).await?;
        let meant = self.topic(path).filter(|topic| only.is_none_or(|only| topic.id == only));
        let topic = meant.ok_or_else(|| Error::UnknownTopic { topic: path.to_string() })?;
        self.cluster()
            .control()
            .ask(&Request::DeleteTopic { topic: topic.id }, patience::METADATA_ANSWER_TO_CLIENT)
            .await?;
        tracing::info!(topic = %path, "topic deleted");
        Ok(())
    }

    /// Drops the sealed segments of a partition below a segment's number.
    pub(crate) async fn trim(&self, partition: &PartitionRef, below_number: u64) -> Result<()> {
        self.cluster().await_all_metadata(&format!("which topic {} is", partition.topic)).await?;
        let topic = self.cluster().routing().partition(partition)?.0.topic.id.0;
        let event = Request::Trim {
            topic: TopicId(topic),
            partition: partition.partition,
            below_number,
            first: None,
        };
        self.cluster().control().ask(&event, patience::METADATA_ANSWER_TO_CLIENT).await?;
        tracing::info!(%partition, below_number, "trimmed");
        Ok(())
    }

    /// The topics of an organisation as far as this node knows, by name.
    pub(crate) fn topics(&self, org: &OrgName) -> Vec<TopicInfo> {
        let routing = self.cluster().routing();
        let mut topics: Vec<TopicInfo> =
            routing.topics_of(org).map(|route| TopicInfo::of(&route.topic)).collect();
        topics.sort_by(|left, right| left.name.cmp(&right.name));
        topics
    }

    /// All topics that an organisation has, for a client; with `internal` Walrus's own ones too, behind them. `Unavailable` from
    /// a node that may have missed some.
    pub(crate) async fn list_topics(&self, org: &OrgName, internal: bool) -> Result<Vec<TopicInfo>> {
        self.cluster().await_all_metadata("which topics there are").await?;
        let mut topics = self.topics(org);
        if internal {
            topics.extend(self.topics(&OrgName::internal()));
        }
        Ok(topics)
    }

    /// A topic by its path.
    pub(crate) fn topic(&self, path: &TopicPath) -> Option<TopicInfo> {
        self.cluster().routing().find(path).map(|route| TopicInfo::of(&route.topic))
    }

    /// Every node of the cluster, by id.
    pub(crate) fn nodes(&self) -> Vec<NodeView> {
        let routing = self.cluster().routing();
        let alive = self.cluster().present(&routing.metadata).alive;
        routing.metadata.nodes.keys().map(|id| node_view(*id, &alive)).collect()
    }

    /// All partitions of a topic with their segments; asks the nodes that store them for sizes and watermarks.
    /// `Unavailable` where the leader of an open segment does not answer, or its end is just being decided: a guess at
    /// what can be read would let readers take a part for the whole.
    pub(crate) async fn segments(&self, path: &TopicPath) -> Result<Vec<PartitionView>> {
        let unknown = || Error::UnknownTopic { topic: path.to_string() };
        let route = self
            .cluster()
            .find_confirmed(|| self.cluster().routing().find(path).cloned().ok_or_else(unknown))
            .await?;
        let listed: Vec<&Partition> = route.topic.partitions.iter().map(|partition| &**partition).collect();
        let sizes = self.reading().sure_sizes(path, &listed).await?;
        let routing = self.cluster().routing();
        let alive = self.cluster().present(&routing.metadata).alive;
        let view = |id: NodeId| node_view(id, &alive);
        Ok(route.topic.partitions.iter().map(|partition| partition_view(partition, &sizes, view)).collect())
    }

    /// The answer to `STATE` of the text protocol (partition 0), as it was at the time of the question or later.
    pub(crate) async fn topic_state(&self, path: &TopicPath) -> Result<TopicState> {
        let wanted = PartitionRef { topic: path.clone(), partition: 0 };
        self.cluster().await_all_metadata(&format!("the state of topic {path}")).await?;
        let routing = self.cluster().routing();
        let (_, partition) = routing.partition(&wanted)?;
        let last = partition.segments.last();
        let nobody = || Obstacle::TopicWithoutSegment { topic: path.to_string() };
        let last = last.ok_or_else(nobody)?;
        let sealed = |segment: &Segment| match &segment.state {
            SegmentState::Sealed(value) => Some((segment.descriptor.number, value.end.0 - base_of(segment))),
            _ => None,
        };
        let leader = |segment: &Segment| (segment.descriptor.number, segment.descriptor.leader.node.0);
        Ok(TopicState {
            current_segment: last.descriptor.number,
            leader_node: last.descriptor.leader.node.0,
            last_sealed_entry_offset: base_of(last),
            sealed_segments: partition.segments.iter().filter_map(sealed).collect(),
            segment_leaders: partition.segments.iter().map(leader).collect(),
        })
    }

    /// A producer id that nobody else gets and nobody can guess, and its epoch: 62 random bits. A counter would be handed out
    /// again after a rollback of the metadata, and a batch of its second owner could be taken for one of its first. Who knows
    /// the id can write in its name, so it is in no log and no metric; but whoever reads a topic sees it in the batches.
    pub(crate) fn init_producer(&self) -> (i64, i16) {
        (producer_id(Uuid::new_v4()), 0)
    }

    /// The answer to `METRICS` of the text protocol: what the metadata store published about Raft, and facts of this node.
    pub(crate) fn cluster_metrics(&self) -> Value {
        let routing = self.cluster().routing();
        let mut all = self.cluster().raft_status().lock().clone();
        if !all.is_object() {
            all = json!({});
        }
        all["node_id"] = json!(self.cluster().node_id());
        all["metadata_version"] = json!(routing.metadata.version);
        all["nodes"] = json!(routing.metadata.nodes.len());
        all["topics"] = json!(routing.metadata.topics.len());
        all["leases"] = json!(routing.leases.by_key.len());
        all
    }
}

/// Refuses a number of partitions that no topic may have, before anything is made for each of them.
fn check_partitions(partitions: u32) -> Result<()> {
    if partitions <= PARTITIONS_MAX {
        return Ok(());
    }
    Err(Error::InvalidRequest { problem: format!("{partitions} partitions are more than {PARTITIONS_MAX}") })
}

fn node_view(id: NodeId, alive: &BTreeSet<NodeId>) -> NodeView {
    NodeView { id: id.0, alive: alive.contains(&id) }
}

/// What a partition still has of sealed segments, and why the oldest stays.
fn kept_view(metadata: &Metadata, route: &TopicRoute, partition: &Partition) -> KeptView {
    let sealed = partition.segments.iter().filter(|segment| matches!(segment.state, SegmentState::Sealed(_)));
    KeptView {
        partition: partition.index,
        log_start: partition.log_start().0,
        sealed_segments: sealed.clone().count() as u64,
        sealed_bytes: sealed.filter_map(|segment| segment.contents).map(|contents| contents.bytes).sum(),
        kept: verdict(metadata, &route.topic, partition).kept,
        compacted_to: route.settings.needs_keys.then_some(partition.compaction.cleaned_to.0),
    }
}

fn partition_view(
    partition: &Partition,
    sizes: &HashMap<SegmentId, Size>,
    node: impl Fn(NodeId) -> NodeView,
) -> PartitionView {
    let segment = |segment: &Segment| {
        let descriptor = &segment.descriptor;
        let base_offset = base_of(segment);
        let size = sizes.get(&descriptor.id);
        let reported = segment.contents.map(|contents| contents.bytes);
        let state = match &segment.state {
            SegmentState::Open => SegmentStateView::Open,
            SegmentState::Sealing(_) => SegmentStateView::Sealing,
            SegmentState::Sealed(_) => SegmentStateView::Sealed,
        };
        SegmentView {
            uuid: descriptor.id,
            number: descriptor.number,
            epoch: descriptor.epoch.0,
            base_offset,
            end_offset: end_of(segment, size),
            state,
            leader: node(descriptor.leader.node),
            replicas: storing(segment).into_iter().map(&node).collect(),
            bytes: size.map(|size| size.bytes).or(reported).unwrap_or(0),
            epochs: segment.epochs(),
        }
    };
    let segments: Vec<SegmentView> = partition.segments.iter().map(segment).collect();
    PartitionView {
        partition: partition.index,
        log_start: partition.log_start().0,
        high_watermark: segments.last().map_or(0, |last| last.end_offset),
        segments,
    }
}

/// The nodes that store a segment, or will, those with verified copies first.
fn storing(segment: &Segment) -> Vec<NodeId> {
    let is_verified = |replica: &ReplicaRef| {
        let mut copies = segment.copies.iter();
        copies.any(|copy| copy.replica == *replica && copy.state == CopyState::Verified)
    };
    let mut replicas: Vec<ReplicaRef> = segment.stored_on().collect();
    replicas.sort_by_key(|replica| !is_verified(replica)); // the sort is stable, so the rest stays in order
    replicas.into_iter().map(|replica| replica.node).collect()
}
