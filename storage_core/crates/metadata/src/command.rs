//! Commands: versioned JSON. Each compares before it sets: with the entity's version (`expect`), or with what it names
//! itself (a process, a successor's epoch, a segment's uuid).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use walrus_model::{
    Ballot, Descriptor, Digest, DiskId, NodeId, Offset, ProcessId, ReplicaRef, Replication, SegmentId,
    TopicId, Value,
};

use crate::compaction::{CompactionOffer, PassEnd, Replacement};
use crate::organisation::OrganisationLimits;
use crate::rejection::CommandRejection;
use crate::retention::Contents;
use crate::state::{Listener, NodeState, first_level, is_zero};

/// Version of the envelope's JSON. A newer one is rejected by every node alike.
pub const ENVELOPE_VERSION: u32 = 1;

/// A command as it is proposed and journaled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// [`ENVELOPE_VERSION`].
    pub v: u32,
    /// Identity of the proposal: one that comes twice acts once.
    pub id: Uuid,
    /// The proposer's clock, milliseconds since the epoch.
    pub at_ms: u64,
    /// Version that the changed node or partition must have; `None` where the command itself says what it replaces.
    #[serde(default)]
    pub expect: Option<u64>,
    /// The change that is proposed.
    pub command: Command,
}

impl Envelope {
    /// Reads a command as it was proposed and journaled. The version is looked at first, so that a newer one is named
    /// as such and not as malformed. `known` is the level up to which commands are taken: [`crate::LEVEL`].
    pub fn from_json(bytes: &[u8], known: u32) -> Result<Envelope, CommandRejection> {
        let malformed =
            |error: serde_json::Error| CommandRejection::Malformed { json_error: error.to_string() };
        let VersionOnly { v } = serde_json::from_slice(bytes).map_err(malformed)?;
        if v != ENVELOPE_VERSION {
            return Err(CommandRejection::UnsupportedVersion { got: v, supported: ENVELOPE_VERSION });
        }
        let envelope: Envelope = serde_json::from_slice(bytes).map_err(malformed)?;
        let got = envelope.command.level();
        if got > known {
            return Err(CommandRejection::UnsupportedLevel { got, supported: known });
        }
        Ok(envelope)
    }
}

#[derive(Deserialize)]
struct VersionOnly {
    v: u32,
}

