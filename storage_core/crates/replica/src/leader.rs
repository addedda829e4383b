//! The process that orders the appends of one open segment.

use walrus_model::{Ballot, Descriptor, Offset, ProcessId, Value};

use crate::batch::{Batch, Mark};
use crate::cut::CutId;
use crate::message::{Accept, Append, Assigned, Message, Refusal, Reply};
use crate::replica::Alarm;
use crate::seeded;
use crate::tape::Tape;

/// The leader of a segment, as a state machine. It is made once per process incarnation and segment, and never after a
/// restart (R7). The replica on its own node is one like the others, and counts when it acknowledges.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leader {
    descriptor: Descriptor,
    /// The batches that were assigned, from where the slowest replica is on.
    tape: Tape,
    /// The replicas, by place in the replica set.
    followers: Vec<Follower>,
    /// First offset not yet on w disks. Never moves back.
    high_watermark: Offset,
    phase: LeaderPhase,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Follower {
    /// First offset that it has not acknowledged. Only grows.
    durable_end: Offset,
    /// First offset that it is to be sent next.
    next: Offset,
    /// Whether it takes no more appends of this epoch.
    refused: bool,
    /// Whether it lacks batches that are not on the tape any more: it gets them only after the seal.
    behind: bool,
}

/// The phase of a leader.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaderPhase {
    /// It takes appends.
    Leading,
    /// Too many replicas refuse for anything to be acknowledged: a recoverer is at work.
    Deposed,
    /// The high watermark stands still and is voted on with ballot 0.
    Frozen {
        /// The value that it proposes, once.
        value: Value,
        /// Which replicas have voted for it, by place.
        accepted: Vec<bool>,
    },
    /// The end is decided, as this leader proposed or otherwise.
    Ended {
        /// The decided value.
        value: Value,
    },
}

/// An event that the driver tells the leader.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaderInput {
    /// A batch gets the next offsets.
    Assign(Batch),
    /// There is room on the way to a replica.
    Send {
        /// Place of the replica.
        to: usize,
        /// Limit on the batches of the message.
        batches_max: usize,
    },
    /// A new connection to a replica: what was on the way is lost.
    Reconnected {
        /// Place of the replica.
        to: usize,
    },
    /// A replica answered.
    Reply {
        /// Place of the replica.
        from: usize,
        /// The answer.
        reply: Reply,
    },
    /// A planned roll: the segment is to end here, and appends go on in its successor.
    Freeze {
        /// The successor as the metadata allotted it, without a base.
        successor: Descriptor,
    },
    /// The votes take too long.
    Impatient,
    /// The decision became known from the metadata or a sealed copy.
    Learned(Value),
}

/// An act that the leader asks of its driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaderOutput {
    /// Send a message to a replica.
    Send {
        /// Place of the replica.
        to: usize,
        /// The message.
        message: Message,
    },
    /// Acknowledge everything below and let it be read: it is on w disks.
    HighWatermark(Offset),
    /// Take no more appends: somebody else decides the end. Waiting appends wait for [`LeaderOutput::Ended`].
    Deposed,
    /// Ask the metadata for a recovery: the votes cannot be had, or take too long.
    Recover,
    /// Ask for a roll: the replica lacks too much, and its copy can only be made whole after the seal.
    Behind {
        /// Place of the replica.
        replica: usize,
    },
    /// End with the decided value: acknowledge appends below its end, send the others to the next segment, in order, once, let
    /// the successor serve, and tell the metadata.
    Ended(Value),
    /// Raise an alarm: somebody must look at this.
    Alarm(Alarm),
}

