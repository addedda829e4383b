//! What `apply` promises: refusals change nothing, repeats act once, partitions stay a chain of segments.

use proptest::prelude::*;
use uuid::Uuid;
use walrus_metadata::{
    Answer, Applied, Command, CopyReport, Descriptor, ENVELOPE_VERSION, Envelope, Epoch, Found, LEVEL, Load,
    Metadata, NodeId, NodeState, Offset, Present, Rejected, Replication, SegmentState, TopicId, Value, apply,
    census, first_descriptor, successor,
};

const NOW_MS: u64 = 1_000_000;

fn uuid(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

fn envelope(id: u128, command: Command) -> Envelope {
    Envelope { v: ENVELOPE_VERSION, id: uuid(id), at_ms: NOW_MS, expect: None, command }
}

/// Applies a command under an id of its own.
fn run(metadata: &mut Metadata, command: Command) -> Result<Applied, Rejected> {
    let id = Uuid::new_v4();
    apply(metadata, &Envelope { v: ENVELOPE_VERSION, id, at_ms: NOW_MS, expect: None, command })
}

/// Node n renews its lease, and its clock says so.
fn renew_at(metadata: &mut Metadata, n: u32, at_ms: u64) {
    let (node, process) = (NodeId(n), metadata.nodes[&NodeId(n)].process);
    let renew = Command::RenewLease { node, process, asked_boottime_ms: 0 };
    apply(metadata, &Envelope { at_ms, ..envelope(0, renew) }).expect("its own");
}

fn bootstrap(id: u128) -> Command {
    Command::Bootstrap { cluster_id: uuid(id), replication: Replication::single() }
}

fn register(n: u128) -> Command {
    Command::RegisterNode {
        wanted: None,
        disk: uuid(100 + n),
        process: uuid(200 + n),
        raft_address: format!("host{n}:6000"),
        peer_address: format!("host{n}:6001"),
        text_address: format!("host{n}:8080"),
        grpc_address: format!("host{n}:9090"),
        http_address: format!("host{n}:8088"),
        admin_address: format!("host{n}:9091"),
        name: format!("pod-{n}"),
        level: LEVEL,
    }
}

/// A join with port 99999, one frame without a credential, ended every node that dialled it, and each again after its
/// restart: the address was in the log.
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
            assert!(matches!(refused, Rejected::BadAddress { .. }), "{address:?}: {refused}");
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

fn cluster_of(nodes: u128) -> Metadata {
    let mut metadata = Metadata::default();
    run(&mut metadata, bootstrap(1)).expect("a new cluster");
    for n in 1..=nodes {
        run(&mut metadata, register(n)).expect("a new node");
    }
    metadata
}

fn everybody(metadata: &Metadata) -> Present {
    Present::only(metadata.nodes.keys().copied())
}

fn create(metadata: &mut Metadata, name: &str, partitions: u32) -> Result<TopicId, Rejected> {
    let topic = TopicId(Uuid::new_v4());
    let present = everybody(metadata);
    let first = |p| first_descriptor(metadata, topic, p, Uuid::new_v4(), &present).expect("nodes");
    let first = (0..partitions).map(first).collect();
    let command =
        Command::CreateTopic { topic, org: "default".into(), name: name.into(), internal: false, first };
    run(metadata, command).map(|_| topic)
}

fn last_segment(metadata: &Metadata, topic: TopicId) -> Descriptor {
    metadata.topics[&topic].partitions[0].segments.last().expect("one").descriptor.clone()
}

fn value(metadata: &Metadata, topic: TopicId, end: u64) -> Value {
    let next = successor(metadata, topic, 0, Uuid::new_v4(), &[], &everybody(metadata)).expect("a node");
    let successor = Descriptor { base_offset: Some(Offset(end)), ..next };
    Value { end: Offset(end), digest: end ^ 7, successor, possible_loss: vec![], lost: vec![] }
}

fn seal(metadata: &mut Metadata, topic: TopicId, end: u64) -> Value {
    let segment = last_segment(metadata, topic).uuid;
    let value = value(metadata, topic, end);
    let successor = Descriptor { base_offset: None, ..value.successor.clone() };
    run(metadata, Command::BeginRoll { topic, partition: 0, segment, successor }).expect("open");
    run(metadata, Command::SealAndOpen { topic, partition: 0, segment, value: value.clone() }).expect("open");
    value
}

#[test]
fn nothing_is_applied_before_the_cluster_is_founded_and_it_is_founded_once() {
    let mut metadata = Metadata::default();
    assert_eq!(run(&mut metadata, register(1)), Err(Rejected::NotBootstrapped));
    run(&mut metadata, bootstrap(1)).expect("first");
    let again = run(&mut metadata, bootstrap(2));
    assert_eq!(again, Err(Rejected::AlreadyBootstrapped { cluster_id: uuid(1) }));
}

#[test]
fn a_disk_keeps_its_node_id_over_processes_and_an_emptied_disk_gets_another() {
    let mut metadata = cluster_of(2);
    let mut restarted = register(1);
    if let Command::RegisterNode { process, .. } = &mut restarted {
        *process = uuid(999);
    }
    let answer = run(&mut metadata, restarted).expect("known disk").answer;
    assert_eq!(answer, Answer::Node(NodeId(1)));
    assert_eq!(metadata.nodes[&NodeId(1)].process, uuid(999));

    let mut emptied = register(1);
    if let Command::RegisterNode { disk, wanted, .. } = &mut emptied {
        *disk = uuid(888);
        *wanted = Some(NodeId(1));
    }
    assert_eq!(run(&mut metadata, emptied).expect("new disk").answer, Answer::Node(NodeId(3)));
}

#[test]
fn a_full_disk_is_the_word_of_a_process_and_a_drain_outlives_it() {
    // A node that had ended for want of space came back with space, and was taken for full: nothing was placed on it.
    let restarted = || {
        let mut command = register(1);
        if let Command::RegisterNode { process, .. } = &mut command {
            *process = uuid(999);
        }
        command
    };
    let state_after = |state, command| {
        let mut metadata = cluster_of(1);
        run(&mut metadata, Command::SetNodeState { node: NodeId(1), process: uuid(201), state })
            .expect("known");
        run(&mut metadata, command).expect("known disk");
        metadata.nodes[&NodeId(1)].state
    };
    assert_eq!(state_after(NodeState::Full, restarted()), NodeState::Up);
    assert_eq!(state_after(NodeState::Full, register(1)), NodeState::Full, "the same process said so");
    assert_eq!(state_after(NodeState::Draining, restarted()), NodeState::Draining);
}

#[test]
fn each_renewal_counts_and_an_older_process_cannot_renew() {
    let mut metadata = cluster_of(1);
    let renew =
        |process, asked_boottime_ms| Command::RenewLease { node: NodeId(1), process, asked_boottime_ms };
    run(&mut metadata, renew(uuid(201), 9_000)).expect("its own");
    run(&mut metadata, renew(uuid(201), 5_000)).expect("late, harmless");
    let facts = |metadata: &Metadata| {
        let node = &metadata.nodes[&NodeId(1)];
        (node.renewals, node.asked_boottime_ms)
    };
    assert_eq!(facts(&metadata), (2, 9_000));
    assert!(matches!(run(&mut metadata, renew(uuid(5), 9_001)), Err(Rejected::StaleProcess { .. })));

    let mut restarted = register(1);
    if let Command::RegisterNode { process, .. } = &mut restarted {
        *process = uuid(999);
    }
    run(&mut metadata, restarted).expect("a known disk");
    assert_eq!(
        facts(&metadata),
        (2, 0),
        "the new process has asked for nothing yet, on whatever machine it is"
    );
}

/// Four requests made 40,000 partitions.
#[test]
fn topics_and_partitions_have_limits() {
    let mut metadata = cluster_of(1);
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    let limits = [("topics.partitions_max", 10), ("topics.creations_per_second_max", 3)];
    let set = limits.map(|(key, value)| (key.to_owned(), value)).into();
    run(&mut metadata, Command::SetConfig { set, unset: Default::default() }).expect("settings");
    create(&mut metadata, "a", 4).expect("room");
    let state = metadata.topics.clone();
    assert_eq!(create(&mut metadata, "b", 7), Err(Rejected::TooManyPartitions { would_be: 11, max: 10 }));
    assert_eq!(metadata.topics, state);
    create(&mut metadata, "b", 4).expect("room");
    create(&mut metadata, "c", 1).expect("room");
    assert_eq!(create(&mut metadata, "d", 1), Err(Rejected::TooManyCreations { max: 3 }));
    let topic = TopicId(Uuid::new_v4());
    let first = first_descriptor(&metadata, topic, 0, Uuid::new_v4(), &everybody(&metadata)).expect("a node");
    let create = |name: &str, internal| Command::CreateTopic {
        topic,
        org: "default".into(),
        name: name.into(),
        internal,
        first: vec![first.clone()],
    };
    let later = Envelope { at_ms: NOW_MS + 1_000, ..envelope(80, create("d", false)) };
    apply(&mut metadata.clone(), &later).expect("another second");
    run(&mut metadata, create("__own", true)).expect("Walrus's own are never refused");
}

#[test]
fn a_segment_says_which_producers_had_been_silent_when_it_was_opened() {
    let mut metadata = cluster_of(1);
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    let topic = create(&mut metadata, "t", 1).expect("a topic");
    let mut seal_at = |end: u64, minutes: u64| {
        let segment = last_segment(&metadata, topic).uuid;
        let value = value(&metadata, topic, end);
        let at_ms = NOW_MS + minutes * 60_000;
        renew_at(&mut metadata, 1, at_ms);
        let seal = Command::SealAndOpen { topic, partition: 0, segment, value };
        apply(&mut metadata, &Envelope { at_ms, ..envelope(u128::from(100 + end), seal) }).expect("open");
        metadata.topics[&topic].partitions[0].segments.last().expect("one").silent_below
    };
    // Opened at minute 0, 5, 16, 21, 22, with bases 0, 10, 20, 30, 40.
    assert_eq!(seal_at(10, 5), Offset(0));
    assert_eq!(seal_at(20, 16), Offset(0));
    assert_eq!(seal_at(30, 21), Offset(10), "segment 1 is 16 minutes old");
    assert_eq!(seal_at(40, 22), Offset(10));
    assert_eq!(seal_at(50, 36), Offset(30), "segment 3 is 15 minutes old");
    assert_eq!(seal_at(60, 1), Offset(30), "a clock that goes back takes nothing back");
}

/// One whose clock was an hour ahead made all copies forget producers that had written a minute before, and what these sent
/// again was stored twice.
#[test]
fn no_clock_that_is_wrong_makes_a_producer_forgotten() {
    let mut metadata = cluster_of(3);
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    let topic = create(&mut metadata, "t", 1).expect("a topic");
    let minute = |minutes: u64| NOW_MS + minutes * 60_000;
    let seal_at = |metadata: &mut Metadata, end: u64, at_ms: u64| {
        let (segment, value) = (last_segment(metadata, topic).uuid, value(metadata, topic, end));
        let seal = Command::SealAndOpen { topic, partition: 0, segment, value };
        apply(metadata, &Envelope { at_ms, ..envelope(u128::from(100 + end), seal) }).expect("open");
        metadata.topics[&topic].partitions[0].segments.last().expect("one").silent_below
    };
    for (node, minutes) in [(1, 1), (2, 1), (3, 61)] {
        renew_at(&mut metadata, node, minute(minutes));
    }
    assert_eq!(seal_at(&mut metadata, 10, minute(61)), Offset(0), "a clock that is ahead");
    assert_eq!(seal_at(&mut metadata, 20, 0), Offset(0), "one that is behind");
    for node in [1, 2] {
        renew_at(&mut metadata, node, minute(2));
    }
    assert_eq!(seal_at(&mut metadata, 30, minute(2)), Offset(0), "nor is what that one opened old");
    for node in [1, 2] {
        renew_at(&mut metadata, node, minute(17));
    }
    assert_eq!(seal_at(&mut metadata, 40, minute(17)), Offset(30), "by the clocks of a majority");
}

/// Two nodes whose clocks are a second apart, used in turn, had no limit.
#[test]
fn clocks_that_differ_share_one_limit_of_creations_and_one_that_is_far_ahead_holds_up_nobody() {
    let mut metadata = cluster_of(1);
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    let set = [("topics.creations_per_second_max".to_owned(), 3)].into();
    run(&mut metadata, Command::SetConfig { set, unset: Default::default() }).expect("settings");
    let mut create_at = |name: &str, at_ms: u64| {
        let topic = TopicId(Uuid::new_v4());
        let first = first_descriptor(&metadata, topic, 0, Uuid::new_v4(), &everybody(&metadata));
        let (org, name) = ("default".to_owned(), name.to_owned());
        let command =
            Command::CreateTopic { topic, org, name, internal: false, first: first.into_iter().collect() };
        apply(&mut metadata, &Envelope { at_ms, ..envelope(Uuid::new_v4().as_u128(), command) }).map(drop)
    };
    let refused = Err(Rejected::TooManyCreations { max: 3 });
    for (name, ms) in [("a", 0), ("b", 1_000), ("c", 0)] {
        create_at(name, NOW_MS + ms).expect("room");
    }
    create_at("d", NOW_MS + 1_000).expect("the third in that second");
    for ms in [0, 1_000] {
        assert_eq!(create_at("e", NOW_MS + ms), refused);
    }
    create_at("e", NOW_MS + 2_000).expect("the next");
    create_at("f", NOW_MS + 3_600_000).expect("a clock that is an hour ahead");
    for name in ["g", "h", "i"] {
        create_at(name, NOW_MS + 3_000).expect("it is not waited for");
    }
    assert_eq!(create_at("j", NOW_MS + 3_000), refused);
}

#[test]
fn the_same_envelope_twice_acts_once_and_answers_alike() {
    let mut metadata = cluster_of(1);
    let drain = envelope(70, Command::DrainNode { node: NodeId(1), disk: uuid(101), draining: true });
    let first = apply(&mut metadata, &drain);
    let state = metadata.clone();
    assert_eq!(apply(&mut metadata, &drain), first);
    assert_eq!(metadata, state);

    // A refused one stays refused, also when it would be legal by now: its proposer was told so.
    let early = envelope(71, Command::DeleteTopic { topic: TopicId(uuid(5)) });
    let refused = apply(&mut metadata, &early);
    assert_eq!(refused, Err(Rejected::UnknownTopic { topic: TopicId(uuid(5)) }));
    assert_eq!(apply(&mut metadata, &early), refused);
}

#[test]
fn a_command_with_an_expected_version_is_a_compare_and_set() {
    let mut metadata = cluster_of(1);
    let current = metadata.nodes[&NodeId(1)].version;
    let full = Command::SetNodeState { node: NodeId(1), process: uuid(201), state: NodeState::Full };
    let expecting = |id, expect| Envelope { expect: Some(expect), ..envelope(id, full.clone()) };
    let stale = apply(&mut metadata, &expecting(80, current + 1));
    assert_eq!(stale, Err(Rejected::VersionMismatch { expected: current + 1, current }));
    apply(&mut metadata, &expecting(81, current)).expect("the version it is");
    assert_eq!(metadata.nodes[&NodeId(1)].state, NodeState::Full);
}

#[test]
fn topic_names_follow_kafkas_rule_and_are_unique() {
    let mut metadata = cluster_of(1);
    for name in ["", ".", "..", "a b", "a/b", "ü", &"x".repeat(250)] {
        let refused = create(&mut metadata, name, 1);
        assert_eq!(refused, Err(Rejected::InvalidTopicName { name: name.to_owned() }));
    }
    let topic = create(&mut metadata, &"x".repeat(249), 3).expect("the longest name");
    let again = create(&mut metadata, &"x".repeat(249), 3);
    assert_eq!(again, Err(Rejected::TopicExists { name: "x".repeat(249), topic }));
}

#[test]
fn a_deleted_topic_leaves_a_mark_and_its_name_can_be_used_for_another_topic() {
    let mut metadata = cluster_of(1);
    let first = create(&mut metadata, "t", 1).expect("new");
    run(&mut metadata, Command::DeleteTopic { topic: first }).expect("there");
    let second = create(&mut metadata, "t", 1).expect("free again");
    assert_ne!(first, second);
    assert!(metadata.deleted.contains(&first));
    assert!(!metadata.deleted.contains(&second));
}

#[test]
fn leaders_rotate_over_healthy_nodes_and_skip_full_avoided_and_silent_ones() {
    let mut metadata = cluster_of(4);
    let topic = create(&mut metadata, "t", 1).expect("new");
    let mut leaders = vec![last_segment(&metadata, topic).leader.node];
    for end in 1..=7 {
        seal(&mut metadata, topic, end * 10);
        leaders.push(last_segment(&metadata, topic).leader.node);
    }
    for pair in leaders.windows(2) {
        assert_eq!(pair[1].0, pair[0].0 % 4 + 1, "{leaders:?}");
    }

    let leader = last_segment(&metadata, topic).leader.node;
    let after = |id: NodeId| NodeId(id.0 % 4 + 1);
    let (one, two, three) = (after(leader), after(after(leader)), after(after(after(leader))));
    let process = metadata.nodes[&one].process;
    run(&mut metadata, Command::SetNodeState { node: one, process, state: NodeState::Full }).expect("known");
    let next = |avoid: &[NodeId], present: &Present| {
        successor(&metadata, topic, 0, uuid(3), avoid, present).map(|d| d.leader.node)
    };
    let all = everybody(&metadata);
    assert_eq!(next(&[], &all), Some(two));
    assert_eq!(next(&[two], &all), Some(three));
    assert_eq!(next(&[two, three], &all), Some(leader));
    assert_eq!(next(&[two, three, leader], &all), None);
    assert_eq!(next(&[], &Present::only([three])), Some(three));
    assert_eq!(next(&[], &Present::default()), None, "all leases have lapsed");
}

#[test]
fn an_internal_topic_stays_with_its_leader() {
    let mut metadata = cluster_of(3);
    let topic = TopicId(uuid(40));
    let first = vec![first_descriptor(&metadata, topic, 0, uuid(41), &everybody(&metadata)).expect("nodes")];
    let leader = first[0].leader.node;
    let (org, name) = ("default".to_owned(), "__cursors".to_owned());
    run(&mut metadata, Command::CreateTopic { topic, org, name, internal: true, first }).expect("new");
    let next = |avoid: &[NodeId]| {
        let found = successor(&metadata, topic, 0, uuid(42), avoid, &everybody(&metadata));
        found.expect("a node").leader.node
    };
    assert_eq!(next(&[]), leader);
    assert_ne!(next(&[leader]), leader);
}

#[test]
fn a_segment_is_sealed_with_one_value_and_the_same_value_again_is_accepted() {
    let mut metadata = cluster_of(3);
    let topic = create(&mut metadata, "t", 1).expect("new");
    let segment = last_segment(&metadata, topic).uuid;
    let decided = seal(&mut metadata, topic, 40);
    let again = |value| Command::SealAndOpen { topic, partition: 0, segment, value };
    let state = metadata.topics.clone();
    run(&mut metadata, again(decided.clone())).expect("idempotent");
    let other = Value { digest: 1, ..decided.clone() };
    assert_eq!(run(&mut metadata, again(other)), Err(Rejected::ValueConflict { segment }));
    assert_eq!(metadata.topics, state);

    seal(&mut metadata, topic, 50);
    run(&mut metadata, Command::Trim { topic, partition: 0, below_number: 1, first: None }).expect("sealed");
    run(&mut metadata, again(decided)).expect("still idempotent once the segment is trimmed");
}

#[test]
fn a_second_begin_roll_replaces_the_first_and_the_decided_successor_wins_over_both() {
    let mut metadata = cluster_of(3);
    let topic = create(&mut metadata, "t", 1).expect("new");
    let segment = last_segment(&metadata, topic).uuid;
    let allot = |metadata: &mut Metadata, n| {
        let successor = successor(metadata, topic, 0, uuid(n), &[], &everybody(metadata)).expect("a node");
        run(metadata, Command::BeginRoll { topic, partition: 0, segment, successor: successor.clone() })
            .map(|_| successor)
    };
    let first = allot(&mut metadata, 50).expect("open");
    let second = allot(&mut metadata, 51).expect("open");
    assert_eq!(second.epoch, Epoch(first.epoch.0 + 1));
    let reused = Command::BeginRoll { topic, partition: 0, segment, successor: first.clone() };
    let next = Epoch(second.epoch.0 + 1);
    assert_eq!(run(&mut metadata, reused), Err(Rejected::StaleEpoch { got: first.epoch, next }));

    let successor = Descriptor { base_offset: Some(Offset(9)), ..first };
    let value = Value {
        end: Offset(9),
        digest: 0,
        successor: successor.clone(),
        possible_loss: vec![],
        lost: vec![],
    };
    run(&mut metadata, Command::SealAndOpen { topic, partition: 0, segment, value })
        .expect("decided by its replicas");
    assert_eq!(last_segment(&metadata, topic), successor);
    assert_eq!(metadata.topics[&topic].partitions[0].next_epoch, next);
}

#[test]
fn only_sealed_segments_are_trimmed() {
    let mut metadata = cluster_of(2);
    let topic = create(&mut metadata, "t", 1).expect("new");
    seal(&mut metadata, topic, 10);
    let trim = |below_number| Command::Trim { topic, partition: 0, below_number, first: None };
    assert_eq!(run(&mut metadata, trim(2)), Err(Rejected::NotTrimmable { below_number: 2, limit: 1 }));
    run(&mut metadata, trim(1)).expect("sealed");
    run(&mut metadata, trim(0)).expect("a late one is harmless");
    assert_eq!(metadata.topics[&topic].partitions[0].trimmed_below, 1);
    assert_eq!(metadata.topics[&topic].partitions[0].segments.len(), 1);
}

#[test]
fn a_newer_snapshot_and_a_damaged_one_are_refused_by_name() {
    let metadata = cluster_of(2);
    let good = String::from_utf8(metadata.to_snapshot()).expect("JSON");
    assert_eq!(Metadata::from_snapshot(good.as_bytes()).expect("ours"), metadata);
    let newer = good.replacen("\"snapshot_version\":1", "\"snapshot_version\":2", 1);
    let text = Metadata::from_snapshot(newer.as_bytes()).expect_err("newer").to_string();
    assert!(text.contains("version 2"), "{text}");
    let text = Metadata::from_snapshot(&good.as_bytes()[..good.len() - 5]).expect_err("cut").to_string();
    assert!(text.contains("damaged"), "{text}");
}

/// A step of the random test, in terms that always make sense; what it hits depends on the state.
#[derive(Clone, Debug)]
enum Step {
    Register(u128),
    Create(u8),
    Delete(u8),
    BeginRoll(u8),
    Seal(u8, u64),
    SealWrong(u8),
    Trim(u8, u64),
    Repeat,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (1..6u128).prop_map(Step::Register),
        2 => (0..4u8).prop_map(Step::Create),
        1 => (0..4u8).prop_map(Step::Delete),
        3 => (0..4u8).prop_map(Step::BeginRoll),
        6 => (0..4u8, 0..50u64).prop_map(|(topic, entries)| Step::Seal(topic, entries)),
        2 => (0..4u8).prop_map(Step::SealWrong),
        2 => (0..4u8, 0..6u64).prop_map(|(topic, below)| Step::Trim(topic, below)),
        2 => Just(Step::Repeat),
    ]
}

