//! The chores of a node: what it finds to do when it looks at the metadata that it knows. Each is done at once, and the node may die
//! before the next.

use walrus_metadata::{Command, CopyState, PartitionPlace};

use super::*;

/// Something that a node does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Chore {
    /// Brings a copy with a vote to the decided end.
    Complete(SegmentId),
    /// Copies a page of a segment.
    Copy(SegmentId),
    /// Tells the metadata how a copy is that they list since that version.
    Report(SegmentId, u64),
    /// Remembers that a segment took the place of others.
    Note(SegmentId, Noted),
    /// Tells the metadata that it remembers that.
    TellNote(SegmentId),
    /// Forgets that.
    Forget(SegmentId),
    /// Deletes a copy that was given up or replaced.
    Leave(SegmentId),
    /// Remembers what was trimmed and deleted.
    Bury,
    /// Deletes a copy of a segment that was trimmed.
    Drop(SegmentId),
    /// Tells the metadata of a trim that they have forgotten.
    RepeatTrim,
    /// Tells the metadata of a deletion that they have forgotten.
    RepeatStart,
    /// Tells the metadata of a replacement that they have forgotten.
    RepeatCompaction(SegmentId),
    /// Makes the log of an open segment, and tells the metadata.
    Begin(SegmentId),
    /// Forgets that a log is scratch, for the metadata know it.
    KeepScratch(SegmentId),
    /// Deletes a log that the metadata do not know.
    ClearScratch(SegmentId),
    /// Gives up a candidate whose compactor does not wait for it any more.
    Abandon(SegmentId),
}

impl Chore {
    /// Whether it is a request to the metadata.
    #[must_use]
    pub fn asks(&self) -> bool {
        !matches!(
            self,
            Self::Complete(_)
                | Self::Copy(_)
                | Self::Note(..)
                | Self::Forget(_)
                | Self::Leave(_)
                | Self::Bury
                | Self::Drop(_)
                | Self::KeepScratch(_)
                | Self::ClearScratch(_)
        )
    }
}

impl World {
    /// What a node finds to do by the metadata that it knows.
    #[must_use]
    pub fn chores(&self, id: NodeId, known: &Committed) -> Vec<Chore> {
        let node = self.node(id);
        let Some(topic) = known.state.topics.get(&TOPIC).filter(|_| node.up) else { return Vec::new() };
        let partition = &topic.partitions[0];
        let me = ReplicaRef { node: id, disk: node.disk };
        let mut all = Vec::new();
        for listed in partition.all_segments() {
            if let Some(copy) = listed.copies.iter().find(|copy| copy.replica == me)
                && matches!(listed.state, SegmentState::Sealed(_))
            {
                all.extend(self.chore_of_copy(node, partition, (listed, copy), known));
            }
        }
        self.chores_of_notes(node, partition, known, &mut all);
        self.chores_of_trims(node, topic, known, &mut all);
        self.reminders(node, partition, &mut all);
        if let Some(open) = partition.segments.last()
            && partition.segments.len() > 1
            && open.descriptor.replicas.contains(&me)
            && !open.begun.contains(&me)
        {
            all.push(Chore::Begin(open.descriptor.id));
        }
        self.chores_of_passes(node, partition, known, &mut all);
        all
    }

    fn chore_of_copy(
        &self,
        node: &Node,
        partition: &metadata::Partition,
        (listed, copy): (&metadata::Segment, &metadata::SegmentCopy),
        known: &Committed,
    ) -> Option<Chore> {
        let segment = listed.descriptor.id;
        let report = Chore::Report(segment, copy.since);
        let is_whole = self.has_whole(node, segment);
        let is_scratch = node.plain.get(&segment).is_some_and(|plain| plain.is_scratch);
        match copy.state {
            // Whoever counts on a copy must not see it go as scratch, though metadata forget that they have listed it.
            CopyState::Filling if is_scratch && !self.makes(Mistake::CountedAndStillScratch) => {
                Some(Chore::KeepScratch(segment))
            }
            CopyState::Filling if is_whole => Some(report),
            CopyState::Filling => {
                let votes = self.promised.descriptors.get(&segment).is_some_and(|descriptor| {
                    descriptor.replicas.contains(&copy.replica)
                        && node.held.get(&segment).is_none_or(|held| !held.stored.promises.trimmed)
                });
                Some(if votes { Chore::Complete(segment) } else { Chore::Copy(segment) })
            }
            CopyState::Verified => (!is_whole || listed.contents.is_none()).then_some(report),
            CopyState::Leaving => self.chore_of_leaving(node, partition, listed, (known, copy.since)),
            CopyState::Damaged | CopyState::Lost => None,
        }
    }