impl Leader {
    /// Opens a segment: the caller is the process that the descriptor names, it has not opened it before, and it knows
    /// from metadata, a sealed copy or w votes for one ballot that the segment before ends at the base (R3).
    ///
    /// # Panics
    /// If the descriptor names another process, or is not sound.
    #[must_use]
    pub fn open(descriptor: Descriptor, me: ProcessId) -> Self {
        assert!(descriptor.is_sound(), "{descriptor:?}");
        assert_eq!(descriptor.leader.process, me, "a leader never resumes another process's segment (R7)");
        let base = descriptor.first();
        let follower = Follower { durable_end: base, next: base, refused: false, behind: false };
        let followers = vec![follower; descriptor.replicas.len()];
        let (tape, phase) = (Tape::empty(base), LeaderPhase::Leading);
        Self { descriptor, tape, followers, high_watermark: base, phase }
    }

    /// The segment.
    #[must_use]
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// First offset not yet on w disks.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// First offset not assigned yet.
    #[must_use]
    pub fn assigned_end(&self) -> Offset {
        self.tape.end()
    }

    /// The place where the next batch goes, with the digest of everything before it.
    #[must_use]
    pub fn last(&self) -> Mark {
        self.tape.last()
    }

    /// The leader's phase.
    #[must_use]
    pub fn phase(&self) -> &LeaderPhase {
        &self.phase
    }

    /// First offset that a replica has not acknowledged.
    #[must_use]
    pub fn durable_end(&self, replica: usize) -> Offset {
        self.followers[replica].durable_end
    }

    /// First offset that a replica is to be sent next.
    #[must_use]
    pub fn next(&self, replica: usize) -> Offset {
        self.followers[replica].next
    }

    /// Whether a [`LeaderInput::Send`] to a replica would send batches.
    #[must_use]
    pub fn has_batches_for(&self, replica: usize) -> bool {
        let follower = &self.followers[replica];
        self.phase == LeaderPhase::Leading
            && !follower.refused
            && !follower.behind
            && follower.next < self.tape.end()
    }

    /// Takes one event, and says what is to be done because of it, in order.
    pub fn step(&mut self, input: LeaderInput) -> Vec<LeaderOutput> {
        let before = self.high_watermark;
        let mut outputs = Vec::new();
        match input {
            LeaderInput::Assign(batch) => {
                assert_eq!(self.phase, LeaderPhase::Leading, "an append behind the end");
                self.tape.push(batch);
            }
            LeaderInput::Send { to, batches_max } => self.send(to, batches_max, &mut outputs),
            LeaderInput::Reconnected { to } => self.reconnected(to, &mut outputs),
            LeaderInput::Reply { from, reply } => self.reply(from, reply, &mut outputs),
            LeaderInput::Freeze { successor } => self.freeze(successor, &mut outputs),
            LeaderInput::Impatient => {
                if matches!(self.phase, LeaderPhase::Frozen { .. }) {
                    outputs.push(LeaderOutput::Recover); // R3
                }
            }
            LeaderInput::Learned(value) => self.end(value, &mut outputs),
        }
        assert!(self.high_watermark >= before, "the high watermark moved back");
        assert!(self.high_watermark <= self.tape.end(), "acknowledged and never assigned");
        outputs
    }

    fn send(&mut self, to: usize, batches_max: usize, outputs: &mut Vec<LeaderOutput>) {
        let follower = &mut self.followers[to];
        if self.phase != LeaderPhase::Leading || follower.refused || follower.behind {
            return;
        }
        let Some(digest) = self.tape.digest_at(follower.next) else { return self.fall_behind(to, outputs) };
        let from = Mark { end: follower.next, digest };
        let batches: Vec<Batch> = self.tape.batches(from.end, self.tape.end()).take(batches_max).collect();
        follower.next = batches.last().map_or(from.end, |last| last.end);
        let (epoch, writer) = (self.descriptor.epoch, self.descriptor.leader.process);
        let append = Append { epoch, writer, from, batches, commit: self.high_watermark };
        outputs.push(LeaderOutput::Send { to, message: Message::Append(append) });
    }

    fn reconnected(&mut self, to: usize, outputs: &mut Vec<LeaderOutput>) {
        self.followers[to].next = self.followers[to].durable_end;
        self.ask_vote(to, self.followers[to].durable_end, outputs);
    }

