//! How far a group has come in each partition.

use walrus_model::TopicId;

/// A partition of a topic. The topic is its uuid: one that is deleted and made again has no committed offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The topic.
    pub topic: TopicId,
    /// Number of the partition in it.
    pub partition: u32,
}

/// A committed offset, as it was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The next offset to read.
    pub offset: i64,
    /// Epoch of the leader that the record before it was read under; -1 if the client has not said it.
    pub leader_epoch: i32,
    /// Whatever the client wants to find again.
    pub metadata: String,
}