/// A change of the metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Founds the cluster; only as the first command.
    Bootstrap {
        /// The cluster's identity.
        cluster_id: Uuid,
        /// Replication of new segments; one copy where it is absent.
        #[serde(default = "Replication::single")]
        replication: Replication,
    },
    /// Changes how segments that are opened from now on are replicated.
    SetReplication {
        /// n and w.
        replication: Replication,
    },
    /// Admits a disk, or says that a known disk runs as a new process or at new addresses. A known disk keeps its node id;
    /// a new one gets the wanted id if that is free, else the lowest free one. The answer names the id.
    RegisterNode {
        /// Wanted id.
        wanted: Option<NodeId>,
        /// Disk incarnation.
        disk: DiskId,
        /// Process incarnation.
        process: ProcessId,
        /// The new [`crate::Node::raft_address`].
        raft_address: String,
        /// The new [`crate::Node::peer_address`].
        peer_address: String,
        /// The new [`crate::Node::text_address`].
        text_address: String,
        /// The new [`crate::Node::grpc_address`].
        grpc_address: String,
        /// The new [`crate::Node::http_address`].
        http_address: String,
        /// The new [`crate::Node::admin_address`].
        #[serde(default)]
        admin_address: String,
        /// The new [`crate::Node::listeners`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        listeners: Vec<Listener>,
        /// The new [`crate::Node::name`].
        #[serde(default)]
        name: String,
        /// The new [`crate::Node::zone`].
        #[serde(default, skip_serializing_if = "String::is_empty")]
        zone: String,
        /// The new [`crate::Node::level`].
        #[serde(default = "first_level")]
        level: u32,
    },
    /// Renews the lease of a node; refused to an older process.
    RenewLease {
        /// Node.
        node: NodeId,
        /// Process incarnation.
        process: ProcessId,
        /// The new [`crate::Node::asked_boottime_ms`].
        #[serde(default)]
        asked_boottime_ms: u64,
        /// The new [`crate::Node::disk_bytes`]; 0 leaves it as it is.
        #[serde(default, skip_serializing_if = "is_zero")]
        disk_bytes: u64,
    },
    /// Marks a node full, up again or about to stop; refused to an older process. It changes nothing where the node drains, or is
    /// about to stop already.
    SetNodeState {
        /// Node.
        node: NodeId,
        /// Process incarnation.
        process: ProcessId,
        /// New state.
        state: NodeState,
    },
    /// Begins or cancels a drain: a draining node is given no new segments. The command names the disk it means, and
    /// changes nothing when it comes again.
    DrainNode {
        /// Node.
        node: NodeId,
        /// Disk incarnation.
        disk: DiskId,
        /// Whether the drain begins; else it is cancelled.
        draining: bool,
    },
    /// Takes a disk out of the cluster for good: it is refused when it shows up again. The command changes nothing when it
    /// comes again.
    RemoveNode {
        /// Node.
        node: NodeId,
        /// Disk incarnation.
        disk: DiskId,
        /// Whether the disk is lost with what it stored; else it must store nothing any more.
        lost: bool,
        /// The disk that came in its place; must be a member.
        #[serde(default)]
        replaced_by: Option<DiskId>,
    },
    /// Raises the level of commands that the cluster may use; refused as long as a member does not know it.
    RaiseLevel {
        /// New level.
        level: u32,
    },
    /// Changes cluster-wide settings; an expected version is that of [`crate::ClusterConfig`]. A change that sets what is
    /// set already keeps that version.
    SetConfig {
        /// Keys and their new values.
        set: BTreeMap<String, u64>,
        /// Keys that go back to each node's own option.
        unset: BTreeSet<String>,
    },
    /// Makes an organisation, or gives one other limits; an expected version is that of [`crate::Organisation`].
    SetOrganisation {
        /// Its name.
        name: String,
        /// All its limits.
        limits: OrganisationLimits,
    },
    /// Takes an organisation out that has no topics; changes nothing where there is none of that name.
    RemoveOrganisation {
        /// Its name.
        name: String,
    },
    /// Creates a topic, its partitions and their first segments. A name that exists is rejected (`TopicExists`).
    CreateTopic {
        /// Identity.
        topic: TopicId,
        /// The organisation whose topic it is; [`crate::INTERNAL_ORG`] where it is internal, whatever is said here.
        org: String,
        /// Name, as in [`crate::Topic`].
        name: String,
        /// Whether it is one of Walrus's own topics.
        internal: bool,
        /// Settings that it has from the beginning, by name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        config: BTreeMap<String, String>,
        /// One first segment for each partition, in order; `topic`, `partition`, `number` 0, base 0.
        first: Vec<Descriptor>,
    },
    /// Changes settings of a topic; an expected version is that of [`crate::TopicConfig`]. A change that sets what is set
    /// already keeps that version.
    AlterTopic {
        /// Topic.
        topic: TopicId,
        /// Names and their new values.
        set: BTreeMap<String, String>,
        /// Names that go back to the cluster's value, or to the one that is built in.
        unset: BTreeSet<String>,
    },
    /// Names a topic again whose creation this state has lost, from what disks have of it: see [`crate::lost_topics`].
    RecoverTopic {
        /// Identity; it is neither listed nor deleted.
        topic: TopicId,
        /// As in [`Command::CreateTopic`].
        org: String,
        /// Name, as in [`crate::Topic`].
        name: String,
        /// Whether it is one of Walrus's own topics.
        internal: bool,
        /// The first segment that is left of each partition, in order, its base known. Each becomes `sealing`: its replicas
        /// know where it ends, and what follows.
        first: Vec<Descriptor>,
    },
    /// Gives a topic more partitions.
    AddPartitions {
        /// Topic.
        topic: TopicId,
        /// The first segment of each new partition, in order, the first of them behind the topic's last one; refused as stale
        /// where the topic has another number meanwhile.
        first: Vec<Descriptor>,
    },
    /// Removes a topic from the catalogue, with all its segments.
    DeleteTopic {
        /// Identity.
        topic: TopicId,
    },
    /// Records that a disk has nothing any more of topics that were deleted. A topic of which no member's disk has anything
    /// is forgotten.
    ReportEmptied {
        /// The disk.
        replica: ReplicaRef,
        /// The topics; one that is not listed as deleted is passed over.
        topics: Vec<TopicId>,
    },
    /// Allots the successor of an open segment. A second one replaces the first, as long as nothing was sealed.
    BeginRoll {
        /// Topic.
        topic: TopicId,
        /// Partition.
        partition: u32,
        /// The segment that will be sealed.
        segment: SegmentId,
        /// The successor, base unknown, `number` one higher, `epoch` the partition's `next_epoch`.
        successor: Descriptor,
    },
    /// A recoverer takes an unsealed segment: `open | sealing -> sealing` at a ballot above the present one. Nothing is
    /// fenced before this is committed.
    BeginRecovery {
        /// Topic.
        topic: TopicId,
        /// Partition.
        partition: u32,
        /// The segment whose end is to be decided.
        segment: SegmentId,
        /// The attempt. Its epoch is at least the partition's `next_epoch`; higher where a refused fence named a higher one.
        ballot: Ballot,
        /// The segment that will follow if no successor was proposed before: base unknown, epoch at least the ballot's.
        successor: Descriptor,
    },
    /// Publishes the decided value of a segment: seals it and opens the successor. The same value again is accepted
    /// and changes nothing, another value is an alarm (`ValueConflict`), whatever version was expected. A successor that
    /// was never allotted here becomes `sealing`: this state has lost commands, and it may be sealed already.
    SealAndOpen {
        /// Topic.
        topic: TopicId,
        /// Partition.
        partition: u32,
        /// The sealed segment.
        segment: SegmentId,
        /// The value that its replicas decided.
        value: Value,
    },
    /// Changes who stores a sealed segment.
    SetCopies {
        /// Topic.
        topic: TopicId,
        /// Partition.
        partition: u32,
        /// The sealed segment.
        segment: SegmentId,
        /// Version of the segment that the proposer saw; the command is refused at any other.
        version: u64,
        /// Disks that are to make a copy.
        added: Vec<ReplicaRef>,
        /// Copies to give up: their holders delete them. The command is refused if fewer than w verified ones would stay. A
        /// copy on a disk that is gone is taken off the list at once, for nobody is left to delete it.
        given_up: Vec<ReplicaRef>,
    },
    /// Records what the holder of copies found on its disk.
    ReportCopies {
        /// The holder.
        replica: ReplicaRef,
        /// Its findings; those that do not fit the state any more are passed over.
        reports: Vec<CopyReport>,
    },
    /// Drops sealed segments below a number.
    Trim {
        /// Topic.
        topic: TopicId,
        /// Partition.
        partition: u32,
        /// First segment number to keep.
        below_number: u64,
        /// The segment of that number, its base known, where a node knows from its own tombstone that this trim was
        /// decided before: a state that has forgotten it takes it over, and the segment if it has forgotten that too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first: Option<Descriptor>,
    },
    /// Deletes the records of a topic below an offset, which nobody reads from then on. The proposer has made sure that each
    /// offset is at most the partition's end; one below the partition's start changes nothing.
    DeleteRecords {
        /// Topic.
        topic: TopicId,
        /// Where its partitions begin then.
        starts: Vec<PartitionStart>,
    },
    /// Records up to where a reader has read a topic, if the topic's retention asks for that reader. A mark may move back: somebody reads
    /// again.
    ReportRead {
        /// Topic.
        topic: TopicId,
        /// The reader's name, as the topic's settings name it.
        reader: String,
        /// The first offset that it lacks of each of these partitions; the others stay as they are.
        marks: Vec<ReadMark>,
    },
    /// Drops the segments that partitions have to let go by their topics' retention, as this state sees it when the command is
    /// applied: a proposer that knows less, or whose clock is ahead, drops nothing more.
    Expire {
        /// The partitions; one that has nothing to let go, or is not there any more, is passed over.
        partitions: Vec<PartitionPlace>,
    },
    /// Lists a segment that was written from neighbouring sealed ones, without the records that a later one of their key stands for.
    /// It takes their place as soon as its write quorum of copies is verified. One candidate of a partition is taken at a time.
    OfferCompaction {
        /// The partition.
        place: PartitionPlace,
        /// The candidate.
        offer: CompactionOffer,
    },
    /// Gives a candidate up; changes nothing where the partition has none of that identity.
    AbandonCompaction {
        /// The partition.
        place: PartitionPlace,
        /// The candidate.
        segment: SegmentId,
    },
    /// Puts a segment in the place of others that took it before, as a node knows from its disk: this state has forgotten it.
    RepeatCompaction {
        /// The partition.
        place: PartitionPlace,
        /// The segment, and whose place it takes.
        replacement: Box<Replacement>,
        /// Disks that are to have a copy.
        copies: Vec<ReplicaRef>,
    },
    /// Records the end of a pass of compaction over a partition.
    FinishCompaction {
        /// The partition.
        place: PartitionPlace,
        /// How far it came.
        end: PassEnd,
    },
    /// Records that a disk has the logs of unsealed segments, each with what was known of producers at its base; or that it remembers
    /// which of its copies took the place of other segments.
    ReportBegun {
        /// The disk.
        replica: ReplicaRef,
        /// The segments; one that is neither open on this disk any more nor took the place of others is passed over.
        segments: Vec<SegmentPlace>,
    },
}

