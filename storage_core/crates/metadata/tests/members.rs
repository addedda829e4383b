//! Members that are drained, removed or replaced; and what the cluster would lack if one stopped.

use std::collections::BTreeMap;

use uuid::Uuid;
use walrus_metadata::{
    Command, CommandRejection, ENVELOPE_VERSION, Envelope, Metadata, NodeState, Present, apply,
    first_descriptor, stop_impact,
};
use walrus_model::{Descriptor, DiskId, LeaderRef, NodeId, ProcessId, ReplicaRef, SegmentId, TopicId};

const NOW_MS: u64 = 1_000_000;

fn uuid(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

fn disk(node: u32) -> Uuid {
    uuid(100 + u128::from(node))
}

fn run(metadata: &mut Metadata, command: Command) -> Result<(), CommandRejection> {
    let id = Uuid::new_v4();
    apply(metadata, &Envelope { v: ENVELOPE_VERSION, id, at_ms: NOW_MS, expect: None, command }).map(|_| ())
}

fn register(node: u32) -> serde_json::Value {
    let address = format!("host{node}:1");
    serde_json::json!({"register_node": {
        "wanted": node, "disk": disk(node), "process": uuid(200 + u128::from(node)), "raft_address": address,
        "peer_address": address, "text_address": address, "grpc_address": address, "http_address": address,
    }})
}

fn command(json: serde_json::Value) -> Command {
    serde_json::from_value(json).expect("a command")
}

fn cluster_of(nodes: u32) -> Metadata {
    let mut metadata = Metadata::default();
    run(&mut metadata, command(serde_json::json!({"bootstrap": {"cluster_id": uuid(1)}})))
        .expect("a new cluster");
    for node in 1..=nodes {
        run(&mut metadata, command(register(node))).expect("a new node");
    }
    metadata
}

/// Creates a topic with one segment that is led by a node and stored by some.
fn create(metadata: &mut Metadata, name: &str, leader: u32, stored_by: &[u32]) {
    let topic = TopicId(Uuid::new_v4());
    let present = Present::only(metadata.nodes.keys().copied());
    let any =
        first_descriptor(metadata, &Default::default(), (topic, 0, SegmentId(Uuid::new_v4())), &present)
            .expect("a node is up");
    let first = vec![Descriptor {
        leader: LeaderRef { node: NodeId(leader), process: ProcessId(uuid(200 + u128::from(leader))) },
        replicas: stored_by
            .iter()
            .map(|node| ReplicaRef { node: NodeId(*node), disk: DiskId(disk(*node)) })
            .collect(),
        write_quorum: u32::try_from(stored_by.len() / 2 + 1).expect("few"),
        ..any
    }];
    let create = Command::CreateTopic {
        topic,
        org: "o".into(),
        name: name.into(),
        internal: false,
        config: BTreeMap::new(),
        first,
    };
    run(metadata, create).expect("a new topic");
}

fn drain(node: u32, draining: bool) -> Command {
    Command::DrainNode { node: NodeId(node), disk: DiskId(disk(node)), draining }
}

fn remove(node: u32, lost: bool) -> Command {
    Command::RemoveNode { node: NodeId(node), disk: DiskId(disk(node)), lost, replaced_by: None }
}

#[test]
fn a_draining_node_gets_no_segment_whatever_it_says_of_itself_until_the_drain_is_cancelled() {
    let mut metadata = cluster_of(2);
    run(&mut metadata, drain(1, true)).expect("a member");
    run(&mut metadata, drain(1, true)).expect("again is harmless");
    let (node, process) = (NodeId(1), uuid(201));
    run(&mut metadata, Command::SetNodeState { node, process: ProcessId(process), state: NodeState::Up })
        .expect("taken note of");
    let present = Present::only(metadata.nodes.keys().copied());
    for _ in 0..20 {
        let first = first_descriptor(
            &metadata,
            &Default::default(),
            (TopicId(Uuid::new_v4()), 0, SegmentId(Uuid::new_v4())),
            &present,
        );
        assert_eq!(first.expect("the other one").leader.node, NodeId(2));
    }
    run(&mut metadata, drain(1, false)).expect("cancelled");
    assert_eq!(metadata.nodes[&node].state, NodeState::Up);
}

#[test]
fn a_disk_that_stores_segments_is_removed_only_as_lost_and_never_comes_back() {
    let mut metadata = cluster_of(3);
    create(&mut metadata, "t", 2, &[2]);
    assert_eq!(
        run(&mut metadata, remove(2, false)),
        Err(CommandRejection::StillStores { node: NodeId(2), segments: 1 })
    );
    run(&mut metadata, remove(3, false)).expect("it stores nothing");
    run(&mut metadata, remove(2, true)).expect("its disk is lost");
    run(&mut metadata, remove(2, true)).expect("again is harmless");
    assert_eq!(
        run(&mut metadata, command(register(2))),
        Err(CommandRejection::DiskGone { disk: DiskId(disk(2)) })
    );
    assert_eq!(metadata.nodes.keys().copied().collect::<Vec<_>>(), [NodeId(1)]);
    let restored = Metadata::from_snapshot(&metadata.to_snapshot()).expect("our own snapshot");
    assert_eq!(restored.gone_disks, metadata.gone_disks);
}

#[test]
fn a_node_is_named_with_its_disk_and_replaced_by_a_member_only() {
    let mut metadata = cluster_of(2);
    let other =
        Command::RemoveNode { node: NodeId(1), disk: DiskId(disk(2)), lost: false, replaced_by: None };
    assert_eq!(
        run(&mut metadata, other),
        Err(CommandRejection::OtherDisk { node: NodeId(1), got: DiskId(disk(2)) })
    );
    assert_eq!(run(&mut metadata, remove(9, false)), Err(CommandRejection::UnknownNode { node: NodeId(9) }));
    let replace = |by| Command::RemoveNode {
        node: NodeId(1),
        disk: DiskId(disk(1)),
        lost: true,
        replaced_by: Some(by),
    };
    for wrong in [disk(1), disk(7)] {
        assert_eq!(
            run(&mut metadata, replace(DiskId(wrong))),
            Err(CommandRejection::OtherDisk { node: NodeId(1), got: DiskId(wrong) })
        );
    }
    run(&mut metadata, replace(DiskId(disk(2)))).expect("a member");
}

#[test]
fn renewing_leases_drives_no_command_out_of_memory() {
    let mut metadata = cluster_of(1);
    let remembered = metadata.recent.count();
    for n in 0..100 {
        let (node, process) = (NodeId(1), uuid(201));
        run(
            &mut metadata,
            Command::RenewLease { node, process: ProcessId(process), asked_boottime_ms: n, disk_bytes: 0 },
        )
        .expect("its own");
    }
    assert_eq!(metadata.recent.count(), remembered);
}

#[test]
fn stopping_a_node_counts_what_would_be_left_without_it() {
    let mut metadata = cluster_of(3);
    create(&mut metadata, "one", 1, &[1]);
    create(&mut metadata, "three", 1, &[1, 2, 3]);
    let all = [NodeId(1), NodeId(2), NodeId(3)].into();
    let first = stop_impact(&metadata, NodeId(1), &all, &all);
    assert_eq!((first.open_without_quorum, first.led), (1, 2));
    assert_eq!(first.topics, ["o/one".to_owned()].into());
    assert_eq!(stop_impact(&metadata, NodeId(2), &all, &all).open_without_quorum, 0);
    let without_three = [NodeId(1), NodeId(2)].into();
    assert_eq!(
        stop_impact(&metadata, NodeId(2), &without_three, &without_three).open_without_quorum,
        1,
        "two of three are gone then"
    );
    let behind = stop_impact(&metadata, NodeId(2), &all, &without_three);
    assert_eq!(behind.open_without_quorum, 1, "the third is there, but lacks what was acknowledged");
}
