//! The state of the metadata: nodes, topics, partitions, segments. The words are those of `docs/internals/glossary.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use walrus_model::{Descriptor, DiskId, Epoch, NodeId, Offset, ProcessId, ReplicaRef, Replication, TopicId};

use crate::cluster_config::ClusterConfig;
use crate::compaction::TombstoneMarks;
use crate::creations::Creations;
use crate::leads::Leads;
use crate::organisation::Organisation;
use crate::recent::Recent;
use crate::retention::ReadMarks;
use crate::segment::{CopyState, Segment, SegmentCopy, SegmentState, is_nowhere, nowhere};
use crate::sizes::Sizes;
use crate::topic_config::TopicConfig;

/// Level of commands of a new cluster, and of processes that do not say theirs.
pub(crate) const FIRST_LEVEL: u32 = 1;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes what it serializes by reference")]
pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

pub(crate) fn first_level() -> u32 {
    FIRST_LEVEL
}

/// The whole state. What grows with the number of topics is in persistent maps: a clone shares with the original what neither
/// changes afterwards, so that it costs the same however many topics there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// The cluster's identity, set by the first command of a new cluster; `None` until then.
    pub cluster_id: Option<Uuid>,
    /// The identities under which the cluster was known before forced recoveries, the oldest first: a client that knows it by
    /// one of them follows it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_ids: Vec<Uuid>,
    /// Grows by one with every command that changed something.
    pub version: u64,
    /// Level of commands that the cluster has reached; a command of a higher one is refused, for some member may not know
    /// it. It is 0 until the cluster is founded.
    #[serde(default = "first_level")]
    pub level: u32,
    /// Every node ever admitted and not removed.
    pub nodes: BTreeMap<NodeId, Node>,
    /// Topics by identity.
    pub topics: OrdMap<TopicId, Arc<Topic>>,
    /// Who may have topics, by name: each organisation is a namespace of its own. Walrus's own topics are in
    /// [`crate::INTERNAL_ORG`], which is not listed.
    #[serde(default)]
    pub organisations: OrdMap<String, Organisation>,
    /// The catalogue: (organisation, name) -> topic.
    pub names: OrdMap<String, OrdMap<String, TopicId>>,
    /// Topics that were deleted and that some member's disk may still have: only these may a node remove. A topic that is
    /// merely not listed may have been lost with a part of the metadata.
    pub deleted: OrdSet<TopicId>,
    /// The disks that have nothing any more of a topic in `deleted`. It is forgotten once all members' disks are among them.
    #[serde(default)]
    pub emptied: OrdMap<TopicId, OrdSet<DiskId>>,
    /// Settings that all nodes follow.
    #[serde(default)]
    pub config: ClusterConfig,
    /// Disks that will never come back: a recoverer that waits for all replicas waits for these no longer. A node that
    /// shows up with one is refused.
    #[serde(default)]
    pub gone_disks: BTreeSet<DiskId>,
    /// Replication of new segments.
    #[serde(default = "Replication::single")]
    pub replication: Replication,
    /// Count of the topics that were created lately.
    #[serde(default)]
    pub creations: Creations,
    /// The last commands and what became of them.
    pub recent: Recent,
    /// Counts of `topics`, which a snapshot does not have: they are taken when it is read.
    #[serde(skip)]
    pub(crate) sizes: Sizes,
    /// The leaders of `topics` that stay, counted likewise.
    #[serde(skip)]
    pub(crate) leads: Leads,
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
    /// Listeners of clients beside those two, each for one organisation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Listener>,
    /// Name that its operator gives it, such as that of its pod; empty where it has none.
    #[serde(default)]
    pub name: String,
    /// Zone that its disk is in, such as a data centre: what fails at once. Copies and voters are spread over zones. It is empty
    /// where nobody has said it, which counts as one zone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Highest level of commands that its process knows.
    #[serde(default = "first_level")]
    pub level: u32,
    /// Whether it takes new segments, and as what.
    pub state: NodeState,
    /// Number of renewals of the node's lease: a higher one is a sign of life to whoever sees it
    /// ([`crate::Presence`]). A node whose lease has lapsed is no candidate for new segments, and what it knows may not be
    /// the latest. The lease is never needed for safety, and its lapse revokes nothing.
    #[serde(default)]
    pub renewals: u64,
    /// When its process asked for the last renewal, in milliseconds of its machine's CLOCK_BOOTTIME, which means nothing to
    /// processes elsewhere. It is 0 until this process has renewed its lease.
    #[serde(default)]
    pub asked_boottime_ms: u64,
    /// Wall clock of its machine at the node's last renewal, milliseconds since the epoch; 0 until it has renewed its lease.
    #[serde(default)]
    pub clock_ms: u64,
    /// Size of the file system that its disk is on, in bytes; 0 until it has said so. Copies are spread by it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub disk_bytes: u64,
    /// Version of the metadata at the last change of this node but its lease: what commands compare with.
    pub version: u64,
}