fn named(metadata: &Metadata, n: u8) -> Option<TopicId> {
    metadata.names.get("default")?.get(&format!("t{n}")).copied()
}

fn command_of(metadata: &Metadata, step: &Step, n: u128) -> Option<Command> {
    Some(match step {
        Step::Register(node) => register(*node),
        Step::Create(t) => {
            let topic = TopicId(uuid(1_000 + n));
            let first = vec![first_descriptor(metadata, topic, 0, uuid(50_000 + n), &everybody(metadata))?];
            Command::CreateTopic {
                topic,
                org: "default".into(),
                name: format!("t{t}"),
                internal: false,
                first,
            }
        }
        Step::Delete(t) => Command::DeleteTopic { topic: named(metadata, *t)? },
        Step::BeginRoll(t) => {
            let topic = named(metadata, *t)?;
            let segment = last_segment(metadata, topic).uuid;
            let successor = successor(metadata, topic, 0, uuid(60_000 + n), &[], &everybody(metadata))?;
            Command::BeginRoll { topic, partition: 0, segment, successor }
        }
        Step::Seal(t, entries) => {
            let topic = named(metadata, *t)?;
            let last = last_segment(metadata, topic);
            let end = last.base_offset?.0 + entries;
            Command::SealAndOpen {
                topic,
                partition: 0,
                segment: last.uuid,
                value: value(metadata, topic, end),
            }
        }
        Step::SealWrong(t) => {
            let topic = named(metadata, *t)?;
            let last = last_segment(metadata, topic);
            let mut value = value(metadata, topic, last.base_offset?.0 + 1);
            value.successor.epoch = last.epoch;
            Command::SealAndOpen { topic, partition: 0, segment: last.uuid, value }
        }
        Step::Trim(t, below_number) => Command::Trim {
            topic: named(metadata, *t)?,
            partition: 0,
            below_number: *below_number,
            first: None,
        },
        Step::Repeat => return None,
    })
}

