//! Why a command is rejected. A rejection is a value: every node rejects the same command alike.

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use walrus_model::{DiskId, Epoch, NodeId, ProcessId, SegmentId, TopicId};

use crate::topic_config::{SettingProblem, WrongSetting};

/// The metadata's verdict on a command that they do not take: it changed nothing, on any node. A request that fails may have
/// other causes, and may have been carried out all the same: see [`crate::RequestError`].
///
/// A rejection is serialised as `{"reason": "TopicExists", ...facts}`, on disks too: snapshots of the metadata remember the
/// outcomes of the last commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "reason")]
pub enum CommandRejection {
    /// The bytes are not the JSON of a command.
    #[error("the command is malformed: {json_error}")]
    Malformed {
        /// The words of the JSON parser.
        #[serde(rename = "what")]
        json_error: String,
    },
    /// A newer node proposed it.
    #[error("the command has version {got}, this node knows up to {supported}: upgrade it")]
    UnsupportedVersion {
        /// Version of the command.
        got: u32,
        /// Newest known.
        supported: u32,
    },
    /// A newer node proposed it, though the cluster's level does not allow it.
    #[error("the command has level {got}, this node knows up to {supported}: upgrade it")]
    UnsupportedLevel {
        /// Level of the command.
        got: u32,
        /// Newest known.
        supported: u32,
    },
    /// The cluster has not reached the command's level: some member may not know such commands.
    #[error(
        "it needs commands of level {needed}, the cluster is at level {level}: upgrade all nodes, or remove those that are gone"
    )]
    LevelNotReached {
        /// Level of the command.
        needed: u32,
        /// Level of the cluster.
        level: u32,
    },
    /// The cluster cannot be raised to that level, for this member does not know its commands.
    #[error("node {node:?} knows commands up to level {knows}, not {needed}")]
    LevelUnknown {
        /// The node.
        node: NodeId,
        /// Highest level that it knows.
        knows: u32,
        /// Level that was asked for.
        needed: u32,
    },
    /// The node that registers does not know commands that the cluster uses.
    #[error("the cluster uses commands of level {needed}, this node knows up to {knows}: upgrade it")]
    TooOld {
        /// Highest level that the node knows.
        knows: u32,
        /// Level of the cluster.
        needed: u32,
    },
    /// Nobody could dial this address.
    #[error("{address:?} is no address: HOST:PORT was expected, such as node-1:6000 or [::1]:6000")]
    BadAddress {
        /// The address that was given, up to its 253rd character.
        address: String,
    },
    /// The cluster has no identity yet.
    #[error("the cluster is not bootstrapped: start one node with --bootstrap")]
    NotBootstrapped,
    /// The cluster was founded before.
    #[error("the cluster is bootstrapped already, its id is {cluster_id}")]
    AlreadyBootstrapped {
        /// Its identity.
        cluster_id: Uuid,
    },
    /// The entity changed since the proposer looked.
    #[error("expected version {expected}, it is {current}: read again and decide again")]
    VersionMismatch {
        /// Version that the proposer expected.
        expected: u64,
        /// Version that the entity has.
        current: u64,
    },
    /// No such node.
    #[error("node {node:?} is not a member")]
    UnknownNode {
        /// Its id.
        node: NodeId,
    },
    /// Another process of that node has registered.
    #[error("node {node:?} runs as process {current}, not {got}")]
    StaleProcess {
        /// The node.
        node: NodeId,
        /// Registered process.
        current: ProcessId,
        /// The proposer's.
        got: ProcessId,
    },
    /// The name is taken.
    #[error("topic {name} exists")]
    TopicExists {
        /// The name.
        name: String,
        /// The topic that has it.
        topic: TopicId,
    },
    /// All topics together would have too many partitions.
    #[error(
        "there would be {would_be} partitions, `topics.partitions_max` is {max}: delete topics, or raise it"
    )]
    TooManyPartitions {
        /// Partitions with this topic.
        would_be: u64,
        /// The limit.
        max: u64,
    },
    /// Too many topics were created in this second.
    #[error("more than {max} topics in a second, `topics.creations_per_second_max`: try again later")]
    TooManyCreations {
        /// The limit.
        max: u64,
    },
    /// The name breaks the rule for topic names.
    #[error("{name:?} is not a topic name: 1 to 249 characters of [A-Za-z0-9._-], not \".\" or \"..\"")]
    InvalidTopicName {
        /// The name that was asked for.
        name: String,
    },
    /// The name breaks the rule for names of organisations.
    #[error(
        "{name:?} is not a name of an organisation: 1 to 63 characters of [A-Za-z0-9._-], the first one a letter or digit"
    )]
    InvalidOrganisationName {
        /// The name that was asked for.
        name: String,
    },
    /// The name breaks the rule for names of listeners.
    #[error(
        "{name:?} is not a name of a listener: 1 to 63 characters of [A-Za-z0-9._-], the first one a letter or digit"
    )]
    InvalidListenerName {
        /// The name that was told.
        name: String,
    },
    /// The name breaks the rule for names of zones.
    #[error(
        "{name:?} is not a name of a zone: 1 to 63 characters of [A-Za-z0-9._-], the first one a letter or digit"
    )]
    InvalidZoneName {
        /// The name that was told.
        name: String,
    },
    /// No such organisation.
    #[error("there is no organisation {name:?}: an administrator must make it first")]
    UnknownOrganisation {
        /// Its name.
        name: String,
    },
    /// Only an organisation without topics can be removed.
    #[error("organisation {name} has {topics} topics: delete them first")]
    OrganisationHasTopics {
        /// Its name.
        name: String,
        /// Number of its topics.
        topics: u64,
    },
    /// The organisation would have more than it may.
    #[error(
        "organisation {name} would have {would_be} {what}, its limit is {max}: delete topics, or raise it"
    )]
    OrganisationFull {
        /// Its name.
        name: String,
        /// What there would be too many of: `topics` or `partitions`.
        what: String,
        /// How many there would be.
        would_be: u64,
        /// The limit.
        max: u64,
    },
    /// Too many topics of the organisation were created in this second.
    #[error("organisation {name} may create {max} topics in a second: try again later")]
    OrganisationTooFast {
        /// Its name.
        name: String,
        /// The limit.
        max: u64,
    },
    /// No such topic.
    #[error("no topic {topic:?}")]
    UnknownTopic {
        /// Its identity.
        topic: TopicId,
    },
    /// The leader of a segment that would be opened is about to stop.
    #[error("node {node:?} is about to stop and leads no new segment: read again and decide again")]
    LeaderStops {
        /// The node.
        node: NodeId,
    },
    /// The topic has another number of partitions than the proposer saw.
    #[error("topic {topic:?} has {partitions} partitions: read again and decide again")]
    PartitionsChanged {
        /// The topic.
        topic: TopicId,
        /// Number of its partitions.
        partitions: u32,
    },
    /// A topic can only be given more partitions.
    #[error(
        "the topic has {partitions} partitions and cannot have {wanted}: partitions are never taken away"
    )]
    FewerPartitions {
        /// Number of its partitions.
        partitions: u32,
        /// The number that was asked for.
        wanted: u32,
    },
    /// No such partition.
    #[error("topic {topic:?} has no partition {partition}")]
    UnknownPartition {
        /// Its topic.
        topic: TopicId,
        /// Asked for.
        partition: u32,
    },
    /// No such segment in the partition.
    #[error("the partition has no segment {segment}")]
    UnknownSegment {
        /// Asked for.
        segment: SegmentId,
    },
    /// The segment takes no successor any more.
    #[error("segment {segment} is not open")]
    NotOpen {
        /// The segment.
        segment: SegmentId,
    },
    /// Its end is decided: there is nothing to recover, and no version to compare.
    #[error("segment {segment} is sealed")]
    Sealed {
        /// The segment.
        segment: SegmentId,
    },
    /// Only a sealed segment's copies are changed: an open segment is rolled instead.
    #[error("segment {segment} is not sealed: roll it instead")]
    NotSealed {
        /// The segment.
        segment: SegmentId,
    },
    /// Another attempt has a higher ballot.
    #[error(
        "the ballot is not above the present one, of epoch {current:?}: read again and take a higher epoch"
    )]
    StaleBallot {
        /// Epoch of the attempt that holds the segment.
        current: Epoch,
    },
    /// A node stores a segment once.
    #[error("node {node:?} has a copy of segment {segment} already, or is giving one up: read again")]
    HasCopy {
        /// The segment.
        segment: SegmentId,
        /// The node.
        node: NodeId,
    },
    /// Too few verified copies would be left.
    #[error("{left} verified copies of segment {segment} would be left, {needed} must stay")]
    TooFewCopies {
        /// The segment.
        segment: SegmentId,
        /// Verified copies that would be left.
        left: u32,
        /// Verified copies that must stay.
        needed: u32,
    },
    /// The successor's epoch was handed out already.
    #[error("epoch {got:?} is used, the next one is {next:?}")]
    StaleEpoch {
        /// Epoch that was proposed.
        got: Epoch,
        /// Lowest epoch that is free.
        next: Epoch,
    },
    /// The descriptor contradicts the state.
    #[error("the descriptor of segment {segment} is wrong: {what}")]
    InvalidDescriptor {
        /// The segment.
        segment: SegmentId,
        /// What is wrong with it, in words: members of any version read them in snapshots.
        what: String,
    },
    /// Alarm: two values were decided for one segment. Must never happen.
    #[error("segment {segment} is sealed with another value: the replicas disagree")]
    ValueConflict {
        /// The segment.
        segment: SegmentId,
    },
    /// Only sealed segments can be trimmed.
    #[error("cannot trim below segment {below_number}: the first segment that must stay is {limit}")]
    NotTrimmable {
        /// Asked for.
        below_number: u64,
        /// Highest possible.
        limit: u64,
    },
    /// The partition has a candidate of a compaction already.
    #[error("segment {segment} is about to take the place of others in this partition: wait for it")]
    CompactionUnderWay {
        /// The candidate.
        segment: SegmentId,
    },
    /// The segments cannot be replaced by that one.
    #[error("segment {segment} cannot take the place of others: {problem}")]
    NotCompactable {
        /// The segment that was to take their place.
        segment: SegmentId,
        /// What is wrong, in words: members of any version read them in snapshots.
        problem: String,
    },
    /// The disk was given up.
    #[error("disk {disk} was declared gone: empty it, so that it gets a new identity")]
    DiskGone {
        /// Disk incarnation.
        disk: DiskId,
    },
    /// The disk that was meant is not this node's or, as its replacement, no other member's. The two have one name, since
    /// members of any version read it in snapshots.
    #[error(
        "disk {got} is not node {node:?}'s, or no other member's where it is to replace that: look again at who is a member"
    )]
    OtherDisk {
        /// The node.
        node: NodeId,
        /// The disk that was meant.
        got: DiskId,
    },
    /// The node's disk stores segments and was not said to be lost.
    #[error("node {node:?} still stores {segments} segments: drain it, or say that its disk is lost")]
    StillStores {
        /// The node.
        node: NodeId,
        /// Number of segments that it stores.
        segments: u64,
    },
    /// There is no setting of that name, or it does not take this value.
    #[error("config {key}: {what}")]
    InvalidConfig {
        /// The key.
        key: String,
        /// What is wrong, and what would be right, in words: members of any version read them in snapshots.
        what: String,
    },
    /// A topic cannot have this setting.
    #[error("topic setting {name}: {problem}")]
    InvalidTopicConfig {
        /// The name that was given, shortened.
        name: String,
        /// What is wrong with it, or with its value.
        problem: SettingProblem,
    },
    /// A count is out of its range.
    #[error("{what} must be between {min} and {max}, not {got}")]
    OutOfRange {
        /// Name of the field.
        what: String,
        /// Lowest allowed value.
        min: u64,
        /// Highest allowed value.
        max: u64,
        /// The value that was given.
        got: u64,
    },
}

impl From<WrongSetting> for CommandRejection {
    fn from(WrongSetting { name, problem }: WrongSetting) -> Self {
        Self::InvalidTopicConfig { name, problem }
    }
}

impl CommandRejection {
    /// Whether the metadata have moved on since the command was built from them: the same request may be taken when it is
    /// built anew.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        matches!(
            self,
            Self::StaleBallot { .. }
                | Self::StaleEpoch { .. }
                | Self::StaleProcess { .. }
                | Self::LeaderStops { .. }
                | Self::PartitionsChanged { .. }
                | Self::UnknownNode { .. }
                | Self::VersionMismatch { .. }
        )
    }

    /// The refusal's stable name, as in its JSON.
    #[must_use]
    pub fn reason(&self) -> String {
        let json = serde_json::to_value(self).expect("facts have only keys that are strings in JSON");
        json["reason"].as_str().expect("the tag is there").to_owned()
    }
}
