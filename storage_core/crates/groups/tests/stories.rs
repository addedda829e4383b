//! Stories of groups, told step by step.
#![allow(clippy::unwrap_used, reason = "tests unwrap")]

mod support;

use std::collections::BTreeMap;

use support::*;
use walrus_groups::{Answer, Commit, Effect, Join, Leave, Phase, Protocol, Refusal, Ticket};

#[test]
fn a_first_member_leads_and_shares_the_work_out_between_all() {
    let mut group = Driver::new(limits());
    let first = group.join(joining("a"));
    assert_eq!(group.joined(first).leader, "a");
    let second = group.join(joining("b"));
    assert_eq!(group.heartbeat("a", 1), Err(Refusal::RebalanceInProgress));
    let first = group.join(again("a"));
    let (first, second) = (group.joined(first), group.joined(second));
    assert_eq!((first.generation, second.generation), (2, 2));
    assert_eq!(first.members.len(), 2);
    assert!(second.members.is_empty(), "only the leader is told who the others are");

    let waiting = group.sync("b", 2, &[]);
    assert!(group.answer(waiting).is_none());
    let leading = group.sync("a", 2, &[("a", "0"), ("b", "1")]);
    assert!(
        group.answer(leading).is_none() && group.answer(waiting).is_none(),
        "the shares are not stored yet"
    );
    group.store_all();
    assert_eq!((group.share(leading), group.share(waiting)), (Ok("0".into()), Ok("1".into())));
    assert_eq!(group.phase(), Phase::Stable);
    assert_eq!(group.heartbeat("b", 2), Ok(()));
    let asked_again = group.sync("b", 2, &[]);
    assert_eq!(group.share(asked_again), Ok("1".into()));
}

/// A client that joins by version 4 or later is given an id first: a join of which the answer was lost left a member behind that
/// nobody was, and each generation waited for it.
#[test]
fn a_new_member_is_given_an_id_and_joins_with_it() {
    let mut group = Driver::new(limits());
    let asked = group.join(walrus_groups::Join { needs_known_id: true, ..joining("a") });
    assert_eq!(group.refused(asked), Refusal::MemberIdRequired("a".into()));
    assert_eq!(group.phase(), Phase::Empty);
    let joined = group.join(again("a"));
    assert_eq!(group.joined(joined).member, "a");
    let unknown = group.join(again("b"));
    assert_eq!(group.refused(unknown), Refusal::UnknownMember);
}

#[test]
fn a_generation_waits_for_an_id_that_was_given_out_until_its_session_has_passed() {
    let mut group = Driver::stable(&["a"]);
    group.join(walrus_groups::Join { needs_known_id: true, ..joining("b") });
    let joined = group.join(walrus_groups::Join {
        protocols: protocols(&["other", "range"]),
        rebalance_timeout_ms: 2 * SESSION_MS,
        ..again("a")
    });
    assert!(group.answer(joined).is_none());
    assert_eq!(group.group.next_deadline_ms(), Some(SESSION_MS));
    group.advance(SESSION_MS);
    assert_eq!(group.joined(joined).generation, 2);
}

#[test]
fn who_does_not_join_again_in_time_is_left_behind_and_told_when_it_is_back() {
    let mut group = Driver::stable(&["a", "b"]);
    let joined = group.join(joining("c"));
    let again = group.join(again("a"));
    group.advance(REBALANCE_MS - 1);
    group.heartbeat("b", 1).unwrap_err();
    assert!(group.answer(joined).is_none());
    group.advance(1);
    assert_eq!((group.joined(joined).generation, group.joined(again).members.len()), (2, 2));
    assert_eq!(group.heartbeat("b", 1), Err(Refusal::UnknownMember));
}

