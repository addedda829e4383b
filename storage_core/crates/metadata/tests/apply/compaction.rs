//! Commands of compaction: how a segment takes the place of others.

use std::collections::BTreeSet;

use proptest::prelude::*;
use walrus_metadata::{
    Command, CommandRejection, CompactionOffer, CopyState, Found, Metadata, Replacement, Segment,
    SegmentState, replacement,
};
use walrus_model::{Digest, Epoch, LeaderRef, NodeId, Offset, ProcessId, ReplicaRef, SegmentId};

use crate::cluster::{last_segment, run, uuid};
use crate::compacted::{
    DIGEST, candidate, compact, give, numbers, offer, partition, place, report, seal_many, seal_whole,
    with_topic,
};
use crate::remembered::{remembered, repeat};

#[test]
fn a_candidate_takes_the_place_of_its_segments_as_soon_as_a_quorum_of_its_copies_is_verified() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 4);
    let before = partition(&metadata, topic).segments.clone();
    let offered = offer(&metadata, 7_000, 1, 2);
    give(&mut metadata, topic, offered.clone()).expect("sound");
    give(&mut metadata, topic, offered).expect("the same again changes nothing");
    let new = candidate(&metadata, topic);
    assert!(new.copies.iter().all(|copy| copy.state == CopyState::Filling));
    report(&mut metadata, topic, &new, 1, Found::Whole { digest: DIGEST });
    report(&mut metadata, topic, &new, 2, Found::Whole { digest: Digest(1) });
    assert_eq!(partition(&metadata, topic).segments, before, "one verified copy, and one with other bytes");
    report(&mut metadata, topic, &new, 3, Found::Whole { digest: DIGEST });
    metadata.check().expect("sound");

    let found = partition(&metadata, topic);
    assert_eq!(numbers(&metadata, topic), [0, 2, 3, 4], "it has the number of the last one");
    let listed = &found.segments[1];
    let SegmentState::Sealed(value) = &listed.state else { panic!("it is sealed") };
    assert_eq!((listed.descriptor.base_offset, value.end), (Some(Offset(10)), Offset(30)));
    assert_eq!(*value.successor, before[3].descriptor);
    assert_eq!(listed.opened_at_ms, before[1].opened_at_ms);
    let epochs: Vec<Epoch> =
        listed.compacted.iter().flat_map(|one| &one.epochs).map(|start| start.epoch).collect();
    assert_eq!(epochs, [before[1].descriptor.epoch, before[2].descriptor.epoch]);
    assert_eq!(found.compaction.candidate, None);
    let replaced: Vec<u64> = found.compaction.replaced.iter().map(|old| old.descriptor.number).collect();
    assert_eq!(replaced, [1, 2]);
    let mut leaving = found.compaction.replaced.iter().flat_map(|old| &old.copies);
    assert!(leaving.all(|copy| copy.state == CopyState::Leaving));
    assert_eq!(Metadata::from_snapshot(&metadata.to_snapshot()).expect("its own"), metadata);
}

#[test]
fn what_was_replaced_is_forgotten_once_all_holders_have_deleted_it() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 3);
    compact(&mut metadata, topic, 7_000, 0, 1);
    for (deleted, node) in [(1, 1), (2, 2)] {
        for old in partition(&metadata, topic).compaction.replaced.clone() {
            report(&mut metadata, topic, &old, node, Found::Gone);
        }
        let left = &partition(&metadata, topic).compaction.replaced;
        assert!(left.len() == 2 && left.iter().all(|old| old.copies.len() == 3 - deleted));
    }
    // The third disk never comes back.
    let (node, disk) = (NodeId(3), metadata.nodes[&NodeId(3)].disk);
    run(&mut metadata, Command::RemoveNode { node, disk, lost: true, replaced_by: None }).expect("a member");
    assert_eq!(partition(&metadata, topic).compaction.replaced, []);
    metadata.check().expect("sound");
}

