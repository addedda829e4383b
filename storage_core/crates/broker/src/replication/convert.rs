//! The metadata's words in the machines' and back. Nothing is lost on the way: a value comes back as it was.

use uuid::Uuid;
use walrus_metadata as metadata;
use walrus_replica as replica;

pub(crate) fn segment_id(uuid: Uuid) -> replica::SegmentId {
    replica::SegmentId(uuid.as_u128())
}

pub(crate) fn process_id(uuid: Uuid) -> replica::ProcessId {
    replica::ProcessId(uuid.as_u128())
}

pub(crate) fn replica_ref(of: metadata::ReplicaRef) -> replica::ReplicaRef {
    replica::ReplicaRef { node: replica::NodeId(of.node.0), disk: replica::DiskId(of.disk.as_u128()) }
}

pub(crate) fn replica_back(of: replica::ReplicaRef) -> metadata::ReplicaRef {
    metadata::ReplicaRef { node: metadata::NodeId(of.node.0), disk: Uuid::from_u128(of.disk.0) }
}

pub(crate) fn ballot(of: metadata::Ballot) -> replica::Ballot {
    let attempt = replica::AttemptId(of.attempt.as_u128());
    replica::Ballot { epoch: replica::Epoch(of.epoch.0), attempt }
}

pub(crate) fn ballot_back(of: replica::Ballot) -> metadata::Ballot {
    metadata::Ballot { epoch: metadata::Epoch(of.epoch.0), attempt: Uuid::from_u128(of.attempt.0) }
}

pub(crate) fn descriptor(of: &metadata::Descriptor) -> replica::Descriptor {
    replica::Descriptor {
        segment: segment_id(of.uuid),
        topic: replica::TopicId(of.topic.0.as_u128()),
        partition: of.partition,
        number: of.number,
        base: of.base_offset.map(|base| replica::Offset(base.0)),
        epoch: replica::Epoch(of.epoch.0),
        leader: replica::LeaderRef {
            node: replica::NodeId(of.leader.node.0),
            process: process_id(of.leader.process),
        },
        replicas: of.replicas.iter().copied().map(replica_ref).collect(),
        write_quorum: of.write_quorum,
    }
}

pub(crate) fn descriptor_back(of: &replica::Descriptor) -> metadata::Descriptor {
    metadata::Descriptor {
        uuid: Uuid::from_u128(of.segment.0),
        topic: metadata::TopicId(Uuid::from_u128(of.topic.0)),
        partition: of.partition,
        number: of.number,
        base_offset: of.base.map(|base| metadata::Offset(base.0)),
        epoch: metadata::Epoch(of.epoch.0),
        leader: metadata::LeaderRef {
            node: metadata::NodeId(of.leader.node.0),
            process: Uuid::from_u128(of.leader.process.0),
        },
        replicas: of.replicas.iter().copied().map(replica_back).collect(),
        write_quorum: of.write_quorum,
    }
}

pub(crate) fn value(of: &metadata::Value) -> replica::Value {
    let range = |range: &metadata::OffsetRange| replica::OffsetRange {
        start: replica::Offset(range.start.0),
        end: replica::Offset(range.end.0),
    };
    replica::Value {
        end: replica::Offset(of.end.0),
        digest: replica::Digest(of.digest),
        successor: Box::new(descriptor(&of.successor)),
        possible_loss: of.possible_loss.iter().map(range).collect(),
        lost: of.lost.iter().map(range).collect(),
    }
}

pub(crate) fn value_back(of: &replica::Value) -> metadata::Value {
    let range = |range: &replica::OffsetRange| metadata::OffsetRange {
        start: metadata::Offset(range.start.0),
        end: metadata::Offset(range.end.0),
    };
    metadata::Value {
        end: metadata::Offset(of.end.0),
        digest: of.digest.0,
        successor: descriptor_back(&of.successor),
        possible_loss: of.possible_loss.iter().map(range).collect(),
        lost: of.lost.iter().map(range).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_as_it_was() {
        let successor = metadata::Descriptor {
            uuid: Uuid::from_u128(1),
            topic: metadata::TopicId(Uuid::from_u128(2)),
            partition: 3,
            number: 4,
            base_offset: Some(metadata::Offset(5)),
            epoch: metadata::Epoch(6),
            leader: metadata::LeaderRef { node: metadata::NodeId(7), process: Uuid::from_u128(8) },
            replicas: vec![metadata::ReplicaRef { node: metadata::NodeId(7), disk: Uuid::from_u128(9) }],
            write_quorum: 1,
        };
        let possible_loss =
            vec![metadata::OffsetRange { start: metadata::Offset(5), end: metadata::Offset(u64::MAX) }];
        let lost = vec![metadata::OffsetRange { start: metadata::Offset(1), end: metadata::Offset(2) }];
        let before = metadata::Value { end: metadata::Offset(5), digest: 10, successor, possible_loss, lost };
        assert_eq!(value_back(&value(&before)), before);
    }
}
