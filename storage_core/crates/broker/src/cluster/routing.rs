//! The table that says which node answers for what: immutable, and made from a published snapshot of the metadata and from the
//! table before, with which it shares what did not change.

use std::sync::Arc;

use imbl::HashMap;
use walrus_log::LogId;
use walrus_metadata::{Metadata, Partition, Retention, Segment, SegmentState, Topic, TopicSettings};
use walrus_model::{Descriptor, Epoch, LeaderRef, Offset, TopicId};

use crate::bucket::Leases;
use crate::cluster::segment::{label, log_id};
use crate::node::config::Config;
use crate::node::differences::{differences, differing_places};
use crate::node::error::{Error, Result};
use crate::node::names::{OrgName, PartitionRef, TopicPath};

/// A table of which node answers for what, as one published snapshot of the metadata says. A clone shares with the original what
/// neither changes afterwards.
#[derive(Clone)]
pub(crate) struct Routing {
    pub(crate) metadata: Arc<Metadata>,
    topics: HashMap<TopicId, Arc<TopicRoute>>,
    names: HashMap<TopicPath, TopicId>,
    /// The open segments that this process leads.
    pub(crate) leases: Arc<Leases>,
}

/// A topic, its name as it was checked, and its settings as they act.
pub(crate) struct TopicRoute {
    pub(crate) topic: Arc<Topic>,
    pub(crate) path: TopicPath,
    /// What brokers act by of the topic's settings.
    pub(crate) settings: TopicSettings,
    /// The policy by which it lets records go.
    pub(crate) retention: Retention,
}

/// What a table has that the one before had not.
#[derive(Default)]
pub(crate) struct Changes {
    /// The topics that differ, and those that are new.
    pub(crate) changed: Vec<ChangedTopic>,
    /// The topics that are not there any more.
    pub(crate) removed: Vec<TopicId>,
}

/// A topic that is new, or not as it was.
pub(crate) struct ChangedTopic {
    pub(crate) route: Arc<TopicRoute>,
    /// Its partitions that differ, or are new; all of them where its settings differ.
    pub(crate) partitions: Vec<u32>,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
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

    /// The table for newer metadata, and what differs in it. It costs what has changed, not what there is, where the newer
    /// metadata were made from these.
    pub(crate) fn next(&self, metadata: Arc<Metadata>, config: &Config) -> (Self, Changes) {
        let (mut next, mut changes) = (self.clone(), Changes::default());
        next.metadata = metadata;
        let mut leases = Leases::clone(&self.leases);
        for (id, topic) in differences(&self.metadata.topics, &next.metadata.topics) {
            let old = next.topics.remove(id);
            if let Some(old) = &old {
                next.names.remove(&old.path);
            }
            let new = topic.and_then(TopicRoute::new).map(Arc::new);
            let partitions = differing_partitions(old.as_deref(), new.as_deref());
            // Many of these are led as before: they are taken out, and put in again.
            for segment in old.iter().flat_map(|old| old.led(&partitions, config)) {
                leases.by_key.remove(&log_id(segment));
            }
            let Some(route) = new else {
                changes.removed.push(*id);
                continue;
            };
            leases.by_key.extend(route.led(&partitions, config).map(|segment| route.lease(segment)));
            next.topics.insert(*id, route.clone());
            changes.changed.push(ChangedTopic { route, partitions });
        }
        // A name is put in only now: its topic of before may have been listed behind the one that has it now.
        let names = changes.changed.iter().map(|one| (one.route.path.clone(), one.route.topic.id));
        next.names.extend(names);
        if leases != *self.leases {
            next.leases = Arc::new(leases); // else the same pointer, which says at once that nothing has changed
        }
        (next, changes)
    }

    pub(crate) fn topic(&self, id: TopicId) -> Option<&Arc<TopicRoute>> {
        self.topics.get(&id)
    }

    pub(crate) fn find(&self, path: &TopicPath) -> Option<&Arc<TopicRoute>> {
        self.topics.get(self.names.get(path)?)
    }

    /// All topics of all organisations, in no order.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &Arc<TopicRoute>> {
        self.topics.values()
    }

    /// The topics of one organisation, by name.
    pub(crate) fn topics_of(&self, org: &OrgName) -> impl Iterator<Item = &Arc<TopicRoute>> {
        let named = self.metadata.names.get(org.as_str()).into_iter().flat_map(|names| names.values());
        named.filter_map(|id| self.topics.get(id))
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
        let (settings, retention) = (topic.config.settings(), topic.config.retention());
        Some(Self { topic: topic.clone(), path, settings, retention })
    }

    /// The open segments of some of the topic's partitions that this process leads.
    fn led<'a>(&'a self, partitions: &'a [u32], config: &'a Config) -> impl Iterator<Item = &'a Descriptor> {
        let listed = partitions.iter().filter_map(|index| self.topic.partitions.get(*index as usize));
        let open = listed.filter_map(|partition| open_segment(partition)).map(|segment| &segment.descriptor);
        open.filter(|segment| is_led_by(segment.leader, config))
    }

    /// The lease of such a segment.
    fn lease(&self, segment: &Descriptor) -> (LogId, (Epoch, Arc<str>)) {
        (log_id(segment), (segment.epoch, label(&self.path, segment).into()))
    }

    pub(crate) fn partition(&self, index: u32) -> Result<&Partition> {
        self.topic.partitions.get(index as usize).map(Arc::as_ref).ok_or_else(|| Error::UnknownPartition {
            topic: self.path.to_string(),
            partition: index,
            partitions: self.topic.partition_count(),
        })
    }
}

/// The partitions in which two states of a topic differ; all of them where its name or its settings differ.
fn differing_partitions(old: Option<&TopicRoute>, new: Option<&TopicRoute>) -> Vec<u32> {
    if let (Some(old), Some(new)) = (old, new)
        && old.path == new.path
        && old.settings == new.settings
    {
        let places = differing_places(&old.topic.partitions, &new.topic.partitions);
        return places.filter_map(|place| u32::try_from(place).ok()).collect();
    }
    let count = |route: Option<&TopicRoute>| route.map_or(0, |route| route.topic.partition_count());
    (0..count(old).max(count(new))).collect()
}

/// The last segment, unless it is sealed.
pub(crate) fn open_segment(partition: &Partition) -> Option<&Segment> {
    partition.segments.last().filter(|segment| !matches!(segment.state, SegmentState::Sealed(_)))
}

/// The segment that holds an offset, or the last one if the offset is behind all of them. `None` below the log's start.
pub(crate) fn segment_at(partition: &Partition, offset: u64) -> Option<&Segment> {
    if offset < partition.log_start().0 {
        return None;
    }
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

/// Whether a leader is this very process.
pub(crate) fn is_led_by(leader: LeaderRef, config: &Config) -> bool {
    (leader.node.0, leader.process) == (config.node_id, config.process)
}
