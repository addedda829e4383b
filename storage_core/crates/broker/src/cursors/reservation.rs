//! One partition's cursor as its owner keeps it: who holds which entry, and what is delivered.
//!
//! A pure state machine: the caller brings the time and says which entries exist. An entry is in exactly one of four
//! states: not handed out (at or above `next`), reserved for one holder, returned (it goes out again before anything
//! new), or delivered (below `next` and in neither set).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use uuid::Uuid;

use super::progress::Progress;

/// Limit on how far past `next` a delivery is believed of an entry that this owner never handed out: the holder got it from an
/// owner before. One further on was handed out by no owner.
const LATE_DELIVERY_MAX: u64 = 65_536;

/// Id of a connection that consumes. Each connection has a new one, so that it is never taken for an older one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HolderId(pub(crate) Uuid);

/// The right of one holder to one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) holder: HolderId,
    /// When the entry goes back unless there was a sign of the holder.
    pub(crate) until: Instant,
}

/// The cursor of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reservations {
    next: u64,
    returned: BTreeSet<u64>,
    reserved: BTreeMap<u64, Reservation>,
    revision: u64,
}

impl Reservations {
    /// A cursor that goes on from `progress`: what was pending is handed out first.
    pub(crate) fn resume(progress: Progress) -> Self {
        Self { next: progress.next, returned: progress.pending, ..Self::default() }
    }

    /// The entry to hand out next, if it exists.
    pub(crate) fn candidate(&self) -> u64 {
        self.returned.first().copied().unwrap_or(self.next)
    }

    /// Whether an entry waits that was handed out before.
    pub(crate) fn has_returned(&self) -> bool {
        !self.returned.is_empty()
    }

    /// Grows with every delivery: a record of `progress` taken at a revision covers all deliveries up to it.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The progress that is to be made durable: what is reserved is pending in it.
    pub(crate) fn progress(&self) -> Progress {
        let pending = self.returned.iter().chain(self.reserved.keys()).copied().collect();
        Progress { next: self.next, pending }
    }

    /// Hands the candidate out.
    pub(crate) fn reserve(&mut self, holder: HolderId, until: Instant) -> u64 {
        let offset = self.returned.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let before = self.reserved.insert(offset, Reservation { holder, until });
        assert!(before.is_none(), "entry {offset} was handed out twice");
        offset
    }

    /// No entry exists from the candidate up to `exists` (trimmed or compacted away): they count as delivered.
    pub(crate) fn skip_to(&mut self, exists: u64) {
        self.returned = self.returned.split_off(&exists);
        self.next = self.next.max(exists);
        self.revision += 1;
    }

    /// Takes a holder's word that an entry has arrived. `false` if it is reserved for somebody else by now, who gets it too, or
    /// was never handed out.
    pub(crate) fn deliver(&mut self, offset: u64, holder: HolderId) -> bool {
        if let Some(reservation) = self.reserved.get(&offset) {
            if reservation.holder != holder {
                return false;
            }
            self.reserved.remove(&offset);
        } else if offset >= self.next {
            if offset - self.next >= LATE_DELIVERY_MAX {
                return false;
            }
            self.returned.extend(self.next..offset);
            self.next = offset + 1;
        } else if !self.returned.remove(&offset) {
            return true; // said twice
        }
        self.revision += 1;
        true
    }

    /// Puts an entry back in front, unless it is another holder's.
    pub(crate) fn give_back(&mut self, offset: u64, holder: HolderId) {
        if self.reserved.get(&offset).is_some_and(|reservation| reservation.holder == holder) {
            self.reserved.remove(&offset);
            self.returned.insert(offset);
        }
    }

    /// Takes a sign of `holder`, who says what it holds. What was reserved for it and is not in `held` never reached it (the
    /// answer was lost) and goes back; the rest is renewed.
    pub(crate) fn renew(&mut self, holder: HolderId, held: &BTreeSet<u64>, until: Instant) {
        let returned = &mut self.returned;
        self.reserved.retain(|offset, reservation| {
            if reservation.holder != holder {
                return true;
            }
            reservation.until = until;
            let keep = held.contains(offset);
            if !keep {
                returned.insert(*offset);
            }
            keep
        });
    }

    /// Puts back what had no sign of its holder until `now`.
    pub(crate) fn expire(&mut self, now: Instant) {
        let returned = &mut self.returned;
        self.reserved.retain(|offset, reservation| {
            let keep = now < reservation.until;
            if !keep {
                returned.insert(*offset);
            }
            keep
        });
    }

