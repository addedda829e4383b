//! The census: segments led and stored by each node, and segments that lack a copy.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use walrus_model::{NodeId, Replication};

use crate::segment::{CopyState, SegmentState};
use crate::state::Metadata;

/// The state of the cluster in numbers: the load of its nodes, and how much of it may fail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Census {
    /// The load of every node that is listed.
    pub nodes: BTreeMap<NodeId, Load>,
    /// Segments with fewer copies on nodes that are alive than n: replicas of an open segment, verified copies of a
    /// sealed one. Lost segments are not counted, for nothing is left from which a copy could be made.
    pub under_replicated: u64,
    /// Number of live nodes that may stop, whichever they are, with every segment still written and read; `None` if
    /// nothing is stored.
    pub spare_nodes: Option<u32>,
    /// Replication of new segments.
    pub replication: Replication,
    /// The most copies that any segment shall have: on fewer nodes it can never have them all.
    pub copies_needed: u64,
}

/// The load of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Load {
    /// Segments that it leads: open ones whose leader is its present process.
    pub led: u64,
    /// Segments of which it stores, or is to store, a replica.
    pub held: u64,
    /// Sealed ones among these whose copy is to be made, or was not compared yet.
    pub filling: u64,
    /// Bytes of the batches of sealed segments of which it stores, or is to store, a copy. What open ones have, only their
    /// nodes know.
    pub bytes: u64,
}

/// Takes the census of all segments. `alive` are the nodes that the caller holds to be alive.
#[must_use]
pub fn census(metadata: &Metadata, alive: &BTreeSet<NodeId>) -> Census {
    let nodes = metadata.nodes.keys().map(|node| (*node, Load::default())).collect();
    let replication = metadata.replication;
    let mut census = Census { nodes, under_replicated: 0, spare_nodes: None, replication, copies_needed: 0 };
    for (segment, wanted) in metadata.segments() {
        let leader = segment.descriptor.leader;
        let leads = matches!(segment.state, SegmentState::Open)
            && metadata.nodes.get(&leader.node).is_some_and(|node| node.process == leader.process);
        if leads && let Some(load) = census.nodes.get_mut(&leader.node) {
            load.led += 1;
        }
        for replica in segment.stored_on() {
            if metadata.is_here(replica)
                && let Some(load) = census.nodes.get_mut(&replica.node)
            {
                load.held += 1;
                load.bytes += segment.contents.map_or(0, |contents| contents.bytes);
            }
        }
        let is_sealed = matches!(segment.state, SegmentState::Sealed(_));
        for copy in segment.copies.iter().filter(|copy| is_sealed && copy.state == CopyState::Filling) {
            if metadata.is_here(copy.replica)
                && let Some(load) = census.nodes.get_mut(&copy.replica.node)
            {
                load.filling += 1;
            }
        }
        if segment.is_lost() {
            continue;
        }
        census.copies_needed = census.copies_needed.max(wanted as u64);
        let there = segment
            .readable_on()
            .filter(|replica| metadata.is_here(*replica) && alive.contains(&replica.node))
            .count();
        census.under_replicated += u64::from(there < wanted);
        let needed = if is_sealed { 1 } else { segment.quorum() };
        let spare = u32::try_from(there.saturating_sub(needed)).unwrap_or(u32::MAX);
        census.spare_nodes = Some(census.spare_nodes.map_or(spare, |least| least.min(spare)));
    }
    census
}
