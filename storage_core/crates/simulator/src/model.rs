//! The model checker: it tries every order of a few events, breadth first over the whole cluster as one value. A message
//! that was sent stays on the way for ever and may arrive at any time, so loss, delay, repetition and overtaking need no
//! events of their own.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use walrus_model::{NodeId, SegmentId};
use walrus_replica::LeaderPhase;

use crate::visited::Visited;
use crate::world::{Checked, Chore, Committed, Flight, Rot, Setting, Violation, World};

/// The number of events of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Events {
    /// Batches that clients send.
    pub appends: u8,
    /// Planned rolls.
    pub rolls: u8,
    /// Attempts to recover.
    pub recoveries: u8,
    /// Processes that die.
    pub crashes: u8,
    /// Deaths in the middle of what a message causes.
    pub torn_steps: u8,
    /// Deaths that find a synced tail torn.
    pub rots: u8,
    /// Deaths that find a batch damaged that has good ones behind it.
    pub holes: u8,
    /// Disks that are lost.
    pub lost_disks: u8,
    /// Journals that lose their end.
    pub lost_journals: u8,
    /// Rollbacks of the metadata to an earlier state.
    pub roll_backs: u8,
    /// Trims.
    pub trims: u8,
    /// Decisions that are told to a replica.
    pub notices: u8,
    /// Segments that are opened after the first.
    pub opens: u8,
    /// Passes of compactions.
    pub passes: u8,
    /// Whether answers arrive at once or never. Else they too may arrive at any time, again and again.
    pub prompt_answers: bool,
}

/// One event.
#[derive(Clone, Debug)]
enum Event {
    Deliver(Arc<Flight>),
    DeliverTorn(Arc<Flight>, usize),
    Sync(NodeId, SegmentId),
    Append(SegmentId),
    Roll(SegmentId),
    Recover,
    Publish(SegmentId),
    Open(SegmentId),
    Crash { node: NodeId, kept: usize, rot: Option<Rot> },
    FillHole(NodeId, SegmentId),
    Restart(NodeId),
    LoseDisk(NodeId),
    LoseJournal(NodeId),
    DeclareGone(NodeId),
    RollBack(usize),
    Notify(NodeId, SegmentId),
    Trim(u64),
    Drop(NodeId, SegmentId),
    Chore(NodeId, Chore),
    BeginPass(NodeId),
    StepPass(NodeId),
}

/// A state of the search.
#[derive(Clone)]
struct State {
    world: World,
    sent: BTreeSet<Arc<Flight>>,
    left: Events,
    /// Earlier states of the metadata, while a rollback to them is still possible.
    past: Vec<Arc<Committed>>,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Report {
    /// Distinct states.
    pub states: usize,
    /// Events in the longest of the shortest ways.
    pub depth: usize,
    /// Whether every state was reached.
    pub exhausted: bool,
    /// The shortest way to a broken invariant.
    pub found: Option<Trace>,
    /// Time it took.
    pub elapsed: Duration,
}

/// A way to a broken invariant.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The events, in order.
    pub events: Vec<String>,
    /// The invariant that broke.
    pub violation: Violation,
}

impl std::fmt::Display for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, event) in self.events.iter().enumerate() {
            writeln!(f, "{:3} {event}", number + 1)?;
        }
        write!(f, "  => {}", self.violation.0)
    }
}

const SHARDS: usize = 64;

struct Search {
    visited: Vec<Mutex<Visited>>,
    states: AtomicUsize,
    states_max: usize,
    found: Mutex<Option<(u64, u32, Violation)>>,
}

