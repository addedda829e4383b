//! The rules of segments, one by one.

use walrus_metadata::{
    Attempt, Command, CommandRejection, CopyState, Envelope, Found, Metadata, NodeState, Present,
    SegmentState, apply, successor,
};
use walrus_model::{
    Ballot, Descriptor, Digest, Epoch, NodeId, Offset, ReplicaRef, Replication, SegmentId, Value,
};

use crate::partition::*;

#[test]
fn quorums_meet_for_every_replication_and_others_are_refused() {
    for factor in 1..=9 {
        for write_quorum in 1..=factor {
            let replication = Replication { factor, write_quorum };
            assert_eq!(write_quorum + replication.seal_quorum(), factor + 1);
            assert!(replication.seal_quorum() >= 1);
        }
    }
    let mut metadata = cluster(1, Replication::single());
    for (factor, write_quorum) in [(0, 0), (3, 0), (3, 4), (10, 2)] {
        let command = Command::SetReplication { replication: Replication { factor, write_quorum } };
        assert!(
            matches!(run(&mut metadata, command), Err(CommandRejection::OutOfRange { .. })),
            "{factor}/{write_quorum}"
        );
    }
}

#[test]
fn a_cluster_founded_without_a_word_on_replication_has_one_copy() {
    let json = br#"{"v":1,"id":"00000000-0000-0000-0000-000000000001","at_ms":1,"command":{"bootstrap":{"cluster_id":"00000000-0000-0000-0000-000000000002"}}}"#;
    let mut metadata = Metadata::default();
    apply(
        &mut metadata,
        &Envelope::from_json(json, walrus_metadata::LEVEL).expect("as it was journaled before"),
    )
    .expect("new");
    assert_eq!(metadata.replication, Replication::single());
}

#[test]
fn a_segment_is_stored_by_n_distinct_nodes_and_leaders_take_turns() {
    let mut metadata = cluster(4, Replication::DEFAULT);
    let mut leaders = Vec::new();
    for end in 1..=8 {
        let descriptor = last(&metadata).descriptor.clone();
        let mut nodes: Vec<u32> = descriptor.replicas.iter().map(|replica| replica.node.0).collect();
        assert_eq!(descriptor.leader.node.0, nodes[0], "the leader stores it too");
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!((nodes.len(), descriptor.write_quorum), (3, 2));
        leaders.push(descriptor.leader.node.0);
        let next = begin_roll(&mut metadata).expect("open");
        publish(&mut metadata, descriptor.id, &decide(end, &next)).expect("decided");
    }
    for pair in leaders.windows(2) {
        assert_eq!(pair[1], pair[0] % 4 + 1, "{leaders:?}");
    }
}

#[test]
fn a_silent_node_is_a_replica_only_where_no_other_is_left_and_w_healthy_ones_are_needed() {
    let metadata = cluster(4, Replication::DEFAULT);
    let leader = last(&metadata).descriptor.leader.node;
    let ring = |steps: u32| NodeId((leader.0 - 1 + steps) % 4 + 1);
    let nodes = |alive: &[NodeId]| {
        let next =
            successor(&metadata, TOPIC, 0, SegmentId(uuid(5)), &[], &Present::only(alive.iter().copied()))?;
        Some(next.replicas.iter().map(|replica| replica.node).collect::<Vec<_>>())
    };
    assert_eq!(nodes(&[leader, ring(1), ring(3)]), Some(vec![ring(1), ring(3), leader]));
    assert_eq!(
        nodes(&[leader, ring(1)]),
        Some(vec![ring(1), leader, ring(2)]),
        "the third catches up when it is back"
    );
    assert_eq!(nodes(&[ring(1)]), None, "one healthy node is not w");
}

#[test]
fn a_full_or_gone_disk_stores_no_new_segment_and_an_avoided_node_only_the_last_place() {
    let mut metadata = cluster(4, Replication::DEFAULT);
    let leader = last(&metadata).descriptor.leader.node;
    let ring = |steps: u32| NodeId((leader.0 - 1 + steps) % 4 + 1);
    let nodes = |metadata: &Metadata, avoid: &[NodeId]| {
        let next =
            successor(metadata, TOPIC, 0, SegmentId(uuid(5)), avoid, &everybody(metadata)).expect("nodes");
        next.replicas.iter().map(|replica| replica.node).collect::<Vec<_>>()
    };
    assert_eq!(nodes(&metadata, &[ring(2)]), [ring(1), ring(3), leader]);
    let node = metadata.nodes[&ring(2)].clone();
    let full = Command::SetNodeState { node: node.id, process: node.process, state: NodeState::Full };
    run(&mut metadata, full).expect("known");
    assert_eq!(nodes(&metadata, &[]), [ring(1), ring(3), leader]);
    let disk = metadata.nodes[&ring(3)].disk;
    remove_lost(&mut metadata, ReplicaRef { node: ring(3), disk });
    assert_eq!(nodes(&metadata, &[]), [ring(1), leader]);
    let back = register(&mut metadata, u128::from(ring(3).0));
    assert_eq!(back, Err(CommandRejection::DiskGone { disk }));
}

