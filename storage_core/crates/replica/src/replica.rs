//! A replica: what one copy of a segment promises, holds and answers.

use walrus_model::{Ballot, Descriptor, Offset, ProcessId, ReplicaRef, Value, ranges};

use crate::batch::{Batch, Mark};
use crate::cut::CutId;
use crate::message::{
    Accept, Append, Assigned, Fence, FenceAnswer, Message, Refusal, Reply, Request, SealedNotice,
};
use crate::seeded;
use crate::tape::Tape;

/// One copy of a segment, as a state machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replica {
    me: ReplicaRef,
    descriptor: Descriptor,
    promises: Promises,
    /// The batches that are written, durable or not.
    tape: Tape,
    /// Everything below is on the disk. Never above the tape's end.
    durable_end: Offset,
    /// The highest high watermark that was told.
    commit: Offset,
    /// The name that this start gives to a cut, should the replica be suspect.
    cut: CutId,
    /// Offset to which a suspect copy must be filled to be cleared: the leader's assigned end, asked for after the cut (R8).
    fill_to: Option<Offset>,
}

/// The promises that a replica stores in the journal. They are durable before the reply that depends on them, whatever the
/// fsync mode (R12).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Promises {
    /// The highest ballot promised: nothing lower is answered any more (S4).
    pub promised: Ballot,
    /// The one process whose appends are taken, bound by the first of them (S9).
    pub writer: Option<ProcessId>,
    /// The vote of the highest ballot.
    pub accepted: Option<(Ballot, Value)>,
    /// The decision.
    pub sealed: Option<Value>,
    /// Whether a tail was lost, so that acknowledged batches may be missing (R8).
    pub suspect: bool,
    /// Whether this is a tombstone: the batches are gone, the decision stays known (R10).
    pub trimmed: bool,
}

/// An event that the driver tells the replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplicaInput {
    /// A message arrived.
    Request(Request),
    /// Everything written below is on the disk now.
    Synced {
        /// First offset that is not on the disk.
        end: Offset,
    },
    /// The metadata say that the segment was trimmed, or that this copy is no longer listed (R10).
    Trimmed {
        /// The value with which the segment was sealed.
        value: Value,
    },
}

/// An act that the replica asks of its driver; each must be done before the next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplicaOutput {
    /// Write these batches behind the others; they need not be durable yet.
    Write(Vec<Batch>),
    /// Make everything written durable.
    Sync,
    /// Leave a hole from the end to there: those batches are lost on all copies. It is durable with the batches around it.
    Skip(Offset),
    /// Drop everything from there on.
    Cut(Offset),
    /// Store the promises, durably.
    Persist(Promises),
    /// Seal the copy: the end is decided and the copy whole, and nothing is written to it any more.
    Seal(Value),
    /// Answer the sender of the request; where a `Synced` caused it, answer the leader.
    Answer(Reply),
    /// Delete the batches.
    Delete,
    /// Raise an alarm: somebody must look at this.
    Alarm(Alarm),
}

/// A state that must never be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Alarm {
    /// The copy has other bytes at an offset than another copy (S2), or than the decision says (S1).
    Diverged {
        /// Where the difference begins at the latest.
        end: Offset,
    },
    /// Two values were decided or proposed for one segment (S3).
    TwoValues,
    /// Two processes append to one segment (S9).
    TwoWriters,
}

impl Replica {
    /// A replica that knows nothing of the segment yet. `start` is minted anew at each start of the process.
    ///
    /// # Panics
    /// If `me` is not in the segment's replica set.
    #[must_use]
    pub fn new(me: ReplicaRef, descriptor: Descriptor, start: CutId) -> Self {
        let tape = Tape::empty(descriptor.first());
        Self::recover(me, descriptor, Promises::default(), tape, false, start).0
    }