/// A listener of clients. Whoever connects to it is of its organisation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// What is spoken there.
    pub protocol: Protocol,
    /// Its name, the same on all nodes: its clients are told the addresses of that name. Before level 7 there were none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Name of the organisation.
    pub org: String,
    /// `host:port`, as clients reach it.
    pub address: String,
}

/// A protocol of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// The text protocol.
    Text,
    /// gRPC.
    Grpc,
    /// Kafka's protocol.
    Kafka,
}

impl Protocol {
    /// Its name, as in options and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Grpc => "grpc",
            Self::Kafka => "kafka",
        }
    }
}

impl Node {
    /// Whether copies of new segments may be placed on it, be it away for a moment.
    pub(crate) fn may_store(&self) -> bool {
        matches!(self.state, NodeState::Up | NodeState::Stopping)
    }

    /// Where clients of an organisation reach the node's listener of that protocol and name; `None` where they do not.
    #[must_use]
    pub fn address_of(&self, protocol: Protocol, name: &str, org: &str) -> Option<&str> {
        match protocol {
            Protocol::Text if name == protocol.name() => return Some(&self.text_address),
            Protocol::Grpc if name == protocol.name() => return Some(&self.grpc_address),
            _ => {}
        }
        let is_it = |found: &&Listener| found.protocol == protocol && found.name == name && found.org == org;
        self.listeners.iter().find(is_it).map(|found| found.address.as_str())
    }
}

/// Whether a node may be given new segments, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Takes new segments.
    Up,
    /// Its disk is full: it gets no new segments until it says `Up` again.
    Full,
    /// It is being emptied: it gets no new segments until the drain is cancelled, whatever the node says of itself.
    Draining,
    /// Its process is about to stop: it leads no new segments, and stores copies of them as a node does that is away for a moment.
    /// Only its next process ends this state.
    Stopping,
}

/// A topic of an organisation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topic {
    /// Identity.
    pub id: TopicId,
    /// The organisation whose topic it is.
    pub org: String,
    /// Unique in its organisation while it lives.
    pub name: String,
    /// Whether it is one of Walrus's own topics (cursors), which are hidden from lists and take no clients' appends.
    pub internal: bool,
    /// The settings that it has itself.
    #[serde(default, skip_serializing_if = "TopicConfig::is_untouched")]
    pub config: TopicConfig,
    /// Up to where the readers have read that its retention asks.
    #[serde(default, skip_serializing_if = "ReadMarks::is_empty")]
    pub read: ReadMarks,
    /// Its partitions by index, at least one. A state shares with the one before it those that did not change.
    pub partitions: Vector<Arc<Partition>>,
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
    /// The records below this offset were deleted, also those in a segment that is still listed.
    #[serde(default = "nowhere", skip_serializing_if = "is_nowhere")]
    pub start: Offset,
    /// Ordered by number; bases have no gap, numbers have one in front of a segment that took the place of several. The last one is
    /// open (or sealing), the others are sealed.
    pub segments: Vec<Segment>,
    /// What compaction has done and is about to do.
    #[serde(default, skip_serializing_if = "Compaction::is_untouched")]
    pub compaction: Compaction,
    /// Version of the metadata at the last change of this partition: what commands compare with.
    pub version: u64,
}

impl Topic {
    /// Number of its partitions.
    #[must_use]
    pub fn partition_count(&self) -> u32 {
        u32::try_from(self.partitions.len()).unwrap_or(u32::MAX)
    }

    /// Whether the leader of one segment leads the next one as well, where it can.
    #[must_use]
    pub fn has_standing_leaders(&self) -> bool {
        self.internal || self.config.has_sticky_leaders()
    }

    /// The leader of each partition, where they stay.
    pub(crate) fn standing_leaders(&self) -> impl Iterator<Item = NodeId> {
        let standing = self.has_standing_leaders().then_some(&self.partitions);
        standing.into_iter().flatten().filter_map(|partition| partition.leader())
    }
}

impl Partition {
    /// All segments of which a node may have a copy: those that are listed, the candidate, and those that were replaced.
    pub fn all_segments(&self) -> impl Iterator<Item = &Segment> {
        let Compaction { candidate, replaced, .. } = &self.compaction;
        self.segments.iter().chain(candidate.as_deref()).chain(replaced)
    }