#[test]
fn a_descriptor_with_a_node_twice_too_few_replicas_or_a_gone_disk_is_refused() {
    let mut metadata = cluster(3, Replication::DEFAULT);
    let segment = last(&metadata).descriptor.id;
    let good = successor(&metadata, TOPIC, 0, SegmentId(uuid(5)), &[], &everybody(&metadata)).expect("nodes");
    let mut try_roll = |change: &dyn Fn(&mut Descriptor)| {
        let mut successor = good.clone();
        change(&mut successor);
        run(&mut metadata, Command::BeginRoll { topic: TOPIC, partition: 0, segment, successor })
    };
    let invalid = |outcome| matches!(outcome, Err(CommandRejection::InvalidDescriptor { .. }));
    assert!(invalid(try_roll(&|next| next.replicas[2] = next.replicas[1])));
    assert!(invalid(try_roll(&|next| next.write_quorum = 0)));
    assert!(invalid(try_roll(&|next| next.replicas.truncate(1))));
    assert!(invalid(try_roll(&|next| next.replicas.retain(|replica| replica.node != next.leader.node))));
    let disk = good.replicas[2].disk;
    remove_lost(&mut metadata, good.replicas[2]);
    let gone = Command::BeginRoll { topic: TOPIC, partition: 0, segment, successor: good };
    assert_eq!(run(&mut metadata, gone), Err(CommandRejection::DiskGone { disk }));
}

#[test]
fn a_recovery_takes_a_fresh_epoch_and_a_higher_ballot_than_the_attempt_before() {
    let mut metadata = cluster(3, Replication::DEFAULT);
    let segment = last(&metadata).descriptor.id;
    let first = attempt(&metadata, 0);
    begin_recovery(&mut metadata, segment, &first).expect("open");
    assert_eq!(last(&metadata).state, SegmentState::Sealing(first.ballot));
    assert!(begin_roll(&mut metadata).is_err(), "nobody rolls what is being recovered");
    assert_eq!(
        begin_recovery(&mut metadata, segment, &first),
        Err(CommandRejection::StaleBallot { current: Epoch(2) })
    );

    let told = attempt(&metadata, 40);
    assert_eq!(told.ballot.epoch, Epoch(41), "above what a refused fence named");
    begin_recovery(&mut metadata, segment, &told).expect("a dead recoverer never blocks another");
    assert_eq!(next_epoch(&metadata), Epoch(42));

    publish(&mut metadata, segment, &decide(5, &told.successor)).expect("decided");
    let late = attempt(&metadata, 0);
    assert_eq!(begin_recovery(&mut metadata, segment, &late), Err(CommandRejection::Sealed { segment }));
}

#[test]
fn an_attempt_with_a_used_epoch_or_without_a_uuid_is_refused() {
    let mut metadata = cluster(3, Replication::DEFAULT);
    let segment = last(&metadata).descriptor.id;
    begin_roll(&mut metadata).expect("open");
    let good = attempt(&metadata, 0);
    let used = Attempt { ballot: Ballot { epoch: Epoch(2), ..good.ballot }, ..good.clone() };
    let stale = CommandRejection::StaleEpoch { got: Epoch(2), next: Epoch(3) };
    assert_eq!(begin_recovery(&mut metadata, segment, &used), Err(stale));
    let nameless = Attempt { ballot: Ballot::zero(good.ballot.epoch), ..good.clone() };
    let refused = begin_recovery(&mut metadata, segment, &nameless);
    assert!(matches!(refused, Err(CommandRejection::InvalidDescriptor { .. })));
    begin_recovery(&mut metadata, segment, &good).expect("fresh");
}

