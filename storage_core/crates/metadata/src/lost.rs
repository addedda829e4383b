//! Topics whose records lie on disks and which the metadata do not name, because the command that created them was lost
//! with a part of the metadata. Each disk says what it has; put together, that is enough to name the topic again.
//!
//! Only the first segment of each partition is adopted, as one whose end waits for a recoverer: its replicas know the
//! end and the next segment's descriptor, those of the next one the one behind it, and so on. So nothing is believed here
//! that the replicas did not decide.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use walrus_model::{Descriptor, Epoch, LeaderRef, Offset, ProcessId, ReplicaRef, SegmentId, TopicId};

use crate::command::Command;
use crate::organisation::DEFAULT_ORG;
use crate::placement::first_descriptor;
use crate::presence::Present;
use crate::state::Metadata;
use crate::topic_config::TopicConfig;

/// The facts that a disk was told of a topic when it made the first log of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicFacts {
    /// The organisation whose topic it was.
    pub org: String,
    /// Name, as in [`crate::Topic`].
    pub name: String,
    /// Whether it is one of Walrus's own topics.
    pub internal: bool,
    /// Number of partitions that it had.
    pub partitions: u32,
}

/// The remains on one disk of a topic that its node's metadata do not name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remains {
    /// The disk.
    pub replica: ReplicaRef,
    /// The topic.
    pub topic: TopicId,
    /// `None`: the disk was not told, or what it noted is not legible.
    pub facts: Option<TopicFacts>,
    /// Logs of its segments, and segments about which the disk has promised something.
    pub segments: Vec<SegmentRemains>,
}

/// A segment on one disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentRemains {
    /// Identity.
    pub segment: SegmentId,
    /// Partition it belongs to.
    pub partition: u32,
    /// Place in the partition.
    pub number: u64,
    /// First offset.
    pub base_offset: Offset,
    /// First offset behind what the disk has.
    pub end_offset: Offset,
    /// Epoch under which it was written.
    pub epoch: Epoch,
    /// Whether it was sealed here: its end, and what follows it, is decided.
    pub is_sealed: bool,
    /// Bytes of its batches.
    pub bytes: u64,
    /// The segment's descriptor, if the disk still has its vote about the segment.
    pub descriptor: Option<Descriptor>,
}

/// A topic that no metadata name, as all disks together have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostTopic {
    /// Identity; it stays the same.
    pub topic: TopicId,
    /// `None`: no disk knows its name.
    pub facts: Option<TopicFacts>,
    /// Partitions by index; as many as the facts say, and no fewer than were found.
    pub partitions: Vec<LostPartition>,
}

/// A partition of a lost topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostPartition {
    /// Place in the topic.
    pub index: u32,
    /// Its first segment that is left; `None`: no disk has anything of it.
    pub first: Option<Descriptor>,
    /// First offset that is left.
    pub begins: Offset,
    /// Highest offset that a disk has, plus one.
    pub ends: Offset,
    /// Bytes of the largest copy of each segment.
    pub bytes: u64,
    /// The segments of which each could be the first, where nobody can say which one is.
    pub ambiguity: Option<Ambiguity>,
}

/// Several segments of one number hold records, so none of them is known to be the first of its partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("several segments of number {number} hold records: {}", listed(segments))]
pub struct Ambiguity {
    /// Their number.
    pub number: u64,
    /// The segments.
    pub segments: Vec<SegmentId>,
}

fn listed(segments: &[SegmentId]) -> String {
    segments.iter().map(SegmentId::to_string).collect::<Vec<_>>().join(", ")
}

/// Why a lost topic cannot be named again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unrecoverable {
    /// No disk knows the topic's name, and none was given.
    #[error("no disk knows the name of topic {topic}: say which one it is to get")]
    NameUnknown {
        /// The topic.
        topic: TopicId,
    },
    /// Nobody can say which segment of the partition is the first.
    #[error("partition {partition}: {ambiguity}")]
    Ambiguous {
        /// Place of the partition in the topic.
        partition: u32,
        /// The segments of which each could be the first.
        ambiguity: Ambiguity,
    },
    /// Too few nodes are up for the first segment of an empty partition.
    #[error(
        "too few nodes are up to take partition {partition}, of which nothing is left: try again when more are"
    )]
    NoReplicas {
        /// Place of the partition in the topic.
        partition: u32,
    },
}

/// Puts together what the disks of all members have of topics that `metadata` do not name. A deleted topic is not lost:
/// its logs only wait to be removed.
#[must_use]
pub fn lost_topics(metadata: &Metadata, remains: &[Remains]) -> Vec<LostTopic> {
    let mut by_topic: BTreeMap<TopicId, Vec<&Remains>> = BTreeMap::new();
    for found in remains {
        let is_known = metadata.topics.contains_key(&found.topic) || metadata.deleted.contains(&found.topic);
        if !is_known && !metadata.gone_disks.contains(&found.replica.disk) {
            by_topic.entry(found.topic).or_default().push(found);
        }
    }
    let lost = |(topic, found): (TopicId, Vec<&Remains>)| {
        // A disk that has nothing of the partitions that were added was not told of them.
        let facts = found.iter().filter_map(|remains| remains.facts.as_ref());
        let facts = facts.max_by_key(|facts| facts.partitions).cloned();
        let seen = found.iter().flat_map(|remains| &remains.segments).map(|segment| segment.partition + 1);
        let count = facts.as_ref().map_or(0, |facts| facts.partitions).max(seen.max().unwrap_or(0));
        let partitions = (0..count).map(|index| lost_partition(metadata, topic, index, &found)).collect();
        LostTopic { topic, facts, partitions }
    };
    by_topic.into_iter().map(lost).collect()
}

