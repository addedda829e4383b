//! What the cluster knows about itself: nodes, topics, partitions, segments. Words as in `docs/internals/glossary.md`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use walrus_model::{
    Ballot, Descriptor, DiskId, Epoch, NodeId, Offset, ProcessId, ReplicaRef, Replication, TopicId, Value,
};

use crate::cluster_config::ClusterConfig;
use crate::command::Applied;
use crate::levels::first_level;
use crate::rejected::Rejected;

/// The whole state. Clones are cheap: topics are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// Minted once, by the first command of a new cluster.
    pub cluster_id: Option<Uuid>,
    /// Grows by one with every command that changed something.
    pub version: u64,
    /// Commands of a higher level are not taken, for some member does not know them. 0: not founded.
    #[serde(default = "first_level")]
    pub level: u32,
    /// Every node ever admitted and not removed.
    pub nodes: BTreeMap<NodeId, Node>,
    /// Topics by identity. Shared, so that a published copy of the state costs one pointer for each topic.
    pub topics: BTreeMap<TopicId, Arc<Topic>>,
    /// The catalogue: (organisation, name) -> topic.
    pub names: BTreeMap<String, BTreeMap<String, TopicId>>,
    /// Topics that were deleted: what a node may remove from its disk. "Not listed" alone never is a reason.
    pub deleted: BTreeSet<TopicId>,
    /// Settings that all nodes follow.
    #[serde(default)]
    pub config: ClusterConfig,
    /// Disks that will never come back: a recoverer that waits for all replicas waits for these no longer. A node that
    /// shows up with one is refused.
    #[serde(default)]
    pub gone_disks: BTreeSet<DiskId>,
    /// How new segments are replicated.
    #[serde(default = "Replication::single")]
    pub replication: Replication,
    /// How many topics were created lately.
    #[serde(default)]
    pub creations: Creations,
    /// The last commands and what became of them, oldest first.
    pub recent: VecDeque<Recent>,
}

/// Topics that were created in one second of the proposers' clocks, the latest in which one was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Creations {
    /// Seconds since the epoch.
    pub second: u64,
    /// Topics.
    pub count: u64,
}

/// A remembered command: when the same proposal comes twice, the second answers as the first did and changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recent {
    /// The envelope's id.
    pub id: Uuid,
    /// What was answered.
    pub outcome: Result<Applied, Rejected>,
}

/// A broker. Identity is `disk`; an emptied disk is another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Small integer, never given to another disk while this node is listed.
    pub id: NodeId,
    /// Disk incarnation: minted on an empty disk.
    pub disk: DiskId,
    /// Process incarnation: minted at each start.
    pub process: ProcessId,
    /// `host:port` of the Raft transport.
    pub raft_address: String,
    /// `host:port` of the peer RPC.
    pub peer_address: String,
    /// `host:port` of the text protocol, as clients reach it.
    pub text_address: String,
    /// `host:port` of gRPC, as clients reach it.
    pub grpc_address: String,
    /// `host:port` of HTTP.
    pub http_address: String,
    /// `host:port` of the admin service; empty as long as the node has not said.
    #[serde(default)]
    pub admin_address: String,
    /// What its operator calls it, such as the name of its pod; empty where it has none.
    #[serde(default)]
    pub name: String,
    /// Up to which level its process knows commands.
    #[serde(default = "first_level")]
    pub level: u32,
    /// Whether it takes leadership of new segments.
    pub state: NodeState,
    /// How often the node's lease was renewed: a higher number is a sign of life to whoever sees it
    /// ([`crate::Presence`]). A lapsed lease = not a candidate for new segments, and what it knows is no longer certainly
    /// the latest. It is never needed for safety, and it revokes nothing.
    #[serde(default)]
    pub renewals: u64,
    /// When its process asked for the last renewal, by CLOCK_BOOTTIME of its machine: of no meaning to any other process.
    /// 0: this process has renewed nothing yet.
    #[serde(default)]
    pub asked_boottime_ms: u64,
    /// What the clock of its machine said at that renewal, milliseconds since the epoch; 0: it has renewed nothing yet.
    #[serde(default)]
    pub clock_ms: u64,
    /// Version of the metadata at the last change of this node but its lease: what commands compare with.
    pub version: u64,
}

/// What a node may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Takes new segments.
    Up,
    /// Its disk is full: no new segments until it says `Up` again.
    Full,
    /// It is being emptied: no new segments until the drain is cancelled, whatever the node says of itself.
    Draining,
}

/// A topic of an organisation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topic {
    /// Identity.
    pub id: TopicId,
    /// Tenant; `default` where nobody named one.
    pub org: String,
    /// Unique in its organisation while it lives.
    pub name: String,
    /// Walrus's own (cursors): hidden from lists, refused to clients' appends.
    pub internal: bool,
    /// At least one.
    pub partitions: Vec<Partition>,
}

