//! Topics as somebody wants them, beside what there is: what differs, and what a topic cannot be. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use walrus_model::{FsyncSchedule, NodeId, TopicId};

use crate::rejection::CommandRejection;
use crate::rolling::Limits;
use crate::state::{Metadata, Topic};
use crate::topic_config::{Effect, Source, TopicConfig};

/// A topic as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct WantedTopic {
    /// Its organisation.
    pub org: String,
    /// Its name there.
    pub name: String,
    /// All the settings that it is to have itself, by name.
    pub config: BTreeMap<String, String>,
}

/// Options of the node that answers, the settings of the cluster above them: what is in force where neither a topic nor the cluster
/// sets it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct NodeLimits {
    /// Limit on the records of a segment.
    pub segment_entries_max: u64,
    /// Limit on the bytes of its batches.
    pub segment_bytes_max: u64,
    /// Limit on its age; 0: none.
    pub segment_age_ms_max: u64,
    /// When the node's store syncs.
    pub fsync: String,
}

/// What there is of a topic that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComparedTopic {
    /// Why no topic can have the wanted settings, in words; `None` where one can.
    pub refused: Option<String>,
    /// The topic; `None` where there is none of that name.
    pub found: Option<FoundTopic>,
}

/// A topic beside one that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundTopic {
    /// Its identity.
    pub topic: TopicId,
    /// Number of its partitions.
    pub partitions: u32,
    /// Version of the settings that it has itself; 0: it has never had any.
    pub version: u64,
    /// Copies of its next segments.
    pub factor: u32,
    /// How many of these acknowledge a record.
    pub write_quorum: u32,
    /// Settings that are wanted and that it does not have so, and those that it has and that are not wanted. None where the wanted
    /// ones cannot be.
    pub differences: Vec<SettingDifference>,
    /// The settings that act, or that the topic has itself, as they are in force.
    pub settings: Vec<SettingLine>,
    /// How many of its partitions each node leads, by the node's id.
    pub leaders: BTreeMap<NodeId, u32>,
    /// Bytes of its sealed segments, each counted once, as far as holders of copies have reported them.
    pub sealed_bytes: u64,
}

/// A setting that a topic does not have as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingDifference {
    /// Its name.
    pub name: String,
    /// The wanted value, as it would be stored; `None`: the topic is not to set it.
    pub wanted: Option<String>,
    /// The value that the topic sets; `None`: it sets none.
    pub found: Option<String>,
}

/// A setting in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingLine {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Where that comes from: `topic`, `cluster`, `node` or `built_in`.
    pub source: &'static str,
}

/// Compares topics with what there is of them, in their order.
#[must_use]
pub fn compare_topics(metadata: &Metadata, node: &NodeLimits, wanted: &[WantedTopic]) -> Vec<ComparedTopic> {
    wanted.iter().map(|topic| compare(metadata, node, topic)).collect()
}

fn compare(metadata: &Metadata, node: &NodeLimits, wanted: &WantedTopic) -> ComparedTopic {
    let config = TopicConfig::new(&wanted.config, 0);
    let id = metadata.names.get(&wanted.org).and_then(|names| names.get(&wanted.name));
    let topic = id.and_then(|id| metadata.topics.get(id));
    let found = topic.map(|topic| {
        let differences = config.as_ref().map(|config| differences(config, &topic.config));
        found(metadata, node, topic, differences.unwrap_or_default())
    });
    ComparedTopic { refused: config.err().map(|wrong| CommandRejection::from(wrong).to_string()), found }
}

fn differences(wanted: &TopicConfig, found: &TopicConfig) -> Vec<SettingDifference> {
    let names: BTreeSet<&String> = wanted.values.keys().chain(found.values.keys()).collect();
    let differing = names.into_iter().filter(|name| wanted.values.get(*name) != found.values.get(*name));
    differing
        .map(|name| SettingDifference {
            name: name.clone(),
            wanted: wanted.values.get(name).cloned(),
            found: found.values.get(name).cloned(),
        })
        .collect()
}

fn found(
    metadata: &Metadata,
    node: &NodeLimits,
    topic: &Topic,
    differences: Vec<SettingDifference>,
) -> FoundTopic {
    let replication = topic.config.replication(metadata.replication);
    let mut leaders = BTreeMap::new();
    for leader in topic.partitions.iter().filter_map(|partition| partition.leader()) {
        *leaders.entry(leader).or_default() += 1;
    }
    let segments = topic.partitions.iter().flat_map(|partition| &partition.segments);
    FoundTopic {
        topic: topic.id,
        partitions: topic.partition_count(),
        version: topic.config.version,
        factor: replication.factor,
        write_quorum: replication.write_quorum,
        differences,
        settings: settings(metadata, node, topic),
        leaders,
        sealed_bytes: segments.filter_map(|segment| segment.contents).map(|contents| contents.bytes).sum(),
    }
}

fn settings(metadata: &Metadata, node: &NodeLimits, topic: &Topic) -> Vec<SettingLine> {
    let in_force = topic.config.in_force(&metadata.config.entries, metadata.replication, node.in_force());
    let told = in_force
        .into_iter()
        .filter(|setting| setting.definition.effect != Effect::Never || setting.source == Source::Topic);
    told.map(|setting| SettingLine {
        name: setting.definition.name,
        value: setting.value,
        source: match setting.source {
            Source::Topic => "topic",
            Source::Cluster => "cluster",
            Source::Node => "node",
            Source::BuiltIn => "built_in",
        },
    })
    .collect()
}

impl NodeLimits {
    fn in_force(&self) -> (Limits, FsyncSchedule) {
        let limits = Limits {
            entries_max: self.segment_entries_max,
            bytes_max: self.segment_bytes_max,
            age_max: (self.segment_age_ms_max > 0).then(|| Duration::from_millis(self.segment_age_ms_max)),
            age_min: Duration::ZERO, // no setting of a topic shows it
        };
        (limits, self.fsync.parse().unwrap_or_default()) // the node checked its option at its start
    }
}
