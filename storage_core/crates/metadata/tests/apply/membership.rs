//! The founding of a cluster, nodes and their disks, leases, and the load of each node.

use walrus_metadata::{
    Answer, Command, CommandRejection, Contents, CopyReport, Found, LEVEL, Load, Metadata, NodeState, census,
};
use walrus_model::{DiskId, NodeId, ProcessId};

use crate::cluster::{bootstrap, cluster_of, create, last_segment, register, run, seal, uuid};

/// A join with port 99999, in one frame without a credential, ended every node that dialled the address, and ended each
/// again after its restart, because the address was in the log.
#[test]
fn an_address_that_nobody_can_dial_is_refused() {
    let long = format!("{}:1", "a".repeat(254));
    let bad = [
        "host",
        ":1",
        "host:",
        "host:99999",
        "host:65536",
        "host:+1",
        "host:-1",
        "host:0x1",
        "host:1:2",
        "::1:6000",
        "[::1]",
        "[::1:6000",
        "ho st:1",
        "host\n:1",
        "host:1\n",
        "h\u{f6}st:1",
        "host:\u{661}",
        "[]:1",
        &long,
    ];
    let mut metadata = cluster_of(1);
    for address in bad {
        for field in 0..6 {
            let mut command = register(2);
            let Command::RegisterNode {
                raft_address,
                peer_address,
                text_address,
                grpc_address,
                http_address,
                admin_address,
                ..
            } = &mut command
            else {
                unreachable!("it registers");
            };
            *[raft_address, peer_address, text_address, grpc_address, http_address, admin_address][field] =
                address.into();
            let refused = run(&mut metadata, command).expect_err(address);
            assert!(matches!(refused, CommandRejection::BadAddress { .. }), "{address:?}: {refused}");
        }
    }
    assert_eq!(metadata.nodes.len(), 1);
    for address in ["node-1.orders_x.svc:6000", "10.0.0.1:1", "[::1]:65535"] {
        let mut command = register(2);
        let Command::RegisterNode { raft_address, .. } = &mut command else { unreachable!("it registers") };
        *raft_address = address.into();
        run(&mut metadata, command).expect(address);
    }
}

#[test]
fn nothing_is_applied_before_the_cluster_is_founded_and_it_is_founded_once() {
    let mut metadata = Metadata::default();
    assert_eq!(run(&mut metadata, register(1)), Err(CommandRejection::NotBootstrapped));
    run(&mut metadata, bootstrap(1)).expect("first");
    let again = run(&mut metadata, bootstrap(2));
    assert_eq!(again, Err(CommandRejection::AlreadyBootstrapped { cluster_id: uuid(1) }));
}

#[test]
fn a_disk_keeps_its_node_id_over_processes_and_an_emptied_disk_gets_another() {
    let mut metadata = cluster_of(2);
    let mut restarted = register(1);
    if let Command::RegisterNode { process, .. } = &mut restarted {
        *process = ProcessId(uuid(999));
    }
    let answer = run(&mut metadata, restarted).expect("known disk").answer;
    assert_eq!(answer, Answer::Node(NodeId(1)));
    assert_eq!(metadata.nodes[&NodeId(1)].process, ProcessId(uuid(999)));

    let mut emptied = register(1);
    if let Command::RegisterNode { disk, wanted, .. } = &mut emptied {
        *disk = DiskId(uuid(888));
        *wanted = Some(NodeId(1));
    }
    assert_eq!(run(&mut metadata, emptied).expect("new disk").answer, Answer::Node(NodeId(3)));
}

#[test]
fn a_full_disk_and_a_stop_are_the_word_of_a_process_and_a_drain_outlives_it() {
    // A node that had ended for want of space came back with space, and was taken for full: nothing was placed on it.
    let restarted = || {
        let mut command = register(1);
        if let Command::RegisterNode { process, .. } = &mut command {
            *process = ProcessId(uuid(999));
        }
        command
    };
    let state_after = |state, command| {
        let mut metadata = cluster_of(1);
        run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
        run(&mut metadata, Command::SetNodeState { node: NodeId(1), process: ProcessId(uuid(201)), state })
            .expect("known");
        run(&mut metadata, command).expect("known disk");
        metadata.nodes[&NodeId(1)].state
    };
    assert_eq!(state_after(NodeState::Full, restarted()), NodeState::Up);
    assert_eq!(state_after(NodeState::Full, register(1)), NodeState::Full, "the same process said so");
    assert_eq!(state_after(NodeState::Draining, restarted()), NodeState::Draining);
    assert_eq!(state_after(NodeState::Stopping, restarted()), NodeState::Up);
    assert_eq!(
        state_after(NodeState::Stopping, register(1)),
        NodeState::Stopping,
        "it says where it listens"
    );
}

