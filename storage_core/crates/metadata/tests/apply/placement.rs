//! Where segments go: the number of a topic's copies, which node leads, more partitions, leaders that go back.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use walrus_metadata::rolling::Reason;
use walrus_metadata::{
    Command, CommandRejection, LEVEL, Metadata, NodeState, Plan, Present, Request, RequestError,
    first_descriptor, has_other_leaders, leads_to_give_away, plan, reason_to_roll, successor,
};
use walrus_model::{Descriptor, NodeId, Offset, Replication, SegmentId, TopicId, Value};

use crate::cluster::{cluster_of, everybody, run};

fn cluster(nodes: u32) -> Metadata {
    let mut metadata = cluster_of(nodes.into());
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    let replication = Replication { factor: nodes.min(3), write_quorum: nodes.min(2) };
    run(&mut metadata, Command::SetReplication { replication }).expect("sound");
    metadata
}

fn ask(metadata: &mut Metadata, present: &Present, request: &Request) -> Result<(), RequestError> {
    let Plan::Propose(proposal) = plan(metadata, present, request, Uuid::new_v4)? else { return Ok(()) };
    let envelope = proposal.envelope(Uuid::new_v4(), 1);
    walrus_metadata::apply(metadata, &envelope).map(|_| ()).map_err(RequestError::Rejected)
}

fn create(metadata: &mut Metadata, name: &str, partitions: u32, config: &[(&str, &str)]) -> TopicId {
    let config = config.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let (org, internal) = ("default".to_owned(), false);
    let request = Request::CreateTopic { org, name: name.to_owned(), partitions, internal, config };
    let present = everybody(metadata);
    ask(metadata, &present, &request).expect("new");
    metadata.names["default"][name]
}

fn alter(metadata: &mut Metadata, topic: TopicId, name: &str, value: &str) {
    let set = [(name.to_owned(), value.to_owned())].into();
    run(metadata, Command::AlterTopic { topic, set, unset: BTreeSet::new() }).expect("sound");
}

fn open(metadata: &Metadata, topic: TopicId, partition: usize) -> Descriptor {
    metadata.topics[&topic].partitions[partition].segments.last().expect("one").descriptor.clone()
}

/// Ends the open segment of a partition; answers with the node that leads the next one.
fn roll(metadata: &mut Metadata, topic: TopicId, partition: u32, present: &Present) -> NodeId {
    roll_away(metadata, topic, partition, &[], present)
}

/// Does what `roll` does; none of these nodes leads the next one.
fn roll_away(
    metadata: &mut Metadata,
    topic: TopicId,
    partition: u32,
    avoid: &[NodeId],
    present: &Present,
) -> NodeId {
    let id = SegmentId(Uuid::new_v4());
    let next = successor(metadata, topic, partition, id, avoid, present).expect("a node");
    let (segment, leader) = (open(metadata, topic, partition as usize).id, next.leader.node);
    run(metadata, Command::BeginRoll { topic, partition, segment, successor: next.clone() }).expect("open");
    let successor = Descriptor { base_offset: Some(Offset(0)), ..next };
    let value = Value::without_loss(Offset(0), walrus_model::Digest(1), successor);
    run(metadata, Command::SealAndOpen { topic, partition, segment, value }).expect("open");
    leader
}

/// The number of partitions that each node leads.
fn led(metadata: &Metadata) -> BTreeMap<u32, u64> {
    let mut led: BTreeMap<u32, u64> = metadata.nodes.keys().map(|node| (node.0, 0)).collect();
    for topic in metadata.topics.values() {
        for partition in &topic.partitions {
            *led.entry(partition.segments.last().expect("one").descriptor.leader.node.0).or_default() += 1;
        }
    }
    led
}

fn spread(metadata: &Metadata) -> u64 {
    let led = led(metadata);
    led.values().max().expect("nodes") - led.values().min().expect("nodes")
}