/// Its copies stay listed when a disk goes, for others are made from them; what was replaced is made nowhere.
#[test]
fn what_was_replaced_does_not_wait_for_a_disk_that_was_gone_before() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 3);
    let (node, disk) = (NodeId(3), metadata.nodes[&NodeId(3)].disk);
    run(&mut metadata, Command::RemoveNode { node, disk, lost: true, replaced_by: None }).expect("a member");
    compact(&mut metadata, topic, 7_000, 0, 1);
    assert_eq!(partition(&metadata, topic).compaction.replaced.len(), 2);
    for node in [1, 2] {
        for old in partition(&metadata, topic).compaction.replaced.clone() {
            report(&mut metadata, topic, &old, node, Found::Gone);
        }
    }
    assert_eq!(partition(&metadata, topic).compaction.replaced, []);
}

#[test]
fn offers_that_do_not_fit_are_refused_and_change_nothing() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 3);
    let before = metadata.topics.clone();
    let sound = offer(&metadata, 7_000, 0, 1);
    let strange = ReplicaRef { node: NodeId(2), ..sound.copies[0] };
    let wrong = [
        CompactionOffer { first_number: 1, last_number: 0, ..sound.clone() },
        CompactionOffer { last_number: 3, ..sound.clone() },
        CompactionOffer { last_number: 900, ..sound.clone() },
        CompactionOffer { segment: last_segment(&metadata, topic).id, ..sound.clone() },
        CompactionOffer { copies: sound.copies[..1].to_vec(), ..sound.clone() },
        CompactionOffer { copies: vec![sound.copies[0], sound.copies[0]], ..sound.clone() },
        CompactionOffer { copies: vec![sound.copies[0], strange], ..sound.clone() },
    ];
    for wrong in wrong {
        assert!(give(&mut metadata, topic, wrong.clone()).is_err(), "{wrong:?}");
        assert_eq!(metadata.topics, before);
    }
    give(&mut metadata, topic, sound).expect("sound");
    let second = offer(&metadata, 7_001, 1, 2);
    let under_way = CommandRejection::CompactionUnderWay { segment: SegmentId(uuid(7_000)) };
    assert_eq!(give(&mut metadata, topic, second), Err(under_way));
}

#[test]
fn a_candidate_is_given_up_by_its_compactor_or_where_its_segments_are_trimmed() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 4);
    let first = offer(&metadata, 7_000, 0, 2);
    give(&mut metadata, topic, first).expect("sound");
    let trim = Command::Trim { topic, partition: 0, below_number: 1, first: None };
    run(&mut metadata, trim).expect("sealed");
    let compaction = &partition(&metadata, topic).compaction;
    assert_eq!(compaction.candidate, None);
    assert_eq!(compaction.replaced.len(), 1, "its copies leave");
    let second = offer(&metadata, 7_001, 1, 2);
    give(&mut metadata, topic, second).expect("sound");
    for _ in 0..2 {
        let (place, segment) = (place(topic), SegmentId(uuid(7_001)));
        run(&mut metadata, Command::AbandonCompaction { place, segment })
            .expect("the second time there is none");
        assert_eq!(partition(&metadata, topic).compaction.replaced.len(), 2);
    }
    assert_eq!(numbers(&metadata, topic), [1, 2, 3, 4]);
    run(&mut metadata, Command::Trim { topic, partition: 0, below_number: 3, first: None }).expect("sealed");
    assert_eq!(partition(&metadata, topic).compaction.replaced, [], "a trim is the word by which they go");
    metadata.check().expect("sound");
}

