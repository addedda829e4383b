//! Topics: making, dropping and describing them, and the ids of producers. What changes metadata is asked of the host.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use serde_json::{Value, json};
use uuid::Uuid;
use walrus_metadata::{Node, Partition, Segment, SegmentState};
use walrus_model::{Descriptor, NodeId, SegmentId, TopicId};

use crate::broker::Broker;
use crate::cluster::control::Event;
use crate::cluster::routing::{DEFAULT_ORG, base_of, log_start};
use crate::cluster::segment::uuid_bytes;
use crate::node::error::{Error, Result};
use crate::node::names::{PartitionRef, TopicName};
use crate::node::proto::peer::SegmentInfoAnswer;
use crate::peer::Request;
use crate::topics::view::{NodeView, PartitionView, SegmentStateView, SegmentView, TopicInfo, TopicState};

/// For one answer of the metadata store.
const CONTROL_PATIENCE: Duration = Duration::from_secs(10);
/// For a look at another node's copies.
const INFO_PATIENCE: Duration = Duration::from_secs(2);
/// Most partitions of a topic.
const PARTITIONS_MAX: u32 = 10_000;

impl Broker {
    /// Creates a topic, or answers the one that is there (`false`) if it has as many partitions (0 = any).
    pub async fn create_topic(
        &self,
        name: &str,
        partitions: u32,
        internal: bool,
    ) -> Result<(TopicInfo, bool)> {
        let name = TopicName::parse(name)?;
        if partitions > PARTITIONS_MAX {
            let problem = format!("{partitions} partitions are more than {PARTITIONS_MAX}");
            return Err(Error::InvalidRequest { problem });
        }
        if self.topic(name.as_str()).is_some() {
            // It may have been dropped elsewhere.
            self.cluster().knows_all(&format!("whether there is a topic {name}")).await?;
            if let Some(topic) = self.topic(name.as_str()) {
                return checked(topic, partitions).map(|topic| (topic, false));
            }
        }
        let event = Event::CreateTopic {
            org: DEFAULT_ORG.to_owned(),
            name: name.to_string(),
            partitions: partitions.max(1),
            internal,
        };
        let answer = self.cluster().control().ask(&event, CONTROL_PATIENCE).await?;
        let created = answer.get("created").and_then(Value::as_bool).unwrap_or(false);
        let missing = || Error::Unavailable { what: format!("topic {name} is not published yet") };
        let topic = self.topic(name.as_str()).ok_or_else(missing)?;
        tracing::info!(topic = name.as_str(), partitions = topic.partitions, created, "topic created");
        checked(topic, partitions).map(|topic| (topic, created))
    }

    /// Drops a topic with all its records. Refuses internal topics.
    pub async fn delete_topic(&self, name: &str) -> Result<()> {
        self.cluster().knows_all(&format!("which topic {name} is")).await?;
        let topic = self.topic(name).ok_or_else(|| Error::UnknownTopic { topic: name.to_owned() })?;
        if topic.internal {
            let problem = "it belongs to Walrus itself".to_owned();
            return Err(Error::InvalidTopic { topic: topic.name, problem });
        }
        self.cluster().control().ask(&Event::DeleteTopic { topic: topic.id }, CONTROL_PATIENCE).await?;
        tracing::info!(topic = name, "topic deleted");
        Ok(())
    }

    /// Drops the sealed segments of a partition below a segment's number.
    pub async fn trim(&self, partition: &PartitionRef, below_number: u64) -> Result<()> {
        self.cluster().knows_all(&format!("which topic {} is", partition.topic)).await?;
        let topic = self.cluster().routing().partition(partition)?.0.topic.id.0;
        let event =
            Event::Trim { topic: TopicId(topic), partition: partition.partition, below_number, first: None };
        self.cluster().control().ask(&event, CONTROL_PATIENCE).await?;
        tracing::info!(%partition, below_number, "trimmed");
        Ok(())
    }

    /// Topics by name; `internal` ones on demand.
    #[must_use]
    pub fn topics(&self, internal: bool) -> Vec<TopicInfo> {
        let routing = self.cluster().routing();
        let wanted = routing.routes().filter(|route| internal || !route.topic.internal);
        let mut topics: Vec<TopicInfo> = wanted.map(|route| route.info()).collect();
        topics.sort_by(|left, right| left.name.cmp(&right.name));
        topics
    }

