//! The promises of the upkeep of copies: each segment comes back to n copies when that is possible and never falls below w
//! on the way, those with the fewest come first, no more are moved at once than allowed, and a drained node ends empty.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use uuid::Uuid;
use walrus_metadata::{
    Command, CommandRejection, Contents, CopyReport, CopyState, DEFAULT_ORG, ENVELOPE_VERSION, Envelope,
    Found, LEVEL, Metadata, NodeState, Presence, Present, Segment, SegmentState, apply, census,
    first_descriptor, reason_to_roll, successor, upkeep,
};
use walrus_model::{
    Descriptor, Digest, DiskId, NodeId, Offset, ReplicaRef, Replication, SegmentId, TopicId, Value,
};

const TOPIC: TopicId = TopicId::from_u128(7);
const LEASE_MS: u64 = 3_000;
const GRACE_MS: u64 = 60_000;
const DIGEST: u64 = 99;
/// Size of a disk, and of the batches of a segment: each copy fills five percentage points.
const DISK_BYTES: u64 = 1000 << 20;
const CONTENTS: Contents = Contents { bytes: DISK_BYTES / 20, newest_ms: None };

/// A cluster whose holders do what the metadata list, as long as they are up.
struct World {
    metadata: Metadata,
    /// The renewals as the node that looks after the copies has seen them.
    presence: Presence,
    now_ms: u64,
    up: BTreeSet<NodeId>,
    /// What nodes tell as the size of their disks; 0: nothing.
    disk_bytes: u64,
    /// Whole copies on disks, by segment.
    disks: BTreeMap<(SegmentId, DiskId), Found>,
}

impl World {
    fn new(nodes: u32, replication: Replication, moves_max: u64) -> Self {
        let (metadata, disks) = (Metadata::default(), BTreeMap::new());
        let (presence, up) = (Presence::new(Duration::from_millis(LEASE_MS)), BTreeSet::new());
        let mut world = Self { metadata, presence, now_ms: 1_000_000, up, disk_bytes: DISK_BYTES, disks };
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

    fn run(&mut self, command: Command) -> Result<(), CommandRejection> {
        let (v, id, at_ms) = (ENVELOPE_VERSION, Uuid::new_v4(), self.now_ms);
        apply(&mut self.metadata, &Envelope { v, id, at_ms, expect: None, command })?;
        self.metadata.check().expect("no command breaks the state");
        Ok(())
    }

    fn join(&mut self, node: u32) {
        self.register(node, DiskId(Uuid::new_v4()));
    }

    fn register(&mut self, node: u32, disk: DiskId) {
        let register = serde_json::json!({"register_node": {
            "wanted": node, "disk": disk, "process": Uuid::new_v4(), "raft_address": "", "peer_address": "",
            "text_address": "", "grpc_address": "", "http_address": "", "level": LEVEL,
        }});
        self.run(serde_json::from_value(register).expect("a command")).expect("a new process");
        self.up.insert(NodeId(node));
        self.pass(0);
    }

    /// Lets time pass, and lets every node that is up renew its lease.
    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        for node in self.up.clone() {
            let process = self.metadata.nodes[&node].process;
            let asked_boottime_ms = self.now_ms;
            let disk_bytes = if self.metadata.knows_disk_sizes() { self.disk_bytes } else { 0 };
            self.run(Command::RenewLease { node, process, asked_boottime_ms, disk_bytes }).expect("its own");
        }
        self.presence.observe(&self.metadata, Duration::from_millis(self.now_ms));
    }

    fn present(&self) -> Present {
        self.presence.look(&self.metadata, Duration::from_millis(self.now_ms))
    }

    fn open(&self) -> &Segment {
        self.metadata.topics[&TOPIC].partitions[0].segments.last().expect("one")
    }

    fn sealed(&self) -> Vec<Segment> {
        let segments = &self.metadata.topics[&TOPIC].partitions[0].segments;
        segments.iter().filter(|segment| matches!(segment.state, SegmentState::Sealed(_))).cloned().collect()
    }

