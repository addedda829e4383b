//! Leaving: members that say so, and those that are not heard of any more.

use crate::effect::{Effect, Refusal};
use crate::group::{Group, State};
use crate::member::Member;
use crate::request::Leave;

impl Group {
    /// Members leave, or are removed by somebody else. Each is answered by itself, in order.
    pub fn leave(&mut self, leaves: &[Leave], now_ms: u64) -> (Vec<Result<(), Refusal>>, Vec<Effect>) {
        let before = self.members.len();
        let left: Vec<_> = leaves.iter().map(|leave| self.take_out(leave)).collect();
        self.go_on_without(before > self.members.len(), now_ms);
        (left, self.effects())
    }

    /// Whoever was due by now is left behind. Call it when [`Group::next_deadline_ms`] has come.
    pub fn tick(&mut self, now_ms: u64) -> Vec<Effect> {
        self.given.retain(|_, until_ms| *until_ms > now_ms);
        let is_silent = |member: &Member| !member.is_waiting() && member.expires_ms <= now_ms;
        let is_late = match self.state {
            State::Sharing { until_ms, record: None } => until_ms <= now_ms,
            _ => false,
        };
        let is_gone = |member: &Member| is_silent(member) || is_late && member.syncing.is_none();
        let gone = self.members.iter().filter(|(_, member)| is_gone(member)).map(|(id, _)| id.clone());
        let gone: Vec<String> = gone.collect();
        gone.iter().for_each(|id| self.drop_member(id));
        if let State::Preparing { delayed_to_ms, until_ms } = self.state {
            let delayed_to_ms = delayed_to_ms.filter(|to_ms| *to_ms > now_ms);
            self.state = State::Preparing { delayed_to_ms, until_ms };
            if until_ms <= now_ms {
                self.form(now_ms);
            }
        }
        self.go_on_without(!gone.is_empty(), now_ms);
        self.effects()
    }

    /// The coordinator stood still for a time, in which nobody could say anything to it: members have a whole session from now on, as
    /// with a new coordinator, and everything else that is due comes later by that time. Call it before [`Group::tick`].
    pub fn stood_still(&mut self, for_ms: u64, now_ms: u64) {
        self.members.values_mut().for_each(|member| member.heard(now_ms));
        self.given.values_mut().for_each(|until_ms| *until_ms += for_ms);
        match &mut self.state {
            State::Preparing { delayed_to_ms, until_ms } => {
                *delayed_to_ms = delayed_to_ms.map(|to_ms| to_ms + for_ms);
                *until_ms += for_ms;
            }
            State::Sharing { until_ms, .. } => *until_ms += for_ms,
            State::Empty | State::Stable => {}
        }
    }

    fn take_out(&mut self, leave: &Leave) -> Result<(), Refusal> {
        let id = match &leave.instance {
            Some(instance) => self.instances.get(instance).cloned().ok_or(Refusal::UnknownMember)?,
            None => leave.member.clone(),
        };
        if !leave.member.is_empty() && leave.member != id {
            return Err(Refusal::FencedInstance);
        }
        if self.given.remove(&id).is_none() {
            self.members.get(&id).ok_or(Refusal::UnknownMember)?;
            self.drop_member(&id);
        }
        Ok(())
    }

    /// Goes on without members that are gone: those that are left share the work out anew. Ids that were given out and are not
    /// waited for any more concern the generation that is being formed only.
    fn go_on_without(&mut self, is_member_gone: bool, now_ms: u64) {
        match self.state {
            State::Preparing { .. } => self.form_if_complete(now_ms),
            State::Sharing { .. } | State::Stable if is_member_gone => self.prepare(now_ms),
            State::Empty | State::Sharing { .. } | State::Stable => {}
        }
    }

    /// Removes a member; its requests that wait here are refused.
    pub(crate) fn drop_member(&mut self, id: &str) {
        self.refuse_waiting(id, &Refusal::UnknownMember);
        if let Some(Member { instance: Some(instance), .. }) = self.members.remove(id) {
            self.instances.remove(&instance);
        }
    }
}
