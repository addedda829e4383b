//! The coordinator of many groups: what it appends, restores, and forgets.
#![allow(clippy::unwrap_used, reason = "tests unwrap")]

mod support;

use std::collections::BTreeMap;

use bytes::Bytes;
use support::{joining, limits, place};
use walrus_groups::{
    Answer, Commit, Committed, Coordinator, Forgetting, GroupName, Limits, Place, Refusal, Replayed, Sync,
    Ticket, Who,
};
use walrus_owners::Entry;

const WEEK_MS: i64 = 7 * 24 * 3_600_000;
const FORGETTING: Forgetting = Forgetting { after_ms: WEEK_MS.cast_unsigned(), hold_ms: 3_600_000 };
/// Some time since the epoch.
const THEN_MS: i64 = 1_700_000_000_000;

fn name(name: &str) -> GroupName {
    GroupName { org: "default".to_owned(), name: name.to_owned() }
}

fn at(partition: u32) -> Place {
    Place { partition, ..place() }
}

fn fresh() -> Coordinator {
    Coordinator::new(limits(), Replayed::default(), 0)
}

fn commit(coordinator: &mut Coordinator, group: &str, partition: u32, offset: i64) -> Ticket {
    let committed = Committed { offset, leader_epoch: -1, metadata: String::new() };
    let commit = Commit { who: None, offsets: [(at(partition), committed)].into() };
    coordinator.ask(&name(group), 0, |group, ticket, now_ms| group.commit(commit, ticket, now_ms))
}

/// Everything that is to be appended is, in lots; the entries of each.
fn store_lots(coordinator: &mut Coordinator) -> Vec<Vec<Entry>> {
    let mut lots = Vec::new();
    while let Some((lot, entries)) = coordinator.next_lot(THEN_MS) {
        coordinator.recorded(lot, 0);
        lots.push(entries);
        assert!(lots.len() < 100, "it comes to an end");
    }
    lots
}

fn store_all(coordinator: &mut Coordinator) -> Vec<Entry> {
    store_lots(coordinator).concat()
}

/// A coordinator that has found these entries in its log.
fn restored(entries: &[Entry]) -> Coordinator {
    let mut known = Replayed::default();
    for Entry { key, value, timestamp_ms } in entries {
        known.take_in(key, value.as_deref(), *timestamp_ms).unwrap();
    }
    Coordinator::new(limits(), known, 0)
}

fn offset(coordinator: &Coordinator, group: &str, partition: u32) -> Option<i64> {
    coordinator.group(&name(group))?.offsets().get(&at(partition)).map(|committed| committed.offset)
}

#[test]
fn a_group_that_nobody_uses_is_forgotten_by_a_record_and_not_before_its_time() {
    let mut coordinator = fresh();
    commit(&mut coordinator, "g", 0, 7);
    let mut log = store_all(&mut coordinator);
    let now_ms = FORGETTING.hold_ms;
    assert_eq!(coordinator.expire(now_ms, THEN_MS + WEEK_MS - 1, FORGETTING), []);
    commit(&mut coordinator, "g", 1, 8);
    assert_eq!(coordinator.expire(now_ms, THEN_MS + WEEK_MS, FORGETTING), [], "a commit is on its way");
    log.extend(store_all(&mut coordinator));
    assert_eq!(coordinator.expire(now_ms, THEN_MS + WEEK_MS, FORGETTING), [name("g")]);
    assert_eq!(offset(&coordinator, "g", 1), Some(8), "not before it is stored");
    log.extend(store_all(&mut coordinator));
    assert!(coordinator.group(&name("g")).is_none());
    assert!(restored(&log).group(&name("g")).is_none());
}

/// All that was to be forgotten of a group was one append, which is refused where it is too long. The coordinator ended each time, and
/// with it all other groups of its log had none for a moment, again and again once the group was to be forgotten for its age.
#[test]
fn a_group_of_any_size_is_forgotten_in_appends_that_are_not_too_long() {
    const APPEND_BYTES_MAX: usize = 24 << 20;
    let long = "g".repeat(65_535);
    let is_short = |entries: &[Entry]| {
        entries.iter().map(|entry| entry.key.len() + 64).sum::<usize>() < APPEND_BYTES_MAX
    };
    let mut coordinator = fresh();
    for partition in 0..600 {
        commit(&mut coordinator, &long, partition, 7);
        store_all(&mut coordinator);
    }
    coordinator.record_again();
    let log = store_all(&mut coordinator);
    let forget = (0..300).map(at).collect();
    let ticket = coordinator.ask(&name(&long), 0, |group, ticket, _| group.forget(forget, ticket));
    assert!(coordinator.take_answers().iter().all(|(answered, _)| *answered != ticket));
    let forgotten = store_lots(&mut coordinator);
    assert!(forgotten.iter().all(|entries| is_short(entries)));
    assert!(coordinator.take_answers().contains(&(ticket, Answer::Forgotten(Ok(())))));
    assert_eq!([299, 300].map(|partition| offset(&coordinator, &long, partition)), [None, Some(7)]);
    let ticket = coordinator.ask(&name(&long), 0, |group, ticket, _| group.delete(Some(ticket)));
    let (first, entries) = coordinator.next_lot(THEN_MS).unwrap();
    assert!(is_short(&entries));
    coordinator.recorded(first, 0);
    assert_eq!(coordinator.take_answers(), [], "not before all is stored");
    coordinator.record_again(); // what is forgotten already must not come back
    let last = store_lots(&mut coordinator);
    assert!(last.iter().all(|entries| is_short(entries)));
    assert_eq!(coordinator.take_answers(), [(ticket, Answer::Forgotten(Ok(())))]);
    assert!(coordinator.group(&name(&long)).is_none());
    let whole = [log, forgotten.concat(), entries, last.concat()].concat();
    assert!(restored(&whole).group(&name(&long)).is_none());
}

