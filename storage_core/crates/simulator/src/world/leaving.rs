//! Copies that leave disks, what a disk remembers before they go, and metadata that are told what they have forgotten.

use walrus_metadata::{Command, CopyState, PartitionPlace, PartitionStart, Replacement, SegmentPlace};

use super::*;

/// A segment that took the place of others, as a disk remembers it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Noted {
    /// Its generation when it was noted. The pass that wrote it may have known an earlier one of what it was made from.
    pub generation: u64,
    /// The disks that had, or were to have, a copy.
    pub copies: Vec<ReplicaRef>,
}

impl World {
    /// Remembers on a node's disk what took the place of others.
    pub(super) fn note(&mut self, id: NodeId, taker: SegmentId, noted: Noted) {
        self.node_mut(id).notes.entry(taker).or_insert(noted);
    }

    /// Tells the metadata that a node's disk remembers what took the place of others.
    pub(super) fn tell_note(&mut self, id: NodeId, segment: SegmentId) -> Checked {
        let replica = ReplicaRef { node: id, disk: self.node(id).disk };
        let segments = vec![SegmentPlace { topic: TOPIC, partition: 0, segment }];
        self.propose(Command::ReportBegun { replica, segments }).map(drop)
    }

    /// Forgets what nobody will ask this disk for.
    pub(super) fn forget_note(&mut self, id: NodeId, segment: SegmentId) {
        self.node_mut(id).notes.remove(&segment);
    }

    /// Whether nobody will need a note any more.
    pub(super) fn is_over(&self, node: &Node, known: &Committed, segment: SegmentId) -> bool {
        let Some(topic) = known.state.topics.get(&TOPIC) else { return false };
        self.noted(node, segment).is_some_and(|noted| known.state.outlives(&topic.partitions[0], &noted))
    }

    /// The replacement that a node has noted.
    fn noted(&self, node: &Node, segment: SegmentId) -> Option<Replacement> {
        let mut replacement = self.promised.forms.get(&segment)?.replacement.clone();
        replacement.compacted.generation = node.notes.get(&segment)?.generation;
        Some(replacement)
    }

    /// Whether a node has noted a replacement that metadata do not know.
    pub(super) fn knows_more(
        &self,
        node: &Node,
        partition: &metadata::Partition,
        segment: SegmentId,
    ) -> bool {
        self.noted(node, segment).is_some_and(|replacement| !partition.knows_replacement(&replacement))
    }

    /// Remembers on a node's disk what the metadata call trimmed and deleted.
    pub(super) fn bury(&mut self, id: NodeId, known: &Committed) {
        let Some(topic) = known.state.topics.get(&TOPIC) else { return };
        let partition = &topic.partitions[0];
        let first = partition.segments.first().map(|first| first.descriptor.clone());
        let node = self.node_mut(id);
        node.start = node.start.max(partition.start);
        if partition.trimmed_below > node.buried.as_ref().map_or(0, |(below, _)| *below) {
            node.buried = first.map(|first| (partition.trimmed_below, first));
        }
    }

    /// Deletes a node's copy of a segment that was trimmed, replaced or given up.
    pub(super) fn delete_copy(&mut self, id: NodeId, segment: SegmentId, is_given_up: bool) -> Checked {
        if !is_given_up && self.number(segment) >= self.promised.trimmed_below {
            return violation(format!("R10: {id:?} deletes {segment:?}, which no metadata called trimmed"));
        }
        self.node_mut(id).plain.remove(&segment);
        if self.node(id).held.contains_key(&segment) {
            self.drop_copy(id, segment)?;
        }
        self.check_spread()
    }

    /// Tells the metadata of a trim that they have forgotten.
    pub(super) fn repeat_trim(&mut self, id: NodeId) -> Checked {
        let Some((below_number, first)) = self.node(id).buried.clone() else { return Ok(()) };
        let command = Command::Trim { topic: TOPIC, partition: 0, below_number, first: Some(first) };
        self.propose(command).map(drop)
    }

