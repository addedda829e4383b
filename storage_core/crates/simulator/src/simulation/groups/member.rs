//! Members of a group, who do as Kafka's consumers do: they join, share the work out, read on from where the group has come, commit,
//! leave and die. Pure: a member says what it asks next, and is told what was answered.

use std::collections::BTreeMap;

use bytes::Bytes;
use walrus_groups::{Answer, Commit, Committed, Join, Joined, Leave, Protocol, Refusal, Sync, Synced, Who};
use walrus_model::NodeId;

use super::asks::{Ask, Asker, SESSION_MS, TermOf, Told, place};
use super::promises::Promises;
use crate::simulation::dice::Dice;
use crate::world::{Checked, violation};

/// Partitions that the group reads.
pub(super) const PARTITIONS: u32 = 3;
const TIMEOUT_MS: u64 = 3_000;
const JOIN_TIMEOUT_MS: u64 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is not there until a time.
    Away(u64),
    Joining,
    Sharing,
    /// It asks how far the group has come.
    Resuming,
    Reading,
}

#[derive(Debug)]
pub(super) struct Member {
    number: usize,
    id: String,
    generation: i32,
    state: State,
    /// The node that it takes for the coordinator.
    pub(super) coordinator: Option<NodeId>,
    question: u64,
    /// When it asked what it waits for.
    waits_since: Option<u64>,
    /// When its heart has beaten last.
    beaten: u64,
    /// The answer to its join, if it is to share the work out.
    shares: BTreeMap<String, Bytes>,
    /// What it reads, and how far it has come there.
    positions: BTreeMap<u32, i64>,
    /// What was acknowledged to anybody when it asked for offsets.
    acknowledged: BTreeMap<u32, i64>,
    /// When it was last told that it is a member, and in which term of which process.
    heard: Option<(u64, TermOf)>,
}

impl Member {
    pub(super) fn new(number: usize) -> Self {
        Self {
            number,
            id: String::new(),
            generation: -1,
            state: State::Away(0),
            coordinator: None,
            question: 0,
            waits_since: None,
            beaten: 0,
            shares: BTreeMap::new(),
            positions: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            heard: None,
        }
    }

    /// What it asks now, if anything. `goes_on` is whether it commits anything new.
    pub(super) fn act(
        &mut self,
        now_ms: u64,
        dice: &mut Dice,
        promises: &Promises,
        goes_on: bool,
    ) -> Option<(Asker, Ask)> {
        if let Some(since) = self.waits_since {
            let limit_ms = if self.state == State::Joining { JOIN_TIMEOUT_MS } else { TIMEOUT_MS };
            if now_ms < since + limit_ms {
                return None;
            }
            (self.waits_since, self.coordinator) = (None, None);
            if self.state == State::Sharing {
                self.state = State::Joining;
            }
        }
        let ask = match self.state {
            State::Away(until_ms) if now_ms < until_ms => return None,
            State::Away(_) | State::Joining => {
                self.state = State::Joining;
                Ask::Join(self.join())
            }
            State::Sharing => Ask::Sync(Sync {
                who: self.who(),
                protocol_type: None,
                protocol: None,
                shares: self.shares.clone(),
            }),
            State::Resuming => {
                self.acknowledged.clone_from(&promises.acknowledged);
                Ask::Offsets
            }
            State::Reading if now_ms >= self.beaten + 1_000 => {
                self.beaten = now_ms;
                Ask::Heartbeat(self.who())
            }
            State::Reading if dice.one_in(300) => {
                *self = Self { question: self.question, ..Self::new(self.number) }; // its process dies
                self.state = State::Away(now_ms + dice.below(10_000));
                return None;
            }
            State::Reading if dice.one_in(300) => {
                let leave = Leave { member: self.id.clone(), instance: None };
                self.state = State::Away(now_ms + dice.below(5_000));
                (self.id, self.heard) = (String::new(), None);
                Ask::Leave(leave)
            }
            State::Reading if goes_on && !self.positions.is_empty() && dice.one_in(10) => {
                for position in self.positions.values_mut() {
                    *position += i64::try_from(dice.below(3)).expect("few");
                }
                let offsets = self.positions.iter().map(|(partition, position)| {
                    let committed =
                        Committed { offset: *position, leader_epoch: -1, metadata: String::new() };
                    (place(*partition), committed)
                });
                Ask::Commit(Commit { who: Some(self.who()), offsets: offsets.collect() })
            }
            State::Reading => return None,
        };
        self.question += 1;
        let waits = !matches!(ask, Ask::Leave(_));
        self.waits_since = waits.then_some(now_ms);
        Some((Asker { member: self.number, question: self.question }, ask))
    }