    fn reply(&mut self, from: usize, reply: Reply, outputs: &mut Vec<LeaderOutput>) {
        match reply {
            Reply::Ack { durable_end, suspect } => {
                if durable_end > self.tape.end() {
                    return outputs.push(LeaderOutput::Alarm(Alarm::TwoWriters)); // somebody else wrote there
                }
                let follower = &mut self.followers[from];
                follower.durable_end = if seeded!(HighWatermarkMovesBack) {
                    durable_end
                } else {
                    follower.durable_end.max(durable_end)
                };
                follower.next = follower.next.max(durable_end);
                self.answer_suspect(from, suspect, outputs);
                self.advance(outputs);
            }
            Reply::Accepted { ballot } => self.accepted(from, ballot, outputs),
            Reply::Refused(refusal) => self.refused(from, refusal, outputs),
            Reply::Promised(_) | Reply::Sealed => {}
        }
    }

    /// Tells a suspect replica the assigned end (R8), in answer to a message sent after the cut, and only while this leader
    /// still assigns.
    fn answer_suspect(&self, to: usize, suspect: Option<CutId>, outputs: &mut Vec<LeaderOutput>) {
        if let (Some(cut), LeaderPhase::Leading) = (suspect, &self.phase) {
            let end = if seeded!(ClearedAtHighWatermark) { self.high_watermark } else { self.tape.end() };
            let assigned = Assigned { writer: self.descriptor.leader.process, cut, end };
            outputs.push(LeaderOutput::Send { to, message: Message::Assigned(assigned) });
        }
    }

    /// Moves the high watermark to the w-th largest durable end (R2). In a frozen leader it stands still, whatever is
    /// acknowledged late (R3).
    fn advance(&mut self, outputs: &mut Vec<LeaderOutput>) {
        let moves = matches!(self.phase, LeaderPhase::Leading | LeaderPhase::Deposed);
        if moves || (seeded!(WatermarkNotFrozen) && matches!(self.phase, LeaderPhase::Frozen { .. })) {
            let mut ends: Vec<Offset> = self.followers.iter().map(|follower| follower.durable_end).collect();
            ends.sort_unstable_by(|left, right| right.cmp(left));
            let reached = ends[self.descriptor.write_quorum() - 1];
            if reached > self.high_watermark
                || (seeded!(HighWatermarkMovesBack) && reached < self.high_watermark)
            {
                self.high_watermark = reached;
                outputs.push(LeaderOutput::HighWatermark(reached));
            }
            self.forget();
        }
    }

    /// Forgets the marks that no replica may still be sent, and that no vote can be about: they are in the log.
    fn forget(&mut self) {
        let reachable = self.followers.iter().filter(|follower| !follower.refused && !follower.behind);
        let lowest = reachable.map(|follower| follower.durable_end.min(follower.next)).min();
        self.tape.forget_below(lowest.map_or(self.high_watermark, |lowest| lowest.min(self.high_watermark)));
    }

    /// Proposes one value, once, whose end is what is on w disks (R3); the watermark stands still before the first vote is
    /// asked for.
    fn freeze(&mut self, successor: Descriptor, outputs: &mut Vec<LeaderOutput>) {
        if self.phase != LeaderPhase::Leading {
            return;
        }
        assert!(successor.epoch > self.descriptor.epoch, "epochs grow (S6)");
        let end = self.high_watermark;
        let digest = self.tape.digest_at(end).expect("the high watermark is an end of a batch");
        let value = Value::without_loss(end, digest, successor.starting_at(end));
        self.phase = LeaderPhase::Frozen { value, accepted: vec![false; self.followers.len()] };
        for to in 0..self.followers.len() {
            self.ask_vote(to, self.followers[to].durable_end, outputs);
        }
    }