    /// Tells the metadata of a deletion of records that they have forgotten.
    pub(super) fn repeat_start(&mut self, id: NodeId) -> Checked {
        let starts = vec![PartitionStart { partition: 0, start: self.node(id).start }];
        self.propose(Command::DeleteRecords { topic: TOPIC, starts }).map(drop)
    }

    /// Tells the metadata of a replacement that they have forgotten.
    pub(super) fn repeat_compaction(&mut self, id: NodeId, noted: SegmentId) -> Checked {
        let Some(replacement) = self.noted(self.node(id), noted) else { return Ok(()) };
        let (replacement, copies) = (Box::new(replacement), self.node(id).notes[&noted].copies.clone());
        let place = PartitionPlace { topic: TOPIC, partition: 0 };
        self.propose(Command::RepeatCompaction { place, replacement, copies }).map(drop)
    }

    /// Has copies of a sealed segment made and given up, past whoever looks after that.
    pub fn set_copies(&mut self, segment: SegmentId, added: &[NodeId], given_up: &[NodeId]) -> Checked {
        let replica = |node: &NodeId| ReplicaRef { node: *node, disk: self.node(*node).disk };
        let (added, given_up) = (added.iter().map(replica).collect(), given_up.iter().map(replica).collect());
        let mut listed = self.partition().into_iter().flat_map(|partition| &partition.segments);
        let version =
            listed.find(|listed| listed.descriptor.id == segment).map_or(0, |listed| listed.version);
        let command = Command::SetCopies { topic: TOPIC, partition: 0, segment, version, added, given_up };
        self.propose(command).map(drop)
    }

    /// Lists copies that are missing and gives up those that are too many, as the node that leads the metadata does.
    pub fn keep_copies(&mut self) -> Checked {
        for change in metadata::upkeep(&self.metadata.state, &everybody(&self.metadata.state)).changes {
            let metadata::CopyChange { topic, partition, segment, version, added, given_up } = change;
            let command = Command::SetCopies { topic, partition, segment, version, added, given_up };
            drop(self.propose(command)?);
        }
        Ok(())
    }

    /// Whether nothing is left to clean: every copy that the metadata list is whole, none leaves, and they know what any disk does.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.unclean().is_none()
    }

    /// What is left to clean, in words.
    #[must_use]
    pub fn unclean(&self) -> Option<String> {
        let partition = self.partition()?;
        if let Some(left) = partition.compaction.replaced.first() {
            return Some(format!("copies of {:?} have not left", left.descriptor.id));
        }
        if partition.compaction.candidate.is_some() || !self.passes.is_empty() {
            return Some("a compaction is under way".to_owned());
        }
        for listed in &partition.segments {
            let is_sealed = matches!(listed.state, SegmentState::Sealed(_));
            let whole = listed.copies.iter().filter(|copy| {
                let node = self.node(copy.replica.node);
                copy.state == CopyState::Verified
                    && !node.lost
                    && node.disk == copy.replica.disk
                    && self.has_whole(self.node(copy.replica.node), listed.descriptor.id)
            });
            if is_sealed && whole.count() < self.setting.replication.factor as usize {
                return Some(format!("{:?} has too few copies: {:?}", listed.descriptor.id, listed.copies));
            }
        }
        self.nodes.iter().filter(|node| !node.lost).find_map(|node| {
            let noted = node.notes.keys().find(|noted| self.knows_more(node, partition, **noted));
            let trim = node.buried.as_ref().filter(|(below, first)| !partition.knows_trim(*below, first));
            let forgotten = trim.is_some() || node.start > partition.log_start();
            (forgotten || noted.is_some()).then(|| {
                format!("{:?} knows more: trimmed {trim:?}, start {:?}, noted {noted:?}", node.id, node.start)
            })
        })
    }
}