#[test]
fn a_member_that_is_silent_for_its_session_is_gone_and_the_others_share_anew() {
    let mut group = Driver::stable(&["a", "b"]);
    group.advance(SESSION_MS - 1);
    assert_eq!(group.heartbeat("a", 1), Ok(()));
    group.advance(1);
    assert_eq!(group.heartbeat("a", 1), Err(Refusal::RebalanceInProgress));
    assert_eq!(group.group.members().count(), 1);
    let joined = group.join(again("a"));
    assert_eq!(group.joined(joined).leader, "a");
}

#[test]
fn a_leader_that_never_shares_out_is_replaced() {
    let mut group = Driver::new(limits());
    let joins = [group.join(joining("a")), group.join(joining("b"))];
    let again = group.join(again("a"));
    assert_eq!(group.joined(again).leader, "a");
    group.joined(joins[1]);
    let waiting = group.sync("b", 2, &[]);
    group.advance(REBALANCE_MS);
    assert_eq!(group.share(waiting), Err(Refusal::RebalanceInProgress));
    let joined = group.join(support::again("b"));
    assert_eq!(group.joined(joined).leader, "b");
}

#[test]
fn the_last_member_that_leaves_leaves_an_empty_group_and_its_offsets() {
    let mut group = Driver::stable(&["a"]);
    let committed = group.commit(Some("a"), 1, 7);
    group.store_all();
    assert_eq!(group.committed(committed), Ok(()));
    assert_eq!(group.leave(&[("a", None)]), [Ok(())]);
    assert_eq!((group.phase(), group.group.generation()), (Phase::Empty, 2));
    assert_eq!(group.leave(&[("a", None)]), [Err(Refusal::UnknownMember)]);
    assert_eq!(group.offset(), Some(7));
    assert_eq!(group.heartbeat("a", 2), Err(Refusal::UnknownMember));
}

#[test]
fn offsets_are_committed_by_members_of_the_generation_only_once_they_are_stored() {
    let mut group = Driver::stable(&["a", "b"]);
    let committed = group.commit(Some("a"), 1, 7);
    assert_eq!((group.answer(committed), group.offset()), (None, None));
    group.store_all();
    assert_eq!((group.committed(committed), group.offset()), (Ok(()), Some(7)));
    let of_others = [(Some("a"), 0), (Some("a"), 2), (Some("c"), 1), (None, -1)];
    let refusals = of_others.map(|(member, generation)| {
        let ticket = group.commit(member, generation, 9);
        group.committed(ticket).unwrap_err()
    });
    let expected = [
        Refusal::IllegalGeneration,
        Refusal::IllegalGeneration,
        Refusal::UnknownMember,
        Refusal::UnknownMember,
    ];
    assert_eq!(refusals, expected);
    // Who is told to join again may still say how far it has come, but not once others may have its share.
    let joins = [group.join(joining("c")), group.join(again("b"))];
    let committed = group.commit(Some("a"), 1, 8);
    group.store_all();
    assert_eq!(group.committed(committed), Ok(()));
    let joined = group.join(again("a"));
    assert_eq!(group.joined(joined).generation, 2);
    joins.into_iter().for_each(|ticket| drop(group.joined(ticket)));
    let committed = group.commit(Some("a"), 2, 9);
    assert_eq!(group.committed(committed), Err(Refusal::RebalanceInProgress));
    assert_eq!(group.offset(), Some(8));
}

#[test]
fn who_is_no_member_commits_to_a_group_without_members() {
    let mut group = Driver::new(limits());
    let committed = group.commit(None, -1, 3);
    group.store_all();
    assert_eq!((group.committed(committed), group.offset()), (Ok(()), Some(3)));
}