#[test]
fn a_topic_has_as_many_copies_as_it_says_and_a_quorum_that_is_a_majority_of_them() {
    let mut metadata = cluster(5);
    for (factor, quorum) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (9, 5)] {
        let name = format!("of-{factor}");
        let topic = create(&mut metadata, &name, 1, &[("walrus.replication.factor", &factor.to_string())]);
        let first = open(&metadata, topic, 0);
        assert_eq!((first.replicas.len(), first.write_quorum), (factor.min(5), quorum), "{factor}");
    }
    let topic = create(&mut metadata, "own", 1, &[]);
    assert_eq!(reason_to_roll(&metadata, topic, 0, &everybody(&metadata)), None);
    alter(&mut metadata, topic, "walrus.replication.factor", "5");
    assert_eq!(reason_to_roll(&metadata, topic, 0, &everybody(&metadata)), Some(Reason::Moved));
    let present = everybody(&metadata);
    roll(&mut metadata, topic, 0, &present);
    assert_eq!(open(&metadata, topic, 0).replicas.len(), 5);
    alter(&mut metadata, topic, "walrus.replication.factor", "1");
    assert_eq!(reason_to_roll(&metadata, topic, 0, &present), None, "fewer copies wait for the next segment");
}

#[test]
fn sticky_leaders_stay_and_others_take_turns() {
    let mut metadata = cluster(3);
    let present = everybody(&metadata);
    let sticky = create(&mut metadata, "sticky", 1, &[("walrus.leaders", "sticky")]);
    let rotating = create(&mut metadata, "rotating", 1, &[]);
    let (first, mut led_by) = (open(&metadata, sticky, 0).leader.node, BTreeSet::new());
    for _ in 0..6 {
        assert_eq!(roll(&mut metadata, sticky, 0, &present), first);
        led_by.insert(roll(&mut metadata, rotating, 0, &present));
    }
    assert_eq!(led_by.len(), 3);
    alter(&mut metadata, rotating, "walrus.leaders", "sticky");
    let last = open(&metadata, rotating, 0).leader.node;
    assert_eq!(roll(&mut metadata, rotating, 0, &present), last);
}

#[test]
fn sticky_leaders_are_spread_evenly_when_topics_are_made_and_when_a_node_fails() {
    let mut metadata = cluster(5);
    for n in 0..23 {
        create(&mut metadata, &format!("t{n}"), 1 + n % 4, &[("walrus.leaders", "sticky")]);
    }
    // A topic's partitions are in turn first of all, so that one large topic is not led by an empty node alone.
    assert!(spread(&metadata) <= 2, "{:?}", led(&metadata));
    let gone = NodeId(2);
    let present = Present::only(metadata.nodes.keys().copied().filter(|node| *node != gone));
    let topics: Vec<TopicId> = metadata.topics.keys().copied().collect();
    for topic in topics {
        for partition in 0..metadata.topics[&topic].partitions.len() {
            if open(&metadata, topic, partition).leader.node == gone {
                roll(&mut metadata, topic, u32::try_from(partition).expect("few"), &present);
            }
        }
    }
    let mut led = led(&metadata);
    assert_eq!(led.remove(&2), Some(0));
    assert!(led.values().max().expect("four") - led.values().min().expect("four") <= 2, "{led:?}");
}

fn stop(metadata: &mut Metadata, node: NodeId) {
    let process = metadata.nodes[&node].process;
    run(metadata, Command::SetNodeState { node, process, state: NodeState::Stopping }).expect("its own");
}