    /// A replica after a restart, or after holes of its log were filled, and what its driver must do first. `tape` is what is
    /// on the disk, all of it durable. `was_cut` says that a torn tail was dropped, or that the disk may have lost what it had
    /// not synced: then the replica is suspect (R8, R12).
    ///
    /// # Panics
    /// If `me` is not in the segment's replica set.
    #[must_use]
    pub fn recover(
        me: ReplicaRef,
        descriptor: Descriptor,
        promises: Promises,
        tape: Tape,
        was_cut: bool,
        start: CutId,
    ) -> (Self, Vec<ReplicaOutput>) {
        assert!(descriptor.place(me).is_some(), "{me:?} does not store {descriptor:?}");
        let (durable_end, commit) = (tape.end(), descriptor.first());
        let mut replica =
            Self { me, descriptor, promises, tape, durable_end, commit, cut: start, fill_to: None };
        let mut outputs = Vec::new();
        if was_cut && !replica.promises.suspect && replica.promises.sealed.is_none() {
            replica.promises.suspect = true;
            replica.persist(&mut outputs);
        }
        (replica, outputs)
    }

    /// The segment.
    #[must_use]
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The promises that are stored in the journal.
    #[must_use]
    pub fn promises(&self) -> &Promises {
        &self.promises
    }

    /// The tape of what is written.
    #[must_use]
    pub fn tape(&self) -> &Tape {
        &self.tape
    }

    /// First offset that is not on the disk.
    #[must_use]
    pub fn durable_end(&self) -> Offset {
        self.durable_end
    }

    /// First offset that may not be read here: the end of a sealed copy, the base of a trimmed one, else the last high
    /// watermark that was told, as far as it is durable here, or all that is durable where [`Replica::shows_all`].
    #[must_use]
    pub fn readable_end(&self) -> Offset {
        match &self.promises.sealed {
            Some(_) if self.promises.trimmed => self.descriptor.first(),
            Some(value) => value.end,
            None if self.shows_all() => self.durable_end,
            None => self.commit.min(self.durable_end),
        }
    }

    /// Whether what may be read here is all that there is. It is where the end is decided; and where this is the only copy,
    /// the process that wrote it is gone and nobody has begun to decide, for then what is here may have been acknowledged,
    /// and stays.
    #[must_use]
    pub fn shows_all(&self) -> bool {
        self.promises.sealed.is_some() || (self.is_left_alone() && self.takes_appends())
    }

    /// Whether this is the only copy, and the process that wrote it is gone.
    fn is_left_alone(&self) -> bool {
        let is_of_this_process = |writer: ProcessId| writer.as_u128() == self.cut.0;
        self.descriptor.replicas.len() == 1
            && self.promises.writer.is_some_and(|writer| !is_of_this_process(writer))
    }

    /// Whether appends are still taken.
    #[must_use]
    pub fn takes_appends(&self) -> bool {
        let Promises { promised, accepted, sealed, .. } = &self.promises;
        let is_voted = (sealed.is_some() || accepted.is_some()) && !seeded!(AppendAfterSeal);
        let is_fenced = promised.epoch > self.descriptor.epoch && !seeded!(StaleEpochAccepted);
        !is_voted && !is_fenced
    }

    /// Takes one event, and says what is to be done because of it, in order.
    pub fn step(&mut self, input: ReplicaInput) -> Vec<ReplicaOutput> {
        let before = self.promises.clone();
        let mut outputs = Vec::new();
        match input {
            ReplicaInput::Request(request) => self.request(request, &mut outputs),
            ReplicaInput::Synced { end } => self.synced(end, &mut outputs),
            ReplicaInput::Trimmed { value } => self.trimmed(value, &mut outputs),
        }
        self.check(&before);
        outputs
    }

    fn request(&mut self, request: Request, outputs: &mut Vec<ReplicaOutput>) {
        assert_eq!(request.segment, self.descriptor.id, "a message of another segment");
        if request.to != self.me {
            return refuse(outputs, Refusal::OtherReplica); // R11
        }
        match request.message {
            Message::Append(append) => self.append(append, outputs),
            Message::Assigned(assigned) => self.assigned(assigned, outputs),
            Message::Fence(fence) => self.fence(fence, outputs),
            Message::Accept(accept) => self.accept(accept, outputs),
            Message::Sealed(notice) => self.sealed_notice(notice, outputs),
        }
    }

