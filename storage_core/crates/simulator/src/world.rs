//! A whole cluster as one value: nodes with disks, leaders, recoverers, metadata with its past, and what was promised to
//! clients. The machines of `walrus-replica` and the metadata's `apply` are the real ones; this file is their driver.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;
use walrus_metadata::{self as metadata, Command, Metadata, Rejected, SegmentState};
use walrus_replica::*;

use crate::bridge;
use crate::mistake::Mistake;
use crate::record::{self, BatchId, batch_after};

/// What was found broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

/// Shorthand.
pub type Checked = Result<(), Violation>;

/// The one topic.
const TOPIC: metadata::TopicId = metadata::TopicId(Uuid::from_u128(9));
/// The clock of those who propose commands, at first.
const NOW_MS: u64 = 1_000;
const LEASE_MS: u64 = 3_000;
/// Names of processes: node * this + start.
const STARTS: u128 = 1_000;

/// What stays the same in one run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// n and w of the cluster.
    pub replication: metadata::Replication,
    /// Nodes at the start.
    pub nodes: u32,
    /// Clients repeat what they are not sure of, and the leaders know it again. Else each batch is sent once, and waiting
    /// ones are carried over a roll.
    pub idempotent: bool,
    /// A mistake to make.
    pub mistake: Option<Mistake>,
}

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sender {
    /// The leader of that segment.
    Leader(SegmentId),
    /// By place in [`World::recoverers`].
    Recoverer(usize),
}

/// A message that is on the way. It may arrive, again and again, at any time, or never.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flight {
    /// To a replica.
    To {
        /// Who asks.
        from: Sender,
        /// Which segment.
        segment: SegmentId,
        /// Its place in the replica set.
        to: usize,
        /// What.
        message: Message,
        /// What is fetched on the way: from an offset on, from one of these places.
        fill: Option<(Offset, Vec<usize>)>,
    },
    /// The answer.
    Back {
        /// Who asked.
        to: Sender,
        /// Place of the replica.
        from: usize,
        /// What.
        reply: Reply,
    },
}

/// What is on a disk of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stored {
    /// The journal.
    pub promises: Promises,
    /// What was written.
    pub batches: Vec<Batch>,
    /// So many of them are synced.
    pub synced: usize,
    /// A synced tail was found torn.
    pub cut: bool,
}

impl Stored {
    fn durable(&self, base: Offset) -> Mark {
        let none = Mark { end: base, digest: Digest(0) };
        self.batches[..self.synced].last().map_or(none, |last| last.mark())
    }
}

/// A copy of a segment on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// Survives.
    pub stored: Stored,
    /// Does not.
    pub machine: Option<Replica>,
    /// [`Mistake::EndReadBeforeThePromise`].
    peeked: Option<(Ballot, Mark)>,
}

/// A broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Its number in the metadata.
    pub id: NodeId,
    /// Disk incarnation.
    pub disk: DiskId,
    /// How often it was started.
    pub starts: u128,
    /// Runs.
    pub up: bool,
    /// The disk is no more.
    pub lost: bool,
    /// What it holds.
    pub held: BTreeMap<SegmentId, Held>,
}

