//! Passes of compaction: when one is due, who makes it, what it covers, and when tombstones go.

use walrus_metadata::{
    Command, CommandRejection, Compaction, Contents, CopyReport, DuePass, Envelope, Found, PassEnd, Present,
    Segment, SegmentState, apply, compactor, replacement, runs,
};
use walrus_model::{LeaderRef, NodeId, Offset, OffsetRange, ProcessId, SegmentId};

use crate::cluster::{NOW_MS, envelope, run, seal, uuid};
use crate::compacted::{
    DIGEST, compact, due, finish, partition, place, report, seal_many, seal_whole, set, set_clocks,
    with_topic,
};

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
