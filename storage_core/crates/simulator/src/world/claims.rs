//! What leaders say of the end of their segment, also those that were asleep while it was decided, and what the copies forget
//! meanwhile.

use super::*;

impl World {
    /// Whether the votes of a copy may go: it is sealed, and metadata list its segment so. Its seal answers for it.
    #[must_use]
    pub fn may_forget(&self, id: NodeId, segment: SegmentId) -> bool {
        let stored = &self.node(id).held[&segment].stored;
        let listed = self.partition().into_iter().flat_map(|partition| &partition.segments);
        let is_listed = listed.into_iter().any(|one| {
            one.descriptor.uuid.as_u128() == segment.0 && matches!(one.state, SegmentState::Sealed(_))
        });
        is_listed && stored.promises.sealed.is_some() && !stored.promises.trimmed && !stored.forgotten
    }

    /// The votes of a copy go.
    pub fn forget_votes(&mut self, id: NodeId, segment: SegmentId) {
        if let Some(held) = self.node_mut(id).held.get_mut(&segment) {
            held.stored.forgotten = true;
        }
    }

    /// A leader is asked where its segment ends, and asks the other replicas. What it then says must be so, however long its
    /// process slept before.
    pub fn claim(&self, segment: SegmentId) -> Checked {
        let Some(leading) = self.leaders.get(&segment) else { return Ok(()) };
        let descriptor = self.descriptor(segment);
        let is_own = |replica: &&ReplicaRef| replica.node == descriptor.leader.node;
        let own = descriptor.replicas.iter().find(is_own).expect("the leader stores it");
        let others = descriptor.replicas.iter().filter(|replica| !is_own(replica));
        let tail = Tail {
            replicas: descriptor.replicas.len(),
            write_quorum: descriptor.write_quorum(),
            is_leader: true,
            own: self.part(*own, segment),
            confirmed: others.filter(|replica| self.part(**replica, segment).is_ok()).count(),
        };
        let end = leading.machine.high_watermark();
        if tail.may_claim_end().is_ok()
            && let Some(value) = self.promised.decided.get(&segment)
        {
            return violation(format!(
                "a leader that was asleep says that {segment:?} ends at {end:?}, and it was decided as {value:?}"
            ));
        }
        Ok(())
    }

    /// How a copy stands for its leader; one whose node does not answer does not.
    fn part(&self, replica: ReplicaRef, segment: SegmentId) -> Result<Part, Doubt> {
        let node = self.node(replica.node);
        if !node.up || node.disk != replica.disk {
            return Err(Doubt::Unreadable);
        }
        let last = self.partition().and_then(|partition| partition.segments.last());
        let is_open = last.is_some_and(|last| {
            last.descriptor.uuid.as_u128() == segment.0 && last.state == SegmentState::Open
        });
        let held = node.held.get(&segment);
        let stored = held.map(|held| &held.stored);
        let is_trimmed = stored.is_some_and(|stored| stored.promises.trimmed);
        let is_written =
            stored.is_some_and(|stored| !stored.batches.is_empty() || stored.promises.sealed.is_some());
        let machine = held.filter(|held| !held.stored.forgotten).and_then(|held| held.machine.as_ref());
        OwnCopy { is_open, is_trimmed, is_written, takes_appends: machine.map(Replica::takes_appends) }.part()
    }
}
