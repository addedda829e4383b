//! Compaction in the metadata: when a pass is due, who makes it, and how a segment takes the place of others.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use walrus_metadata::{
    Command, CommandRejection, Compaction, CompactionOffer, Contents, CopyReport, CopyState, DuePass,
    Envelope, Found, LEVEL, Metadata, Partition, PartitionPlace, PartitionStart, PassEnd, Present,
    Replacement, Segment, SegmentPlace, SegmentState, apply, compactor, due_pass, replacement, runs,
};
use walrus_model::{
    Digest, Epoch, LeaderRef, NodeId, Offset, OffsetRange, ProcessId, ReplicaRef, Replication, SegmentId,
    TopicId,
};

use crate::cluster::{NOW_MS, cluster_of, create, envelope, last_segment, run, seal, uuid};

const DIGEST: Digest = Digest(99);

/// Three nodes whose clocks are at `NOW_MS`, and a compacted topic of three copies.
fn with_topic() -> (Metadata, TopicId) {
    let mut metadata = cluster_of(3);
    run(&mut metadata, Command::SetReplication { replication: Replication { factor: 3, write_quorum: 2 } })
        .expect("sound");
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    set_clocks(&mut metadata, NOW_MS);
    let topic = create(&mut metadata, "t", 1).expect("new");
    set(&mut metadata, topic, &[("cleanup.policy", "compact")]);
    (metadata, topic)
}

fn set_clocks(metadata: &mut Metadata, at_ms: u64) {
    for node in 1..=3 {
        let (node, process) = (NodeId(node), metadata.nodes[&NodeId(node)].process);
        let renew = Command::RenewLease { node, process, asked_boottime_ms: 0 };
        apply(metadata, &Envelope { at_ms, ..envelope(0, renew) }).expect("its own");
    }
}

fn set(metadata: &mut Metadata, topic: TopicId, settings: &[(&str, &str)]) {
    let set = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let set: BTreeMap<String, String> = set.collect();
    run(metadata, Command::AlterTopic { topic, set, unset: BTreeSet::new() }).expect("settings");
}

fn partition(metadata: &Metadata, topic: TopicId) -> &Partition {
    &metadata.topics[&topic].partitions[0]
}

fn numbers(metadata: &Metadata, topic: TopicId) -> Vec<u64> {
    partition(metadata, topic).segments.iter().map(|segment| segment.descriptor.number).collect()
}

/// A holder says how its copy is; whole ones hold a hundred bytes.
fn report(metadata: &mut Metadata, topic: TopicId, segment: &Segment, node: u32, found: Found) {
    let copy = segment.copies.iter().find(|copy| copy.replica.node == NodeId(node)).expect("listed");
    let contents =
        matches!(found, Found::Whole { .. }).then_some(Contents { bytes: 100, newest_ms: Some(5) });
    let (segment, since) = (segment.descriptor.id, copy.since);
    let reports = vec![CopyReport { topic, partition: 0, segment, since, found, contents }];
    run(metadata, Command::ReportCopies { replica: copy.replica, reports }).expect("a member");
}

/// Seals the open segment at an end, with verified copies everywhere.
fn seal_whole(metadata: &mut Metadata, topic: TopicId, end: u64) {
    let value = seal(metadata, topic, end);
    let sealed = partition(metadata, topic).segments.iter().rev().nth(1).expect("sealed").clone();
    for node in 1..=3 {
        report(metadata, topic, &sealed, node, Found::Whole { digest: value.digest });
    }
}

/// Sealed segments that end at 10, 20 and so on.
fn seal_many(metadata: &mut Metadata, topic: TopicId, count: u64) {
    let from = last_segment(metadata, topic).base_offset.expect("known").0 / 10;
    (from + 1..=from + count).for_each(|end| seal_whole(metadata, topic, end * 10));
    let open = last_segment(metadata, topic);
    for replica in &open.replicas {
        let segments = vec![SegmentPlace { topic, partition: 0, segment: open.id }];
        run(metadata, Command::ReportBegun { replica: *replica, segments }).expect("a member");
    }
}