/// A static member that was restarted joined as another one: its share moved to somebody else and back, for nothing.
#[test]
fn a_static_member_that_is_restarted_has_its_share_back_at_once_and_fences_its_former_self() {
    let mut group = Driver::new(limits());
    let join = group.join(stat("a1", "a"));
    let other = group.join(stat("b1", "b"));
    let again = group.join(walrus_groups::Join { member: "a1".into(), ..stat("", "a") });
    group.joined(again);
    group.joined(other);
    assert_eq!(group.joined(join).generation, 1);
    let (leading, waiting) =
        (group.sync_as("a1", Some("a"), 2, &[("a1", "0"), ("b1", "1")]), group.sync("b1", 2, &[]));
    group.store_all();
    assert_eq!((group.share(leading), group.share(waiting)), (Ok("0".into()), Ok("1".into())));

    let back = group.join(stat("b2", "b"));
    assert!(group.answer(back).is_none(), "whoever takes over must know the new id");
    group.store_all();
    let joined = group.joined(back);
    assert_eq!((joined.generation, joined.member.as_str(), group.phase()), (2, "b2", Phase::Stable));
    let synced = group.sync_as("b2", Some("b"), 2, &[]);
    assert_eq!(group.share(synced), Ok("1".into()));
    assert_eq!(group.heartbeat_as("b1", Some("b"), 2), Err(Refusal::FencedInstance));
    assert_eq!(group.heartbeat("b1", 2), Err(Refusal::UnknownMember));

    let leader = group.join(stat("a2", "a"));
    group.store_all();
    let joined = group.joined(leader);
    assert!(joined.skips_sharing && joined.leader == "a2" && joined.members.len() == 2);
    // Somebody else may remove it by its own name.
    assert_eq!(group.leave(&[("", Some("b")), ("a1", Some("a"))]), [Ok(()), Err(Refusal::FencedInstance)]);
}

#[test]
fn a_static_member_stays_while_it_restarts_though_a_generation_is_formed_without_it() {
    let mut group = Driver::new(limits());
    let patient = |join| walrus_groups::Join { session_timeout_ms: 10 * SESSION_MS, ..join };
    let join = group.join(patient(stat("a1", "a")));
    group.joined(join);
    group.sync_as("a1", Some("a"), 1, &[("a1", "0")]);
    group.store_all();
    let other = group.join(patient(joining("b")));
    group.advance(REBALANCE_MS);
    let joined = group.joined(other);
    assert_eq!((joined.leader.as_str(), joined.members.len()), ("b", 2));
}

#[test]
fn members_without_a_protocol_in_common_are_refused() {
    let mut group = Driver::stable(&["a"]);
    for join in [
        walrus_groups::Join { protocols: protocols(&["other"]), ..joining("b") },
        walrus_groups::Join { protocols: Vec::new(), ..joining("b") },
        walrus_groups::Join { protocol_type: "connect".into(), ..joining("b") },
        walrus_groups::Join { protocol_type: String::new(), ..joining("b") },
    ] {
        let ticket = group.join(join);
        assert_eq!(group.refused(ticket), Refusal::InconsistentProtocol);
    }
    let alone = group.join(walrus_groups::Join { protocols: protocols(&["other"]), ..again("a") });
    assert_eq!(group.joined(alone).protocol, "other", "who is alone may do as it likes");
}

#[test]
fn the_protocol_is_one_that_all_know_and_most_prefer() {
    let mut group = Driver::new(limits());
    let join = |id: &str, names: &[&str]| walrus_groups::Join { protocols: protocols(names), ..joining(id) };
    let first = group.join(join("a", &["x", "sticky", "range"]));
    group.joined(first);
    let others = [group.join(join("b", &["range", "sticky"])), group.join(join("c", &["sticky", "range"]))];
    let first = group.join(walrus_groups::Join { member: "a".into(), ..join("", &["x", "sticky", "range"]) });
    assert_eq!(group.joined(first).protocol, "sticky");
    others.into_iter().for_each(|ticket| assert_eq!(group.joined(ticket).protocol, "sticky"));
}

