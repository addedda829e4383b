//! Joining: who is part of the next generation, and when it is formed.

use std::collections::BTreeMap;

use crate::effect::{Answer, Effect, Joined, Refusal, Ticket};
use crate::group::{Group, State, Storing};
use crate::member::Member;
use crate::request::{Join, Protocol};

impl Group {
    /// Somebody wants to be a member, or a member wants to be part of the next generation. Answered at once where there is nothing
    /// to wait for, else once the generation is formed.
    pub fn join(&mut self, join: Join, ticket: Ticket, now_ms: u64) -> Vec<Effect> {
        if let Err(refusal) = self.try_join(join, ticket, now_ms) {
            self.answer(ticket, Answer::Joined(Err(refusal)));
        }
        self.effects()
    }

    fn try_join(&mut self, join: Join, ticket: Ticket, now_ms: u64) -> Result<(), Refusal> {
        if !self.limits.session_timeout_ms.contains(&join.session_timeout_ms) {
            return Err(Refusal::InvalidSessionTimeout);
        }
        let before = match &join.instance {
            Some(instance) if join.member.is_empty() => self.instances.get(instance).cloned(),
            _ => Some(join.member.clone()).filter(|member| !member.is_empty()),
        };
        self.check_protocols(&join, before.as_deref())?;
        self.check_bytes(&join, before.as_deref())?;
        match before {
            None if join.instance.is_none() && join.needs_known_id => {
                self.check_room()?;
                self.given.insert(join.fresh_id.clone(), now_ms + join.session_timeout_ms);
                Err(Refusal::MemberIdRequired(join.fresh_id))
            }
            None => self.admit(join.fresh_id.clone(), join, ticket, now_ms),
            Some(before) if join.member.is_empty() => {
                self.replace(&before, join, ticket, now_ms);
                Ok(())
            }
            Some(id) if join.instance.is_none() && self.given.contains_key(&id) => {
                self.given.remove(&id);
                self.admit(id, join, ticket, now_ms)
            }
            Some(id) => self.join_again(&id, join, ticket, now_ms),
        }
    }

    /// Refuses who has no protocol in common with all the others.
    fn check_protocols(&self, join: &Join, before: Option<&str>) -> Result<(), Refusal> {
        let mut others = self.members.iter().filter(|(id, _)| Some(id.as_str()) != before).peekable();
        let is_alone = others.peek().is_none();
        let others: Vec<&Member> = others.map(|(_, member)| member).collect();
        let is_known = |protocol: &Protocol| others.iter().all(|other| other.knows(&protocol.name));
        let is_of_kind = is_alone || join.protocol_type == self.protocol_type;
        if join.protocol_type.is_empty() || !is_of_kind || !join.protocols.iter().any(is_known) {
            return Err(Refusal::InconsistentProtocol);
        }
        Ok(())
    }

    /// Refuses who says so much that the group would hold too much.
    fn check_bytes(&self, join: &Join, before: Option<&str>) -> Result<(), Refusal> {
        let said = |protocols: &[Protocol]| -> usize {
            protocols.iter().map(|protocol| protocol.name.len() + protocol.metadata.len()).sum()
        };
        let others = self.members.iter().filter(|(id, _)| Some(id.as_str()) != before);
        let all = others.map(|(_, member)| said(&member.protocols)).sum::<usize>() + said(&join.protocols);
        if all <= self.limits.bytes_max { Ok(()) } else { Err(Refusal::TooLarge) }
    }

    fn check_room(&self) -> Result<(), Refusal> {
        let taken = self.members.len() + self.given.len();
        if taken < self.limits.members_max { Ok(()) } else { Err(Refusal::GroupFull) }
    }

    fn admit(&mut self, id: String, join: Join, ticket: Ticket, now_ms: u64) -> Result<(), Refusal> {
        self.check_room()?;
        if self.members.is_empty() {
            self.protocol_type.clone_from(&join.protocol_type);
        }
        self.instances.extend(join.instance.clone().map(|instance| (instance, id.clone())));
        let member = Member { joining: Some(ticket), ..Member::new(join, now_ms) };
        self.members.insert(id, member);
        self.prepare(now_ms);
        Ok(())
    }

    fn join_again(&mut self, id: &str, join: Join, ticket: Ticket, now_ms: u64) -> Result<(), Refusal> {
        self.check_instance(id, join.instance.as_deref())?;
        let is_leader = self.leader == id;
        let member = self.members.get_mut(id).ok_or(Refusal::UnknownMember)?;
        let is_same = member.protocols == join.protocols;
        let is_part = match self.state {
            State::Empty | State::Preparing { .. } => false,
            State::Sharing { .. } => is_same, // the answer to its join was lost
            State::Stable => is_same && !is_leader,
        };
        member.update(join, now_ms);
        if is_part {
            let joined = self.joined(id);
            self.answer(ticket, Answer::Joined(Ok(joined)));
        } else {
            self.wait(id, ticket);
            self.prepare(now_ms);
        }
        Ok(())
    }