#[test]
fn the_loser_of_two_recoverers_may_have_its_successor_decided_and_that_one_opens() {
    let mut metadata = cluster(3, Replication::DEFAULT);
    let segment = last(&metadata).descriptor.id;
    let loser = attempt(&metadata, 0);
    begin_recovery(&mut metadata, segment, &loser).expect("open");
    let winner = attempt(&metadata, 0);
    begin_recovery(&mut metadata, segment, &winner).expect("higher");
    publish(&mut metadata, segment, &decide(3, &loser.successor)).expect("accepted before the winner fenced");
    assert_eq!(last(&metadata).state, SegmentState::Open);
    assert_eq!(next_epoch(&metadata), Epoch(winner.successor.epoch.0 + 1));
}

/// The recovery epoch of an adopted successor was once not above the successor's own: acknowledged records were lost.
#[test]
fn a_successor_that_metadata_has_lost_waits_for_recovery_and_the_next_epoch_is_above_its_own() {
    let mut metadata = cluster(3, Replication::DEFAULT);
    let first = last(&metadata).descriptor.id;
    let lost = metadata.clone();
    let next = begin_roll(&mut metadata).expect("open");
    let value = decide(3, &next);

    let mut metadata = lost;
    let attempt_first = attempt(&metadata, 0);
    begin_recovery(&mut metadata, first, &attempt_first).expect("open");
    assert_eq!(attempt_first.ballot.epoch, next.epoch, "handed out twice: only the uuids differ");
    publish(&mut metadata, first, &value).expect("adopted from the replicas");
    assert_eq!(last(&metadata).descriptor, *value.successor);
    assert_eq!(last(&metadata).state, SegmentState::Sealing(Ballot::zero(next.epoch)));

    let in_turn = attempt(&metadata, 0);
    assert!(in_turn.ballot.epoch > next.epoch && in_turn.successor.epoch > next.epoch);
    begin_recovery(&mut metadata, next.id, &in_turn).expect("waits for it");
    publish(&mut metadata, next.id, &decide(9, &in_turn.successor)).expect("the last link");
    assert_eq!(last(&metadata).state, SegmentState::Open);
}

#[test]
fn a_decided_value_is_taken_at_any_version_and_another_one_is_an_alarm_at_any_version() {
    let mut metadata = cluster(3, Replication::DEFAULT);
    let segment = last(&metadata).descriptor.id;
    let next = begin_roll(&mut metadata).expect("open");
    let value = decide(3, &next);
    let command =
        |value: &Value| Command::SealAndOpen { topic: TOPIC, partition: 0, segment, value: value.clone() };
    run_expecting(&mut metadata, Some(999), command(&value)).expect("decided");
    run_expecting(&mut metadata, Some(1), command(&value)).expect("again");
    let other = Value { end: Offset(2), ..value };
    let alarm = Err(CommandRejection::ValueConflict { segment });
    assert_eq!(run_expecting(&mut metadata, Some(1), command(&other)), alarm);
}

