//! A cluster whose nodes do what the metadata list, and what is asked of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;
use walrus_metadata::{
    Command, CommandRejection, Contents, CopyReport, CopyState, DEFAULT_ORG, ENVELOPE_VERSION, Envelope,
    Found, LEVEL, Metadata, NodeState, Presence, Present, Segment, SegmentState, Upkeep, apply,
    first_descriptor, reason_to_roll, successor, upkeep,
};
use walrus_model::{
    Descriptor, Digest, DiskId, NodeId, Offset, ReplicaRef, Replication, SegmentId, TopicId, Value,
};

pub(crate) const TOPIC: TopicId = TopicId::from_u128(7);
pub(crate) const LEASE_MS: u64 = 3_000;
pub(crate) const GRACE_MS: u64 = 60_000;
pub(crate) const DIGEST: u64 = 99;
/// Size of a disk, and of the batches of a segment: each copy fills five percentage points.
pub(crate) const DISK_BYTES: u64 = 1000 << 20;
pub(crate) const CONTENTS: Contents = Contents { bytes: DISK_BYTES / 20, newest_ms: None };

/// A cluster whose holders do what the metadata list, as long as they are up.
pub(crate) struct World {
    pub(crate) metadata: Metadata,
    /// The renewals as the node that looks after the copies has seen them.
    presence: Presence,
    now_ms: u64,
    pub(crate) up: BTreeSet<NodeId>,
    /// What nodes tell as the size of their disks; 0: nothing.
    pub(crate) disk_bytes: u64,
    /// The zones that nodes tell; one that is not here tells none.
    pub(crate) zones: BTreeMap<NodeId, String>,
    /// Whole copies on disks, by segment.
    pub(crate) disks: BTreeMap<(SegmentId, DiskId), Found>,
}

impl World {
    pub(crate) fn new(nodes: u32, replication: Replication, moves_max: u64) -> Self {
        let (metadata, zones, disks) = (Metadata::default(), BTreeMap::new(), BTreeMap::new());
        let (presence, up) = (Presence::new(Duration::from_millis(LEASE_MS)), BTreeSet::new());
        let (now_ms, disk_bytes) = (1_000_000, DISK_BYTES);
        let mut world = Self { metadata, presence, now_ms, up, disk_bytes, zones, disks };
        world.run(Command::Bootstrap { cluster_id: Uuid::from_u128(1), replication }).expect("new");
        let set = [("copies.grace_ms".to_owned(), GRACE_MS), ("copies.moves_max".to_owned(), moves_max)];
        world.run(Command::SetConfig { set: set.into(), unset: BTreeSet::new() }).expect("known keys");
        for node in 1..=nodes {
            world.join(node);
        }
        world.run(Command::RaiseLevel { level: LEVEL }).expect("known by all");
        let first = first_descriptor(
            &world.metadata,
            &Default::default(),
            (TOPIC, 0, SegmentId(Uuid::new_v4())),
            &world.present(),
        );
        let (org, name, first) = (DEFAULT_ORG.into(), "t".into(), vec![first.expect("nodes")]);
        world
            .run(Command::CreateTopic {
                topic: TOPIC,
                org,
                name,
                internal: false,
                config: BTreeMap::new(),
                first,
            })
            .expect("new");
        world
    }

    pub(crate) fn run(&mut self, command: Command) -> Result<(), CommandRejection> {
        let (v, id, at_ms) = (ENVELOPE_VERSION, Uuid::new_v4(), self.now_ms);
        apply(&mut self.metadata, &Envelope { v, id, at_ms, expect: None, command })?;
        self.metadata.check().expect("no command breaks the state");
        Ok(())
    }

    pub(crate) fn join(&mut self, node: u32) {
        self.register(node, DiskId(Uuid::new_v4()));
    }