    /// Seals the open segment; the replicas that are up have it. Answers whether there were enough of them.
    fn roll(&mut self) -> bool {
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

    fn is_there(&self, replica: ReplicaRef) -> bool {
        let node = self.metadata.nodes.get(&replica.node);
        self.up.contains(&replica.node) && node.is_some_and(|node| node.disk == replica.disk)
    }

    /// Whether some whole copy can be read.
    fn has_source(&self, segment: &Segment) -> bool {
        let mut copies = segment.copies.iter().map(|copy| copy.replica).filter(|copy| self.is_there(*copy));
        copies.any(|copy| self.is_whole(segment, copy))
    }

    /// Whether nothing of the segment is on any disk of a member.
    fn is_nowhere(&self, segment: &Segment) -> bool {
        let mut disks = self.metadata.nodes.values().map(|node| node.disk);
        disks.all(|disk| !self.disks.contains_key(&(segment.descriptor.id, disk)))
    }

    fn is_whole(&self, segment: &Segment, on: ReplicaRef) -> bool {
        matches!(self.disks.get(&(segment.descriptor.id, on.disk)), Some(Found::Whole { .. }))
    }

    /// Lets every holder that is up do what is listed for it, and say so.
    fn hold(&mut self) {
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
    fn keep(&mut self) -> bool {
        let before: BTreeMap<SegmentId, usize> =
            self.sealed().iter().map(|segment| (segment.descriptor.id, self.verified(segment))).collect();
        let moving = upkeep(&self.metadata, &self.present()).progress.moving;
        let changes = upkeep(&self.metadata, &self.present()).changes;
        let order: Vec<usize> = changes.iter().map(|change| self.verified_staying(change.segment)).collect();
        assert!(order.is_sorted(), "the fewest copies first: {order:?}");
        let added: usize = changes.iter().map(|change| change.added.len()).sum();
        let moves_max = self.metadata.config.entries["copies.moves_max"];
        assert!(added == 0 || added as u64 + moving <= moves_max, "{added} besides {moving}");
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

    fn verified(&self, segment: &Segment) -> usize {
        let is_good = |copy: &&walrus_metadata::SegmentCopy| {
            copy.state == CopyState::Verified && !self.metadata.gone_disks.contains(&copy.replica.disk)
        };
        segment.copies.iter().filter(is_good).count()
    }

    fn verified_staying(&self, segment: SegmentId) -> usize {
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
    fn finish_upkeep(&mut self) {
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

    fn drain(&mut self, node: NodeId, draining: bool) {
        let disk = self.metadata.nodes[&node].disk;
        self.run(Command::DrainNode { node, disk, draining }).expect("a member");
    }

    /// Makes a node say that its disk is full, or has room again.
    fn fill(&mut self, node: NodeId, full: bool) {
        let process = self.metadata.nodes[&node].process;
        let state = if full { NodeState::Full } else { NodeState::Up };
        self.run(Command::SetNodeState { node, process, state }).expect("its own");
    }

    /// Makes a node say that it is about to stop.
    fn stop(&mut self, node: NodeId) {
        let process = self.metadata.nodes[&node].process;
        self.run(Command::SetNodeState { node, process, state: NodeState::Stopping }).expect("its own");
    }

    /// Starts another process on a node's disk.
    fn restart(&mut self, node: NodeId) {
        self.register(node.0, self.metadata.nodes[&node].disk);
    }

    /// Has the topic want so many copies.
    fn set_factor(&mut self, factor: u32) {
        let set = [("walrus.replication.factor".to_owned(), factor.to_string())].into();
        self.run(Command::AlterTopic { topic: TOPIC, set, unset: BTreeSet::new() }).expect("sound");
    }

    fn lose(&mut self, node: NodeId) {
        let disk = self.metadata.nodes[&node].disk;
        self.up.remove(&node);
        self.disks.retain(|(_, held_on), _| *held_on != disk);
        self.run(Command::RemoveNode { node, disk, lost: true, replaced_by: None }).expect("a member");
    }
}

fn three_of(nodes: u32) -> World {
    let mut world = World::new(nodes, Replication::DEFAULT, 100);
    for _ in 0..6 {
        assert!(world.roll());
    }
    world.finish_upkeep();
    assert_eq!(upkeep(&world.metadata, &world.present()).progress, walrus_metadata::Progress::default());
    world
}

#[test]
fn the_copies_of_a_topic_come_to_its_own_number_but_never_below_their_quorum() {
    let mut world = three_of(5);
    for factor in [5, 3, 1] {
        world.set_factor(factor);
        world.finish_upkeep();
        assert_eq!(upkeep(&world.metadata, &world.present()).progress, walrus_metadata::Progress::default());
        for segment in world.sealed() {
            assert_eq!(segment.copies.len(), factor.max(segment.descriptor.write_quorum) as usize);
        }
        let census = walrus_metadata::census(&world.metadata, &world.present().alive);
        assert_eq!(census.under_replicated, 0);
    }
    world.set_factor(9);
    world.finish_upkeep();
    let progress = upkeep(&world.metadata, &world.present()).progress;
    assert_eq!(progress.under_replicated, world.sealed().len() as u64, "there are but five nodes");
}

fn holders(world: &World) -> Vec<BTreeSet<NodeId>> {
    let nodes = |segment: &Segment| segment.copies.iter().map(|copy| copy.replica.node).collect();
    world.sealed().iter().map(nodes).collect()
}

#[test]
fn a_lost_disk_is_made_up_for_on_the_others_and_a_silent_node_only_after_the_grace() {
    let mut world = three_of(4);
    world.lose(NodeId(2));
    world.finish_upkeep();
    assert!(holders(&world).iter().all(|held| *held == [NodeId(1), NodeId(3), NodeId(4)].into()));

    world.join(5);
    world.up.remove(&NodeId(3));
    world.pass(GRACE_MS);
    world.finish_upkeep();
    assert!(holders(&world).iter().all(|held| !held.contains(&NodeId(5))), "it may come back");
    world.pass(LEASE_MS);
    world.finish_upkeep();
    assert!(holders(&world).iter().all(|held| held.contains(&NodeId(5)) && held.contains(&NodeId(3))));

    world.up.insert(NodeId(3));
    world.pass(1);
    world.finish_upkeep();
    assert!(holders(&world).iter().all(|held| held.len() == 3), "four are too many: {:?}", holders(&world));
}

#[test]
fn a_drained_node_ends_empty_and_with_nobody_to_take_its_copies_w_are_enough() {
    let mut world = three_of(4);
    world.drain(NodeId(1), true);
    world.finish_upkeep();
    assert!(holders(&world).iter().all(|held| !held.contains(&NodeId(1)) && held.len() == 3));
    assert!(world.disks.keys().all(|(_, disk)| *disk != world.metadata.nodes[&NodeId(1)].disk));
    let disk = world.metadata.nodes[&NodeId(1)].disk;
    let remove = Command::RemoveNode { node: NodeId(1), disk, lost: false, replaced_by: None };
    world.run(remove).expect("it stores nothing any more");
    world.up.remove(&NodeId(1));

    world.drain(NodeId(2), true);
    world.finish_upkeep();
    assert!(holders(&world).iter().all(|held| *held == [NodeId(3), NodeId(4)].into()));
    world.drain(NodeId(3), true);
    world.finish_upkeep();
    assert!(holders(&world).iter().all(|held| held.len() == 2), "never below w");
    world.drain(NodeId(3), false);
    world.drain(NodeId(2), false);
    world.finish_upkeep();
    assert!(holders(&world).iter().all(|held| held.len() == 3), "{:?}", holders(&world));
}

#[test]
fn an_open_segment_leaves_a_full_node_and_comes_back_and_sealed_copies_stay() {
    let mut world = three_of(4);
    let full = world.open().descriptor.leader.node;
    world.fill(full, true);
    let before = holders(&world);
    world.finish_upkeep();
    let open = world.open().descriptor.clone();
    assert!(open.replicas.len() == 3 && open.replicas.iter().all(|replica| replica.node != full));
    assert!(holders(&world).starts_with(&before), "what it has can be read");
    world.fill(NodeId(full.0 % 4 + 1), true);
    world.finish_upkeep();
    assert_eq!(world.open().descriptor.replicas.len(), 2);
    world.fill(full, false);
    world.finish_upkeep();
    assert_eq!(world.open().descriptor.replicas.len(), 3);
}

#[test]
fn a_copy_beyond_mending_is_made_anew_once_enough_others_are_there() {
    let mut world = three_of(3);
    let segment = world.sealed()[0].clone();
    let bad = segment.copies[0].replica;
    world.disks.insert((segment.descriptor.id, bad.disk), Found::Damaged);
    world.finish_upkeep();
    let copies = &world.sealed()[0].copies;
    assert!(copies.len() == 3 && copies.iter().all(|copy| copy.state == CopyState::Verified), "{copies:?}");
}

/// Copies that were listed in place of those on gone disks stayed to be made for ever: their nodes were never caught up,
/// used up the moves of others and could not be drained, no node could be spared, and nobody said that anything was lost.
#[test]
fn a_segment_all_of_whose_disks_are_gone_is_listed_as_lost_and_is_in_nobodys_way() {
    let mut world = World::new(6, Replication::DEFAULT, 100);
    for _ in 0..40 {
        assert!(world.roll());
    }
    world.finish_upkeep();
    let open: BTreeSet<NodeId> =
        world.open().descriptor.replicas.iter().map(|replica| replica.node).collect();
    let lost: Vec<NodeId> =
        world.metadata.nodes.keys().filter(|node| !open.contains(node)).copied().collect();
    let was_there = |segment: &Segment| segment.copies.iter().all(|copy| lost.contains(&copy.replica.node));
    let gone: BTreeSet<SegmentId> =
        world.sealed().iter().filter(|segment| was_there(segment)).map(|one| one.descriptor.id).collect();
    assert!(!gone.is_empty());
    lost.iter().for_each(|node| world.lose(*node));
    let first_look = upkeep(&world.metadata, &world.present());
    let seekers = |change: &&walrus_metadata::CopyChange| gone.contains(&change.segment);
    assert!(
        first_look.changes.iter().filter(seekers).all(|change| change.added.len() == 1),
        "one looks for it"
    );
    world.finish_upkeep();
    world.join(9);
    world.join(10);
    world.finish_upkeep();

    let is_lost = |segment: &Segment| gone.contains(&segment.descriptor.id);
    assert!(
        world.sealed().iter().all(|segment| segment.is_lost() == is_lost(segment)),
        "{:?}",
        world.sealed()
    );
    let progress = upkeep(&world.metadata, &world.present()).progress;
    let all_lost =
        walrus_metadata::Progress { lost: gone.len() as u64, ..walrus_metadata::Progress::default() };
    assert_eq!(progress, all_lost);
    let seen = census(&world.metadata, &world.up);
    assert!(seen.nodes.values().all(|load| load.filling == 0), "{seen:?}");
    assert_eq!((seen.under_replicated, seen.spare_nodes), (0, Some(1)));

    // The node that looked for it can go.
    let seeker = world.sealed().into_iter().find(is_lost).expect("one").copies[0].replica;
    world.drain(seeker.node, true);
    world.finish_upkeep();
    let remove = Command::RemoveNode { node: seeker.node, disk: seeker.disk, lost: false, replaced_by: None };
    world.run(remove).expect("it stores nothing");
    world.up.remove(&seeker.node);
    world.finish_upkeep();
    assert!(world.sealed().iter().all(|segment| segment.is_lost() == is_lost(segment)), "another one looked");

    // A disk that lost its votes comes back with its log.
    let back = world.sealed().into_iter().find(is_lost).expect("one");
    world.disks.insert(
        (back.descriptor.id, DiskId(back.copies[0].replica.disk.0)),
        Found::Whole { digest: Digest(DIGEST) },
    );
    world.finish_upkeep();
    let whole = world.sealed().into_iter().find(|one| one.descriptor.id == back.descriptor.id);
    assert_eq!(world.verified(&whole.expect("listed")), 3);
}

/// How full the disk of each node is, in percentage points.
fn fullness(world: &World) -> BTreeMap<NodeId, u64> {
    let mut points: BTreeMap<NodeId, u64> = world.metadata.nodes.keys().map(|node| (*node, 0)).collect();
    for segment in world.sealed() {
        for copy in &segment.copies {
            *points.get_mut(&copy.replica.node).expect("a member") += CONTENTS.bytes * 100 / DISK_BYTES;
        }
    }
    points
}

fn set_config(world: &mut World, key: &str, value: u64) {
    let set = [(key.to_owned(), value)].into();
    world.run(Command::SetConfig { set, unset: BTreeSet::new() }).expect("a known key");
}

#[test]
fn nodes_that_join_take_their_share_from_the_fullest_disks_and_no_segment_lacks_a_copy_meanwhile() {
    let mut world = three_of(3);
    while world.sealed().len() < 15 {
        assert!(world.roll());
    }
    world.finish_upkeep();
    assert_eq!(fullness(&world).into_values().collect::<Vec<_>>(), [75, 75, 75]);
    world.join(4);
    world.join(5);
    world.pass(1);
    set_config(&mut world, "copies.moves_max", 4);
    loop {
        world.hold();
        assert!(world.sealed().iter().all(|segment| world.verified(segment) >= 3));
        let moves = upkeep(&world.metadata, &world.present());
        let added: usize = moves.changes.iter().map(|change| change.added.len()).sum();
        assert!(moves.progress.moving + added as u64 <= 4);
        if !world.keep() {
            break;
        }
    }
    world.hold();
    let points = fullness(&world);
    assert_eq!(points.values().sum::<u64>(), 15 * 3 * 5, "{points:?}");
    // Two nodes hold nothing at first, and three quarters of three disks are 45 points of five.
    assert!(points.values().all(|points| *points <= 45 + 10), "{points:?}");
    assert!(holders(&world).iter().all(|held| held.len() == 3));
}

#[test]
fn copies_stay_where_they_are_when_the_imbalance_is_allowed_or_sizes_are_not_known() {
    let mut world = three_of(3);
    while world.sealed().len() < 15 {
        assert!(world.roll());
    }
    world.finish_upkeep();
    let before = holders(&world);
    world.disk_bytes = 0;
    world.join(4);
    world.finish_upkeep();
    assert_eq!(holders(&world), before, "nobody knows how large its disk is");
    set_config(&mut world, "copies.imbalance_max_points", 100);
    world.disk_bytes = DISK_BYTES;
    world.pass(1);
    world.finish_upkeep();
    assert_eq!(holders(&world), before, "that much is allowed");
    set_config(&mut world, "copies.imbalance_max_points", 10);
    world.finish_upkeep();
    assert_ne!(holders(&world), before);
}

#[test]
fn a_full_node_gives_copies_to_others() {
    let mut world = three_of(3);
    while world.sealed().len() < 15 {
        assert!(world.roll());
    }
    world.finish_upkeep();
    world.fill(NodeId(1), true);
    world.join(4);
    world.pass(1);
    world.finish_upkeep();
    assert!(fullness(&world)[&NodeId(1)] < 75, "{:?}", fullness(&world));
}

#[derive(Clone, Debug)]
enum Step {
    Roll,
    Hold,
    Keep,
    Pass(u64),
    Silence(u8),
    Return(u8),
    Drain(u8, bool),
    Full(u8, bool),
    Stop(u8),
    Restart(u8),
    Lose(u8),
    Join,
    Damage(u8, u8),
    Factor(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Roll),
        6 => Just(Step::Hold),
        6 => Just(Step::Keep),
        2 => (0..2 * GRACE_MS).prop_map(Step::Pass),
        1 => any::<u8>().prop_map(Step::Silence),
        2 => any::<u8>().prop_map(Step::Return),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(node, draining)| Step::Drain(node, draining)),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(node, full)| Step::Full(node, full)),
        2 => any::<u8>().prop_map(Step::Stop),
        2 => any::<u8>().prop_map(Step::Restart),
        1 => any::<u8>().prop_map(Step::Lose),
        2 => Just(Step::Join),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(segment, copy)| Step::Damage(segment, copy)),
        1 => (2..5u32).prop_map(Step::Factor),
    ]
}

fn pick<T: Copy>(from: impl IntoIterator<Item = T>, index: u8) -> Option<T> {
    let all: Vec<T> = from.into_iter().collect();
    (!all.is_empty()).then(|| all[usize::from(index) % all.len()])
}

impl World {
    fn take(&mut self, step: &Step) {
        let nodes: Vec<NodeId> = self.metadata.nodes.keys().copied().collect();
        match step {
            Step::Roll => drop(self.roll()),
            Step::Hold => self.hold(),
            Step::Keep => drop(self.keep()),
            Step::Pass(ms) => self.pass(*ms),
            Step::Silence(node) => drop(pick(nodes, *node).map(|node| self.up.remove(&node))),
            Step::Return(node) => {
                self.up.extend(pick(nodes, *node));
                self.pass(1);
            }
            Step::Drain(node, draining) => {
                let node = pick(nodes, *node);
                node.into_iter().for_each(|node| self.drain(node, *draining));
            }
            Step::Full(node, full) => {
                let node = pick(nodes, *node);
                node.into_iter().for_each(|node| self.fill(node, *full));
            }
            Step::Stop(node) => drop(pick(nodes, *node).map(|node| self.stop(node))),
            Step::Restart(node) => drop(pick(nodes, *node).map(|node| self.restart(node))),
            // Disks are lost one at a time, for two at once may take the last copies.
            Step::Lose(node) if upkeep(&self.metadata, &self.present()).progress.under_replicated == 0 => {
                let open = self.open().descriptor.replicas.clone();
                let may_go = |node: &NodeId| open.iter().all(|replica| replica.node != *node);
                let node = pick(nodes.into_iter().filter(may_go), *node);
                node.into_iter().for_each(|node| self.lose(node));
            }
            Step::Join if nodes.len() < 8 => self.join(nodes.last().map_or(1, |last| last.0 + 1)),
            Step::Damage(segment, copy) => {
                if let Some(segment) =
                    pick(0..self.sealed().len(), *segment).map(|at| self.sealed()[at].clone())
                    && segment.copies.iter().all(|copy| self.is_whole(&segment, copy.replica))
                    && self.verified(&segment) == segment.copies.len()
                    && segment.copies.len() > segment.descriptor.write_quorum as usize
                    && let Some(copy) = pick(segment.copies.clone(), *copy)
                {
                    self.disks.insert((segment.descriptor.id, copy.replica.disk), Found::Damaged);
                }
            }
            Step::Factor(factor) => self.set_factor(*factor),
            Step::Lose(_) | Step::Join => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_cluster_is_whole_again_once_all_nodes_are_back(
        nodes in 3..6u8,
        moves_max in 1..5u64,
        factor in 2..5u32,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new(nodes.into(), Replication::DEFAULT, moves_max);
        for step in &steps {
            world.take(step);
        }
        let all: Vec<NodeId> = world.metadata.nodes.keys().copied().collect();
        world.up.extend(all.iter().copied());
        for node in &all {
            world.drain(*node, false);
            world.restart(*node);
            world.fill(*node, false);
        }
        world.set_factor(factor);
        let factor = factor as usize;
        while world.up.len() < factor {
            world.take(&Step::Join);
        }
        world.pass(1);
        world.finish_upkeep();
        // No disk is much fuller than the others: where one is, every other one has a copy, too, or is nearly as full.
        let points = fullness(&world);
        let mean = points.values().sum::<u64>() / points.len() as u64;
        for (node, _) in points.iter().filter(|(_, points)| **points > mean + 11) {
            for held in holders(&world).iter().filter(|held| held.contains(node)) {
                let others = points.iter().filter(|(other, _)| !held.contains(other));
                prop_assert!(others.map(|(_, points)| points + 5).all(|after| after >= points[node]), "{:?}", points);
            }
        }
        // What had to acknowledge a segment's records is never given up.
        let wanted = |segment: &Segment| factor.max(segment.descriptor.write_quorum as usize);
        for segment in world.sealed() {
            prop_assert_eq!(segment.copies.len(), wanted(&segment), "{:?}", &segment.copies);
            prop_assert_eq!(world.verified(&segment), wanted(&segment), "{:?}", &segment.copies);
        }
        prop_assert!(world.open().descriptor.replicas.len() >= factor);

        if let Some(drained) = pick(world.up.clone(), nodes).filter(|_| world.up.len() > factor.max(3)) {
            world.drain(drained, true);
            world.finish_upkeep();
            prop_assert!(holders(&world).iter().all(|held| !held.contains(&drained) && held.len() >= factor));
            let open = world.open().descriptor.clone();
            prop_assert!(open.replicas.iter().all(|replica| replica.node != drained), "{:?}", open);
        }
    }
}