    fn chore_of_leaving(
        &self,
        node: &Node,
        partition: &metadata::Partition,
        leaving: &metadata::Segment,
        (known, since): (&Committed, u64),
    ) -> Option<Chore> {
        let segment = leaving.descriptor.id;
        if self.knows_more(node, partition, segment) {
            return None; // it took the place of others, and the metadata are told so again
        }
        let is_safe = |holder: &metadata::Segment| match self.makes(Mistake::LeavesWithoutNote) {
            true => is_verified_by_enough(holder),
            false => known.state.holds_its_place(holder),
        };
        if partition.holder_of_place(leaving).is_some_and(|holder| !is_safe(holder)) {
            return None;
        }
        if !self.has_some(node, segment) {
            return Some(Chore::Report(segment, since));
        }
        let is_replaced = partition.segments.iter().all(|listed| listed.descriptor.id != segment);
        let may_go =
            is_replaced || self.makes(Mistake::LeavesUnasked) || self.is_kept_by_enough(node, leaving);
        may_go.then_some(Chore::Leave(segment))
    }

    /// Whether w other nodes that are listed with a verified copy say that they have it and do not mean to delete it.
    fn is_kept_by_enough(&self, node: &Node, leaving: &metadata::Segment) -> bool {
        let segment = leaving.descriptor.id;
        let kept = leaving.copies.iter().filter(|copy| {
            let holder = self.node(copy.replica.node);
            copy.state == CopyState::Verified
                && copy.replica.node != node.id
                && holder.up
                && holder.disk == copy.replica.disk
                && self.has_whole(holder, segment)
                && !self.is_listed_as_leaving(holder, segment)
        });
        kept.count() >= leaving.descriptor.write_quorum()
    }

    /// Whether the metadata of now list a node's copy as one that leaves.
    fn is_listed_as_leaving(&self, node: &Node, segment: SegmentId) -> bool {
        let Some(topic) = self.metadata.state.topics.get(&TOPIC) else { return false };
        let mut listed = topic.partitions[0].all_segments();
        let listed = listed.find(|listed| listed.descriptor.id == segment);
        listed.is_some_and(|listed| {
            let mut copies = listed.copies.iter();
            copies.any(|copy| copy.replica.node == node.id && copy.state == CopyState::Leaving)
        })
    }

    /// Notes of what is listed here and took the place of others, each before the metadata are told.
    fn chores_of_notes(
        &self,
        node: &Node,
        partition: &metadata::Partition,
        known: &Committed,
        all: &mut Vec<Chore>,
    ) {
        if self.makes(Mistake::LeavesWithoutNote) {
            return;
        }
        let me = ReplicaRef { node: node.id, disk: node.disk };
        let is_mine = |listed: &&metadata::Segment| {
            let is_verified =
                |copy: &metadata::SegmentCopy| copy.replica == me && copy.state == CopyState::Verified;
            listed.copies.iter().any(is_verified) && !listed.begun.contains(&me)
        };
        for listed in partition.segments.iter().filter(is_mine) {
            let (segment, Some(replacement)) = (listed.descriptor.id, listed.replacement()) else { continue };
            let generation = replacement.compacted.generation;
            let copies = listed.copies.iter().map(|copy| copy.replica).collect();
            all.push(match node.notes.contains_key(&segment) {
                true => Chore::TellNote(segment),
                false => Chore::Note(segment, Noted { generation, copies }),
            });
        }
        let over = node.notes.keys().filter(|segment| self.is_over(node, known, **segment));
        all.extend(over.map(|segment| Chore::Forget(*segment)));
    }