#[test]
fn a_newer_command_is_named_as_such_although_it_cannot_be_read() {
    let newer = br#"{"v": 2, "command": {"split_partition": {}}}"#;
    assert_eq!(Envelope::from_json(newer, LEVEL), Err(Rejected::UnsupportedVersion { got: 2, supported: 1 }));
    let malformed = br#"{"v": 1, "command": {"split_partition": {}}}"#;
    assert!(matches!(Envelope::from_json(malformed, LEVEL), Err(Rejected::Malformed { .. })));
}

proptest! {
    #[test]
    fn any_sequence_of_commands_keeps_the_chain_of_segments_and_refusals_change_nothing(
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut metadata = cluster_of(3);
        let mut sealed: Vec<(TopicId, Uuid, Value)> = Vec::new();
        let mut previous: Option<Envelope> = None;
        for (n, step) in (0u128..).zip(&steps) {
            let envelope = match command_of(&metadata, step, n) {
                Some(command) => envelope(10_000 + n, command),
                None => match previous.clone() { Some(envelope) => envelope, None => continue },
            };
            let before = metadata.clone();
            let repeated = previous.as_ref() == Some(&envelope);
            let outcome = apply(&mut metadata, &envelope);
            let same_state = metadata.topics == before.topics && metadata.nodes == before.nodes
                && metadata.names == before.names
                && metadata.version == before.version;
            prop_assert!(!(outcome.is_err() || repeated) || same_state, "{step:?} changed the state: {outcome:?}");
            prop_assert!(metadata.check().is_ok(), "{step:?}: {:?}", metadata.check());
            if let (Ok(_), Command::SealAndOpen { topic, segment, value, .. }) = (&outcome, &envelope.command) {
                sealed.push((*topic, *segment, value.clone()));
            }
            for (topic, segment, value) in &sealed {
                let Some(topic) = metadata.topics.get(topic) else { continue };
                let found = topic.partitions[0].segments.iter().find(|s| s.descriptor.uuid == *segment);
                let unchanged = found.is_none_or(|s| s.state == SegmentState::Sealed(value.clone()));
                prop_assert!(unchanged, "a sealed segment changed");
            }
            previous = Some(envelope);
        }
        prop_assert_eq!(Metadata::from_snapshot(&metadata.to_snapshot()).expect("its own"), metadata);
    }

    #[test]
    fn bytes_from_the_network_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Envelope::from_json(&bytes, LEVEL);
        let _ = Metadata::from_snapshot(&bytes);
    }
}