/// The command that names a lost topic again, under `name` where one is given. `fresh` makes identities for the first
/// segments of partitions of which nothing is left.
pub fn recover_topic(
    metadata: &Metadata,
    lost: &LostTopic,
    name: Option<&str>,
    fresh: impl Fn() -> SegmentId,
    present: &Present,
) -> Result<Command, Unrecoverable> {
    let facts = match (&lost.facts, name) {
        (Some(facts), None) => facts.clone(),
        (Some(facts), Some(name)) => TopicFacts { name: name.to_owned(), ..facts.clone() },
        (None, Some(name)) => TopicFacts {
            org: DEFAULT_ORG.to_owned(),
            name: name.to_owned(),
            internal: false,
            partitions: 0, // as many as were found
        },
        (None, None) => return Err(Unrecoverable::NameUnknown { topic: lost.topic }),
    };
    let first = |partition: &LostPartition| {
        if let Some(ambiguity) = partition.ambiguity.clone() {
            return Err(Unrecoverable::Ambiguous { partition: partition.index, ambiguity });
        }
        let found = partition.first.clone();
        found
            .or_else(|| {
                let place = (lost.topic, partition.index, fresh());
                first_descriptor(metadata, &TopicConfig::default(), place, present)
            })
            .ok_or(Unrecoverable::NoReplicas { partition: partition.index })
    };
    let first = lost.partitions.iter().map(first).collect::<Result<_, _>>()?;
    let TopicFacts { org, name, internal, .. } = facts;
    Ok(Command::RecoverTopic { topic: lost.topic, org, name, internal, first })
}

fn lost_partition(metadata: &Metadata, topic: TopicId, index: u32, found: &[&Remains]) -> LostPartition {
    let of_disk = |remains: &&Remains| {
        let replica = remains.replica;
        let segments = remains.segments.clone();
        segments.into_iter().filter(move |one| one.partition == index).map(move |one| (replica, one))
    };
    let all: Vec<(ReplicaRef, SegmentRemains)> = found.iter().flat_map(of_disk).collect();
    let mut largest: BTreeMap<SegmentId, u64> = BTreeMap::new();
    for (_, one) in &all {
        let bytes = largest.entry(one.segment).or_default();
        *bytes = one.bytes.max(*bytes);
    }
    let mut partition = LostPartition {
        index,
        first: None,
        begins: Offset(0),
        ends: all.iter().map(|(_, one)| one.end_offset).max().unwrap_or(Offset(0)),
        bytes: largest.values().sum(),
        ambiguity: None,
    };
    let Some(number) = all.iter().map(|(_, one)| one.number).min() else { return partition };
    let candidates: Vec<&(ReplicaRef, SegmentRemains)> =
        all.iter().filter(|(_, one)| one.number == number).collect();
    let written = |one: &SegmentRemains| one.end_offset > one.base_offset || one.is_sealed;
    let with_records: BTreeSet<SegmentId> =
        candidates.iter().filter(|(_, one)| written(one)).map(|(_, one)| one.segment).collect();
    // A successor that another one replaced was prepared on disks, and never written.
    let segment = match with_records.len() {
        0 => candidates.iter().max_by_key(|(_, one)| one.epoch).map(|(_, one)| one.segment),
        1 => with_records.first().copied(),
        _ => {
            let segments = with_records.into_iter().collect();
            partition.ambiguity = Some(Ambiguity { number, segments });
            return partition;
        }
    };
    let copies: Vec<&(ReplicaRef, SegmentRemains)> =
        candidates.into_iter().filter(|(_, one)| Some(one.segment) == segment).collect();
    let Some((_, any)) = copies.first() else { return partition };
    partition.begins = any.base_offset;
    let recorded = copies.iter().find_map(|(_, one)| one.descriptor.clone());
    let made_up = || {
        let replicas: Vec<ReplicaRef> = copies.iter().map(|(replica, _)| *replica).collect();
        let quorum = usize::try_from(metadata.replication.write_quorum).unwrap_or(usize::MAX);
        Descriptor {
            id: any.segment,
            topic,
            partition: index,
            number,
            base_offset: None,
            epoch: any.epoch,
            // Whoever led it does not any more: an adopted segment is not led, it is recovered.
            leader: LeaderRef { node: replicas[0].node, process: ProcessId::from_u128(0) },
            write_quorum: u32::try_from(quorum.min(replicas.len())).unwrap_or(1),
            replicas,
            fsync: None,
        }
    };
    let descriptor = recorded.unwrap_or_else(made_up);
    partition.first = Some(Descriptor { base_offset: Some(any.base_offset), ..descriptor });
    partition
}
