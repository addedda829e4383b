//! A node is never taken for alive whose renewals ended longer than a lease ago, whatever the wall clocks say.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use uuid::Uuid;
use walrus_metadata::{Command, CommandRejection, ENVELOPE_VERSION, Envelope, Metadata, Presence, apply};
use walrus_model::{NodeId, ProcessId, Replication};

const LEASE_MS: u64 = 3_000;
const GRACE_MS: u64 = 60_000;

/// A cluster and its proposers' wall clock, which may show any time.
struct Cluster {
    metadata: Metadata,
    wall_ms: u64,
}

impl Cluster {
    fn of(nodes: u32) -> Self {
        let mut cluster = Self { metadata: Metadata::default(), wall_ms: 1_000_000 };
        let founded =
            Command::Bootstrap { cluster_id: Uuid::from_u128(1), replication: Replication::single() };
        cluster.run(founded).expect("new");
        let grace =
            Command::SetConfig { set: [("copies.grace_ms".to_owned(), GRACE_MS)].into(), unset: [].into() };
        cluster.run(grace).expect("a known key");
        for node in 1..=nodes {
            cluster.join(node);
        }
        cluster
    }

    fn run(&mut self, command: Command) -> Result<(), CommandRejection> {
        let (v, id, at_ms) = (ENVELOPE_VERSION, Uuid::new_v4(), self.wall_ms);
        apply(&mut self.metadata, &Envelope { v, id, at_ms, expect: None, command }).map(drop)
    }

    /// Admits a new disk under this id.
    fn join(&mut self, node: u32) {
        let command = serde_json::json!({"register_node": {
            "wanted": node, "disk": Uuid::new_v4(), "process": Uuid::new_v4(), "raft_address": "", "peer_address": "",
            "text_address": "", "grpc_address": "", "http_address": "",
        }});
        self.run(serde_json::from_value(command).expect("a command")).expect("a free id");
    }

    fn leave(&mut self, node: NodeId) {
        let disk = self.metadata.nodes[&node].disk;
        self.run(Command::RemoveNode { node, disk, lost: true, replaced_by: None }).expect("a member");
    }

    fn renew(&mut self, node: NodeId, asked_boottime_ms: u64) {
        let process = self.metadata.nodes[&node].process;
        self.run(Command::RenewLease { node, process, asked_boottime_ms, disk_bytes: 0 }).expect("its own");
    }
}

fn new_presence() -> Presence {
    Presence::new(at(LEASE_MS))
}

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn alive(presence: &Presence, metadata: &Metadata, now_ms: u64) -> Vec<u32> {
    presence.look(metadata, at(now_ms)).alive.into_iter().map(|node| node.0).collect()
}

#[test]
fn a_node_is_alive_for_a_lease_after_each_renewal_whatever_the_wall_clocks_do() {
    let mut cluster = Cluster::of(2);
    let mut presence = new_presence();
    presence.observe(&cluster.metadata, at(0));
    assert_eq!(alive(&presence, &cluster.metadata, 0), [0; 0], "who has never renewed is not there");
    for wall_ms in [0, u64::MAX / 2, 5] {
        cluster.wall_ms = wall_ms;
        cluster.renew(NodeId(1), 7);
    }
    presence.observe(&cluster.metadata, at(100));
    assert_eq!(alive(&presence, &cluster.metadata, 99 + LEASE_MS), [1]);
    assert_eq!(alive(&presence, &cluster.metadata, 100 + LEASE_MS), [0; 0]);
    presence.observe(&cluster.metadata, at(200 + LEASE_MS)); // other things changed
    assert_eq!(alive(&presence, &cluster.metadata, 200 + LEASE_MS), [0; 0]);

    let staying = |now_ms| presence.look(&cluster.metadata, at(now_ms)).staying;
    assert_eq!(staying(99 + LEASE_MS + GRACE_MS), [NodeId(1)].into());
    assert_eq!(staying(100 + LEASE_MS + GRACE_MS), [].into());
}

#[test]
fn whoever_has_just_started_takes_the_long_dead_for_alive_for_one_lease_at_most() {
    let mut cluster = Cluster::of(2);
    cluster.renew(NodeId(1), 7);
    let mut presence = new_presence();
    for now_ms in (5_000..5_000 + LEASE_MS).step_by(500) {
        presence.observe(&cluster.metadata, at(now_ms));
        assert_eq!(alive(&presence, &cluster.metadata, now_ms), [1]);
    }
    assert_eq!(alive(&presence, &cluster.metadata, 5_000 + LEASE_MS), [0; 0]);
}