impl Node {
    /// The process that runs, or ran last.
    #[must_use]
    pub fn process(&self) -> ProcessId {
        ProcessId(u128::from(self.id.0) * STARTS + self.starts)
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

/// What nobody may ever contradict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Promised {
    /// What the leader of a segment has written, all of it.
    pub written: BTreeMap<SegmentId, Mark>,
    /// The highest end that was acknowledged or read.
    pub acknowledged: BTreeMap<SegmentId, Mark>,
    /// Decisions.
    pub decided: BTreeMap<SegmentId, Value>,
    /// Every segment that was ever named, with its base.
    pub descriptors: BTreeMap<SegmentId, Descriptor>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct World {
    /// Never changes.
    pub setting: Arc<Setting>,
    /// By number - 1.
    pub nodes: Vec<Arc<Node>>,
    /// Leaders whose process lives.
    pub leaders: BTreeMap<SegmentId, Arc<Leading>>,
    /// Segments that were opened: once, by one process.
    pub opened: BTreeSet<SegmentId>,
    /// Attempts, in order. A dead one is one that nothing is delivered to.
    pub recoverers: Vec<Arc<Recoverer>>,
    /// The metadata's present state.
    pub metadata: Arc<Committed>,
    /// See there.
    pub promised: Arc<Promised>,
    /// The next batch that no client has sent yet.
    pub next_id: BatchId,
    /// Copies of records that were lost by faults: a tail that rotted, a disk.
    pub losses: usize,
    /// Messages that were sent by the last act.
    pub outbox: Vec<Flight>,
    now_ms: u64,
    minted: u32,
}

/// So much of it as a decision depends on.
fn violation<T>(what: impl Into<String>) -> Result<T, Violation> {
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
            metadata: Arc::new(Committed { state: Metadata::default(), print: 0 }),
            promised: Arc::default(),
            next_id: 0,
            losses: 0,
            outbox: Vec::new(),
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
        let uuid = world.mint();
        let state = &world.metadata.state;
        let first = metadata::first_descriptor(state, TOPIC, 0, uuid, NOW_MS).expect("enough nodes");
        let descriptor = bridge::descriptor(&first);
        let (org, name) = (String::new(), "t".to_owned());
        let create = Command::CreateTopic { topic: TOPIC, org, name, internal: false, first: vec![first] };
        world.propose(create).expect("new").expect("new");
        Arc::make_mut(&mut world.promised).descriptors.insert(descriptor.segment, descriptor.clone());
        world.open(descriptor.segment).expect("the first");
        world
    }

    /// A node with an empty disk joins.
    pub fn add_node(&mut self) {
        let id = NodeId(u32::try_from(self.nodes.len()).expect("few") + 1);
        let disk = DiskId(self.mint().as_u128());
        let node = Node { id, disk, starts: 1, up: true, lost: false, held: BTreeMap::new() };
        self.nodes.push(Arc::new(node));
        self.register(id);
    }

    fn register(&mut self, id: NodeId) {
        let node = self.node(id);
        let command = Command::RegisterNode {
            wanted: Some(metadata::NodeId(id.0)),
            disk: Uuid::from_u128(node.disk.0),
            process: Uuid::from_u128(node.process().0),
            raft_address: String::new(),
            peer_address: String::new(),
            text_address: String::new(),
            grpc_address: String::new(),
            http_address: String::new(),
            admin_address: String::new(),
            name: String::new(),
            lease_until_ms: self.now_ms + LEASE_MS,
        };
        // Refused to a disk that was declared gone: that node never comes back.
        let _ = self.propose(command).expect("no command breaks the state");
    }

    /// Nodes that run say who they are, where metadata knows something else or nothing.
    fn register_all(&mut self) {
        for index in 0..self.nodes.len() {
            let node = &self.nodes[index];
            let known = self.metadata.state.nodes.get(&metadata::NodeId(node.id.0));
            let is_current = |known: &metadata::Node| {
                known.process.as_u128() == node.process().0 && known.lease_until_ms > self.now_ms
            };
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

    /// The partition as metadata has it.
    #[must_use]
    pub fn partition(&self) -> Option<&metadata::Partition> {
        self.metadata.state.topics.get(&TOPIC).map(|topic| &topic.partitions[0])
    }

    /// The last segment that metadata lists.
    #[must_use]
    pub fn last_segment(&self) -> Option<SegmentId> {
        let last = self.partition()?.segments.last()?;
        Some(SegmentId(last.descriptor.uuid.as_u128()))
    }

    /// Whether the segment is trimmed, as metadata says explicitly.
    #[must_use]
    pub fn is_trimmed(&self, segment: SegmentId) -> bool {
        let number = self.descriptor(segment).number;
        self.partition().is_some_and(|partition| number < partition.trimmed_below)
    }

    /// Whether nothing differs but what was sent.
    #[must_use]
    pub fn is_like(&self, other: &World) -> bool {
        let same = |(left, right): (&Arc<Node>, &Arc<Node>)| Arc::ptr_eq(left, right) || left == right;
        self.nodes.iter().zip(&other.nodes).all(same)
            && self.leaders == other.leaders
            && self.recoverers == other.recoverers
            && self.opened == other.opened
            && (Arc::ptr_eq(&self.promised, &other.promised) || self.promised == other.promised)
            && self.losses == other.losses
    }

    // Metadata

    /// Applies a command. The outer error is a broken state.
    fn propose(&mut self, command: Command) -> Result<Result<(), Rejected>, Violation> {
        let mut state = self.metadata.state.clone();
        let id = Uuid::from_u128(1);
        let envelope = metadata::Envelope {
            v: metadata::ENVELOPE_VERSION,
            id,
            at_ms: self.now_ms,
            expect: None,
            command,
        };
        let outcome = metadata::apply(&mut state, &envelope).map(|_| ());
        state.recent.clear(); // ids of commands are not what is checked here
        if let Ok(()) = outcome {
            self.err_in_metadata(&mut state, &envelope.command);
            if self.setting.mistake.is_none() {
                state.check().map_err(|what| Violation(format!("metadata: {what}")))?;
            }
            self.metadata = Arc::new(Committed { print: print_of(&state), state });
        }
        Ok(outcome)
    }

    /// The mistakes of a metadata service.
    fn err_in_metadata(&self, state: &mut Metadata, command: &Command) {
        let Command::SealAndOpen { .. } = command else { return };
        let Some(topic) = state.topics.get_mut(&TOPIC) else { return };
        let partition = &mut Arc::make_mut(topic).partitions[0];
        if self.makes(Mistake::NextEpochNotRaised)
            && let Some(before) = self.partition()
        {
            partition.next_epoch = before.next_epoch;
        }
        let mut nodes = state.nodes.values();
        if self.makes(Mistake::AdoptedSuccessorOpened)
            && let Some(last) = partition.segments.last_mut()
            && matches!(last.state, SegmentState::Sealing(_))
            && let Some(leader) = nodes.rfind(|node| self.node(NodeId(node.id.0)).up)
        {
            let process = leader.process;
            last.state = SegmentState::Open;
            last.descriptor.leader = metadata::LeaderRef { node: leader.id, process };
        }
    }

    fn avoided(&self) -> Vec<metadata::NodeId> {
        self.nodes.iter().filter(|node| !node.up).map(|node| metadata::NodeId(node.id.0)).collect()
    }

    /// The proposers' clocks jump: forward, so that every lease has lapsed, or back.
    pub fn jump_clocks(&mut self, forward: bool) {
        self.now_ms = if forward { self.now_ms + 3_600_000 } else { self.now_ms.saturating_sub(1_800_000) };
    }

    /// Metadata is what it was.
    pub fn roll_back(&mut self, to: Arc<Committed>) {
        self.metadata = to;
    }

    /// Someone asks for a recovery of the last segment, above what refused attempts have learned.
    pub fn recover(&mut self) -> Checked {
        self.register_all();
        let Some(segment) = self.last_segment() else { return Ok(()) };
        let above = self.recoverers.iter().filter(|attempt| attempt.descriptor().segment == segment);
        let seen = above.map(|attempt| match attempt.phase() {
            RecovererPhase::Outbid { promised } => promised.epoch.0,
            _ => 0,
        });
        let above = metadata::Epoch(seen.max().unwrap_or(0));
        let ids = (self.mint(), self.mint());
        let state = &self.metadata.state;
        let attempt = metadata::recovery(state, (TOPIC, 0), ids, above, &self.avoided(), self.now_ms);
        let Some(metadata::Attempt { ballot, successor }) = attempt else { return Ok(()) };
        let uuid = Uuid::from_u128(segment.0);
        let next = bridge::descriptor(&successor);
        let command = Command::BeginRecovery { topic: TOPIC, partition: 0, segment: uuid, ballot, successor };
        if self.propose(command)?.is_err() {
            return Ok(());
        }
        let descriptor = self.descriptor(segment).clone();
        if bridge::ballot(ballot).epoch <= descriptor.epoch {
            return violation(format!("S6: {ballot:?} recovers a segment of {:?}", descriptor.epoch));
        }
        let recoverer = Recoverer::new(descriptor, bridge::ballot(ballot), next);
        self.recoverers.push(Arc::new(recoverer));
        let place = self.recoverers.len() - 1;
        for index in 0..self.recoverers[place].descriptor().replicas.len() {
            self.tell_gone(place, index)?;
        }
        self.recoverer_step(place, RecovererInput::Ask)
    }

    /// A disk is declared gone, and the recoverers hear of it.
    pub fn declare_gone(&mut self, node: NodeId) -> Checked {
        let disk = Uuid::from_u128(self.node(node).disk.0);
        let _ = self.propose(Command::DeclareDiskGone { disk })?;
        for place in 0..self.recoverers.len() {
            for index in 0..self.recoverers[place].descriptor().replicas.len() {
                self.tell_gone(place, index)?;
            }
        }
        Ok(())
    }

    fn tell_gone(&mut self, place: usize, replica: usize) -> Checked {
        let disk = self.recoverers[place].descriptor().replicas[replica].disk;
        if self.metadata.state.gone_disks.contains(&Uuid::from_u128(disk.0)) {
            self.recoverer_step(place, RecovererInput::Gone { replica })?;
        }
        Ok(())
    }

    /// Someone who knows the decision about the last segment tells metadata.
    pub fn publish(&mut self, segment: SegmentId) -> Checked {
        let Some(decided) = self.promised.decided.get(&segment).cloned() else { return Ok(()) };
        self.publish_value(segment, &decided)
    }

    fn publish_value(&mut self, segment: SegmentId, value: &Value) -> Checked {
        let segment = Uuid::from_u128(segment.0);
        let value = bridge::value(value);
        match self.propose(Command::SealAndOpen { topic: TOPIC, partition: 0, segment, value })? {
            Ok(()) | Err(Rejected::UnknownSegment { .. }) => self.check_metadata(),
            Err(_) if self.makes(Mistake::CloseWithoutCompare) => Ok(()),
            Err(rejected) => violation(format!("S3: a decision was refused: {rejected}")),
        }
    }

    /// Retention.
    pub fn trim(&mut self, below_number: u64) -> Checked {
        self.propose(Command::Trim { topic: TOPIC, partition: 0, below_number }).map(drop)
    }

    // Leaders

    /// A process that was told, by metadata or by whoever decided, that it leads a segment opens it.
    pub fn open(&mut self, segment: SegmentId) -> Checked {
        if !self.opened.insert(segment) {
            return Ok(());
        }
        let descriptor = self.descriptor(segment).clone();
        let next_id = self.table_of(&descriptor);
        let machine = Leader::open(descriptor.clone(), descriptor.leader.process);
        let leading = Leading { machine, next_id, carried: Vec::new(), carried_away: false };
        self.leaders.insert(segment, Arc::new(leading));
        self.check_table(&descriptor, next_id)?;
        self.take_carried(segment)
    }

    /// Whether the segment can be opened by the process that it names.
    #[must_use]
    pub fn may_open(&self, segment: SegmentId) -> bool {
        let descriptor = self.descriptor(segment);
        let node = self.node(descriptor.leader.node);
        let known = |value: &Value| value.successor.segment == segment;
        node.up
            && node.process() == descriptor.leader.process
            && !self.opened.contains(&segment)
            && self.promised.decided.values().any(known)
    }

    /// What producers have sent up to a segment's base, read from the segments before.
    fn table_of(&self, descriptor: &Descriptor) -> BatchId {
        if self.makes(Mistake::DedupTableNotLoaded) {
            return 0;
        }
        let before = self.chain_up_to(descriptor.segment);
        let skipped = usize::from(self.makes(Mistake::CursorTailNotLoaded));
        let known = &before[..before.len().saturating_sub(skipped)];
        known.last().map_or(0, |last| last + 1)
    }

    /// Whatever was acknowledged is in the table: cursors and producers' numbers never move back (S8, S11).
    fn check_table(&self, descriptor: &Descriptor, next_id: BatchId) -> Checked {
        if !self.setting.idempotent || self.losses_told() {
            return Ok(());
        }
        let before = self.promised.acknowledged.iter().filter(|(segment, _)| {
            self.descriptor(**segment).number < descriptor.number && self.is_in_chain(**segment)
        });
        let highest = before.flat_map(|(_, mark)| record::ids(mark.digest)).max();
        if highest.is_some_and(|highest| highest >= next_id) {
            return violation(format!(
                "S11: {highest:?} was acknowledged, the new leader's table has {next_id}"
            ));
        }
        Ok(())
    }

    /// A client's batch reaches a leader: the next one that its table lacks.
    pub fn append(&mut self, segment: SegmentId) -> Checked {
        let Some(leading) = self.leaders.get(&segment) else { return Ok(()) };
        let id = if self.setting.idempotent { leading.next_id } else { self.next_id };
        self.next_id = self.next_id.max(id + 1);
        self.assign(segment, id)
    }

    /// Whether the leader has room for one more.
    #[must_use]
    pub fn has_room(&self, segment: SegmentId) -> bool {
        let written = self.promised.written.get(&segment).map_or(0, |mark| record::ids(mark.digest).len());
        self.leaders.get(&segment).is_some_and(|leading| {
            *leading.machine.phase() == LeaderPhase::Leading && written < record::BATCHES_MAX
        })
    }

    fn assign(&mut self, segment: SegmentId, id: BatchId) -> Checked {
        if !self.has_room(segment) {
            return Ok(());
        }
        let base = self.descriptor(segment).first();
        let none = Mark { end: base, digest: Digest(0) };
        let leading = Arc::make_mut(self.leaders.get_mut(&segment).expect("it has room"));
        let written = Arc::make_mut(&mut self.promised).written.entry(segment).or_insert(none);
        if written.end != leading.machine.assigned_end() {
            return violation(format!("S9: two processes write {segment:?}"));
        }
        let batch = batch_after(*written, id);
        *written = batch.mark();
        leading.next_id = leading.next_id.max(id + 1);
        self.leader_step(segment, LeaderInput::Assign(batch))
    }

    /// Gives a leader something, and sends at once what it has: what is late on the way is as good as sent late.
    pub fn leader_step(&mut self, segment: SegmentId, input: LeaderInput) -> Checked {
        let Some(leading) = self.leaders.get_mut(&segment) else { return Ok(()) };
        let leading = Arc::make_mut(leading);
        let mut outputs = leading.machine.step(input);
        for to in 0..leading.machine.descriptor().replicas.len() {
            if leading.machine.has_batches_for(to) {
                outputs
                    .extend(leading.machine.step(LeaderInput::Send { to, batches_max: record::BATCHES_MAX }));
            }
        }
        for output in outputs {
            match output {
                LeaderOutput::Send { to, message } => {
                    let from = Sender::Leader(segment);
                    self.outbox.push(Flight::To { from, segment, to, message, fill: None });
                }
                LeaderOutput::HighWatermark(end) => self.acknowledge(segment, end)?,
                LeaderOutput::Ended(value) => self.end(segment, &value)?,
                LeaderOutput::Deposed | LeaderOutput::Recover | LeaderOutput::Behind { .. } => {}
                LeaderOutput::Alarm(alarm) => self.alarm(segment, alarm)?,
            }
        }
        Ok(())
    }

    /// The planned roll.
    pub fn roll(&mut self, segment: SegmentId) -> Checked {
        self.register_all();
        let uuid = self.mint();
        let state = &self.metadata.state;
        let found = metadata::successor(state, TOPIC, 0, uuid, &self.avoided(), self.now_ms);
        let Some(successor) = found else { return Ok(()) };
        let next = bridge::descriptor(&successor);
        let uuid = Uuid::from_u128(segment.0);
        let command = Command::BeginRoll { topic: TOPIC, partition: 0, segment: uuid, successor };
        if self.propose(command)?.is_err() {
            return Ok(());
        }
        self.leader_step(segment, LeaderInput::Freeze { successor: next })?;
        if self.makes(Mistake::RollReplaysItsProposal)
            && let Some(leading) = self.leaders.get(&segment)
            && let LeaderPhase::Frozen { value, .. } = leading.machine.phase().clone()
        {
            self.carry(segment, value.end);
        }
        Ok(())
    }

    fn end(&mut self, segment: SegmentId, value: &Value) -> Checked {
        if !self.makes(Mistake::RollReplaysItsProposal) {
            self.carry(segment, value.end);
        }
        self.decide(segment, value)?;
        self.take_carried(value.successor.segment)
    }

    /// What was not decided waits for the next segment.
    fn carry(&mut self, segment: SegmentId, end: Offset) {
        let Some(written) = self.promised.written.get(&segment).copied() else { return };
        let base = self.descriptor(segment).first();
        let Some(leading) = self.leaders.get_mut(&segment) else { return };
        if self.setting.idempotent || leading.carried_away {
            return;
        }
        let places = record::marks(base, written.digest);
        let ids = record::ids(written.digest);
        let leading = Arc::make_mut(leading);
        leading.carried_away = true;
        leading.carried =
            ids.into_iter().zip(places).filter(|(_, mark)| mark.end >= end).map(|(id, _)| id).collect();
    }

    /// A new leader is handed what its predecessor's carries, if that one still lives.
    fn take_carried(&mut self, segment: SegmentId) -> Checked {
        if !self.leaders.contains_key(&segment) {
            return Ok(());
        }
        let before = self.promised.decided.iter().find(|(_, value)| value.successor.segment == segment);
        let Some(before) = before.map(|(before, _)| *before) else { return Ok(()) };
        let Some(leading) = self.leaders.get_mut(&before) else { return Ok(()) };
        let carried = std::mem::take(&mut Arc::make_mut(leading).carried);
        carried.into_iter().try_for_each(|id| self.assign(segment, id))
    }

    // Recoverers

    /// Gives a recoverer something.
    pub fn recoverer_step(&mut self, place: usize, input: RecovererInput) -> Checked {
        let recoverer = Arc::make_mut(&mut self.recoverers[place]);
        let segment = recoverer.descriptor().segment;
        let was_fencing = *recoverer.phase() == RecovererPhase::Fencing;
        let outputs = recoverer.step(input);
        let chosen = match recoverer.phase() {
            RecovererPhase::Voting { value, .. } if was_fencing => Some(value.clone()),
            _ => None,
        };
        if let Some(value) = chosen
            && (self.makes(Mistake::PublishedBeforeTheVotes) || self.makes(Mistake::CloseWithoutCompare))
        {
            self.decide(segment, &value)?;
        }
        for output in outputs {
            match output {
                RecovererOutput::Send { to, message, fill } => {
                    let from = Sender::Recoverer(place);
                    self.outbox.push(Flight::To { from, segment, to, message, fill });
                }
                RecovererOutput::Decided(value) => self.decide(segment, &value)?,
                RecovererOutput::Outbid(_) => {}
            }
        }
        Ok(())
    }

    // Replicas

    /// A message arrives; `false`: it changed nothing. With `outputs_max`, the receiver dies after so many outputs.
    pub fn deliver(&mut self, flight: &Flight, outputs_max: Option<usize>) -> Checked {
        match flight {
            Flight::Back { to: Sender::Leader(segment), from, reply } => {
                self.leader_step(*segment, LeaderInput::Reply { from: *from, reply: reply.clone() })
            }
            Flight::Back { to: Sender::Recoverer(place), from, reply } => {
                self.recoverer_step(*place, RecovererInput::Reply { from: *from, reply: reply.clone() })
            }
            Flight::To { from, segment, to, message, fill } => {
                let mut message = message.clone();
                if let Some((start, sources)) = fill
                    && !self.fetch(*segment, *start, sources, &mut message)
                {
                    return Ok(());
                }
                self.ask_replica(*segment, *to, Some(from), message, outputs_max)
            }
        }
    }

    fn ask_replica(
        &mut self,
        segment: SegmentId,
        to: usize,
        from: Option<&Sender>,
        message: Message,
        outputs_max: Option<usize>,
    ) -> Checked {
        let descriptor = self.descriptor(segment).clone();
        let replica = descriptor.replicas[to];
        let node = self.node(replica.node);
        if !node.up || (node.disk != replica.disk && !self.makes(Mistake::EmptiedDiskVotes)) {
            return Ok(());
        }
        let start = CutId(node.process().0);
        let mistake = self.setting.mistake;
        let no_copy = self.makes(Mistake::NoTombstone) && self.is_trimmed(segment);
        let node = self.node_mut(replica.node);
        if !node.held.contains_key(&segment) && no_copy && !matches!(message, Message::Fence(_)) {
            return Ok(());
        }
        let held = node.held.entry(segment).or_insert_with(|| Held {
            stored: Stored::default(),
            machine: Some(Replica::new(replica, descriptor.clone(), start)),
            peeked: None,
        });
        let Some(machine) = &mut held.machine else { return Ok(()) };
        let request = Request::new(&descriptor, replica, message.clone());
        let mut early = None;
        if let (Some(Mistake::EndReadBeforeThePromise), Message::Fence(fence)) = (mistake, &message) {
            match held.peeked {
                Some((ballot, mark)) if ballot == fence.ballot => early = Some(mark),
                _ => {
                    held.peeked = Some((fence.ballot, held.stored.durable(descriptor.first())));
                    return Ok(());
                }
            }
        }
        let mut outputs = machine.step(ReplicaInput::Request(request));
        if let Some(mark) = early {
            for output in &mut outputs {
                if let ReplicaOutput::Answer(Reply::Promised(answer)) = output {
                    (answer.durable_end, answer.digest) = (mark.end, mark.digest);
                }
            }
        }
        self.carry_out(replica.node, segment, from, outputs, outputs_max)
    }

    /// Brings the batches that a vote needs, from a copy that has them.
    fn fetch(&self, segment: SegmentId, start: Offset, sources: &[usize], message: &mut Message) -> bool {
        let (value, missing) = match message {
            Message::Accept(accept) => (&accept.value, &mut accept.missing),
            Message::Sealed(notice) => (&notice.value, &mut notice.missing),
            _ => return true,
        };
        let descriptor = self.descriptor(segment);
        for source in sources {
            let node = self.node(descriptor.replicas[*source].node);
            let Some(held) = node.held.get(&segment).filter(|held| node.up && !held.stored.promises.trimmed)
            else {
                continue;
            };
            if held.stored.durable(descriptor.first()).end >= value.end {
                let batches = held.stored.batches.iter().filter(|batch| batch.base >= start);
                *missing = batches.take_while(|batch| batch.end <= value.end).copied().collect();
                return true;
            }
        }
        false
    }

    /// A replica is told the decision.
    pub fn notify(&mut self, node: NodeId, segment: SegmentId) -> Checked {
        let Some(value) = self.promised.decided.get(&segment).cloned() else { return Ok(()) };
        let descriptor = self.descriptor(segment);
        let Some(place) = descriptor.replicas.iter().position(|replica| replica.node == node) else {
            return Ok(());
        };
        let all: Vec<usize> = (0..descriptor.replicas.len()).collect();
        let end = match self.node(node).held.get(&segment) {
            Some(held) => held.machine.as_ref().map_or(descriptor.first(), |machine| machine.tape().end()),
            None => descriptor.first(),
        };
        let mut message = Recoverer::notice(value.clone());
        if end < value.end && !self.fetch(segment, end, &all, &mut message) {
            return Ok(());
        }
        self.ask_replica(segment, place, None, message, None)
    }

    /// A node deletes its copy of what metadata says is trimmed.
    pub fn drop_copy(&mut self, node: NodeId, segment: SegmentId) -> Checked {
        let by_absence = self.makes(Mistake::TrimmedByAbsence) && !self.is_trimmed(segment);
        if by_absence || self.makes(Mistake::NoTombstone) {
            self.node_mut(node).held.remove(&segment);
            return Ok(());
        }
        let Some(value) = self.promised.decided.get(&segment).cloned() else { return Ok(()) };
        let Some(held) = self.node_mut(node).held.get_mut(&segment) else { return Ok(()) };
        let Some(machine) = &mut held.machine else { return Ok(()) };
        let outputs = machine.step(ReplicaInput::Trimmed { value });
        self.carry_out(node, segment, None, outputs, None)
    }

    /// Whether a node may delete its copy now.
    #[must_use]
    pub fn may_drop(&self, node: &Node, segment: SegmentId) -> bool {
        let Some(held) = node.held.get(&segment).filter(|held| held.machine.is_some()) else { return false };
        let is_listed = self.partition().is_some_and(|partition| {
            partition.segments.iter().any(|listed| listed.descriptor.uuid.as_u128() == segment.0)
        });
        let decided = self.promised.decided.contains_key(&segment);
        (self.is_trimmed(segment) && decided && !held.stored.promises.trimmed)
            || (self.makes(Mistake::TrimmedByAbsence) && !is_listed)
    }

    /// What a node has written becomes durable.
    pub fn sync(&mut self, node: NodeId, segment: SegmentId) -> Checked {
        let base = self.descriptor(segment).first();
        let Some(held) = self.node_mut(node).held.get_mut(&segment) else { return Ok(()) };
        let Some(machine) = &mut held.machine else { return Ok(()) };
        held.stored.synced = held.stored.batches.len();
        let end = held.stored.durable(base).end;
        let outputs = machine.step(ReplicaInput::Synced { end });
        self.carry_out(node, segment, None, outputs, None)
    }

    fn carry_out(
        &mut self,
        id: NodeId,
        segment: SegmentId,
        from: Option<&Sender>,
        outputs: Vec<ReplicaOutput>,
        outputs_max: Option<usize>,
    ) -> Checked {
        let descriptor = self.descriptor(segment).clone();
        let place = descriptor.replicas.iter().position(|replica| replica.node == id).expect("it stores it");
        let to = from.cloned().unwrap_or(Sender::Leader(segment));
        let to_nobody = matches!(&to, Sender::Leader(segment) if !self.leaders.contains_key(segment));
        for output in outputs.into_iter().take(outputs_max.unwrap_or(usize::MAX)) {
            let stored = &mut self.node_mut(id).held.get_mut(&segment).expect("it holds it").stored;
            match output {
                ReplicaOutput::Write(batches) => {
                    for batch in batches {
                        let end = stored.batches.last().map_or(descriptor.first(), |last| last.end);
                        if batch.base != end {
                            return violation(format!("{batch:?} is written behind {end:?}"));
                        }
                        stored.batches.push(batch);
                    }
                }
                ReplicaOutput::Sync => stored.synced = stored.batches.len(),
                ReplicaOutput::Cut(end) => {
                    stored.batches.retain(|batch| batch.end <= end);
                    stored.synced = stored.synced.min(stored.batches.len());
                }
                ReplicaOutput::Persist(promises) => {
                    if promises.promised < stored.promises.promised {
                        return violation("S4: a promise was taken back");
                    }
                    stored.promises = promises;
                }
                ReplicaOutput::Seal(value) => {
                    let last = stored.durable(descriptor.first());
                    if (last.end, last.digest) != (value.end, value.digest) {
                        return violation(format!("S1: a copy that ends at {last:?} is sealed as {value:?}"));
                    }
                }
                ReplicaOutput::Answer(reply) => {
                    self.check_answer(id, segment, &reply)?;
                    if !(to_nobody || (from.is_none() && matches!(reply, Reply::Sealed | Reply::Refused(_))))
                    {
                        self.outbox.push(Flight::Back { to: to.clone(), from: place, reply });
                    }
                }
                ReplicaOutput::Delete => (stored.batches, stored.synced) = (Vec::new(), 0),
                ReplicaOutput::Alarm(alarm) => self.alarm(segment, alarm)?,
            }
        }
        if outputs_max.is_some() {
            self.crash(id, usize::MAX, None)?;
        }
        self.check_copy(id, segment)
    }

    // Faults

    /// A process dies. Of what a copy had not synced the first `kept` batches stay; the synced tail of `rotten` is torn.
    pub fn crash(&mut self, id: NodeId, kept: usize, rotten: Option<SegmentId>) -> Checked {
        self.leaders.retain(|_, leading| leading.machine.descriptor().leader.node != id);
        let node = self.node_mut(id);
        node.up = false;
        let mut rotted = false;
        for (segment, held) in &mut node.held {
            held.machine = None;
            held.peeked = None;
            let stored = &mut held.stored;
            let keep = stored.synced.saturating_add(kept).min(stored.batches.len());
            stored.batches.truncate(keep);
            stored.synced = keep;
            if Some(*segment) == rotten && stored.synced > 0 {
                stored.synced -= 1;
                stored.batches.truncate(stored.synced);
                stored.cut = true;
                rotted = true;
            }
        }
        self.losses += usize::from(rotted);
        Ok(())
    }

    /// Whether a torn tail of the copy is within what is promised: what is voted for or sealed is checked at rest.
    #[must_use]
    pub fn may_rot(held: &Held) -> bool {
        let Promises { accepted, sealed, .. } = &held.stored.promises;
        accepted.is_none() && sealed.is_none() && held.stored.synced > 0
    }

    /// A process starts on its disk.
    pub fn restart(&mut self, id: NodeId) -> Checked {
        let resumes = self.makes(Mistake::LeaderResumes);
        let node = self.node_mut(id);
        node.up = true;
        node.starts += u128::from(!resumes);
        let start = CutId(node.process().0 + u128::from(resumes) * 500);
        let (disk, segments): (_, Vec<_>) = (node.disk, node.held.keys().copied().collect());
        for segment in segments {
            let descriptor = self.descriptor(segment).clone();
            let decided = self.promised.decided.get(&segment).cloned();
            let held = self.node_mut(id).held.get_mut(&segment).expect("listed");
            let mut tape = Tape::empty(descriptor.first());
            if let (true, Some(value)) = (held.stored.promises.trimmed, decided) {
                tape = Tape::starting_at(Mark { end: value.end, digest: value.digest });
            }
            held.stored.batches.iter().for_each(|batch| tape.push(*batch));
            let was_cut = std::mem::take(&mut held.stored.cut);
            let promises = held.stored.promises.clone();
            let me = ReplicaRef { node: id, disk };
            let (machine, outputs) = Replica::recover(me, descriptor, promises, tape, was_cut, start);
            held.machine = Some(machine);
            self.carry_out(id, segment, None, outputs, None)?;
            if resumes {
                self.resume(segment, id)?;
            }
        }
        self.register(id);
        Ok(())
    }

    /// [`Mistake::LeaderResumes`]: from its own copy.
    fn resume(&mut self, segment: SegmentId, id: NodeId) -> Checked {
        let descriptor = self.descriptor(segment).clone();
        let held = &self.node(id).held[&segment];
        let takes = held.machine.as_ref().is_some_and(Replica::takes_appends);
        if descriptor.leader.node != id || !takes || !self.opened.contains(&segment) {
            return Ok(());
        }
        let mut machine = Leader::open(descriptor.clone(), descriptor.leader.process);
        let none = Mark { end: descriptor.first(), digest: Digest(0) };
        let mark = held.stored.batches.last().map_or(none, |last| last.mark());
        for batch in held.stored.batches.clone() {
            machine.step(LeaderInput::Assign(batch));
        }
        Arc::make_mut(&mut self.promised).written.insert(segment, mark);
        let next_id = record::ids(mark.digest).last().map_or(0, |last| last + 1);
        let leading = Leading { machine, next_id, carried: Vec::new(), carried_away: true };
        self.leaders.insert(segment, Arc::new(leading));
        self.leader_step(segment, LeaderInput::Reconnected { to: 0 })
    }

    /// The disk of a node is lost with its process.
    pub fn lose_disk(&mut self, id: NodeId) -> Checked {
        self.crash(id, 0, None)?;
        let emptied = self.makes(Mistake::EmptiedDiskVotes);
        let node = self.node_mut(id);
        node.held.clear();
        node.lost = !emptied;
        self.losses += 1;
        Ok(())
    }

    // What was promised

    /// The places of a segment that was written.
    fn places(&self, segment: SegmentId) -> Vec<Mark> {
        let base = self.descriptor(segment).first();
        let written = self.promised.written.get(&segment).map_or(Digest(0), |mark| mark.digest);
        record::marks(base, written)
    }

    fn acknowledge(&mut self, segment: SegmentId, end: Offset) -> Checked {
        let Some(mark) = self.places(segment).into_iter().find(|mark| mark.end == end) else {
            return violation(format!("S1: {end:?} of {segment:?} was acknowledged and never written"));
        };
        let known = Arc::make_mut(&mut self.promised).acknowledged.entry(segment).or_insert(mark);
        *known = (*known).max(mark);
        self.check_decision(segment)?;
        self.check_log()
    }

    fn decide(&mut self, segment: SegmentId, value: &Value) -> Checked {
        let promised = Arc::make_mut(&mut self.promised);
        if let Some(known) = promised.decided.get(&segment) {
            if known == value {
                return Ok(());
            }
            return violation(format!("S3: {segment:?} has {known:?} and {value:?}"));
        }
        promised.decided.insert(segment, value.clone());
        let next = (*value.successor).clone();
        promised.descriptors.insert(next.segment, next);
        self.check_decision(segment)?;
        self.check_copies(segment)?;
        self.check_log()
    }

    fn alarm(&self, segment: SegmentId, alarm: Alarm) -> Checked {
        // A leader or a copy may hold more than what a decision could save that was told to be incomplete.
        let told = self.promised.decided.get(&segment).is_some_and(|value| !value.possible_loss.is_empty());
        if told && matches!(alarm, Alarm::Diverged { .. }) {
            return Ok(());
        }
        violation(format!("alarm in {segment:?}: {alarm:?}"))
    }

    fn losses_told(&self) -> bool {
        self.promised.decided.values().any(|value| !value.possible_loss.is_empty())
    }

    // Invariants

    /// S4: after a promise nothing lower is answered. S2 and S5: what a copy lets be read was acknowledged.
    fn check_answer(&self, id: NodeId, segment: SegmentId, reply: &Reply) -> Checked {
        let stored = &self.node(id).held[&segment].stored;
        let Promises { promised, accepted, sealed, .. } = &stored.promises;
        let base = self.descriptor(segment).first();
        match reply {
            Reply::Ack { durable_end, .. } => {
                if promised.epoch > self.descriptor(segment).epoch || accepted.is_some() || sealed.is_some() {
                    return violation("S4: an append is acknowledged after a promise or a vote");
                }
                if *durable_end > stored.durable(base).end {
                    return violation("S7: an acknowledgement of what is not durable");
                }
                Ok(())
            }
            Reply::Accepted { ballot } if sealed.is_none() && ballot < promised => {
                violation("S4: a vote below a promise")
            }
            _ => Ok(()),
        }
    }

    /// S2, S5: every copy is a prefix of what its one writer wrote, and shows only what was acknowledged or decided.
    fn check_copy(&self, id: NodeId, segment: SegmentId) -> Checked {
        let Some(held) = self.node(id).held.get(&segment) else { return Ok(()) };
        let places = self.places(segment);
        for batch in &held.stored.batches {
            if !places.contains(&batch.mark()) {
                return violation(format!(
                    "S2: {batch:?} of {segment:?} on {id:?} was never written by its leader"
                ));
            }
        }
        if let Some(sealed) = &held.stored.promises.sealed
            && self.promised.decided.get(&segment) != Some(sealed)
        {
            return violation(format!(
                "S3: {id:?} holds {segment:?} sealed as {sealed:?}, which was not decided"
            ));
        }
        let Some(machine) = &held.machine else { return Ok(()) };
        let shown = machine.readable_end();
        let base = self.descriptor(segment).first();
        let acknowledged = self.promised.acknowledged.get(&segment).map_or(base, |mark| mark.end);
        let decided = self.promised.decided.get(&segment).map_or(base, |value| value.end);
        if shown > acknowledged.max(decided) {
            return violation(format!("S5: {id:?} lets {segment:?} be read to {shown:?}"));
        }
        Ok(())
    }

    /// S1: what was acknowledged is in what was decided, or its loss is told.
    fn check_decision(&self, segment: SegmentId) -> Checked {
        let Some(value) = self.promised.decided.get(&segment) else { return Ok(()) };
        let places = self.places(segment);
        if !places.contains(&Mark { end: value.end, digest: value.digest }) {
            return violation(format!(
                "S1: {segment:?} is decided with bytes that were not written: {value:?}"
            ));
        }
        if !value.possible_loss.is_empty() {
            if self.losses == 0 {
                return violation("a loss is told, and nothing was lost");
            }
            return Ok(());
        }
        if let Some(mark) = self.promised.acknowledged.get(&segment)
            && mark.end > value.end
        {
            return violation(format!(
                "S1: {segment:?} was acknowledged to {:?} and ends at {:?}",
                mark.end, value.end
            ));
        }
        let descriptor = self.descriptor(segment);
        if value.successor.epoch <= descriptor.epoch || value.successor.base != Some(value.end) {
            return violation(format!("S6: {descriptor:?} is followed by {:?}", value.successor));
        }
        Ok(())
    }

    /// S7: at least w durable copies of what was decided, less those that faults have taken.
    fn check_copies(&self, segment: SegmentId) -> Checked {
        let (descriptor, value) = (self.descriptor(segment), &self.promised.decided[&segment]);
        let holds = |replica: &&ReplicaRef| {
            let node = self.node(replica.node);
            node.held.get(&segment).is_some_and(|held| {
                held.stored.promises.trimmed || held.stored.durable(descriptor.first()).end >= value.end
            })
        };
        let holders = descriptor.replicas.iter().filter(holds).count();
        if holders + self.losses < descriptor.write_quorum() {
            return violation(format!("S7: {segment:?} is decided on {holders} copies"));
        }
        Ok(())
    }

    /// S3: what metadata publishes was decided.
    fn check_metadata(&self) -> Checked {
        let Some(partition) = self.partition() else { return Ok(()) };
        for segment in &partition.segments {
            let id = SegmentId(segment.descriptor.uuid.as_u128());
            if let SegmentState::Sealed(value) = &segment.state
                && self.promised.decided.get(&id).map(bridge::value).as_ref() != Some(value)
            {
                return violation(format!("S3: metadata publishes {value:?}, which was not decided"));
            }
            if bridge::descriptor(&segment.descriptor) != *self.descriptor(id) {
                return violation(format!("S9: {id:?} has two descriptors"));
            }
            if segment.descriptor.epoch >= partition.next_epoch {
                return violation(format!("S6: the next epoch is not above that of {id:?}"));
            }
        }
        Ok(())
    }

    fn is_in_chain(&self, segment: SegmentId) -> bool {
        self.chain().contains(&segment)
    }

    /// The segments of the partition as the replicas decided them.
    fn chain(&self) -> Vec<SegmentId> {
        let first = self.promised.descriptors.values().find(|descriptor| descriptor.number == 0);
        let mut all = vec![first.expect("the first").segment];
        while let Some(value) = self.promised.decided.get(&all[all.len() - 1]) {
            all.push(value.successor.segment);
        }
        all
    }

    /// The batches of the partition below a segment, or all that are acknowledged or decided.
    fn chain_up_to(&self, segment: SegmentId) -> Vec<BatchId> {
        let chain = self.chain();
        let before = chain.iter().take_while(|link| **link != segment);
        let decided = before.filter_map(|link| self.promised.decided.get(link));
        decided.flat_map(|value| record::ids(value.digest)).collect()
    }

    /// S8, S10: no batch twice, and each producer's in order.
    fn check_log(&self) -> Checked {
        let chain = self.chain();
        let open = chain[chain.len() - 1];
        let mut log = self.chain_up_to(open);
        log.extend(self.promised.acknowledged.get(&open).map_or(Vec::new(), |mark| record::ids(mark.digest)));
        let mut seen = BTreeSet::new();
        if let Some(twice) = log.iter().find(|id| !seen.insert(**id)) {
            return violation(format!("S8: batch {twice} is twice in {log:?}"));
        }
        if self.setting.idempotent && !log.windows(2).all(|pair| pair[0] < pair[1]) {
            return violation(format!("S10: out of order: {log:?}"));
        }
        // Acknowledged and not in the chain at all.
        for (segment, mark) in &self.promised.acknowledged {
            let base = self.descriptor(*segment).first();
            if mark.end > base && !chain.contains(segment) {
                return violation(format!("S1: {segment:?} was acknowledged and is not in the partition"));
            }
        }
        Ok(())
    }
}

fn print_of(state: &Metadata) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(&state.to_snapshot());
    hasher.finish()
}