#[test]
fn a_node_that_stops_leads_nothing_new_and_stores_on_until_its_next_process() {
    let mut metadata = cluster(3);
    let present = everybody(&metadata);
    let topic = create(&mut metadata, "sticky", 3, &[("walrus.leaders", "sticky")]);
    let rotating = create(&mut metadata, "rotating", 3, &[]);
    let stopping = open(&metadata, topic, 0).leader.node;
    stop(&mut metadata, stopping);
    assert!(has_other_leaders(&metadata, stopping, &present));
    assert_eq!(leads_to_give_away(&metadata, stopping, &present), 0, "it hands over all that it leads");
    for topic in [topic, rotating] {
        for partition in 0..3 {
            assert_eq!(reason_to_roll(&metadata, topic, partition, &present), None, "no set is better");
            assert_ne!(roll(&mut metadata, topic, partition, &present), stopping);
            let open = open(&metadata, topic, partition as usize);
            assert_eq!(open.replicas.len(), 3, "its copies are not made elsewhere");
            assert!(open.replicas[2].node == stopping, "others answer sooner: {:?}", open.replicas);
        }
    }
    let id = (TopicId::from_u128(9), 0, SegmentId::from_u128(9));
    let first = first_descriptor(&metadata, &Default::default(), id, &present).expect("two are left");
    assert_ne!(first.leader.node, stopping);

    let other = metadata.nodes.keys().copied().find(|node| *node != stopping).expect("three");
    stop(&mut metadata, other);
    assert!(has_other_leaders(&metadata, stopping, &present), "the third may lead");
    assert_eq!(
        successor(&metadata, topic, 0, id.2, &[], &present),
        None,
        "and alone it has too few disks that stay"
    );
    metadata.nodes.keys().copied().collect::<Vec<_>>().into_iter().for_each(|node| stop(&mut metadata, node));
    assert!(!has_other_leaders(&metadata, stopping, &present));
}

/// A topic was planned just before its leader said that it stops, and made just after that had looked for the last time.
#[test]
fn what_was_planned_for_a_leader_that_stops_meanwhile_is_planned_anew() {
    let mut metadata = cluster(3);
    let present = everybody(&metadata);
    let request = Request::CreateTopic {
        org: "default".to_owned(),
        name: "late".to_owned(),
        partitions: 1,
        internal: false,
        config: BTreeMap::new(),
    };
    let Ok(Plan::Propose(proposal)) = plan(&metadata, &present, &request, Uuid::new_v4) else {
        panic!("three nodes can lead it");
    };
    let early = proposal.envelope(Uuid::new_v4(), 1);
    let Command::CreateTopic { first, .. } = &early.command else { panic!("it makes a topic") };
    let leader = first[0].leader.node;
    stop(&mut metadata, leader);
    let refused = walrus_metadata::apply(&mut metadata, &early).expect_err("its leader stops");
    assert_eq!(refused, CommandRejection::LeaderStops { node: leader });
    assert!(refused.is_stale());
    ask(&mut metadata, &present, &request).expect("another leads it");
    assert_ne!(open(&metadata, metadata.names["default"]["late"], 0).leader.node, leader);
}

#[test]
fn where_nodes_are_left_that_stay_the_next_segment_is_stored_there_and_no_other_is_moved() {
    let mut metadata = cluster(4);
    let present = everybody(&metadata);
    let topic = create(&mut metadata, "t", 1, &[]);
    let stopping = open(&metadata, topic, 0).replicas[1].node;
    stop(&mut metadata, stopping);
    assert_eq!(reason_to_roll(&metadata, topic, 0, &present), None, "it is back soon");
    roll(&mut metadata, topic, 0, &present);
    assert!(open(&metadata, topic, 0).replicas.iter().all(|replica| replica.node != stopping));
}

