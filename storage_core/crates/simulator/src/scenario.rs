//! Lives written down event by event: the shortest ones that earlier wordings of the rules did not survive, where a search
//! would take long to come by them again.

use std::sync::Arc;

use walrus_model::{NodeId, Replication, SegmentId, Value};
use walrus_replica::{LeaderInput, Message};

use crate::mistake::Mistake;
use crate::world::{Checked, Flight, Rot, Sender, Setting, Violation, World};

/// A name, and the life that it names.
pub type Scenario = (&'static str, fn(Option<Mistake>) -> Checked);

/// All scenarios.
pub const SCENARIOS: [Scenario; 13] = [
    ("a suspect copy that is filled to the high watermark is still suspect", filled_to_the_high_watermark),
    ("what may be lost is part of what is decided", possible_loss_is_decided),
    ("rot at different records of two copies loses nothing", rot_at_different_records),
    ("a hole that a silent copy could fill is not lost", hole_that_a_silent_copy_has),
    ("what rotted everywhere is told, and left out alike", hole_on_all_copies),
    ("a copy that promises tells what it has written, too", written_before_a_promise),
    ("whoever lost a disk or its votes does not answer for it", disks_that_forgot),
    ("two lost disks of three are not the end of a partition", two_lost_disks),
    ("the log that is left of a disk without votes saves what others cut", log_that_is_left),
    ("a copy that forgot its votes confirms no leader that slept", votes_that_were_forgotten),
    ("a copy that was counted does not go as scratch", scratch_that_was_counted),
    ("of two copies of which each was given up in its turn one stays", given_up_in_turn),
    ("who has written what outlives the segment that it was written to", table_behind_what_went),
];

struct Script {
    world: World,
    sent: Vec<Flight>,
    segment: SegmentId,
    /// The nodes, by place in the replica set.
    nodes: Vec<NodeId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Append,
    Assigned,
    Fence,
    Accept,
}

fn kind(message: &Message) -> Option<Kind> {
    match message {
        Message::Append(_) => Some(Kind::Append),
        Message::Assigned(_) => Some(Kind::Assigned),
        Message::Fence(_) => Some(Kind::Fence),
        Message::Accept(_) => Some(Kind::Accept),
        Message::Sealed(_) => None,
    }
}

impl Script {
    fn start(mistake: Option<Mistake>) -> Self {
        Self::start_filled(0, mistake)
    }

    /// Starts with so many acknowledged batches on all copies.
    fn start_filled(written: u8, mistake: Option<Mistake>) -> Self {
        let replication = Replication::DEFAULT;
        let world = World::new(Setting {
            replication,
            nodes: 3,
            written,
            sealed: 0,
            idempotent: true,
            cleans: false,
            coordinates: false,
            mistake,
        });
        let segment = world.last_segment().expect("the first");
        let nodes = world.descriptor(segment).replicas.iter().map(|replica| replica.node).collect();
        Self { world, sent: Vec::new(), segment, nodes }
    }

    /// Delivers the last message of a kind to a place, and its answer at once.
    fn deliver(&mut self, wanted: Kind, place: usize) -> Checked {
        self.sent.append(&mut self.world.outbox);
        let is_wanted = |flight: &&Flight| matches!(flight, Flight::To { to, message, .. } if *to == place && kind(message) == Some(wanted));
        let flight = self.sent.iter().rfind(is_wanted).cloned();
        if let Some(flight) = flight {
            self.world.deliver(&flight, None)?;
        }
        self.answer()
    }

    fn answer(&mut self) -> Checked {
        self.sent.append(&mut self.world.outbox);
        while let Some(at) = self.sent.iter().position(|flight| matches!(flight, Flight::Back { .. })) {
            let answer = self.sent.remove(at);
            self.world.deliver(&answer, None)?;
            self.sent.append(&mut self.world.outbox);
        }
        Ok(())
    }

    fn sync(&mut self, place: usize) -> Checked {
        self.world.sync(self.nodes[place], self.segment)?;
        self.answer()
    }

    /// Ends a process, and lets it find its synced tail torn when it starts.
    fn tear(&mut self, place: usize) -> Checked {
        self.world.crash(self.nodes[place], 0, Some(Rot::Tail(self.segment)))?;
        self.world.restart(self.nodes[place])
    }

    /// Ends a process, and lets it find a batch damaged when it starts.
    fn rot(&mut self, place: usize, batch: usize) -> Checked {
        self.world.crash(self.nodes[place], 0, Some(Rot::Hole(self.segment, batch)))?;
        self.world.restart(self.nodes[place])
    }

    fn fill(&mut self, place: usize) -> Checked {
        self.world.fill_hole(self.nodes[place], self.segment)
    }

    fn expect(&self, what: &str, is_so: bool) -> Checked {
        if is_so { Ok(()) } else { Err(Violation(format!("{what}: {:?}", self.decided()))) }
    }

    /// Tells all copies the decision, and expects that it seals them.
    fn expect_all_sealed(&mut self) -> Checked {
        (0..3).try_for_each(|place| self.world.notify(self.nodes[place], self.segment))?;
        let is_sealed = |node: &NodeId| {
            let held = &self.world.nodes[node.0 as usize - 1].held[&self.segment];
            held.stored.promises.sealed.is_some()
        };
        self.expect("all copies are sealed", self.nodes.iter().all(is_sealed))
    }

    fn decided(&self) -> Option<&Value> {
        self.world.promised.decided.get(&self.segment)
    }

    /// Begins an attempt that asks some places for promises and votes.
    fn recover<const COUNT: usize>(&mut self, places: [usize; COUNT]) -> Checked {
        self.world.recover(&[])?;
        let of_this = Sender::Recoverer(self.world.recoverers.len() - 1);
        self.sent.append(&mut self.world.outbox);
        self.sent.retain(|flight| matches!(flight, Flight::To { from, .. } if *from == of_this));
        places.into_iter().try_for_each(|place| self.deliver(Kind::Fence, place))?;
        places.into_iter().try_for_each(|place| self.deliver(Kind::Accept, place))
    }
}

/// The leader's own copy is slow. The second one acknowledges, loses its tail, and is told of the high watermark, which
/// does not count that batch yet; then the leader's copy is durable, and the batch counts as stored by both.
fn filled_to_the_high_watermark(mistake: Option<Mistake>) -> Checked {
    let mut script = Script::start(mistake);
    script.world.append(script.segment)?;
    script.sent.append(&mut script.world.outbox);
    let first = script.sent.clone();
    script.deliver(Kind::Append, 1)?;
    script.sync(1)?;
    script.tear(1)?;
    script.world.leader_step(script.segment, LeaderInput::Reconnected { to: 1 })?;
    script.world.leader_step(script.segment, LeaderInput::Send { to: 1, batches_max: 1 })?;
    script.deliver(Kind::Append, 1)?;
    script.deliver(Kind::Assigned, 1)?;
    script.sent = first;
    script.deliver(Kind::Append, 0)?;
    script.sync(0)?;
    script.recover([1, 2])
}

/// A first attempt had to count a suspect copy and a gone disk, and its votes made that copy sound again; a second one
/// finds nothing wrong any more.
fn possible_loss_is_decided(mistake: Option<Mistake>) -> Checked {
    let mut script = Script::start(mistake);
    script.world.append(script.segment)?;
    script.deliver(Kind::Append, 1)?;
    script.sync(1)?;
    script.tear(1)?;
    script.world.lose_disk(script.nodes[0])?;
    script.world.declare_gone(script.nodes[0])?;
    script.recover([1, 2])?;
    script.recover([1, 2])
}

/// Two nodes come back with rot, each at another record, and the third does not: the partition was dead, though every
/// record had a good copy. Each fills its hole from the other's log, which cannot vote yet.
fn rot_at_different_records(mistake: Option<Mistake>) -> Checked {
    let mut script = Script::start_filled(3, mistake);
    script.world.crash(script.nodes[2], 0, None)?;
    script.rot(0, 0)?;
    script.rot(1, 1)?;
    script.recover([0, 1])?;
    script.expect("nothing is decided while no copy is whole", script.decided().is_none())?;
    script.fill(0)?;
    script.fill(1)?;
    script.recover([0, 1])?;
    script.expect("everything is there", script.decided().is_some_and(|value| value.lost.is_empty()))
}

/// The third copy has what rotted on both others, and is down: it is waited for.
fn hole_that_a_silent_copy_has(mistake: Option<Mistake>) -> Checked {
    let mut script = Script::start_filled(3, mistake);
    script.world.crash(script.nodes[2], 0, None)?;
    script.rot(0, 1)?;
    script.rot(1, 1)?;
    script.recover([0, 1])?;
    script.expect("somebody may have it", script.decided().is_none())?;
    script.world.restart(script.nodes[2])?;
    script.recover([0, 1, 2])?;
    script.expect("only one copy can vote", script.decided().is_none())?;
    script.fill(0)?;
    script.recover([0, 1, 2])?;
    script.expect("everything is there", script.decided().is_some_and(|value| value.lost.is_empty()))
}

/// All have answered and none has it: the decision says so, and the other records are there.
fn hole_on_all_copies(mistake: Option<Mistake>) -> Checked {
    let mut script = Script::start_filled(3, mistake);
    (0..3).try_for_each(|place| script.rot(place, 1))?;
    script.recover([0, 1, 2])?;
    script.expect("one batch is told", script.decided().is_some_and(|value| value.lost.len() == 1))?;
    script.expect_all_sealed()
}

/// Two copies acknowledge two batches, and the first one rots on both. The third copy has written both, and not synced them
/// when it promises: a decision that called the first batch lost would be contradicted by that copy, which could never be
/// sealed.
fn written_before_a_promise(mistake: Option<Mistake>) -> Checked {
    let mut script = Script::start(mistake);
    for _ in 0..2 {
        script.world.append(script.segment)?;
        (0..3).try_for_each(|place| script.deliver(Kind::Append, place))?;
    }
    for place in [0, 1] {
        script.sync(place)?;
        script.rot(place, 0)?;
    }
    script.recover([0, 1, 2])?;
    script.expect("one copy has everything, and cannot vote alone", script.decided().is_none())?;
    script.sync(2)?;
    (0..2).try_for_each(|place| script.fill(place))?;
    script.recover([0, 1, 2])?;
    script.expect("everything is there", script.decided().is_some_and(|value| value.lost.is_empty()))?;
    script.expect_all_sealed()
}

/// Two copies acknowledge a batch, and one of them forgets that: with the third, which never had it, it would be one of f.
fn disks_that_forgot(mistake: Option<Mistake>) -> Checked {
    for forget in [World::lose_disk, World::lose_journal] {
        let mut script = Script::start(mistake);
        script.world.append(script.segment)?;
        for place in [0, 1] {
            script.deliver(Kind::Append, place)?;
            script.sync(place)?;
        }
        forget(&mut script.world, script.nodes[0])?;
        if !script.world.nodes[script.nodes[0].0 as usize - 1].lost {
            script.world.restart(script.nodes[0])?; // as the same disk, by mistake
        }
        script.recover([0, 2])?;
        script.expect("two do not answer", script.decided().is_none())?;
    }
    Ok(())
}

/// Fewer than w disks are left: the last one decides alone, and what may be lost is told.
fn two_lost_disks(mistake: Option<Mistake>) -> Checked {
    let mut script = Script::start_filled(2, mistake);
    for place in [0, 1] {
        script.world.lose_disk(script.nodes[place])?;
        script.world.declare_gone(script.nodes[place])?;
        script.world.add_node(); // for the next segment
    }
    script.recover([2])?;
    script.expect(
        "what is there is told as all",
        script.decided().is_some_and(|v| v.possible_loss.len() == 1),
    )?;
    script.expect("what the last one has is there", script.decided().is_some_and(|v| v.end.0 > 0))
}

/// Two copies acknowledge a batch; one loses its tail, the other its votes. The batch is in the log that is left.
fn log_that_is_left(mistake: Option<Mistake>) -> Checked {
    let mut script = Script::start(mistake);
    script.world.append(script.segment)?;
    for place in [0, 1] {
        script.deliver(Kind::Append, place)?;
        script.sync(place)?;
    }
    let acknowledged = script.world.promised.acknowledged.get(&script.segment).map(|mark| mark.end);
    script.world.lose_journal(script.nodes[0])?;
    script.world.declare_gone(script.nodes[0])?;
    script.tear(1)?;
    script.recover([1, 2])?;
    let end = script.decided().map(|value| value.end);
    script.expect("what was acknowledged is there", end.is_some() && end == acknowledged)
}

/// The leader sleeps while the others decide its segment's end, seal it and forget their votes; then the metadata lose the
/// decision, and list the segment as open again.
fn votes_that_were_forgotten(mistake: Option<Mistake>) -> Checked {
    let mut script = Script::start_filled(1, mistake);
    let open = Arc::clone(&script.world.metadata);
    script.recover([1, 2])?;
    script.world.publish(script.segment)?;
    let sealed = Arc::clone(&script.world.metadata);
    for node in [script.nodes[1], script.nodes[2]] {
        script.world.notify(node, script.segment)?;
        script.expect("its votes may go", script.world.may_forget(node, script.segment, &sealed))?;
        script.world.forget_votes(node, script.segment);
    }
    let known = vec![open; script.nodes.len()];
    let is_sure = script.world.claim(script.segment, &known, |_| true)?;
    script.expect("nobody confirms it", !is_sure)
}

/// The only copy of a compacted segment is counted, and those that it was made of go. Then the metadata forget that they ever
/// listed it, and its node starts anew.
fn scratch_that_was_counted(mistake: Option<Mistake>) -> Checked {
    let replication = Replication::single();
    let mut world = World::new(Setting {
        replication,
        nodes: 1,
        written: 3,
        sealed: 2,
        idempotent: true,
        cleans: true,
        coordinates: false,
        mistake,
    });
    let (node, forgotten) = (NodeId(1), Arc::clone(&world.metadata));
    world.begin_pass(node, &forgotten)?;
    world.step_pass(node, &forgotten)?;
    do_all_chores(&mut world, node)?;
    world.roll_back(forgotten)?;
    world.crash(node, 0, None)?;
    world.restart(node)?;
    do_all_chores(&mut world, node)?;
    match world.unclean() {
        Some(left) => Err(Violation(left)),
        None => Ok(()),
    }
}

/// A copy moves to another node, and the metadata forget the second half of that: both are listed as verified again, though the
/// first one is gone, and this time it is the second one that is given up.
fn given_up_in_turn(mistake: Option<Mistake>) -> Checked {
    let replication = Replication::single();
    let mut world = World::new(Setting {
        replication,
        nodes: 2,
        written: 3,
        sealed: 1,
        idempotent: true,
        cleans: true,
        coordinates: false,
        mistake,
    });
    let segment = world.first_segment().expect("it is listed");
    let first = world.descriptor(segment).leader.node;
    let second = NodeId(3 - first.0);
    do_all_chores(&mut world, first)?;
    world.set_copies(segment, &[second], &[])?;
    do_all_chores(&mut world, second)?;
    let forgotten = Arc::clone(&world.metadata);
    world.set_copies(segment, &[], &[first])?;
    do_all_chores(&mut world, first)?;
    world.roll_back(forgotten)?;
    world.set_copies(segment, &[], &[second])?;
    for _ in 0..4 {
        do_all_chores(&mut world, second)?;
        do_all_chores(&mut world, first)?;
        world.keep_copies()?;
    }
    match world.unclean() {
        Some(left) => Err(Violation(left)),
        None => Ok(()),
    }
}

/// All records are deleted and their segment goes. Then the leader of the empty one behind it loses its disk.
fn table_behind_what_went(mistake: Option<Mistake>) -> Checked {
    let replication = Replication::DEFAULT;
    let mut world = World::new(Setting {
        replication,
        nodes: 3,
        written: 3,
        sealed: 1,
        idempotent: true,
        cleans: true,
        coordinates: false,
        mistake,
    });
    let open = world.last_segment().expect("it is listed");
    let (leader, start) = (world.descriptor(open).leader.node, world.descriptor(open).first());
    world.delete_records(start)?;
    world.expire()?;
    for node in [1, 2, 3] {
        do_all_chores(&mut world, NodeId(node))?;
    }
    world.lose_disk(leader)?;
    world.declare_gone(leader)?;
    world.add_node();
    world.recover(&[])?;
    while !world.outbox.is_empty() {
        for flight in std::mem::take(&mut world.outbox) {
            world.deliver(&flight, None)?;
        }
    }
    world.publish(open)?;
    match world.last_segment() {
        Some(next) if next != open => world.open(next),
        _ => Err(Violation(format!("nobody could decide where {open:?} ends"))),
    }
}

/// Lets a node do what it finds to do, by the latest metadata, until there is nothing left, or nothing that helps.
fn do_all_chores(world: &mut World, node: NodeId) -> Checked {
    for _ in 0..100 {
        let known = Arc::clone(&world.metadata);
        let Some(chore) = world.chores(node, &known).pop() else { break };
        world.do_chore(node, &known, &chore)?;
    }
    Ok(())
}
