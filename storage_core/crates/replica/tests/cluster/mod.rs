//! One segment on a few nodes with disks that forget what was not synced, a network that loses, repeats and reorders,
//! and checks after every step.

#![allow(
    dead_code,
    clippy::cast_possible_truncation,
    reason = "each test uses what it needs; all numbers are small"
)]

use walrus_model::*;
use walrus_replica::*;

/// SplitMix64.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }
}

pub(crate) fn replica_ref(node: usize) -> ReplicaRef {
    ReplicaRef { node: NodeId(node as u32), disk: DiskId::from_u128(100 + node as u128) }
}

pub(crate) fn descriptor(
    segment: u128,
    epoch: u32,
    replicas: usize,
    write_quorum: u32,
    base: Option<u64>,
) -> Descriptor {
    Descriptor {
        id: SegmentId::from_u128(segment),
        topic: TopicId::from_u128(9),
        partition: 0,
        number: segment as u64,
        base_offset: base.map(Offset),
        epoch: Epoch(epoch),
        leader: LeaderRef { node: NodeId(0), process: ProcessId::from_u128(1) },
        replicas: (0..replicas).map(replica_ref).collect(),
        write_quorum,
        fsync: None,
    }
}

/// The batch that a leader makes of its `count`-th append.
pub(crate) fn next_batch(end: Mark, records: u64) -> Batch {
    let digest = end.digest.0.wrapping_mul(31).wrapping_add(end.end.0 ^ (records << 20)).wrapping_add(7);
    Batch { base: end.end, end: Offset(end.end.0 + records), digest: Digest(digest) }
}

/// The disk of a node, which survives its process.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) promises: Promises,
    pub(crate) batches: Vec<Batch>,
    /// The number of batches that are synced.
    pub(crate) synced: usize,
    pub(crate) suspect_cut: bool,
    pub(crate) gone: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Sender {
    Leader,
    Recoverer(usize),
}

#[derive(Clone, Debug)]
pub(crate) enum Flight {
    To { node: usize, from: Sender, message: Message },
    Back { to: Sender, node: usize, reply: Reply },
}

pub(crate) struct World {
    pub(crate) descriptor: Descriptor,
    pub(crate) disks: Vec<Disk>,
    pub(crate) replicas: Vec<Option<Replica>>,
    pub(crate) leader: Option<Leader>,
    pub(crate) recoverers: Vec<Option<Recoverer>>,
    pub(crate) network: Vec<Flight>,
    /// All batches that the leader made, whatever became of them.
    pub(crate) assigned: Vec<Mark>,
    pub(crate) acknowledged: Offset,
    pub(crate) decided: Option<Value>,
    pub(crate) next_epoch: u32,
    starts: u128,
}

impl World {
    pub(crate) fn new(replicas: usize, write_quorum: u32) -> Self {
        let descriptor = descriptor(1, 1, replicas, write_quorum, Some(0));
        let disk = Disk {
            promises: Promises::default(),
            batches: Vec::new(),
            synced: 0,
            suspect_cut: false,
            gone: false,
        };
        let starting = |node| Some(Replica::new(replica_ref(node), descriptor.clone(), CutId(0)));
        Self {
            disks: vec![disk; replicas],
            replicas: (0..replicas).map(starting).collect(),
            leader: Some(Leader::open(descriptor.clone(), ProcessId::from_u128(1))),
            recoverers: Vec::new(),
            network: Vec::new(),
            assigned: vec![Mark { end: Offset(0), digest: Digest(0) }],
            acknowledged: Offset(0),
            decided: None,
            next_epoch: 2,
            starts: 0,
            descriptor,
        }
    }

    pub(crate) fn successor(&mut self) -> Descriptor {
        let epoch = self.next_epoch;
        self.next_epoch += 1;
        descriptor(1000 + u128::from(epoch), epoch, self.disks.len(), self.descriptor.write_quorum, None)
            .numbered(self.descriptor.number + 1)
    }

    pub(crate) fn append(&mut self, records: u64) {
        let Some(leader) = &mut self.leader else { return };
        if *leader.phase() != LeaderPhase::Leading {
            return;
        }
        let batch = next_batch(self.assigned[self.assigned.len() - 1], records);
        self.assigned.push(batch.mark());
        let outputs = leader.step(LeaderInput::Assign(batch));
        assert!(outputs.is_empty());
    }

    pub(crate) fn leader_step(&mut self, input: LeaderInput) {
        let Some(leader) = &mut self.leader else { return };
        for output in leader.step(input) {
            match output {
                LeaderOutput::Send { to, message } => {
                    self.network.push(Flight::To { node: to, from: Sender::Leader, message });
                }
                LeaderOutput::HighWatermark(end) => self.acknowledge(end),
                LeaderOutput::Ended(value) => self.decide(&value),
                LeaderOutput::Alarm(alarm) => assert!(self.may_have_lost(), "{alarm:?}"),
                LeaderOutput::Deposed | LeaderOutput::Recover | LeaderOutput::Behind { .. } => {}
            }
        }
    }

