//! What partitions let go: by their topics' retention, and because somebody deletes records.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use walrus_metadata::{
    Command, CommandRejection, Contents, CopyReport, Envelope, Found, Kept, LEVEL, Metadata, Partition,
    PartitionPlace, PartitionStart, ReadMark, ReadMarks, Retention, Segment, SegmentPlace, SegmentState,
    Verdict, apply, partitions_past_retention, verdict,
};
use walrus_model::{NodeId, Offset, ReplicaRef, Replication, TopicId};

use crate::cluster::{NOW_MS, cluster_of, create, envelope, last_segment, run, seal};

const MINUTE_MS: u64 = 60_000;

/// Three nodes whose clocks are at `NOW_MS`, and a topic of three copies.
fn with_topic() -> (Metadata, TopicId) {
    let mut metadata = cluster_of(3);
    run(&mut metadata, Command::SetReplication { replication: Replication { factor: 3, write_quorum: 2 } })
        .expect("sound");
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    for node in 1..=3 {
        set_clock(&mut metadata, node, NOW_MS);
    }
    let topic = create(&mut metadata, "t", 1).expect("new");
    (metadata, topic)
}

fn set_clock(metadata: &mut Metadata, node: u32, at_ms: u64) {
    let (node, process) = (NodeId(node), metadata.nodes[&NodeId(node)].process);
    let renew = Command::RenewLease { node, process, asked_boottime_ms: 0, disk_bytes: 0 };
    apply(metadata, &Envelope { at_ms, ..envelope(0, renew) }).expect("its own");
}

fn set(metadata: &mut Metadata, topic: TopicId, name: &str, value: &str) {
    let set = BTreeMap::from([(name.to_owned(), value.to_owned())]);
    run(metadata, Command::AlterTopic { topic, set, unset: BTreeSet::new() }).expect("a setting");
}

fn partition(metadata: &Metadata, topic: TopicId) -> &Partition {
    &metadata.topics[&topic].partitions[0]
}

/// Numbers of the segments that are left.
fn left(metadata: &Metadata, topic: TopicId) -> Vec<u64> {
    partition(metadata, topic).segments.iter().map(|segment| segment.descriptor.number).collect()
}

/// One of its holders says what the copy of a sealed segment holds.
fn report(metadata: &mut Metadata, topic: TopicId, number: u64, contents: Contents) {
    let found = partition(metadata, topic).segments.iter().find(|one| one.descriptor.number == number);
    let segment = found.expect("listed").clone();
    let SegmentState::Sealed(value) = &segment.state else { panic!("segment {number} is not sealed") };
    let copy = segment.copies[0];
    let report = CopyReport {
        topic,
        partition: 0,
        segment: segment.descriptor.id,
        since: copy.since,
        found: Found::Whole { digest: value.digest },
        contents: Some(contents),
    };
    run(metadata, Command::ReportCopies { replica: copy.replica, reports: vec![report] }).expect("a member");
}

/// Seals the open segment at `end`, with a hundred bytes and records up to a time.
fn seal_with(metadata: &mut Metadata, topic: TopicId, end: u64, newest_ms: u64) {
    let number = last_segment(metadata, topic).number;
    seal(metadata, topic, end);
    report(metadata, topic, number, Contents { bytes: 100, newest_ms: i64::try_from(newest_ms).ok() });
}

/// Disks of the open segment say that they have its log.
fn begin(metadata: &mut Metadata, topic: TopicId, disks: usize) {
    let open = last_segment(metadata, topic);
    for replica in open.replicas.iter().take(disks) {
        let segments = vec![SegmentPlace { topic, partition: 0, segment: open.id }];
        run(metadata, Command::ReportBegun { replica: *replica, segments }).expect("a member");
    }
}

fn expire(metadata: &mut Metadata, topic: TopicId) {
    let partitions = vec![PartitionPlace { topic, partition: 0 }];
    run(metadata, Command::Expire { partitions }).expect("never refused");
}

