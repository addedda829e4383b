//! A recoverer: one attempt to decide where a segment ends whose leader does not.

use walrus_model::{Ballot, Descriptor, Offset, OffsetRange, Value, ranges};

use crate::batch::Mark;
use crate::message::{Accept, Fence, FenceAnswer, Message, Refusal, Reply, SealedNotice};
use crate::seeded;

/// An attempt to decide a segment's end, as a state machine. The metadata have put the segment into `sealing` with its
/// ballot, at a fresh epoch, before it is made (R4). Any number of them may be at work; the highest ballot wins, and all
/// decide the same value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Recoverer {
    descriptor: Descriptor,
    ballot: Ballot,
    /// The next segment that it proposes, if the end is still free to choose.
    successor: Descriptor,
    /// The replicas, by place in the replica set.
    candidates: Vec<Candidate>,
    phase: RecovererPhase,
}

/// The knowledge of one replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::large_enum_variant, reason = "a recoverer holds one for each replica, and no more")]
pub enum Candidate {
    /// It has not answered yet.
    Silent,
    /// The metadata list its disk as gone: it counts towards all n answers, never towards f.
    Gone,
    /// Its disk is gone too, for it forgot its votes; but its log is still there, whole up to this mark. It votes for
    /// nothing, and its batches are as good as anybody's: the segment has one writer (R11).
    Left(Mark),
    /// It has promised.
    Promised(FenceAnswer),
}

/// The phase of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecovererPhase {
    /// It collects promises.
    Fencing,
    /// It has chosen, once, and collects votes.
    Voting {
        /// The choice.
        value: Value,
        /// Which replicas have voted, by place.
        accepted: Vec<bool>,
    },
    /// Nobody is left to vote; the value is decided if the metadata publish it.
    Unvoted {
        /// The choice.
        value: Value,
    },
    /// w replicas voted for it.
    Decided {
        /// The decided value.
        value: Value,
    },
    /// A higher ballot was seen: look at the metadata, and try again above it if it is still needed.
    Outbid {
        /// The ballot that was seen.
        promised: Ballot,
    },
}

/// An event that the driver tells the recoverer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::large_enum_variant, reason = "a step takes one, and keeps none")]
pub enum RecovererInput {
    /// Time to ask: begins, and repeats every question that is unanswered.
    Ask,
    /// The metadata say that this disk is gone.
    Gone {
        /// Place of the replica.
        replica: usize,
        /// End of the log that is left of it, up to which it is whole and others can fetch from it.
        left: Option<Mark>,
    },
    /// A replica answered.
    Reply {
        /// Place of the replica.
        from: usize,
        /// The answer.
        reply: Reply,
    },
}

/// An act that the recoverer asks of its driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecovererOutput {
    /// Send a message to a replica. Where there is a `fill`, its `missing` is first fetched from one of the sources.
    Send {
        /// Place of the replica.
        to: usize,
        /// The message.
        message: Message,
        /// First offset to fetch, up to the value's end, and the places of the sources.
        fill: Option<(Offset, Vec<usize>)>,
    },
    /// Tell the decided value to the metadata, and then to all replicas.
    Decided(Value),
    /// Tell the choice to the metadata, and to nobody else before they have taken it.
    Unvoted(Value),
    /// End the attempt: this higher ballot was seen.
    Outbid(Ballot),
}

impl Recoverer {
    /// An attempt under a ballot that the metadata gave to nobody else.
    ///
    /// # Panics
    /// If the ballot is not above the segment's epoch, or the successor's epoch not above the segment's.
    #[must_use]
    pub fn new(descriptor: Descriptor, ballot: Ballot, successor: Descriptor) -> Self {
        assert!(ballot.epoch > descriptor.epoch && !ballot.is_zero(), "{ballot:?} is no recoverer's");
        assert!(successor.epoch > descriptor.epoch && descriptor.is_sound(), "epochs grow (S6)");
        let candidates = vec![Candidate::Silent; descriptor.replicas.len()];
        Self { descriptor, ballot, successor, candidates, phase: RecovererPhase::Fencing }
    }