    pub(crate) fn register(&mut self, node: u32, disk: DiskId) {
        let zone = self.zones.get(&NodeId(node)).filter(|_| self.metadata.knows_zones());
        let register = serde_json::json!({"register_node": {
            "zone": zone.cloned().unwrap_or_default(), "wanted": node, "disk": disk, "process": Uuid::new_v4(), "raft_address": "", "peer_address": "",
            "text_address": "", "grpc_address": "", "http_address": "", "level": LEVEL,
        }});
        self.run(serde_json::from_value(register).expect("a command")).expect("a new process");
        self.up.insert(NodeId(node));
        self.pass(0);
    }

    /// Lets time pass, and lets every node that is up renew its lease.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        for node in self.up.clone() {
            let process = self.metadata.nodes[&node].process;
            let asked_boottime_ms = self.now_ms;
            let disk_bytes = if self.metadata.knows_disk_sizes() { self.disk_bytes } else { 0 };
            self.run(Command::RenewLease { node, process, asked_boottime_ms, disk_bytes }).expect("its own");
        }
        self.presence.observe(&self.metadata, Duration::from_millis(self.now_ms));
    }

    pub(crate) fn present(&self) -> Present {
        self.presence.look(&self.metadata, Duration::from_millis(self.now_ms))
    }

    pub(crate) fn open(&self) -> &Segment {
        self.metadata.topics[&TOPIC].partitions[0].segments.last().expect("one")
    }

    pub(crate) fn sealed(&self) -> Vec<Segment> {
        let segments = &self.metadata.topics[&TOPIC].partitions[0].segments;
        segments.iter().filter(|segment| matches!(segment.state, SegmentState::Sealed(_))).cloned().collect()
    }

    /// Seals the open segment; the replicas that are up have it. Answers whether there were enough of them.
    pub(crate) fn roll(&mut self) -> bool {
        let Some(next) = successor(&self.metadata, TOPIC, 0, SegmentId(Uuid::new_v4()), &[], &self.present())
        else {
            return false;
        };
        let open = self.open().descriptor.clone();
        let holders = open.replicas.iter().filter(|replica| self.is_there(**replica)).copied();
        let holders: Vec<ReplicaRef> = holders.collect();
        if holders.len() < open.write_quorum as usize {
            return false;
        }
        let (segment, partition) = (open.id, 0);
        let begin = Command::BeginRoll { topic: TOPIC, partition, segment, successor: next.clone() };
        self.run(begin).expect("open");
        let end = Offset(open.base_offset.expect("open").0 + 5);
        let successor = Descriptor { base_offset: Some(end), ..next };
        let value = Value::without_loss(end, Digest(DIGEST), successor);
        self.run(Command::SealAndOpen { topic: TOPIC, partition, segment, value }).expect("decided");
        for holder in holders {
            self.disks.insert((segment, holder.disk), Found::Whole { digest: Digest(DIGEST) });
        }
        true
    }

    pub(crate) fn is_there(&self, replica: ReplicaRef) -> bool {
        let node = self.metadata.nodes.get(&replica.node);
        self.up.contains(&replica.node) && node.is_some_and(|node| node.disk == replica.disk)
    }

    /// Whether some whole copy can be read.
    pub(crate) fn has_source(&self, segment: &Segment) -> bool {
        let mut copies = segment.copies.iter().map(|copy| copy.replica).filter(|copy| self.is_there(*copy));
        copies.any(|copy| self.is_whole(segment, copy))
    }

    /// Whether nothing of the segment is on any disk of a member.
    pub(crate) fn is_nowhere(&self, segment: &Segment) -> bool {
        let mut disks = self.metadata.nodes.values().map(|node| node.disk);
        disks.all(|disk| !self.disks.contains_key(&(segment.descriptor.id, disk)))
    }

    pub(crate) fn is_whole(&self, segment: &Segment, on: ReplicaRef) -> bool {
        matches!(self.disks.get(&(segment.descriptor.id, on.disk)), Some(Found::Whole { .. }))
    }

    /// Lets every holder that is up do what is listed for it, and say so.
    pub(crate) fn hold(&mut self) {
        for segment in self.sealed() {
            let uuid = segment.descriptor.id;
            for copy in &segment.copies {
                if !self.is_there(copy.replica) {
                    continue;
                }
                let at = (uuid, copy.replica.disk);
                match (copy.state, self.disks.get(&at).copied()) {
                    (CopyState::Filling | CopyState::Lost, None) if self.has_source(&segment) => {
                        self.disks.insert(at, Found::Whole { digest: Digest(DIGEST) });
                    }
                    (CopyState::Leaving, Some(_)) => drop(self.disks.remove(&at)),
                    _ => {}
                }
                let mut found = self.disks.get(&at).copied();
                // A holder that is to fill its copy asks everybody, and a node that is silent may have it.
                let all_answer = self.metadata.nodes.keys().all(|node| self.up.contains(node));
                if (copy.state, found) == (CopyState::Filling, None)
                    && all_answer
                    && self.is_nowhere(&segment)
                {
                    found = Some(Found::Lost);
                }
                let is_known = matches!(
                    (copy.state, found),
                    (CopyState::Verified, Some(Found::Whole { .. }))
                        | (CopyState::Damaged, Some(Found::Damaged))
                        | (CopyState::Filling | CopyState::Lost, None)
                );
                if !is_known {
                    let (found, since) = (found.unwrap_or(Found::Gone), copy.since);
                    let reports = vec![CopyReport {
                        topic: TOPIC,
                        partition: 0,
                        segment: uuid,
                        since,
                        found,
                        contents: Some(CONTENTS),
                    }];
                    self.run(Command::ReportCopies { replica: copy.replica, reports }).expect("a member");
                }
            }
        }
    }

    /// Makes the changes of one look of the upkeep. Answers whether there were any.
    pub(crate) fn keep(&mut self) -> bool {
        let before: BTreeMap<SegmentId, usize> =
            self.sealed().iter().map(|segment| (segment.descriptor.id, self.verified(segment))).collect();
        let Upkeep { changes, progress } = upkeep(&self.metadata, &self.present());
        let order: Vec<usize> = changes.iter().map(|change| self.verified_staying(change.segment)).collect();
        assert!(order.is_sorted(), "the fewest copies first: {order:?}");
        let added: usize = changes.iter().map(|change| change.added.len()).sum();
        let moves_max = self.metadata.config.entries["copies.moves_max"];
        assert!(added == 0 || added as u64 + progress.moving <= moves_max, "{added} besides {progress:?}");
        for change in &changes {
            self.run(change.command()).expect("a look that is fresh is right");
        }
        for segment in self.sealed() {
            let (left, needed) = (self.verified(&segment), segment.descriptor.write_quorum as usize);
            let had = before[&segment.descriptor.id];
            assert!(left >= needed.min(had), "{had} verified copies became {left}: {:?}", segment.copies);
        }
        !changes.is_empty()
    }

    pub(crate) fn verified(&self, segment: &Segment) -> usize {
        let is_good = |copy: &&walrus_metadata::SegmentCopy| {
            copy.state == CopyState::Verified && !self.metadata.gone_disks.contains(&copy.replica.disk)
        };
        segment.copies.iter().filter(is_good).count()
    }

    pub(crate) fn verified_staying(&self, segment: SegmentId) -> usize {
        let sealed = self.sealed();
        let segment = sealed.iter().find(|listed| listed.descriptor.id == segment).expect("listed");
        let stays = |replica: ReplicaRef| {
            self.metadata.nodes.get(&replica.node).is_some_and(|node| {
                let stays = self.present().staying.contains(&node.id);
                node.disk == replica.disk && node.state != NodeState::Draining && stays
            })
        };
        let copies = segment.copies.iter().filter(|copy| copy.state == CopyState::Verified);
        copies.filter(|copy| stays(copy.replica)).count()
    }

    /// Lets holders and upkeep act, and segments roll, until nothing changes any more.
    pub(crate) fn finish_upkeep(&mut self) {
        for _ in 0..200 {
            self.hold();
            let kept = self.keep();
            let rolled = reason_to_roll(&self.metadata, TOPIC, 0, &self.present()).is_some() && self.roll();
            let before = self.metadata.version;
            self.hold();
            if !kept && !rolled && self.metadata.version == before {
                return;
            }
        }
        panic!("the upkeep does not come to an end: {:?}", self.sealed());
    }

    pub(crate) fn drain(&mut self, node: NodeId, draining: bool) {
        let disk = self.metadata.nodes[&node].disk;
        self.run(Command::DrainNode { node, disk, draining }).expect("a member");
    }

    /// Makes a node say that its disk is full, or has room again.
    pub(crate) fn fill(&mut self, node: NodeId, full: bool) {
        let process = self.metadata.nodes[&node].process;
        let state = if full { NodeState::Full } else { NodeState::Up };
        self.run(Command::SetNodeState { node, process, state }).expect("its own");
    }

    /// Makes a node say that it is about to stop.
    pub(crate) fn stop(&mut self, node: NodeId) {
        let process = self.metadata.nodes[&node].process;
        self.run(Command::SetNodeState { node, process, state: NodeState::Stopping }).expect("its own");
    }

    /// Starts another process on a node's disk.
    pub(crate) fn restart(&mut self, node: NodeId) {
        self.register(node.0, self.metadata.nodes[&node].disk);
    }

    /// Lets a node tell its zone, with a new process.
    pub(crate) fn tell_zone(&mut self, node: NodeId, zone: &str) {
        self.zones.insert(node, zone.to_owned());
        self.restart(node);
    }

    /// The zones of the copies of each sealed segment.
    pub(crate) fn zones_of_copies(&self) -> Vec<BTreeSet<&str>> {
        let zone = |replica: &ReplicaRef| self.metadata.nodes[&replica.node].zone.as_str();
        let sealed = self.metadata.topics[&TOPIC].partitions[0].segments.iter();
        let sealed = sealed.filter(|segment| matches!(segment.state, SegmentState::Sealed(_)));
        sealed.map(|segment| segment.copies.iter().map(|copy| zone(&copy.replica)).collect()).collect()
    }

    /// Has the topic want so many copies.
    pub(crate) fn set_factor(&mut self, factor: u32) {
        let set = [("walrus.replication.factor".to_owned(), factor.to_string())].into();
        self.run(Command::AlterTopic { topic: TOPIC, set, unset: BTreeSet::new() }).expect("sound");
    }

    pub(crate) fn lose(&mut self, node: NodeId) {
        let disk = self.metadata.nodes[&node].disk;
        self.up.remove(&node);
        self.disks.retain(|(_, held_on), _| *held_on != disk);
        self.run(Command::RemoveNode { node, disk, lost: true, replaced_by: None }).expect("a member");
    }
}

