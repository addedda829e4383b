//! Who carries what: segments led and stored by each node, and segments that lack a replica.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::model::{Metadata, NodeId, ReplicaRef, Segment, SegmentState};

/// Of the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Census {
    /// Of every node that is listed.
    pub nodes: BTreeMap<NodeId, Load>,
    /// Segments with a replica on a node that is not alive, or whose disk is gone.
    pub under_replicated: u64,
}

/// Of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Load {
    /// Segments that it leads: open ones whose leader is its present process.
    pub led: u64,
    /// Segments of which it stores a replica.
    pub held: u64,
}

/// Counts, with the nodes that the caller holds to be alive.
#[must_use]
pub fn census(metadata: &Metadata, alive: &BTreeSet<NodeId>) -> Census {
    let nodes = metadata.nodes.keys().map(|node| (*node, Load::default())).collect();
    let mut census = Census { nodes, under_replicated: 0 };
    let segments = metadata
        .topics
        .values()
        .flat_map(|topic| &topic.partitions)
        .flat_map(|partition| &partition.segments);
    for segment in segments {
        let leader = segment.descriptor.leader;
        let leads = matches!(segment.state, SegmentState::Open)
            && metadata.nodes.get(&leader.node).is_some_and(|node| node.process == leader.process);
        if leads && let Some(load) = census.nodes.get_mut(&leader.node) {
            load.led += 1;
        }
        let mut whole = true;
        for replica in stored_on(segment) {
            let here = metadata.nodes.get(&replica.node).is_some_and(|node| node.disk == replica.disk);
            if here && let Some(load) = census.nodes.get_mut(&replica.node) {
                load.held += 1;
            }
            whole &= here && alive.contains(&replica.node);
        }
        census.under_replicated += u64::from(!whole);
    }
    census
}

/// Where a segment is: on its replica set until it is sealed, then on the disks that have copies.
pub(crate) fn stored_on(segment: &Segment) -> Vec<ReplicaRef> {
    let copies: Vec<ReplicaRef> = segment.copies.iter().map(|copy| copy.replica).collect();
    let sealed = matches!(segment.state, SegmentState::Sealed(_));
    if sealed && !copies.is_empty() { copies } else { segment.descriptor.replicas.clone() }
}
