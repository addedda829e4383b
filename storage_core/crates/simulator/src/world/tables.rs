//! The tables of what producers have sent, as they lie on disks: each log is made with the one at its base, from another copy of it
//! or from a copy of the segment before.

use walrus_metadata::{Command, SegmentPlace};

use super::*;

impl Held {
    pub(super) fn new(replica: ReplicaRef, descriptor: &Descriptor, start: CutId) -> Self {
        let machine = Some(Replica::new(replica, descriptor.clone(), start));
        Self { stored: Stored::default(), machine, peeked: None }
    }
}

impl World {
    /// The next batch by the table at a segment's base; `None` if no disk has that table any more.
    pub(super) fn table_at(&self, segment: SegmentId) -> Option<BatchId> {
        let disks = || self.nodes.iter().filter(|node| !node.lost || node.left);
        let known = disks().find_map(|node| node.held.get(&segment)?.stored.table);
        if known.is_some() {
            return known;
        }
        let mut decided = self.promised.decided.iter();
        let Some((before, value)) = decided.find(|(_, value)| value.successor.id == segment) else {
            return Some(0); // the first
        };
        let base = self.descriptor(*before).first();
        let has_all = |node: &Arc<Node>| {
            node.plain.get(before).is_some_and(|plain| plain.sealed.is_some())
                || node
                    .held
                    .get(before)
                    .is_some_and(|held| !held.stored.promises.trimmed && held.stored.holds(base, value))
        };
        if !disks().any(has_all) {
            return None;
        }
        let last = record::ids(value.digest).last().map(|last| last + 1);
        last.or_else(|| self.table_at(*before))
    }

    /// Makes the log of a segment on a node, with the table at its base.
    pub(super) fn make_log(&mut self, id: NodeId, segment: SegmentId) {
        if !self.setting.cleans {
            return;
        }
        let descriptor = self.descriptor(segment).clone();
        let Some(replica) = descriptor.replicas.iter().find(|replica| replica.node == id).copied() else {
            return;
        };
        let table = self.table_at(segment);
        let start = CutId(self.node(id).process().as_u128());
        let held =
            self.node_mut(id).held.entry(segment).or_insert_with(|| Held::new(replica, &descriptor, start));
        held.stored.table = held.stored.table.or(table);
    }

    /// Makes the log behind a segment that is to go, and tells the metadata.
    pub(super) fn begin(&mut self, id: NodeId, segment: SegmentId) -> Checked {
        let replica = ReplicaRef { node: id, disk: self.node(id).disk };
        if !self.makes(Mistake::SuccessorWithoutTable) {
            self.make_log(id, segment);
            if self.node(id).held.get(&segment).is_none_or(|held| held.stored.table.is_none()) {
                return Ok(());
            }
        }
        let segments = vec![SegmentPlace { topic: TOPIC, partition: 0, segment }];
        self.propose(Command::ReportBegun { replica, segments }).map(drop)
    }
}
