//! Decides which logs leave this disk; `retiring.rs` removes them. Pure: only what metadata explicitly calls trimmed or deleted
//! goes; what it merely does not list stays, because metadata may have lost commands, and a log may have been made for a segment
//! to come.

use walrus_metadata::{Metadata, Segment};
use walrus_model::{ReplicaRef, SegmentId};

use crate::cluster::segment::Place;

/// What becomes of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is listed, or may be soon.
    Keep,
    /// Its topic was deleted, or its segment trimmed.
    Delete,
    /// Metadata knows nothing of it here: it is put aside, and somebody should look.
    Unlisted,
}

/// Judges the log of a segment on a disk.
pub(crate) fn judge(metadata: &Metadata, place: Place, segment: SegmentId, here: ReplicaRef) -> Fate {
    if metadata.deleted.contains(&place.topic) {
        return Fate::Delete;
    }
    let partition =
        metadata.topics.get(&place.topic).and_then(|topic| topic.partitions.get(place.partition as usize));
    let Some(partition) = partition else {
        return Fate::Unlisted;
    };
    if place.number < partition.trimmed_below {
        return Fate::Delete;
    }
    // It is behind the last one: a segment to come, or one that metadata have lost and will learn of again.
    if partition.segments.last().is_none_or(|last| last.descriptor.number < place.number) {
        return Fate::Keep;
    }
    // The copy of a segment that was replaced is deleted by whoever completes copies, and told to the metadata.
    let listed = partition.all_segments().find(|listed| listed.descriptor.id == segment);
    let is_here = |listed: &Segment| listed.copies.iter().any(|copy| copy.replica == here);
    if listed.is_some_and(is_here) { Fate::Keep } else { Fate::Unlisted }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use walrus_model::{Descriptor, DiskId, Epoch, LeaderRef, NodeId, Offset, ProcessId, TopicId};

    use walrus_metadata::{Compaction, CopyState, Partition, SegmentCopy, SegmentState, Topic};

    use super::*;

    const LISTED: SegmentId = SegmentId::from_u128(40);

    #[test]
    fn only_what_metadata_calls_trimmed_or_deleted_goes_and_what_it_does_not_list_is_put_aside() {
        let (listed, deleted, forgotten) = (topic(1), topic(2), topic(3));
        let here = ReplicaRef { node: NodeId(1), disk: DiskId::from_u128(9) };
        let elsewhere = ReplicaRef { node: NodeId(2), disk: DiskId::from_u128(8) };
        let open = Segment {
            descriptor: Descriptor {
                id: LISTED,
                topic: listed,
                partition: 0,
                number: 4,
                base_offset: Some(Offset(0)),
                epoch: Epoch(1),
                leader: LeaderRef { node: NodeId(1), process: ProcessId::from_u128(0) },
                replicas: vec![here],
                write_quorum: 1,
                fsync: None,
            },
            state: SegmentState::Open,
            successor: None,
            earlier_successors: vec![],
            copies: vec![SegmentCopy { replica: here, state: CopyState::Filling, since: 1 }],
            contents: None,
            begun: vec![],
            compacted: None,
            opened_at_ms: 0,
            silent_below: Offset(0),
            quiet_below: Offset(0),
            version: 1,
        };
        let (index, next_epoch, trimmed_below, version) = (0, Epoch(9), 4, 1);
        let partition = Partition {
            index,
            next_epoch,
            trimmed_below,
            start: Offset(0),
            segments: vec![open],
            compaction: Compaction::default(),
            version,
        };
        let mut metadata = Metadata::default();
        metadata.deleted.insert(deleted);
        let known = Topic {
            id: listed,
            org: "default".to_owned(),
            name: "t".to_owned(),
            internal: false,
            config: walrus_metadata::TopicConfig::default(),
            read: walrus_metadata::ReadMarks::default(),
            partitions: imbl::Vector::unit(Arc::new(partition)),
        };
        metadata.topics.insert(listed, Arc::new(known));

        let fate = |topic, partition, number, segment, disk| {
            judge(&metadata, Place { topic, partition, number }, segment, disk)
        };
        assert_eq!(fate(listed, 0, 3, LISTED, here), Fate::Delete);
        assert_eq!(fate(listed, 0, 4, LISTED, here), Fate::Keep);
        assert_eq!(fate(listed, 0, 4, LISTED, elsewhere), Fate::Unlisted, "its copies are others");
        assert_eq!(
            fate(listed, 0, 4, SegmentId::from_u128(0), here),
            Fate::Unlisted,
            "another segment of that number"
        );
        assert_eq!(fate(listed, 0, 5, SegmentId::from_u128(0), here), Fate::Keep, "one to come");
        assert_eq!(fate(listed, 1, 0, LISTED, here), Fate::Unlisted);
        assert_eq!(fate(deleted, 0, 9, LISTED, here), Fate::Delete);
        assert_eq!(fate(forgotten, 0, 0, LISTED, here), Fate::Unlisted);
    }

    fn topic(number: u128) -> TopicId {
        TopicId::from_u128(number)
    }
}
