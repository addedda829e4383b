//! Segments and organisations as people see them: one line for each. Pure.

use std::collections::BTreeSet;

use serde::Serialize;
use walrus_model::{DiskId, NodeId, ReplicaRef, SegmentId};

use crate::organisation::{Organisation, OrganisationLimits};
use crate::segment::{CopyState, Segment, SegmentState};
use crate::sizes::Size;
use crate::state::Metadata;

/// A choice of segments to list.
#[derive(Clone, Debug, Default)]
pub struct SegmentFilter {
    /// Only the segments of this topic, `organisation/name`; those of all topics if it is `None`.
    pub topic: Option<String>,
    /// Only those with fewer copies than there should be.
    pub under_replicated: bool,
    /// Limit on the number of lines.
    pub limit: usize,
}

/// One segment, as one line of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentLine {
    /// `organisation/name`.
    pub topic: String,
    /// Partition.
    pub partition: u32,
    /// Place in the partition.
    pub number: u64,
    /// Identity.
    pub uuid: SegmentId,
    /// `open`, `sealing` or `sealed`.
    pub state: &'static str,
    /// The node that orders, or ordered, its appends.
    pub leader: NodeId,
    /// Epoch.
    pub epoch: u32,
    /// First offset.
    pub base_offset: u64,
    /// First offset behind it, once it is sealed.
    pub end_offset: Option<u64>,
    /// Its replicas, or its copies once it is sealed.
    pub copies: Vec<CopyLine>,
    /// Whether fewer of them are complete on nodes that are alive than there should be.
    pub under_replicated: bool,
}

/// One copy of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CopyLine {
    /// Node.
    pub node: NodeId,
    /// Its disk.
    pub disk: DiskId,
    /// `replica` of a segment that is not sealed; `filling`, `verified`, `damaged`, `leaving`, `lost`.
    pub state: &'static str,
    /// Whether its node is alive and has that disk.
    pub alive: bool,
}

/// One organisation, as one line of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OrganisationLine {
    /// Its name.
    pub name: String,
    /// What it may have.
    pub limits: OrganisationLimits,
    /// Number of its topics.
    pub topics: u64,
    /// Number of the partitions of all its topics together.
    pub partitions: u64,
    /// Version of the metadata at the last change of its limits.
    pub version: u64,
}

/// Lists all organisations by name.
#[must_use]
pub fn organisations(metadata: &Metadata) -> Vec<OrganisationLine> {
    let line = |(name, found): (&String, &Organisation)| {
        let Size { topics, partitions } = metadata.sizes.of_org(name);
        OrganisationLine {
            name: name.clone(),
            limits: found.limits,
            topics,
            partitions,
            version: found.version,
        }
    };
    metadata.organisations.iter().map(line).collect()
}

/// Lists the chosen segments in order of topic names, partitions and numbers. `alive` are the nodes that serve now.
#[must_use]
pub fn segments(metadata: &Metadata, filter: &SegmentFilter, alive: &BTreeSet<NodeId>) -> Vec<SegmentLine> {
    let by_name = metadata
        .names
        .iter()
        .flat_map(|(org, names)| names.iter().map(move |(name, topic)| (format!("{org}/{name}"), topic)));
    let topics = by_name.filter(|(name, _)| filter.topic.as_ref().is_none_or(|topic| topic == name));
    let lines = topics.flat_map(|(name, topic)| {
        let found = metadata.topics.get(topic);
        let factor = found.map_or(0, |topic| topic.config.replication(metadata.replication).factor);
        let partitions = found.into_iter().flat_map(|topic| &topic.partitions);
        let segments = partitions.flat_map(|partition| &partition.segments);
        segments.map(move |segment| line(metadata, &name, (segment, factor), alive))
    });
    lines.filter(|line| !filter.under_replicated || line.under_replicated).take(filter.limit).collect()
}

fn line(
    metadata: &Metadata,
    topic: &str,
    (segment, factor): (&Segment, u32),
    alive: &BTreeSet<NodeId>,
) -> SegmentLine {
    let descriptor = &segment.descriptor;
    let is_alive = |replica: ReplicaRef| metadata.is_here(replica) && alive.contains(&replica.node);
    let (state, end_offset) = match &segment.state {
        SegmentState::Open => ("open", None),
        SegmentState::Sealing(_) => ("sealing", None),
        SegmentState::Sealed(value) => ("sealed", Some(value.end.0)),
    };
    let copy = |replica: ReplicaRef| {
        let listed = segment.copies.iter().find(|copy| copy.replica == replica);
        let state = match listed.filter(|_| end_offset.is_some()).map(|copy| copy.state) {
            None => "replica",
            Some(CopyState::Filling) => "filling",
            Some(CopyState::Verified) => "verified",
            Some(CopyState::Damaged) => "damaged",
            Some(CopyState::Leaving) => "leaving",
            Some(CopyState::Lost) => "lost",
        };
        CopyLine { node: replica.node, disk: replica.disk, state, alive: is_alive(replica) }
    };
    let lost = segment.copies.iter().filter(|copy| copy.state == CopyState::Lost).map(|copy| copy.replica);
    let there = segment.readable_on().filter(|replica| is_alive(*replica)).count();
    SegmentLine {
        topic: topic.to_owned(),
        partition: descriptor.partition,
        number: descriptor.number,
        uuid: descriptor.id,
        state,
        leader: descriptor.leader.node,
        epoch: descriptor.epoch.0,
        base_offset: descriptor.base_offset.map_or(0, |base| base.0),
        end_offset,
        copies: segment.stored_on().chain(lost).map(copy).collect(),
        under_replicated: there < segment.copies_wanted(factor),
    }
}