#[test]
fn no_group_is_forgotten_soon_after_a_takeover() {
    let mut coordinator = fresh();
    commit(&mut coordinator, "g", 0, 7);
    let mut next = restored(&store_all(&mut coordinator));
    assert_eq!(next.expire(FORGETTING.hold_ms - 1, THEN_MS + 2 * WEEK_MS, FORGETTING), []);
    assert_eq!(next.expire(FORGETTING.hold_ms, THEN_MS + 2 * WEEK_MS, FORGETTING), [name("g")]);
}

#[test]
fn what_is_recorded_again_stands_before_what_came_meanwhile() {
    let mut coordinator = fresh();
    for partition in 0..3 {
        commit(&mut coordinator, "g", partition, 1);
    }
    commit(&mut coordinator, "gone", 0, 1);
    store_all(&mut coordinator);
    coordinator.act(&name("gone"), 0, |group, _| ((), group.delete(None)));
    store_all(&mut coordinator);
    coordinator.record_again();
    commit(&mut coordinator, "g", 1, 2);
    assert!(coordinator.records_again());
    let again = store_all(&mut coordinator);
    assert!(!coordinator.records_again() && !coordinator.has_lot());
    let next = restored(&again);
    let offsets: Vec<_> = (0..3).map(|partition| offset(&next, "g", partition)).collect();
    assert_eq!(offsets, [Some(1), Some(2), Some(1)]);
    assert!(next.group(&name("gone")).is_none());
}

#[test]
fn a_group_of_many_offsets_is_recorded_again_in_lots() {
    let mut coordinator = fresh();
    let committed = Committed { offset: 1, leader_epoch: -1, metadata: "m".repeat(4_000) };
    let offsets = (0..1_000).map(|partition| (at(partition), committed.clone())).collect();
    let wish = Commit { who: None, offsets };
    coordinator.ask(&name("g"), 0, |group, ticket, now_ms| group.commit(wish, ticket, now_ms));
    store_all(&mut coordinator);
    coordinator.record_again();
    let lots = store_lots(&mut coordinator);
    assert!((4..=5).contains(&lots.len()), "{} lots", lots.len());
    let next = restored(&lots.concat());
    assert!((0..1_000).all(|partition| offset(&next, "g", partition) == Some(1)));
}

/// The record of a group of many members fills an append. Its coordinator recorded it again and again, never came to the offsets
/// behind it, and stored nothing else any more.
#[test]
fn a_group_whose_record_fills_an_append_is_recorded_again_once() {
    let many = Limits { bytes_max: 8 << 20, ..limits() };
    let mut coordinator = Coordinator::new(many, Replayed::default(), 0);
    coordinator.ask(&name("g"), 0, |group, ticket, now_ms| group.join(joining("m"), ticket, now_ms));
    let who = Who { member: "m".to_owned(), instance: None, generation: 1 };
    let shares = BTreeMap::from([("m".to_owned(), Bytes::from(vec![0; 2 << 20]))]);
    let sync = Sync { who: who.clone(), protocol_type: None, protocol: None, shares };
    coordinator.ask(&name("g"), 0, |group, ticket, now_ms| group.sync(sync, ticket, now_ms));
    store_all(&mut coordinator);
    for partition in 0..2 {
        let committed = Committed { offset: 5, leader_epoch: -1, metadata: String::new() };
        let commit = Commit { who: Some(who.clone()), offsets: [(at(partition), committed)].into() };
        coordinator.ask(&name("g"), 0, |group, ticket, now_ms| group.commit(commit, ticket, now_ms));
    }
    store_all(&mut coordinator);
    coordinator.record_again();
    let again = store_all(&mut coordinator);
    assert_eq!(again.len(), 3);
    assert_eq!(offset(&restored(&again), "g", 1), Some(5));
}

#[test]
fn whoever_waits_is_told_when_the_coordinator_ends() {
    let mut coordinator = fresh();
    let ticket = commit(&mut coordinator, "g", 0, 7);
    assert_eq!(coordinator.take_answers(), []);
    let refused = Answer::Committed(Err(Refusal::NotCoordinator));
    assert_eq!(coordinator.resign(), [(ticket, refused)]);
}
