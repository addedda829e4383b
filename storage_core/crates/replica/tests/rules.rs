//! The rules of replication, one by one, tested on single machines.

mod cluster;

use cluster::{descriptor, next_batch, replica_ref};
use walrus_model::*;
use walrus_replica::*;

const SEGMENT: u128 = 1;

fn segment() -> Descriptor {
    descriptor(SEGMENT, 1, 3, 2, Some(0))
}

fn successor(epoch: u32) -> Descriptor {
    Descriptor { number: 2, ..descriptor(u128::from(epoch) + 50, epoch, 3, 2, None) }
}

fn replica() -> Replica {
    Replica::new(replica_ref(1), segment(), CutId(1))
}

fn marks(count: u64) -> Vec<Mark> {
    let mut marks = vec![Mark { end: Offset(0), digest: Digest(0) }];
    for _ in 0..count {
        marks.push(next_batch(marks[marks.len() - 1], 2).mark());
    }
    marks
}

fn batches(count: u64) -> Vec<Batch> {
    let pairs = marks(count).windows(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>();
    pairs.into_iter().map(|(from, to)| Batch { base: from.end, end: to.end, digest: to.digest }).collect()
}

fn ask(message: Message) -> ReplicaInput {
    ReplicaInput::Request(Request::new(&segment(), replica_ref(1), message))
}

fn append(from: usize, count: u64) -> ReplicaInput {
    let append = Append {
        epoch: Epoch(1),
        writer: ProcessId::from_u128(1),
        from: marks(count)[from],
        batches: batches(count).split_off(from),
        commit: Offset(0),
    };
    ask(Message::Append(append))
}

fn ballot(epoch: u32) -> Ballot {
    Ballot { epoch: Epoch(epoch), attempt: AttemptId::from_u128(u128::from(epoch)) }
}

fn fence(epoch: u32) -> ReplicaInput {
    ask(Message::Fence(Fence { ballot: ballot(epoch) }))
}

fn value(count: usize, epoch: u32) -> Value {
    let Mark { end, digest } = marks(count as u64)[count];
    Value::without_loss(end, digest, successor(epoch).starting_at(end))
}

fn accept(ballot: Ballot, value: Value, missing: Vec<Batch>) -> ReplicaInput {
    ask(Message::Accept(Accept { ballot, value, missing }))
}

fn answer(outputs: &[ReplicaOutput]) -> &Reply {
    match outputs.last() {
        Some(ReplicaOutput::Answer(reply)) => reply,
        other => panic!("no answer, but {other:?}"),
    }
}

fn write(replica: &mut Replica, count: u64) {
    replica.step(append(0, count));
    replica.step(ReplicaInput::Synced { end: Offset(2 * count) });
}

#[test]
fn an_append_is_acknowledged_when_it_is_durable_and_not_before() {
    let mut replica = replica();
    let outputs = replica.step(append(0, 2));
    assert!(matches!(&outputs[..], [ReplicaOutput::Persist(_), ReplicaOutput::Write(two)] if two.len() == 2));
    let outputs = replica.step(ReplicaInput::Synced { end: Offset(2) });
    assert_eq!(answer(&outputs), &Reply::Ack { durable_end: Offset(2), suspect: None });
}

#[test]
fn the_same_bytes_again_are_a_plain_acknowledgement_and_never_a_truncation() {
    let mut replica = replica();
    write(&mut replica, 3);
    let outputs = replica.step(append(0, 1));
    assert_eq!(outputs, [ReplicaOutput::Answer(Reply::Ack { durable_end: Offset(6), suspect: None })]);
    assert_eq!(replica.tape().end(), Offset(6));
}

#[test]
fn other_bytes_at_a_held_offset_are_an_alarm() {
    let mut replica = replica();
    write(&mut replica, 2);
    let mut other = batches(2);
    other[1].digest = Digest(99);
    let append = Append {
        epoch: Epoch(1),
        writer: ProcessId::from_u128(1),
        from: marks(0)[0],
        batches: other,
        commit: Offset(0),
    };
    let outputs = replica.step(ask(Message::Append(append)));
    assert!(matches!(outputs[0], ReplicaOutput::Alarm(Alarm::Diverged { .. })));
    assert_eq!(answer(&outputs), &Reply::Refused(Refusal::Diverged));
}

#[test]
fn a_gap_is_refused_with_the_end() {
    let outputs = replica().step(append(1, 2));
    assert_eq!(answer(&outputs), &Reply::Refused(Refusal::Gap { end: Offset(0), suspect: None }));
}

#[test]
fn a_second_writer_is_refused() {
    let mut replica = replica();
    write(&mut replica, 1);
    let append = Append {
        epoch: Epoch(1),
        writer: ProcessId::from_u128(2),
        from: marks(1)[1],
        batches: vec![],
        commit: Offset(0),
    };
    let outputs = replica.step(ask(Message::Append(append)));
    assert_eq!(outputs[0], ReplicaOutput::Alarm(Alarm::TwoWriters));
    assert_eq!(answer(&outputs), &Reply::Refused(Refusal::OtherWriter { writer: ProcessId::from_u128(1) }));
}

#[test]
fn a_promise_and_what_was_written_are_durable_before_the_end_is_told_and_late_syncs_acknowledge_nothing() {
    let mut replica = replica();
    write(&mut replica, 1);
    replica.step(append(1, 3));
    let outputs = replica.step(fence(5));
    assert!(matches!(&outputs[0], ReplicaOutput::Persist(promises) if promises.promised == ballot(5)));
    assert_eq!(outputs[1], ReplicaOutput::Sync);
    let Reply::Promised(told) = answer(&outputs) else { panic!("{outputs:?}") };
    assert_eq!((told.durable_end, told.suspect), (Offset(6), false));
    assert_eq!(replica.step(ReplicaInput::Synced { end: Offset(6) }), []);
    let outputs = replica.step(append(3, 4));
    assert_eq!(answer(&outputs), &Reply::Refused(Refusal::Fenced { promised: ballot(5) }));
}

#[test]
fn a_lower_ballot_is_refused_with_the_highest_seen() {
    let mut replica = replica();
    replica.step(fence(5));
    let refused = Reply::Refused(Refusal::Fenced { promised: ballot(5) });
    assert_eq!(answer(&replica.step(fence(4))), &refused);
    assert_eq!(answer(&replica.step(accept(ballot(4), value(0, 4), vec![]))), &refused);
    assert_eq!(answer(&replica.step(accept(Ballot::zero(Epoch(1)), value(0, 2), vec![]))), &refused);
    assert!(matches!(answer(&replica.step(fence(5))), Reply::Promised(_)));
}

#[test]
fn another_disk_incarnation_answers_nothing() {
    let to = ReplicaRef { node: NodeId(1), disk: DiskId::from_u128(777) };
    let message = Message::Fence(Fence { ballot: ballot(3) });
    let outputs = replica().step(ReplicaInput::Request(Request::new(&segment(), to, message)));
    assert_eq!(answer(&outputs), &Reply::Refused(Refusal::OtherReplica));
}

#[test]
fn a_vote_fills_the_copy_first_and_ends_the_appends() {
    let mut replica = replica();
    write(&mut replica, 1);
    let voted = value(3, 7);
    let outputs = replica.step(accept(ballot(7), voted.clone(), vec![]));
    assert_eq!(answer(&outputs), &Reply::Refused(Refusal::Gap { end: Offset(2), suspect: None }));
    let outputs = replica.step(accept(ballot(7), voted.clone(), batches(3)));
    assert!(matches!(
        &outputs[..],
        [ReplicaOutput::Write(_), ReplicaOutput::Sync, ReplicaOutput::Persist(_), ReplicaOutput::Answer(_)]
    ));
    assert_eq!(replica.promises().accepted, Some((ballot(7), voted)));
    let outputs = replica.step(append(3, 4));
    assert_eq!(answer(&outputs), &Reply::Refused(Refusal::Voted { promised: ballot(7) }));
}

#[test]
fn a_vote_that_brings_only_a_part_keeps_it_and_names_the_rest() {
    let mut replica = replica();
    let outputs = replica.step(accept(ballot(7), value(3, 7), batches(2)));
    assert!(matches!(&outputs[0], ReplicaOutput::Write(two) if two.len() == 2));
    assert_eq!(answer(&outputs), &Reply::Refused(Refusal::Gap { end: Offset(4), suspect: None }));
    let outputs = replica.step(accept(ballot(7), value(3, 7), batches(3).split_off(2)));
    assert_eq!(answer(&outputs), &Reply::Accepted { ballot: ballot(7) });
}

/// A copy once showed what it had while its leader lived, or after a fence had been answered with less: then it voted
/// for a lower end.
#[test]
fn the_only_copy_shows_what_it_has_when_its_writer_is_gone_and_nobody_decides() {
    let alone = Descriptor { replicas: vec![replica_ref(1)], write_quorum: 1, ..segment() };
    let shown = |promised, accepted, start: u128| {
        let writer = Some(ProcessId::from_u128(1));
        let promises = Promises { writer, accepted, promised, ..Promises::default() };
        let mut tape = Tape::empty(alone.first());
        batches(3).into_iter().for_each(|batch| tape.push(batch));
        Replica::recover(replica_ref(1), alone.clone(), promises, tape, false, CutId(start)).0.readable_end()
    };
    assert_eq!(shown(Ballot::default(), None, 1), Offset(0));
    assert_eq!(shown(Ballot::default(), None, 2), Offset(6));
    assert_eq!(shown(ballot(7), None, 2), Offset(0));
    assert_eq!(shown(ballot(7), Some((ballot(7), value(1, 7))), 2), Offset(0));
}

/// The vote of a planned roll was once still on its way when the process died, and the copy had shown more since.
#[test]
fn the_only_copy_refuses_a_vote_of_a_writer_that_is_gone() {
    let alone = Descriptor { replicas: vec![replica_ref(1)], write_quorum: 1, ..segment() };
    let vote = accept(Ballot::zero(alone.epoch), value(1, 7), Vec::new());
    let answer_after = |start: u128| {
        let promises = Promises { writer: Some(ProcessId::from_u128(1)), ..Promises::default() };
        let mut tape = Tape::empty(alone.first());
        batches(3).into_iter().for_each(|batch| tape.push(batch));
        let mut replica =
            Replica::recover(replica_ref(1), alone.clone(), promises, tape, false, CutId(start)).0;
        answer(&replica.step(vote.clone())).clone()
    };
    assert!(matches!(answer_after(1), Reply::Accepted { .. }));
    assert!(matches!(answer_after(2), Reply::Refused(Refusal::Fenced { .. })));
}

#[test]
fn the_decision_cuts_what_lies_behind_it() {
    let mut replica = replica();
    write(&mut replica, 3);
    let notice = SealedNotice { value: value(2, 4), missing: vec![] };
    let outputs = replica.step(ask(Message::Sealed(notice.clone())));
    assert_eq!(outputs[0], ReplicaOutput::Cut(Offset(4)));
    assert_eq!(answer(&outputs), &Reply::Sealed);
    assert_eq!(replica.readable_end(), Offset(4));
    assert_eq!(replica.step(ask(Message::Sealed(notice))), [ReplicaOutput::Answer(Reply::Sealed)]);
    let other = SealedNotice { value: value(3, 4), missing: vec![] };
    assert_eq!(replica.step(ask(Message::Sealed(other)))[0], ReplicaOutput::Alarm(Alarm::TwoValues));
}

#[test]
fn a_trimmed_copy_answers_with_the_decision_and_takes_nothing() {
    let mut replica = replica();
    write(&mut replica, 2);
    let decided = value(2, 4);
    replica.step(ReplicaInput::Trimmed { value: decided.clone() });
    let outputs = replica.step(fence(9));
    let Reply::Promised(told) = answer(&outputs) else { panic!("{outputs:?}") };
    assert_eq!(told.sealed.as_ref(), Some(&decided));
    let sealed = Reply::Refused(Refusal::Sealed { value: decided });
    assert_eq!(answer(&replica.step(append(2, 3))), &sealed);
    assert_eq!(answer(&replica.step(accept(ballot(9), value(1, 9), vec![]))), &sealed);
}

#[test]
fn a_suspect_is_cleared_by_the_assigned_end_and_not_by_the_high_watermark() {
    let (mut tape, promises) = (Tape::empty(Offset(0)), Promises::default());
    tape.push(batches(1)[0]);
    let promises = Promises { writer: Some(ProcessId::from_u128(1)), ..promises };
    let (mut replica, outputs) = Replica::recover(replica_ref(1), segment(), promises, tape, true, CutId(7));
    assert!(matches!(&outputs[..], [ReplicaOutput::Persist(stored)] if stored.suspect));

    let mut told = Append {
        epoch: Epoch(1),
        writer: ProcessId::from_u128(1),
        from: marks(1)[1],
        batches: vec![],
        commit: Offset(2),
    };
    let outputs = replica.step(ask(Message::Append(told.clone())));
    assert_eq!(answer(&outputs), &Reply::Ack { durable_end: Offset(2), suspect: Some(CutId(7)) });

    // An answer to the question of an earlier start counts for nothing.
    let assigned = |cut, end| ask(Message::Assigned(Assigned { writer: ProcessId::from_u128(1), cut, end }));
    replica.step(assigned(CutId(6), Offset(2)));
    assert!(replica.promises().suspect);
    replica.step(assigned(CutId(7), Offset(4)));
    assert!(replica.promises().suspect);
    told.batches = batches(2).split_off(1);
    replica.step(ask(Message::Append(told)));
    let outputs = replica.step(ReplicaInput::Synced { end: Offset(4) });
    assert!(matches!(&outputs[0], ReplicaOutput::Persist(stored) if !stored.suspect));
}

fn leader() -> Leader {
    let mut leader = Leader::open(segment(), ProcessId::from_u128(1));
    batches(3).into_iter().for_each(|batch| drop(leader.step(LeaderInput::Assign(batch))));
    leader
}

fn ack(from: usize, end: u64) -> LeaderInput {
    LeaderInput::Reply { from, reply: Reply::Ack { durable_end: Offset(end), suspect: None } }
}

#[test]
fn the_high_watermark_is_the_wth_largest_durable_end() {
    let mut leader = leader();
    assert_eq!(leader.step(ack(0, 6)), []);
    assert_eq!(leader.step(ack(2, 4)), [LeaderOutput::HighWatermark(Offset(4))]);
    assert_eq!(leader.step(ack(2, 2)), []);
    assert_eq!(leader.step(ack(1, 6)), [LeaderOutput::HighWatermark(Offset(6))]);
}

#[test]
fn a_frozen_leader_proposes_one_value_and_its_watermark_stands_still() {
    let mut leader = leader();
    leader.step(ack(0, 6));
    leader.step(ack(1, 4));
    let outputs = leader.step(LeaderInput::Freeze { successor: successor(2) });
    assert_eq!(outputs.len(), 3);
    assert_eq!(leader.step(ack(2, 6)), []);
    assert_eq!(leader.step(LeaderInput::Freeze { successor: successor(3) }), []);
    let vote = |from| LeaderInput::Reply { from, reply: Reply::Accepted { ballot: Ballot::zero(Epoch(1)) } };
    assert_eq!(leader.step(vote(1)), []);
    assert_eq!(leader.step(vote(1)), [], "one replica votes once");
    assert_eq!(leader.step(vote(2)), [LeaderOutput::Ended(value(2, 2))]);
}

#[test]
fn a_frozen_leader_without_votes_asks_for_a_recovery_and_learns_the_end() {
    let mut leader = leader();
    leader.step(ack(0, 6));
    leader.step(LeaderInput::Freeze { successor: successor(2) });
    assert_eq!(leader.step(LeaderInput::Impatient), [LeaderOutput::Recover]);
    let decided = value(3, 5);
    let outputs = leader.step(LeaderInput::Learned(decided.clone()));
    assert_eq!(outputs, [LeaderOutput::HighWatermark(Offset(6)), LeaderOutput::Ended(decided)]);
}

#[test]
fn a_leader_that_too_many_refuse_is_deposed() {
    let mut leader = leader();
    let refused = |from| {
        let reply = Reply::Refused(Refusal::Fenced { promised: ballot(4) });
        LeaderInput::Reply { from, reply }
    };
    assert_eq!(leader.step(refused(1)), []);
    assert_eq!(leader.step(refused(1)), []);
    assert_eq!(leader.step(refused(2)), [LeaderOutput::Deposed]);
}

#[test]
#[should_panic(expected = "never resumes")]
fn a_leader_never_resumes() {
    drop(Leader::open(segment(), ProcessId::from_u128(2)));
}

fn told(durable: usize, suspect: bool) -> Candidate {
    let Mark { end, digest } = marks(durable as u64)[durable];
    let ballot = ballot(5);
    Candidate::Promised(FenceAnswer {
        ballot,
        durable_end: end,
        digest,
        accepted: None,
        sealed: None,
        suspect,
        holes: vec![],
    })
}

fn hole(start: u64, end: u64) -> OffsetRange {
    OffsetRange { start: Offset(start), end: Offset(end) }
}

/// A tape that is whole up to the end but for one batch, given by its place.
fn holed_tape(count: u64, place: usize) -> Tape {
    let mut tape = Tape::empty(Offset(0));
    for (at, batch) in batches(count).into_iter().enumerate() {
        match at == place {
            true => tape.skip(batch.end),
            false => tape.push(next_batch(tape.last(), 2)),
        }
    }
    tape
}

fn told_with_hole(count: u64, place: usize) -> Candidate {
    let tape = holed_tape(count, place);
    let Candidate::Promised(answer) = told(0, false) else { unreachable!() };
    let Mark { end, digest } = tape.last();
    Candidate::Promised(FenceAnswer { durable_end: end, digest, holes: tape.holes().to_vec(), ..answer })
}

fn holed_replica(count: u64, place: usize) -> Replica {
    let promises = Promises { writer: Some(ProcessId::from_u128(1)), ..Promises::default() };
    Replica::recover(replica_ref(1), segment(), promises, holed_tape(count, place), false, CutId(2)).0
}

#[test]
fn a_copy_with_a_hole_promises_at_once_and_takes_no_appends_and_no_vote_for_what_it_lacks() {
    let mut replica = holed_replica(3, 1);
    let refused = Reply::Refused(Refusal::Holes { holes: vec![hole(2, 4)] });
    assert_eq!(answer(&replica.step(append(3, 4))), &refused);
    let outputs = replica.step(fence(5));
    let Reply::Promised(told) = answer(&outputs) else { panic!("{outputs:?}") };
    assert_eq!((told.durable_end, &told.holes[..], told.suspect), (Offset(6), &[hole(2, 4)][..], false));
    let outputs = replica.step(accept(ballot(5), value(3, 5), batches(3)));
    assert_eq!(answer(&outputs), &refused, "the batch comes from a log, not with the vote");
    assert_eq!(
        answer(&replica.step(accept(ballot(5), value(1, 5), vec![]))),
        &Reply::Accepted { ballot: ballot(5) }
    );
}

#[test]
fn nothing_is_chosen_while_somebody_who_is_silent_may_have_what_the_others_lack() {
    let candidates = [told_with_hole(3, 1), told_with_hole(3, 1), Candidate::Silent];
    assert_eq!(choose(&segment(), &candidates, &successor(5)), None);
}

#[test]
fn what_one_copy_lacks_and_another_has_is_filled_before_anything_is_chosen() {
    let candidates = [told_with_hole(3, 1), told_with_hole(3, 0), told(1, false)];
    assert_eq!(choose(&segment(), &candidates, &successor(5)), None, "nobody knows the digest yet");
    let candidates = [told_with_hole(3, 1), told(3, false), Candidate::Silent];
    assert_eq!(choose(&segment(), &candidates, &successor(5)), Some(value(3, 5)));
}

#[test]
fn what_none_of_all_has_is_lost_and_every_copy_leaves_it_out() {
    let candidates = [told_with_hole(3, 1), Candidate::Gone, told(1, false)];
    let chosen = choose(&segment(), &candidates, &successor(5)).unwrap();
    assert_eq!((chosen.end, &chosen.lost[..]), (Offset(6), &[hole(2, 4)][..]));
    assert_eq!(chosen.digest, holed_tape(3, 1).last().digest);
    assert_eq!(chosen.possible_loss, [], "f have answered");

    let mut holed = holed_replica(3, 1);
    assert_eq!(
        answer(&holed.step(accept(ballot(5), chosen.clone(), vec![]))),
        &Reply::Accepted { ballot: ballot(5) }
    );
    let mut short = replica();
    write(&mut short, 1);
    let missing: Vec<Batch> = holed_tape(3, 1).batches(Offset(2), Offset(6)).collect();
    let outputs = short.step(accept(ballot(5), chosen.clone(), missing));
    assert!(
        matches!(&outputs[..], [ReplicaOutput::Skip(Offset(4)), ReplicaOutput::Write(one), ..] if one.len() == 1)
    );
    assert_eq!(answer(&outputs), &Reply::Accepted { ballot: ballot(5) });
    for mut copy in [holed, short] {
        let outputs =
            copy.step(ask(Message::Sealed(SealedNotice { value: chosen.clone(), missing: vec![] })));
        assert_eq!(answer(&outputs), &Reply::Sealed);
    }
}

#[test]
fn a_leader_acknowledges_nothing_that_is_lost() {
    let mut leader = leader();
    leader.step(ack(0, 2));
    leader.step(ack(1, 2));
    let digest = holed_tape(3, 1).last().digest;
    let lost = Value { digest, lost: vec![hole(2, 4)], ..value(3, 5) };
    assert_eq!(leader.step(LeaderInput::Learned(lost.clone())), [LeaderOutput::Ended(lost)]);
}

fn voted(candidate: Candidate, ballot: Ballot, value: Value) -> Candidate {
    let Candidate::Promised(answer) = candidate else { panic!("{candidate:?}") };
    Candidate::Promised(FenceAnswer { accepted: Some((ballot, value)), ..answer })
}

#[test]
fn the_longest_of_f_sound_answers_is_chosen() {
    let chosen = choose(&segment(), &[told(1, false), Candidate::Silent, told(3, false)], &successor(5));
    assert_eq!(chosen, Some(value(3, 5)));
}

#[test]
fn a_suspect_and_a_gone_disk_never_count_towards_f() {
    let successor = successor(5);
    assert_eq!(choose(&segment(), &[told(1, true), Candidate::Silent, told(3, false)], &successor), None);
    assert_eq!(choose(&segment(), &[Candidate::Gone, Candidate::Silent, told(3, false)], &successor), None);
    let all = choose(&segment(), &[told(1, true), Candidate::Gone, told(2, false)], &successor).unwrap();
    let loss = OffsetRange { start: Offset(4), end: Offset(u64::MAX) };
    assert_eq!((all.end, all.possible_loss), (Offset(4), vec![loss]));
    assert_eq!(choose(&segment(), &[Candidate::Gone, Candidate::Gone, Candidate::Gone], &successor), None);
}

/// When two of three disks were lost, w votes were once waited for, and the segment could never be ended.
#[test]
fn where_fewer_than_w_replicas_are_left_all_of_them_decide() {
    let mut recoverer = Recoverer::new(segment(), ballot(5), successor(5));
    for replica in [0, 1] {
        assert_eq!(recoverer.step(RecovererInput::Gone { replica, left: None }), []);
    }
    let Candidate::Promised(answer) = told(2, false) else { unreachable!() };
    let outputs = recoverer.step(RecovererInput::Reply { from: 2, reply: Reply::Promised(answer) });
    assert!(
        matches!(outputs[..], [RecovererOutput::Send { to: 2, message: Message::Accept(_), .. }]),
        "{outputs:?}"
    );
    let voted = Reply::Accepted { ballot: ballot(5) };
    let outputs = recoverer.step(RecovererInput::Reply { from: 2, reply: voted });
    let [RecovererOutput::Decided(value)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!((value.end, value.possible_loss.len()), (Offset(4), 1), "what may be lost is told");
}

#[test]
fn a_disk_that_is_only_silent_does_not_lower_the_votes_that_decide() {
    let mut recoverer = Recoverer::new(segment(), ballot(5), successor(5));
    for from in [0, 1] {
        let Candidate::Promised(answer) = told(2, false) else { unreachable!() };
        recoverer.step(RecovererInput::Reply { from, reply: Reply::Promised(answer) });
    }
    let voted = |from| RecovererInput::Reply { from, reply: Reply::Accepted { ballot: ballot(5) } };
    assert_eq!(recoverer.step(voted(0)), []);
    assert_eq!(recoverer.step(RecovererInput::Gone { replica: 2, left: None }), [], "two are left");
    assert_eq!(recoverer.step(voted(1)).len(), 1);
}

#[test]
fn the_log_that_is_left_of_a_gone_disk_gives_its_batches_and_no_vote() {
    let left = |count: usize| Candidate::Left(marks(count as u64)[count]);
    let successor = successor(5);
    // A log that is left is no answer, whatever it has.
    assert_eq!(choose(&segment(), &[left(3), Candidate::Silent, told(1, false)], &successor), None);
    // Where f have answered, batches that it has beyond them were not acknowledged.
    let sure = choose(&segment(), &[left(3), told(1, false), told(2, false)], &successor).unwrap();
    assert_eq!((sure.end, &sure.possible_loss[..]), (Offset(4), &[][..]));
    // Where fewer have answered, it may be all that is left of acknowledged batches.
    let saved = choose(&segment(), &[left(3), told(1, true), told(2, false)], &successor).unwrap();
    assert_eq!((saved.end, saved.digest), (Offset(6), marks(3)[3].digest));
    assert_eq!(saved.possible_loss.len(), 1, "more may have been");
    let mut recoverer = Recoverer::new(segment(), ballot(5), successor.clone());
    recoverer.step(RecovererInput::Gone { replica: 0, left: Some(marks(3)[3]) });
    assert_eq!(recoverer.sources(&saved), [0]);
    // Where it is all that is left, metadata alone make the choice a decision.
    let mut recoverer = Recoverer::new(segment(), ballot(5), successor.clone());
    for (replica, count) in [(0, 1), (1, 3)] {
        let left = Some(marks(3)[count]);
        assert_eq!(recoverer.step(RecovererInput::Gone { replica, left }), []);
    }
    let outputs = recoverer.step(RecovererInput::Gone { replica: 2, left: None });
    let [RecovererOutput::Unvoted(unvoted)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!((unvoted.end, unvoted.possible_loss.len()), (Offset(6), 1));
    // A batch that rotted elsewhere is not lost if this log has it.
    let holed = [told_with_hole(3, 1), left(2), told(1, false)];
    assert_eq!(choose(&segment(), &holed, &successor), None, "it is filled first");
}

#[test]
fn the_vote_of_the_highest_ballot_is_adopted_with_its_successor() {
    let (low, high) = (value(1, 3), value(2, 4));
    let answers = [
        voted(told(3, false), ballot(3), low),
        voted(told(2, false), ballot(4), high.clone()),
        Candidate::Silent,
    ];
    assert_eq!(choose(&segment(), &answers, &successor(5)), Some(high));
}

#[test]
fn an_outbid_attempt_stops() {
    let mut recoverer = Recoverer::new(segment(), ballot(5), successor(5));
    recoverer.step(RecovererInput::Ask);
    let reply = Reply::Refused(Refusal::Fenced { promised: ballot(6) });
    let outputs = recoverer.step(RecovererInput::Reply { from: 0, reply });
    assert_eq!(outputs, [RecovererOutput::Outbid(ballot(6))]);
}
