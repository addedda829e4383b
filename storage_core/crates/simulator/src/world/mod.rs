//! A whole cluster as one value: nodes with disks, leaders, recoverers, metadata with its past, and what was promised to
//! clients. The machines of `walrus-replica` and the metadata's `apply` are the real ones; this folder is their driver,
//! a file for each part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;
use walrus_metadata::{self as metadata, Command, CommandRejection, Metadata, SegmentState};
use walrus_model::*;
use walrus_replica::*;

use crate::mistake::Mistake;
use crate::record::{self, BatchId, batch_after};

mod chores;
mod claims;
mod commands;
mod copies;
mod faults;
mod forms;
mod invariants;
mod leaders;
mod leaving;
mod owned;
mod passes;
mod plain;
mod prepared;
mod promises;
mod readers;
mod retention;
mod rot;
mod tables;
mod views;

pub use chores::Chore;
pub use forms::Form;
pub use leaving::Noted;
pub use owned::{Fate, has_led, is_led_by_another, lists, open_segment, told_epoch};
pub use passes::Pass;
pub use plain::Plain;
pub use readers::Reader;
pub use retention::{Settings, TOMBSTONES_STAY_MS};
pub use rot::Rot;

/// An invariant that was found broken, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

/// The result of a check.
pub type Checked = Result<(), Violation>;

/// The one topic.
const TOPIC: TopicId = TopicId::from_u128(9);
/// The wall clock of those who propose commands, at first.
const NOW_MS: u64 = 1_000;
/// Factor in the names of processes, which are node * `STARTS` + start.
const STARTS: u128 = 1_000;

/// The parameters that stay the same in one run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// n and w of the cluster.
    pub replication: Replication,
    /// Nodes at the start.
    pub nodes: u32,
    /// Acknowledged batches that all copies of the first segment hold at the start, which would take many events to come about.
    pub written: u8,
    /// Sealed segments that come before the open one, whole on all copies and known to the metadata. They have the batches then, and
    /// the open one has none.
    pub sealed: u8,
    /// Whether clients repeat batches of which they are not sure, and leaders know them again. Else each batch is sent once,
    /// and waiting ones are carried over a roll.
    pub idempotent: bool,
    /// Whether records go: by retention, by deletion and by compaction.
    pub cleans: bool,
    /// Whether the partition is one in which coordinators keep groups: nobody else appends, and old segments go by their word.
    pub coordinates: bool,
    /// A mistake to make.
    pub mistake: Option<Mistake>,
}

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sender {
    /// The leader of that segment.
    Leader(SegmentId),
    /// A recoverer, by its place in [`World::recoverers`].
    Recoverer(usize),
}

/// A message that is on the way. It may arrive, again and again, at any time, or never.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flight {
    /// To a replica.
    To {
        /// The sender.
        from: Sender,
        /// The segment that it is about.
        segment: SegmentId,
        /// Place of the replica in the replica set.
        to: usize,
        /// The message.
        message: Message,
        /// Batches that are fetched on the way: the first offset, and the places of the sources.
        fill: Option<(Offset, Vec<usize>)>,
    },
    /// The answer of a replica.
    Back {
        /// The sender of the request.
        to: Sender,
        /// Place of the replica.
        from: usize,
        /// The answer.
        reply: Reply,
    },
}

/// The part of a copy that is on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stored {
    /// The journal.
    pub promises: Promises,
    /// The batches that were written, with the digests that the leader gave them.
    pub batches: Vec<Batch>,
    /// Places in `batches` that are holes: their bytes rotted, or they never came and are lost on all copies.
    pub rotten: BTreeSet<usize>,
    /// Places that were holes once.
    pub were_rotten: BTreeSet<usize>,
    /// The number of batches that are synced.
    pub synced: usize,
    /// Whether a synced tail was found torn.
    pub cut: bool,
    /// Whether it is verified, and its votes are not remembered any more.
    pub forgotten: bool,
    /// The next batch by the table of producers at the log's base, once the log is made.
    pub table: Option<BatchId>,
}

/// A copy of a segment on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// The part that survives the process.
    pub stored: Stored,
    /// The machine, which dies with the process.
    pub machine: Option<Replica>,
    /// The end that was read too early, for [`Mistake::EndReadBeforeThePromise`].
    peeked: Option<(Ballot, Mark)>,
}

/// A broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Its number in the metadata.
    pub id: NodeId,
    /// Disk incarnation.
    pub disk: DiskId,
    /// Number of its starts.
    pub starts: u128,
    /// Whether its process runs.
    pub up: bool,
    /// Whether its disk is lost.
    pub lost: bool,
    /// It is another disk now, for it lost its votes; its logs are still there for others to fetch from.
    pub left: bool,
    /// The copies that it holds, by segment.
    pub held: BTreeMap<SegmentId, Held>,
    /// The copies of sealed segments that have no vote, by segment.
    pub plain: BTreeMap<SegmentId, Plain>,
    /// Segments that took the place of others, as its disk remembers.
    pub notes: BTreeMap<SegmentId, Noted>,
    /// The number below which all is trimmed, and the first segment that is not, as its disk remembers.
    pub buried: Option<(u64, Descriptor)>,
    /// The offset below which records were deleted, as its disk remembers.
    pub start: Offset,
}