/// Searches until everything was seen, `states_max` is reached at the end of a layer, or something is broken.
#[must_use]
pub fn search(setting: &Setting, events: &Events, states_max: usize, threads: usize) -> Report {
    let started = Instant::now();
    let first = State::first(setting, events);
    let search = Search {
        visited: (0..SHARDS).map(|_| Mutex::new(Visited::default())).collect(),
        states: AtomicUsize::new(1),
        states_max,
        found: Mutex::new(None),
    };
    let print = first.print();
    search.visited[shard(print)].lock().expect("no panic inside").insert(print, (print, 0));
    let (mut layer, mut depth) = (vec![(print, first)], 0);
    while !layer.is_empty() && search.goes_on() {
        layer = search.expand(&layer, threads);
        depth += usize::from(!layer.is_empty());
    }
    let found = search.found.lock().expect("no panic inside").take();
    let states = search.states.load(Ordering::Relaxed);
    let exhausted = found.is_none() && layer.is_empty();
    let found = found.map(|(print, index, violation)| Trace {
        events: search.retrace(setting, events, print, index),
        violation,
    });
    Report { states, depth, exhausted, found, elapsed: started.elapsed() }
}

fn shard(print: u64) -> usize {
    usize::try_from(print >> 58).expect("six bits")
}

impl Search {
    fn goes_on(&self) -> bool {
        self.found.lock().expect("no panic inside").is_none()
            && self.states.load(Ordering::Relaxed) < self.states_max
    }

    fn expand(&self, layer: &[(u64, State)], threads: usize) -> Vec<(u64, State)> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut reached = Vec::new();
            while self.goes_on() {
                let start = next.fetch_add(64, Ordering::Relaxed);
                let Some(chunk) =
                    layer.get(start..layer.len().min(start + 64)).filter(|chunk| !chunk.is_empty())
                else {
                    break;
                };
                for (print, state) in chunk {
                    self.expand_one(*print, state, &mut reached);
                }
            }
            reached
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut all = work();
            others.into_iter().for_each(|other| all.extend(other.join().expect("panics are caught inside")));
            all
        })
    }

    fn expand_one(&self, print: u64, state: &State, reached: &mut Vec<(u64, State)>) {
        for (index, event) in (0u32..).zip(state.events()) {
            match state.after(&event) {
                Ok(None) => {}
                Ok(Some(next)) => {
                    let key = next.print();
                    let mut visited = self.visited[shard(key)].lock().expect("no panic inside");
                    if let std::collections::hash_map::Entry::Vacant(free) = visited.entry(key) {
                        free.insert((print, index));
                        drop(visited);
                        self.states.fetch_add(1, Ordering::Relaxed);
                        reached.push((key, next));
                    }
                }
                Err(violation) => {
                    let mut found = self.found.lock().expect("no panic inside");
                    found.get_or_insert((print, index, violation));
                }
            }
        }
    }

    /// The events that lead to a state, and one more.
    fn retrace(&self, setting: &Setting, events: &Events, print: u64, last: u32) -> Vec<String> {
        let mut indexes = vec![last];
        let mut at = print;
        loop {
            let (parent, index) = self.visited[shard(at)].lock().expect("no panic inside")[&at];
            if parent == at {
                break;
            }
            indexes.push(index);
            at = parent;
        }
        let mut state = State::first(setting, events);
        let mut told = Vec::new();
        for index in indexes.into_iter().rev() {
            let event = state.events().swap_remove(index as usize);
            told.push(format!("{event:?}"));
            match state.after(&event) {
                Ok(Some(next)) => state = next,
                Ok(None) | Err(_) => break,
            }
        }
        told
    }
}

impl State {
    fn first(setting: &Setting, events: &Events) -> Self {
        let world = World::new(setting.clone());
        let mut state = Self { world, sent: BTreeSet::new(), left: events.clone(), past: Vec::new() };
        state.normalise();
        state
    }

    /// Puts what the last event sent on its way, and forgets what cannot matter any more, so that equal states look equal.
    fn normalise(&mut self) {
        for flight in std::mem::take(&mut self.world.outbox) {
            self.sent.insert(Arc::new(flight));
        }
        let world = &self.world;
        self.sent.retain(|flight| match &**flight {
            Flight::Back { to: crate::world::Sender::Leader(segment), .. } => {
                world.leaders.contains_key(segment)
            }
            _ => true,
        });
        if self.left.roll_backs == 0 {
            self.past.clear();
        }
    }

    fn print(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let world = &self.world;
        (&world.nodes, &world.leaders, &world.opened, &world.recoverers, &world.promised).hash(&mut hasher);
        (&world.passes, world.metadata.print, world.next_id, world.losses, &self.sent, &self.left)
            .hash(&mut hasher);
        self.past.iter().for_each(|past| past.print.hash(&mut hasher));
        hasher.finish()
    }

