//! A driver of a group: it keeps the records and the answers, and says when records are stored.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use walrus_groups::{
    Answer, Commit, Committed, Effect, Group, GroupRecord, Join, Joined, Leave, Limits, Phase, Place,
    Protocol, Record, Refusal, Sync, Ticket, Who,
};

pub(crate) const SESSION_MS: u64 = 10_000;
pub(crate) const REBALANCE_MS: u64 = 8_000;

pub(crate) fn limits() -> Limits {
    Limits { session_timeout_ms: 1_000..=1_000_000, members_max: 100, bytes_max: 10_000, first_delay_ms: 0 }
}

pub(crate) fn protocols(names: &[&str]) -> Vec<Protocol> {
    let protocol =
        |name: &&str| Protocol { name: (*name).to_owned(), metadata: Bytes::from_static(b"topics") };
    names.iter().map(protocol).collect()
}

/// A new member's join, which is given this id.
pub(crate) fn joining(id: &str) -> Join {
    Join {
        member: String::new(),
        instance: None,
        fresh_id: id.to_owned(),
        needs_known_id: false,
        client_id: "client".to_owned(),
        host: "/127.0.0.1".to_owned(),
        session_timeout_ms: SESSION_MS,
        rebalance_timeout_ms: REBALANCE_MS,
        protocol_type: "consumer".to_owned(),
        protocols: protocols(&["range"]),
    }
}

/// The join of a member that has this id.
pub(crate) fn again(id: &str) -> Join {
    Join { member: id.to_owned(), fresh_id: String::new(), ..joining("") }
}

/// The join of a new process of a static member, which is given this id.
pub(crate) fn stat(id: &str, instance: &str) -> Join {
    Join { instance: Some(instance.to_owned()), ..joining(id) }
}

pub(crate) fn place() -> Place {
    Place { topic: walrus_model::TopicId::from_u128(1), partition: 0 }
}

pub(crate) struct Driver {
    pub(crate) group: Group,
    pub(crate) now_ms: u64,
    next_ticket: u64,
    answers: BTreeMap<Ticket, Answer>,
    storing: VecDeque<(u64, Record)>,
    pub(crate) record: GroupRecord,
    pub(crate) offsets: BTreeMap<Place, Committed>,
}