#[test]
fn a_process_that_stops_takes_nothing_back_and_ends_no_drain() {
    let mut metadata = cluster_of(1);
    let (node, process, disk) = (NodeId(1), ProcessId(uuid(201)), DiskId(uuid(101)));
    let say = |metadata: &mut Metadata, state| {
        run(metadata, Command::SetNodeState { node, process, state }).map(|_| metadata.nodes[&node].state)
    };
    let early = say(&mut metadata, NodeState::Stopping);
    assert_eq!(
        early,
        Err(CommandRejection::LevelNotReached { needed: 7, level: 1 }),
        "some member cannot know it"
    );
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    for state in [NodeState::Stopping, NodeState::Up, NodeState::Full] {
        assert_eq!(say(&mut metadata, state), Ok(NodeState::Stopping), "{state:?}");
    }
    run(&mut metadata, Command::DrainNode { node, disk, draining: false }).expect("a member");
    assert_eq!(metadata.nodes[&node].state, NodeState::Stopping, "it was not drained");
    run(&mut metadata, Command::DrainNode { node, disk, draining: true }).expect("a member");
    assert_eq!(say(&mut metadata, NodeState::Stopping), Ok(NodeState::Draining));
}

#[test]
fn each_renewal_counts_and_an_older_process_cannot_renew() {
    let mut metadata = cluster_of(1);
    let renew = |process, asked_boottime_ms| Command::RenewLease {
        node: NodeId(1),
        process,
        asked_boottime_ms,
        disk_bytes: 0,
    };
    run(&mut metadata, renew(ProcessId(uuid(201)), 9_000)).expect("its own");
    run(&mut metadata, renew(ProcessId(uuid(201)), 5_000)).expect("late, harmless");
    let facts = |metadata: &Metadata| {
        let node = &metadata.nodes[&NodeId(1)];
        (node.renewals, node.asked_boottime_ms)
    };
    assert_eq!(facts(&metadata), (2, 9_000));
    assert!(matches!(
        run(&mut metadata, renew(ProcessId(uuid(5)), 9_001)),
        Err(CommandRejection::StaleProcess { .. })
    ));

    let mut restarted = register(1);
    if let Command::RegisterNode { process, .. } = &mut restarted {
        *process = ProcessId(uuid(999));
    }
    run(&mut metadata, restarted).expect("a known disk");
    assert_eq!(
        facts(&metadata),
        (2, 0),
        "the new process has asked for nothing yet, on whatever machine it is"
    );
}

#[test]
fn the_census_counts_what_each_node_leads_and_stores_and_what_lacks_a_replica() {
    let mut metadata = cluster_of(2);
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    let topic = create(&mut metadata, "t", 2).expect("a new topic");
    let sealed = last_segment(&metadata, topic).clone();
    let digest = seal(&mut metadata, topic, 10).digest;
    let both: std::collections::BTreeSet<NodeId> = [NodeId(1), NodeId(2)].into();
    let unseen = census(&metadata, &both);
    assert_eq!(unseen.under_replicated, 1, "nobody has looked at the sealed copy yet");
    assert_eq!(unseen.spare_nodes, Some(0), "one copy is none to spare");
    let since = metadata.topics[&topic].partitions[0].segments[0].copies[0].since;
    let report = CopyReport {
        topic,
        partition: 0,
        segment: sealed.id,
        since,
        found: Found::Whole { digest },
        contents: Some(Contents { bytes: 700, newest_ms: None }),
    };
    let replica = sealed.replicas[0];
    run(&mut metadata, Command::ReportCopies { replica, reports: vec![report] }).expect("its holder");
    let all = census(&metadata, &both);
    let sum = |of: fn(&Load) -> u64| all.nodes.values().map(of).sum::<u64>();
    assert_eq!((sum(|load| load.led), sum(|load| load.held), all.under_replicated), (2, 3, 0));
    assert_eq!((sum(|load| load.bytes), all.copies_needed), (700, 1));
    let one_dead = census(&metadata, &[NodeId(1)].into());
    assert_eq!(one_dead.under_replicated, all.nodes[&NodeId(2)].held);

    let mut restarted = register(2);
    if let Command::RegisterNode { process, .. } = &mut restarted {
        *process = ProcessId(uuid(777));
    }
    run(&mut metadata, restarted).expect("a known disk");
    let after = census(&metadata, &[NodeId(1), NodeId(2)].into());
    assert_eq!(after.nodes[&NodeId(2)].led, 0, "a restarted process leads nothing that it led before");
}