    /// Takes the leader's batches (R2): no gap, one writer, never a truncation; durable before they are acknowledged.
    fn append(&mut self, append: Append, outputs: &mut Vec<ReplicaOutput>) {
        let Append { epoch, writer, from, batches, commit } = append;
        if let Some(refusal) = self.refusal_of_appends() {
            return refuse(outputs, refusal);
        }
        let bound = self.promises.writer.unwrap_or(self.descriptor.leader.process);
        if writer != bound || epoch != self.descriptor.epoch {
            outputs.push(ReplicaOutput::Alarm(Alarm::TwoWriters));
            return refuse(outputs, Refusal::OtherWriter { writer: bound });
        }
        if !self.tape.holes().is_empty() {
            return self.refuse_for_holes(outputs); // R14
        }
        if from.end > self.tape.end() {
            return refuse(outputs, Refusal::Gap { end: self.tape.end(), suspect: self.asks() });
        }
        let Ok(fresh) = self.take(from, &batches) else {
            outputs.push(ReplicaOutput::Alarm(Alarm::Diverged { end: self.tape.end() }));
            return refuse(outputs, Refusal::Diverged);
        };
        if self.promises.writer.is_none() {
            self.promises.writer = Some(writer);
            self.persist(outputs);
        }
        self.commit = self.commit.max(commit);
        self.tape.forget_below(self.commit.min(self.durable_end));
        if fresh.is_empty() {
            // All of it is held already. The acknowledgement is of what is durable, which may be less than what was sent.
            outputs.push(ReplicaOutput::Answer(self.ack()));
        } else {
            outputs.push(ReplicaOutput::Write(fresh));
            if seeded!(AckBeforeSync) {
                let durable_end = self.tape.end();
                outputs.push(ReplicaOutput::Answer(Reply::Ack { durable_end, suspect: self.asks() }));
            }
        }
    }

    fn refusal_of_appends(&self) -> Option<Refusal> {
        let Promises { promised, accepted, sealed, .. } = &self.promises;
        if seeded!(AppendAfterSeal) {
            return None;
        }
        if let Some(value) = sealed {
            return Some(Refusal::Sealed { value: value.clone() });
        }
        if accepted.is_some() {
            return Some(Refusal::Voted { promised: *promised });
        }
        (self.descriptor.epoch < promised.epoch && !seeded!(StaleEpochAccepted))
            .then_some(Refusal::Fenced { promised: *promised })
    }

    /// Adds the batches that are not held yet, and answers them. `Err` means that other bytes are held; nothing was changed.
    fn take(&mut self, from: Mark, batches: &[Batch]) -> Result<Vec<Batch>, ()> {
        let (floor, end) = (self.tape.floor().end, self.tape.end());
        // Below the floor all copies agree, and the marks there are forgotten.
        if from.end >= floor && self.tape.digest_at(from.end) != Some(from.digest) {
            return Err(());
        }
        if seeded!(LateAppendTruncates) && from.end >= floor {
            self.tape.cut(batches.last().map_or(end, |last| last.end.min(end)));
        }
        let mut fresh = Vec::new();
        let mut next = from.end;
        for batch in batches {
            assert!(batch.base == next && batch.end > next, "{batch:?} leaves a gap behind {next:?}");
            next = batch.end;
            if batch.base >= end {
                fresh.push(*batch);
            } else if batch.end > floor && self.tape.digest_at(batch.end) != Some(batch.digest) {
                return Err(());
            }
        }
        for batch in &fresh {
            self.tape.push(*batch);
        }
        Ok(fresh)
    }