fn kept(metadata: &Metadata, topic: TopicId) -> Kept {
    verdict(metadata, &metadata.topics[&topic], partition(metadata, topic)).kept
}

#[test]
fn segments_go_when_their_newest_record_is_too_old_by_the_time_of_a_majority_of_clocks() {
    let (mut metadata, topic) = with_topic();
    for (end, minute) in [(10, 0), (20, 1), (30, 2)] {
        seal_with(&mut metadata, topic, end, NOW_MS + minute * MINUTE_MS);
    }
    begin(&mut metadata, topic, 3);
    assert_eq!(kept(&metadata, topic), Kept::ForEver);
    set(&mut metadata, topic, "retention.ms", &(10 * MINUTE_MS).to_string());
    assert_eq!(kept(&metadata, topic), Kept::Age { until_ms: NOW_MS + 10 * MINUTE_MS });
    set_clock(&mut metadata, 1, NOW_MS + 500 * MINUTE_MS);
    expire(&mut metadata, topic);
    assert_eq!(left(&metadata, topic), [0, 1, 2, 3], "one clock that is ahead");
    set_clock(&mut metadata, 2, NOW_MS + 11 * MINUTE_MS);
    assert_eq!(partitions_past_retention(&metadata, 9), [PartitionPlace { topic, partition: 0 }]);
    expire(&mut metadata, topic);
    assert_eq!(left(&metadata, topic), [2, 3]);
    assert_eq!(partition(&metadata, topic).log_start(), Offset(20));
    assert_eq!(partitions_past_retention(&metadata, 9), []);
}

/// Somebody raises the retention while a node still believes in the old one: what it proposes is judged by the new one.
#[test]
fn what_goes_is_decided_when_the_command_is_applied_not_when_it_was_proposed() {
    let (mut metadata, topic) = with_topic();
    seal_with(&mut metadata, topic, 10, NOW_MS - MINUTE_MS);
    seal_with(&mut metadata, topic, 20, NOW_MS - MINUTE_MS);
    begin(&mut metadata, topic, 3);
    set(&mut metadata, topic, "retention.ms", "1000");
    assert_eq!(partitions_past_retention(&metadata, 9).len(), 1);
    set(&mut metadata, topic, "retention.ms", "-1");
    expire(&mut metadata, topic);
    assert_eq!(left(&metadata, topic), [0, 1, 2]);
}

#[test]
fn a_partition_keeps_as_many_bytes_as_its_topic_says_and_the_segment_that_holds_the_first_of_them() {
    let (mut metadata, topic) = with_topic();
    for end in [10, 20, 30, 40] {
        seal_with(&mut metadata, topic, end, NOW_MS);
    }
    for (bytes, first) in [("301", 0), ("300", 1), ("150", 2), ("100", 3)] {
        set(&mut metadata, topic, "retention.bytes", bytes);
        expire(&mut metadata, topic);
        assert_eq!(left(&metadata, topic)[0], first, "{bytes} bytes");
        assert_eq!(kept(&metadata, topic), Kept::Bytes);
    }
    set(&mut metadata, topic, "retention.bytes", "0");
    assert_eq!(kept(&metadata, topic), Kept::Successor);
    begin(&mut metadata, topic, 3);
    expire(&mut metadata, topic);
    assert_eq!((left(&metadata, topic), kept(&metadata, topic)), (vec![4], Kept::Open));
}

