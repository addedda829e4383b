//! The table that says which node answers for what: immutable, and made from a published snapshot of the metadata. What did
//! not change is shared with the table before.

use std::collections::HashMap;
use std::sync::Arc;

use walrus_metadata::{Metadata, Partition, Segment, SegmentState, Topic, TopicSettings};
use walrus_model::{LeaderRef, Offset, TopicId};

use crate::bucket::Leases;
use crate::cluster::segment::{label, log_id};
use crate::node::config::Config;
use crate::node::error::{Error, Result};
use crate::node::names::{OrgName, PartitionRef, TopicPath};

/// A table of which node answers for what, as one published snapshot of the metadata says.
pub(crate) struct Routing {
    pub(crate) metadata: Arc<Metadata>,
    topics: HashMap<TopicId, Arc<TopicRoute>>,
    names: HashMap<TopicPath, Arc<TopicRoute>>,
    /// The open segments that this process leads.
    pub(crate) leases: Arc<Leases>,
}

/// A topic, its name as it was checked, and its settings as they act.
pub(crate) struct TopicRoute {
    pub(crate) topic: Arc<Topic>,
    pub(crate) path: TopicPath,
    /// What brokers act by of the topic's settings.
    pub(crate) settings: TopicSettings,
}

impl Routing {
    pub(crate) fn empty() -> Self {
        Self {
            metadata: Arc::default(),
            topics: HashMap::new(),
            names: HashMap::new(),
            leases: Arc::default(),
        }
    }

    /// The table for newer metadata, and the topics that differ.
    pub(crate) fn next(&self, metadata: Arc<Metadata>, config: &Config) -> (Self, Vec<Arc<TopicRoute>>) {
        let mut changed = Vec::new();
        let mut topics = HashMap::with_capacity(metadata.topics.len());
        for (id, topic) in &metadata.topics {
            let old = self.topics.get(id);
            let route = match old {
                Some(old) if Arc::ptr_eq(&old.topic, topic) || old.topic == *topic => old.clone(),
                _ => {
                    let Some(route) = TopicRoute::new(topic) else { continue };
                    let route = Arc::new(route);
                    changed.push(route.clone());
                    route
                }
            };
            topics.insert(*id, route);
        }
        if changed.is_empty() && topics.len() == self.topics.len() {
            let (names, leases) = (self.names.clone(), self.leases.clone());
            return (Self { metadata, topics, names, leases }, changed);
        }
        let names = topics.values().map(|route| (route.path.clone(), route.clone())).collect();
        let leases = self.leases_of(&topics, config);
        (Self { metadata, topics, names, leases }, changed)
    }

    /// The leases of this process; the same pointer as before where nothing changed, so that the bucket's update stays on its
    /// fast path.
    fn leases_of(&self, topics: &HashMap<TopicId, Arc<TopicRoute>>, config: &Config) -> Arc<Leases> {
        let mut leases = Leases::default();
        for route in topics.values() {
            for segment in route.topic.partitions.iter().filter_map(open_segment) {
                if is_led_by(segment.descriptor.leader, config) {
                    let lease = (segment.descriptor.epoch, label(&route.path, &segment.descriptor).into());
                    leases.by_key.insert(log_id(&segment.descriptor), lease);
                }
            }
        }
        if leases == *self.leases { self.leases.clone() } else { Arc::new(leases) }
    }

    pub(crate) fn topic(&self, id: TopicId) -> Option<&Arc<TopicRoute>> {
        self.topics.get(&id)
    }

    pub(crate) fn find(&self, path: &TopicPath) -> Option<&Arc<TopicRoute>> {
        self.names.get(path)
    }

    /// Whether it has the same topics as another table, unchanged.
    pub(crate) fn has_topics_of(&self, other: &Self) -> bool {
        let is_same = |(id, route)| other.topics.get(id).is_some_and(|known| Arc::ptr_eq(known, route));
        self.topics.len() == other.topics.len() && self.topics.iter().all(is_same)
    }

    /// All topics of all organisations, in no order.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &Arc<TopicRoute>> {
        self.topics.values()
    }

    /// The topics of one organisation, in no order.
    pub(crate) fn topics_of<'a>(&'a self, org: &'a OrgName) -> impl Iterator<Item = &'a Arc<TopicRoute>> {
        self.names.iter().filter(move |(path, _)| path.org == *org).map(|(_, route)| route)
    }

    /// The topic and partition that a client names.
    pub(crate) fn partition(&self, wanted: &PartitionRef) -> Result<(&Arc<TopicRoute>, &Partition)> {
        let unknown = || Error::UnknownTopic { topic: wanted.topic.to_string() };
        let route = self.find(&wanted.topic).ok_or_else(unknown)?;
        Ok((route, route.partition(wanted.partition)?))
    }
}

impl TopicRoute {
    /// `None` for a name that cannot be: metadata checks names, so this is damage, and the topic is not served.
    fn new(topic: &Arc<Topic>) -> Option<Self> {
        let Ok(path) = TopicPath::of(topic) else {
            tracing::error!(topic = ?topic.id, "a topic with an impossible name is not served");
            return None;
        };
        Some(Self { topic: topic.clone(), path, settings: topic.config.settings() })
    }

    pub(crate) fn partition(&self, index: u32) -> Result<&Partition> {
        self.topic.partitions.get(index as usize).ok_or_else(|| Error::UnknownPartition {
            topic: self.path.to_string(),
            partition: index,
            partitions: u32::try_from(self.topic.partitions.len()).unwrap_or(u32::MAX),
        })
    }
}

/// The last segment, unless it is sealed.
pub(crate) fn open_segment(partition: &Partition) -> Option<&Segment> {
    partition.segments.last().filter(|segment| !matches!(segment.state, SegmentState::Sealed(_)))
}

/// The segment that holds an offset, or the last one if the offset is behind all of them. `None` below the log's start.
pub(crate) fn segment_at(partition: &Partition, offset: u64) -> Option<&Segment> {
    let behind = partition.segments.partition_point(|segment| base_of(segment) <= offset);
    partition.segments.get(behind.checked_sub(1)?)
}

/// Whether metadata do not know a segment's end yet.
pub(crate) fn is_open(segment: &Segment) -> bool {
    !matches!(segment.state, SegmentState::Sealed(_))
}

/// The first offset of a listed segment, whose base is always known.
pub(crate) fn base_of(segment: &Segment) -> u64 {
    segment.descriptor.base_offset.map_or(0, |Offset(base)| base)
}

/// The first offset that a partition still has.
pub(crate) fn log_start(partition: &Partition) -> u64 {
    partition.segments.first().map_or(0, base_of)
}

/// Whether a leader is this very process.
pub(crate) fn is_led_by(leader: LeaderRef, config: &Config) -> bool {
    (leader.node.0, leader.process) == (config.node_id, config.process)
}
