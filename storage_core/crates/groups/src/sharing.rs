//! Sharing out: the leader of a generation says what each member reads, and each is told its share once that is stored.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::effect::{Answer, Effect, Refusal, Synced, Ticket};
use crate::group::{Group, State, Storing};
use crate::request::Sync;

impl Group {
    /// A member asks for its share; the leader brings the shares of all. Answered once they are stored.
    pub fn sync(&mut self, sync: Sync, ticket: Ticket, now_ms: u64) -> Vec<Effect> {
        if let Err(refusal) = self.try_sync(sync, ticket, now_ms) {
            self.answer(ticket, Answer::Synced(Err(refusal)));
        }
        self.effects()
    }

    fn try_sync(&mut self, sync: Sync, ticket: Ticket, now_ms: u64) -> Result<(), Refusal> {
        let Sync { who, protocol_type, protocol, shares } = sync;
        self.known(&who)?.heard(now_ms);
        let differs = |said: Option<String>, chosen: &str| said.is_some_and(|said| said != chosen);
        if differs(protocol_type, &self.protocol_type) || differs(protocol, &self.protocol) {
            return Err(Refusal::InconsistentProtocol);
        }
        if shares.values().map(Bytes::len).sum::<usize>() > self.limits.bytes_max {
            return Err(Refusal::TooLarge);
        }
        match self.state {
            State::Empty => Err(Refusal::UnknownMember),
            State::Preparing { .. } => Err(Refusal::RebalanceInProgress),
            State::Sharing { until_ms, record } => {
                self.refuse_waiting(&who.member, &Refusal::RebalanceInProgress); // it has asked before, and asks again
                self.known(&who)?.syncing = Some(ticket);
                if who.member == self.leader && record.is_none() {
                    let number = self.store(self.record(&shares), Storing::Shares(shares));
                    self.state = State::Sharing { until_ms, record: Some(number) };
                }
                Ok(())
            }
            State::Stable => {
                let synced = self.synced(&who.member);
                self.answer(ticket, Answer::Synced(Ok(synced)));
                Ok(())
            }
        }
    }

    /// The shares of a generation are stored. Where another one is being formed by now they are nobody's any more.
    pub(crate) fn shared(&mut self, number: u64, mut shares: BTreeMap<String, Bytes>, now_ms: u64) {
        if !matches!(self.state, State::Sharing { record: Some(record), .. } if record == number) {
            return;
        }
        self.state = State::Stable;
        for id in self.members.keys().cloned().collect::<Vec<_>>() {
            let Some(member) = self.members.get_mut(&id) else { continue };
            member.share = shares.remove(&id).unwrap_or_default();
            if let Some(ticket) = member.syncing.take() {
                member.heard(now_ms);
                let synced = self.synced(&id);
                self.answer(ticket, Answer::Synced(Ok(synced)));
            }
        }
    }

    fn synced(&self, id: &str) -> Synced {
        let (protocol_type, protocol) = (self.protocol_type.clone(), self.protocol.clone());
        Synced { protocol_type, protocol, share: self.members[id].share.clone() }
    }
}