    /// The same for a client, whom they are all that there are: `Unavailable` from a node that may have missed some.
    pub async fn list_topics(&self, internal: bool) -> Result<Vec<TopicInfo>> {
        self.cluster().knows_all("which topics there are").await?;
        Ok(self.topics(internal))
    }

    /// A topic by name.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<TopicInfo> {
        let name = TopicName::parse(name).ok()?;
        self.cluster().routing().find(&name).map(|route| route.info())
    }

    /// Every node of the cluster, by id.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeView> {
        let routing = self.cluster().routing();
        let alive = self.cluster().present(&routing.metadata).alive;
        routing.metadata.nodes.values().map(|node| node_view(node.id, Some(node), &alive)).collect()
    }

    /// All partitions of a topic with their segments; asks the nodes that store them for sizes and watermarks.
    /// `Unavailable` where the leader of an open segment does not answer, or its end is just being decided: a guess at
    /// what can be read would let readers take a part for the whole.
    pub async fn segments(&self, topic: &str) -> Result<Vec<PartitionView>> {
        let name = TopicName::parse(topic)?;
        let unknown = || Error::UnknownTopic { topic: name.to_string() };
        let route = self
            .cluster()
            .confirmed(|| self.cluster().routing().find(&name).cloned().ok_or_else(unknown))
            .await?;
        let sizes = self.sure_sizes(topic, &route.topic.partitions).await?;
        let routing = self.cluster().routing();
        let alive = self.cluster().present(&routing.metadata).alive;
        let view = |id: NodeId| node_view(id, routing.metadata.nodes.get(&id), &alive);
        Ok(route.topic.partitions.iter().map(|partition| partition_view(partition, &sizes, view)).collect())
    }

    /// `STATE` of the text protocol (partition 0), of when it was asked or later.
    pub async fn topic_state(&self, topic: &str) -> Result<TopicState> {
        let wanted = PartitionRef::parse(topic, 0)?;
        self.cluster().knows_all(&format!("the state of topic {topic}")).await?;
        let routing = self.cluster().routing();
        let (_, partition) = routing.partition(&wanted)?;
        let last = partition.segments.last();
        let nobody = || Error::Unavailable { what: format!("topic {topic} has no segment") };
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
    #[must_use]
    pub fn init_producer(&self) -> (i64, i16) {
        (producer_id(Uuid::new_v4()), 0)
    }

    /// `METRICS` of the text protocol: what the metadata store published about Raft, and ours.
    #[must_use]
    pub fn cluster_metrics(&self) -> Value {
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

    /// The end of a partition, or of one of its segments.
    pub(crate) async fn end_of(&self, place: &PartitionRef, segment: Option<SegmentId>) -> Result<u64> {
        let mut partition = self.cluster().routing().partition(place)?.1.clone();
        let last = partition.segments.last().map(|last| last.descriptor.id);
        partition.segments.retain(|listed| Some(listed.descriptor.id) == segment.or(last));
        let sizes = self.sure_sizes(place.topic.as_str(), std::slice::from_ref(&partition)).await?;
        let none = || Error::Unavailable { what: format!("{place} has no segment") };
        let listed = partition.segments.first().ok_or_else(none)?;
        Ok(end_of(listed, sizes.get(&listed.descriptor.id)))
    }

    /// [`Broker::sizes`], or `Unavailable` where somebody does not know how far an open segment goes.
    async fn sure_sizes(&self, topic: &str, partitions: &[Partition]) -> Result<HashMap<SegmentId, Size>> {
        let (sizes, silent) = self.sizes(partitions).await;
        let mut segments = partitions.iter().flat_map(|partition| &partition.segments);
        let unknown = segments.find_map(|segment| {
            let doubt = doubt_of(segment, &sizes, &silent)?;
            Some((segment.descriptor.id, doubt))
        });
        match unknown {
            Some((segment, doubt)) => Err(Error::Unavailable {
                what: format!("how far segment {segment} of {topic} goes is not known: {doubt}"),
            }),
            None => Ok(sizes),
        }
    }

    /// Bytes and high watermarks of all segments of some partitions, from whoever stores them, and who of them did not
    /// answer.
    async fn sizes(&self, partitions: &[Partition]) -> (HashMap<SegmentId, Size>, HashSet<u32>) {
        let mut by_node: BTreeMap<u32, Vec<Bytes>> = BTreeMap::new();
        for segment in partitions.iter().flat_map(|partition| &partition.segments) {
            // The leader's copy answers for an open segment, any for a sealed one.
            let node = segment.descriptor.leader.node.0;
            by_node.entry(node).or_default().push(uuid_bytes(segment.descriptor.id.0));
        }
        let asked = by_node.into_iter().map(|(node, segments)| async move {
            let info = self.copies().segment_info(segments, false);
            if node == self.cluster().node_id() {
                return (node, Some(self.copies().segment_facts(&info).await));
            }
            let answer = self.cluster().peers().call(node, Request::SegmentInfo(info), INFO_PATIENCE).await;
            (node, answer.ok().and_then(|payload| SegmentInfoAnswer::decode(payload).ok()))
        });
        let answers = futures_util::future::join_all(asked).await;
        let silent = answers.iter().filter(|(_, answer)| answer.is_none()).map(|(node, _)| *node).collect();
        let facts = answers.into_iter().filter_map(|(_, answer)| answer).flat_map(|answer| answer.segments);
        let size = |facts: crate::node::proto::peer::SegmentFacts| {
            let uuid = SegmentId::from_slice(&facts.segment)?;
            Some((
                uuid,
                // One that is open here and sealed there goes on in a segment that is not listed here yet.
                Size {
                    end_offset: facts.end_offset,
                    bytes: facts.bytes,
                    doubt: match (facts.sealed, facts.unsettled) {
                        (true, _) => Some(
                            "it is sealed there, and goes on in one that is not listed here yet".to_owned(),
                        ),
                        (false, true) => Some(facts.doubt),
                        (false, false) => None,
                    },
                },
            ))
        };
        (facts.filter_map(size).collect(), silent)
    }
}

struct Size {
    end_offset: u64,
    bytes: u64,
    /// Why the end of an open segment is not sure.
    doubt: Option<String>,
}

/// Why nobody can say how far a segment goes.
fn doubt_of(segment: &Segment, sizes: &HashMap<SegmentId, Size>, silent: &HashSet<u32>) -> Option<String> {
    let Descriptor { id, leader, .. } = &segment.descriptor;
    let node = leader.node.0;
    match &segment.state {
        SegmentState::Sealed(_) => None,
        SegmentState::Sealing(_) => Some("its end is being decided".to_owned()),
        SegmentState::Open if silent.contains(&node) => {
            Some(format!("its leader, node {node}, does not answer"))
        }
        SegmentState::Open => match sizes.get(id) {
            None => Some(format!("its leader, node {node}, has not heard of it yet")),
            Some(size) => {
                size.doubt.as_ref().map(|doubt| format!("its leader, node {node}, says that {doubt}"))
            }
        },
    }
}

/// First offset behind a segment; its leader says that of an open one.
fn end_of(segment: &Segment, size: Option<&Size>) -> u64 {
    match &segment.state {
        SegmentState::Sealed(value) => value.end.0,
        _ => size.map_or(0, |size| size.end_offset).max(base_of(segment)),
    }
}

fn checked(topic: TopicInfo, wanted: u32) -> Result<TopicInfo> {
    if wanted != 0 && wanted != topic.partitions {
        return Err(Error::TopicExists { topic: topic.name, partitions: topic.partitions, wanted });
    }
    Ok(topic)
}

fn node_view(id: NodeId, node: Option<&Node>, alive: &BTreeSet<NodeId>) -> NodeView {
    NodeView {
        id: id.0,
        grpc_address: node.map(|node| node.grpc_address.clone()).unwrap_or_default(),
        alive: alive.contains(&id),
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
            replicas: descriptor.replicas.iter().map(|replica| node(replica.node)).collect(),
            bytes: size.map_or(0, |size| size.bytes),
        }
    };
    let segments: Vec<SegmentView> = partition.segments.iter().map(segment).collect();
    PartitionView {
        partition: partition.index,
        log_start: log_start(partition),
        high_watermark: segments.last().map_or(0, |last| last.end_offset),
        segments,
    }
}

/// A producer's id: the 62 bits of a random uuid that say nothing about its version; bit 62 is for transactions.
fn producer_id(random: Uuid) -> i64 {
    const BITS: u64 = (1 << 62) - 1;
    let (_, low) = random.as_u64_pair();
    (low & BITS).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn producer_ids_are_62_random_bits() {
        let ids: Vec<i64> = (0..1_000).map(|_| producer_id(Uuid::new_v4())).collect();
        let (any, all) = ids.iter().fold((0, -1), |(any, all), id| (any | id, all & id));
        assert_eq!((any, all), ((1 << 62) - 1, 0), "each of the bits is set in some and clear in others");
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
    }
}
