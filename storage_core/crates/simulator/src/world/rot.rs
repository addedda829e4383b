//! Batches in the middle of an open copy that rot, and that come back from the logs of others.

use super::*;

/// The synced batch that a start finds damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rot {
    /// The last batch of a copy: behind it there may have been more.
    Tail(SegmentId),
    /// A batch with good ones behind it, by its place.
    Hole(SegmentId, usize),
}

impl Stored {
    /// The synced part of the copy as its machine knows it: digests leave out the holes.
    pub(super) fn tape(&self, base: Offset) -> Tape {
        let mut tape = Tape::empty(base);
        for (place, batch) in self.batches.iter().enumerate() {
            match record::last_id(batch.digest) {
                Some(id) if !self.rotten.contains(&place) => tape.push(batch_after(tape.last(), id)),
                _ => tape.skip(batch.end),
            }
        }
        tape
    }

    /// The end of the synced part, and the digest of what is there.
    pub(super) fn durable(&self, base: Offset) -> Mark {
        let synced = Self { batches: self.batches[..self.synced].to_vec(), ..self.clone() };
        synced.tape(base).last()
    }

    /// Whether the copy has everything of a value, synced.
    pub(super) fn holds(&self, base: Offset, value: &Value) -> bool {
        let end = self.batches[..self.synced].last().map_or(base, |last| last.end);
        end >= value.end && value.leaves_out(self.tape(base).holes())
    }

    /// Takes a batch that a machine writes. Behind a hole the digests of the machine leave the hole out; those here do not.
    pub(super) fn write(&mut self, batch: Batch, base: Offset, written: &[Mark]) -> Checked {
        let end = self.batches.last().map_or(base, |last| last.end);
        if batch.base != end {
            return violation(format!("{batch:?} is written behind {end:?}"));
        }
        let of_leader = written.iter().find(|mark| mark.end == batch.end);
        let same = of_leader.filter(|mark| record::last_id(mark.digest) == record::last_id(batch.digest));
        let digest =
            if self.rotten.is_empty() { batch.digest } else { same.map_or(batch.digest, |mark| mark.digest) };
        self.batches.push(Batch { digest, ..batch });
        Ok(())
    }

    /// Leaves a hole up to an offset.
    pub(super) fn skip(&mut self, to: Offset, base: Offset, written: &[Mark]) {
        let mut end = self.batches.last().map_or(base, |last| last.end);
        for mark in
            written.iter().filter(|mark| mark.end > end && mark.end <= to).copied().collect::<Vec<_>>()
        {
            self.rotten.insert(self.batches.len());
            self.were_rotten.insert(self.batches.len());
            self.batches.push(Batch { base: end, end: mark.end, digest: mark.digest });
            end = mark.end;
        }
    }

    fn has(&self, place: usize) -> bool {
        place < self.synced && !self.rotten.contains(&place) && !self.promises.trimmed
    }
}

impl World {
    /// Whether rot in the middle of a copy is within what is promised. Below a vote another copy must have the batch: a
    /// value that was voted for may be decided, and cannot leave it out any more.
    #[must_use]
    pub fn may_have_hole(&self, id: NodeId, segment: SegmentId, place: usize) -> bool {
        let held = &self.node(id).held[&segment];
        let Promises { sealed, .. } = &held.stored.promises;
        if sealed.is_some() || place + 1 >= held.stored.synced || !held.stored.has(place) {
            return false;
        }
        let batch = held.stored.batches[place];
        let copies = || {
            let of_segment = self.nodes.iter().filter(|node| !node.lost);
            of_segment.filter_map(|node| node.held.get(&segment).map(|held| (node.id, &held.stored)))
        };
        let is_voted = |stored: &Stored| {
            let vote = stored.promises.accepted.as_ref().map(|(_, value)| value);
            let value = vote.or(stored.promises.sealed.as_ref());
            value.is_some_and(|value| value.end > batch.base)
        };
        !copies().any(|(_, stored)| is_voted(stored))
            || copies().any(|(other, stored)| other != id && stored.has(place))
    }

    /// Whether a copy that is not sealed lacks a batch that it once had.
    #[must_use]
    pub fn has_holes(&self) -> bool {
        let held = self.nodes.iter().flat_map(|node| node.held.values());
        held.into_iter().any(|held| held.stored.promises.sealed.is_none() && !held.stored.rotten.is_empty())
    }

    /// Places of a copy that are to be filled, and that another copy has.
    #[must_use]
    pub fn fillable(&self, id: NodeId, segment: SegmentId) -> Option<usize> {
        let node = self.node(id);
        let held = node.held.get(&segment).filter(|held| node.up && held.machine.is_some())?;
        if held.stored.promises.sealed.is_some() {
            return None;
        }
        let has = |place: usize| {
            let others = self.nodes.iter().filter(|other| (other.up || other.left) && other.id != id);
            others
                .into_iter()
                .any(|other| other.held.get(&segment).is_some_and(|copy| copy.stored.has(place)))
        };
        held.stored.rotten.iter().copied().find(|place| has(*place))
    }

    /// Fills one hole of a copy from the log of another one, which need not have voted, or be able to.
    pub fn fill_hole(&mut self, id: NodeId, segment: SegmentId) -> Checked {
        let Some(place) = self.fillable(id, segment) else { return Ok(()) };
        let descriptor = self.descriptor(segment).clone();
        let wrong = self.makes(Mistake::HoleFilledFromAnotherSegment);
        let node = self.node_mut(id);
        let start = CutId(node.process().as_u128());
        let me = ReplicaRef { node: id, disk: node.disk };
        let held = node.held.get_mut(&segment).expect("it has a hole");
        held.stored.synced = held.stored.batches.len();
        held.stored.rotten.remove(&place);
        if wrong {
            // The batch becomes another leader's, with the same offsets and length.
            let batch = &mut held.stored.batches[place];
            batch.digest = Digest(batch.digest.0 + 3);
        }
        let tape = held.stored.tape(descriptor.first());
        let promises = held.stored.promises.clone();
        let (machine, outputs) = Replica::recover(me, descriptor, promises, tape, false, start);
        held.machine = Some(machine);
        self.filled += 1;
        self.carry_out(id, segment, None, outputs, None)
    }

    /// Checks the ranges that a decision calls lost: a batch that a copy has had all the time was not lost.
    pub(super) fn check_lost(&self, segment: SegmentId, value: &Value) -> Checked {
        let is_lost = |batch: &Batch| {
            value.lost.iter().any(|range| range.start <= batch.base && batch.end <= range.end)
        };
        let is_there = |node: &&Arc<Node>| !node.lost || node.left;
        for node in self.nodes.iter().filter(is_there) {
            let Some(held) = node.held.get(&segment) else { continue };
            let stored = &held.stored;
            let mut batches = stored.batches.iter().enumerate();
            let kept = batches.find(|(place, batch)| {
                is_lost(batch) && stored.has(*place) && !stored.were_rotten.contains(place)
            });
            if let Some((_, batch)) = kept {
                return violation(format!("S1: {batch:?} is told as lost, and {:?} has it", node.id));
            }
        }
        Ok(())
    }
}
