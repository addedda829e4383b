//! Random lives of a whole cluster, each drawn from one number: nodes that die and come back, pauses, partitions one-way
//! and both ways, torn tails, lost disks, full disks, clocks that jump, metadata that is away or forgets. Time is a number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use walrus_metadata::Replication;
use walrus_replica::{LeaderInput, LeaderPhase, NodeId, RecovererInput, RecovererPhase, SegmentId};

use crate::mistake::Mistake;
use crate::record;
use crate::world::{Checked, Committed, Flight, Sender, Setting, Violation, World};

/// A simulated second.
const SECOND: u64 = 1_000_000;
/// How long faults go on.
const FAULTS_FOR: u64 = 60 * SECOND;
/// How long the cluster may take to be well again, when nothing is broken any more.
const HEALS_WITHIN: u64 = 120 * SECOND;
const TICK: u64 = SECOND / 10;
/// A silent leader is replaced after so long.
const SILENCE: u64 = 3 * SECOND;
/// Metadata forgets at most so many commands.
const PAST_MAX: usize = 20;

/// What happened in a life, or in many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lives.
    pub schedules: u64,
    /// Simulated microseconds.
    pub simulated_us: u64,
    /// Things that happened.
    pub events: u64,
    /// Batches that were acknowledged.
    pub acknowledged: u64,
    /// Segments that were sealed.
    pub sealed: u64,
    /// Attempts to recover.
    pub recoveries: u64,
    /// Faults of all kinds.
    pub faults: u64,
    /// Lives in which a loss was told, after two faults.
    pub losses_told: u64,
}

impl Tally {
    /// Adds a life.
    pub fn add(&mut self, other: Tally) {
        self.schedules += other.schedules;
        self.simulated_us += other.simulated_us;
        self.events += other.events;
        self.acknowledged += other.acknowledged;
        self.sealed += other.sealed;
        self.recoveries += other.recoveries;
        self.faults += other.faults;
        self.losses_told += other.losses_told;
    }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, sides: u64) -> u64 {
        self.next() % sides
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.next() >> 33).expect("31 bits") % len
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.below(sides) == 0
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrive(Box<Flight>),
    Sync(NodeId, SegmentId),
    Tick,
    Restart(NodeId),
}

struct Simulation {
    world: World,
    dice: Dice,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    sequence: u64,
    /// One-way: nothing gets from the first to the second until then.
    cuts: Vec<(NodeId, NodeId, u64)>,
    /// By node: it does nothing until then.
    paused: Vec<u64>,
    /// By node: it writes nothing until then.
    full: Vec<u64>,
    /// Nothing is committed until then.
    metadata_away: u64,
    past: Vec<Arc<Committed>>,
    /// Where an attempt runs, and until when it lives.
    homes: Vec<(NodeId, u64)>,
    /// When a leader was last able to do something.
    heard: u64,
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
        idempotent: !seed.is_multiple_of(3),
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
            homes: Vec::new(),
            heard: 0,
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
                if self.acknowledged() >= goal && self.is_settled() {
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
        let told = self.world.promised.decided.values().any(|value| !value.possible_loss.is_empty());
        self.tally.losses_told = u64::from(told);
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
        format!(
            "{last:?} is {state:?}, leader {leader:?}, nodes {up:?}, {} batches sent, {} acknowledged, unsealed {unsealed:?}",
            self.world.next_id,
            self.acknowledged(),
        )
    }

    /// L1, L3: every decision has reached every copy that is listed.
    fn is_settled(&self) -> bool {
        self.unsealed().next().is_none()
    }

