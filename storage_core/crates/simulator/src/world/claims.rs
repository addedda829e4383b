//! Claims of leaders about the end of their segment, also of those that were asleep while it was decided, and the votes that
//! copies forget meanwhile.

use super::*;

impl World {
    /// Whether the votes of a copy may be forgotten: it is sealed, and the metadata that its node knows list its segment as
    /// sealed. Its seal then answers for it.
    #[must_use]
    pub fn may_forget(&self, id: NodeId, segment: SegmentId, known: &Committed) -> bool {
        let stored = &self.node(id).held[&segment].stored;
        let listed =
            known.state.topics.get(&TOPIC).into_iter().flat_map(|topic| &topic.partitions[0].segments);
        let is_listed = listed
            .into_iter()
            .any(|one| one.descriptor.id == segment && matches!(one.state, SegmentState::Sealed(_)));
        is_listed && stored.promises.sealed.is_some() && !stored.promises.trimmed && !stored.forgotten
    }

    /// Forgets the votes of a copy.
    pub fn forget_votes(&mut self, id: NodeId, segment: SegmentId) {
        if let Some(held) = self.node_mut(id).held.get_mut(&segment) {
            held.stored.forgotten = true;
        }
    }

    /// Asks a leader where its segment ends. It asks the other replicas, each of which goes by the metadata that it knows, if
    /// these are as new as the leader's word of the segment. The end that it then names must be right, however long its
    /// process slept before. Answers whether it named one.
    pub fn claim(
        &self,
        segment: SegmentId,
        known: &[Arc<Committed>],
        answers: impl Fn(NodeId) -> bool,
    ) -> Result<bool, Violation> {
        let Some(leading) = self.leaders.get(&segment) else { return Ok(false) };
        let known = |node: NodeId| &*known[node.0 as usize - 1];
        let descriptor = self.descriptor(segment);
        let is_own = |replica: &&ReplicaRef| replica.node == descriptor.leader.node;
        let own = descriptor.replicas.iter().find(is_own).expect("the leader stores it");
        let version = listed(known(own.node), segment).map_or(0, |listed| listed.version);
        let confirms = |replica: &&ReplicaRef| {
            let known = known(replica.node);
            let knows_enough = known.state.version >= version;
            answers(replica.node) && knows_enough && self.part(**replica, segment, known).is_ok()
        };
        let others = descriptor.replicas.iter().filter(|replica| !is_own(replica));
        let tail = Tail {
            replicas: descriptor.replicas.len(),
            write_quorum: descriptor.write_quorum(),
            is_leader: true,
            own: self.part(*own, segment, known(own.node)),
            confirmed: others.filter(confirms).count(),
        };
        if tail.may_claim_end().is_err() {
            return Ok(false);
        }
        let end = leading.machine.high_watermark();
        match self.promised.decided.get(&segment) {
            Some(value) => violation(format!(
                "a leader that was asleep says that {segment:?} ends at {end:?}, and it was decided as {value:?}"
            )),
            None => Ok(true),
        }
    }

    /// The part that a copy plays for its leader, by the metadata that its node knows; it plays none while its node is down.
    fn part(&self, replica: ReplicaRef, segment: SegmentId, known: &Committed) -> Result<Part, Doubt> {
        let node = self.node(replica.node);
        if !node.up || node.disk != replica.disk {
            return Err(Doubt::Unreadable);
        }
        let is_open = listed(known, segment).is_some_and(|listed| listed.state == SegmentState::Open);
        let held = node.held.get(&segment);
        let stored = held.map(|held| &held.stored);
        let is_trimmed = stored.is_some_and(|stored| stored.promises.trimmed);
        let is_written =
            stored.is_some_and(|stored| !stored.batches.is_empty() || stored.promises.sealed.is_some());
        let machine = held.filter(|held| !held.stored.forgotten).and_then(|held| held.machine.as_ref());
        OwnCopy { is_open, is_trimmed, is_written, takes_appends: machine.map(Replica::takes_appends) }.part()
    }
}

/// The segment, if it is the last one that these metadata list.
fn listed(known: &Committed, segment: SegmentId) -> Option<&metadata::Segment> {
    let last = known.state.topics.get(&TOPIC)?.partitions[0].segments.last()?;
    (last.descriptor.id == segment).then_some(last)
}
