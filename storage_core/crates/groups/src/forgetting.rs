//! Forgetting: groups that are deleted or have been without members for long, and offsets that nobody needs any more.

use std::collections::BTreeSet;

use crate::effect::{Answer, Effect, Refusal, Ticket};
use crate::group::{Group, State, Storing};
use crate::offsets::Place;
use crate::record::Record;
use crate::subscription::subscribes;

/// Places that one record forgets at most. With the longest name that a group can have such a record takes 17 MiB, and no append
/// takes more than 24.
const PLACES_MAX: usize = 256;

impl Group {
    /// The group is to be forgotten with all that it has committed; refused while it has members. Answered, where somebody asks,
    /// once that is stored.
    pub fn delete(&mut self, ticket: Option<Ticket>) -> Vec<Effect> {
        if self.state == State::Empty {
            let offsets = self.forget_all_but_the_last(self.places());
            self.store(Record::Gone { offsets }, Storing::Gone { ticket });
        } else if let Some(ticket) = ticket {
            self.answer(ticket, Answer::Forgotten(Err(Refusal::NonEmpty)));
        }
        self.effects()
    }

    /// Offsets of the group are to be forgotten; those of other places stay. Answered once that is stored.
    pub fn forget(&mut self, places: BTreeSet<Place>, ticket: Ticket) -> Vec<Effect> {
        let places = self.forget_all_but_the_last(places);
        self.store(Record::Forgotten(places.clone()), Storing::Forgotten { ticket: Some(ticket), places });
        self.effects()
    }

    /// Forgets places by records of which each fits into an append; answers those that are left for the last one.
    fn forget_all_but_the_last(&mut self, mut places: BTreeSet<Place>) -> BTreeSet<Place> {
        while let Some(next) = places.iter().nth(PLACES_MAX).copied() {
            let rest = places.split_off(&next);
            self.store(Record::Forgotten(places.clone()), Storing::Forgotten { ticket: None, places });
            places = rest;
        }
        places
    }

    /// Whether a consumer of the group reads a topic; true as well where a member does not say what it reads.
    pub fn subscribes_to(&self, topic: &str) -> bool {
        self.members.values().any(|member| subscribes(&member.metadata(&self.protocol), topic))
    }

    /// Drops the offsets of places that are gone for good: nobody asks for them, so no record has to say so.
    pub fn retain_offsets(&mut self, is_there: impl Fn(&Place) -> bool) {
        self.offsets.retain(|place, _| is_there(place));
    }

    /// Whether the group has no members, and nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.state == State::Empty && self.given.is_empty() && self.storing.is_empty()
    }

    /// Whether nothing is known of the group, and nothing is on its way: it is as one that nobody has joined yet.
    pub fn is_blank(&self) -> bool {
        self.is_idle() && self.generation == 0 && self.offsets.is_empty()
    }

    /// The group is forgotten, by a record that is stored.
    pub(crate) fn gone(&mut self, ticket: Option<Ticket>) {
        self.offsets.clear();
        if self.state == State::Empty {
            self.generation = 0;
            self.protocol_type.clear();
        }
        if let Some(ticket) = ticket {
            self.answer(ticket, Answer::Forgotten(Ok(())));
        }
    }

    /// All places of which an offset is stored, or on its way.
    fn places(&self) -> BTreeSet<Place> {
        let on_their_way = self.storing.values().filter_map(|storing| match storing {
            Storing::Offsets { offsets, .. } => Some(offsets.keys()),
            _ => None,
        });
        self.offsets.keys().chain(on_their_way.flatten()).copied().collect()
    }
}