/// A leader that fails before it has written anything leaves an empty segment.
#[test]
fn a_segment_without_records_leaves_no_epoch_behind() {
    let (mut metadata, topic) = with_topic();
    for end in [10, 10, 20, 20] {
        seal_whole(&mut metadata, topic, end);
    }
    seal_whole(&mut metadata, topic, 30);
    let segments = &partition(&metadata, topic).segments;
    let compactor = LeaderRef { node: NodeId(1), process: ProcessId(uuid(201)) };
    let new = replacement(&segments[..5], SegmentId(uuid(1)), compactor, DIGEST).expect("sound");
    let epochs: Vec<(Epoch, Offset)> =
        new.compacted.epochs.iter().map(|start| (start.epoch, start.first_offset)).collect();
    let expected = [(0, 0), (2, 10), (4, 20)];
    let expected: Vec<(Epoch, Offset)> =
        expected.iter().map(|(at, first)| (segments[*at].descriptor.epoch, Offset(*first))).collect();
    assert_eq!(epochs, expected);
}

/// Its leader proposes the value of a segment a second time, after that was sealed and replaced.
#[test]
fn a_late_repetition_of_a_seal_is_no_alarm_where_the_segment_was_replaced() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 3);
    let old = partition(&metadata, topic).segments[1].clone();
    let SegmentState::Sealed(value) = old.state else { panic!("it is sealed") };
    compact(&mut metadata, topic, 7_000, 0, 1);
    let before = metadata.topics.clone();
    let again = Command::SealAndOpen { topic, partition: 0, segment: old.descriptor.id, value };
    run(&mut metadata, again).expect("it was published before");
    assert_eq!(metadata.topics, before);
}

proptest! {
    /// Whatever is offered, verified, given up, trimmed and forgotten in whatever order, the partition is a chain of segments that
    /// covers all offsets from the first one that is kept, and each copy that a node may have is listed once.
    #[test]
    fn a_partition_stays_whole_through_any_compactions(
        steps in prop::collection::vec((0..6u8, 0..8u64, 0..4u64, 1..4u32), 1..60),
    ) {
        let (mut metadata, topic) = with_topic();
        seal_many(&mut metadata, topic, 4);
        let mut past: Option<Metadata> = None;
        let mut known: Vec<Replacement> = Vec::new();
        for (n, (what, first, count, node)) in (0_u128..).zip(steps) {
            match what {
                0 => seal_many(&mut metadata, topic, 1),
                1 => {
                    let offered = offer(&metadata, 9_000 + n, first, first + count);
                    drop(give(&mut metadata, topic, offered));
                }
                2 => {
                    if let Some(candidate) = partition(&metadata, topic).compaction.candidate.clone() {
                        report(&mut metadata, topic, &candidate, node, Found::Whole { digest: DIGEST });
                    }
                }
                3 => {
                    let trim = Command::Trim { topic, partition: 0, below_number: first, first: None };
                    drop(run(&mut metadata, trim));
                }
                4 => {
                    let gone = partition(&metadata, topic).compaction.replaced.clone();
                    let held = |old: &&Segment| old.copies.iter().any(|copy| copy.replica.node == NodeId(node));
                    for old in gone.iter().filter(held) {
                        report(&mut metadata, topic, old, node, Found::Gone);
                    }
                }
                _ => match past.take() {
                    Some(before) if count == 0 => metadata = before,
                    _ => past = Some(metadata.clone()),
                },
            }
            let listed = &partition(&metadata, topic).segments;
            for segment in listed.iter().filter(|segment| segment.compacted.is_some()) {
                known.push(remembered(&metadata, topic, segment.descriptor.number));
            }
            if what == 5 {
                known.iter().rev().for_each(|replacement| drop(repeat(&mut metadata, topic, replacement)));
            }
            prop_assert!(metadata.check().is_ok(), "{:?}", metadata.check());
            let found = partition(&metadata, topic);
            let ids: BTreeSet<SegmentId> = found.all_segments().map(|segment| segment.descriptor.id).collect();
            prop_assert_eq!(ids.len(), found.all_segments().count());
        }
        prop_assert_eq!(Metadata::from_snapshot(&metadata.to_snapshot()).expect("its own"), metadata);
    }
}
