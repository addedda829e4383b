//! Traffic: messages that are sent, repeated or on their way, and written batches on their way to the disk.

use walrus_model::{NodeId, SegmentId};
use walrus_replica::{LeaderInput, RecovererInput, RecovererPhase};

use super::{FAULTS_FOR, Happening, SECOND, Simulation, index};
use crate::record;
use crate::world::{Checked, Flight, Sender};

impl Simulation {
    pub(super) fn clients(&mut self) -> Checked {
        if self.groups.is_some() {
            return Ok(()); // coordinators alone append
        }
        let ids_max = if self.now < FAULTS_FOR { record::IDS_MAX / 2 } else { record::IDS_MAX };
        let segments: Vec<SegmentId> = self.world.leaders.keys().copied().collect();
        for segment in segments {
            let node = self.world.descriptor(segment).leader.node;
            if self.is_alive(node) && self.world.next_id < ids_max && self.dice.one_in(2) {
                self.world.append(segment)?;
            }
        }
        Ok(())
    }

    /// Breaks connections and makes them anew; every request that is unanswered is sent again.
    pub(super) fn repeat(&mut self) -> Checked {
        let segments: Vec<SegmentId> = self.world.leaders.keys().copied().collect();
        for segment in segments {
            let descriptor = self.world.descriptor(segment).clone();
            if !self.is_alive(descriptor.leader.node) || !self.dice.one_in(5) {
                continue;
            }
            for to in 0..descriptor.replicas.len() {
                self.world.leader_step(segment, LeaderInput::Reconnected { to })?;
                self.world
                    .leader_step(segment, LeaderInput::Send { to, batches_max: record::BATCHES_MAX })?;
            }
        }
        for place in 0..self.world.recoverers.len() {
            let (node, until) = self.homes[place];
            let works = matches!(
                self.world.recoverers[place].phase(),
                RecovererPhase::Fencing | RecovererPhase::Voting { .. }
            );
            if works && until > self.now && self.is_alive(node) && self.dice.one_in(5) {
                self.world.recoverer_step(place, RecovererInput::Ask)?;
            }
        }
        Ok(())
    }

    fn home(&self, sender: &Sender) -> Option<NodeId> {
        match sender {
            Sender::Leader(segment) => Some(self.world.descriptor(*segment).leader.node),
            Sender::Recoverer(place) => {
                let (node, until) = self.homes.get(*place)?;
                (*until > self.now).then_some(*node)
            }
        }
    }

    /// Puts the messages that were sent on their way.
    pub(super) fn send(&mut self) {
        for flight in std::mem::take(&mut self.world.outbox) {
            if self.dice.one_in(50) {
                continue; // lost
            }
            let delay =
                if self.dice.one_in(20) { self.dice.below(4 * SECOND) } else { 100 + self.dice.below(5_000) };
            if self.dice.one_in(30) {
                let later = self.now + self.dice.below(8 * SECOND);
                self.at(later, Happening::Arrive(Box::new(flight.clone())));
            }
            self.at(self.now + delay, Happening::Arrive(Box::new(flight)));
        }
    }

    pub(super) fn arrive(&mut self, flight: Flight) -> Checked {
        let (sender, segment, place, to_replica) = match &flight {
            Flight::To { from, segment, to, .. } => (from.clone(), *segment, *to, true),
            Flight::Back { to, from, .. } => {
                let segment = match to {
                    Sender::Leader(segment) => *segment,
                    Sender::Recoverer(place) => self.world.recoverers[*place].descriptor().id,
                };
                (to.clone(), segment, *from, false)
            }
        };
        let Some(home) = self.home(&sender) else { return Ok(()) };
        let replica = self.world.descriptor(segment).replicas[place].node;
        let (from, to) = if to_replica { (home, replica) } else { (replica, home) };
        if let Some((_, _, until)) =
            self.cuts.iter().find(|cut| (cut.0, cut.1) == (from, to) && cut.2 > self.now)
        {
            let until = *until;
            if self.dice.one_in(2) {
                self.at(until + self.dice.0 % 1_000, Happening::Arrive(Box::new(flight))); // it waited in some buffer
            }
            return Ok(());
        }
        if self.is_paused(to) {
            self.at(self.paused[index(to)], Happening::Arrive(Box::new(flight)));
            return Ok(());
        }
        // The death of the process cuts some steps short.
        let dies =
            to_replica && self.now < FAULTS_FOR && self.world.nodes[index(to)].up && self.dice.one_in(4_000);
        if dies {
            self.tally.faults += 1;
            self.at(self.now + SECOND + self.dice.0 % SECOND, Happening::Restart(to));
            let kept = self.dice.index(3);
            return self.world.deliver(&flight, Some(kept));
        }
        self.world.deliver(&flight, None)?;
        if to_replica && self.world.nodes[index(to)].up {
            self.after_write(to, segment)?;
        }
        Ok(())
    }

    /// Has written batches synced some time later, together with those that come meanwhile; on a full disk nothing is, and
    /// the process gives up.
    fn after_write(&mut self, node: NodeId, segment: SegmentId) -> Checked {
        let held = self.world.nodes[index(node)].held.get(&segment);
        if held.is_none_or(|held| held.stored.synced == held.stored.batches.len()) {
            return Ok(());
        }
        if self.full[index(node)] > self.now {
            self.at(self.full[index(node)], Happening::Restart(node));
            return self.world.crash(node, 0, None);
        }
        let delay = 500 + self.dice.below(8_000);
        self.at(self.now + delay, Happening::Sync(node, segment));
        Ok(())
    }
}