    fn unsealed(&self) -> impl Iterator<Item = (NodeId, SegmentId)> {
        let segments = self.world.partition().into_iter().flat_map(|partition| &partition.segments);
        let listed = segments.map(|segment| SegmentId(segment.descriptor.uuid.as_u128()));
        // What was trimmed before metadata forgot it cannot be filled any more, until it is trimmed again.
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

    fn home(&self, sender: &Sender) -> Option<NodeId> {
        match sender {
            Sender::Leader(segment) => Some(self.world.descriptor(*segment).leader.node),
            Sender::Recoverer(place) => {
                let (node, until) = self.homes.get(*place)?;
                (*until > self.now).then_some(*node)
            }
        }
    }

    /// What was sent gets on its way.
    fn send(&mut self) {
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

    fn arrive(&mut self, flight: Flight) -> Checked {
        let (sender, segment, place, to_replica) = match &flight {
            Flight::To { from, segment, to, .. } => (from.clone(), *segment, *to, true),
            Flight::Back { to, from, .. } => {
                let segment = match to {
                    Sender::Leader(segment) => *segment,
                    Sender::Recoverer(place) => self.world.recoverers[*place].descriptor().segment,
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
        // A step that is cut short by the death of the process.
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

    /// What was written is synced some time later, together with what comes meanwhile; on a full disk nothing is, and
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

    fn tick(&mut self) -> Checked {
        if self.now < FAULTS_FOR {
            self.fault()?;
        } else {
            self.heal();
        }
        self.clients()?;
        self.repeat()?;
        self.control()?;
        self.tidy()
    }

    fn clients(&mut self) -> Checked {
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

    /// Connections break and are made anew; what is unanswered is asked again.
    fn repeat(&mut self) -> Checked {
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

    /// What the nodes' controllers do: rolls, failovers, publishing, opening.
    fn control(&mut self) -> Checked {
        if self.metadata_away <= self.now {
            let before = self.world.metadata.clone();
            self.rolls()?;
            self.failover()?;
            if let Some(last) = self.world.last_segment() {
                self.world.publish(last)?;
            }
            if self.world.metadata.print != before.print {
                self.past.push(before);
                if self.past.len() > PAST_MAX {
                    self.past.remove(0);
                }
            }
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
            works && *until > self.now && self.is_alive(*node) && attempt.descriptor().segment == last
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
        self.world.recover()?;
        self.homes.truncate(self.world.recoverers.len());
        self.tally.recoveries += (self.world.recoverers.len() - before) as u64;
        Ok(())
    }

    /// Decisions reach the copies, trimmed copies go.
    fn tidy(&mut self) -> Checked {
        let nodes: Vec<NodeId> = self.world.nodes.iter().map(|node| node.id).collect();
        for node in nodes.into_iter().filter(|node| self.is_alive(*node)).collect::<Vec<_>>() {
            let held: Vec<SegmentId> = self.world.nodes[index(node)].held.keys().copied().collect();
            for segment in held {
                let of_node = &self.world.nodes[index(node)];
                if self.world.may_drop(of_node, segment) {
                    self.world.drop_copy(node, segment)?;
                    continue;
                }
                let is_sealed = of_node.held[&segment].stored.promises.sealed.is_some();
                let is_decided = self.world.promised.decided.contains_key(&segment);
                if is_decided && !is_sealed && (self.now >= FAULTS_FOR || self.dice.one_in(20)) {
                    self.world.notify(node, segment)?;
                }
            }
        }
        Ok(())
    }

    fn heal(&mut self) {
        self.cuts.clear();
        self.paused.fill(0);
        self.full.fill(0);
        self.metadata_away = 0;
        let down: Vec<NodeId> =
            self.world.nodes.iter().filter(|node| !node.up && !node.lost).map(|node| node.id).collect();
        for node in down {
            self.at(self.now, Happening::Restart(node));
        }
    }

    fn fault(&mut self) -> Checked {
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
                let may_rot = self.world.losses == 0 && !is_single && self.dice.one_in(3);
                let copies = self.world.nodes[place].held.iter().filter(|(_, held)| World::may_rot(held));
                let rotten = copies.map(|(segment, _)| *segment).rfind(|_| may_rot);
                let kept = self.dice.index(4);
                if self.world.nodes[place].up {
                    self.world.crash(node, kept, rotten)?;
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
            }
            10 => self.full[place] = until,
            11 => self.metadata_away = until,
            12..=13 => {
                if !self.past.is_empty() {
                    let to = self.dice.index(self.past.len());
                    let past = self.past[to].clone();
                    self.past.truncate(to);
                    self.world.roll_back(past);
                }
            }
            14 => {
                let number = self.world.last_segment().map_or(0, |last| self.world.descriptor(last).number);
                if number > 2 && self.metadata_away <= self.now {
                    self.world.trim(number - 1 - self.dice.below(2))?;
                }
            }
            15 => {
                // All nodes at once.
                for place in 0..nodes {
                    let node = self.world.nodes[place].id;
                    if self.world.nodes[place].up {
                        let kept = self.dice.index(3);
                        self.world.crash(node, kept, None)?;
                        self.at(until, Happening::Restart(node));
                    }
                }
            }
            16 => self.world.jump_clocks(self.dice.below(2) == 0),
            _ => {
                if self.world.losses == 0 && !is_single && self.world.nodes[place].up && self.dice.one_in(3) {
                    self.world.lose_disk(node)?;
                    if self.world.nodes[place].lost {
                        self.world.declare_gone(node)?;
                        self.world.add_node();
                        self.paused.push(0);
                        self.full.push(0);
                    } else {
                        self.at(until, Happening::Restart(node));
                    }
                }
            }
        }
        Ok(())
    }
}

fn index(node: NodeId) -> usize {
    node.0 as usize - 1
}
