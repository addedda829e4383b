//! What disks remember and the metadata may have forgotten: when a disk may rely on it, tell of it, and forget it.

use walrus_metadata::{
    Command, CommandRejection, Found, Metadata, PartitionStart, Replacement, SegmentPlace,
};
use walrus_model::{Offset, SegmentId, TopicId};

use crate::cluster::{run, uuid};
use crate::compacted::{
    DIGEST, candidate, compact, give, numbers, offer, partition, place, replicas, report, seal_many, set,
    with_topic,
};

pub(crate) fn remembered(metadata: &Metadata, topic: TopicId, number: u64) -> Replacement {
    let mut listed = partition(metadata, topic).segments.iter();
    let found = listed.find(|segment| segment.descriptor.number == number).expect("listed");
    found.replacement().expect("it took the place of others")
}

pub(crate) fn repeat(
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

fn note(metadata: &mut Metadata, topic: TopicId, at: usize, node: usize) {
    let segment = partition(metadata, topic).segments[at].descriptor.id;
    let replica = replicas(metadata)[node - 1];
    let segments = vec![SegmentPlace { topic, partition: 0, segment }];
    run(metadata, Command::ReportBegun { replica, segments }).expect("a member");
}

/// Metadata that are set back may know the new segment as a candidate that was given up, whose copies leave: then the records are on
/// no disk, unless a quorum remembers.
#[test]
fn what_was_replaced_stays_until_as_many_disks_remember_it_as_have_to_acknowledge() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 3);
    compact(&mut metadata, topic, 7_000, 0, 1);
    let old = partition(&metadata, topic).compaction.replaced[0].clone();
    let goes = |metadata: &Metadata| {
        let holder = partition(metadata, topic).holder_of_place(&old).expect("it was replaced");
        metadata.holds_its_place(holder)
    };
    assert!(!goes(&metadata), "two have verified copies, and may forget");
    note(&mut metadata, topic, 0, 1);
    assert!(!goes(&metadata));
    note(&mut metadata, topic, 0, 3);
    assert!(!goes(&metadata), "the third one has no whole copy yet");
    note(&mut metadata, topic, 0, 2);
    assert!(goes(&metadata));
    metadata.check().expect("sound");
}

#[test]
fn a_copy_is_given_up_only_while_enough_that_remember_stay() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 3);
    compact(&mut metadata, topic, 7_000, 0, 1);
    let new = partition(&metadata, topic).segments[0].clone();
    report(&mut metadata, topic, &new, 3, Found::Whole { digest: DIGEST });
    let give_up = |metadata: &mut Metadata| {
        let (segment, given_up) =
            (partition(metadata, topic).segments[0].clone(), vec![replicas(metadata)[0]]);
        let (version, segment) = (segment.version, segment.descriptor.id);
        run(metadata, Command::SetCopies { topic, partition: 0, segment, version, added: vec![], given_up })
    };
    note(&mut metadata, topic, 0, 1);
    note(&mut metadata, topic, 0, 2);
    let refused = give_up(&mut metadata).expect_err("the third has a whole copy and may forget");
    assert!(matches!(refused, CommandRejection::TooFewCopies { left: 1, needed: 2, .. }), "{refused:?}");
    note(&mut metadata, topic, 0, 3);
    give_up(&mut metadata).expect("two are left that remember");
}

#[test]
fn a_note_is_forgotten_once_what_took_its_place_in_turn_is_remembered_by_enough() {
    let (mut metadata, topic) = with_topic();
    seal_many(&mut metadata, topic, 4);
    compact(&mut metadata, topic, 7_000, 0, 1);
    let noted = remembered(&metadata, topic, 1);
    let outlives = |metadata: &Metadata| metadata.outlives(partition(metadata, topic), &noted);
    note(&mut metadata, topic, 0, 1);
    note(&mut metadata, topic, 0, 2);
    assert!(!outlives(&metadata), "it is the one that is listed");
    compact(&mut metadata, topic, 7_001, 0, 2);
    assert!(!outlives(&metadata), "of what took its place nobody else may know");
    note(&mut metadata, topic, 0, 1);
    note(&mut metadata, topic, 0, 2);
    assert!(outlives(&metadata));
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
