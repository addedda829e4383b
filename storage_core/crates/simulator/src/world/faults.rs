//! Crashes, rot, restarts, lost disks.

use super::*;

impl World {
    /// Ends a process. Of the batches that a copy had not synced the first `kept` stay; the one that `rot` names is damaged.
    pub fn crash(&mut self, id: NodeId, kept: usize, rot: Option<Rot>) -> Checked {
        self.leaders.retain(|_, leading| leading.machine.descriptor().leader.node != id);
        self.passes.remove(&id);
        let node = self.node_mut(id);
        node.up = false;
        let mut rotted = false;
        for (segment, held) in &mut node.held {
            held.machine = None;
            held.peeked = None;
            let stored = &mut held.stored;
            let keep = stored.synced.saturating_add(kept).min(stored.batches.len());
            stored.batches.truncate(keep);
            stored.synced = keep;
            match rot {
                Some(Rot::Tail(torn)) if torn == *segment && stored.synced > 0 => {
                    stored.synced -= 1;
                    stored.batches.truncate(stored.synced);
                    stored.rotten.retain(|place| *place < stored.synced);
                    stored.cut = true;
                    rotted = true;
                }
                Some(Rot::Hole(damaged, place)) if damaged == *segment && place + 1 < stored.synced => {
                    stored.rotten.insert(place);
                    stored.were_rotten.insert(place);
                    rotted = true;
                }
                _ => {}
            }
        }
        self.losses += usize::from(rotted);
        Ok(())
    }

    /// Whether a torn tail of the copy is among the faults that must be survived: a copy that was voted for or sealed is checked
    /// at rest.
    #[must_use]
    pub fn may_rot(held: &Held) -> bool {
        let Promises { accepted, sealed, .. } = &held.stored.promises;
        accepted.is_none() && sealed.is_none() && held.stored.synced > 0
    }

    /// Starts a process on its disk.
    pub fn restart(&mut self, id: NodeId) -> Checked {
        let resumes = self.makes(Mistake::LeaderResumes);
        let node = self.node_mut(id);
        node.up = true;
        node.starts += u128::from(!resumes);
        let start = CutId(node.process().as_u128() + u128::from(resumes) * 500);
        let (disk, segments): (_, Vec<_>) = (node.disk, node.held.keys().copied().collect());
        for segment in segments {
            let descriptor = self.descriptor(segment).clone();
            let decided = self.promised.decided.get(&segment).cloned();
            let held = self.node_mut(id).held.get_mut(&segment).expect("listed");
            let tape = match decided {
                Some(value) if held.stored.promises.trimmed => {
                    Tape::starting_at(Mark { end: value.end, digest: value.digest })
                }
                _ => held.stored.tape(descriptor.first()),
            };
            let was_cut = std::mem::take(&mut held.stored.cut);
            let promises = held.stored.promises.clone();
            let me = ReplicaRef { node: id, disk };
            let (machine, outputs) = Replica::recover(me, descriptor, promises, tape, was_cut, start);
            held.machine = Some(machine);
            self.carry_out(id, segment, None, outputs, None)?;
            if resumes {
                self.resume(segment, id)?;
            }
        }
        self.register(id);
        Ok(())
    }

    /// Makes a leader resume from its own copy, for [`Mistake::LeaderResumes`].
    pub(super) fn resume(&mut self, segment: SegmentId, id: NodeId) -> Checked {
        let descriptor = self.descriptor(segment).clone();
        let held = &self.node(id).held[&segment];
        let takes = held.machine.as_ref().is_some_and(Replica::takes_appends);
        if descriptor.leader.node != id || !takes || !self.opened.contains(&segment) {
            return Ok(());
        }
        let mut machine = Leader::open(descriptor.clone(), descriptor.leader.process);
        let none = Mark { end: descriptor.first(), digest: Digest(0) };
        let mark = held.stored.batches.last().map_or(none, |last| last.mark());
        for batch in held.stored.batches.clone() {
            machine.step(LeaderInput::Assign(batch));
        }
        Arc::make_mut(&mut self.promised).written.insert(segment, mark);
        let next_id = record::ids(mark.digest).last().map_or(0, |last| last + 1);
        let leading = Leading { machine, next_id, carried: Vec::new(), carried_away: true };
        self.leaders.insert(segment, Arc::new(leading));
        self.leader_step(segment, LeaderInput::Reconnected { to: 0 })
    }

    /// Loses the disk of a node with its process.
    pub fn lose_disk(&mut self, id: NodeId) -> Checked {
        self.crash(id, 0, None)?;
        let emptied = self.makes(Mistake::EmptiedDiskVotes);
        let node = self.node_mut(id);
        node.held.clear();
        node.plain.clear();
        node.notes.clear();
        (node.buried, node.start) = (None, Offset(0));
        node.lost = !emptied;
        self.losses += 1;
        Ok(())
    }

    /// Makes the journal of a node's disk lose its end: the node comes back as another disk, and the logs stay.
    pub fn lose_journal(&mut self, id: NodeId) -> Checked {
        self.crash(id, 0, None)?;
        let votes = self.makes(Mistake::LostJournalVotes);
        let node = self.node_mut(id);
        (node.lost, node.left) = (!votes, !votes);
        if votes {
            node.held.values_mut().for_each(|held| held.stored.promises = Promises::default());
        }
        self.losses += 1;
        Ok(())
    }

    /// The end of the log of a segment that is left of a disk, if it is whole.
    pub(super) fn left_of(&self, segment: SegmentId, replica: ReplicaRef) -> Option<Mark> {
        let stored = &self.node(replica.node).held.get(&segment)?.stored;
        let is_whole = self.node(replica.node).left && stored.rotten.is_empty();
        is_whole.then(|| stored.durable(self.descriptor(segment).first()))
    }
}