fn replicas(metadata: &Metadata) -> Vec<ReplicaRef> {
    metadata.nodes.values().map(|node| ReplicaRef { node: node.id, disk: node.disk }).collect()
}

fn offer(metadata: &Metadata, id: u128, first_number: u64, last_number: u64) -> CompactionOffer {
    CompactionOffer {
        segment: SegmentId(uuid(id)),
        compactor: LeaderRef { node: NodeId(1), process: ProcessId(uuid(201)) },
        first_number,
        last_number,
        digest: DIGEST,
        contents: Contents { bytes: 40, newest_ms: Some(5) },
        copies: replicas(metadata),
    }
}

fn place(topic: TopicId) -> PartitionPlace {
    PartitionPlace { topic, partition: 0 }
}

fn give(metadata: &mut Metadata, topic: TopicId, offer: CompactionOffer) -> Result<(), CommandRejection> {
    run(metadata, Command::OfferCompaction { place: place(topic), offer }).map(drop)
}

fn candidate(metadata: &Metadata, topic: TopicId) -> Segment {
    *partition(metadata, topic).compaction.candidate.clone().expect("there is one")
}

/// Offers a candidate for these segments and has it verified.
fn compact(metadata: &mut Metadata, topic: TopicId, id: u128, first: u64, last: u64) {
    let offered = offer(metadata, id, first, last);
    give(metadata, topic, offered).expect("sound");
    for node in [1, 2] {
        let found = partition(metadata, topic).all_segments().find(|one| one.descriptor.id.0 == uuid(id));
        let segment = found.expect("listed").clone();
        report(metadata, topic, &segment, node, Found::Whole { digest: DIGEST });
    }
}

fn due(metadata: &Metadata, topic: TopicId) -> Option<DuePass> {
    let policy = metadata.topics[&topic].config.compaction()?;
    due_pass(metadata, partition(metadata, topic), &policy)
}

fn finish(metadata: &mut Metadata, topic: TopicId, cleaned_to: u64, gone: u64, kept: Option<u64>) {
    let segments = partition(metadata, topic).segments.iter().map(|segment| segment.descriptor.id).collect();
    let end = PassEnd {
        segments,
        cleaned_to: Offset(cleaned_to),
        tombstones_gone_below: Offset(gone),
        tombstones_kept_below: kept.map(Offset),
    };
    run(metadata, Command::FinishCompaction { place: place(topic), end }).expect("listed");
    metadata.check().expect("sound");
}

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

#[test]
fn a_pass_is_due_when_enough_of_a_partition_is_new() {
    let (mut metadata, topic) = with_topic();
    assert_eq!(due(&metadata, topic), None, "nothing is sealed");
    seal_many(&mut metadata, topic, 4);
    let pass = due(&metadata, topic).expect("all is new");
    let none = Offset(0);
    assert_eq!(pass, DuePass { segments: 4, dirty_bytes: 400, tombstones_below: none, is_overdue: false });
    finish(&mut metadata, topic, 40, 0, None);
    assert_eq!(due(&metadata, topic), None);
    seal_many(&mut metadata, topic, 4);
    assert_eq!(due(&metadata, topic), None, "half of it is not more than half");
    seal_many(&mut metadata, topic, 1);
    assert_eq!(due(&metadata, topic).map(|pass| (pass.segments, pass.dirty_bytes)), Some((9, 500)));
    set(&mut metadata, topic, &[("cleanup.policy", "delete")]);
    assert_eq!(due(&metadata, topic), None);
}