    fn events(&self) -> Vec<Event> {
        let (world, left) = (&self.world, &self.left);
        let mut all: Vec<Event> = self.sent.iter().cloned().map(Event::Deliver).collect();
        if left.torn_steps > 0 {
            let to_replicas = self.sent.iter().filter(|flight| matches!(***flight, Flight::To { .. }));
            all.extend(
                to_replicas.flat_map(|flight| (1..3).map(|kept| Event::DeliverTorn(flight.clone(), kept))),
            );
        }
        for (segment, leading) in &world.leaders {
            if left.appends > 0 && world.has_room(*segment) {
                all.push(Event::Append(*segment));
            }
            if left.rolls > 0 && *leading.machine.phase() == LeaderPhase::Leading {
                all.push(Event::Roll(*segment));
            }
        }
        if left.recoveries > 0 {
            all.push(Event::Recover);
        }
        if let Some(last) = world.last_segment() {
            if let Some(value) = world.promised.decided.get(&last) {
                all.push(Event::Publish(last));
                let _ = value;
            }
            let number = world.descriptor(last).number;
            if left.trims > 0 && number > 0 {
                all.push(Event::Trim(number));
            }
        }
        if left.opens > 0 {
            let segments = world.promised.descriptors.keys();
            all.extend(
                segments.filter(|segment| world.may_open(**segment)).map(|segment| Event::Open(*segment)),
            );
        }
        for node in &world.nodes {
            self.events_of(node, &mut all);
        }
        if left.roll_backs > 0 {
            all.extend((0..self.past.len()).map(Event::RollBack));
        }
        all
    }

    fn events_of(&self, node: &crate::world::Node, all: &mut Vec<Event>) {
        let (world, left, id) = (&self.world, &self.left, node.id);
        if !node.up {
            if !node.lost {
                all.push(Event::Restart(id));
            } else if !world.metadata.state.gone_disks.contains(&node.disk) {
                all.push(Event::DeclareGone(id));
            }
            return;
        }
        if world.setting.cleans {
            self.cleaning_of(node, all);
        }
        for (segment, held) in &node.held {
            if held.stored.synced < held.stored.batches.len() {
                all.push(Event::Sync(id, *segment));
            }
            let is_told = held.stored.promises.sealed.is_some();
            if left.notices > 0 && !is_told && world.promised.decided.contains_key(segment) {
                all.push(Event::Notify(id, *segment));
            }
            if world.fillable(id, *segment).is_some() {
                all.push(Event::FillHole(id, *segment));
            }
            if !world.setting.cleans && world.may_drop(node, *segment) {
                all.push(Event::Drop(id, *segment));
            }
        }
        if left.crashes > 0 {
            let is_dirty = node.held.values().any(|held| held.stored.synced < held.stored.batches.len());
            all.push(Event::Crash { node: id, kept: 0, rot: None });
            if is_dirty {
                all.push(Event::Crash { node: id, kept: usize::MAX, rot: None });
            }
            let rot = |rot| Event::Crash { node: id, kept: 0, rot: Some(rot) };
            if left.rots > 0 {
                let rotten = node.held.iter().filter(|(_, held)| World::may_rot(held));
                all.extend(rotten.map(|(segment, _)| rot(Rot::Tail(*segment))));
            }
            if left.holes > 0 {
                for (segment, held) in &node.held {
                    let places =
                        (0..held.stored.synced).filter(|place| world.may_have_hole(id, *segment, *place));
                    all.extend(places.map(|place| rot(Rot::Hole(*segment, place))));
                }
            }
        }
        if left.lost_disks > 0 {
            all.push(Event::LoseDisk(id));
        }
        if left.lost_journals > 0 {
            all.push(Event::LoseJournal(id));
        }
    }

