//! The coordinator of many groups, whose records lie in one log: what is appended next, what is due when, which groups are
//! forgotten. It does no I/O, and is told what time it is.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::ops::Bound;

use walrus_model::TopicId;
use walrus_owners::Entry;

use crate::codec::{GroupName, Key};
use crate::effect::{Answer, Effect, Ticket};
use crate::group::{Group, Limits};
use crate::offsets::Place;
use crate::queued::{Queued, length};
use crate::replayed::{Replayed, ReplayedGroup};

/// About how many bytes of records one append takes.
const LOT_BYTES: usize = 1 << 20;

/// When groups are forgotten that nobody uses; milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgetting {
    /// A group that has had neither members nor commits for so long is forgotten.
    pub after_ms: u64,
    /// None is for so long after its coordinator took over: clients that could not reach the one before come back meanwhile.
    pub hold_ms: u64,
}

/// The groups of one log, and what of them is to be appended to it.
#[derive(Debug)]
pub struct Coordinator {
    limits: Limits,
    /// When it took over.
    began_ms: u64,
    groups: BTreeMap<GroupName, Kept>,
    /// Records that are to be appended, in their order.
    queue: VecDeque<Queued>,
    answers: Vec<(Ticket, Answer)>,
    next_ticket: u64,
    /// When something is due in which group.
    deadlines: BTreeSet<(u64, GroupName)>,
    /// Groups of which everything is to be recorded again.
    again: VecDeque<GroupName>,
    /// What is left of the first one: offsets from some place on; `None` if all is.
    again_from: Option<Bound<Place>>,
}

/// A group, and what of it is stored.
#[derive(Debug)]
struct Kept {
    group: Group,
    /// The value of its newest record.
    value: Option<Vec<u8>>,
    /// Time of its newest record, milliseconds since the epoch: it has been without members and commits at least since then.
    newest_ms: i64,
    /// When something is due in it, as `deadlines` have it.
    deadline: Option<u64>,
}

/// The records of one append, until they are stored.
#[derive(Debug)]
pub struct Lot(Vec<Part>);

#[derive(Debug)]
struct Part {
    name: GroupName,
    number: u64,
    timestamp_ms: i64,
    value: Option<Option<Vec<u8>>>,
}

impl Coordinator {
    /// A coordinator of the groups that the records of its log have. `now_ms` is any time that does not jump and never goes back,
    /// here as in all calls.
    pub fn new(limits: Limits, known: Replayed, now_ms: u64) -> Self {
        let mut coordinator = Self {
            limits,
            began_ms: now_ms,
            groups: BTreeMap::new(),
            queue: VecDeque::new(),
            answers: Vec::new(),
            next_ticket: 0,
            deadlines: BTreeSet::new(),
            again: VecDeque::new(),
            again_from: None,
        };
        for (name, replayed) in known.groups.into_iter().filter(|(_, replayed)| !replayed.is_forgotten()) {
            let ReplayedGroup { record, value, offsets, newest_ms } = replayed;
            let group = Group::restored(coordinator.limits.clone(), record, offsets, now_ms);
            coordinator.groups.insert(name.clone(), Kept { group, value, newest_ms, deadline: None });
            coordinator.carry_out(&name, Vec::new());
        }
        coordinator
    }

