//! What nodes tell clients of Kafka that must never be told otherwise later: ids of producers, and epochs of leaders.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;
use walrus_model::{NodeId, producer_id};

use super::Simulation;
use super::dice::Dice;
use crate::mistake::Mistake;
use crate::world::{Checked, Committed, told_epoch, violation};

/// What clients were told.
pub(super) struct Tellings {
    dice: Dice,
    producers: BTreeSet<i64>,
    /// By node, the metadata by which it told an epoch last, and how often they had forgotten something when it heard of them.
    epochs: Vec<Option<(Arc<Committed>, u64)>>,
}

impl Tellings {
    pub(super) fn new(seed: u64) -> Self {
        Self { dice: Dice(seed.rotate_left(48) ^ 0x7e11), producers: BTreeSet::new(), epochs: Vec::new() }
    }
}

impl Simulation {
    /// Lets a producer ask for an id, and a client ask each node for the leader's epoch.
    pub(super) fn tell(&mut self) -> Checked {
        self.tell_producer()?;
        self.tellings.epochs.resize(self.known.len(), None);
        let opens_only = self.makes(Mistake::EpochOfTheOpenSegment);
        for (known, last) in self.known.iter().zip(&mut self.tellings.epochs) {
            if last.as_ref().is_some_and(|(before, _)| Arc::ptr_eq(before, known)) {
                continue;
            }
            if let Some((before, forgotten)) = last
                && *forgotten == self.forgotten
                && told_epoch(known, opens_only) < told_epoch(before, opens_only)
            {
                let (before, now) = (told_epoch(before, opens_only), told_epoch(known, opens_only));
                return violation(format!("K2: epoch {before:?} was told, and now {now:?}"));
            }
            *last = Some((Arc::clone(known), self.forgotten));
        }
        Ok(())
    }

    fn tell_producer(&mut self) -> Checked {
        if !self.tellings.dice.one_in(10) {
            return Ok(());
        }
        let id = match self.makes(Mistake::CountedProducerIds) {
            true => self.world.count(NodeId(1))?,
            false => {
                let (high, low) = (self.tellings.dice.below(u64::MAX), self.tellings.dice.below(u64::MAX));
                producer_id(Uuid::from_u64_pair(high, low))
            }
        };
        match self.tellings.producers.insert(id) {
            true => Ok(()),
            false => violation(format!("K1: two producers have the id {id}")),
        }
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.world.setting.mistake == Some(mistake)
    }
}
