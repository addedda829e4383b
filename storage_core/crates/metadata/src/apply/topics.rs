//! Commands about topics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use walrus_model::{Ballot, Descriptor, Epoch, Offset, ReplicaRef, TopicId};

use super::copies::check_disk;
use super::segments::{EPOCH_MAX, check_replicas, invalid, open_segment};
use crate::answer::Answer;
use crate::levels::{LIMITS_LEVEL, ORGANISATIONS_LEVEL};
use crate::organisation::{INTERNAL_ORG, OrganisationLimits};
use crate::placement::FIRST_EPOCH;
use crate::rejection::CommandRejection;
use crate::request::check_topic_partitions;
use crate::retention::ReadMarks;
use crate::segment::{Segment, SegmentState};
use crate::state::{Compaction, Metadata, Partition, Topic};
use crate::topic_config::TopicConfig;

/// The identity of a topic, how it is called, and whose it is.
pub(super) struct Naming<'a> {
    id: TopicId,
    org: &'a str,
    name: &'a str,
    internal: bool,
}

impl<'a> Naming<'a> {
    /// Walrus's own topics have their place whatever organisation is named, once all members know of it.
    pub(super) fn new(metadata: &Metadata, id: TopicId, org: &'a str, name: &'a str, internal: bool) -> Self {
        let has_place = internal && metadata.level >= ORGANISATIONS_LEVEL;
        Self { id, org: if has_place { INTERNAL_ORG } else { org }, name, internal }
    }
}

pub(super) fn create_topic(
    metadata: &mut Metadata,
    naming: &Naming<'_>,
    config: &BTreeMap<String, String>,
    first: &[Descriptor],
    (at_ms, version): (u64, u64),
) -> Result<Answer, CommandRejection> {
    check_new(metadata, naming, first.len())?;
    let config = TopicConfig::new(config, version)?;
    check_first(metadata, naming.id, 0, first)?;
    count_creation(metadata, naming, first.len() as u64, at_ms)?;
    let segments = first.iter().map(|descriptor| open_segment(descriptor.clone(), at_ms, version)).collect();
    add_topic(metadata, naming, config, segments, version);
    Ok(Answer::Nothing)
}

/// Checks the first segments of partitions that are made now, the first of which is to have the place `from`.
fn check_first(
    metadata: &Metadata,
    topic: TopicId,
    from: u32,
    first: &[Descriptor],
) -> Result<(), CommandRejection> {
    for (index, descriptor) in (from..).zip(first) {
        let expected = (topic, index, 0, Some(Offset(0)), FIRST_EPOCH);
        let Descriptor { topic, partition, number, base_offset, epoch, .. } = descriptor;
        if (*topic, *partition, *number, *base_offset, *epoch) != expected {
            return Err(invalid(
                descriptor,
                format!("expected (topic, partition, number, base, epoch) {expected:?}"),
            ));
        }
        check_replicas(metadata, descriptor)?;
    }
    Ok(())
}

/// Gives a topic more partitions: all of these or none.
pub(super) fn add_partitions(
    metadata: &mut Metadata,
    topic: TopicId,
    first: &[Descriptor],
    (at_ms, version): (u64, u64),
) -> Result<Answer, CommandRejection> {
    let found = metadata.topics.get(&topic).ok_or(CommandRejection::UnknownTopic { topic })?;
    let there = found.partition_count();
    if first.first().is_some_and(|next| next.partition != there) {
        return Err(CommandRejection::PartitionsChanged { topic, partitions: there });
    }
    check_count(found.partitions.len() + first.len())?;
    check_first(metadata, topic, there, first)?;
    if !found.internal {
        check_partitions(metadata, &found.org, first.len() as u64)?;
    }
    let Metadata { topics, sizes, leads, .. } = metadata;
    let found = topics.get_mut(&topic).map(Arc::make_mut).ok_or(CommandRejection::UnknownTopic { topic })?;
    for descriptor in first {
        if found.has_standing_leaders() {
            leads.add(descriptor.leader.node);
        }
        let added = new_partition(open_segment(descriptor.clone(), at_ms, version), version);
        found.partitions.push_back(Arc::new(added));
    }
    sizes.add_partitions(&found.org, first.len());
    Ok(Answer::Nothing)
}

