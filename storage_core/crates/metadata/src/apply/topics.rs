//! Commands about topics.

use std::sync::Arc;

use super::segments::{check_replicas, invalid, open_segment};
use crate::command::Answer;
use crate::model::{Descriptor, Epoch, Metadata, Offset, Partition, Topic, TopicId};
use crate::placement::FIRST_EPOCH;
use crate::rejected::Rejected;

/// A topic with more partitions is refused: each costs a log on some disk.
const PARTITIONS_MAX: usize = 10_000;

pub(super) fn create_topic(
    metadata: &mut Metadata,
    (id, org, name, internal): (TopicId, &str, &str, bool),
    first: &[Descriptor],
    at_ms: u64,
    version: u64,
) -> Result<Answer, Rejected> {
    if !is_topic_name(name) {
        return Err(Rejected::InvalidTopicName { name: name.to_owned() });
    }
    if let Some(topic) = metadata.names.get(org).and_then(|names| names.get(name)) {
        return Err(Rejected::TopicExists { name: name.to_owned(), topic: *topic });
    }
    if metadata.topics.contains_key(&id) || metadata.deleted.contains(&id) {
        return Err(Rejected::TopicExists { name: name.to_owned(), topic: id });
    }
    if first.is_empty() || first.len() > PARTITIONS_MAX {
        let (what, got) = ("partitions".to_owned(), first.len() as u64);
        return Err(Rejected::OutOfRange { what, min: 1, max: PARTITIONS_MAX as u64, got });
    }
    for (index, descriptor) in (0..).zip(first) {
        let expected = (id, index, 0, Some(Offset(0)), FIRST_EPOCH);
        let Descriptor { topic, partition, number, base_offset, epoch, .. } = descriptor;
        if (*topic, *partition, *number, *base_offset, *epoch) != expected {
            return Err(invalid(
                descriptor,
                format!("expected (topic, partition, number, base, epoch) {expected:?}"),
            ));
        }
        check_replicas(metadata, descriptor)?;
    }
    let partitions = (0..)
        .zip(first)
        .map(|(index, descriptor)| Partition {
            index,
            next_epoch: Epoch(FIRST_EPOCH.0 + 1),
            trimmed_below: 0,
            segments: vec![open_segment(descriptor.clone(), at_ms, version)],
            version,
        })
        .collect();
    let topic = Topic { id, org: org.to_owned(), name: name.to_owned(), internal, partitions };
    metadata.topics.insert(id, Arc::new(topic));
    metadata.names.entry(org.to_owned()).or_default().insert(name.to_owned(), id);
    Ok(Answer::Nothing)
}

/// Kafka's rule for topic names.
fn is_topic_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && name.bytes().all(allowed) && name != "." && name != ".."
}

pub(super) fn delete_topic(metadata: &mut Metadata, topic: TopicId) -> Result<Answer, Rejected> {
    let removed = metadata.topics.remove(&topic).ok_or(Rejected::UnknownTopic { topic })?;
    if let Some(names) = metadata.names.get_mut(&removed.org) {
        names.remove(&removed.name);
        if names.is_empty() {
            metadata.names.remove(&removed.org);
        }
    }
    metadata.deleted.insert(topic);
    Ok(Answer::Nothing)
}