    fn synced(&mut self, end: Offset, outputs: &mut Vec<ReplicaOutput>) {
        assert!(end <= self.tape.end(), "{end:?} was synced and never written");
        self.durable_end = self.durable_end.max(end);
        // A sync that ends after a promise acknowledges nothing any more (S4).
        if !self.takes_appends() {
            return;
        }
        self.tape.forget_below(self.commit.min(self.durable_end));
        self.clear_if_filled(outputs);
        outputs.push(ReplicaOutput::Answer(self.ack()));
    }

    /// Takes the leader's assigned end (R8). Only a live leader's word counts, in answer to a question about this very cut.
    fn assigned(&mut self, assigned: Assigned, outputs: &mut Vec<ReplicaOutput>) {
        let is_mine = assigned.cut == self.cut && self.promises.writer == Some(assigned.writer);
        if is_mine && self.takes_appends() {
            self.fill_to = Some(assigned.end);
            self.clear_if_filled(outputs);
        }
    }

    fn clear_if_filled(&mut self, outputs: &mut Vec<ReplicaOutput>) {
        let is_filled = self.fill_to.is_some_and(|end| end <= self.durable_end);
        if self.promises.suspect && is_filled && self.tape.holes().is_empty() {
            self.promises.suspect = false;
            self.persist(outputs);
        }
    }

    /// Promises, and tells what the copy has (R4): first the promise is durable, then everything that was written before it,
    /// then the end is read. Nothing is written after a promise, so the answer tells all that this copy can ever have by
    /// itself: where all copies have answered and none has a batch, no copy has it later either. A copy with holes answers
    /// all the same (R14).
    fn fence(&mut self, fence: Fence, outputs: &mut Vec<ReplicaOutput>) {
        let ballot = fence.ballot;
        // A decision is final: it needs no promise.
        if self.promises.sealed.is_none() {
            // Ballot 0 is the writer's and is never fenced with.
            if ballot < self.promises.promised || ballot.epoch <= self.descriptor.epoch {
                return refuse(outputs, Refusal::Fenced { promised: self.highest_seen() });
            }
            if ballot > self.promises.promised && !seeded!(NoFence) {
                self.promises.promised = ballot;
                self.persist(outputs);
            }
            if !seeded!(EndBeforeSync) {
                self.sync(outputs);
            }
        }
        let digest = self.tape.digest_at(self.durable_end).expect("marks at the durable end are kept");
        let Promises { accepted, sealed, suspect, .. } = self.promises.clone();
        let (durable_end, holes) = (self.durable_end, ranges::below(self.tape.holes(), self.durable_end));
        let answer = FenceAnswer { ballot, durable_end, digest, accepted, sealed, suspect, holes };
        outputs.push(ReplicaOutput::Answer(Reply::Promised(answer)));
    }

    /// Votes for a value (R4, and R3 for ballot 0): the vote is durable, and so is everything that it is about, before it is
    /// told.
    fn accept(&mut self, accept: Accept, outputs: &mut Vec<ReplicaOutput>) {
        let Accept { ballot, value, missing } = accept;
        if let Some(sealed) = &self.promises.sealed {
            if *sealed == value {
                return outputs.push(ReplicaOutput::Answer(Reply::Accepted { ballot }));
            }
            return refuse(outputs, Refusal::Sealed { value: sealed.clone() });
        }
        let is_late = ballot < self.promises.promised && !seeded!(LateAcceptOverwrites);
        // Ballot 0 is the writer's. Where the writer is gone, the copy may have shown more since than the writer had
        // acknowledged.
        let is_of_the_gone = self.is_left_alone() && ballot == Ballot::zero(self.descriptor.epoch);
        if is_late || is_of_the_gone || ballot < Ballot::zero(self.descriptor.epoch) {
            return refuse(outputs, Refusal::Fenced { promised: self.highest_seen() });
        }
        if let Some((voted, other)) = &self.promises.accepted
            && *voted == ballot
            && *other != value
        {
            outputs.push(ReplicaOutput::Alarm(Alarm::TwoValues)); // one choice per attempt
            return refuse(outputs, Refusal::Diverged);
        }
        if !self.fill(&value, &missing, outputs) {
            return;
        }
        self.promises.promised = ballot;
        self.promises.accepted = Some((ballot, value));
        self.promises.suspect = false; // R8
        self.persist(outputs);
        outputs.push(ReplicaOutput::Answer(Reply::Accepted { ballot }));
    }