    /// A request of a group, which is made if there is none. Its answer comes with this ticket, once `act` or what happens later
    /// gives it.
    pub fn ask(
        &mut self,
        name: &GroupName,
        now_ms: u64,
        act: impl FnOnce(&mut Group, Ticket, u64) -> Vec<Effect>,
    ) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.act(name, now_ms, |group, now_ms| ((), act(group, ticket, now_ms)));
        ticket
    }

    /// Does something with a group, which is made if there is none, and carries out what follows.
    pub fn act<R>(
        &mut self,
        name: &GroupName,
        now_ms: u64,
        act: impl FnOnce(&mut Group, u64) -> (R, Vec<Effect>),
    ) -> R {
        let limits = &self.limits;
        let fresh = || Kept { group: Group::new(limits.clone()), value: None, newest_ms: 0, deadline: None };
        let kept = self.groups.entry(name.clone()).or_insert_with(fresh);
        let (result, effects) = act(&mut kept.group, now_ms);
        self.carry_out(name, effects);
        result
    }

    /// The answers that there are since the last call.
    pub fn take_answers(&mut self) -> Vec<(Ticket, Answer)> {
        std::mem::take(&mut self.answers)
    }

    /// A group, if there is one.
    pub fn group(&self, name: &GroupName) -> Option<&Group> {
        self.groups.get(name).map(|kept| &kept.group)
    }

    /// All groups, by name.
    pub fn groups(&self) -> impl Iterator<Item = (&GroupName, &Group)> {
        self.groups.iter().map(|(name, kept)| (name, &kept.group))
    }

    /// Does what is due by now.
    pub fn tick(&mut self, now_ms: u64) {
        while let Some((_, name)) = self.deadlines.first().filter(|(due_ms, _)| *due_ms <= now_ms).cloned() {
            self.act(&name, now_ms, |group, now_ms| ((), group.tick(now_ms)));
        }
    }

    /// Gives the members of all groups more time, for the process stood still for a while and could hear nobody. Call it before
    /// [`Coordinator::tick`].
    pub fn stood_still(&mut self, for_ms: u64, now_ms: u64) {
        for name in self.groups.keys().cloned().collect::<Vec<_>>() {
            self.act(&name, now_ms, |group, now_ms| {
                group.stood_still(for_ms, now_ms);
                ((), Vec::new())
            });
        }
    }

    /// Has groups forgotten that have had neither members nor commits for long; answers which. `reached_ms` is a time since the epoch
    /// that no single clock decides.
    pub fn expire(&mut self, now_ms: u64, reached_ms: i64, forgetting: Forgetting) -> Vec<GroupName> {
        if now_ms < self.began_ms.saturating_add(forgetting.hold_ms) {
            return Vec::new();
        }
        let after_ms = i64::try_from(forgetting.after_ms).unwrap_or(i64::MAX);
        let is_over = |kept: &Kept| {
            kept.newest_ms > 0
                && kept.newest_ms.saturating_add(after_ms) <= reached_ms
                && kept.group.is_idle()
        };
        let over = self.groups.iter().filter(|(_, kept)| is_over(kept)).map(|(name, _)| name.clone());
        let over: Vec<GroupName> = over.collect();
        for name in &over {
            self.act(name, now_ms, |group, _| ((), group.delete(None)));
        }
        over
    }

    /// Coordinates no more: all who wait are told so.
    pub fn resign(mut self) -> Vec<(Ticket, Answer)> {
        for (name, kept) in std::mem::take(&mut self.groups) {
            let effects = kept.group.resign();
            self.carry_out(&name, effects);
        }
        self.answers
    }

    /// Whether anything is to be appended.
    pub fn has_lot(&self) -> bool {
        !self.queue.is_empty() || !self.again.is_empty()
    }

    /// The records of the next append, whose time it is, if anything is to be appended. What is recorded again comes first: it is as
    /// it is stored now, which is before what is queued.
    pub fn next_lot(&mut self, timestamp_ms: i64) -> Option<(Lot, Vec<Entry>)> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        self.add_again(&mut entries, &mut bytes);
        let mut parts = Vec::new();
        while let Some(next) = self.queue.front() {
            if !entries.is_empty() && bytes + next.length() > LOT_BYTES {
                break;
            }
            bytes += next.length();
            let Some(Queued { name, number, entries: more, value }) = self.queue.pop_front() else { break };
            entries.extend(more.into_iter().map(|entry| Entry { timestamp_ms, ..entry }));
            parts.push(Part { name, number, timestamp_ms, value });
        }
        (!entries.is_empty()).then_some((Lot(parts), entries))
    }

    /// The records of an append are on a write quorum of disks.
    pub fn recorded(&mut self, lot: Lot, now_ms: u64) {
        for Part { name, number, timestamp_ms, value } in lot.0 {
            let Some(kept) = self.groups.get_mut(&name) else { continue };
            kept.newest_ms = timestamp_ms;
            if let Some(value) = value {
                kept.value = value;
            }
            let effects = kept.group.stored(number, now_ms);
            self.carry_out(&name, effects);
        }
    }

    /// Number of records that are needed to know what there is.
    pub fn entries(&self) -> u64 {
        self.groups.values().map(|kept| kept.group.offsets().len() as u64 + 1).sum()
    }

    /// Drops the offsets of topics that are not `live`.
    pub fn drop_dead(&mut self, live: &HashSet<TopicId>) {
        for kept in self.groups.values_mut() {
            kept.group.retain_offsets(|place| live.contains(&place.topic));
        }
    }

    /// Has everything recorded again.
    pub fn record_again(&mut self) {
        (self.again, self.again_from) = (self.groups.keys().cloned().collect(), None);
    }

    /// Whether something has yet to be recorded again.
    pub fn records_again(&self) -> bool {
        !self.again.is_empty()
    }

    fn carry_out(&mut self, name: &GroupName, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Answer { ticket, answer } => self.answers.push((ticket, answer)),
                Effect::Store { number, record } => self.queue.push_back(Queued::new(name, number, &record)),
            }
        }
        let Some(kept) = self.groups.get_mut(name) else { return };
        let deadline = kept.group.next_deadline_ms();
        if deadline != kept.deadline {
            let place = |due_ms: u64| (due_ms, name.clone());
            kept.deadline.map(|due_ms| self.deadlines.remove(&place(due_ms)));
            self.deadlines.extend(deadline.map(place));
            kept.deadline = deadline;
        }
        if kept.group.is_blank() {
            self.groups.remove(name);
        }
    }

    /// Adds what has to be recorded again, as much as there is room for.
    fn add_again(&mut self, entries: &mut Vec<Entry>, bytes: &mut usize) {
        while *bytes < LOT_BYTES
            && let Some(name) = self.again.front()
        {
            let next = self.groups.get(name).and_then(|kept| kept.behind(name, self.again_from));
            match next {
                Some((entry, from)) => {
                    *bytes += length(&entry);
                    entries.push(entry);
                    self.again_from = Some(from);
                }
                None => {
                    self.again.pop_front();
                    self.again_from = None;
                }
            }
        }
    }
}

impl Kept {
    /// The next entry of what is stored of the group, and where the one behind it is found.
    fn behind(&self, name: &GroupName, from: Option<Bound<Place>>) -> Option<(Entry, Bound<Place>)> {
        let entry =
            |key: Key, value| Entry { key: key.encode(), value: Some(value), timestamp_ms: self.newest_ms };
        if let (None, Some(value)) = (from, &self.value) {
            return Some((entry(Key::Group(name.clone()), value.clone()), Bound::Unbounded));
        }
        let rest = (from.unwrap_or(Bound::Unbounded), Bound::Unbounded);
        let (place, committed) = self.group.offsets().range(rest).next()?;
        Some((entry(Key::Offset(name.clone(), *place), committed.encode()), Bound::Excluded(*place)))
    }
}
