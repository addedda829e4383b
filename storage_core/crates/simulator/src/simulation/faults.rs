//! Faults of the cluster, and their repair.

use walrus_model::{NodeId, SegmentId};

use super::{Happening, SECOND, Simulation};
use crate::world::{Checked, Rot, World};

impl Simulation {
    /// Repairs everything that people and their operators repair.
    pub(super) fn heal(&mut self) -> Checked {
        self.cuts.clear();
        self.paused.fill(0);
        self.full.fill(0);
        self.metadata_away = 0;
        let down: Vec<NodeId> =
            self.world.nodes.iter().filter(|node| !node.up && !node.lost).map(|node| node.id).collect();
        for node in down {
            self.at(self.now, Happening::Restart(node));
        }
        // The metadata may have forgotten that a disk is gone. Whoever said it sees that the disk is asked for, and says it again.
        let lost: Vec<NodeId> =
            self.world.nodes.iter().filter(|node| node.lost).map(|node| node.id).collect();
        lost.into_iter().try_for_each(|node| self.world.declare_gone(node))
    }

    /// The batch that the next start of a node finds damaged, if any.
    fn rot(&mut self, place: usize, is_single: bool) -> Option<Rot> {
        let node = &self.world.nodes[place];
        if self.dice.one_in(3) && self.world.losses == 0 && !self.world.has_holes() && !is_single {
            let torn = node.held.iter().rfind(|(_, held)| World::may_rot(held));
            return torn.map(|(segment, _)| Rot::Tail(*segment));
        }
        if !self.dice.one_in(3) {
            return None;
        }
        let batches = node
            .held
            .iter()
            .flat_map(|(segment, held)| (0..held.stored.synced).map(move |batch| (*segment, batch)));
        let mut holes: Vec<(SegmentId, usize)> =
            batches.filter(|(segment, batch)| self.world.may_have_hole(node.id, *segment, *batch)).collect();
        let number = self.dice.index(holes.len().max(1));
        (number < holes.len())
            .then(|| holes.swap_remove(number))
            .map(|(segment, batch)| Rot::Hole(segment, batch))
    }

    pub(super) fn fault(&mut self) -> Checked {
        if !self.dice.one_in(25) {
            return Ok(());
        }
        self.tally.faults += 1;
        let nodes = self.world.nodes.len();
        let place = self.dice.index(nodes);
        let node = self.world.nodes[place].id;
        let until = self.now + SECOND / 2 + self.dice.below(8 * SECOND);
        let is_single = self.world.setting.replication.factor == 1;
        match self.dice.below(18) {
            0..=4 => {
                self.at(until, Happening::Restart(node));
                let rot = self.rot(place, is_single);
                let kept = self.dice.index(4);
                if self.world.nodes[place].up {
                    self.world.crash(node, kept, rot)?;
                }
            }
            5..=6 => self.paused[place] = until,
            7..=9 => {
                let others: Vec<NodeId> = self.world.nodes.iter().map(|node| node.id).collect();
                let way = self.dice.below(3);
                for other in others {
                    if way != 0 {
                        self.cuts.push((node, other, until));
                    }
                    if way != 1 {
                        self.cuts.push((other, node, until));
                    }
                }
                self.cuts.retain(|cut| cut.2 > self.now && cut.0 != cut.1);
                if self.world.setting.coordinates {
                    // A machine that is moved is cut off first, and stands still then: its coordinator wakes up with records that
                    // nobody else has got.
                    let asleep_from = self.now + self.dice.below(SECOND);
                    self.at(asleep_from, Happening::FallAsleep(node));
                }
            }
            10 => self.full[place] = until,
            11 => self.metadata_away = until,
            12..=13 => {
                if !self.past.is_empty() {
                    let to = self.dice.index(self.past.len());
                    let past = self.past[to].clone();
                    self.past.truncate(to);
                    self.forgotten += 1;
                    self.world.roll_back(past)?;
                }
            }
            14 => {
                let number = self.world.last_segment().map_or(0, |last| self.world.descriptor(last).number);
                if number > 2 && self.metadata_away <= self.now && !self.world.setting.cleans {
                    self.world.trim(number - 1 - self.dice.below(2))?;
                }
            }
            15 => {
                // All nodes die at once.
                for place in 0..nodes {
                    let node = self.world.nodes[place].id;
                    if self.world.nodes[place].up {
                        let kept = self.dice.index(3);
                        self.world.crash(node, kept, None)?;
                        self.at(until, Happening::Restart(node));
                    }
                }
            }
            16 if self.world.setting.cleans => {
                self.world.ahead = self.world.ahead.is_none().then_some(NodeId(1));
            }
            16 => self.world.jump_clocks(self.dice.below(2) == 0),
            _ => {
                let may_lose = !self.world.setting.cleans
                    && self.world.losses == 0
                    && !self.world.has_holes()
                    && !is_single;
                if may_lose && self.world.nodes[place].up && self.dice.one_in(3) {
                    match self.dice.one_in(2) {
                        true => self.world.lose_disk(node)?,
                        false => self.world.lose_journal(node)?,
                    }
                    if self.world.nodes[place].lost {
                        self.world.declare_gone(node)?;
                        self.world.add_node();
                        self.paused.push(0);
                        self.full.push(0);
                        self.known.push(self.world.metadata.clone());
                    } else {
                        self.at(until, Happening::Restart(node));
                    }
                }
            }
        }
        Ok(())
    }
}