    /// The listed segments from one number to another, if they are listed one behind the other.
    pub(crate) fn run(&self, first_number: u64, last_number: u64) -> Option<Range<usize>> {
        let first = self.segments.iter().position(|segment| segment.first_number() == first_number)?;
        let last = self.segments.iter().position(|segment| segment.descriptor.number == last_number)?;
        (first <= last).then_some(first..last + 1)
    }

    /// The node that leads its last segment, or led it.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.segments.last().map(|last| last.descriptor.leader.node)
    }

    /// The epoch of its last segment, be it open or just ending. It only grows: clients take a lower one for old news.
    #[must_use]
    pub fn last_epoch(&self) -> Option<Epoch> {
        self.segments.last().map(|last| last.descriptor.epoch)
    }

    /// The first offset that can be read.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        let base = self.segments.first().and_then(|first| first.descriptor.base_offset);
        base.unwrap_or(Offset(0)).max(self.start)
    }

    /// Whether records were deleted up to an offset that somebody named.
    #[must_use]
    pub fn has_deleted(&self) -> bool {
        self.start > Offset(0)
    }

    /// Drops the segments below a number, all of which are sealed. A candidate that was to take the place of one of them is given
    /// up. What took the place of several stays whole, and none of these counts as trimmed: their records live on in it.
    pub(crate) fn drop_below(&mut self, number: u64, version: u64) {
        self.segments.retain(|segment| segment.descriptor.number >= number);
        let number = self
            .segments
            .first()
            .map_or(number, |first| number.min(first.first_number()))
            .max(self.trimmed_below);
        if self.compaction.candidate.as_ref().is_some_and(|candidate| candidate.first_number() < number) {
            self.compaction.abandon(version);
        }
        self.compaction.replaced.retain(|segment| segment.descriptor.number >= number);
        (self.trimmed_below, self.version) = (number, version);
    }

    /// Whether the partition lists this segment, or has allotted it as the successor of one that it lists.
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

/// What compaction has done in a partition, and is about to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compaction {
    /// A pass has looked at everything below: each key has one record there, but for records that could not be read.
    pub cleaned_to: Offset,
    /// Since when tombstones are all that is left of their keys.
    pub kept_tombstones: TombstoneMarks,
    /// The segment that is to take the place of others once enough copies of it are verified.
    pub candidate: Option<Box<Segment>>,
    /// Segments that were replaced, or given up as candidates, and of which copies are left: all of these leave.
    pub replaced: Vec<Segment>,
}

impl Compaction {
    pub(crate) fn is_untouched(&self) -> bool {
        *self == Self::default()
    }

    /// Takes disks that will never come back off the lists of what was replaced: nobody is left who could delete its copies. What has no
    /// copy any more is forgotten.
    pub(crate) fn forget_copies_on(&mut self, gone: &BTreeSet<DiskId>) {
        for segment in &mut self.replaced {
            segment.copies.retain(|copy| !gone.contains(&copy.replica.disk));
        }
        self.replaced.retain(|segment| !segment.copies.is_empty());
    }

    /// Gives the candidate up, if there is one: its copies leave.
    pub(crate) fn abandon(&mut self, version: u64) {
        self.replaced.extend(self.candidate.take().map(|candidate| candidate.left_by_all(version)));
    }
}

impl Metadata {
    /// Counts all topics anew.
    pub(crate) fn count_topics(&mut self) {
        (self.sizes, self.leads) = <_>::default();
        for topic in self.topics.values() {
            self.sizes.add(&topic.org, topic.partitions.len());
            topic.standing_leaders().for_each(|node| self.leads.add(node));
        }
    }

    /// All segments, each with the number of copies that there should be of it.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (&Segment, usize)> {
        self.topics.values().flat_map(|topic| {
            let factor = topic.config.replication(self.replication).factor;
            let segments = topic.partitions.iter().flat_map(|partition| &partition.segments);
            segments.map(move |segment| (segment, segment.copies_wanted(factor)))
        })
    }

    /// Whether a quorum of disks has the log of a segment, with what was known of producers at its base: then nobody asks the segment
    /// before it any more. A disk that is gone has nothing, whatever it said before.
    pub(crate) fn is_on_quorum(&self, segment: &Segment) -> bool {
        let is_verified =
            |copy: &&SegmentCopy| copy.state == CopyState::Verified && self.is_here(copy.replica);
        let disks = match segment.state {
            SegmentState::Sealed(_) => segment.copies.iter().filter(is_verified).count(),
            _ => segment.begun.iter().filter(|replica| self.is_here(**replica)).count(),
        };
        disks >= segment.descriptor.write_quorum as usize
    }

    /// Whether the replica's node is a member and still has that disk.
    pub(crate) fn is_here(&self, replica: ReplicaRef) -> bool {
        self.nodes.get(&replica.node).is_some_and(|node| node.disk == replica.disk)
    }
}