impl Node {
    /// The process that runs, or ran last.
    #[must_use]
    pub fn process(&self) -> ProcessId {
        ProcessId::from_u128(u128::from(self.id.0) * STARTS + self.starts)
    }
}

/// The leader of a segment and what its process knows around it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leading {
    /// The machine.
    pub machine: Leader,
    /// The next batch in its producer table: it has the ones below.
    pub next_id: BatchId,
    /// Batches that wait for the next segment, in order.
    pub carried: Vec<BatchId>,
    carried_away: bool,
}

/// The metadata and a number that stands for it.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The state.
    pub state: Metadata,
    /// Equal for equal states.
    pub print: u64,
}

/// The promises that nobody may ever contradict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Promised {
    /// Everything that the leader of a segment has written.
    pub written: BTreeMap<SegmentId, Mark>,
    /// The highest end that was acknowledged or read.
    pub acknowledged: BTreeMap<SegmentId, Mark>,
    /// Decisions.
    pub decided: BTreeMap<SegmentId, Value>,
    /// A decision went with w disks, and another one was made, which says that something may be lost: what followed the
    /// first is not in the partition.
    pub is_forgotten: bool,
    /// Every segment that was ever named, with its base.
    pub descriptors: BTreeMap<SegmentId, Descriptor>,
    /// The segments that compactions wrote.
    pub forms: BTreeMap<SegmentId, Arc<Form>>,
    /// When clients sent batches first, milliseconds since the epoch.
    pub times: BTreeMap<BatchId, u64>,
    /// Clients have deleted the records below.
    pub deleted_to: Offset,
    /// The metadata have called all below gone.
    pub gone_to: Offset,
    /// The metadata have called all segments with lower numbers trimmed.
    pub trimmed_below: u64,
    /// Times since when tombstones, by offset, were all that was left of their keys.
    pub alone_since: BTreeMap<Offset, u64>,
}

/// A whole cluster as one value.
#[derive(Clone, Debug)]
pub struct World {
    /// The parameters, which never change.
    pub setting: Arc<Setting>,
    /// The nodes, by number - 1.
    pub nodes: Vec<Arc<Node>>,
    /// Leaders whose process lives.
    pub leaders: BTreeMap<SegmentId, Arc<Leading>>,
    /// Segments that were opened: once, by one process.
    pub opened: BTreeSet<SegmentId>,
    /// Attempts to recover, in order. Nothing is delivered to a dead one.
    pub recoverers: Vec<Arc<Recoverer>>,
    /// The passes of compactions, by the nodes that make them.
    pub passes: BTreeMap<NodeId, Arc<Pass>>,
    /// The metadata's present state.
    pub metadata: Arc<Committed>,
    /// The promises that were made so far.
    pub promised: Arc<Promised>,
    /// The next batch that no client has sent yet.
    pub next_id: BatchId,
    /// Copies of records that were lost by faults: a tail that rotted, a disk.
    pub losses: usize,
    /// Holes that were filled.
    pub filled: u64,
    /// Messages that were sent by the last act.
    pub outbox: Vec<Flight>,
    /// The node whose clock is an hour ahead.
    pub ahead: Option<NodeId>,
    now_ms: u64,
    minted: u32,
}

/// Builds the result of a check that failed.
pub(crate) fn violation<T>(what: impl Into<String>) -> Result<T, Violation> {
    Err(Violation(what.into()))
}