/// One ordered log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Place in the topic, from 0.
    pub index: u32,
    /// Above every epoch ever handed out in this partition.
    pub next_epoch: Epoch,
    /// Segments whose number is below this are trimmed and no longer listed.
    pub trimmed_below: u64,
    /// Ordered by number; bases have no gap. The last one is open (or sealing), the others are sealed.
    pub segments: Vec<Segment>,
    /// Version of the metadata at the last change of this partition: what commands compare with.
    pub version: u64,
}

impl Partition {
    /// Whether it lists this segment, or has allotted it as the successor of one that it lists.
    #[must_use]
    pub fn knows(&self, segment: &Descriptor) -> bool {
        self.segments.iter().rev().any(|listed| {
            let mut allotted = listed.successor.iter().chain(&listed.earlier_successors);
            listed.descriptor == *segment
                || (segment.base_offset >= listed.descriptor.base_offset
                    && allotted.any(|successor| successor.is_same_segment(segment)))
        })
    }
}

/// One segment: who stores it, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Everything that was fixed when it was opened.
    pub descriptor: Descriptor,
    /// Its state.
    pub state: SegmentState,
    /// The successor that the last `BeginRoll` or `BeginRecovery` allotted; none once it is sealed.
    pub successor: Option<Descriptor>,
    /// Successors allotted before that one, oldest first; one of them may still be the decided one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_successors: Vec<Descriptor>,
    /// Who stores it. The replica set while it is not sealed; afterwards copies come and go.
    #[serde(default)]
    pub copies: Vec<SegmentCopy>,
    /// When the command that opened it was proposed, milliseconds since the epoch; age rolls count from here.
    pub opened_at_ms: u64,
    /// Who had written nothing from this offset on, when this segment was opened, had been silent for a quarter of an hour: the
    /// next segment begins without remembering such producers.
    #[serde(default = "nowhere")]
    pub silent_below: Offset,
    /// Version of the metadata at its last change.
    pub version: u64,
}

impl Segment {
    /// Makes the replica set the list of copies, none of them verified.
    pub(crate) fn list_copies(&mut self) {
        let since = self.version;
        let listed =
            |replica: &ReplicaRef| SegmentCopy { replica: *replica, state: CopyState::Filling, since };
        self.copies = self.descriptor.replicas.iter().map(listed).collect();
    }

    /// Where it is, or will be: on its replica set until it is sealed, then on the disks of its copies. What is lost is
    /// nowhere.
    pub fn stored_on(&self) -> impl Iterator<Item = ReplicaRef> {
        let sealed = matches!(self.state, SegmentState::Sealed(_));
        let (copies, replicas): (&[SegmentCopy], &[ReplicaRef]) =
            if sealed { (&self.copies, &[]) } else { (&[], &self.descriptor.replicas) };
        let stored = copies.iter().filter(|copy| copy.state != CopyState::Lost);
        stored.map(|copy| copy.replica).chain(replicas.iter().copied())
    }

    /// No node has all of it: whoever looked for it has asked them all, and nobody else is listed who could have it.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        let is_lost = |copy: &SegmentCopy| copy.state == CopyState::Lost;
        let may_be = |copy: &SegmentCopy| !matches!(copy.state, CopyState::Lost | CopyState::Leaving);
        self.copies.iter().any(is_lost) && !self.copies.iter().any(may_be)
    }
}

fn nowhere() -> Offset {
    Offset(0)
}

/// A copy of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentCopy {
    /// Where it is.
    pub replica: ReplicaRef,
    /// How it is.
    pub state: CopyState,
    /// Version of the metadata at the last change of its state. What its holder says about it names this: a report
    /// about an earlier copy on the same disk says nothing about this one.
    pub since: u64,
}

/// `filling -> verified -> leaving`, and then it is not listed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyState {
    /// To be made, or not compared yet. Says nothing about what is there.
    Filling,
    /// Its bytes were compared with the sealed digest.
    Verified,
    /// Its holder found damage that it could not mend.
    Damaged,
    /// Given up: its holder deletes it, and says so.
    Leaving,
    /// Not to be made: its holder has asked all nodes, and none has what is missing. It asks again now and then, for a disk
    /// that lost its votes may bring its log.
    Lost,
}

/// `open -> sealing -> sealed`, and then trimmed: a trimmed segment is not listed, its partition says below which number
/// all are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentState {
    /// Takes appends.
    Open,
    /// Its end is being decided by a recoverer. With ballot 0: it waits for one, for it was adopted and may have been
    /// written and sealed before metadata lost it.
    Sealing(Ballot),
    /// Its end is decided and it never changes again.
    Sealed(Value),
}