#[test]
fn a_topic_is_given_more_partitions_in_turn_and_never_fewer() {
    let mut metadata = cluster(3);
    let present = everybody(&metadata);
    let topic = create(&mut metadata, "t", 2, &[]);
    let more = |partitions| Request::AddPartitions { topic, partitions };
    ask(&mut metadata, &present, &more(6)).expect("four more");
    ask(&mut metadata, &present, &more(6)).expect("there they are");
    let partitions = &metadata.topics[&topic].partitions;
    assert_eq!(partitions.iter().map(|partition| partition.index).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(led(&metadata).values().copied().collect::<Vec<_>>(), [2, 2, 2]);
    let fewer = CommandRejection::FewerPartitions { partitions: 6, wanted: 5 };
    assert_eq!(ask(&mut metadata, &present, &more(5)), Err(RequestError::Rejected(fewer)));
    let too_many = ask(&mut metadata, &present, &more(10_001));
    assert!(
        matches!(too_many, Err(RequestError::Rejected(CommandRejection::OutOfRange { .. }))),
        "{too_many:?}"
    );

    let Ok(Plan::Propose(late)) = plan(&metadata, &present, &more(8), Uuid::new_v4) else {
        panic!("a command")
    };
    ask(&mut metadata, &present, &more(7)).expect("one more");
    let before = metadata.topics.clone();
    let stale = walrus_metadata::apply(&mut metadata, &late.envelope(Uuid::new_v4(), 1)).unwrap_err();
    assert_eq!(stale, CommandRejection::PartitionsChanged { topic, partitions: 7 });
    assert!(stale.is_stale() && metadata.topics == before);
}

#[test]
fn added_partitions_count_towards_the_limits() {
    let mut metadata = cluster(1);
    let present = everybody(&metadata);
    let topic = create(&mut metadata, "t", 2, &[]);
    let limit =
        |key: &str, value| Command::SetConfig { set: [(key.to_owned(), value)].into(), unset: [].into() };
    run(&mut metadata, limit("topics.partitions_max", 4)).expect("a setting");
    let refused = ask(&mut metadata, &present, &Request::AddPartitions { topic, partitions: 5 });
    let too_many = CommandRejection::TooManyPartitions { would_be: 5, max: 4 };
    assert_eq!(refused, Err(RequestError::Rejected(too_many)));
    ask(&mut metadata, &present, &Request::AddPartitions { topic, partitions: 4 })
        .expect("as many as it may");
    let another = Request::CreateTopic {
        org: "default".to_owned(),
        name: "another".to_owned(),
        partitions: 1,
        internal: false,
        config: BTreeMap::new(),
    };
    assert!(ask(&mut metadata, &present, &another).is_err(), "they are counted");
}

#[test]
fn leaders_go_back_until_no_node_leads_two_more_than_another() {
    let mut metadata = cluster(3);
    let two = Present::only([NodeId(1), NodeId(2)]);
    for n in 0..30 {
        let topic = create(&mut metadata, &format!("t{n}"), 1, &[("walrus.leaders", "sticky")]);
        if open(&metadata, topic, 0).leader.node == NodeId(3) {
            roll_away(&mut metadata, topic, 0, &[NodeId(3)], &two);
        }
        create(&mut metadata, &format!("rotating{n}"), 1, &[]);
    }
    let all = everybody(&metadata);
    assert_eq!(leads_to_give_away(&metadata, NodeId(1), &two), 0, "the third is not there");
    assert_eq!(
        (1..=3).map(|node| leads_to_give_away(&metadata, NodeId(node), &all)).collect::<Vec<_>>(),
        [5, 5, 0]
    );
    let mut moves = 0;
    while let Some(giver) = (1..=3).map(NodeId).find(|node| leads_to_give_away(&metadata, *node, &all) > 0) {
        let led_here = |topic: &&TopicId| {
            let topic = &metadata.topics[*topic];
            topic.has_standing_leaders() && open(&metadata, topic.id, 0).leader.node == giver
        };
        let topic = *metadata.topics.keys().find(led_here).expect("it leads some");
        roll_away(&mut metadata, topic, 0, &[giver], &all);
        moves += 1;
    }
    assert_eq!(moves, 10);
    let restored = Metadata::from_snapshot(&metadata.to_snapshot()).expect("our own snapshot");
    assert_eq!(restored, metadata, "what is counted is counted anew from a snapshot");
}