/// Who has written what is known at the end of a segment, and told to the one behind it when its log is made.
#[test]
fn the_last_sealed_segment_stays_until_a_quorum_has_the_log_behind_it() {
    let (mut metadata, topic) = with_topic();
    seal_with(&mut metadata, topic, 10, 1);
    seal_with(&mut metadata, topic, 20, 1);
    set(&mut metadata, topic, "retention.ms", "1000");
    expire(&mut metadata, topic);
    assert_eq!((left(&metadata, topic), kept(&metadata, topic)), (vec![1, 2], Kept::Successor));
    begin(&mut metadata, topic, 1);
    begin(&mut metadata, topic, 1); // the same disk again
    expire(&mut metadata, topic);
    assert_eq!(left(&metadata, topic), [1, 2]);
    begin(&mut metadata, topic, 2);
    expire(&mut metadata, topic);
    assert_eq!(left(&metadata, topic), [2]);
    seal_with(&mut metadata, topic, 30, 1);
    expire(&mut metadata, topic);
    assert_eq!(left(&metadata, topic), [2, 3], "the next one is asked anew");
}

#[test]
fn a_disk_that_is_lost_has_not_begun_the_segment_behind_the_last_sealed_one() {
    let (mut metadata, topic) = with_topic();
    seal_with(&mut metadata, topic, 10, 1);
    set(&mut metadata, topic, "retention.ms", "1000");
    begin(&mut metadata, topic, 2);
    let ReplicaRef { node, disk } = last_segment(&metadata, topic).replicas[1];
    run(&mut metadata, Command::RemoveNode { node, disk, lost: true, replaced_by: None }).expect("a member");
    expire(&mut metadata, topic);
    assert_eq!((left(&metadata, topic), kept(&metadata, topic)), (vec![0, 1], Kept::Successor));
}

#[test]
fn a_disk_that_is_no_replica_has_begun_nothing() {
    let (mut metadata, topic) = with_topic();
    let open = last_segment(&metadata, topic);
    let stranger = ReplicaRef { disk: open.replicas[1].disk, ..open.replicas[0] };
    let segments = vec![SegmentPlace { topic, partition: 0, segment: open.id }];
    assert!(run(&mut metadata, Command::ReportBegun { replica: stranger, segments }).is_err());
    assert!(partition(&metadata, topic).segments[0].begun.is_empty());
}

#[test]
fn what_no_holder_has_reported_and_what_is_not_in_the_archive_stays() {
    let (mut metadata, topic) = with_topic();
    set(&mut metadata, topic, "retention.ms", "1");
    seal(&mut metadata, topic, 10);
    seal_with(&mut metadata, topic, 20, 1);
    begin(&mut metadata, topic, 3);
    assert_eq!(kept(&metadata, topic), Kept::Unreported);
    report(&mut metadata, topic, 0, Contents { bytes: 1, newest_ms: Some(1) });
    set(&mut metadata, topic, "walrus.retention.archived", "true");
    expire(&mut metadata, topic);
    assert_eq!((left(&metadata, topic), kept(&metadata, topic)), (vec![0, 1, 2], Kept::Archive));
    set(&mut metadata, topic, "walrus.retention.archived", "false");
    expire(&mut metadata, topic);
    assert_eq!(left(&metadata, topic), [2]);
}

#[test]
fn records_without_a_time_count_from_the_end_of_their_segment() {
    let (mut metadata, topic) = with_topic();
    seal(&mut metadata, topic, 10);
    let ended_ms = partition(&metadata, topic).segments[1].opened_at_ms;
    report(&mut metadata, topic, 0, Contents { bytes: 1, newest_ms: Some(-1) });
    begin(&mut metadata, topic, 3);
    set(&mut metadata, topic, "retention.ms", "1000");
    assert_eq!(kept(&metadata, topic), Kept::Age { until_ms: ended_ms + 1_000 });
}