#[test]
fn the_lags_hold_a_pass_back_and_demand_one() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 4);
    set(&mut metadata, topic, &[("min.compaction.lag.ms", &NOW_MS.to_string())]);
    assert_eq!(due(&metadata, topic), None, "the newest record is of time 5");
    set_clocks(&mut metadata, NOW_MS + 5);
    assert_eq!(due(&metadata, topic).map(|pass| pass.segments), Some(4));
    finish(&mut metadata, topic, 40, 0, None);
    seal_many(&mut metadata, topic, 1);
    let opened_at_ms = partition(&metadata, topic).segments[4].opened_at_ms;
    set(&mut metadata, topic, &[("max.compaction.lag.ms", "1000")]);
    set_clocks(&mut metadata, opened_at_ms + 999);
    assert_eq!(due(&metadata, topic), None);
    set_clocks(&mut metadata, opened_at_ms + 1_000);
    assert_eq!(due(&metadata, topic).map(|pass| pass.is_overdue), Some(true));
}

/// One record whose time lay ahead held up the compaction of all behind it.
#[test]
fn a_record_far_in_the_future_is_no_younger_than_the_end_of_its_segment() {
    let (mut metadata, topic) = with_topic();
    for end in [10, 20] {
        let value = seal(&mut metadata, topic, end);
        let sealed = partition(&metadata, topic).segments.iter().rev().nth(1).expect("sealed").clone();
        let contents = Some(Contents { bytes: 100, newest_ms: Some(i64::MAX) });
        for copy in &sealed.copies {
            let (segment, since) = (sealed.descriptor.id, copy.since);
            let found = Found::Whole { digest: value.digest };
            let reports = vec![CopyReport { topic, partition: 0, segment, since, found, contents }];
            run(&mut metadata, Command::ReportCopies { replica: copy.replica, reports }).expect("a member");
        }
    }
    assert_eq!(
        due(&metadata, topic).map(|pass| pass.segments),
        Some(1),
        "the last one waits for its successor"
    );
    let ended_ms = partition(&metadata, topic).segments[1].opened_at_ms;
    set(&mut metadata, topic, &[("min.compaction.lag.ms", "500")]);
    set_clocks(&mut metadata, ended_ms + 499);
    assert_eq!(due(&metadata, topic), None);
    set_clocks(&mut metadata, ended_ms + 500);
    assert!(due(&metadata, topic).is_some());
}

/// It would call tombstones alone that are not: the records in front of them went with segments that this state does not know.
#[test]
fn the_end_of_a_pass_is_not_taken_by_a_state_that_has_forgotten_what_the_pass_did() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 3);
    let mut forgetful = metadata.clone();
    compact(&mut metadata, topic, 7_000, 0, 1);
    let segments: Vec<SegmentId> =
        partition(&metadata, topic).segments.iter().map(|segment| segment.descriptor.id).collect();
    let (cleaned_to, tombstones_gone_below) = (Offset(30), Offset(0));
    let end =
        PassEnd { segments, cleaned_to, tombstones_gone_below, tombstones_kept_below: Some(Offset(30)) };
    let finish = Command::FinishCompaction { place: place(topic), end };
    let refused = run(&mut forgetful, finish.clone());
    assert!(matches!(refused, Err(CommandRejection::NotCompactable { .. })), "{refused:?}");
    run(&mut metadata, finish).expect("it knows them");
}

/// A segment that ended before anybody wrote to it, on no disk yet, is made with what the one before it knows of producers.
#[test]
fn a_segment_waits_for_copies_of_the_one_behind_it_also_where_that_is_sealed() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 1);
    seal(&mut metadata, topic, 10);
    let empty = partition(&metadata, topic).segments[1].clone();
    let SegmentState::Sealed(value) = &empty.state else { panic!("it is sealed") };
    for node in [1, 2] {
        assert_eq!(due(&metadata, topic), None);
        report(&mut metadata, topic, &empty, node, Found::Whole { digest: value.digest });
    }
    assert_eq!(due(&metadata, topic).map(|pass| pass.segments), Some(1));
}

/// Who would have to know what producers wrote if the open segment were lost is the last sealed one.
#[test]
fn the_last_sealed_segment_waits_until_the_one_behind_it_has_begun() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 2);
    seal_whole(&mut metadata, topic, 30);
    assert_eq!(due(&metadata, topic).map(|pass| pass.segments), Some(2));
}