#[test]
fn timeouts_of_sessions_and_the_number_of_members_are_bounded() {
    let mut group = Driver::new(walrus_groups::Limits { members_max: 1, ..limits() });
    let ticket = group.join(walrus_groups::Join { session_timeout_ms: 1, ..joining("a") });
    assert_eq!(group.refused(ticket), Refusal::InvalidSessionTimeout);
    let ticket = group.join(joining("a"));
    group.joined(ticket);
    for needs_known_id in [true, false] {
        let ticket = group.join(walrus_groups::Join { needs_known_id, ..joining("b") });
        assert_eq!(group.refused(ticket), Refusal::GroupFull);
    }
}

#[test]
fn a_group_that_was_empty_waits_a_little_for_more_members_than_the_first() {
    let mut group = Driver::new(walrus_groups::Limits { first_delay_ms: 100, ..limits() });
    let first = group.join(joining("a"));
    group.advance(60);
    let second = group.join(joining("b"));
    group.advance(60);
    assert!(group.answer(first).is_none());
    group.advance(40);
    assert_eq!((group.joined(first).members.len(), group.joined(second).generation), (2, 1));
}

/// Whoever takes over had heard of no member, and took all of them for silent.
#[test]
fn a_group_goes_on_where_its_records_are_with_whole_sessions() {
    let mut group = Driver::stable(&["a", "b"]);
    let committed = group.commit(Some("a"), 1, 7);
    group.store_all();
    group.committed(committed).unwrap();
    group.advance(SESSION_MS / 2);
    let mut other = group.restored();
    assert_eq!((other.phase(), other.group.generation(), other.offset()), (Phase::Stable, 1, Some(7)));
    other.advance(SESSION_MS - 1);
    assert_eq!(other.heartbeat("a", 1), Ok(()));
    let synced = other.sync("b", 1, &[]);
    assert_eq!(other.share(synced), Ok("share of b".into()));
    let joined = other.join(joining("c"));
    let again = [other.join(again("a")), other.join(again("b"))];
    assert_eq!(other.joined(joined).generation, 2);
    again.into_iter().for_each(|ticket| drop(other.joined(ticket)));
}

#[test]
fn a_coordinator_that_is_one_no_more_answers_all_that_wait() {
    let mut group = Driver::stable(&["a", "b"]);
    let committed = group.commit(Some("a"), 1, 7);
    let joined = group.join(joining("c"));
    let told: BTreeMap<Ticket, Answer> = group
        .resign()
        .into_iter()
        .map(|effect| match effect {
            Effect::Answer { ticket, answer } => (ticket, answer),
            Effect::Store { .. } => panic!("nothing is stored any more"),
        })
        .collect();
    let expected = [
        (committed, Answer::Committed(Err(Refusal::NotCoordinator))),
        (joined, Answer::Joined(Err(Refusal::NotCoordinator))),
    ];
    assert_eq!(told, BTreeMap::from(expected));
}

#[test]
fn shares_that_are_stored_too_late_are_nobodys() {
    let mut group = Driver::new(limits());
    let join = group.join(joining("a"));
    group.joined(join);
    let waiting = group.sync("a", 1, &[("a", "old")]);
    let other = group.join(joining("b"));
    assert_eq!(group.share(waiting), Err(Refusal::RebalanceInProgress));
    group.store_all();
    assert_eq!(group.phase(), Phase::PreparingRebalance);
    let again = group.join(again("a"));
    assert_eq!((group.joined(again).generation, group.joined(other).generation), (2, 2));
}

#[test]
fn a_commit_and_a_leave_take_what_they_name() {
    let commit = Commit { who: None, offsets: BTreeMap::new() };
    let mut group = Driver::new(limits());
    let ticket = group.ticket();
    let effects = group.group.commit(commit, ticket, 0);
    assert!(matches!(effects[..], [Effect::Store { number: 0, .. }]));
    let leave = Leave { member: "nobody".into(), instance: None };
    assert_eq!(group.group.leave(&[leave], 0).0, [Err(Refusal::UnknownMember)]);
}

