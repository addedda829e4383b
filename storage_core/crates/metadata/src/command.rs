//! Commands: versioned JSON. Each compares before it sets: with the entity's version (`expect`), or with what it names
//! itself (a process, a successor's epoch, a segment's uuid).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use walrus_model::{
    Ballot, Descriptor, Digest, DiskId, NodeId, ProcessId, ReplicaRef, Replication, SegmentId, TopicId, Value,
};

use crate::levels::first_level;
use crate::rejected::Rejected;
use crate::state::NodeState;

/// Version of the envelope's JSON. A newer one is rejected by every node alike.
pub const ENVELOPE_VERSION: u32 = 1;

/// A command as it is proposed and journaled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// [`ENVELOPE_VERSION`].
    pub v: u32,
    /// A proposal that comes twice under one id acts once.
    pub id: Uuid,
    /// The proposer's clock, milliseconds since the epoch.
    pub at_ms: u64,
    /// Version that the changed node or partition must have; `None` where the command itself says what it replaces.
    #[serde(default)]
    pub expect: Option<u64>,
    /// What to do.
    pub command: Command,
}

impl Envelope {
    /// Reads a command as it was proposed and journaled. The version is looked at first, so that a newer one is named
    /// as such and not as malformed. `known` is the level up to which commands are taken: [`crate::LEVEL`].
    pub fn from_json(bytes: &[u8], known: u32) -> Result<Envelope, Rejected> {
        let malformed = |error: serde_json::Error| Rejected::Malformed { what: error.to_string() };
        let VersionOnly { v } = serde_json::from_slice(bytes).map_err(malformed)?;
        if v != ENVELOPE_VERSION {
            return Err(Rejected::UnsupportedVersion { got: v, supported: ENVELOPE_VERSION });
        }
        let envelope: Envelope = serde_json::from_slice(bytes).map_err(malformed)?;
        let got = envelope.command.level();
        if got > known {
            return Err(Rejected::UnsupportedLevel { got, supported: known });
        }
        Ok(envelope)
    }
}

#[derive(Deserialize)]
struct VersionOnly {
    v: u32,
}

/// What can be done to the metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Founds the cluster; only as the first command.
    Bootstrap {
        /// The cluster's identity.
        cluster_id: Uuid,
        /// How segments are replicated; absent: one copy.
        #[serde(default = "Replication::single")]
        replication: Replication,
    },
    /// Changes how segments that are opened from now on are replicated.
    SetReplication {
        /// n and w.
        replication: Replication,
    },
    /// Admits a disk, or says that a known disk runs as a new process or at new addresses. The node id is the wanted
    /// one if it is free or the disk's own, else the lowest free one; the answer names it.
    RegisterNode {
        /// Wanted id.
        wanted: Option<NodeId>,
        /// Disk incarnation.
        disk: DiskId,
        /// Process incarnation.
        process: ProcessId,
        /// See [`crate::Node`].
        raft_address: String,
        /// See [`crate::Node`].
        peer_address: String,
        /// See [`crate::Node`].
        text_address: String,
        /// See [`crate::Node`].
        grpc_address: String,
        /// See [`crate::Node`].
        http_address: String,
        /// See [`crate::Node`].
        #[serde(default)]
        admin_address: String,
        /// See [`crate::Node`].
        #[serde(default)]
        name: String,
        /// See [`crate::Node`].
        #[serde(default = "first_level")]
        level: u32,
    },
    /// Renews the lease of a node; refused to an older process.
    RenewLease {
        /// Node.
        node: NodeId,
        /// Process incarnation.
        process: ProcessId,
        /// See [`crate::Node`].
        #[serde(default)]
        asked_boottime_ms: u64,
    },
    /// Marks a node full or up again; refused to an older process.
    SetNodeState {
        /// Node.
        node: NodeId,
        /// Process incarnation.
        process: ProcessId,
        /// New state.
        state: NodeState,
    },
    /// Gives a node no new segments, or takes that back; names the disk it means. Again changes nothing.
    DrainNode {
        /// Node.
        node: NodeId,
        /// Disk incarnation.
        disk: DiskId,
        /// Begin, or cancel.
        draining: bool,
    },
    /// Takes a disk out of the cluster for good: it is refused when it shows up again. Again changes nothing.
    RemoveNode {
        /// Node.
        node: NodeId,
        /// Disk incarnation.
        disk: DiskId,
        /// The disk is lost with what it stored; else it must store nothing any more.
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
    /// Changes cluster-wide settings; compares with the version of [`crate::ClusterConfig`]. What holds already changes
    /// nothing and keeps that version.
    SetConfig {
        /// Keys and their new values.
        set: BTreeMap<String, u64>,
        /// Keys that go back to each node's own option.
        unset: BTreeSet<String>,
    },
    /// Creates a topic, its partitions and their first segments. A name that exists is rejected (`TopicExists`).
    CreateTopic {
        /// Identity.
        topic: TopicId,
        /// Tenant.
        org: String,
        /// Name, as in [`crate::Topic`].
        name: String,
        /// Walrus's own.
        internal: bool,
        /// One first segment for each partition, in order; `topic`, `partition`, `number` 0, base 0.
        first: Vec<Descriptor>,
    },
    /// Names a topic again whose creation this state has lost, from what disks have of it: see [`crate::lost_topics`].
    RecoverTopic {
        /// Identity; it is neither listed nor deleted.
        topic: TopicId,
        /// Tenant.
        org: String,
        /// Name, as in [`crate::Topic`].
        name: String,
        /// Walrus's own.
        internal: bool,
        /// The first segment that is left of each partition, in order, its base known. It becomes `sealing`: its replicas
        /// know where it ends, and what follows.
        first: Vec<Descriptor>,
    },
    /// Removes a topic from the catalogue, with all its segments.
    DeleteTopic {
        /// Identity.
        topic: TopicId,
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
        /// What will follow the segment if no successor was proposed before: base unknown, epoch at least the ballot's.
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
        /// What its replicas decided.
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
        /// Version of the segment that the proposer saw; a must here.
        version: u64,
        /// Disks that are to make a copy.
        added: Vec<ReplicaRef>,
        /// Copies to give up: their holders delete them. Refused if fewer than w verified ones would stay. One on a disk that
        /// is gone is not listed any more.
        given_up: Vec<ReplicaRef>,
    },
    /// What the holder of copies found on its disk.
    ReportCopies {
        /// The holder.
        replica: ReplicaRef,
        /// Those that do not fit any more are passed over.
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
    /// See [`crate::SegmentCopy::since`]: a must.
    pub since: u64,
    /// What there is.
    pub found: Found,
}

/// How a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// All of it, sealed.
    Whole {
        /// Digest of the copy's batches.
        digest: Digest,
    },
    /// It has damage that its holder cannot mend.
    Damaged,
    /// Nothing.
    Gone,
    /// Not all of it, and all nodes have said that they do not have the rest.
    Lost,
}

/// What an applied command did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Version of the metadata after it.
    pub version: u64,
    /// What the proposer wants to know.
    pub answer: Answer,
}

/// The result of a command, where there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Nothing to tell.
    Nothing,
    /// `RegisterNode`, `DrainNode`, `RemoveNode`: the node's id.
    Node(NodeId),
    /// `SetConfig`: version of the settings after it.
    Config {
        /// See [`crate::ClusterConfig`].
        version: u64,
    },
}
