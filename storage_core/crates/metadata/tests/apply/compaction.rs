//! Commands of compaction: how a segment takes the place of others, and what a state that was set back takes over.

use std::collections::BTreeSet;

use proptest::prelude::*;
use walrus_metadata::{
    Command, CommandRejection, CompactionOffer, CopyState, Found, Metadata, PartitionStart, Replacement,
    Segment, SegmentState, compactor, replacement,
};
use walrus_model::{Digest, Epoch, LeaderRef, NodeId, Offset, ProcessId, ReplicaRef, SegmentId, TopicId};

use crate::cluster::{last_segment, run, uuid};
use crate::compacted::{
    DIGEST, candidate, compact, give, numbers, offer, partition, place, replicas, report, seal_many,
    seal_whole, set, with_topic,
};

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

fn remembered(metadata: &Metadata, topic: TopicId, number: u64) -> Replacement {
    let mut listed = partition(metadata, topic).segments.iter();
    let found = listed.find(|segment| segment.descriptor.number == number).expect("listed");
    let SegmentState::Sealed(value) = &found.state else { panic!("it is sealed") };
    let compacted = found.compacted.clone().expect("it took the place of others");
    Replacement { descriptor: found.descriptor.clone(), value: value.clone(), compacted }
}

fn repeat(
    metadata: &mut Metadata,
    topic: TopicId,
    replacement: &Replacement,
) -> Result<(), CommandRejection> {
    let copies = replicas(metadata)[..1].to_vec();
    let (place, replacement) = (place(topic), Box::new(replacement.clone()));
    run(metadata, Command::RepeatCompaction { place, replacement, copies }).map(drop)
}

#[test]
fn metadata_that_have_forgotten_a_replacement_take_it_over_whatever_generation_they_have_instead() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 3);
    let originals = metadata.clone();
    compact(&mut metadata, topic, 7_000, 0, 1);
    let (once, first) = (metadata.clone(), remembered(&metadata, topic, 1));
    compact(&mut metadata, topic, 7_001, 0, 2);
    let second = remembered(&metadata, topic, 2);
    for (mut forgetful, left) in [(originals, 3), (once, 4)] {
        repeat(&mut forgetful, topic, &second).expect("it covers what is listed");
        repeat(&mut forgetful, topic, &second).expect("once more changes nothing");
        forgetful.check().expect("sound");
        assert_eq!(numbers(&forgetful, topic), [2, 3]);
        let compaction = &partition(&forgetful, topic).compaction;
        assert_eq!(compaction.replaced.len(), left, "what was listed instead leaves");
        let older = repeat(&mut forgetful, topic, &first);
        assert!(matches!(older, Err(CommandRejection::NotCompactable { .. })), "{older:?}");
    }
    repeat(&mut metadata, topic, &first).expect_err("an earlier generation");
}

/// Its holders know that it took the place of others, and these may be gone from every disk.
#[test]
fn a_candidate_that_was_given_up_after_metadata_forgot_that_it_had_taken_its_place_takes_it_again() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 3);
    let offered = offer(&metadata, 7_000, 0, 1);
    give(&mut metadata, topic, offered).expect("sound");
    let mut forgetful = metadata.clone();
    for node in [1, 2] {
        let candidate = candidate(&metadata, topic);
        report(&mut metadata, topic, &candidate, node, Found::Whole { digest: DIGEST });
    }
    let known = remembered(&metadata, topic, 1);
    let (place, segment) = (place(topic), SegmentId(uuid(7_000)));
    run(&mut forgetful, Command::AbandonCompaction { place, segment }).expect("there is one");
    repeat(&mut forgetful, topic, &known).expect("it took their place");
    assert_eq!(numbers(&forgetful, topic), [1, 2, 3]);
    assert_eq!(partition(&forgetful, topic).compaction.replaced.len(), 2, "only the originals leave");
}

#[test]
fn a_replacement_of_other_offsets_is_not_taken_over() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 3);
    let forgotten = metadata.clone();
    compact(&mut metadata, topic, 7_000, 0, 1);
    let sound = remembered(&metadata, topic, 1);
    let mut wrong = vec![sound.clone(); 4];
    wrong[0].value.end = Offset(21);
    wrong[1].descriptor.base_offset = Some(Offset(1));
    wrong[2].descriptor.partition = 1;
    wrong[3].value.successor.id = SegmentId(uuid(1));
    for wrong in wrong {
        let mut metadata = forgotten.clone();
        assert!(repeat(&mut metadata, topic, &wrong).is_err(), "{wrong:?}");
        assert_eq!(metadata.topics, forgotten.topics);
    }
}

