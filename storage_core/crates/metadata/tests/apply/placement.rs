//! Where segments go: the number of a topic's copies, and which node leads.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use walrus_metadata::rolling::Reason;
use walrus_metadata::{
    Command, LEVEL, Metadata, Plan, Present, Request, apply, plan, reason_to_roll, successor,
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

fn create(metadata: &mut Metadata, name: &str, partitions: u32, config: &[(&str, &str)]) -> TopicId {
    let config = config.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let (org, internal) = ("default".to_owned(), false);
    let request = Request::CreateTopic { org, name: name.to_owned(), partitions, internal, config };
    let planned = plan(metadata, &everybody(metadata), &request, Uuid::new_v4).expect("nodes");
    let Plan::Propose(proposal) = planned else { panic!("{planned:?}") };
    apply(metadata, &proposal.envelope(Uuid::new_v4(), 1)).expect("new");
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
    let id = SegmentId(Uuid::new_v4());
    let next = successor(metadata, topic, partition, id, &[], present).expect("a node");
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
