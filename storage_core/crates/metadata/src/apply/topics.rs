//! Commands about topics.

use std::sync::Arc;

use walrus_model::{Ballot, Descriptor, Epoch, Offset, TopicId};

use super::segments::{EPOCH_MAX, check_replicas, invalid, open_segment};
use crate::answer::Answer;
use crate::levels::LIMITS_LEVEL;
use crate::placement::FIRST_EPOCH;
use crate::rejection::CommandRejection;
use crate::state::{Creations, Metadata, Partition, Segment, SegmentState, Topic};

/// Limit on the partitions of one topic: each costs a log on some disk.
const PARTITIONS_MAX: usize = 10_000;

/// Limit on the difference of two clocks of a cluster; with a larger one, a clock is wrong.
const CLOCKS_APART_SECONDS_MAX: u64 = 10;

/// How a topic is called, and whose it is: identity, organisation, name, whether it is internal.
type Naming<'a> = (TopicId, &'a str, &'a str, bool);

pub(super) fn create_topic(
    metadata: &mut Metadata,
    naming: Naming<'_>,
    first: &[Descriptor],
    at_ms: u64,
    version: u64,
) -> Result<Answer, CommandRejection> {
    check_new(metadata, naming, first.len())?;
    for (index, descriptor) in (0..).zip(first) {
        let expected = (naming.0, index, 0, Some(Offset(0)), FIRST_EPOCH);
        let Descriptor { topic, partition, number, base_offset, epoch, .. } = descriptor;
        if (*topic, *partition, *number, *base_offset, *epoch) != expected {
            return Err(invalid(
                descriptor,
                format!("expected (topic, partition, number, base, epoch) {expected:?}"),
            ));
        }
        check_replicas(metadata, descriptor)?;
    }
    metadata.creations = count_creation(metadata, first.len() as u64, at_ms, naming.3)?;
    let segments = first.iter().map(|descriptor| open_segment(descriptor.clone(), at_ms, version)).collect();
    add_topic(metadata, naming, segments, version);
    Ok(Answer::Nothing)
}

/// Lists a topic again from what is left of it. Nobody leads that: each partition waits for a recoverer, as an adopted
/// successor does.
pub(super) fn recover_topic(
    metadata: &mut Metadata,
    naming: Naming<'_>,
    first: &[Descriptor],
    at_ms: u64,
    version: u64,
) -> Result<Answer, CommandRejection> {
    check_new(metadata, naming, first.len())?;
    let mut segments = Vec::with_capacity(first.len());
    for (index, descriptor) in (0..).zip(first) {
        let Descriptor { topic, partition, base_offset, epoch, replicas, write_quorum, .. } = descriptor;
        if (*topic, *partition) != (naming.0, index) || base_offset.is_none() {
            let expected = (naming.0, index);
            return Err(invalid(descriptor, format!("expected (topic, partition) {expected:?}, and a base")));
        }
        if *epoch > EPOCH_MAX || *write_quorum == 0 || *write_quorum as usize > replicas.len() {
            let what = format!("its epoch must be at most {EPOCH_MAX:?}, its write quorum 1 to its replicas");
            return Err(invalid(descriptor, what));
        }
        let mut adopted = open_segment(descriptor.clone(), at_ms, version);
        adopted.state = SegmentState::Sealing(Ballot::zero(*epoch));
        segments.push(adopted);
    }
    add_topic(metadata, naming, segments, version);
    Ok(Answer::Nothing)
}

fn check_new(
    metadata: &Metadata,
    (id, org, name, _): Naming<'_>,
    partitions: usize,
) -> Result<(), CommandRejection> {
    if !is_topic_name(name) {
        return Err(CommandRejection::InvalidTopicName { name: name.to_owned() });
    }
    if let Some(topic) = metadata.names.get(org).and_then(|names| names.get(name)) {
        return Err(CommandRejection::TopicExists { name: name.to_owned(), topic: *topic });
    }
    if metadata.topics.contains_key(&id) || metadata.deleted.contains(&id) {
        return Err(CommandRejection::TopicExists { name: name.to_owned(), topic: id });
    }
    if partitions == 0 || partitions > PARTITIONS_MAX {
        let (what, got) = ("partitions".to_owned(), partitions as u64);
        return Err(CommandRejection::OutOfRange { what, min: 1, max: PARTITIONS_MAX as u64, got });
    }
    Ok(())
}

/// Lists a topic whose partitions have one segment each.
fn add_topic(
    metadata: &mut Metadata,
    (id, org, name, internal): Naming<'_>,
    segments: Vec<Segment>,
    version: u64,
) {
    let partition = |(index, segment): (u32, Segment)| Partition {
        index,
        next_epoch: Epoch(segment.descriptor.epoch.0 + 1),
        trimmed_below: segment.descriptor.number,
        segments: vec![segment],
        version,
    };
    let partitions = (0..).zip(segments).map(partition).collect();
    let topic = Topic { id, org: org.to_owned(), name: name.to_owned(), internal, partitions };
    metadata.topics.insert(id, Arc::new(topic));
    metadata.names.entry(org.to_owned()).or_default().insert(name.to_owned(), id);
}

/// Counts a topic that is created now; refuses it where there would be too many. Walrus's own topics are never refused.
fn count_creation(
    metadata: &Metadata,
    partitions: u64,
    at_ms: u64,
    internal: bool,
) -> Result<Creations, CommandRejection> {
    let Creations { second, count } = metadata.creations;
    let now = at_ms / 1_000;
    // Proposers' clocks differ: the latest of them counts, unless it is so far ahead that it must be wrong.
    let is_ahead = second > now && second - now <= CLOCKS_APART_SECONDS_MAX;
    let (now, count) = if is_ahead || second == now { (second, count + 1) } else { (now, 1) };
    if metadata.level >= LIMITS_LEVEL && !internal {
        let max = metadata.config.creations_per_second_max();
        if count > max {
            return Err(CommandRejection::TooManyCreations { max });
        }
        let there: u64 = metadata.topics.values().map(|topic| topic.partitions.len() as u64).sum();
        let (would_be, max) = (there + partitions, metadata.config.partitions_max());
        if would_be > max {
            return Err(CommandRejection::TooManyPartitions { would_be, max });
        }
    }
    Ok(Creations { second: now, count })
}

/// Kafka's rule for topic names.
fn is_topic_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && name.bytes().all(allowed) && name != "." && name != ".."
}

pub(super) fn delete_topic(metadata: &mut Metadata, topic: TopicId) -> Result<Answer, CommandRejection> {
    let removed = metadata.topics.remove(&topic).ok_or(CommandRejection::UnknownTopic { topic })?;
    if let Some(names) = metadata.names.get_mut(&removed.org) {
        names.remove(&removed.name);
        if names.is_empty() {
            metadata.names.remove(&removed.org);
        }
    }
    metadata.deleted.insert(topic);
    Ok(Answer::Nothing)
}
