//! Views of topics, as the listeners show them to clients.

use std::collections::BTreeMap;

use serde::Serialize;
use walrus_metadata::{EpochStart, Kept, SettingInForce, Topic};
use walrus_model::{SegmentId, TopicId};

/// A topic of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicInfo {
    /// Id, which no other topic ever has.
    pub id: TopicId,
    /// Name by which clients know it.
    pub name: String,
    /// Number of partitions.
    pub partitions: u32,
    /// Whether it is one of Walrus's own.
    pub internal: bool,
}

impl TopicInfo {
    pub(crate) fn of(topic: &Topic) -> Self {
        Self {
            id: topic.id,
            name: topic.name.clone(),
            partitions: topic.partition_count(),
            internal: topic.internal,
        }
    }
}

/// A topic with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDescription {
    /// The topic.
    pub topic: TopicInfo,
    /// Version of the settings that it has itself; 0 as long as none was set.
    pub version: u64,
    /// All settings as they are in force, by name.
    pub settings: Vec<SettingInForce>,
    /// What its partitions still have, in their order.
    pub kept: Vec<KeptView>,
}

/// The sealed segments that a partition still has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptView {
    /// Place in the topic.
    pub partition: u32,
    /// First offset that can be read.
    pub log_start: u64,
    /// Their number.
    pub sealed_segments: u64,
    /// Bytes of their batches, as far as holders of copies have reported them.
    pub sealed_bytes: u64,
    /// Why the oldest segment stays.
    pub kept: Kept,
    /// Compactions have looked at all records below; `None` where the topic is not compacted.
    pub compacted_to: Option<u64>,
}

/// A partition with all its segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// Place in the topic.
    pub partition: u32,
    /// First offset still there.
    pub log_start: u64,
    /// First offset not readable yet.
    pub high_watermark: u64,
    /// The segments that are there, by base offset.
    pub segments: Vec<SegmentView>,
}

/// A segment as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentView {
    /// Id, which no other segment ever has.
    pub uuid: SegmentId,
    /// Place in the partition.
    pub number: u64,
    /// Epoch of its leader.
    pub epoch: u32,
    /// First offset.
    pub base_offset: u64,
    /// The end of a sealed segment; the high watermark of an open one.
    pub end_offset: u64,
    /// Whether it takes appends, or its end is decided.
    pub state: SegmentStateView,
    /// The node that orders its appends, or did.
    pub leader: NodeView,
    /// The nodes that store it, or will: its replicas until it is sealed, then those with copies, verified ones first.
    pub replicas: Vec<NodeView>,
    /// Bytes of its batches; 0 where no replica could be asked.
    pub bytes: u64,
    /// Under which epochs its offsets were written, in order.
    pub epochs: Vec<EpochStart>,
}

/// State of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentStateView {
    /// It takes appends.
    Open,
    /// Its end is being decided.
    Sealing,
    /// It never changes again.
    Sealed,
}

/// A node, by its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Id of the node.
    pub id: u32,
    /// Whether its lease had not lapsed at the time of the answer.
    pub alive: bool,
}

/// The answer of the text protocol's `STATE`, with the original's keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicState {
    /// Number of the open segment.
    pub current_segment: u64,
    /// Node that leads it.
    pub leader_node: u32,
    /// Entries in sealed segments, from the topic's start.
    pub last_sealed_entry_offset: u64,
    /// Entries by sealed segment.
    pub sealed_segments: BTreeMap<u64, u64>,
    /// Leader by segment, the open one included.
    pub segment_leaders: BTreeMap<u64, u32>,
}
