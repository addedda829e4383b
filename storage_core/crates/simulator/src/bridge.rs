//! The metadata's names of things in the replicas' words, and back.

use uuid::Uuid;
use walrus_metadata as metadata;
use walrus_replica as replica;

/// A segment's descriptor in the replicas' words.
#[must_use]
pub fn descriptor(from: &metadata::Descriptor) -> replica::Descriptor {
    let place = |at: &metadata::ReplicaRef| replica::ReplicaRef {
        node: replica::NodeId(at.node.0),
        disk: replica::DiskId(at.disk.as_u128()),
    };
    replica::Descriptor {
        segment: replica::SegmentId(from.uuid.as_u128()),
        topic: replica::TopicId(from.topic.0.as_u128()),
        partition: from.partition,
        number: from.number,
        base: from.base_offset.map(|base| replica::Offset(base.0)),
        epoch: replica::Epoch(from.epoch.0),
        leader: replica::LeaderRef {
            node: replica::NodeId(from.leader.node.0),
            process: replica::ProcessId(from.leader.process.as_u128()),
        },
        replicas: from.replicas.iter().map(place).collect(),
        write_quorum: from.write_quorum,
    }
}

/// An attempt's ballot in the replicas' words.
#[must_use]
pub fn ballot(from: metadata::Ballot) -> replica::Ballot {
    let attempt = replica::AttemptId(from.attempt.as_u128());
    replica::Ballot { epoch: replica::Epoch(from.epoch.0), attempt }
}

/// A decision in the metadata's words.
#[must_use]
pub fn value(from: &replica::Value) -> metadata::Value {
    let range = |range: &replica::OffsetRange| metadata::OffsetRange {
        start: metadata::Offset(range.start.0),
        end: metadata::Offset(range.end.0),
    };
    metadata::Value {
        end: metadata::Offset(from.end.0),
        digest: from.digest.0,
        successor: descriptor_back(&from.successor),
        possible_loss: from.possible_loss.iter().map(range).collect(),
        lost: from.lost.iter().map(range).collect(),
    }
}

fn descriptor_back(from: &replica::Descriptor) -> metadata::Descriptor {
    let place = |at: &replica::ReplicaRef| metadata::ReplicaRef {
        node: metadata::NodeId(at.node.0),
        disk: Uuid::from_u128(at.disk.0),
    };
    metadata::Descriptor {
        uuid: Uuid::from_u128(from.segment.0),
        topic: metadata::TopicId(Uuid::from_u128(from.topic.0)),
        partition: from.partition,
        number: from.number,
        base_offset: from.base.map(|base| metadata::Offset(base.0)),
        epoch: metadata::Epoch(from.epoch.0),
        leader: metadata::LeaderRef {
            node: metadata::NodeId(from.leader.node.0),
            process: Uuid::from_u128(from.leader.process.0),
        },
        replicas: from.replicas.iter().map(place).collect(),
        write_quorum: from.write_quorum,
    }
}