    /// All reservations, for the owner that comes next.
    pub(crate) fn reserved(&self) -> impl Iterator<Item = (u64, Reservation)> + '_ {
        self.reserved.iter().map(|(offset, reservation)| (*offset, *reservation))
    }

    /// Takes over a reservation of an owner before. An entry that was delivered meanwhile stays delivered.
    pub(crate) fn adopt(&mut self, offset: u64, reservation: Reservation) {
        if offset >= self.next && offset - self.next < LATE_DELIVERY_MAX {
            self.returned.extend(self.next..=offset);
            self.next = offset + 1;
        }
        if self.returned.remove(&offset) {
            self.reserved.insert(offset, reservation);
        }
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "offsets of these tests are places in an array")]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn holder(n: u8) -> HolderId {
        HolderId(Uuid::from_u128(u128::from(n)))
    }

    #[derive(Clone, Debug)]
    enum Step {
        Reserve { holder: u8 },
        Deliver { holder: u8, offset: u64 },
        GiveBack { holder: u8, offset: u64 },
        LoseAnswers { holder: u8 },
        Pass { seconds: u64 },
        Restart,
        HandOver,
    }

    fn step() -> impl Strategy<Value = Step> {
        let holder = 0u8..4;
        prop_oneof![
            6 => holder.clone().prop_map(|holder| Step::Reserve { holder }),
            5 => (holder.clone(), 0u64..40).prop_map(|(holder, offset)| Step::Deliver { holder, offset }),
            2 => (holder.clone(), 0u64..40).prop_map(|(holder, offset)| Step::GiveBack { holder, offset }),
            1 => holder.prop_map(|holder| Step::LoseAnswers { holder }),
            1 => (1u64..40).prop_map(|seconds| Step::Pass { seconds }),
            1 => Just(Step::Restart),
            1 => Just(Step::HandOver),
        ]
    }

    /// The obvious thing: a state for every entry.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Entry {
        Fresh,
        Held { by: u8, until: Instant },
        Back,
        Delivered,
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_list_of_entries(steps in proptest::collection::vec(step(), 1..200)) {
            let mut now = Instant::now();
            let ttl = Duration::from_secs(30);
            let mut cursor = Reservations::default();
            let mut model = [Entry::Fresh; 300];
            for step in steps {
                match step {
                    Step::Reserve { holder: by } => {
                        let wanted = model.iter().position(|e| *e == Entry::Back)
                            .or(model.iter().position(|e| *e == Entry::Fresh)).unwrap();
                        prop_assert_eq!(cursor.candidate(), wanted as u64);
                        prop_assert_eq!(cursor.reserve(holder(by), now + ttl), wanted as u64);
                        model[wanted] = Entry::Held { by, until: now + ttl };
                    }
                    Step::Deliver { holder: by, offset } => {
                        let entry = model[offset as usize];
                        let other = matches!(entry, Entry::Held { by: holds, .. } if holds != by);
                        prop_assert_eq!(cursor.deliver(offset, holder(by)), !other);
                        if !other {
                            for below in &mut model[..offset as usize] {
                                if *below == Entry::Fresh { *below = Entry::Back; }
                            }
                            model[offset as usize] = Entry::Delivered;
                        }
                    }
                    Step::GiveBack { holder: by, offset } => {
                        cursor.give_back(offset, holder(by));
                        if matches!(model[offset as usize], Entry::Held { by: holds, .. } if holds == by) {
                            model[offset as usize] = Entry::Back;
                        }
                    }
                    Step::LoseAnswers { holder: by } => {
                        // It knows only of the even ones.
                        let held = (0..300).filter(|o| o % 2 == 0).collect();
                        cursor.renew(holder(by), &held, now + ttl);
                        for (offset, entry) in model.iter_mut().enumerate() {
                            if let Entry::Held { by: holds, until } = entry && *holds == by {
                                *until = now + ttl;
                                if offset % 2 == 1 { *entry = Entry::Back; }
                            }
                        }
                    }
                    Step::Pass { seconds } => {
                        now += Duration::from_secs(seconds);
                        cursor.expire(now);
                        for entry in &mut model {
                            if matches!(entry, Entry::Held { until, .. } if *until <= now) { *entry = Entry::Back; }
                        }
                    }
                    Step::Restart => {
                        let progress = Progress::decode(&cursor.progress().encode()).unwrap();
                        cursor = Reservations::resume(progress);
                        for entry in &mut model {
                            if matches!(entry, Entry::Held { .. }) { *entry = Entry::Back; }
                        }
                    }
                    Step::HandOver => {
                        let mut next_owner = Reservations::resume(cursor.progress());
                        for (offset, reservation) in cursor.reserved() {
                            next_owner.adopt(offset, reservation);
                        }
                        cursor = next_owner;
                    }
                }
                let undelivered = model.iter().position(|e| *e != Entry::Delivered).unwrap() as u64;
                prop_assert_eq!(cursor.progress().position(), undelivered);
                for (offset, entry) in model.iter().enumerate() {
                    let reservation = cursor.reserved.get(&(offset as u64));
                    match entry {
                        Entry::Held { by, until } => prop_assert_eq!(
                            reservation, Some(&Reservation { holder: holder(*by), until: *until })),
                        _ => prop_assert_eq!(reservation, None),
                    }
                    prop_assert_eq!(cursor.returned.contains(&(offset as u64)), *entry == Entry::Back);
                    prop_assert_eq!(offset as u64 >= cursor.next, *entry == Entry::Fresh);
                }
            }
        }
    }

    #[test]
    fn what_an_earlier_owner_delivered_late_is_believed_within_reason() {
        let mut cursor = Reservations::default();
        assert!(cursor.deliver(3, holder(1)));
        assert_eq!(cursor.progress(), Progress { next: 4, pending: [0, 1, 2].into() });
        assert!(!cursor.deliver(u64::MAX, holder(1)), "no owner handed that out");
        assert_eq!(cursor.progress().next, 4);
    }

    #[test]
    fn entries_that_are_gone_are_skipped_and_those_behind_stay() {
        let mut cursor = Reservations::resume(Progress { next: 10, pending: [2, 3, 8].into() });
        cursor.skip_to(8);
        assert_eq!(cursor.candidate(), 8);
        cursor.reserve(holder(1), Instant::now());
        assert_eq!(cursor.candidate(), 10);
        cursor.skip_to(50);
        assert_eq!(cursor.candidate(), 50);
        assert_eq!(cursor.progress(), Progress { next: 50, pending: [8].into() });
    }
}