/// Up to where a partition was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadMark {
    /// The partition.
    pub partition: u32,
    /// The first offset that the reader lacks.
    pub next: Offset,
}

/// A partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartitionPlace {
    /// Topic.
    pub topic: TopicId,
    /// Place in the topic.
    pub partition: u32,
}

/// The beginning of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionStart {
    /// Place in the topic.
    pub partition: u32,
    /// Its first offset.
    pub start: Offset,
}

/// A segment, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentPlace {
    /// Topic.
    pub topic: TopicId,
    /// Partition.
    pub partition: u32,
    /// Its identity.
    pub segment: SegmentId,
}

/// One finding of [`Command::ReportCopies`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyReport {
    /// Topic.
    pub topic: TopicId,
    /// Partition.
    pub partition: u32,
    /// The sealed segment.
    pub segment: SegmentId,
    /// The copy's [`crate::SegmentCopy::since`]; a report with any other is passed over.
    pub since: u64,
    /// How the copy is.
    pub found: Found,
    /// What a whole copy holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<Contents>,
}

/// The condition in which a holder finds a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// All of it is there, sealed.
    Whole {
        /// Digest of the copy's batches.
        digest: Digest,
    },
    /// It has damage that its holder cannot mend.
    Damaged,
    /// Nothing of it is there.
    Gone,
    /// Not all of it is there, and all nodes have said that they do not have the rest.
    Lost,
}
