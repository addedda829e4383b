//! Commands about membership: draining a node, taking a disk out for good.

use walrus_model::{DiskId, NodeId, TopicId};

use super::topics::forget_emptied;
use crate::answer::Answer;
use crate::rejection::CommandRejection;
use crate::state::{Metadata, NodeState};

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
    let emptied: Vec<TopicId> = metadata.emptied.keys().copied().collect();
    forget_emptied(metadata, &emptied); // nobody waits for this disk any more
    Ok(Answer::Node(node))
}

fn stored_by(metadata: &Metadata, disk: DiskId) -> u64 {
    let partitions = metadata.topics.values().flat_map(|topic| &topic.partitions);
    let segments = partitions.flat_map(|partition| &partition.segments);
    segments.filter(|segment| segment.stored_on().any(|replica| replica.disk == disk)).count() as u64
}
