//! Commands about membership: draining a node, taking a disk out for good.

use std::sync::Arc;

use walrus_model::{DiskId, NodeId, TopicId};

use super::topics::forget_emptied;
use crate::answer::Answer;
use crate::rejection::CommandRejection;
use crate::segment::Segment;
use crate::state::{Metadata, NodeState, Partition};

pub(super) fn drain_node(
    metadata: &mut Metadata,
    node: NodeId,
    disk: DiskId,
    draining: bool,
    version: u64,
) -> Result<Answer, CommandRejection> {
    let found = metadata.nodes.get_mut(&node).ok_or(CommandRejection::UnknownNode { node })?;
    if found.disk != disk {
        return Err(CommandRejection::OtherDisk { node, got: disk });
    }
    if (found.state == NodeState::Draining) != draining {
        found.state = if draining { NodeState::Draining } else { NodeState::Up };
        found.version = version;
    }
    Ok(Answer::Node(node))
}

pub(super) fn remove_node(
    metadata: &mut Metadata,
    node: NodeId,
    disk: DiskId,
    lost: bool,
    replaced_by: Option<DiskId>,
) -> Result<Answer, CommandRejection> {
    let Some(found) = metadata.nodes.get(&node).filter(|found| found.disk == disk) else {
        return match (metadata.gone_disks.contains(&disk), metadata.nodes.contains_key(&node)) {
            (true, _) => Ok(Answer::Node(node)),
            (false, true) => Err(CommandRejection::OtherDisk { node, got: disk }),
            (false, false) => Err(CommandRejection::UnknownNode { node }),
        };
    };
    let id = found.id;
    if let Some(successor) = replaced_by {
        let is_member = metadata.nodes.values().any(|known| known.disk == successor && known.id != id);
        if !is_member {
            return Err(CommandRejection::OtherDisk { node, got: successor });
        }
    }
    let segments = stored_by(metadata, disk);
    if segments > 0 && !lost {
        return Err(CommandRejection::StillStores { node, segments });
    }
    metadata.nodes.remove(&id);
    metadata.gone_disks.insert(disk);
    forget_leaving(metadata, disk);
    let emptied: Vec<TopicId> = metadata.emptied.keys().copied().collect();
    forget_emptied(metadata, &emptied); // nobody waits for this disk any more
    Ok(Answer::Node(node))
}

/// Takes a disk that is gone off the lists of segments that were replaced.
fn forget_leaving(metadata: &mut Metadata, disk: DiskId) {
    let is_there = |segment: &Segment| segment.copies.iter().any(|copy| copy.replica.disk == disk);
    let leaves = |partition: &Partition| partition.compaction.replaced.iter().any(is_there);
    let concerned =
        metadata.topics.values().filter(|topic| topic.partitions.iter().any(|partition| leaves(partition)));
    let concerned: Vec<TopicId> = concerned.map(|topic| topic.id).collect();
    for topic in concerned {
        let Some(topic) = metadata.topics.get_mut(&topic).map(Arc::make_mut) else { continue };
        for partition in topic.partitions.iter_mut().filter(|partition| leaves(partition)) {
            Arc::make_mut(partition).compaction.forget_copies_on(&metadata.gone_disks);
        }
    }
}

fn stored_by(metadata: &Metadata, disk: DiskId) -> u64 {
    let partitions = metadata.topics.values().flat_map(|topic| &topic.partitions);
    let segments = partitions.flat_map(|partition| &partition.segments);
    segments.filter(|segment| segment.stored_on().any(|replica| replica.disk == disk)).count() as u64
}
