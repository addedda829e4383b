//! What groups were promised, and what a coordinator finds in its log, held against that.

use std::collections::BTreeMap;

use walrus_groups::{Committed, Coordinator, GroupName, GroupRecord, Key};
use walrus_owners::Entry;

use super::asks::{Ask, Asker, SESSION_MS, place};
use super::{FORGETTING, busy, quiet};
use crate::world::{Checked, violation};

/// The promises that were made to members, and to whoever commits without being one.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// A decision has said that something may be lost: nothing is promised any more.
    pub(super) are_void: bool,
    /// The highest offset of each partition that was acknowledged, or told.
    pub(super) acknowledged: BTreeMap<u32, i64>,
    /// What each question would commit.
    asked: BTreeMap<(usize, u64), BTreeMap<u32, i64>>,
    /// How often a leader has shared the work out.
    pub(super) sharings: u64,
    /// The sharing of each generation of which any member was told.
    shared: BTreeMap<i32, u64>,
    /// When a member asked for what the group was last seen to do for it.
    used_ms: u64,
    /// What the group without members has committed, and when somebody asked for that; none since it was forgotten.
    quiet: Option<(i64, u64)>,
}

impl Promises {
    /// Notes what a question would commit.
    pub(super) fn note(&mut self, asker: Asker, ask: &Ask) {
        if let Ask::Commit(commit) = ask {
            let offsets = commit.offsets.iter().map(|(place, committed)| (place.partition, committed.offset));
            self.asked.insert((asker.member, asker.question), offsets.collect());
        }
    }

    /// A member's commit was acknowledged.
    pub(super) fn commit(&mut self, member: usize, question: u64) {
        for (partition, offset) in self.asked.remove(&(member, question)).unwrap_or_default() {
            self.raise(partition, offset);
        }
    }

    fn raise(&mut self, partition: u32, offset: i64) {
        let known = self.acknowledged.entry(partition).or_insert(offset);
        *known = (*known).max(offset);
    }

    /// A member was told that it is one, or that its commit is stored, and has asked for that at a time.
    pub(super) fn used(&mut self, asked_ms: u64) {
        self.used_ms = self.used_ms.max(asked_ms);
    }

    /// The group without members has committed what somebody asked for at a time, which is the question's number.
    pub(super) fn commit_quietly(&mut self, asked_ms: u64) {
        let offset = self.asked.remove(&(super::QUIET, asked_ms)).and_then(|asked| asked.get(&0).copied());
        if let Some(offset) = offset.filter(|offset| self.quiet.is_none_or(|(before, _)| before < *offset)) {
            self.quiet = Some((offset, asked_ms));
        }
    }

    /// A member was told its share: all of its generation are told what one leader said once.
    pub(super) fn share(&mut self, share: &[u8]) -> Checked {
        let (Some(generation), Some(sharing)) = (share.first_chunk::<4>(), share.get(4..12)) else {
            return Ok(()); // it came to the generation late, and reads nothing
        };
        let generation = i32::from_be_bytes(*generation);
        let sharing = u64::from_be_bytes(sharing.try_into().expect("eight bytes"));
        match *self.shared.entry(generation).or_insert(sharing) {
            first if first == sharing || self.are_void => Ok(()),
            first => violation(format!(
                "G3: the work of generation {generation} was shared out twice, {first} and {sharing}"
            )),
        }
    }

    /// Somebody who asked when so much was acknowledged is told these offsets.
    pub(super) fn check_offsets(
        &mut self,
        offsets: &BTreeMap<u32, i64>,
        acknowledged: &BTreeMap<u32, i64>,
    ) -> Checked {
        for (partition, at_least) in acknowledged.iter().filter(|_| !self.are_void) {
            if offsets.get(partition).is_none_or(|told| told < at_least) {
                return violation(format!(
                    "G1: offset {at_least} of partition {partition} was acknowledged, told is {:?}",
                    offsets.get(partition)
                ));
            }
        }
        offsets.iter().for_each(|(partition, offset)| self.raise(*partition, *offset));
        Ok(())
    }