fn set_config(entries: &[(&str, u64)]) -> Command {
    let set = entries.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    Command::SetConfig { set, unset: std::collections::BTreeSet::new() }
}

#[test]
fn settings_compare_with_their_own_version_and_survive_a_snapshot() {
    let mut metadata = cluster_of(1);
    let answer = run(&mut metadata, set_config(&[("segments.max_entries", 10)])).expect("a known key").answer;
    let Answer::Config { version } = answer else { panic!("{answer:?}") };
    run(&mut metadata, register(2)).expect("what else changes does not matter");

    let expecting = |expect| Envelope {
        expect: Some(expect),
        ..envelope(90 + u128::from(expect), set_config(&[("segments.max_entries", 20)]))
    };
    let stale = apply(&mut metadata, &expecting(version - 1));
    assert_eq!(stale, Err(Rejected::VersionMismatch { expected: version - 1, current: version }));
    apply(&mut metadata, &expecting(version)).expect("the version that is there");
    assert_eq!(metadata.config.entries["segments.max_entries"], 20);
    let restored = Metadata::from_snapshot(&metadata.to_snapshot()).expect("our own snapshot");
    assert_eq!(restored.config, metadata.config);
}

#[test]
fn the_census_counts_what_each_node_leads_and_stores_and_what_lacks_a_replica() {
    let mut metadata = cluster_of(2);
    let topic = create(&mut metadata, "t", 2).expect("a new topic");
    let sealed = last_segment(&metadata, topic).clone();
    let digest = seal(&mut metadata, topic, 10).digest;
    let both: std::collections::BTreeSet<NodeId> = [NodeId(1), NodeId(2)].into();
    let unseen = census(&metadata, &both);
    assert_eq!(unseen.under_replicated, 1, "nobody has looked at the sealed copy yet");
    assert_eq!(unseen.spare_nodes, Some(0), "one copy is none to spare");
    let since = metadata.topics[&topic].partitions[0].segments[0].copies[0].since;
    let report =
        CopyReport { topic, partition: 0, segment: sealed.uuid, since, found: Found::Whole { digest } };
    let replica = sealed.replicas[0];
    run(&mut metadata, Command::ReportCopies { replica, reports: vec![report] }).expect("its holder");
    let all = census(&metadata, &both);
    let sum = |of: fn(&Load) -> u64| all.nodes.values().map(of).sum::<u64>();
    assert_eq!((sum(|load| load.led), sum(|load| load.held), all.under_replicated), (2, 3, 0));
    let one_dead = census(&metadata, &[NodeId(1)].into());
    assert_eq!(one_dead.under_replicated, all.nodes[&NodeId(2)].held);

    let mut restarted = register(2);
    if let Command::RegisterNode { process, .. } = &mut restarted {
        *process = uuid(777);
    }
    run(&mut metadata, restarted).expect("a known disk");
    let after = census(&metadata, &[NodeId(1), NodeId(2)].into());
    assert_eq!(after.nodes[&NodeId(2)].led, 0, "a restarted process leads nothing that it led before");
}
