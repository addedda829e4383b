//! What goes: nodes look after their copies, passes of compactions go on, records grow old or are deleted, settings change, and
//! readers go through what is left.

use walrus_model::{NodeId, Offset};

use super::{FAULTS_FOR, Happening, SECOND, Simulation, TICK, index};
use crate::world::{Checked, Settings};

/// Time behind the faults after which no pass begins any more, so that an end of the cleaning can be seen.
const PASSES_FOR: u64 = FAULTS_FOR + 20 * SECOND;
/// Limit on the chores of a node in a tick.
const CHORES_MAX: u64 = 6;

impl Simulation {
    /// Whether everything is cleaned up.
    pub(super) fn is_clean(&self) -> bool {
        !self.world.setting.cleans || (self.now > PASSES_FOR && self.world.is_clean())
    }

    /// What changes the metadata by itself: leases, settings, retention, deletions by clients.
    pub(super) fn clean_metadata(&mut self) -> Checked {
        if !self.world.setting.cleans {
            return Ok(());
        }
        if self.world.setting.coordinates {
            return self.world.keep_copies();
        }
        if self.brooms.one_in(10) {
            self.world.expire()?;
        }
        if self.brooms.one_in(20) {
            self.world.keep_copies()?;
        }
        if self.now < FAULTS_FOR && self.brooms.one_in(100) {
            let age_ms = [None, Some(10_000), Some(20_000)][self.brooms.index(3)];
            self.world.alter(Settings { compacts: !self.brooms.one_in(5), age_ms })?;
        }
        if self.now < FAULTS_FOR && self.brooms.one_in(200) {
            let end = self.world.acknowledged_end().0;
            self.world.delete_records(Offset(self.brooms.below(end + 1)))?;
        }
        Ok(())
    }

    /// What the nodes do, each by the metadata that it knows.
    pub(super) fn clean(&mut self) -> Checked {
        if !self.world.setting.cleans {
            return Ok(());
        }
        self.world.pass_time(self.now / 1_000);
        let before = self.world.metadata.clone();
        let nodes: Vec<NodeId> = self.world.nodes.iter().map(|node| node.id).collect();
        for node in nodes {
            if self.is_alive(node) {
                self.clean_node(node)?;
            }
        }
        self.note_past(before);
        self.read()
    }

    fn clean_node(&mut self, node: NodeId) -> Checked {
        let is_there = self.metadata_away <= self.now;
        if is_there && self.brooms.one_in(SECOND / TICK) {
            self.world.renew(node)?;
        }
        for _ in 0..self.brooms.below(CHORES_MAX) {
            let known = self.known[index(node)].clone();
            let mut chores = self.world.chores(node, &known);
            chores.retain(|chore| is_there || !chore.asks());
            if chores.is_empty() {
                break;
            }
            let chore = chores.swap_remove(self.brooms.index(chores.len()));
            self.world.do_chore(node, &known, &chore)?;
            if self.now < FAULTS_FOR && self.brooms.one_in(400) {
                self.tally.faults += 1;
                self.at(self.now + SECOND, Happening::Restart(node));
                return self.world.crash(node, 0, None);
            }
        }
        let known = self.known[index(node)].clone();
        if self.world.passes.contains_key(&node) {
            if is_there && self.brooms.one_in(2) {
                self.world.step_pass(node, &known)?;
            }
            if self.brooms.one_in(100) {
                self.world.give_up_pass(node);
            }
        } else if !self.world.setting.coordinates && self.now < PASSES_FOR && self.brooms.one_in(10) {
            self.world.begin_pass(node, &known)?;
        }
        Ok(())
    }

    /// Lets each reader read a page from some node.
    fn read(&mut self) -> Checked {
        let alive: Vec<NodeId> =
            self.world.nodes.iter().map(|node| node.id).filter(|node| self.is_alive(*node)).collect();
        for at in 0..self.readers.len() {
            if alive.is_empty() {
                break;
            }
            let node = alive[self.brooms.index(alive.len())];
            let known = self.known[index(node)].clone();
            if self.world.read_page(node, &known, &mut self.readers[at])? {
                self.tally.readings += 1;
                self.readers[at] = Default::default();
            }
        }
        Ok(())
    }
}
