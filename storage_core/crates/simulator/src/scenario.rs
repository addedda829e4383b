//! Lives written down event by event: the shortest ones that earlier wordings of the rules did not survive, where a search
//! would take long to come by them again.

use walrus_metadata::Replication;
use walrus_replica::{LeaderInput, Message, NodeId, SegmentId};

use crate::mistake::Mistake;
use crate::world::{Checked, Flight, Sender, Setting, World};

/// One of them.
pub type Scenario = (&'static str, fn(Option<Mistake>) -> Checked);

/// All of them.
pub const SCENARIOS: [Scenario; 2] = [
    ("a suspect copy that is filled to the high watermark is still suspect", filled_to_the_high_watermark),
    ("what may be lost is part of what is decided", possible_loss_is_decided),
];

struct Script {
    world: World,
    sent: Vec<Flight>,
    segment: SegmentId,
    /// By place in the replica set.
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
        let world =
            World::new(Setting { replication: Replication::DEFAULT, nodes: 3, idempotent: true, mistake });
        let segment = world.last_segment().expect("the first");
        let nodes = world.descriptor(segment).replicas.iter().map(|replica| replica.node).collect();
        Self { world, sent: Vec::new(), segment, nodes }
    }

    /// The last message of a kind to a place arrives, and its answer at once.
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

    /// Its process dies, and its synced tail is found torn when it starts.
    fn tear(&mut self, place: usize) -> Checked {
        self.world.crash(self.nodes[place], 0, Some(self.segment))?;
        self.world.restart(self.nodes[place])
    }

    /// A recoverer asks two places for promises and votes.
    fn recover(&mut self, places: [usize; 2]) -> Checked {
        self.world.recover()?;
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
