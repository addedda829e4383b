//! Commands by which records go: what a topic's retention lets go, and what somebody deletes.

use std::sync::Arc;

use walrus_model::{ReplicaRef, TopicId};

use super::copies::check_disk;
use super::partitions::{find_partition, partition_mut};
use super::segments::{find_segment, segment_mut};
use crate::answer::Answer;
use crate::command::{PartitionPlace, PartitionStart, ReadMark, SegmentPlace};
use crate::expiry::verdict;
use crate::rejection::CommandRejection;
use crate::segment::SegmentState;
use crate::state::Metadata;

/// Moves the starts of partitions, all of them or none; a start never moves back.
pub(super) fn delete_records(
    metadata: &mut Metadata,
    topic: TopicId,
    starts: &[PartitionStart],
    version: u64,
) -> Result<Answer, CommandRejection> {
    for PartitionStart { partition, .. } in starts {
        find_partition(metadata, topic, *partition)?;
    }
    for PartitionStart { partition, start } in starts {
        if *start > find_partition(metadata, topic, *partition)?.log_start() {
            let found = partition_mut(metadata, topic, *partition)?;
            (found.start, found.version) = (*start, version);
        }
    }
    Ok(Answer::Nothing)
}

/// Notes up to where a reader has read, if the topic's retention asks for it. Marks of partitions that there are not are passed over.
pub(super) fn report_read(
    metadata: &mut Metadata,
    topic: TopicId,
    reader: &str,
    marks: &[ReadMark],
) -> Result<Answer, CommandRejection> {
    let found = metadata.topics.get_mut(&topic).ok_or(CommandRejection::UnknownTopic { topic })?;
    let is_new = |mark: &&ReadMark| {
        mark.partition < found.partition_count() && found.read.of(reader, mark.partition) != mark.next
    };
    let new: Vec<ReadMark> = marks.iter().filter(is_new).copied().collect();
    if found.config.asks_reader(reader) && !new.is_empty() {
        let found = Arc::make_mut(found);
        new.iter().for_each(|mark| found.read.set(reader, mark.partition, mark.next));
    }
    Ok(Answer::Nothing)
}

/// Drops what these partitions have to let go now.
pub(super) fn expire(
    metadata: &mut Metadata,
    places: &[PartitionPlace],
    version: u64,
) -> Result<Answer, CommandRejection> {
    for PartitionPlace { topic, partition } in places {
        let Some(of_topic) = metadata.topics.get(topic) else { continue };
        let Ok(found) = find_partition(metadata, *topic, *partition) else { continue };
        let below_number = verdict(metadata, of_topic, found).below_number;
        if below_number > found.trimmed_below {
            partition_mut(metadata, *topic, *partition)?.drop_below(below_number, version);
        }
    }
    Ok(Answer::Nothing)
}

/// Notes which disks have the logs of unsealed segments, and which remember of a sealed one that it took the place of others.
pub(super) fn report_begun(
    metadata: &mut Metadata,
    replica: ReplicaRef,
    places: &[SegmentPlace],
) -> Result<Answer, CommandRejection> {
    check_disk(metadata, replica)?;
    for SegmentPlace { topic, partition, segment } in places {
        let Ok(found) = find_partition(metadata, *topic, *partition) else { continue };
        let Ok(found) = find_segment(found, *segment) else { continue };
        let may = match found.state {
            SegmentState::Sealed(_) => {
                found.compacted.is_some() && found.copies.iter().any(|copy| copy.replica == replica)
            }
            _ => found.descriptor.replicas.contains(&replica),
        };
        if may && !found.begun.contains(&replica) {
            segment_mut(partition_mut(metadata, *topic, *partition)?, *segment)?.begun.push(replica);
        }
    }
    Ok(Answer::Nothing)
}