impl Driver {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            group: Group::new(limits),
            now_ms: 0,
            next_ticket: 0,
            answers: BTreeMap::new(),
            storing: VecDeque::new(),
            record: GroupRecord::default(),
            offsets: BTreeMap::new(),
        }
    }

    /// A group of these members in generation 1, each with a share; the first one leads.
    pub(crate) fn stable(ids: &[&str]) -> Self {
        let mut driver = Self::new(Limits { first_delay_ms: 1, ..limits() });
        let joins: Vec<Ticket> = ids.iter().map(|id| driver.join(joining(id))).collect();
        driver.advance(1);
        driver.now_ms = 0;
        joins.into_iter().for_each(|ticket| drop(driver.joined(ticket)));
        let shares: Vec<(&str, String)> = ids.iter().map(|id| (*id, format!("share of {id}"))).collect();
        let shares: Vec<(&str, &str)> = shares.iter().map(|(id, share)| (*id, share.as_str())).collect();
        let syncs: Vec<Ticket> = ids.iter().map(|id| driver.sync(id, 1, &shares)).collect();
        driver.store_all();
        syncs.into_iter().for_each(|ticket| drop(driver.share(ticket).unwrap()));
        driver
    }

    /// Another driver that has found the records of this one.
    pub(crate) fn restored(&self) -> Self {
        let mut other = Self::new(limits());
        (other.now_ms, other.record, other.offsets) =
            (self.now_ms, self.record.clone(), self.offsets.clone());
        other.group = Group::restored(limits(), self.record.clone(), self.offsets.clone(), self.now_ms);
        other
    }

    pub(crate) fn resign(self) -> Vec<Effect> {
        self.group.resign()
    }

    pub(crate) fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    pub(crate) fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Answer { ticket, answer } => {
                    assert!(self.answers.insert(ticket, answer).is_none(), "{ticket:?} was answered twice");
                }
                Effect::Store { number, record } => self.storing.push_back((number, record)),
            }
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.group.phase()
    }

    pub(crate) fn join(&mut self, join: Join) -> Ticket {
        let ticket = self.ticket();
        let effects = self.group.join(join, ticket, self.now_ms);
        self.take(effects);
        ticket
    }

    pub(crate) fn sync(&mut self, id: &str, generation: i32, shares: &[(&str, &str)]) -> Ticket {
        self.sync_as(id, None, generation, shares)
    }

    pub(crate) fn sync_as(
        &mut self,
        id: &str,
        instance: Option<&str>,
        generation: i32,
        shares: &[(&str, &str)],
    ) -> Ticket {
        let share = |(id, share): &(&str, &str)| ((*id).to_owned(), Bytes::copy_from_slice(share.as_bytes()));
        let shares = shares.iter().map(share).collect();
        let sync = Sync { who: who(id, instance, generation), protocol_type: None, protocol: None, shares };
        let ticket = self.ticket();
        let effects = self.group.sync(sync, ticket, self.now_ms);
        self.take(effects);
        ticket
    }

    pub(crate) fn heartbeat(&mut self, id: &str, generation: i32) -> Result<(), Refusal> {
        self.heartbeat_as(id, None, generation)
    }

    pub(crate) fn heartbeat_as(
        &mut self,
        id: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), Refusal> {
        self.group.heartbeat(&who(id, instance, generation), self.now_ms)
    }

    pub(crate) fn leave(&mut self, leaves: &[(&str, Option<&str>)]) -> Vec<Result<(), Refusal>> {
        let leave = |(member, instance): &(&str, Option<&str>)| Leave {
            member: (*member).to_owned(),
            instance: instance.map(str::to_owned),
        };
        let leaves: Vec<Leave> = leaves.iter().map(leave).collect();
        let (left, effects) = self.group.leave(&leaves, self.now_ms);
        self.take(effects);
        left
    }

    pub(crate) fn commit(&mut self, member: Option<&str>, generation: i32, offset: i64) -> Ticket {
        let committed = Committed { offset, leader_epoch: 3, metadata: "m".to_owned() };
        let who = member.map(|id| who(id, None, generation));
        let ticket = self.ticket();
        let commit = Commit { who, offsets: BTreeMap::from([(place(), committed)]) };
        let effects = self.group.commit(commit, ticket, self.now_ms);
        self.take(effects);
        ticket
    }

    /// The oldest record that is on its way is stored; false if there is none.
    pub(crate) fn store_one(&mut self) -> bool {
        let Some((number, record)) = self.storing.pop_front() else { return false };
        match record {
            Record::Group(group) => self.record = GroupRecord::decode(&group.encode()).unwrap(),
            Record::Offsets(offsets) => self.offsets.extend(offsets),
            Record::Forgotten(places) => self.offsets.retain(|place, _| !places.contains(place)),
            Record::Gone { offsets } => {
                self.record = GroupRecord::default();
                self.offsets.retain(|place, _| !offsets.contains(place));
            }
        }
        let effects = self.group.stored(number, self.now_ms);
        self.take(effects);
        true
    }

    pub(crate) fn store_all(&mut self) {
        while self.store_one() {}
    }

    /// Lets time pass, without missing what is due.
    pub(crate) fn advance(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        while let Some(due_ms) = self.group.next_deadline_ms().filter(|due_ms| *due_ms <= until_ms) {
            assert!(due_ms > self.now_ms || self.now_ms == 0, "what was due is done");
            self.now_ms = self.now_ms.max(due_ms);
            let effects = self.group.tick(self.now_ms);
            self.take(effects);
        }
        self.now_ms = until_ms;
    }

    /// Lets the coordinator stand still, and miss all that is due meanwhile.
    pub(crate) fn stand_still(&mut self, ms: u64) {
        self.now_ms += ms;
        self.group.stood_still(ms, self.now_ms);
        let effects = self.group.tick(self.now_ms);
        self.take(effects);
    }

    pub(crate) fn answer(&self, ticket: Ticket) -> Option<&Answer> {
        self.answers.get(&ticket)
    }

    pub(crate) fn joined(&mut self, ticket: Ticket) -> Joined {
        match self.answers.remove(&ticket) {
            Some(Answer::Joined(Ok(joined))) => joined,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn joined_or_refused(&mut self, ticket: Ticket) -> Result<Joined, Refusal> {
        match self.answers.remove(&ticket) {
            Some(Answer::Joined(joined)) => joined,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn refused(&mut self, ticket: Ticket) -> Refusal {
        match self.answers.remove(&ticket) {
            Some(Answer::Joined(Err(refusal))) => refusal,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn share(&mut self, ticket: Ticket) -> Result<Bytes, Refusal> {
        match self.answers.remove(&ticket) {
            Some(Answer::Synced(synced)) => synced.map(|synced| synced.share),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn committed(&mut self, ticket: Ticket) -> Result<(), Refusal> {
        match self.answers.remove(&ticket) {
            Some(Answer::Committed(committed)) => committed,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn delete(&mut self) -> Ticket {
        let ticket = self.ticket();
        let effects = self.group.delete(Some(ticket));
        self.take(effects);
        ticket
    }

    pub(crate) fn forget(&mut self) -> Ticket {
        let ticket = self.ticket();
        let effects = self.group.forget([place()].into(), ticket);
        self.take(effects);
        ticket
    }

    pub(crate) fn forgotten(&mut self, ticket: Ticket) -> Result<(), Refusal> {
        match self.answers.remove(&ticket) {
            Some(Answer::Forgotten(forgotten)) => forgotten,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn offset(&self) -> Option<i64> {
        self.group.offsets().get(&place()).map(|committed| committed.offset)
    }
}

fn who(id: &str, instance: Option<&str>, generation: i32) -> Who {
    Who { member: id.to_owned(), instance: instance.map(str::to_owned), generation }
}
