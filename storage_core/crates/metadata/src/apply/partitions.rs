//! The partitions that commands name.

use std::sync::Arc;

use walrus_model::TopicId;

use crate::rejection::CommandRejection;
use crate::state::{Metadata, Partition};

/// The partition that a command names.
pub(super) fn find_partition(
    metadata: &Metadata,
    topic: TopicId,
    partition: u32,
) -> Result<&Partition, CommandRejection> {
    let found = metadata.topics.get(&topic).ok_or(CommandRejection::UnknownTopic { topic })?;
    let index = usize::try_from(partition).unwrap_or(usize::MAX);
    let found = found.partitions.get(index).map(Arc::as_ref);
    found.ok_or(CommandRejection::UnknownPartition { topic, partition })
}

/// Changes the partition that a command names, in a way that may give it another leader.
pub(super) fn change_partition<T>(
    metadata: &mut Metadata,
    (topic, partition): (TopicId, u32),
    change: impl FnOnce(&mut Partition) -> Result<T, CommandRejection>,
) -> Result<T, CommandRejection> {
    let found = partition_mut(metadata, topic, partition)?;
    let before = found.leader();
    let outcome = change(found);
    let after = found.leader();
    if before != after && metadata.topics.get(&topic).is_some_and(|topic| topic.has_standing_leaders()) {
        before.into_iter().for_each(|node| metadata.leads.remove(node));
        after.into_iter().for_each(|node| metadata.leads.add(node));
    }
    outcome
}

/// The partition that a command names, to be changed in a way that leaves it its leader.
pub(super) fn partition_mut(
    metadata: &mut Metadata,
    topic: TopicId,
    partition: u32,
) -> Result<&mut Partition, CommandRejection> {
    find_partition(metadata, topic, partition)?; // before make_mut copies a topic that is published elsewhere
    let found = metadata.topics.get_mut(&topic).ok_or(CommandRejection::UnknownTopic { topic })?;
    let index = usize::try_from(partition).unwrap_or(usize::MAX);
    Arc::make_mut(found)
        .partitions
        .get_mut(index)
        .map(Arc::make_mut)
        .ok_or(CommandRejection::UnknownPartition { topic, partition })
}
