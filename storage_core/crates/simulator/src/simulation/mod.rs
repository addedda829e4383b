//! Random lives of a whole cluster, each drawn from one number: nodes that die and come back, pauses, partitions one-way
//! and both ways, torn tails, lost disks, full disks, clocks that jump, metadata that is away or forgets. Time is a number.

mod cleaning;
mod control;
mod dice;
mod faults;
mod groups;
mod surroundings;
mod tally;
mod telling;
mod traffic;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use dice::Dice;
use groups::Groups;
use walrus_model::{NodeId, Replication, SegmentId};

use crate::mistake::Mistake;
use crate::record;
use crate::world::{Checked, Committed, Flight, Reader, Setting, Violation, World};
pub use tally::Tally;
use telling::Tellings;

/// A simulated second.
const SECOND: u64 = 1_000_000;
/// Time for which faults go on.
const FAULTS_FOR: u64 = 60 * SECOND;
/// Limit on the time that the cluster takes to be well again, once nothing is broken any more.
const HEALS_WITHIN: u64 = 120 * SECOND;
const TICK: u64 = SECOND / 10;
/// Time after which a silent leader is replaced.
const SILENCE: u64 = 3 * SECOND;
/// Limit on the commands that the metadata forget at once.
const PAST_MAX: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrive(Box<Flight>),
    Sync(NodeId, SegmentId),
    Tick,
    Restart(NodeId),
    /// The node does nothing until it was replaced as a leader and somebody else has served for a while.
    FallAsleep(NodeId),
}

struct Simulation {
    world: World,
    dice: Dice,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    sequence: u64,
    /// Cuts, one-way: nothing gets from the first node to the second until that time.
    cuts: Vec<(NodeId, NodeId, u64)>,
    /// Times by node until which it does nothing.
    paused: Vec<u64>,
    /// Times by node until which it writes nothing.
    full: Vec<u64>,
    /// Time until which no command is committed.
    metadata_away: u64,
    past: Vec<Arc<Committed>>,
    /// The metadata that each node has heard of. A node that sleeps hears of nothing, the others now and then.
    known: Vec<Arc<Committed>>,
    /// Dice for when nodes hear of the metadata.
    lags: Dice,
    /// For each attempt the node where it runs, and the time until which it lives.
    homes: Vec<(NodeId, u64)>,
    /// Time at which a leader was last able to do something.
    heard: u64,
    /// Dice for what goes.
    brooms: Dice,
    readers: [Reader; 2],
    /// Groups, where the partition keeps some.
    groups: Option<Groups>,
    tellings: Tellings,
    /// How often the metadata have forgotten something.
    forgotten: u64,
    tally: Tally,
}

/// The cluster of a seed.
#[must_use]
pub fn setting_of(seed: u64, mistake: Option<Mistake>) -> Setting {
    let (factor, write_quorum, nodes) = match seed % 8 {
        0 => (5, 3, 5),
        1 => (1, 1, 2),
        2 => (3, 2, 5),
        3 => (3, 2, 4),
        _ => (3, 2, 3),
    };
    Setting {
        replication: Replication { factor, write_quorum },
        nodes,
        written: 0,
        sealed: 0,
        idempotent: !seed.is_multiple_of(3) || seed % 10 == 9,
        cleans: seed % 5 >= 3,
        coordinates: seed % 10 == 9,
        mistake,
    }
}

/// One life. The same seed gives the same life.
pub fn run(seed: u64, mistake: Option<Mistake>) -> Result<Tally, Violation> {
    let caught = std::panic::catch_unwind(|| Simulation::new(seed, mistake).live());
    caught.unwrap_or_else(|panic| {
        Err(Violation(format!("an assertion failed: {}", crate::model::text_of(&*panic))))
    })
}

