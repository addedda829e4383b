//! Names of topics and partitions, checked once at the edge, and what listeners show of topics.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use walrus_model::{SegmentId, TopicId};

use crate::error::{Error, Result};

/// Longest name of a topic, in bytes (Kafka's limit).
const NAME_BYTES_MAX: usize = 249;

/// A name of Kafka's alphabet: 1..=249 of `[A-Za-z0-9._-]`, neither `.` nor `..`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

impl TopicName {
    /// Checks the name.
    pub fn parse(name: &str) -> Result<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let problem = if name.is_empty() {
            "it is empty"
        } else if name.len() > NAME_BYTES_MAX {
            "it is longer than 249 bytes"
        } else if !name.bytes().all(allowed) {
            "only letters, digits, '.', '_' and '-' are allowed"
        } else if name == "." || name == ".." {
            "'.' and '..' are reserved"
        } else {
            return Ok(Self(name.into()));
        };
        let shown: String = name.chars().take(64).collect();
        Err(Error::InvalidTopic { topic: shown, problem: problem.to_owned() })
    }

    /// Checks the name of a topic that a client creates, appends to or reads: what begins with `__` is Walrus's own.
    pub fn of_client(name: &str) -> Result<Self> {
        if name.starts_with("__") {
            let problem = "names that begin with '__' are for topics of Walrus itself".to_owned();
            return Err(Error::InvalidTopic { topic: name.chars().take(64).collect(), problem });
        }
        Self::parse(name)
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A partition as clients name it, in the organisation `default`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionRef {
    /// Topic.
    pub topic: TopicName,
    /// Place in the topic, from 0.
    pub partition: u32,
}

impl PartitionRef {
    /// Checks the topic's name; whether the partition exists is for the router to say.
    pub fn parse(topic: &str, partition: u32) -> Result<Self> {
        Ok(Self { topic: TopicName::parse(topic)?, partition })
    }
}

impl fmt::Display for PartitionRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.topic, self.partition)
    }
}

/// A topic of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicInfo {
    /// Identity.
    pub id: TopicId,
    /// Name.
    pub name: String,
    /// How many partitions.
    pub partitions: u32,
    /// Walrus's own.
    pub internal: bool,
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
    /// By base offset.
    pub segments: Vec<SegmentView>,
}

/// A segment as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentView {
    /// Identity.
    pub uuid: SegmentId,
    /// Place in the partition.
    pub number: u64,
    /// Epoch of its leader.
    pub epoch: u32,
    /// First offset.
    pub base_offset: u64,
    /// The end of a sealed segment; the high watermark of an open one.
    pub end_offset: u64,
    /// State.
    pub state: SegmentStateView,
    /// Who ordered its appends.
    pub leader: NodeView,
    /// Who stores it.
    pub replicas: Vec<NodeView>,
    /// Bytes of its batches; 0 where no replica could be asked.
    pub bytes: u64,
}

/// State of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentStateView {
    /// Takes appends.
    Open,
    /// Its end is being decided.
    Sealing,
    /// Never changes again.
    Sealed,
}

/// A node as clients reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Small integer.
    pub id: u32,
    /// `host:port` of gRPC; empty where the node is not listed any more.
    pub grpc_address: String,
    /// Whether its lease had not lapsed.
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