#[test]
fn deleted_records_are_not_read_and_their_segments_go_whatever_the_topic_keeps() {
    let (mut metadata, topic) = with_topic();
    seal_with(&mut metadata, topic, 10, NOW_MS);
    seal_with(&mut metadata, topic, 20, NOW_MS);
    let delete = |metadata: &mut Metadata, start| {
        let starts = vec![PartitionStart { partition: 0, start: Offset(start) }];
        run(metadata, Command::DeleteRecords { topic, starts }).expect("there");
        partition(metadata, topic).log_start().0
    };
    assert_eq!(delete(&mut metadata, 15), 15);
    assert_eq!(delete(&mut metadata, 3), 15, "a start never moves back");
    expire(&mut metadata, topic);
    assert_eq!((left(&metadata, topic), kept(&metadata, topic)), (vec![1, 2], Kept::ForEver));
    assert_eq!(delete(&mut metadata, 20), 20);
    begin(&mut metadata, topic, 2);
    expire(&mut metadata, topic);
    assert_eq!(left(&metadata, topic), [2]);
    assert_eq!(delete(&mut metadata, 25), 25, "inside the open segment");
    expire(&mut metadata, topic);
    assert_eq!(left(&metadata, topic), [2]);
}

#[test]
fn of_several_partitions_records_are_deleted_in_all_or_in_none() {
    let (mut metadata, topic) = with_topic();
    let starts = [0, 7].map(|partition| PartitionStart { partition, start: Offset(5) }).to_vec();
    let refused = CommandRejection::UnknownPartition { topic, partition: 7 };
    assert_eq!(run(&mut metadata, Command::DeleteRecords { topic, starts }), Err(refused));
    assert_eq!(partition(&metadata, topic).log_start(), Offset(0));
}

/// What was made before there was retention keeps everything, at each level.
#[test]
fn no_upgrade_deletes_anything() {
    const BEFORE_RETENTION: u32 = 5;
    let mut metadata = cluster_of(3);
    run(&mut metadata, Command::RaiseLevel { level: BEFORE_RETENTION }).expect("all know it");
    let topic = create(&mut metadata, "t", 1).expect("new");
    seal(&mut metadata, topic, 10);
    seal(&mut metadata, topic, 20);
    let partitions = vec![PartitionPlace { topic, partition: 0 }];
    let command = Command::Expire { partitions };
    assert_eq!(
        run(&mut metadata, command),
        Err(CommandRejection::LevelNotReached { needed: BEFORE_RETENTION + 1, level: BEFORE_RETENTION })
    );
    let set = BTreeMap::from([("retention.ms".to_owned(), "1".to_owned())]);
    let alter = Command::AlterTopic { topic, set, unset: BTreeSet::new() };
    assert_eq!(alter.level(), BEFORE_RETENTION + 1, "a member of before would refuse it, and differ then");
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    for node in 1..=3 {
        set_clock(&mut metadata, node, u64::MAX);
    }
    for number in [0, 1] {
        report(&mut metadata, topic, number, Contents { bytes: u64::MAX, newest_ms: Some(0) });
    }
    begin(&mut metadata, topic, 3);
    assert_eq!(partitions_past_retention(&metadata, 9), []);
    expire(&mut metadata, topic);
    assert_eq!(left(&metadata, topic), [0, 1, 2]);
}

fn tell_read(metadata: &mut Metadata, topic: TopicId, reader: &str, next: u64) {
    let marks = vec![ReadMark { partition: 0, next: Offset(next) }];
    run(metadata, Command::ReportRead { topic, reader: reader.to_owned(), marks })
        .expect("there is the topic");
}

/// Names readers in a setting, and tells how far each of them has read.
fn set_readers(metadata: &mut Metadata, topic: TopicId, setting: &str, marks: &[u64]) {
    let name = |place: usize| format!("{setting}-{place}");
    let names: Vec<String> = (0..marks.len()).map(name).collect();
    set(metadata, topic, setting, &names.join(","));
    for (reader, mark) in names.iter().zip(marks) {
        tell_read(metadata, topic, reader, *mark);
    }
}