    /// Takes the decision: what lies behind the end is dropped, what is missing is filled, and the digest must be right.
    fn sealed_notice(&mut self, notice: SealedNotice, outputs: &mut Vec<ReplicaOutput>) {
        let SealedNotice { value, missing } = notice;
        if let Some(sealed) = &self.promises.sealed {
            if *sealed == value {
                return outputs.push(ReplicaOutput::Answer(Reply::Sealed));
            }
            outputs.push(ReplicaOutput::Alarm(Alarm::TwoValues));
            return refuse(outputs, Refusal::Sealed { value: sealed.clone() });
        }
        if !self.fill(&value, &missing, outputs) {
            return;
        }
        if self.tape.end() > value.end {
            self.tape.cut(value.end);
            self.durable_end = self.durable_end.min(value.end);
            outputs.push(ReplicaOutput::Cut(value.end));
        }
        self.promises.sealed = Some(value.clone());
        self.promises.suspect = false; // R8
        self.tape.forget_below(value.end);
        self.persist(outputs);
        outputs.push(ReplicaOutput::Seal(value));
        outputs.push(ReplicaOutput::Answer(Reply::Sealed));
    }

    /// Fills the copy up to the value's end. Answers whether it then holds everything of the value, durable and with its digest;
    /// if not, the refusal is among the outputs.
    fn fill(&mut self, value: &Value, missing: &[Batch], outputs: &mut Vec<ReplicaOutput>) -> bool {
        // A hole that is not lost everywhere must be filled first, from the logs of others (R14).
        let known = self.tape.end().min(value.end);
        let is_holed = ranges::below(self.tape.holes(), known) != ranges::below(&value.lost, known);
        if is_holed && !seeded!(HoledCopyVotes) {
            self.refuse_for_holes(outputs);
            return false;
        }
        let parts = parts(self.tape.last(), value, missing);
        let reached = parts.iter().fold(self.tape.last(), |last, part| part.behind(last));
        let end = reached.end;
        let digest =
            if self.tape.end() < value.end { Some(reached.digest) } else { self.tape.digest_at(value.end) };
        // Where only a part of the batches came, they are the one writer's log and may stay, whatever is decided.
        let diverges = end >= value.end && digest != Some(value.digest) && !seeded!(HoledCopyVotes);
        if diverges {
            outputs.push(ReplicaOutput::Alarm(Alarm::Diverged { end: value.end }));
            refuse(outputs, Refusal::Diverged);
            return false;
        }
        for part in parts {
            self.extend(part, outputs);
        }
        if end < value.end {
            refuse(outputs, Refusal::Gap { end, suspect: self.asks() });
            return false;
        }
        self.sync(outputs);
        true
    }

    /// Has everything that is written made durable, before what follows among the outputs.
    fn sync(&mut self, outputs: &mut Vec<ReplicaOutput>) {
        if self.durable_end < self.tape.end() {
            self.durable_end = self.tape.end();
            outputs.push(ReplicaOutput::Sync);
        }
    }

    fn extend(&mut self, part: Part, outputs: &mut Vec<ReplicaOutput>) {
        match part {
            Part::Skip(to) => {
                self.tape.skip(to);
                outputs.push(ReplicaOutput::Skip(to));
            }
            Part::Batch(batch) => {
                self.tape.push(batch);
                match outputs.last_mut() {
                    Some(ReplicaOutput::Write(batches)) => batches.push(batch),
                    _ => outputs.push(ReplicaOutput::Write(vec![batch])),
                }
            }
        }
    }