    pub(crate) fn recover(&mut self) {
        let successor = self.successor();
        let attempt = self.recoverers.len() as u128 + 1;
        let ballot = Ballot { epoch: successor.epoch, attempt: AttemptId::from_u128(attempt) };
        self.recoverers.push(Some(Recoverer::new(self.descriptor.clone(), ballot, successor)));
        let place = self.recoverers.len() - 1;
        for replica in 0..self.disks.len() {
            if self.disks[replica].gone {
                self.recoverer_step(place, RecovererInput::Gone { replica, left: None });
            }
        }
        self.recoverer_step(place, RecovererInput::Ask);
    }

    pub(crate) fn recoverer_step(&mut self, place: usize, input: RecovererInput) {
        let Some(recoverer) = &mut self.recoverers[place] else { return };
        for output in recoverer.step(input) {
            match output {
                RecovererOutput::Send { to, mut message, fill } => {
                    if let (Message::Accept(accept), Some((from, sources))) = (&mut message, fill) {
                        let copies = sources.iter().filter(|source| !self.disks[**source].gone);
                        let Some(copy) = copies.map(|source| &self.disks[*source]).next() else { continue };
                        let missing = copy.batches.iter().filter(|batch| batch.base >= from);
                        accept.missing =
                            missing.take_while(|batch| batch.end <= accept.value.end).copied().collect();
                    }
                    self.network.push(Flight::To { node: to, from: Sender::Recoverer(place), message });
                }
                RecovererOutput::Decided(value) => {
                    self.decide(&value);
                    for node in 0..self.disks.len() {
                        let message = Recoverer::notice(value.clone());
                        self.network.push(Flight::To { node, from: Sender::Recoverer(place), message });
                    }
                }
                RecovererOutput::Outbid(_) => {}
                RecovererOutput::Unvoted(_) => unreachable!("no log is left of a disk here"),
            }
        }
    }

    /// Delivers one message.
    pub(crate) fn deliver(&mut self, flight: Flight) {
        match flight {
            Flight::To { node, from, message } => {
                if self.replicas[node].is_none() {
                    return;
                }
                let request = Request::new(&self.descriptor, replica_ref(node), message);
                self.replica_step(node, Some(from), ReplicaInput::Request(request));
            }
            Flight::Back { to: Sender::Leader, node, reply } => {
                self.leader_step(LeaderInput::Reply { from: node, reply });
            }
            Flight::Back { to: Sender::Recoverer(place), node, reply } => {
                self.recoverer_step(place, RecovererInput::Reply { from: node, reply });
            }
        }
    }

    pub(crate) fn replica_step(&mut self, node: usize, from: Option<Sender>, input: ReplicaInput) {
        let Some(replica) = &mut self.replicas[node] else { return };
        let outputs = replica.step(input);
        self.carry_out(node, from, outputs, usize::MAX);
    }

    /// Carries out the first `limit` outputs.
    pub(crate) fn carry_out(
        &mut self,
        node: usize,
        from: Option<Sender>,
        outputs: Vec<ReplicaOutput>,
        limit: usize,
    ) {
        let to = from.unwrap_or(Sender::Leader);
        let disk = &mut self.disks[node];
        for output in outputs.into_iter().take(limit) {
            match output {
                ReplicaOutput::Write(batches) => {
                    for batch in batches {
                        let end = disk.batches.last().map_or(Offset(0), |last| last.end);
                        assert_eq!(batch.base, end, "a write leaves a gap");
                        disk.batches.push(batch);
                    }
                }
                ReplicaOutput::Skip(_) => unreachable!("no batch rots in the middle of a copy here"),
                ReplicaOutput::Sync => disk.synced = disk.batches.len(),
                ReplicaOutput::Cut(end) => {
                    disk.batches.retain(|batch| batch.end <= end);
                    disk.synced = disk.synced.min(disk.batches.len());
                }
                ReplicaOutput::Persist(promises) => {
                    assert!(promises.promised >= disk.promises.promised, "S4");
                    disk.promises = promises;
                }
                ReplicaOutput::Seal(value) => {
                    let last =
                        disk.batches.last().map_or((Offset(0), Digest(0)), |last| (last.end, last.digest));
                    assert_eq!((value.end, value.digest), last, "S1");
                }
                ReplicaOutput::Answer(reply) => {
                    if let Reply::Ack { .. } = reply {
                        assert!(disk.promises.promised.epoch <= self.descriptor.epoch, "S4");
                        assert!(disk.promises.accepted.is_none(), "an append after a vote");
                    }
                    self.network.push(Flight::Back { to: to.clone(), node, reply });
                }
                ReplicaOutput::Delete => disk.batches.clear(),
                ReplicaOutput::Alarm(alarm) => panic!("{alarm:?}"),
            }
        }
    }

    pub(crate) fn sync(&mut self, node: usize) {
        if self.replicas[node].is_none() {
            return;
        }
        let disk = &mut self.disks[node];
        disk.synced = disk.batches.len();
        let end = disk.batches.last().map_or(Offset(0), |last| last.end);
        self.replica_step(node, None, ReplicaInput::Synced { end });
    }