    /// The segment.
    #[must_use]
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The attempt's ballot.
    #[must_use]
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// The attempt's phase.
    #[must_use]
    pub fn phase(&self) -> &RecovererPhase {
        &self.phase
    }

    /// The knowledge of the replicas, by place.
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// Places of the replicas that hold all of a value, as far as they told. A replica that has voted for it does.
    #[must_use]
    pub fn sources(&self, value: &Value) -> Vec<usize> {
        let has_voted = |place: usize| match &self.phase {
            RecovererPhase::Voting { accepted, .. } => accepted[place],
            _ => false,
        };
        let holds = |place: usize| match &self.candidates[place] {
            Candidate::Promised(answer) => answer.durable_end >= value.end && value.leaves_out(&answer.holes),
            Candidate::Left(last) => last.end >= value.end && value.leaves_out(&[]),
            Candidate::Silent | Candidate::Gone => false,
        };
        (0..self.candidates.len()).filter(|place| holds(*place) || has_voted(*place)).collect()
    }

    /// Takes one event, and says what is to be done because of it, in order.
    pub fn step(&mut self, input: RecovererInput) -> Vec<RecovererOutput> {
        let mut outputs = Vec::new();
        match input {
            RecovererInput::Ask => self.ask(&mut outputs),
            RecovererInput::Gone { replica, left } => {
                if self.candidates[replica] == Candidate::Silent {
                    self.candidates[replica] = left.map_or(Candidate::Gone, Candidate::Left);
                    self.try_choose(&mut outputs);
                    self.count_votes(&mut outputs);
                }
            }
            RecovererInput::Reply { from, reply } => self.reply(from, reply, &mut outputs),
        }
        if let RecovererPhase::Voting { value, accepted } = &self.phase {
            assert!(accepted.iter().filter(|vote| **vote).count() < self.votes_needed());
            assert!(value.end >= self.descriptor.first(), "the end is below the base (S6)");
        }
        outputs
    }

    fn ask(&self, outputs: &mut Vec<RecovererOutput>) {
        for to in 0..self.candidates.len() {
            match (&self.phase, &self.candidates[to]) {
                (RecovererPhase::Fencing, Candidate::Silent) => self.ask_promise(to, outputs),
                // It fills its holes meanwhile, and may answer with fewer (R14).
                (RecovererPhase::Fencing, Candidate::Promised(answer)) if !answer.holes.is_empty() => {
                    self.ask_promise(to, outputs);
                }
                (RecovererPhase::Voting { accepted, .. }, _) if !accepted[to] => {
                    self.ask_vote(to, None, outputs)
                }
                _ => {}
            }
        }
    }

    fn ask_promise(&self, to: usize, outputs: &mut Vec<RecovererOutput>) {
        let message = Message::Fence(Fence { ballot: self.ballot });
        outputs.push(RecovererOutput::Send { to, message, fill: None });
    }

    fn reply(&mut self, from: usize, reply: Reply, outputs: &mut Vec<RecovererOutput>) {
        match reply {
            Reply::Promised(answer) => {
                // One choice per attempt: what comes after it changes nothing.
                if answer.ballot == self.ballot && self.phase == RecovererPhase::Fencing {
                    self.candidates[from] = Candidate::Promised(answer);
                    self.try_choose(outputs);
                }
            }
            Reply::Accepted { ballot } => {
                let RecovererPhase::Voting { accepted, .. } = &mut self.phase else { return };
                if ballot == self.ballot {
                    accepted[from] = true;
                    self.count_votes(outputs);
                }
            }
            Reply::Refused(Refusal::Fenced { promised } | Refusal::Voted { promised }) => {
                let is_over = !matches!(self.phase, RecovererPhase::Fencing | RecovererPhase::Voting { .. });
                if promised > self.ballot && !is_over {
                    self.phase = RecovererPhase::Outbid { promised };
                    outputs.push(RecovererOutput::Outbid(promised));
                }
            }
            Reply::Refused(Refusal::Sealed { value }) => {
                if !matches!(self.phase, RecovererPhase::Decided { .. }) {
                    self.decide(value, outputs);
                }
            }
            Reply::Refused(Refusal::Gap { end, .. }) => self.ask_vote(from, Some(end), outputs),
            // The replica fills its holes from the logs of others, and is asked again.
            Reply::Refused(Refusal::Holes { .. }) => {}
            Reply::Refused(Refusal::OtherReplica | Refusal::OtherWriter { .. } | Refusal::Diverged)
            | Reply::Ack { .. }
            | Reply::Sealed => {}
        }
    }

