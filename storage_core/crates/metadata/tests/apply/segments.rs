//! The chain of segments of a partition: who leads the next one, how one ends, which ones are trimmed.

use std::collections::BTreeMap;

use walrus_metadata::{Command, CommandRejection, Metadata, NodeState, Present, first_descriptor, successor};
use walrus_model::{Descriptor, Digest, Epoch, NodeId, Offset, SegmentId, TopicId, Value};

use crate::cluster::{cluster_of, create, everybody, last_segment, run, seal, uuid};

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
        successor(&metadata, topic, 0, SegmentId(uuid(3)), avoid, present).map(|d| d.leader.node)
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
    let first = vec![
        first_descriptor(
            &metadata,
            &Default::default(),
            (topic, 0, SegmentId(uuid(41))),
            &everybody(&metadata),
        )
        .expect("nodes"),
    ];
    let leader = first[0].leader.node;
    let (org, name) = ("default".to_owned(), "__cursors".to_owned());
    run(
        &mut metadata,
        Command::CreateTopic { topic, org, name, internal: true, config: BTreeMap::new(), first },
    )
    .expect("new");
    let next = |avoid: &[NodeId]| {
        let found = successor(&metadata, topic, 0, SegmentId(uuid(42)), avoid, &everybody(&metadata));
        found.expect("a node").leader.node
    };
    assert_eq!(next(&[]), leader);
    assert_ne!(next(&[leader]), leader);
}

#[test]
fn a_segment_is_sealed_with_one_value_and_the_same_value_again_is_accepted() {
    let mut metadata = cluster_of(3);
    let topic = create(&mut metadata, "t", 1).expect("new");
    let segment = last_segment(&metadata, topic).id;
    let decided = seal(&mut metadata, topic, 40);
    let again = |value| Command::SealAndOpen { topic, partition: 0, segment, value };
    let state = metadata.topics.clone();
    run(&mut metadata, again(decided.clone())).expect("idempotent");
    let other = Value { digest: Digest(1), ..decided.clone() };
    assert_eq!(run(&mut metadata, again(other)), Err(CommandRejection::ValueConflict { segment }));
    assert_eq!(metadata.topics, state);

    seal(&mut metadata, topic, 50);
    run(&mut metadata, Command::Trim { topic, partition: 0, below_number: 1, first: None }).expect("sealed");
    run(&mut metadata, again(decided)).expect("still idempotent once the segment is trimmed");
}

#[test]
fn a_second_begin_roll_replaces_the_first_and_the_decided_successor_wins_over_both() {
    let mut metadata = cluster_of(3);
    let topic = create(&mut metadata, "t", 1).expect("new");
    let segment = last_segment(&metadata, topic).id;
    let allot = |metadata: &mut Metadata, n| {
        let successor =
            successor(metadata, topic, 0, SegmentId(uuid(n)), &[], &everybody(metadata)).expect("a node");
        run(metadata, Command::BeginRoll { topic, partition: 0, segment, successor: successor.clone() })
            .map(|_| successor)
    };
    let first = allot(&mut metadata, 50).expect("open");
    let second = allot(&mut metadata, 51).expect("open");
    assert_eq!(second.epoch, Epoch(first.epoch.0 + 1));
    let reused = Command::BeginRoll { topic, partition: 0, segment, successor: first.clone() };
    let next = Epoch(second.epoch.0 + 1);
    assert_eq!(run(&mut metadata, reused), Err(CommandRejection::StaleEpoch { got: first.epoch, next }));

    let successor = Descriptor { base_offset: Some(Offset(9)), ..first };
    let value = Value::without_loss(Offset(9), Digest(0), successor.clone());
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
    assert_eq!(
        run(&mut metadata, trim(2)),
        Err(CommandRejection::NotTrimmable { below_number: 2, limit: 1 })
    );
    run(&mut metadata, trim(1)).expect("sealed");
    run(&mut metadata, trim(0)).expect("a late one is harmless");
    assert_eq!(metadata.topics[&topic].partitions[0].trimmed_below, 1);
    assert_eq!(metadata.topics[&topic].partitions[0].segments.len(), 1);
}