#[test]
fn a_state_that_has_lost_commands_shows_no_life_and_neither_does_another_disk_under_the_same_id() {
    let mut cluster = Cluster::of(2);
    cluster.renew(NodeId(2), 7);
    let earlier = cluster.metadata.clone();
    cluster.renew(NodeId(2), 8);
    let mut presence = new_presence();
    presence.observe(&cluster.metadata, at(0));
    presence.observe(&earlier, at(LEASE_MS));
    presence.observe(&cluster.metadata, at(LEASE_MS));
    assert_eq!(alive(&presence, &cluster.metadata, LEASE_MS), [0; 0]);

    cluster.leave(NodeId(2));
    cluster.join(2);
    presence.observe(&cluster.metadata, at(LEASE_MS));
    assert_eq!(alive(&presence, &cluster.metadata, LEASE_MS), [0; 0]);
    cluster.renew(NodeId(2), 1);
    presence.observe(&cluster.metadata, at(LEASE_MS + 1));
    assert_eq!(alive(&presence, &cluster.metadata, LEASE_MS + 1), [2]);
}

#[test]
fn a_process_holds_its_lease_from_when_it_asked_for_it_and_another_process_never_does() {
    let mut cluster = Cluster::of(1);
    let process = cluster.metadata.nodes[&NodeId(1)].process;
    let holds = |cluster: &Cluster, process, now_ms| {
        new_presence().is_held(&cluster.metadata.nodes[&NodeId(1)], process, at(now_ms))
    };
    assert!(!holds(&cluster, process, 1), "it has not asked yet");
    cluster.renew(NodeId(1), 50);
    assert!(holds(&cluster, process, 49 + LEASE_MS));
    assert!(!holds(&cluster, process, 50 + LEASE_MS), "however late it heard that it was granted");
    assert!(!holds(&cluster, ProcessId::from_u128(0), 51));
}

#[derive(Clone, Debug)]
enum Step {
    Renew(u32),
    Pass(u64),
    See,
    Restart,
    JumpWall(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..5u32).prop_map(Step::Renew),
        4 => (0..2 * LEASE_MS).prop_map(Step::Pass),
        4 => Just(Step::See),
        1 => Just(Step::Restart),
        1 => any::<u64>().prop_map(Step::JumpWall),
    ]
}

proptest! {
    /// Compares with a table of when each renewal was first seen, which the test keeps itself.
    #[test]
    fn alive_is_who_was_seen_renewing_less_than_a_lease_ago(steps in prop::collection::vec(step(), 1..80)) {
        let mut cluster = Cluster::of(4);
        let mut presence = new_presence();
        let mut now_ms = 0;
        let mut renewed: BTreeMap<u32, bool> = BTreeMap::new(); // nodes that ever renewed; true if it was not seen yet
        let mut seen_ms: BTreeMap<u32, u64> = BTreeMap::new();
        for step in &steps {
            match step {
                Step::Renew(node) => {
                    cluster.renew(NodeId(*node), now_ms);
                    renewed.insert(*node, true);
                }
                Step::Pass(ms) => now_ms += ms,
                Step::See => {
                    presence.observe(&cluster.metadata, at(now_ms));
                    for (node, is_new) in &mut renewed {
                        if std::mem::take(is_new) {
                            seen_ms.insert(*node, now_ms);
                        }
                    }
                }
                Step::Restart => {
                    presence = new_presence();
                    seen_ms.clear();
                    renewed.values_mut().for_each(|is_new| *is_new = true);
                }
                Step::JumpWall(to) => cluster.wall_ms = *to,
            }
            let expected: Vec<u32> =
                seen_ms.iter().filter(|(_, seen)| now_ms - **seen < LEASE_MS).map(|(node, _)| *node).collect();
            prop_assert_eq!(alive(&presence, &cluster.metadata, now_ms), expected);
            let present = presence.look(&cluster.metadata, at(now_ms));
            prop_assert!(present.alive.is_subset(&present.staying));
        }
    }
}