/// Their records live on in it, and a disk that called them trimmed would delete their copies without a note of what took their
/// place.
#[test]
fn a_trim_up_to_what_took_the_place_of_others_calls_none_of_these_trimmed() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 4);
    let forgetful = metadata.clone();
    compact(&mut metadata, topic, 7_000, 1, 2);
    set(&mut metadata, topic, &[("cleanup.policy", "compact,delete")]);
    let start = vec![PartitionStart { partition: 0, start: Offset(15) }];
    run(&mut metadata, Command::DeleteRecords { topic, starts: start }).expect("listed");
    run(&mut metadata, Command::Expire { partitions: vec![place(topic)] }).expect("listed");
    let expired = partition(&metadata, topic);
    assert_eq!((expired.trimmed_below, numbers(&metadata, topic)), (1, vec![2, 3, 4]));
    let trim = |below_number, first| Command::Trim { topic, partition: 0, below_number, first };
    run(&mut metadata, trim(2, None)).expect("sealed");
    let left = partition(&metadata, topic);
    assert_eq!((left.trimmed_below, left.compaction.replaced.len()), (1, 2), "their copies leave as before");
    metadata.check().expect("sound");

    let first = left.segments[0].descriptor.clone();
    for mut forgetful in [forgetful, metadata.clone()] {
        run(&mut forgetful, trim(1, Some(first.clone()))).expect("it lists what stays");
        assert_eq!(partition(&forgetful, topic).trimmed_below, 1);
    }
    run(&mut metadata, trim(3, None)).expect("sealed");
    assert_eq!((partition(&metadata, topic).trimmed_below, numbers(&metadata, topic)), (3, vec![3, 4]));
}

/// The disk that remembers the trim tells it until the metadata know it, and nothing of what was trimmed may be read again.
#[test]
fn a_forgotten_trim_up_to_the_middle_of_what_was_compacted_meanwhile_moves_the_start_there() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 4);
    let first = partition(&metadata, topic).segments[2].descriptor.clone();
    let behind = partition(&metadata, topic).segments[4].descriptor.clone();
    compact(&mut metadata, topic, 7_000, 1, 3);
    assert_eq!(numbers(&metadata, topic), [0, 3, 4]);
    assert!(!partition(&metadata, topic).knows_trim(2, &first));
    let trim = Command::Trim { topic, partition: 0, below_number: 2, first: Some(first.clone()) };
    run(&mut metadata, trim.clone()).expect("it was decided");
    metadata.check().expect("sound");
    let found = partition(&metadata, topic);
    assert_eq!((numbers(&metadata, topic), found.log_start()), (vec![3, 4], Offset(20)));
    assert_eq!(found.trimmed_below, 1, "copies of what was put into it leave as before");
    assert!(found.knows_trim(2, &first) && !found.knows_trim(4, &behind));
    let before = metadata.clone();
    run(&mut metadata, trim).expect("it was decided");
    assert_eq!(metadata.topics, before.topics);
}

#[test]
fn a_forgotten_replacement_comes_back_where_its_first_segment_was_trimmed_since_and_what_is_trimmed_does_not()
{
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 3);
    let mut forgetful = metadata.clone();
    compact(&mut metadata, topic, 7_000, 0, 1);
    let known = remembered(&metadata, topic, 1);
    let trim = Command::Trim { topic, partition: 0, below_number: 1, first: None };
    run(&mut forgetful, trim).expect("sealed");
    repeat(&mut forgetful, topic, &known).expect("it covers what is listed");
    forgetful.check().expect("sound");
    let found = partition(&forgetful, topic);
    assert_eq!(numbers(&forgetful, topic), [1, 2, 3]);
    assert_eq!((found.trimmed_below, found.log_start()), (1, Offset(10)));
    compact(&mut forgetful, topic, 7_001, 0, 2);
    assert_eq!(numbers(&forgetful, topic), [2, 3], "it can be compacted again");
}

/// Copies of the second segment may be on no disk any more.
#[test]
fn a_forgotten_replacement_takes_the_place_of_one_that_was_made_meanwhile_of_a_part() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 3);
    let mut forgetful = metadata.clone();
    compact(&mut metadata, topic, 7_000, 0, 1);
    let known = remembered(&metadata, topic, 1);
    compact(&mut forgetful, topic, 7_001, 0, 0);
    repeat(&mut forgetful, topic, &known).expect("the second one was not compacted");
    forgetful.check().expect("sound");
    assert_eq!(numbers(&forgetful, topic), [1, 2, 3]);
    let generation = remembered(&forgetful, topic, 1).compacted.generation;
    assert_eq!(generation, 2, "above that of each whose place it took");
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