    /// A coordinator takes over with what its log says: all that was promised is there, and every member has a whole session.
    pub(super) fn check_restored(&self, coordinator: &Coordinator, now_ms: u64) -> Checked {
        if self.are_void {
            return Ok(());
        }
        let restored = |name: &GroupName, partition| {
            let committed = coordinator.group(name)?.offsets().get(&place(partition))?;
            Some(committed.offset)
        };
        for (partition, at_least) in &self.acknowledged {
            let found = restored(&busy(), *partition);
            if found.is_none_or(|found| found < *at_least) {
                return violation(format!(
                    "G1: offset {at_least} of partition {partition} was acknowledged, a takeover finds {found:?}"
                ));
            }
        }
        if let Some((at_least, _)) = self.quiet {
            let found = restored(&quiet(), 0);
            if found.is_none_or(|found| found < at_least) {
                return violation(format!("G1: a group without members lost {at_least}, and has {found:?}"));
            }
        }
        let told = self.shared.last_key_value().map_or(0, |(generation, _)| *generation);
        let group = coordinator.group(&busy());
        let found = group.map_or(0, walrus_groups::Group::generation);
        if found < told {
            return violation(format!(
                "G2: members were told of generation {told}, a takeover finds {found}"
            ));
        }
        match group.and_then(walrus_groups::Group::next_deadline_ms) {
            Some(due_ms) if due_ms < now_ms + SESSION_MS => {
                violation(format!("G5: a member has {} ms after a takeover", due_ms - now_ms))
            }
            _ => Ok(()),
        }
    }

    /// A group is forgotten by a coordinator that took over some time ago; it is checked that it may be.
    pub(super) fn check_forgotten(&mut self, name: &GroupName, now_ms: u64, began_ms: u64) -> Checked {
        if self.are_void {
            return Ok(());
        }
        let used_ms = if *name == quiet() { self.forget_quiet() } else { self.forget_busy() };
        if now_ms < used_ms + FORGETTING.after_ms || now_ms < began_ms + FORGETTING.hold_ms {
            return violation(format!(
                "G6: {name:?} is forgotten at {now_ms}, was used at {used_ms}, taken over at {began_ms}"
            ));
        }
        Ok(())
    }

    /// Nothing is promised of the quiet group any more; answers when it was used.
    fn forget_quiet(&mut self) -> u64 {
        self.quiet.take().map_or(0, |(_, used_ms)| used_ms)
    }

    /// Nothing is promised of the busy group any more, whose generations are counted anew; answers when it was used.
    fn forget_busy(&mut self) -> u64 {
        self.acknowledged.clear();
        self.shared.clear();
        self.used_ms
    }
}

/// Checks the records of a log in their order: no offset goes back, no generation does, and none is recorded with other members.
pub(super) fn check_log<'a>(entries: impl Iterator<Item = &'a Entry>) -> Checked {
    let mut newest: BTreeMap<Vec<u8>, (i64, Vec<u8>)> = BTreeMap::new();
    for Entry { key, value, .. } in entries {
        let Some(value) = value else {
            newest.remove(key);
            continue;
        };
        let number = match Key::decode(key) {
            Ok(Key::Group(_)) => GroupRecord::decode(value).map_or(0, |record| record.generation.into()),
            Ok(Key::Offset(..)) => Committed::decode(value).map_or(0, |committed| committed.offset),
            _ => continue,
        };
        if let Some((before, content)) = newest.get(key)
            && (number < *before || (number == *before && content != value))
        {
            return violation(format!(
                "G4: {number} stands behind {before} in the log of groups: {:?}",
                Key::decode(key)
            ));
        }
        newest.insert(key.clone(), (number, value.clone()));
    }
    Ok(())
}