    /// A static member is back without the id that it was given: another process of it, which has another one from now on.
    fn replace(&mut self, before: &str, join: Join, ticket: Ticket, now_ms: u64) {
        self.refuse_waiting(before, &Refusal::FencedInstance);
        let Some(mut member) = self.members.remove(before) else { return };
        let id = join.fresh_id.clone();
        self.instances.extend(join.instance.clone().map(|instance| (instance, id.clone())));
        if self.leader == before {
            self.leader.clone_from(&id);
        }
        let subscription = member.metadata(&self.protocol);
        member.update(join, now_ms);
        let is_same = member.metadata(&self.protocol) == subscription;
        self.members.insert(id.clone(), member);
        if self.state == State::Stable && is_same && self.chosen_protocol() == self.protocol {
            let skips_sharing = self.leader == id;
            let joined = Joined { skips_sharing, ..self.joined(&id) };
            let shares = self.members.iter().map(|(id, member)| (id.clone(), member.share.clone()));
            let record = self.record(&shares.collect());
            self.store(record, Storing::Replaced { ticket, joined });
        } else {
            self.wait(&id, ticket);
            self.prepare(now_ms);
        }
    }

    /// A join waits for the next generation; an earlier one of the same member does not any more.
    fn wait(&mut self, id: &str, ticket: Ticket) {
        self.refuse_waiting(id, &Refusal::RebalanceInProgress);
        if let Some(member) = self.members.get_mut(id) {
            member.joining = Some(ticket);
        }
    }

    /// Begins to form the next generation, or goes on with that.
    pub(crate) fn prepare(&mut self, now_ms: u64) {
        let longest = self.longest_rebalance_ms();
        self.state = match self.state {
            State::Preparing { delayed_to_ms, until_ms } => {
                let later = |_| until_ms.min(now_ms + self.limits.first_delay_ms);
                State::Preparing { delayed_to_ms: delayed_to_ms.map(later), until_ms }
            }
            State::Empty if self.limits.first_delay_ms > 0 => {
                let delayed_to_ms = Some(now_ms + longest.min(self.limits.first_delay_ms));
                State::Preparing { delayed_to_ms, until_ms: now_ms + longest }
            }
            State::Empty | State::Sharing { .. } | State::Stable => {
                State::Preparing { delayed_to_ms: None, until_ms: now_ms + longest }
            }
        };
        let mut waiting = Vec::new();
        for member in self.members.values_mut() {
            if let Some(ticket) = member.syncing.take() {
                member.heard(now_ms); // it had nothing to say while it waited
                waiting.push(ticket);
            }
        }
        for ticket in waiting {
            self.answer(ticket, Answer::Synced(Err(Refusal::RebalanceInProgress)));
        }
        self.form_if_complete(now_ms);
    }

    fn longest_rebalance_ms(&self) -> u64 {
        self.members.values().map(|member| member.rebalance_timeout_ms).max().unwrap_or(0)
    }

    /// Forms the generation if nobody is waited for.
    pub(crate) fn form_if_complete(&mut self, now_ms: u64) {
        let State::Preparing { delayed_to_ms: None, .. } = self.state else { return };
        let have_all_joined = self.members.values().all(|member| member.joining.is_some());
        if self.members.is_empty() || have_all_joined && self.given.is_empty() {
            self.form(now_ms);
        }
    }

    /// Forms the generation with those who have joined. Static members that have not stay members while their sessions last: they
    /// are restarting.
    pub(crate) fn form(&mut self, now_ms: u64) {
        let left_behind =
            |(_, member): &(&String, &Member)| member.joining.is_none() && member.instance.is_none();
        let gone: Vec<String> = self.members.iter().filter(left_behind).map(|(id, _)| id.clone()).collect();
        for id in gone {
            self.drop_member(&id);
        }
        if self.members.is_empty() {
            self.generation += 1;
            self.protocol.clear();
            self.leader.clear();
            self.state = State::Empty;
            let record = self.record(&BTreeMap::new());
            self.store(record, Storing::Nothing);
            return;
        }
        let until_ms = now_ms + self.longest_rebalance_ms();
        let is_joining = |id: &&String| self.members[*id].joining.is_some();
        let Some(first) = self.members.keys().find(is_joining).cloned() else {
            self.state = State::Preparing { delayed_to_ms: None, until_ms };
            return;
        };
        if self.members.get(&self.leader).is_none_or(|leader| leader.joining.is_none()) {
            self.leader = first;
        }
        self.generation += 1;
        self.protocol = self.chosen_protocol();
        self.state = State::Sharing { until_ms, record: None };
        for id in self.members.keys().cloned().collect::<Vec<_>>() {
            let Some(member) = self.members.get_mut(&id) else { continue };
            if let Some(ticket) = member.joining.take() {
                member.heard(now_ms);
                let joined = self.joined(&id);
                self.answer(ticket, Answer::Joined(Ok(joined)));
            }
        }
    }

    /// The protocol that all members know and most prefer; of equals, the first by name.
    fn chosen_protocol(&self) -> String {
        let is_known = |name: &str| self.members.values().all(|member| member.knows(name));
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let preferred = member.protocols.iter().find(|protocol| is_known(&protocol.name));
            if let Some(preferred) = preferred {
                *votes.entry(&preferred.name).or_default() += 1;
            }
        }
        let most = votes.iter().rev().max_by_key(|(_, votes)| **votes);
        most.map(|(name, _)| (*name).to_owned()).unwrap_or_default()
    }

    /// What a member of the generation is told of it.
    fn joined(&self, id: &str) -> Joined {
        let member = |(id, member): (&String, &Member)| {
            (id.clone(), member.instance.clone(), member.metadata(&self.protocol))
        };
        let members = if self.leader == id { self.members.iter().map(member).collect() } else { Vec::new() };
        Joined {
            member: id.to_owned(),
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            members,
            skips_sharing: false,
        }
    }
}