#[test]
fn a_group_without_members_is_forgotten_with_its_offsets_and_begins_anew() {
    let mut group = Driver::stable(&["a"]);
    let committed = group.commit(Some("a"), 1, 7);
    group.store_all();
    group.committed(committed).unwrap();
    let early = group.delete();
    assert_eq!(group.forgotten(early), Err(Refusal::NonEmpty));
    group.leave(&[("a", None)]);
    let late = group.commit(None, -1, 8);
    let deleted = group.delete();
    assert_eq!(group.answer(deleted), None, "not before it is stored");
    group.store_all();
    group.committed(late).unwrap();
    assert_eq!((group.forgotten(deleted), group.offset()), (Ok(()), None));
    assert!(group.group.is_blank());
    let other = group.restored();
    assert!(other.group.is_blank(), "the offset that was on its way is forgotten too");
    let join = group.join(joining("b"));
    group.advance(1);
    assert_eq!(group.joined(join).generation, 1);
}

#[test]
fn a_member_that_comes_while_its_group_is_forgotten_is_a_member() {
    let mut group = Driver::new(limits());
    let committed = group.commit(None, -1, 8);
    let deleted = group.delete();
    let join = group.join(joining("a"));
    let joined = group.joined(join);
    let synced = group.sync("a", joined.generation, &[("a", "share")]);
    group.store_all();
    group.committed(committed).unwrap();
    assert_eq!((group.forgotten(deleted), group.offset()), (Ok(()), None));
    assert_eq!(group.share(synced), Ok("share".into()));
    assert_eq!(group.restored().heartbeat("a", joined.generation), Ok(()));
}

#[test]
fn an_offset_is_forgotten_once_that_is_stored() {
    let mut group = Driver::stable(&["a"]);
    let committed = group.commit(Some("a"), 1, 7);
    group.store_all();
    group.committed(committed).unwrap();
    let forgotten = group.forget();
    assert_eq!(group.offset(), Some(7));
    group.store_all();
    assert_eq!((group.forgotten(forgotten), group.offset(), group.restored().offset()), (Ok(()), None, None));
}

#[test]
fn members_say_no_more_together_than_a_group_may_hold() {
    let mut group = Driver::stable(&["a"]);
    let large = |bytes: usize| Protocol { name: "range".to_owned(), metadata: vec![0; bytes].into() };
    let join = group.join(Join { protocols: vec![large(10_000)], ..joining("b") });
    assert_eq!(group.refused(join), Refusal::TooLarge);
    let share = "x".repeat(10_001);
    let synced = group.sync("a", 1, &[("a", &share)]);
    assert_eq!(group.share(synced), Err(Refusal::TooLarge));
    assert_eq!(group.heartbeat("a", 1), Ok(()));
}

/// A coordinator whose process was paused for longer than a session threw all members out when it woke, though each had gone on
/// saying that it was there.
#[test]
fn members_have_a_whole_session_after_their_coordinator_stood_still() {
    let mut group = Driver::stable(&["a", "b"]);
    let still_ms = 3 * SESSION_MS;
    group.stand_still(still_ms);
    group.advance(SESSION_MS - 1);
    assert_eq!((group.heartbeat("a", 1), group.phase()), (Ok(()), Phase::Stable));
    group.advance(1);
    assert_eq!(group.phase(), Phase::PreparingRebalance, "b has said nothing for a session since");
    assert_eq!(group.heartbeat("a", 1), Err(Refusal::RebalanceInProgress));
}

#[test]
fn a_generation_waits_for_its_members_as_long_as_without_the_standstill() {
    let mut group = Driver::stable(&["a", "b"]);
    let first = group.join(again("a"));
    group.stand_still(10 * SESSION_MS);
    assert!(group.answer(first).is_none());
    let second = group.join(again("b"));
    assert_eq!((group.joined(first).generation, group.joined(second).generation), (2, 2));
}