pub(crate) fn three_of(nodes: u32) -> World {
    let mut world = World::new(nodes, Replication::DEFAULT, 100);
    for _ in 0..6 {
        assert!(world.roll());
    }
    world.finish_upkeep();
    assert_eq!(upkeep(&world.metadata, &world.present()).progress, walrus_metadata::Progress::default());
    world
}

pub(crate) fn holders(world: &World) -> Vec<BTreeSet<NodeId>> {
    let nodes = |segment: &Segment| segment.copies.iter().map(|copy| copy.replica.node).collect();
    world.sealed().iter().map(nodes).collect()
}

/// How full the disk of each node is, in percentage points.
pub(crate) fn fullness(world: &World) -> BTreeMap<NodeId, u64> {
    let mut points: BTreeMap<NodeId, u64> = world.metadata.nodes.keys().map(|node| (*node, 0)).collect();
    for segment in world.sealed() {
        for copy in &segment.copies {
            *points.get_mut(&copy.replica.node).expect("a member") += CONTENTS.bytes * 100 / DISK_BYTES;
        }
    }
    points
}

pub(crate) fn set_config(world: &mut World, key: &str, value: u64) {
    let set = [(key.to_owned(), value)].into();
    world.run(Command::SetConfig { set, unset: BTreeSet::new() }).expect("a known key");
}
