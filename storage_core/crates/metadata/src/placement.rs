//! Who leads the next segment: round-robin among healthy nodes. Pure.

use uuid::Uuid;

use crate::model::{Descriptor, Metadata, NodeId, TopicId};

/// Descriptor of the first segment of a partition of a new topic; `None` when no node is healthy at `now_ms`.
pub fn first_descriptor(_metadata: &Metadata, _topic: TopicId, _partition: u32, _uuid: Uuid, _now_ms: u64) -> Option<Descriptor> {
    None
}

/// Descriptor of the segment that follows the partition's last one: the next healthy node after the present leader in
/// order of ids, leaving out `avoid`. `internal` topics stay with their leader while it is healthy.
pub fn successor(
    _metadata: &Metadata,
    _topic: TopicId,
    _partition: u32,
    _uuid: Uuid,
    _avoid: &[NodeId],
    _now_ms: u64,
) -> Option<Descriptor> {
    None
}