    fn try_choose(&mut self, outputs: &mut Vec<RecovererOutput>) {
        if self.phase != RecovererPhase::Fencing {
            return;
        }
        let Some(value) = choose(&self.descriptor, &self.candidates, &self.successor) else { return };
        if self.votes_needed() == 0 {
            self.phase = RecovererPhase::Unvoted { value: value.clone() };
            outputs.push(RecovererOutput::Unvoted(value));
            return;
        }
        self.phase = RecovererPhase::Voting { value, accepted: vec![false; self.candidates.len()] };
        for to in 0..self.candidates.len() {
            if !self.candidates[to].is_gone() {
                self.ask_vote(to, None, outputs);
            }
        }
    }

    fn count_votes(&mut self, outputs: &mut Vec<RecovererOutput>) {
        let RecovererPhase::Voting { value, accepted } = &self.phase else { return };
        if accepted.iter().filter(|vote| **vote).count() >= self.votes_needed() {
            let value = value.clone();
            self.decide(value, outputs);
        }
    }

    /// Votes that decide: w, or those of all replicas that are not gone where they are fewer, for whoever chooses later hears
    /// at least one of them, and so the vote (R15).
    fn votes_needed(&self) -> usize {
        let left = self.candidates.iter().filter(|candidate| !candidate.is_gone()).count();
        self.descriptor.write_quorum().min(left)
    }

    fn ask_vote(&self, to: usize, end: Option<Offset>, outputs: &mut Vec<RecovererOutput>) {
        let RecovererPhase::Voting { value, .. } = &self.phase else { return };
        let known = match &self.candidates[to] {
            Candidate::Promised(answer) => Some(answer.durable_end),
            Candidate::Silent | Candidate::Gone | Candidate::Left(_) => None,
        };
        let lacks = end.or(known).filter(|end| *end < value.end);
        let fill = lacks.map(|from| (from, self.sources(value)));
        let accept = Accept { ballot: self.ballot, value: value.clone(), missing: Vec::new() };
        outputs.push(RecovererOutput::Send { to, message: Message::Accept(accept), fill });
    }

    fn decide(&mut self, value: Value, outputs: &mut Vec<RecovererOutput>) {
        self.phase = RecovererPhase::Decided { value: value.clone() };
        outputs.push(RecovererOutput::Decided(value));
    }

    /// The message that tells a replica the decided value.
    #[must_use]
    pub fn notice(value: Value) -> Message {
        Message::Sealed(SealedNotice { value, missing: Vec::new() })
    }
}

