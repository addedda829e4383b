//! The value that is decided about a segment: its parts are decided, adopted and published together.

use crate::descriptor::Descriptor;
use crate::number::{Digest, Offset};
use crate::ranges::{self, OffsetRange};

/// The end of a segment and what comes next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Value {
    /// First offset behind the segment.
    pub end: Offset,
    /// Digest of the segment's batches below `end`.
    pub digest: Digest,
    /// The whole descriptor of the next segment, its base being `end` (R6).
    pub successor: Box<Descriptor>,
    /// Offsets that may have been acknowledged and are gone, because a suspect or a gone disk had to be counted (R4).
    pub possible_loss: Vec<OffsetRange>,
    /// Offsets below `end` of which no replica had the batch, when all had answered. In order, apart from each other;
    /// `digest` is over the other batches, and every copy leaves exactly these out.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub lost: Vec<OffsetRange>,
}

impl Value {
    /// The value of a segment that ends there, with every batch below `end` kept and no acknowledged offset in doubt.
    #[must_use]
    pub fn without_loss(end: Offset, digest: Digest, successor: Descriptor) -> Self {
        Self { end, digest, successor: Box::new(successor), possible_loss: Vec::new(), lost: Vec::new() }
    }

    /// Offset of the next batch of the value that is not lost, from an offset on that a copy has reached.
    #[must_use]
    pub fn past_lost(&self, offset: Offset) -> Offset {
        let within = self.lost.iter().find(|range| range.start <= offset && offset < range.end);
        within.map_or(offset, |range| range.end)
    }

    /// Whether a copy with these holes below the end holds everything that the value is about: it leaves out what is
    /// lost, and nothing else.
    #[must_use]
    pub fn leaves_out(&self, holes: &[OffsetRange]) -> bool {
        ranges::below(holes, self.end) == self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{DiskId, NodeId, ProcessId, SegmentId, TopicId};
    use crate::{Epoch, LeaderRef, ReplicaRef};

    fn successor() -> Descriptor {
        Descriptor {
            id: SegmentId::from_u128(2),
            topic: TopicId::from_u128(7),
            partition: 0,
            number: 1,
            base_offset: Some(Offset(5)),
            epoch: Epoch(2),
            leader: LeaderRef { node: NodeId(1), process: ProcessId::from_u128(3) },
            replicas: vec![ReplicaRef { node: NodeId(1), disk: DiskId::from_u128(4) }],
            write_quorum: 1,
            fsync: None,
        }
    }

    #[test]
    fn a_value_without_loss_leaves_out_nothing_and_a_copy_with_a_hole_is_not_whole() {
        let value = Value::without_loss(Offset(5), Digest(9), successor());
        assert_eq!((value.past_lost(Offset(3)), &*value.successor), (Offset(3), &successor()));
        assert!(value.leaves_out(&[]) && value.possible_loss.is_empty());
        assert!(!value.leaves_out(&[OffsetRange { start: Offset(2), end: Offset(3) }]));
    }
}