pub(super) fn alter_topic(
    metadata: &mut Metadata,
    topic: TopicId,
    set: &BTreeMap<String, String>,
    unset: &BTreeSet<String>,
    version: u64,
) -> Result<Answer, CommandRejection> {
    let Metadata { topics, leads, .. } = metadata;
    let found = topics.get_mut(&topic).ok_or(CommandRejection::UnknownTopic { topic })?;
    let mut config = found.config.clone();
    config.change(set, unset, version)?;
    let version = config.version;
    if config != found.config {
        found.standing_leaders().for_each(|node| leads.remove(node));
        let changed = Arc::make_mut(found);
        changed.read.keep(|reader| config.asks_reader(reader));
        changed.config = config;
        found.standing_leaders().for_each(|node| leads.add(node));
    }
    Ok(Answer::Config { version })
}

/// Lists a topic again from what is left of it. Nobody leads that: each partition waits for a recoverer, as an adopted
/// successor does.
pub(super) fn recover_topic(
    metadata: &mut Metadata,
    naming: &Naming<'_>,
    first: &[Descriptor],
    at_ms: u64,
    version: u64,
) -> Result<Answer, CommandRejection> {
    check_new(metadata, naming, first.len())?;
    let mut segments = Vec::with_capacity(first.len());
    for (index, descriptor) in (0..).zip(first) {
        let Descriptor { topic, partition, base_offset, epoch, replicas, write_quorum, .. } = descriptor;
        if (*topic, *partition) != (naming.id, index) || base_offset.is_none() {
            let expected = (naming.id, index);
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
    add_topic(metadata, naming, TopicConfig::default(), segments, version);
    Ok(Answer::Nothing)
}

fn check_new(
    metadata: &Metadata,
    &Naming { id, org, name, internal }: &Naming<'_>,
    partitions: usize,
) -> Result<(), CommandRejection> {
    let is_listed = internal || metadata.organisations.contains_key(org);
    if metadata.level >= ORGANISATIONS_LEVEL && !is_listed {
        return Err(CommandRejection::UnknownOrganisation { name: org.to_owned() });
    }
    if !is_topic_name(name) {
        return Err(CommandRejection::InvalidTopicName { name: name.to_owned() });
    }
    if let Some(topic) = metadata.names.get(org).and_then(|names| names.get(name)) {
        return Err(CommandRejection::TopicExists { name: name.to_owned(), topic: *topic });
    }
    if metadata.topics.contains_key(&id) || metadata.deleted.contains(&id) {
        return Err(CommandRejection::TopicExists { name: name.to_owned(), topic: id });
    }
    check_count(partitions)
}

/// Checks the number of a topic's partitions.
fn check_count(partitions: usize) -> Result<(), CommandRejection> {
    check_topic_partitions(u32::try_from(partitions).unwrap_or(u32::MAX))
}

/// Lists a topic whose partitions have one segment each.
fn add_topic(
    metadata: &mut Metadata,
    &Naming { id, org, name, internal }: &Naming<'_>,
    config: TopicConfig,
    segments: Vec<Segment>,
    version: u64,
) {
    let partitions = segments.into_iter().map(|segment| Arc::new(new_partition(segment, version))).collect();
    let topic = Topic {
        id,
        org: org.to_owned(),
        name: name.to_owned(),
        internal,
        config,
        read: ReadMarks::default(),
        partitions,
    };
    metadata.sizes.add(org, topic.partitions.len());
    topic.standing_leaders().for_each(|node| metadata.leads.add(node));
    metadata.topics.insert(id, Arc::new(topic));
    metadata.names.entry(org.to_owned()).or_default().insert(name.to_owned(), id);
}

/// A partition that begins with this segment.
fn new_partition(segment: Segment, version: u64) -> Partition {
    Partition {
        index: segment.descriptor.partition,
        next_epoch: Epoch(segment.descriptor.epoch.0 + 1),
        trimmed_below: segment.descriptor.number,
        start: Offset(0),
        segments: vec![segment],
        compaction: Compaction::default(),
        version,
    }
}

/// Counts a topic that is created now; refuses it where the cluster or its organisation would have too many. Walrus's own
/// topics are never refused.
fn count_creation(
    metadata: &mut Metadata,
    &Naming { org, internal, .. }: &Naming<'_>,
    partitions: u64,
    at_ms: u64,
) -> Result<(), CommandRejection> {
    let creations = metadata.creations.with_one_at(at_ms);
    if metadata.level >= LIMITS_LEVEL && !internal {
        let max = metadata.config.creations_per_second_max();
        if creations.count > max {
            return Err(CommandRejection::TooManyCreations { max });
        }
    }
    let organisation = metadata.organisations.get(org);
    let of_org = organisation.map(|found| (found.limits, found.creations.with_one_at(at_ms)));
    if let Some((limits, creations)) = of_org {
        check_limits(metadata, (org, limits), creations.count)?;
    }
    if !internal {
        check_partitions(metadata, org, partitions)?;
    }
    if let (Some((_, creations)), Some(organisation)) = (of_org, metadata.organisations.get_mut(org)) {
        organisation.creations = creations;
    }
    metadata.creations = creations;
    Ok(())
}

/// Refuses new partitions of which the cluster, or the organisation, would have too many.
fn check_partitions(metadata: &Metadata, org: &str, new: u64) -> Result<(), CommandRejection> {
    let (would_be, max) = (metadata.sizes.cluster().partitions + new, metadata.config.partitions_max());
    if metadata.level >= LIMITS_LEVEL && would_be > max {
        return Err(CommandRejection::TooManyPartitions { would_be, max });
    }
    let limit = metadata.organisations.get(org).and_then(|found| found.limits.partitions_max);
    check_full(org, "partitions", metadata.sizes.of_org(org).partitions + new, limit)
}

/// Refuses a topic whose organisation would have more than it may, or has created `created` in this second, this one counted.
fn check_limits(
    metadata: &Metadata,
    (org, limits): (&str, OrganisationLimits),
    created: u64,
) -> Result<(), CommandRejection> {
    if let Some(max) = limits.creations_per_second_max.filter(|max| created > *max) {
        return Err(CommandRejection::OrganisationTooFast { name: org.to_owned(), max });
    }
    check_full(org, "topics", metadata.sizes.of_org(org).topics + 1, limits.topics_max)
}

fn check_full(org: &str, what: &str, would_be: u64, max: Option<u64>) -> Result<(), CommandRejection> {
    match max {
        Some(max) if would_be > max => {
            let (name, what) = (org.to_owned(), what.to_owned());
            Err(CommandRejection::OrganisationFull { name, what, would_be, max })
        }
        _ => Ok(()),
    }
}

/// Kafka's rule for topic names.
fn is_topic_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && name.bytes().all(allowed) && name != "." && name != ".."
}

pub(super) fn delete_topic(metadata: &mut Metadata, topic: TopicId) -> Result<Answer, CommandRejection> {
    let removed = metadata.topics.remove(&topic).ok_or(CommandRejection::UnknownTopic { topic })?;
    metadata.sizes.remove(&removed.org, removed.partitions.len());
    removed.standing_leaders().for_each(|node| metadata.leads.remove(node));
    if let Some(names) = metadata.names.get_mut(&removed.org) {
        names.remove(&removed.name);
        if names.is_empty() {
            metadata.names.remove(&removed.org);
        }
    }
    metadata.deleted.insert(topic);
    Ok(Answer::Nothing)
}

/// Notes that a disk has nothing any more of deleted topics, and forgets those of which no member's disk has anything.
pub(super) fn report_emptied(
    metadata: &mut Metadata,
    replica: ReplicaRef,
    topics: &[TopicId],
) -> Result<Answer, CommandRejection> {
    check_disk(metadata, replica)?;
    for topic in topics.iter().filter(|topic| metadata.deleted.contains(*topic)) {
        metadata.emptied.entry(*topic).or_default().insert(replica.disk);
    }
    forget_emptied(metadata, topics);
    Ok(Answer::Nothing)
}

/// Forgets those of these deleted topics of which no member's disk has anything. A disk that was taken out of the cluster is
/// never asked: it is refused when it shows up again.
pub(super) fn forget_emptied(metadata: &mut Metadata, topics: &[TopicId]) {
    let Metadata { nodes, deleted, emptied, .. } = metadata;
    for topic in topics {
        let Some(disks) = emptied.get(topic) else { continue };
        if nodes.values().all(|node| disks.contains(&node.disk)) {
            deleted.remove(topic);
            emptied.remove(topic);
        }
    }
}