impl Simulation {
    fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        let world = World::new(setting_of(seed, mistake));
        let nodes = world.nodes.len();
        let known = vec![world.metadata.clone(); nodes];
        let mut simulation = Self {
            world,
            dice: Dice(seed),
            now: 0,
            queue: BinaryHeap::new(),
            sequence: 0,
            cuts: Vec::new(),
            paused: vec![0; nodes],
            full: vec![0; nodes],
            metadata_away: 0,
            past: Vec::new(),
            known,
            lags: Dice(!seed),
            homes: Vec::new(),
            heard: 0,
            brooms: Dice(seed.rotate_left(32) ^ 0x5eed),
            readers: Default::default(),
            groups: setting_of(seed, None).coordinates.then(|| Groups::new(seed)),
            tellings: Tellings::new(seed),
            forgotten: 0,
            tally: Tally { schedules: 1, ..Tally::default() },
        };
        simulation.at(TICK, Happening::Tick);
        simulation
    }

    fn at(&mut self, time: u64, what: Happening) {
        self.sequence += 1;
        self.queue.push(Reverse((time, self.sequence, what)));
    }

    fn live(mut self) -> Result<Tally, Violation> {
        let mut well_since = None;
        while let Some(Reverse((time, _, what))) = self.queue.pop() {
            self.now = self.now.max(time);
            self.tally.events += 1;
            self.happen(what)?;
            self.send();
            if self.now > FAULTS_FOR {
                let goal = *well_since.get_or_insert_with(|| self.acknowledged() + 3);
                if self.acknowledged() >= goal && self.is_sealed_everywhere() && self.is_clean() {
                    break;
                }
                if self.now > FAULTS_FOR + HEALS_WITHIN {
                    return Err(Violation(format!("L2: it is not well again: {}", self.state())));
                }
            }
        }
        self.tally.simulated_us = self.now;
        self.tally.acknowledged = self.acknowledged();
        self.tally.sealed = self.world.promised.decided.len() as u64;
        let decided = || self.world.promised.decided.values();
        self.tally.losses_told = u64::from(decided().any(|value| !value.possible_loss.is_empty()));
        self.tally.lost = decided().map(|value| value.lost.len() as u64).sum();
        self.tally.filled = self.world.filled;
        self.tally.compacted = self.world.promised.forms.len() as u64;
        self.tally.trimmed = self.world.promised.trimmed_below;
        if let Some(groups) = &self.groups {
            groups.count(&mut self.tally);
        }
        Ok(self.tally)
    }

    fn acknowledged(&self) -> u64 {
        self.world.promised.acknowledged.values().map(|mark| record::ids(mark.digest).len() as u64).sum()
    }

    fn state(&self) -> String {
        let last = self.world.last_segment();
        let state =
            self.world.partition().and_then(|partition| partition.segments.last()).map(|last| &last.state);
        let leader =
            last.and_then(|last| self.world.leaders.get(&last)).map(|leading| leading.machine.phase());
        let up: Vec<_> = self.world.nodes.iter().map(|node| (node.id.0, node.up)).collect();
        let unsealed: Vec<_> = self.unsealed().collect();
        let unclean = self.world.unclean().filter(|_| self.world.setting.cleans);
        format!(
            "{last:?} is {state:?}, leader {leader:?}, nodes {up:?}, {} batches sent, {} acknowledged, unsealed {unsealed:?}, unclean {unclean:?}",
            self.world.next_id,
            self.acknowledged(),
        )
    }

    /// Whether every decision has reached every copy that is listed (L1, L3).
    fn is_sealed_everywhere(&self) -> bool {
        self.unsealed().next().is_none()
    }

    fn unsealed(&self) -> impl Iterator<Item = (NodeId, SegmentId)> {
        let segments = self.world.partition().into_iter().flat_map(|partition| &partition.segments);
        let listed = segments.map(|segment| segment.descriptor.id);
        // A segment that was trimmed before the metadata forgot it cannot be filled any more, until it is trimmed again.
        let is_trimmed = |segment: &SegmentId| {
            let copies = self.world.nodes.iter().filter_map(|node| node.held.get(segment));
            copies.into_iter().any(|held| held.stored.promises.trimmed)
        };
        let decided = listed
            .filter(move |segment| self.world.promised.decided.contains_key(segment) && !is_trimmed(segment));
        decided.flat_map(|segment| {
            let copies = self.world.nodes.iter().filter(move |node| {
                let held = node.held.get(&segment).filter(|_| node.up);
                held.is_some_and(|held| held.stored.promises.sealed.is_none())
            });
            copies.map(move |node| (node.id, segment))
        })
    }

    fn happen(&mut self, what: Happening) -> Checked {
        match what {
            Happening::Arrive(flight) => self.arrive(*flight),
            Happening::Sync(node, segment) => {
                if self.is_paused(node) {
                    self.at(self.paused[index(node)], Happening::Sync(node, segment));
                    return Ok(());
                }
                self.world.sync(node, segment)
            }
            Happening::Restart(node) => {
                if self.world.nodes[index(node)].up || self.world.nodes[index(node)].lost {
                    return Ok(());
                }
                if self.full[index(node)] > self.now {
                    self.at(self.full[index(node)], Happening::Restart(node));
                    return Ok(());
                }
                self.world.restart(node)
            }
            Happening::FallAsleep(node) => {
                if self.now < FAULTS_FOR {
                    self.paused[index(node)] = self.now + SILENCE + SECOND + self.dice.below(4 * SECOND);
                }
                Ok(())
            }
            Happening::Tick => {
                self.at(self.now + TICK, Happening::Tick);
                self.tick()
            }
        }
    }

    fn is_paused(&self, node: NodeId) -> bool {
        self.paused[index(node)] > self.now
    }

    fn is_alive(&self, node: NodeId) -> bool {
        self.world.nodes[index(node)].up && !self.is_paused(node)
    }

    fn tick(&mut self) -> Checked {
        if self.now < FAULTS_FOR {
            self.fault()?;
        } else {
            self.heal()?;
        }
        self.clients()?;
        self.repeat()?;
        self.control()?;
        self.coordinate()?; // what wakes up acts by what it knew before
        self.hear();
        self.tell()?;
        self.claims()?;
        self.tidy()?;
        self.clean()
    }
}

fn index(node: NodeId) -> usize {
    node.0 as usize - 1
}
