//! The state as bytes: versioned JSON, checked when it is read.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use walrus_model::{Ballot, Descriptor, Replication, TopicId};

use crate::segment::{Segment, SegmentState};
use crate::state::{Metadata, Topic};

/// Version of the snapshot's JSON. A node refuses a newer one.
pub const SNAPSHOT_VERSION: u32 = 1;

/// Why bytes are not a snapshot. The node must not start on them.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes are not the JSON of a snapshot.
    #[error("the metadata snapshot is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    /// A newer Walrus wrote it.
    #[error("the metadata snapshot has version {got}, this node knows up to {supported}: upgrade it")]
    UnsupportedVersion {
        /// Version of the snapshot.
        got: u32,
        /// Newest known.
        supported: u32,
    },
    /// It parses, but contradicts itself.
    #[error("the metadata snapshot contradicts itself: {what}")]
    Inconsistent {
        /// What is wrong.
        what: String,
    },
}

#[derive(Deserialize)]
struct VersionOnly {
    snapshot_version: u32,
}

#[derive(Deserialize)]
struct DecodedSnapshot {
    metadata: Metadata,
}

#[derive(Serialize)]
struct EncodedSnapshot<'a> {
    snapshot_version: u32,
    metadata: &'a Metadata,
}

impl Metadata {
    /// The same state as that of another cluster, at the next version: after a forced recovery what is left of the old cluster,
    /// should it come back, can neither be joined nor be taken for the new one. The new one remembers whom it continues.
    #[must_use]
    pub fn continued_as(&self, cluster_id: Uuid) -> Metadata {
        let former_ids = self.former_ids.iter().copied().chain(self.cluster_id).collect();
        Metadata { cluster_id: Some(cluster_id), former_ids, version: self.version + 1, ..self.clone() }
    }

    /// The whole state as bytes; [`Metadata::from_snapshot`] reads them back.
    #[must_use]
    pub fn to_snapshot(&self) -> Vec<u8> {
        let snapshot = EncodedSnapshot { snapshot_version: SNAPSHOT_VERSION, metadata: self };
        serde_json::to_vec(&snapshot).expect("maps with string-like keys always serialise")
    }

    /// Reads a snapshot and checks it. The version is looked at first, so that a newer snapshot is named as such and not as
    /// damaged.
    pub fn from_snapshot(bytes: &[u8]) -> Result<Metadata, SnapshotError> {
        let VersionOnly { snapshot_version } = serde_json::from_slice(bytes)?;
        if snapshot_version != SNAPSHOT_VERSION {
            return Err(SnapshotError::UnsupportedVersion {
                got: snapshot_version,
                supported: SNAPSHOT_VERSION,
            });
        }
        let DecodedSnapshot { mut metadata } = serde_json::from_slice(bytes)?;
        metadata.list_copies();
        metadata.count_topics();
        metadata.check().map_err(|what| SnapshotError::Inconsistent { what })?;
        Ok(metadata)
    }

    /// Lists the replica set of each segment as its copies where a snapshot from before copies were listed has none.
    fn list_copies(&mut self) {
        let is_unlisted = |segment: &Segment| segment.copies.is_empty();
        let lacks_some = |topic: &Arc<Topic>| {
            topic.partitions.iter().any(|partition| partition.segments.iter().any(is_unlisted))
        };
        let lacking: Vec<TopicId> =
            self.topics.values().filter(|topic| lacks_some(topic)).map(|topic| topic.id).collect();
        for id in lacking {
            let Some(topic) = self.topics.get_mut(&id).map(Arc::make_mut) else { continue };
            let segments = topic.partitions.iter_mut().flat_map(|one| &mut Arc::make_mut(one).segments);
            segments.filter(|segment| is_unlisted(segment)).for_each(Segment::list_copies);
        }
    }

    /// Checks the invariants of the state: contiguous bases, growing epochs, one unsealed segment at the end of each
    /// partition, a catalogue that matches the topics. The error says which one is broken.
    pub fn check(&self) -> Result<(), String> {
        for (id, topic) in &self.topics {
            if self.names.get(&topic.org).and_then(|names| names.get(&topic.name)) != Some(id) {
                return Err(format!("topic {id:?} is not in the catalogue as {}/{}", topic.org, topic.name));
            }
            for partition in &topic.partitions {
                partition
                    .check()
                    .map_err(|what| format!("topic {}/{}: {what}", topic.name, partition.index))?;
            }
        }
        let named: usize = self.names.values().map(|names| names.len()).sum();
        if named != self.topics.len() {
            return Err(format!("{named} names for {} topics", self.topics.len()));
        }
        Ok(())
    }
}

impl crate::state::Partition {
    fn check(&self) -> Result<(), String> {
        let Some(last) = self.segments.last() else {
            return Err("no segment".to_owned());
        };
        if matches!(last.state, SegmentState::Sealed(_)) {
            return Err(format!("the last segment, {}, is sealed", last.descriptor.number));
        }
        if last.descriptor.epoch >= self.next_epoch {
            return Err("next_epoch is not above the last segment's epoch".to_owned());
        }
        if let SegmentState::Sealing(ballot) = last.state
            && (ballot < Ballot::zero(last.descriptor.epoch) || ballot.epoch >= self.next_epoch)
        {
            return Err(format!("segment {} is sealing at a ballot of another time", last.descriptor.number));
        }
        for segment in self.all_segments() {
            segment.check()?;
        }
        for pair in self.segments.windows(2) {
            let SegmentState::Sealed(value) = &pair[0].state else {
                return Err(format!(
                    "segment {} has a successor and is not sealed",
                    pair[0].descriptor.number
                ));
            };
            if !pair[1].follows(&value.successor) {
                return Err(format!(
                    "segment {} does not follow from its predecessor",
                    pair[1].descriptor.number
                ));
            }
            if pair[1].descriptor.epoch <= pair[0].descriptor.epoch {
                return Err(format!("the epoch of segment {} does not grow", pair[1].descriptor.number));
            }
        }
        Ok(())
    }
}

impl Segment {
    /// Whether it is the segment that a decided successor names, or took that one's place.
    fn follows(&self, successor: &Descriptor) -> bool {
        let starts_there = self.descriptor.base_offset == successor.base_offset;
        self.descriptor == *successor
            || (self.compacted.is_some() && starts_there && self.first_number() == successor.number)
    }

    fn check(&self) -> Result<(), String> {
        let number = self.descriptor.number;
        let Replication { factor, write_quorum } = self.descriptor.replication();
        if self.compacted.is_some() {
            let is_sealed = matches!(self.state, SegmentState::Sealed(_));
            if factor > 0 || !is_sealed || self.first_number() > number {
                return Err(format!(
                    "segment {number} took the place of others, and is not sealed or has replicas"
                ));
            }
        } else if write_quorum == 0 || write_quorum > factor {
            return Err(format!("segment {number} has {factor} replicas and waits for {write_quorum}"));
        }
        let nodes: std::collections::BTreeSet<_> = self.copies.iter().map(|copy| copy.replica.node).collect();
        if self.copies.is_empty() || nodes.len() != self.copies.len() {
            return Err(format!("segment {number} has no copy, or two on one node"));
        }
        Ok(())
    }
}
