//! The group: its state, and what the requests of members have in common.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::effect::{Answer, Effect, Joined, Refusal, Ticket};
use crate::member::{Member, MemberView};
use crate::offsets::{Committed, Place};
use crate::record::{GroupRecord, Record};
use crate::request::{Commit, Who};

/// What a coordinator allows.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Timeouts of sessions; milliseconds.
    pub session_timeout_ms: RangeInclusive<u64>,
    /// Members of a group.
    pub members_max: usize,
    /// What all members say together, or are told; bytes. It bounds the record of the group.
    pub bytes_max: usize,
    /// How long a group that had no members waits for more of them than the first; milliseconds. Each one that comes meanwhile
    /// begins the time anew, within the rebalance timeout.
    pub first_delay_ms: u64,
}

/// What a group is doing, by the names that Kafka's tools show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nobody is a member.
    Empty,
    /// The next generation waits for members that have not joined it yet.
    PreparingRebalance,
    /// The generation is formed, and its leader shares the work out.
    CompletingRebalance,
    /// Every member knows its share, or can ask for it.
    Stable,
}

/// A consumer group.
#[derive(Debug)]
pub struct Group {
    pub(crate) limits: Limits,
    pub(crate) state: State,
    pub(crate) generation: i32,
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) leader: String,
    pub(crate) members: BTreeMap<String, Member>,
    /// The members with static ids, by these.
    pub(crate) instances: BTreeMap<String, String>,
    /// Ids that were given out and with which nobody has joined yet, and until when each is kept.
    pub(crate) given: BTreeMap<String, u64>,
    pub(crate) offsets: BTreeMap<Place, Committed>,
    /// Records on their way to the disks.
    pub(crate) storing: BTreeMap<u64, Storing>,
    next_record: u64,
    effects: Vec<Effect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Empty,
    Preparing {
        /// The generation is not formed before this, whoever has joined.
        delayed_to_ms: Option<u64>,
        /// Who has not joined by then is left behind.
        until_ms: u64,
    },
    Sharing {
        /// Who has not asked for its share by then is gone.
        until_ms: u64,
        /// The record with the shares, once the leader has sent them.
        record: Option<u64>,
    },
    Stable,
}

/// What follows once a record is stored.
#[derive(Debug)]
pub(crate) enum Storing {
    /// The members of the generation get their shares.
    Shares(BTreeMap<String, Bytes>),
    /// A static member is back under another id.
    Replaced { ticket: Ticket, joined: Joined },
    /// Offsets are committed.
    Offsets { ticket: Ticket, offsets: BTreeMap<Place, Committed> },
    /// The group has no members any more: nobody waits for that.
    Nothing,
    /// Offsets are forgotten.
    Forgotten { ticket: Option<Ticket>, places: BTreeSet<Place> },
    /// The group is forgotten.
    Gone { ticket: Option<Ticket> },
}

impl Group {
    /// A group that nobody has joined yet.
    pub fn new(limits: Limits) -> Self {
        Self::restored(limits, GroupRecord::default(), BTreeMap::new(), 0)
    }

    /// The group as its newest records have it. Its members have whole sessions from now on.
    pub fn restored(
        limits: Limits,
        record: GroupRecord,
        offsets: BTreeMap<Place, Committed>,
        now_ms: u64,
    ) -> Self {
        let GroupRecord { generation, protocol_type, protocol, leader, members } = record;
        let mut instances = BTreeMap::new();
        let mut restored = BTreeMap::new();
        for member in members {
            let id = member.id.clone();
            instances.extend(member.instance.clone().map(|instance| (instance, id.clone())));
            restored.insert(id, Member::restored(member, &protocol, now_ms));
        }
        let state = if restored.is_empty() { State::Empty } else { State::Stable };
        Self {
            limits,
            state,
            generation,
            protocol_type,
            protocol,
            leader,
            members: restored,
            instances,
            given: BTreeMap::new(),
            offsets,
            storing: BTreeMap::new(),
            next_record: 0,
            effects: Vec::new(),
        }
    }