/// Chooses the value of a segment from what its replicas answered (R4); `None` if more must answer. Answers of f replicas
/// that are not suspect are enough, or those of all n. Where fewer than f are sound, the log that is left of a gone disk
/// tells how far the writer came, too, even if it is all that there is.
#[must_use]
pub fn choose(descriptor: &Descriptor, candidates: &[Candidate], successor: &Descriptor) -> Option<Value> {
    let answers: Vec<&FenceAnswer> = candidates.iter().filter_map(answer_of).collect();
    // A decision is final, whoever knows it.
    if let Some(value) = answers.iter().find_map(|answer| answer.sealed.as_ref()) {
        return Some(value.clone());
    }
    let sound = answers.iter().filter(|answer| !answer.suspect || seeded!(SuspectCounted)).count();
    let gone = candidates.iter().filter(|candidate| candidate.is_gone()).count();
    let sound = sound + if seeded!(GoneCounted) { gone } else { 0 };
    let is_certain = sound >= descriptor.seal_quorum();
    let is_everybody = candidates.iter().all(|candidate| *candidate != Candidate::Silent);
    if !is_certain && !is_everybody {
        return None;
    }
    // A vote of the highest ballot may have been decided.
    let votes = answers.iter().filter_map(|answer| answer.accepted.as_ref());
    let vote = if seeded!(LowestVoteChosen) {
        votes.min_by_key(|(ballot, _)| *ballot)
    } else {
        votes.max_by_key(|(ballot, _)| *ballot)
    };
    if let Some((_, value)) = vote.filter(|_| !seeded!(VotesIgnored)) {
        if seeded!(SuccessorNotAdopted) {
            return Some(Value {
                successor: Box::new(successor.clone().starting_at(value.end)),
                ..value.clone()
            });
        }
        if seeded!(LossOutsideTheValue) {
            let range = OffsetRange { start: value.end, end: Offset(u64::MAX) };
            let possible_loss = if is_certain { Vec::new() } else { vec![range] };
            return Some(Value { possible_loss, ..value.clone() });
        }
        return Some(value.clone());
    }
    // All are prefixes of one writer's log: the longest holds everything that was acknowledged.
    let ends = answers.iter().map(|answer| answer.durable_end);
    let longest = if seeded!(ShortestChosen) { ends.min() } else { ends.max() };
    // Where the answers may miss something, the log that is left of a gone disk may have it.
    let left = candidates.iter().filter_map(left_of).filter(|_| !is_certain);
    let left = left.max_by_key(|last| last.end).filter(|last| longest.is_none_or(|end| last.end > end));
    let end = left.map(|last| last.end).or(longest)?;
    // A batch that none of them has is in the log of a replica that has not answered, or lost (R14).
    let lost = lacked_by_all(descriptor.first(), end, candidates);
    if !lost.is_empty() && !is_everybody && !seeded!(HoleVotedAbsent) {
        return None;
    }
    // The others get what they lack from the log of one that has it: until one has it all, nobody knows the digest.
    let has_all =
        |answer: &&&FenceAnswer| answer.durable_end == end && ranges::below(&answer.holes, end) == lost;
    let digest = match left {
        Some(last) => last.digest,
        None => answers.iter().find(has_all)?.digest,
    };
    let unknown = OffsetRange { start: end, end: Offset(u64::MAX) };
    let possible_loss = if is_certain { Vec::new() } else { vec![unknown] };
    let successor = Box::new(successor.clone().starting_at(end));
    Some(Value { end, digest, successor, possible_loss, lost })
}

/// The ranges of offsets whose batches no answer has, and no log that is left of a gone disk.
fn lacked_by_all(first: Offset, end: Offset, candidates: &[Candidate]) -> Vec<OffsetRange> {
    let behind = |end| OffsetRange { start: end, end: Offset(u64::MAX) };
    let lacked = |candidate: &Candidate| match candidate {
        Candidate::Promised(answer) => {
            let mut lacked = answer.holes.clone();
            ranges::push(&mut lacked, behind(answer.durable_end));
            Some(lacked)
        }
        Candidate::Left(last) => Some(vec![behind(last.end)]),
        Candidate::Silent | Candidate::Gone => None,
    };
    let all = vec![OffsetRange { start: first, end }];
    candidates.iter().filter_map(lacked).fold(all, |common, lacked| ranges::intersection(&common, &lacked))
}

impl Candidate {
    /// Whether the replica's disk is gone, so that it will never vote.
    fn is_gone(&self) -> bool {
        matches!(self, Self::Gone | Self::Left(_))
    }
}

fn answer_of(candidate: &Candidate) -> Option<&FenceAnswer> {
    match candidate {
        Candidate::Promised(answer) => Some(answer),
        Candidate::Silent | Candidate::Gone | Candidate::Left(_) => None,
    }
}

fn left_of(candidate: &Candidate) -> Option<&Mark> {
    match candidate {
        Candidate::Left(last) => Some(last),
        Candidate::Silent | Candidate::Gone | Candidate::Promised(_) => None,
    }
}