    /// Makes the copy a tombstone (R10): its batches are deleted, and it still answers with the decision.
    fn trimmed(&mut self, value: Value, outputs: &mut Vec<ReplicaOutput>) {
        if self.promises.trimmed {
            return outputs.push(ReplicaOutput::Delete);
        }
        if self.promises.sealed.as_ref().is_some_and(|sealed| *sealed != value) {
            return outputs.push(ReplicaOutput::Alarm(Alarm::TwoValues));
        }
        self.tape = Tape::starting_at(Mark { end: value.end, digest: value.digest });
        self.durable_end = value.end;
        self.promises.sealed = Some(value);
        self.promises.suspect = false;
        self.promises.trimmed = true;
        self.persist(outputs);
        outputs.push(ReplicaOutput::Delete);
    }

    /// The highest ballot seen here, which a fresh epoch must be above.
    fn highest_seen(&self) -> Ballot {
        self.promises.promised.max(Ballot::zero(self.descriptor.epoch))
    }

    fn asks(&self) -> Option<CutId> {
        self.promises.suspect.then_some(self.cut)
    }

    fn refuse_for_holes(&self, outputs: &mut Vec<ReplicaOutput>) {
        refuse(outputs, Refusal::Holes { holes: self.tape.holes().to_vec() });
    }

    fn ack(&self) -> Reply {
        Reply::Ack { durable_end: self.durable_end, suspect: self.asks() }
    }

    fn persist(&self, outputs: &mut Vec<ReplicaOutput>) {
        outputs.push(ReplicaOutput::Persist(self.promises.clone()));
    }

    fn check(&self, before: &Promises) {
        let now = &self.promises;
        assert!(self.durable_end <= self.tape.end(), "more is durable than was written");
        assert!(now.promised >= before.promised, "a promise was taken back (S4)");
        assert!(before.writer.is_none() || now.writer == before.writer, "the writer changed (S9)");
        assert!(before.sealed.is_none() || now.sealed == before.sealed, "the decision changed (S3)");
        if let Some((ballot, value)) = &now.accepted {
            assert!(*ballot <= now.promised, "a vote above the promise");
            let is_open = now.sealed.is_none();
            assert!(!is_open || value.end <= self.durable_end, "a vote for what is not on this disk (S7)");
            let is_new = before.accepted != now.accepted && !seeded!(HoledCopyVotes);
            assert!(!is_new || value.leaves_out(self.tape.holes()), "a vote in spite of a hole (S7)");
        }
        if let Some(value) = &now.sealed {
            assert!(
                value.end == self.tape.end() && value.digest == self.tape.last().digest,
                "sealed elsewhere (S1)"
            );
        }
    }
}

/// A piece that a copy gets behind its end.
enum Part {
    Batch(Batch),
    /// A hole up to there: those batches are lost everywhere.
    Skip(Offset),
}

impl Part {
    fn behind(&self, last: Mark) -> Mark {
        match self {
            Self::Batch(batch) => batch.mark(),
            Self::Skip(to) => Mark { end: *to, digest: last.digest },
        }
    }
}

/// The parts that follow a place up to a value's end, as far as their batches came. Batches that were asked for an earlier
/// end of the copy may not fit any more; then nothing follows, and they are asked for again.
fn parts(last: Mark, value: &Value, missing: &[Batch]) -> Vec<Part> {
    let (from, mut last, mut parts) = (last.end, last, Vec::new());
    let mut batches = missing.iter().skip_while(|batch| batch.base < from).peekable();
    while last.end < value.end {
        let next = value.past_lost(last.end);
        let part = match batches.peek() {
            _ if next > last.end => Part::Skip(next),
            Some(batch) if batch.base == next && batch.end <= value.end => Part::Batch(**batch),
            _ => break,
        };
        if let Part::Batch(_) = part {
            batches.next();
        }
        last = part.behind(last);
        parts.push(part);
    }
    parts
}

fn refuse(outputs: &mut Vec<ReplicaOutput>, refusal: Refusal) {
    outputs.push(ReplicaOutput::Answer(Reply::Refused(refusal)));
}
