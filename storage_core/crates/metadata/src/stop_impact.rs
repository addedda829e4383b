//! What the cluster would lack if a node stopped now. Pure.

use std::collections::BTreeSet;

use serde::Serialize;
use walrus_model::NodeId;

use crate::segment::{Segment, SegmentState};
use crate::state::Metadata;

/// Limit on the topics that are named, of all that would be harmed.
const EXAMPLES_MAX: usize = 10;

/// The harm that a node does to the cluster if it stops now; [`stop_impact`] finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StopImpact {
    /// Open segments that could take no append, and could not be sealed either, before it is back.
    pub open_without_quorum: u64,
    /// Sealed segments of which nobody else alive has a verified copy: they could not be read.
    pub sealed_without_copy: u64,
    /// Open segments that it leads: each moves to another leader, or waits.
    pub led: u64,
    /// Some topics whose segments are counted in the first two fields, `org/name`, in order.
    pub topics: BTreeSet<String>,
}

/// Tells what the cluster would lack without `node`. The nodes of `alive` are the ones that serve now; those of `current`
/// have all that was acknowledged in their replicas of open segments, and others could not replace it.
#[must_use]
pub fn stop_impact(
    metadata: &Metadata,
    node: NodeId,
    alive: &BTreeSet<NodeId>,
    current: &BTreeSet<NodeId>,
) -> StopImpact {
    let mut impact = StopImpact::default();
    for topic in metadata.topics.values() {
        for segment in topic.partitions.iter().flat_map(|partition| &partition.segments) {
            if !segment.stored_on().any(|replica| replica.node == node) {
                continue;
            }
            let sealed = matches!(segment.state, SegmentState::Sealed(_));
            let left = others_of(metadata, segment, node, if sealed { alive } else { current });
            let harmed = if sealed { left == 0 } else { left < segment.quorum() };
            impact.sealed_without_copy += u64::from(harmed && sealed);
            impact.open_without_quorum += u64::from(harmed && !sealed);
            impact.led += u64::from(!sealed && segment.descriptor.leader.node == node);
            if harmed && impact.topics.len() < EXAMPLES_MAX {
                impact.topics.insert(format!("{}/{}", topic.org, topic.name));
            }
        }
    }
    impact
}

fn others_of(metadata: &Metadata, segment: &Segment, without: NodeId, nodes: &BTreeSet<NodeId>) -> usize {
    let left = segment.readable_on().filter(|replica| {
        metadata.is_here(*replica) && replica.node != without && nodes.contains(&replica.node)
    });
    left.count()
}
