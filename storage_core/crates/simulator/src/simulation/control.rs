//! The nodes' controllers: rolls, failovers, publishing, opening, and copies that learn of decisions or are deleted.

use std::sync::Arc;

use walrus_model::{NodeId, SegmentId};
use walrus_replica::{LeaderPhase, RecovererPhase};

use super::{FAULTS_FOR, PAST_MAX, SECOND, SILENCE, Simulation, index};
use crate::world::{Checked, Committed};

impl Simulation {
    /// Does what the nodes' controllers do: rolls, failovers, publishing, opening.
    pub(super) fn control(&mut self) -> Checked {
        if self.metadata_away <= self.now {
            let before = self.world.metadata.clone();
            self.rolls()?;
            self.failover()?;
            self.clean_metadata()?;
            if let Some(last) = self.world.last_segment() {
                self.world.publish(last)?;
            }
            self.note_past(before);
        }
        let segments: Vec<SegmentId> = self.world.promised.descriptors.keys().copied().collect();
        for segment in segments {
            if self.world.may_open(segment) && self.is_alive(self.world.descriptor(segment).leader.node) {
                self.world.open(segment)?;
                self.heard = self.now;
            }
        }
        Ok(())
    }

    /// Keeps an earlier state of the metadata, for a rollback to it, if they have changed since.
    pub(super) fn note_past(&mut self, before: Arc<Committed>) {
        if self.world.metadata.print != before.print {
            self.past.push(before);
            if self.past.len() > PAST_MAX {
                self.past.remove(0);
            }
        }
    }

    /// Lets nodes that are awake hear of the metadata, most of the time; none takes older ones than it has.
    pub(super) fn hear(&mut self) {
        for index in 0..self.known.len() {
            let node = &self.world.nodes[index];
            let is_newer = self.world.metadata.state.version >= self.known[index].state.version;
            // A process that starts learns what there is.
            if !node.up || (is_newer && self.paused[index] <= self.now && !self.lags.one_in(4)) {
                self.known[index] = self.world.metadata.clone();
            }
        }
    }

    /// Asks leaders where their segments end, those that sleep as if they had just woken up.
    pub(super) fn claims(&mut self) -> Checked {
        for segment in self.world.leaders.keys() {
            let answers = |node| self.is_alive(node);
            self.tally.claims += u64::from(self.world.claim(*segment, &self.known, answers)?);
        }
        Ok(())
    }

    fn rolls(&mut self) -> Checked {
        let segments: Vec<SegmentId> = self.world.leaders.keys().copied().collect();
        for segment in segments {
            let leading = &self.world.leaders[&segment];
            let is_leading = *leading.machine.phase() == LeaderPhase::Leading;
            let wants = !self.world.has_room(segment) || self.dice.one_in(60);
            if is_leading && wants && self.is_alive(self.world.descriptor(segment).leader.node) {
                self.world.roll(segment)?;
            }
        }
        Ok(())
    }

    fn failover(&mut self) -> Checked {
        let Some(last) = self.world.last_segment() else { return Ok(()) };
        let partition = self.world.partition().and_then(|partition| partition.segments.last());
        let is_open = partition.is_some_and(|listed| listed.state == walrus_metadata::SegmentState::Open);
        let leads = is_open
            && self.world.leaders.get(&last).is_some_and(|leading| {
                *leading.machine.phase() == LeaderPhase::Leading
                    && self.is_alive(self.world.descriptor(last).leader.node)
            });
        let is_cut =
            |node: NodeId| self.cuts.iter().any(|cut| cut.2 > self.now && (cut.0 == node || cut.1 == node));
        if leads && !(is_cut(self.world.descriptor(last).leader.node) && self.dice.one_in(40)) {
            self.heard = self.now;
            return Ok(());
        }
        if self.now < self.heard + SILENCE && leads {
            return Ok(());
        }
        let working = self.homes.iter().zip(&self.world.recoverers).filter(|((node, until), attempt)| {
            let works = matches!(attempt.phase(), RecovererPhase::Fencing | RecovererPhase::Voting { .. });
            works && *until > self.now && self.is_alive(*node) && attempt.descriptor().id == last
        });
        if working.count() > usize::from(self.dice.one_in(30)) {
            return Ok(());
        }
        let alive: Vec<NodeId> =
            self.world.nodes.iter().map(|node| node.id).filter(|node| self.is_alive(*node)).collect();
        if alive.is_empty() || !self.dice.one_in(5) {
            return Ok(());
        }
        let home = alive[self.dice.index(alive.len())];
        let before = self.world.recoverers.len();
        self.homes.push((home, self.now + 2 * SECOND + self.dice.below(8 * SECOND)));
        let nodes = self.world.nodes.iter().map(|node| node.id);
        let is_silent = |node: &NodeId| !self.is_alive(*node) || is_cut(*node);
        let silent: Vec<NodeId> = nodes.filter(is_silent).collect();
        self.world.recover(&silent)?;
        self.homes.truncate(self.world.recoverers.len());
        self.tally.recoveries += (self.world.recoverers.len() - before) as u64;
        Ok(())
    }

    /// Lets decisions reach the copies, fills holes, and deletes trimmed copies.
    pub(super) fn tidy(&mut self) -> Checked {
        let nodes: Vec<NodeId> = self.world.nodes.iter().map(|node| node.id).collect();
        for node in nodes.into_iter().filter(|node| self.is_alive(*node)).collect::<Vec<_>>() {
            let held: Vec<SegmentId> = self.world.nodes[index(node)].held.keys().copied().collect();
            for segment in held {
                let of_node = &self.world.nodes[index(node)];
                if !self.world.setting.cleans && self.world.may_drop(of_node, segment) {
                    self.world.drop_copy(node, segment)?;
                    continue;
                }
                if self.world.fillable(node, segment).is_some()
                    && (self.now >= FAULTS_FOR || self.dice.one_in(10))
                {
                    self.world.fill_hole(node, segment)?;
                }
                if self.world.may_forget(node, segment, &self.known[index(node)]) && self.dice.one_in(20) {
                    self.world.forget_votes(node, segment);
                }
                let of_node = &self.world.nodes[index(node)];
                let promises = &of_node.held[&segment].stored.promises;
                let is_sealed = promises.sealed.is_some() || promises.trimmed;
                let is_decided = self.world.promised.decided.contains_key(&segment);
                if is_decided && !is_sealed && (self.now >= FAULTS_FOR || self.dice.one_in(20)) {
                    self.world.notify(node, segment)?;
                }
            }
        }
        Ok(())
    }
}