    fn chores_of_trims(&self, node: &Node, topic: &metadata::Topic, known: &Committed, all: &mut Vec<Chore>) {
        let partition = &topic.partitions[0];
        let below = node.buried.as_ref().map_or(0, |(below, _)| *below);
        if partition.trimmed_below > below || partition.start > node.start {
            all.push(Chore::Bury);
            return;
        }
        let by_itself = self.makes(Mistake::TrimmedBeforeMetadata);
        let judged = metadata::verdict(&known.state, topic, partition).below_number;
        let below = if by_itself { judged.max(partition.trimmed_below) } else { partition.trimmed_below };
        let held = node.held.iter().filter(|(segment, held)| {
            !held.stored.promises.trimmed && self.promised.decided.contains_key(*segment)
        });
        let here = held.map(|(segment, _)| segment).chain(node.plain.keys());
        all.extend(
            here.filter(|segment| self.number(**segment) < below).map(|segment| Chore::Drop(*segment)),
        );
    }

    /// What the metadata have forgotten and the node's disk remembers; a trim first.
    fn reminders(&self, node: &Node, partition: &metadata::Partition, all: &mut Vec<Chore>) {
        if node.buried.as_ref().is_some_and(|(below, first)| !partition.knows_trim(*below, first)) {
            return all.push(Chore::RepeatTrim);
        }
        let forgotten = node.notes.keys().filter(|noted| self.knows_more(node, partition, **noted));
        let before = all.len();
        all.extend(forgotten.map(|noted| Chore::RepeatCompaction(*noted)));
        if all.len() == before && node.start > partition.log_start() {
            all.push(Chore::RepeatStart);
        }
    }

    fn chores_of_passes(
        &self,
        node: &Node,
        partition: &metadata::Partition,
        known: &Committed,
        all: &mut Vec<Chore>,
    ) {
        if self.passes.contains_key(&node.id) {
            return;
        }
        let is_listed =
            |segment: SegmentId| partition.all_segments().any(|listed| listed.descriptor.id == segment);
        let scratch = node.plain.iter().filter(|(_, plain)| plain.is_scratch).map(|(segment, _)| *segment);
        all.extend(scratch.map(|segment| match is_listed(segment) {
            true => Chore::KeepScratch(segment),
            false => Chore::ClearScratch(segment),
        }));
        if let Some(candidate) = &partition.compaction.candidate {
            let compactor = candidate.descriptor.leader;
            let process = known.state.nodes.get(&compactor.node).map(|node| node.process);
            if process != Some(compactor.process) || compactor.process == node.process() {
                all.push(Chore::Abandon(candidate.descriptor.id));
            }
        }
    }

    /// Does something that a node has found to do by the metadata that it knows.
    pub fn do_chore(&mut self, id: NodeId, known: &Committed, chore: &Chore) -> Checked {
        match chore {
            Chore::Complete(segment) => self.notify(id, *segment),
            Chore::Copy(segment) => {
                let value = match self.promised.forms.get(segment) {
                    Some(form) => form.replacement.value.clone(),
                    None => self.promised.decided[segment].clone(),
                };
                self.copy_page(id, *segment, &value)
            }
            Chore::Report(segment, since) => self.report(id, *segment, *since),
            Chore::Note(taker, noted) => {
                self.note(id, *taker, noted.clone());
                Ok(())
            }
            Chore::TellNote(segment) => self.tell_note(id, *segment),
            Chore::Forget(segment) => {
                self.forget_note(id, *segment);
                Ok(())
            }
            Chore::Leave(segment) => self.delete_copy(id, *segment, true),
            Chore::Bury => {
                self.bury(id, known);
                Ok(())
            }
            Chore::Drop(segment) => self.delete_copy(id, *segment, false),
            Chore::RepeatTrim => self.repeat_trim(id),
            Chore::RepeatStart => self.repeat_start(id),
            Chore::RepeatCompaction(noted) => self.repeat_compaction(id, *noted),
            Chore::Begin(segment) => self.begin(id, *segment),
            Chore::KeepScratch(segment) => {
                if let Some(plain) = self.node_mut(id).plain.get_mut(segment) {
                    plain.is_scratch = false;
                }
                Ok(())
            }
            Chore::ClearScratch(segment) => self.delete_copy(id, *segment, true),
            Chore::Abandon(segment) => {
                let place = PartitionPlace { topic: TOPIC, partition: 0 };
                self.propose(Command::AbandonCompaction { place, segment: *segment }).map(drop)
            }
        }
    }
}

/// What brokers would go by if nobody had to remember what took the place of others.
fn is_verified_by_enough(holder: &metadata::Segment) -> bool {
    let verified = holder.copies.iter().filter(|copy| copy.state == CopyState::Verified).count();
    verified >= holder.descriptor.write_quorum()
}
