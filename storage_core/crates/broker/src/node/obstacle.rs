//! The causes for which something cannot be done now. Between brokers, and to clients, an obstacle goes as its text.

use serde::Serializer;
use walrus_metadata::RequestError;
use walrus_model::{OffsetRange, SegmentId};
use walrus_replica::{Doubt, Reply};

/// What stands in the way of something that can be done later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the text beside each obstacle says what it is, and what its fields are")]
pub enum Obstacle {
    /// Another node met it, and sent its text.
    #[error("{words}")]
    Told { words: String },

    #[error("this node is stopping")]
    Stopping,
    #[error("this node holds {bytes_max} bytes of {purpose}, as much as it may")]
    BudgetSpent { purpose: &'static str, bytes_max: usize },
    #[error("the disk of node {node} stands still")]
    DiskStill { node: u32 },

    #[error("unknown addr for node {node}")]
    AddressUnknown { node: u32 },
    #[error("node {node} at {address} was not reachable just now")]
    RetriedTooSoon { node: u32, address: String },
    #[error("node {node} at {address} is not reachable: {reason}")]
    Unreachable { node: u32, address: String, reason: String },
    #[error("node {node} does not take connections")]
    Unconnected { node: u32 },
    #[error("node {node} does not answer")]
    Silent { node: u32 },
    #[error("node {node}: {reason}")]
    NotSent { node: u32, reason: String },
    #[error("{reason}")]
    ConnectionBroken { reason: String },

    #[error("{there} nodes are there for copies of what a compaction wrote, {needed} are needed")]
    TooFewForCopies { there: usize, needed: u32 },

    #[error("{error}")]
    RequestFailed { error: Box<RequestError> },
    #[error("{doubted}: {doubt}")]
    MetadataDoubted { doubted: String, doubt: Doubt },
    #[error("{doubted}: {error}")]
    MetadataUnasked { doubted: String, error: Box<RequestError> },
    #[error(
        "node {node} knows of no segment {number} of {partition}: its metadata are at version {here}, {version} was named"
    )]
    SegmentNumberUnlisted { node: u32, partition: String, number: u64, here: u64, version: u64 },
    #[error(
        "node {node} knows of no segment {segment} and no epoch {epoch} of it: its metadata are at version {here}, \
         {version} was named"
    )]
    EpochUnlisted { node: u32, segment: SegmentId, epoch: u32, here: u64, version: u64 },
    #[error("unknown segment {segment}: list the segments again")]
    SegmentUnheardOf { segment: String },
    #[error("topic {topic} is not published yet")]
    TopicUnpublished { topic: String },
    #[error("topic {topic} has no segment")]
    TopicWithoutSegment { topic: String },
    #[error("{partition} has no segment")]
    WithoutSegment { partition: String },
    #[error("{partition} has no open segment")]
    WithoutOpenSegment { partition: String },

    #[error("{partition} has no leader: {reason}")]
    WithoutLeader { partition: String, reason: String },
    #[error("too many appends wait for their leaders")]
    QueueFull,
    #[error("the connection to the leader was lost")]
    LeaderLost,
    #[error("its segment is being rolled")]
    Rolling,
    #[error("{label} is ending")]
    Ending { label: String },
    #[error("{label}: it is led here and not stored here")]
    LedNotStored { label: String },
    #[error("{label}: it was written before, and a leader never resumes")]
    WrittenBefore { label: String },
    #[error("the own copy takes no appends: {answer:?}")]
    OwnCopyUnwilling { answer: Option<Box<Reply>> },
    #[error("too much of {label} waits for its replicas")]
    ReplicasBehind { label: String },
    #[error("{label}: too few replicas have its last batches")]
    LastBatchesUnacknowledged { label: String },
    #[error("the end of {label} is not known yet")]
    LeaderEndUnknown { label: String },
    #[error("{label} is allotted no successor")]
    WithoutSuccessor { label: String },
    #[error("segment {segment} needs replicas on nodes {nodes:?}, which do not answer")]
    CutOff { segment: SegmentId, nodes: Vec<u32> },
    #[error("too few replicas of segment {segment} answer")]
    ReplicasSilent { segment: SegmentId },
    #[error("the replica has nothing to say")]
    NothingToSay,

    #[error("what follows in segment {segment} is not known yet")]
    WhatFollowsUnknown { segment: SegmentId },
    #[error("where segment {segment} ends is not decided yet")]
    EndUndecided { segment: SegmentId },
    #[error("how far segment {segment} goes is not sure: {doubt}")]
    EndUnsure { segment: SegmentId, doubt: Doubt },
    #[error("how far segment {segment} of {topic} goes is not known: {doubt}")]
    EndUnknown { segment: SegmentId, topic: String, doubt: String },
    #[error("offset {offset} is before segment {segment}, in one that it follows")]
    BeforeSegment { offset: u64, segment: SegmentId },
    #[error("offset {offset} is behind segment {segment}, in one that follows it")]
    BehindSegment { offset: u64, segment: SegmentId },

    #[error("segment {segment} has no replica")]
    WithoutReplica { segment: SegmentId },
    #[error("node {node} does not have it all yet")]
    CopyNotWhole { node: u32 },
    #[error("node {node} cannot search by time yet: upgrade it")]
    SearchUnknown { node: u32 },
    #[error("the leader's copy is not mended yet: {damage}")]
    LeaderNotMended { damage: String },
    #[error("of segment {segment} all copies that answer are damaged there")]
    AnsweringCopiesDamaged { segment: SegmentId },
    #[error("the copy of segment {segment} lacks {holes:?}, which rotted")]
    Rotted { segment: SegmentId, holes: Vec<OffsetRange> },
    #[error("no other copy of segment {segment} that answers has it")]
    HoleNowhereFilled { segment: SegmentId },
    #[error("node {node}'s batches do not fit there")]
    BatchesUnfit { node: u32 },
    #[error("nobody else has segment {segment}")]
    NobodyElseHas { segment: SegmentId },
    #[error("nobody has all of segment {segment}")]
    NobodyHasAll { segment: SegmentId },
    #[error("segment {segment} was not prepared and has no sealed one before it")]
    Unprepared { segment: SegmentId },
    #[error("no node with a sealed copy of segment {segment} answers for its producers")]
    ProducersUnknown { segment: SegmentId },

    #[error("{log} takes no records of cursors")]
    CursorsUnrecorded { log: String },
    #[error("the owner has not heard of {topic} yet")]
    OwnerUninformed { topic: String },
    #[error("node {node} takes {log} over, which is not done yet")]
    TakingOver { node: u32, log: String },
}

impl Obstacle {
    /// Writes the text, as the field of an error.
    pub(crate) fn serialize_text<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