    /// What a node, which knows the latest metadata, does with its copies.
    fn cleaning_of(&self, node: &crate::world::Node, all: &mut Vec<Event>) {
        let chores = self.world.chores(node.id, &self.world.metadata);
        all.extend(chores.into_iter().map(|chore| Event::Chore(node.id, chore)));
        match self.world.passes.contains_key(&node.id) {
            true => all.push(Event::StepPass(node.id)),
            false if self.left.passes > 0 => all.push(Event::BeginPass(node.id)),
            false => {}
        }
    }

    /// The state after an event; `None` if nothing has changed.
    fn after(&self, event: &Event) -> Result<Option<State>, Violation> {
        let mut next = self.clone();
        let outcome =
            catch_unwind(AssertUnwindSafe(|| next.act(event).and_then(|()| next.deliver_answers())));
        outcome
            .unwrap_or_else(|panic| Err(Violation(format!("an assertion failed: {}", text_of(&*panic)))))?;
        if let Event::Deliver(_) = event
            && next.world.outbox.iter().all(|flight| self.sent.contains(flight))
            && next.world.is_like(&self.world)
        {
            return Ok(None);
        }
        if self.left.roll_backs > 0
            && next.world.metadata.print != self.world.metadata.print
            && next.left.roll_backs > 0
        {
            next.past.push(self.world.metadata.clone());
        }
        next.normalise();
        Ok(Some(next))
    }

    fn deliver_answers(&mut self) -> Checked {
        if !self.left.prompt_answers {
            return Ok(());
        }
        let is_answer = |flight: &Flight| matches!(flight, Flight::Back { .. });
        while let Some(at) = self.world.outbox.iter().position(is_answer) {
            let answer = self.world.outbox.remove(at);
            self.world.deliver(&answer, None)?;
        }
        Ok(())
    }

    fn act(&mut self, event: &Event) -> Checked {
        let (world, left) = (&mut self.world, &mut self.left);
        match event {
            Event::Deliver(flight) => world.deliver(flight, None),
            Event::DeliverTorn(flight, kept) => {
                left.torn_steps -= 1;
                world.deliver(flight, Some(*kept))
            }
            Event::Sync(node, segment) => world.sync(*node, *segment),
            Event::Append(segment) => {
                left.appends -= 1;
                world.append(*segment)
            }
            Event::Roll(segment) => {
                left.rolls -= 1;
                world.roll(*segment)
            }
            Event::Recover => {
                left.recoveries -= 1;
                world.recover(&[])
            }
            Event::Publish(segment) => world.publish(*segment),
            Event::Open(segment) => {
                left.opens -= 1;
                world.open(*segment)
            }
            Event::Crash { node, kept, rot } => {
                left.crashes -= 1;
                left.rots -= u8::from(matches!(rot, Some(Rot::Tail(_))));
                left.holes -= u8::from(matches!(rot, Some(Rot::Hole(..))));
                world.crash(*node, *kept, *rot)
            }
            Event::FillHole(node, segment) => world.fill_hole(*node, *segment),
            Event::Restart(node) => world.restart(*node),
            Event::LoseDisk(node) => {
                left.lost_disks -= 1;
                world.lose_disk(*node)
            }
            Event::LoseJournal(node) => {
                left.lost_journals -= 1;
                world.lose_journal(*node)
            }
            Event::DeclareGone(node) => world.declare_gone(*node),
            Event::RollBack(to) => {
                left.roll_backs -= 1;
                let past = self.past[*to].clone();
                world.roll_back(past)
            }
            Event::Notify(node, segment) => {
                left.notices -= 1;
                world.notify(*node, *segment)
            }
            Event::Trim(below) => {
                left.trims -= 1;
                world.trim(*below)
            }
            Event::Drop(node, segment) => world.drop_copy(*node, *segment),
            Event::Chore(node, chore) => {
                let known = Arc::clone(&world.metadata);
                world.do_chore(*node, &known, chore)
            }
            Event::BeginPass(node) => {
                left.passes -= 1;
                let known = Arc::clone(&world.metadata);
                world.begin_pass(*node, &known)
            }
            Event::StepPass(node) => {
                let known = Arc::clone(&world.metadata);
                world.step_pass(*node, &known)
            }
        }
    }
}

/// The message of a panic.
#[must_use]
pub fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