impl World {
    /// A cluster whose one partition has one open segment, led by a process that has opened it.
    #[must_use]
    pub fn new(setting: Setting) -> Self {
        let mut world = Self {
            setting: Arc::new(setting),
            nodes: Vec::new(),
            leaders: BTreeMap::new(),
            opened: BTreeSet::new(),
            recoverers: Vec::new(),
            passes: BTreeMap::new(),
            metadata: Arc::new(Committed { state: Metadata::default(), print: 0 }),
            promised: Arc::default(),
            next_id: 0,
            losses: 0,
            filled: 0,
            outbox: Vec::new(),
            ahead: None,
            now_ms: NOW_MS,
            minted: 0,
        };
        let replication = world.setting.replication;
        world
            .propose(Command::Bootstrap { cluster_id: Uuid::from_u128(1), replication })
            .expect("new")
            .expect("new");
        for _ in 0..world.setting.nodes {
            world.add_node();
        }
        let level = Command::RaiseLevel { level: metadata::LEVEL };
        world.propose(level).expect("new").expect("all know it");
        world
            .nodes
            .iter()
            .map(|node| node.id)
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|id| world.register(id));
        let id = SegmentId(world.mint());
        let state = &world.metadata.state;
        let descriptor =
            metadata::first_descriptor(state, &Default::default(), (TOPIC, 0, id), &everybody(state))
                .expect("enough nodes");
        let (org, name) = ("default".to_owned(), "t".to_owned());
        let first = vec![descriptor.clone()];
        let create =
            Command::CreateTopic { topic: TOPIC, org, name, internal: false, config: BTreeMap::new(), first };
        world.propose(create).expect("new").expect("new");
        world.set_first_settings();
        Arc::make_mut(&mut world.promised).descriptors.insert(descriptor.id, descriptor.clone());
        world.open(descriptor.id).expect("the first");
        world.prepare(descriptor.id).expect("nothing is broken yet");
        world
    }

    /// Lets a node with an empty disk join.
    pub fn add_node(&mut self) {
        let id = NodeId(u32::try_from(self.nodes.len()).expect("few") + 1);
        let disk = DiskId(self.mint());
        let node = Node {
            id,
            disk,
            starts: 1,
            up: true,
            lost: false,
            left: false,
            held: BTreeMap::new(),
            plain: BTreeMap::new(),
            notes: BTreeMap::new(),
            buried: None,
            start: Offset(0),
        };
        self.nodes.push(Arc::new(node));
        self.register(id);
    }

    fn register(&mut self, id: NodeId) {
        let node = self.node(id);
        let zone = match (self.metadata.state.knows_zones(), id.0 % 2) {
            (false, _) => "",
            (true, 0) => "even",
            (true, _) => "odd",
        };
        let command = Command::RegisterNode {
            wanted: Some(id),
            disk: node.disk,
            process: node.process(),
            raft_address: String::new(),
            peer_address: String::new(),
            text_address: String::new(),
            grpc_address: String::new(),
            http_address: String::new(),
            admin_address: String::new(),
            listeners: Vec::new(),
            name: String::new(),
            zone: zone.to_owned(),
            level: metadata::LEVEL,
        };
        // Refused to a disk that was declared gone: that node never comes back.
        let _ = self.propose(command).expect("no command breaks the state");
    }

    /// Lets nodes that run register where the metadata know something else of them, or nothing.
    fn register_all(&mut self) {
        for index in 0..self.nodes.len() {
            let node = &self.nodes[index];
            let known = self.metadata.state.nodes.get(&node.id);
            let is_current = |known: &metadata::Node| known.process == node.process();
            if node.up && !known.is_some_and(is_current) {
                self.register(node.id);
            }
        }
    }

    fn mint(&mut self) -> Uuid {
        self.minted += 1;
        Uuid::from_u128(1_000_000 + u128::from(self.minted))
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize - 1]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        Arc::make_mut(&mut self.nodes[id.0 as usize - 1])
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.setting.mistake == Some(mistake)
    }

    /// A segment's descriptor.
    #[must_use]
    pub fn descriptor(&self, segment: SegmentId) -> &Descriptor {
        &self.promised.descriptors[&segment]
    }

    /// The partition as the metadata list it.
    #[must_use]
    pub fn partition(&self) -> Option<&metadata::Partition> {
        self.metadata.state.topics.get(&TOPIC).map(|topic| &*topic.partitions[0])
    }

    /// The last segment that the metadata list.
    #[must_use]
    pub fn last_segment(&self) -> Option<SegmentId> {
        Some(self.partition()?.segments.last()?.descriptor.id)
    }

    /// The oldest listed segment.
    #[must_use]
    pub fn first_segment(&self) -> Option<SegmentId> {
        Some(self.partition()?.segments.first()?.descriptor.id)
    }

    /// Whether the metadata say explicitly that the segment is trimmed.
    #[must_use]
    pub fn is_trimmed(&self, segment: SegmentId) -> bool {
        let number = self.descriptor(segment).number;
        self.partition().is_some_and(|partition| number < partition.trimmed_below)
    }

    /// Whether the two worlds differ in nothing but the messages that were sent.
    #[must_use]
    pub fn is_like(&self, other: &World) -> bool {
        let same = |(left, right): (&Arc<Node>, &Arc<Node>)| Arc::ptr_eq(left, right) || left == right;
        self.nodes.iter().zip(&other.nodes).all(same)
            && self.leaders == other.leaders
            && self.recoverers == other.recoverers
            && self.passes == other.passes
            && self.opened == other.opened
            && (Arc::ptr_eq(&self.promised, &other.promised) || self.promised == other.promised)
            && self.losses == other.losses
    }
}

/// All nodes as present: no lease lapses here, and nodes that are down are avoided instead.
fn everybody(state: &Metadata) -> metadata::Present {
    metadata::Present::only(state.nodes.keys().copied())
}

fn print_of(state: &Metadata) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(&state.to_snapshot());
    hasher.finish()
}