#[test]
fn a_pass_is_due_for_tombstones_that_have_stayed_long_enough() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 4);
    set(&mut metadata, topic, &[("delete.retention.ms", "500")]);
    finish(&mut metadata, topic, 40, 0, Some(30));
    assert_eq!(due(&metadata, topic), None);
    set_clocks(&mut metadata, NOW_MS + 499);
    assert_eq!(due(&metadata, topic), None);
    set_clocks(&mut metadata, NOW_MS + 500);
    assert_eq!(due(&metadata, topic).map(|pass| pass.tombstones_below), Some(Offset(30)));
    finish(&mut metadata, topic, 40, 30, None);
    assert_eq!(due(&metadata, topic), None);
    assert_eq!(
        partition(&metadata, topic).compaction,
        Compaction { cleaned_to: Offset(40), ..Compaction::default() }
    );
}

/// A node that was away is back, and with it the clocks of a majority jump.
#[test]
fn tombstones_stay_their_time_also_where_clocks_stood_still_when_they_were_noted() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 4);
    set(&mut metadata, topic, &[("delete.retention.ms", "500")]);
    let (cleaned_to, tombstones_kept_below) = (Offset(40), Some(Offset(30)));
    let segments = partition(&metadata, topic).segments.iter().map(|segment| segment.descriptor.id).collect();
    let end = PassEnd { segments, cleaned_to, tombstones_gone_below: Offset(0), tombstones_kept_below };
    let finish = Command::FinishCompaction { place: place(topic), end };
    let at_ms = NOW_MS + 10_000;
    apply(&mut metadata, &Envelope { at_ms, ..envelope(0, finish) }).expect("listed");
    set_clocks(&mut metadata, NOW_MS + 10_499);
    assert_eq!(due(&metadata, topic), None);
    set_clocks(&mut metadata, NOW_MS + 10_500);
    assert_eq!(due(&metadata, topic).map(|pass| pass.tombstones_below), Some(Offset(30)));
}

#[test]
fn neighbours_are_written_together_as_long_as_they_fit() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 5);
    let mut segments = partition(&metadata, topic).segments[..5].to_vec();
    let ranges = |segments: &[Segment], bytes_max| {
        runs(segments, bytes_max).into_iter().map(|run| (run.start, run.end)).collect::<Vec<_>>()
    };
    assert_eq!(ranges(&segments, 99), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]);
    assert_eq!(ranges(&segments, 250), [(0, 2), (2, 4), (4, 5)]);
    assert_eq!(ranges(&segments, 10_000), [(0, 5)]);
    // What a disk that comes back may still bring is not written over.
    let SegmentState::Sealed(value) = &mut segments[2].state else { panic!("sealed") };
    value.lost = vec![OffsetRange { start: Offset(20), end: Offset(22) }];
    assert_eq!(ranges(&segments, 10_000), [(0, 2), (3, 5)]);
    let compactor = LeaderRef { node: NodeId(1), process: ProcessId(uuid(201)) };
    assert_eq!(replacement(&segments, SegmentId(uuid(1)), compactor, DIGEST), None);
}

#[test]
fn one_of_the_nodes_that_have_most_of_a_partition_compacts_it_and_all_choose_the_same() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 3);
    let found = metadata.topics[&topic].clone();
    let segments = &found.partitions[0].segments[..3];
    let all = Present::only([1, 2, 3].map(NodeId));
    let chosen = compactor(&metadata, &all, &found, segments).expect("somebody");
    let others = [1, 2, 3].map(NodeId).into_iter().filter(|node| *node != chosen);
    let without = Present::only(others);
    let next = compactor(&metadata, &without, &found, segments).expect("somebody else");
    assert_ne!(next, chosen);
    assert_eq!(compactor(&metadata, &Present::default(), &found, segments), None);
    let mut fewer = segments.to_vec();
    fewer[0].copies.retain(|copy| copy.replica.node == next);
    assert_eq!(compactor(&metadata, &all, &found, &fewer), Some(next), "it has one more");
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