#[test]
fn what_all_readers_have_used_up_goes_and_the_first_that_one_of_them_lacks_stays() {
    let (mut metadata, topic) = with_topic();
    for end in [10, 20, 30] {
        seal_with(&mut metadata, topic, end, NOW_MS);
    }
    begin(&mut metadata, topic, 3);
    set(&mut metadata, topic, "walrus.retention.consumed", " billing, GET");
    tell_read(&mut metadata, topic, "GET", 25);
    expire(&mut metadata, topic);
    assert_eq!(left(&metadata, topic), [0, 1, 2, 3]);
    assert_eq!(kept(&metadata, topic), Kept::Reader { name: "billing".to_owned() });
    tell_read(&mut metadata, topic, "billing", 20);
    assert_eq!(partitions_past_retention(&metadata, 9), [PartitionPlace { topic, partition: 0 }]);
    expire(&mut metadata, topic);
    assert_eq!((left(&metadata, topic), partition(&metadata, topic).log_start()), (vec![2, 3], Offset(20)));
    tell_read(&mut metadata, topic, "billing", 30);
    assert_eq!(kept(&metadata, topic), Kept::Reader { name: "GET".to_owned() });
    set(&mut metadata, topic, "retention.ms", "1000");
    assert_eq!(kept(&metadata, topic), Kept::Age { until_ms: NOW_MS + 1_000 }, "it may go by its age, too");
}

#[test]
fn retention_waits_for_the_readers_that_are_pinned_and_whoever_deletes_records_does_not() {
    let (mut metadata, topic) = with_topic();
    for end in [10, 20, 30] {
        seal_with(&mut metadata, topic, end, NOW_MS - MINUTE_MS);
    }
    begin(&mut metadata, topic, 3);
    set(&mut metadata, topic, "retention.ms", "1000");
    set(&mut metadata, topic, "walrus.retention.pinned", "audit");
    assert_eq!(kept(&metadata, topic), Kept::Reader { name: "audit".to_owned() });
    tell_read(&mut metadata, topic, "audit", 19);
    expire(&mut metadata, topic);
    assert_eq!(left(&metadata, topic), [1, 2, 3]);
    tell_read(&mut metadata, topic, "audit", 3);
    assert_eq!(metadata.topics[&topic].read.of("audit", 0), Offset(3), "it reads again");
    let starts = vec![PartitionStart { partition: 0, start: Offset(20) }];
    run(&mut metadata, Command::DeleteRecords { topic, starts }).expect("listed");
    expire(&mut metadata, topic);
    assert_eq!(left(&metadata, topic), [2, 3]);
    set(&mut metadata, topic, "walrus.retention.pinned", "");
    expire(&mut metadata, topic);
    assert_eq!(left(&metadata, topic), [3]);
}

#[test]
fn only_readers_whom_the_topic_asks_are_remembered() {
    let (mut metadata, topic) = with_topic();
    tell_read(&mut metadata, topic, "GET", 5);
    let marks = vec![ReadMark { partition: 7, next: Offset(5) }];
    set(&mut metadata, topic, "walrus.retention.pinned", "GET");
    run(&mut metadata, Command::ReportRead { topic, reader: "GET".to_owned(), marks }).expect("passed over");
    assert_eq!(metadata.topics[&topic].read, ReadMarks::default());
    tell_read(&mut metadata, topic, "GET", 5);
    let restored = Metadata::from_snapshot(&metadata.to_snapshot()).expect("our own snapshot");
    assert_eq!((restored.topics[&topic].read.of("GET", 0), &restored), (Offset(5), &metadata));
    set(&mut metadata, topic, "walrus.retention.pinned", "audit");
    assert_eq!(metadata.topics[&topic].read, ReadMarks::default());
    let missing = TopicId::from_u128(77);
    let refused =
        run(&mut metadata, Command::ReportRead { topic: missing, reader: "GET".to_owned(), marks: vec![] });
    assert_eq!(refused.map(drop), Err(CommandRejection::UnknownTopic { topic: missing }));
}

