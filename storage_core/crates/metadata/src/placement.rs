//! Who leads the next segment: round-robin among healthy nodes. Pure.

use uuid::Uuid;

use crate::model::{
    Descriptor, Epoch, LeaderRef, Metadata, Node, NodeId, NodeState, Offset, ReplicaRef, TopicId,
};

/// Epoch of the first segment of every partition.
pub(crate) const FIRST_EPOCH: Epoch = Epoch(1);

/// Descriptor of the first segment of a partition of a new topic; `None` when no node is healthy at `now_ms`
/// (milliseconds since the epoch). Topics spread over the nodes by their uuid, partitions of a topic in turn.
#[must_use]
pub fn first_descriptor(
    metadata: &Metadata,
    topic: TopicId,
    partition: u32,
    uuid: Uuid,
    now_ms: u64,
) -> Option<Descriptor> {
    let healthy: Vec<&Node> = metadata.nodes.values().filter(|node| is_healthy(node, now_ms)).collect();
    if healthy.is_empty() {
        return None;
    }
    let place = topic.0.as_u128().wrapping_add(u128::from(partition)) % healthy.len() as u128;
    let leader = healthy.into_iter().nth(usize::try_from(place).ok()?)?;
    Some(descriptor(leader, uuid, topic, partition, 0, Some(Offset(0)), FIRST_EPOCH))
}

/// Descriptor of the segment that follows the partition's last one, its base not known yet: led by the next healthy
/// node after the present leader in order of ids, leaving out `avoid`. Internal topics stay with their leader while it
/// is healthy and not avoided. `None` when no node is left, or the partition does not exist.
#[must_use]
pub fn successor(
    metadata: &Metadata,
    topic: TopicId,
    partition: u32,
    uuid: Uuid,
    avoid: &[NodeId],
    now_ms: u64,
) -> Option<Descriptor> {
    let in_topic = metadata.topics.get(&topic)?;
    let in_partition = in_topic.partitions.get(usize::try_from(partition).ok()?)?;
    let last = &in_partition.segments.last()?.descriptor;
    let candidates =
        || metadata.nodes.values().filter(|node| is_healthy(node, now_ms) && !avoid.contains(&node.id));

    let stays = candidates().find(|node| in_topic.internal && node.id == last.leader.node);
    let next = || candidates().find(|node| node.id > last.leader.node);
    let leader = stays.or_else(next).or_else(|| candidates().next())?;
    Some(descriptor(leader, uuid, topic, partition, last.number + 1, None, in_partition.next_epoch))
}

fn is_healthy(node: &Node, now_ms: u64) -> bool {
    node.state == NodeState::Up && node.lease_until_ms > now_ms
}

fn descriptor(
    leader: &Node,
    uuid: Uuid,
    topic: TopicId,
    partition: u32,
    number: u64,
    base_offset: Option<Offset>,
    epoch: Epoch,
) -> Descriptor {
    Descriptor {
        uuid,
        topic,
        partition,
        number,
        base_offset,
        epoch,
        leader: LeaderRef { node: leader.id, process: leader.process },
        replicas: vec![ReplicaRef { node: leader.id, disk: leader.disk }],
    }
}