    /// It is told something, in some term of some process; checks that it may be told that.
    pub(super) fn hear(
        &mut self,
        question: u64,
        told: Told,
        (now_ms, by): (u64, TermOf),
        promises: &mut Promises,
    ) -> Checked {
        if let Told::Group(Answer::Committed(Ok(()))) = &told {
            promises.commit(self.number, question);
        }
        if let Told::Group(Answer::Synced(Ok(synced))) = &told {
            promises.share(&synced.share)?;
        }
        let Some(asked_ms) = self.waits_since.filter(|_| question == self.question) else { return Ok(()) };
        self.waits_since = None;
        if let Told::Group(Answer::Synced(Ok(_)) | Answer::Committed(Ok(()))) | Told::Heartbeat(Ok(())) = told
        {
            promises.used(asked_ms);
        }
        match told {
            Told::Group(Answer::Joined(Ok(joined))) => self.joined(joined, promises),
            Told::Group(Answer::Synced(Ok(Synced { share, .. }))) => {
                self.heard = Some((now_ms, by));
                self.positions = partitions_of(&share).map(|partition| (partition, 0)).collect();
                self.state = State::Resuming;
            }
            Told::Offsets(Ok(offsets)) => {
                promises.check_offsets(&offsets, &self.acknowledged)?;
                for (partition, position) in &mut self.positions {
                    *position = offsets.get(partition).copied().unwrap_or(0);
                }
                self.state = State::Reading;
            }
            // Members commit in a generation that is over, too: only a heartbeat says that it is not.
            Told::Heartbeat(Ok(())) => self.heard = Some((now_ms, by)),
            Told::Group(
                Answer::Joined(Err(refusal)) | Answer::Synced(Err(refusal)) | Answer::Committed(Err(refusal)),
            )
            | Told::Heartbeat(Err(refusal))
            | Told::Offsets(Err(refusal)) => return self.refused(refusal, now_ms, by),
            Told::Group(Answer::Committed(Ok(())) | Answer::Forgotten(_)) => {}
        }
        Ok(())
    }

    fn joined(&mut self, joined: Joined, promises: &mut Promises) {
        (self.id, self.generation) = (joined.member.clone(), joined.generation);
        self.state = State::Sharing;
        self.shares.clear();
        if joined.leader == joined.member {
            promises.sharings += 1;
            let count = joined.members.len();
            for (place, (id, ..)) in joined.members.into_iter().enumerate() {
                let own = (0..PARTITIONS).filter(|partition| *partition as usize % count == place);
                self.shares.insert(id, share(joined.generation, promises.sharings, own));
            }
        }
    }

    fn refused(&mut self, refusal: Refusal, now_ms: u64, by: TermOf) -> Checked {
        match refusal {
            Refusal::NotCoordinator => self.coordinator = None,
            Refusal::MemberIdRequired(id) => self.id = id,
            Refusal::UnknownMember => {
                if let Some((at_ms, _)) = self.heard.filter(|(_, term)| *term == by)
                    && now_ms < at_ms + SESSION_MS
                {
                    return violation(format!(
                        "G5: {} was a member {} ms ago, and is none",
                        self.id,
                        now_ms - at_ms
                    ));
                }
                (self.id, self.state, self.heard) = (String::new(), State::Joining, None);
            }
            _ if matches!(self.state, State::Joining | State::Sharing | State::Reading) => {
                self.state = State::Joining;
            }
            _ => {}
        }
        Ok(())
    }

    fn who(&self) -> Who {
        Who { member: self.id.clone(), instance: None, generation: self.generation }
    }

    fn join(&self) -> Join {
        Join {
            member: self.id.clone(),
            instance: None,
            fresh_id: format!("m{}-{}", self.number, self.question),
            needs_known_id: self.number.is_multiple_of(2),
            client_id: String::new(),
            host: String::new(),
            session_timeout_ms: SESSION_MS,
            rebalance_timeout_ms: SESSION_MS,
            protocol_type: "consumer".to_owned(),
            protocols: vec![Protocol { name: "range".to_owned(), metadata: Bytes::new() }],
        }
    }
}

/// A share: its generation, the number of the sharing, and partitions.
fn share(generation: i32, sharing: u64, partitions: impl Iterator<Item = u32>) -> Bytes {
    let mut share = generation.to_be_bytes().to_vec();
    share.extend(sharing.to_be_bytes());
    share.extend(partitions.map(|partition| u8::try_from(partition).expect("few")));
    share.into()
}

fn partitions_of(share: &[u8]) -> impl Iterator<Item = u32> {
    share.iter().skip(12).map(|partition| u32::from(*partition))
}