    /// Ends a process. Up to `kept` batches that were not synced stay; with `rot` none does, and the last synced one is lost too.
    pub(crate) fn crash(&mut self, node: usize, kept: usize, rot: bool) {
        let disk = &mut self.disks[node];
        let unsynced = disk.batches.len() - disk.synced;
        let mut keep = disk.synced + kept % (unsynced + 1);
        let may_rot = disk.promises.accepted.is_none() && disk.promises.sealed.is_none();
        if rot && may_rot && disk.synced > 0 {
            keep = disk.synced - 1;
            disk.suspect_cut = true;
        }
        disk.batches.truncate(keep);
        disk.synced = keep;
        self.replicas[node] = None;
        if node == 0 {
            self.leader = None;
        }
    }

    pub(crate) fn restart(&mut self, node: usize) {
        let disk = &mut self.disks[node];
        if self.replicas[node].is_some() || disk.gone {
            return;
        }
        self.starts += 1;
        let mut tape = Tape::empty(Offset(0));
        disk.batches.iter().for_each(|batch| tape.push(*batch));
        let (descriptor, promises, was_cut) =
            (self.descriptor.clone(), disk.promises.clone(), disk.suspect_cut);
        disk.suspect_cut = false;
        let start = CutId(self.starts);
        let (replica, outputs) =
            Replica::recover(replica_ref(node), descriptor, promises, tape, was_cut, start);
        self.replicas[node] = Some(replica);
        self.carry_out(node, None, outputs, usize::MAX);
        self.leader_step(LeaderInput::Reconnected { to: node });
    }

    /// Loses a disk, and lets the metadata know.
    pub(crate) fn lose_disk(&mut self, node: usize) {
        self.crash(node, 0, false);
        self.disks[node].gone = true;
        for place in 0..self.recoverers.len() {
            self.recoverer_step(place, RecovererInput::Gone { replica: node, left: None });
        }
    }

    fn may_have_lost(&self) -> bool {
        self.decided.as_ref().is_some_and(|value| !value.possible_loss.is_empty())
    }

    fn acknowledge(&mut self, end: Offset) {
        assert!(end > self.acknowledged, "the high watermark moved back");
        self.acknowledged = end;
        self.check_decision();
    }

    fn decide(&mut self, value: &Value) {
        let known = self.decided.get_or_insert_with(|| value.clone());
        assert_eq!(known, value, "S3: two values");
        self.check_decision();
    }

    fn check_decision(&self) {
        let Some(value) = &self.decided else { return };
        if value.possible_loss.is_empty() {
            assert!(
                value.end >= self.acknowledged,
                "S1: acknowledged below {:?}, {value:?}",
                self.acknowledged
            );
        }
        let place = self.assigned.iter().find(|mark| mark.end == value.end);
        assert_eq!(place.map(|mark| mark.digest), Some(value.digest), "S1: other bytes");
    }

    /// Checks that all copies are of the leader's batches (S2), and once a value was decided that w disks hold it (S7).
    pub(crate) fn check(&self) {
        for disk in &self.disks {
            for batch in &disk.batches {
                assert!(
                    self.assigned.contains(&batch.mark()),
                    "S2: {batch:?} was never written by the leader"
                );
            }
        }
        if let Some(value) = &self.decided {
            let holds = |disk: &&Disk| {
                let end = disk.batches[..disk.synced].last().map_or(Offset(0), |last| last.end);
                disk.gone
                    || (disk.promises.sealed.is_some() || disk.promises.accepted.is_some())
                        && end >= value.end
            };
            let holders = self.disks.iter().filter(holds).count();
            assert!(holders >= self.descriptor.write_quorum(), "S7: {holders} copies of {value:?}");
        }
    }

    /// Repairs everything: nodes are up, no message is lost, and one more recoverer begins. Checks that it decides the end or is
    /// outbid (L1).
    pub(crate) fn heal(&mut self) {
        for node in 0..self.disks.len() {
            self.restart(node);
        }
        self.recover();
        let place = self.recoverers.len() - 1;
        for _ in 0..2_000 {
            if self.network.is_empty() {
                break;
            }
            let flight = self.network.remove(0);
            self.deliver(flight);
            (0..self.disks.len()).for_each(|node| {
                if self.disks[node].synced < self.disks[node].batches.len() {
                    self.sync(node);
                }
            });
            self.check();
        }
        let outbid = matches!(
            self.recoverers[place].as_ref().map(Recoverer::phase),
            Some(RecovererPhase::Outbid { .. })
        );
        assert!(self.decided.is_some() || outbid, "L1: {:?}", self.recoverers[place]);
    }
}

trait Numbered {
    fn numbered(self, number: u64) -> Self;
}

impl Numbered for Descriptor {
    fn numbered(mut self, number: u64) -> Self {
        self.number = number;
        self
    }
}