    /// What the group is doing.
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Empty => Phase::Empty,
            State::Preparing { .. } => Phase::PreparingRebalance,
            State::Sharing { .. } => Phase::CompletingRebalance,
            State::Stable => Phase::Stable,
        }
    }

    /// Number of the generation that was formed last; 0 before the first.
    pub fn generation(&self) -> i32 {
        self.generation
    }

    /// What kind of group it is, and the protocol by which the work is shared out; empty where nothing was agreed on.
    pub fn protocol(&self) -> (&str, &str) {
        (&self.protocol_type, &self.protocol)
    }

    /// The members, in order of id.
    pub fn members(&self) -> impl Iterator<Item = MemberView> {
        self.members.iter().map(|(id, member)| member.view(id, &self.protocol))
    }

    /// The committed offsets. What is on its way to the disks is not among them.
    pub fn offsets(&self) -> &BTreeMap<Place, Committed> {
        &self.offsets
    }

    /// A member says that it is there. A refusal tells it what to do next.
    pub fn heartbeat(&mut self, who: &Who, now_ms: u64) -> Result<(), Refusal> {
        self.known(who)?.heard(now_ms);
        match self.state {
            State::Preparing { .. } => Err(Refusal::RebalanceInProgress),
            _ => Ok(()),
        }
    }

    /// Somebody commits offsets: a member of the generation, or anybody while the group has no members. Answered once the offsets
    /// are stored.
    pub fn commit(&mut self, commit: Commit, ticket: Ticket, now_ms: u64) -> Vec<Effect> {
        let Commit { who, offsets } = commit;
        match self.may_commit(who.as_ref(), now_ms) {
            Ok(()) => {
                let record = Record::Offsets(offsets.clone());
                self.store(record, Storing::Offsets { ticket, offsets });
            }
            Err(refusal) => self.answer(ticket, Answer::Committed(Err(refusal))),
        }
        self.effects()
    }

    fn may_commit(&mut self, who: Option<&Who>, now_ms: u64) -> Result<(), Refusal> {
        let Some(who) = who else {
            let is_empty = self.state == State::Empty;
            return if is_empty { Ok(()) } else { Err(Refusal::UnknownMember) };
        };
        self.known(who)?.heard(now_ms);
        match self.state {
            // The member has another generation to join: what it read in this one may be somebody else's by now.
            State::Sharing { .. } => Err(Refusal::RebalanceInProgress),
            _ => Ok(()),
        }
    }

    /// A record is on a write quorum of disks.
    pub fn stored(&mut self, number: u64, now_ms: u64) -> Vec<Effect> {
        match self.storing.remove(&number) {
            Some(Storing::Shares(shares)) => self.shared(number, shares, now_ms),
            Some(Storing::Replaced { ticket, joined }) => self.answer(ticket, Answer::Joined(Ok(joined))),
            Some(Storing::Offsets { ticket, offsets }) => {
                self.offsets.extend(offsets);
                self.answer(ticket, Answer::Committed(Ok(())));
            }
            Some(Storing::Forgotten { ticket, places }) => {
                self.offsets.retain(|place, _| !places.contains(place));
                if let Some(ticket) = ticket {
                    self.answer(ticket, Answer::Forgotten(Ok(())));
                }
            }
            Some(Storing::Gone { ticket }) => self.gone(ticket),
            Some(Storing::Nothing) | None => {}
        }
        self.effects()
    }

    /// The group is coordinated elsewhere, or nobody knows: all requests that wait are told so.
    pub fn resign(mut self) -> Vec<Effect> {
        for storing in std::mem::take(&mut self.storing).into_values() {
            match storing {
                Storing::Replaced { ticket, .. } => {
                    self.answer(ticket, Answer::Joined(Err(Refusal::NotCoordinator)));
                }
                Storing::Offsets { ticket, .. } => {
                    self.answer(ticket, Answer::Committed(Err(Refusal::NotCoordinator)));
                }
                Storing::Forgotten { ticket: Some(ticket), .. } | Storing::Gone { ticket: Some(ticket) } => {
                    self.answer(ticket, Answer::Forgotten(Err(Refusal::NotCoordinator)));
                }
                Storing::Forgotten { ticket: None, .. }
                | Storing::Shares(_)
                | Storing::Gone { ticket: None }
                | Storing::Nothing => {}
            }
        }
        for id in self.members.keys().cloned().collect::<Vec<_>>() {
            self.refuse_waiting(&id, &Refusal::NotCoordinator);
        }
        self.effects()
    }

    /// The time by which [`Group::tick`] has to be called; `None` while nothing is due.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let state = match self.state {
            State::Empty | State::Stable | State::Sharing { record: Some(_), .. } => None,
            State::Preparing { delayed_to_ms, until_ms } => Some(delayed_to_ms.unwrap_or(until_ms)),
            State::Sharing { until_ms, record: None } => Some(until_ms),
        };
        let silent = self.members.values().filter(|member| !member.is_waiting());
        let sessions = silent.map(|member| member.expires_ms).chain(self.given.values().copied());
        sessions.chain(state).min()
    }

    /// The member that asks, if the group has it in that generation.
    pub(crate) fn known(&mut self, who: &Who) -> Result<&mut Member, Refusal> {
        self.check_instance(&who.member, who.instance.as_deref())?;
        let member = self.members.get_mut(&who.member).ok_or(Refusal::UnknownMember)?;
        if who.generation == self.generation { Ok(member) } else { Err(Refusal::IllegalGeneration) }
    }

    /// Refuses a member whose static id is another process's now.
    pub(crate) fn check_instance(&self, member: &str, instance: Option<&str>) -> Result<(), Refusal> {
        let Some(instance) = instance else { return Ok(()) };
        match self.instances.get(instance) {
            Some(current) if current == member => Ok(()),
            Some(_) => Err(Refusal::FencedInstance),
            None => Err(Refusal::UnknownMember),
        }
    }

    /// Refuses the requests of a member that wait here.
    pub(crate) fn refuse_waiting(&mut self, id: &str, refusal: &Refusal) {
        let Some(member) = self.members.get_mut(id) else { return };
        let (joining, syncing) = (member.joining.take(), member.syncing.take());
        if let Some(ticket) = joining {
            self.answer(ticket, Answer::Joined(Err(refusal.clone())));
        }
        if let Some(ticket) = syncing {
            self.answer(ticket, Answer::Synced(Err(refusal.clone())));
        }
    }

    /// The record of the group with these shares.
    pub(crate) fn record(&self, shares: &BTreeMap<String, Bytes>) -> Record {
        let share = |id: &String| shares.get(id).cloned().unwrap_or_default();
        let members = self.members.iter().map(|(id, member)| member.record(id, &self.protocol, share(id)));
        Record::Group(GroupRecord {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            members: members.collect(),
        })
    }

    /// Has a record stored; answers its number.
    pub(crate) fn store(&mut self, record: Record, then: Storing) -> u64 {
        let number = self.next_record;
        self.next_record += 1;
        self.storing.insert(number, then);
        self.effects.push(Effect::Store { number, record });
        number
    }

    pub(crate) fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.effects.push(Effect::Answer { ticket, answer });
    }

    pub(crate) fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }
}