/// The rule in other words: a segment goes if it and each one before it is let go, and the last sealed one only if the open
/// one has begun on a quorum.
fn naive(
    partition: &Partition,
    retention: &Retention,
    (used_up, pinned): (&[u64], &[u64]),
    now_ms: u64,
) -> u64 {
    let segments = &partition.segments;
    let (open, sealed) = segments.split_last().expect("an open one");
    let bytes = |segment: &Segment| segment.contents.map_or(0, |contents| contents.bytes);
    let is_let_go = |place: usize| {
        let segment = &sealed[place];
        let SegmentState::Sealed(value) = &segment.state else { return false };
        if value.end <= partition.start {
            return true;
        }
        let lacks = |mark: &u64| *mark < value.end.0;
        if retention.archived || pinned.iter().any(lacks) {
            return false;
        }
        if !used_up.is_empty() && !used_up.iter().any(lacks) {
            return true;
        }
        let Some(contents) = segment.contents else { return false };
        let newest = contents.newest_ms.filter(|newest| *newest >= 0);
        let counted = newest.map_or(segments[place + 1].opened_at_ms, |newest| newest.cast_unsigned());
        let is_old = retention.age_ms.is_some_and(|age| now_ms >= counted && now_ms - counted >= age);
        let behind: u64 = sealed[place + 1..].iter().map(bytes).sum();
        is_old || retention.bytes.is_some_and(|kept| behind >= kept)
    };
    let gone = (0..sealed.len()).take_while(|place| is_let_go(*place)).count();
    let has_begun = open.begun.len() >= open.descriptor.write_quorum as usize;
    let gone = if gone == sealed.len() && !has_begun { gone.saturating_sub(1) } else { gone };
    segments[gone].descriptor.number
}

proptest! {
    #[test]
    fn what_goes_is_what_a_naive_rule_lets_go(
        held in prop::collection::vec(prop::option::weighted(0.9, (0_u64..200, prop::option::of(-5_i64..100))), 0..6),
        (age_ms, bytes) in (prop::option::of(0_u64..100), prop::option::of(0_u64..500)),
        (archived, begun, start, now_ms) in (prop::bool::weighted(0.1), 0_usize..4, 0_u64..70, 0_u64..150),
        (used_up, pinned) in (prop::collection::vec(0_u64..70, 0..3), prop::collection::vec(0_u64..70, 0..2)),
    ) {
        let (mut metadata, topic) = with_topic();
        set_readers(&mut metadata, topic, "walrus.retention.consumed", &used_up);
        set_readers(&mut metadata, topic, "walrus.retention.pinned", &pinned);
        let text = |limit: Option<u64>| limit.map_or_else(|| "-1".to_owned(), |limit| limit.to_string());
        set(&mut metadata, topic, "retention.ms", &text(age_ms));
        set(&mut metadata, topic, "retention.bytes", &text(bytes));
        set(&mut metadata, topic, "walrus.retention.archived", &archived.to_string());
        for end in (10..).step_by(10).take(held.len()) {
            seal(&mut metadata, topic, end);
        }
        begin(&mut metadata, topic, begun);
        let mut partition = partition(&metadata, topic).clone();
        for (place, segment) in partition.segments.iter_mut().enumerate() {
            segment.opened_at_ms = 20 * place as u64;
            segment.contents = held.get(place).copied().flatten()
                .map(|(bytes, newest_ms)| Contents { bytes, newest_ms });
        }
        partition.start = Offset(start);
        let retention = Retention { age_ms, bytes, archived, consumed: !used_up.is_empty() };
        prop_assert_eq!(metadata.topics[&topic].config.retention(), retention);
        metadata.nodes.values_mut().for_each(|node| node.clock_ms = now_ms);
        let Verdict { below_number, kept } = verdict(&metadata, &metadata.topics[&topic], &partition);
        prop_assert_eq!(below_number, naive(&partition, &retention, (&used_up, &pinned), now_ms));
        let open = partition.segments.last().expect("open").descriptor.number;
        prop_assert_eq!(kept == Kept::Open, below_number == open);
    }
}