    fn ask_vote(&mut self, to: usize, from: Offset, outputs: &mut Vec<LeaderOutput>) {
        let LeaderPhase::Frozen { value, .. } = &self.phase else { return };
        if from < value.end && self.tape.digest_at(from).is_none() {
            return self.fall_behind(to, outputs);
        }
        let ballot = Ballot::zero(self.descriptor.epoch);
        let missing = self.tape.batches(from, value.end).collect();
        let accept = Accept { ballot, value: value.clone(), missing };
        outputs.push(LeaderOutput::Send { to, message: Message::Accept(accept) });
    }

    fn accepted(&mut self, from: usize, ballot: Ballot, outputs: &mut Vec<LeaderOutput>) {
        let LeaderPhase::Frozen { value, accepted } = &mut self.phase else { return };
        if ballot != Ballot::zero(self.descriptor.epoch) {
            return;
        }
        accepted[from] = true;
        if accepted.iter().filter(|vote| **vote).count() >= self.descriptor.write_quorum() {
            let value = value.clone();
            self.end(value, outputs);
        }
    }

    fn refused(&mut self, from: usize, refusal: Refusal, outputs: &mut Vec<LeaderOutput>) {
        match refusal {
            Refusal::Gap { end, suspect } => {
                self.answer_suspect(from, suspect, outputs);
                if self.tape.digest_at(end).is_none() && end < self.tape.end() {
                    return self.fall_behind(from, outputs);
                }
                self.followers[from].next = end.min(self.tape.end());
                self.ask_vote(from, end, outputs);
            }
            Refusal::Sealed { value } => self.end(value, outputs),
            // The replica fills its holes from the logs of others; the next connection asks again (R14).
            Refusal::Holes { .. } => {}
            Refusal::Fenced { .. }
            | Refusal::Voted { .. }
            | Refusal::OtherWriter { .. }
            | Refusal::OtherReplica
            | Refusal::Diverged => self.lose(from, outputs),
        }
    }

    /// Counts a replica out for acknowledgements; where fewer than w are left, somebody else must decide.
    fn lose(&mut self, replica: usize, outputs: &mut Vec<LeaderOutput>) {
        self.followers[replica].refused = true;
        let left = self.followers.iter().filter(|follower| !follower.refused).count();
        if left >= self.descriptor.write_quorum() {
            return;
        }
        match self.phase {
            LeaderPhase::Leading => {
                self.phase = LeaderPhase::Deposed;
                outputs.push(LeaderOutput::Deposed);
            }
            LeaderPhase::Frozen { .. } => outputs.push(LeaderOutput::Recover),
            LeaderPhase::Deposed | LeaderPhase::Ended { .. } => {}
        }
    }

    fn fall_behind(&mut self, replica: usize, outputs: &mut Vec<LeaderOutput>) {
        if !std::mem::replace(&mut self.followers[replica].behind, true) {
            outputs.push(LeaderOutput::Behind { replica });
        }
    }

    /// Ends with the decided value, whoever proposed it: everything acknowledged lies below its end (S1).
    fn end(&mut self, value: Value, outputs: &mut Vec<LeaderOutput>) {
        if let LeaderPhase::Ended { value: known } = &self.phase {
            if *known != value {
                outputs.push(LeaderOutput::Alarm(Alarm::TwoValues));
            }
            return;
        }
        // The decided digest leaves out lost batches, which this process has assigned: then the two cannot be compared.
        let is_same = !value.lost.is_empty() || self.tape.digest_at(value.end) == Some(value.digest);
        // Batches behind a loss stay, and the decision tells of them; a lost batch must not be acknowledged.
        let lost = value.lost.iter().find(|range| range.end > self.high_watermark);
        let reached = lost.map_or(value.end, |range| range.start.max(self.high_watermark));
        if value.end < self.high_watermark || !is_same {
            outputs.push(LeaderOutput::Alarm(Alarm::Diverged { end: value.end }));
        } else if reached > self.high_watermark {
            self.high_watermark = reached;
            outputs.push(LeaderOutput::HighWatermark(reached));
        }
        self.phase = LeaderPhase::Ended { value: value.clone() };
        outputs.push(LeaderOutput::Ended(value));
    }
}