#[test]
fn copies_of_a_sealed_segment_move_only_while_w_verified_ones_stay() {
    use CopyState::{Damaged, Filling, Leaving, Verified};
    let mut metadata = cluster(4, Replication::DEFAULT);
    let descriptor = last(&metadata).descriptor.clone();
    let [a, b, c] = descriptor.replicas[..] else { panic!("three replicas") };
    let outsider =
        metadata.nodes.values().find(|node| descriptor.replicas.iter().all(|held| held.node != node.id));
    let d = outsider.map(|node| ReplicaRef { node: node.id, disk: node.disk }).expect("the fourth");
    let open = set_copies(&metadata, &[d], &[]);
    assert_eq!(run(&mut metadata, open), Err(CommandRejection::NotSealed { segment: descriptor.id }));
    let next = begin_roll(&mut metadata).expect("open");
    let value = decide(3, &next);
    publish(&mut metadata, descriptor.id, &value).expect("decided");
    let whole = Found::Whole { digest: value.digest };

    let wrong = report(&metadata, b, Found::Whole { digest: Digest(value.digest.0 + 1) });
    let early = report(&metadata, a, whole);
    run(&mut metadata, early.clone()).expect("verified");
    run(&mut metadata, wrong).expect("noted");
    assert_eq!(states(&metadata), [(a.node, Verified), (b.node, Damaged), (c.node, Filling)].into());
    let too_few = |left| Err(CommandRejection::TooFewCopies { segment: descriptor.id, left, needed: 2 });
    let hasty = set_copies(&metadata, &[], &[c]);
    assert_eq!(run(&mut metadata, hasty), too_few(1));
    let mended = report(&metadata, b, whole);
    run(&mut metadata, mended).expect("mended");

    let stale = set_copies(&metadata, &[d], &[]);
    run(&mut metadata, stale.clone()).expect("listed");
    assert!(
        matches!(run(&mut metadata, stale), Err(CommandRejection::VersionMismatch { .. })),
        "the list has changed"
    );
    let twice = set_copies(&metadata, &[d], &[]);
    assert_eq!(
        run(&mut metadata, twice),
        Err(CommandRejection::HasCopy { segment: descriptor.id, node: d.node })
    );
    let hasty = set_copies(&metadata, &[], &[a]);
    assert_eq!(run(&mut metadata, hasty), too_few(1), "a copy to be made is none");
    let made = report(&metadata, d, whole);
    run(&mut metadata, made).expect("made");
    let given_up = set_copies(&metadata, &[], &[a]);
    run(&mut metadata, given_up).expect("two others are there");
    run(&mut metadata, early).expect("of another time");
    assert_eq!(states(&metadata)[&a.node], Leaving, "an old report says nothing about it");
    let gone = report(&metadata, a, Found::Gone);
    run(&mut metadata, gone).expect("deleted");
    assert_eq!(states(&metadata), [(b.node, Verified), (c.node, Filling), (d.node, Verified)].into());

    let mistaken = report(&metadata, c, Found::Lost);
    run(&mut metadata, Command::RaiseLevel { level: walrus_metadata::LEVEL }).expect("known by all");
    run(&mut metadata, mistaken).expect("passed over");
    assert_eq!(states(&metadata)[&c.node], Filling, "others have it");
    remove_lost(&mut metadata, d);
    let dead = set_copies(&metadata, &[], &[d]);
    run(&mut metadata, dead).expect("a copy on a gone disk is none");
    let dead_end = set_copies(&metadata, &[], &[b]);
    assert_eq!(run(&mut metadata, dead_end), too_few(0));
    let back = report(&metadata, c, whole);
    run(&mut metadata, back).expect("whole again");
    assert_eq!(segment(&metadata, 0).descriptor, descriptor, "what was decided never changes");
}

#[test]
fn a_forgotten_trim_is_taken_over_from_who_remembers_it_and_what_is_left_is_recovered() {
    let mut metadata = cluster(3, Replication::DEFAULT);
    let long_ago = metadata.clone();
    for end in 1..=4 {
        let next = begin_roll(&mut metadata).expect("open");
        let sealed = last(&metadata).descriptor.id;
        publish(&mut metadata, sealed, &decide(end, &next)).expect("decided");
    }
    let first = segment(&metadata, 3).descriptor.clone();
    let trim = |first| Command::Trim { topic: TOPIC, partition: 0, below_number: 3, first };
    let mut listed = metadata.clone();
    run(&mut listed, trim(Some(first.clone()))).expect("it lists the segment");
    assert_eq!(listed.topics[&TOPIC].partitions[0].segments.len(), 2);

    let mut forgetful = long_ago;
    assert_eq!(
        run(&mut forgetful, trim(None)),
        Err(CommandRejection::NotTrimmable { below_number: 3, limit: 0 }),
        "without the segment it is nobody's decision"
    );
    let other = Descriptor { number: 2, ..first.clone() };
    assert!(matches!(
        run(&mut forgetful, trim(Some(other))),
        Err(CommandRejection::InvalidDescriptor { .. })
    ));
    run(&mut forgetful, trim(Some(first.clone()))).expect("decided before");
    let left = &forgetful.topics[&TOPIC].partitions[0];
    assert_eq!((left.trimmed_below, left.segments.len()), (3, 1));
    assert_eq!(left.segments[0].descriptor, first);
    assert_eq!(left.segments[0].state, SegmentState::Sealing(Ballot::zero(first.epoch)));
    assert!(left.next_epoch > first.epoch);
    run(&mut forgetful, trim(Some(first))).expect("again is harmless");
}

#[test]
fn a_snapshot_from_before_replication_is_read_with_one_copy() {
    let metadata = cluster(1, Replication::single());
    let mut json: serde_json::Value = serde_json::from_slice(&metadata.to_snapshot()).expect("JSON");
    let state = json["metadata"].as_object_mut().expect("an object");
    state.remove("replication");
    state.remove("gone_disks");
    let listed = &mut state["topics"][TOPIC.0.to_string()]["partitions"][0]["segments"][0];
    listed.as_object_mut().expect("an object").remove("copies");
    listed["descriptor"].as_object_mut().expect("an object").remove("write_quorum");
    let old = serde_json::to_vec(&json).expect("JSON");
    assert_eq!(Metadata::from_snapshot(&old).expect("readable"), metadata);
}
