//! Invariants S1 to S10 as checks of the whole world.

use super::*;

impl World {
    /// Checks an answer: after a promise nothing lower is answered (S4), and what a copy lets be read was acknowledged (S2, S5).
    pub(super) fn check_answer(&self, id: NodeId, segment: SegmentId, reply: &Reply) -> Checked {
        let stored = &self.node(id).held[&segment].stored;
        let Promises { promised, accepted, sealed, .. } = &stored.promises;
        let base = self.descriptor(segment).first();
        match reply {
            Reply::Ack { durable_end, .. } => {
                if promised.epoch > self.descriptor(segment).epoch || accepted.is_some() || sealed.is_some() {
                    return violation("S4: an append is acknowledged after a promise or a vote");
                }
                if *durable_end > stored.durable(base).end {
                    return violation("S7: an acknowledgement of what is not durable");
                }
                Ok(())
            }
            Reply::Accepted { ballot } if sealed.is_none() && ballot < promised => {
                violation("S4: a vote below a promise")
            }
            Reply::Accepted { .. }
                if sealed.is_none()
                    && accepted.as_ref().is_some_and(|(_, value)| !stored.holds(base, value)) =>
            {
                violation("S7: a vote for what is not on this disk")
            }
            _ => Ok(()),
        }
    }

    /// Checks that a copy is a prefix of what its one writer wrote, and shows only what was acknowledged or decided (S2, S5).
    pub(super) fn check_copy(&self, id: NodeId, segment: SegmentId) -> Checked {
        let Some(held) = self.node(id).held.get(&segment) else { return Ok(()) };
        let places = self.places(segment);
        for batch in &held.stored.batches {
            if !places.contains(&batch.mark()) {
                return violation(format!(
                    "S2: {batch:?} of {segment:?} on {id:?} was never written by its leader"
                ));
            }
        }
        if let Some(sealed) = &held.stored.promises.sealed
            && self.promised.decided.get(&segment) != Some(sealed)
        {
            return violation(format!(
                "S3: {id:?} holds {segment:?} sealed as {sealed:?}, which was not decided"
            ));
        }
        let Some(machine) = &held.machine else { return Ok(()) };
        let shown = machine.readable_end();
        let base = self.descriptor(segment).first();
        let acknowledged = self.promised.acknowledged.get(&segment).map_or(base, |mark| mark.end);
        let decided = self.promised.decided.get(&segment).map_or(base, |value| value.end);
        if shown > acknowledged.max(decided) {
            return violation(format!("S5: {id:?} lets {segment:?} be read to {shown:?}"));
        }
        Ok(())
    }

    /// Checks that acknowledged batches are in the decision, or that their loss is told (S1).
    pub(super) fn check_decision(&self, segment: SegmentId) -> Checked {
        let Some(value) = self.promised.decided.get(&segment) else { return Ok(()) };
        let places = self.places_without(segment, &value.lost);
        if !places.contains(&Mark { end: value.end, digest: value.digest }) {
            return violation(format!(
                "S1: {segment:?} is decided with bytes that were not written: {value:?}"
            ));
        }
        let is_told = !value.possible_loss.is_empty() || !value.lost.is_empty();
        if is_told && self.losses == 0 {
            return violation("a loss is told, and nothing was lost");
        }
        if !value.possible_loss.is_empty() {
            return Ok(());
        }
        if let Some(mark) = self.promised.acknowledged.get(&segment)
            && mark.end > value.end
        {
            return violation(format!(
                "S1: {segment:?} was acknowledged to {:?} and ends at {:?}",
                mark.end, value.end
            ));
        }
        let descriptor = self.descriptor(segment);
        if value.successor.epoch <= descriptor.epoch || value.successor.base_offset != Some(value.end) {
            return violation(format!("S6: {descriptor:?} is followed by {:?}", value.successor));
        }
        Ok(())
    }

    /// Checks that at least w copies hold the decision durably, less those that faults have taken (S7).
    pub(super) fn check_copies(&self, segment: SegmentId) -> Checked {
        let (descriptor, value) = (self.descriptor(segment), &self.promised.decided[&segment]);
        let holds = |replica: &&ReplicaRef| {
            let node = self.node(replica.node);
            node.held.get(&segment).is_some_and(|held| {
                held.stored.promises.trimmed || held.stored.holds(descriptor.first(), value)
            })
        };
        let holders = descriptor.replicas.iter().filter(holds).count();
        if holders + self.losses < descriptor.write_quorum() {
            return violation(format!("S7: {segment:?} is decided on {holders} copies"));
        }
        Ok(())
    }

    /// Checks that every value that the metadata publish was decided (S3).
    pub(super) fn check_metadata(&self) -> Checked {
        let Some(partition) = self.partition() else { return Ok(()) };
        for segment in &partition.segments {
            let id = segment.descriptor.id;
            if segment.compacted.is_some() {
                self.check_replacement(segment)?;
                continue;
            }
            if let SegmentState::Sealed(value) = &segment.state
                && self.promised.decided.get(&id) != Some(value)
            {
                return violation(format!("S3: metadata publishes {value:?}, which was not decided"));
            }
            if segment.descriptor != *self.descriptor(id) {
                return violation(format!("S9: {id:?} has two descriptors"));
            }
            if segment.descriptor.epoch >= partition.next_epoch {
                return violation(format!("S6: the next epoch is not above that of {id:?}"));
            }
        }
        Ok(())
    }

    pub(super) fn is_in_chain(&self, segment: SegmentId) -> bool {
        self.chain().contains(&segment)
    }

    /// The segments of the partition as the replicas decided them.
    pub(super) fn chain(&self) -> Vec<SegmentId> {
        let first = self.promised.descriptors.values().find(|descriptor| descriptor.number == 0);
        let mut all = vec![first.expect("the first").id];
        while let Some(value) = self.promised.decided.get(&all[all.len() - 1]) {
            all.push(value.successor.id);
        }
        all
    }

    /// The batches of the partition below a segment, or all that are acknowledged or decided.
    pub(super) fn chain_up_to(&self, segment: SegmentId) -> Vec<BatchId> {
        let chain = self.chain();
        let before = chain.iter().take_while(|link| **link != segment);
        let decided = before.filter_map(|link| self.promised.decided.get(link));
        decided.flat_map(|value| record::ids(value.digest)).collect()
    }

    /// Checks that no batch is in the log twice, and that each producer's are in order (S8, S10).
    pub(super) fn check_log(&self) -> Checked {
        let chain = self.chain();
        let open = chain[chain.len() - 1];
        let mut log = self.chain_up_to(open);
        log.extend(self.promised.acknowledged.get(&open).map_or(Vec::new(), |mark| record::ids(mark.digest)));
        let mut seen = BTreeSet::new();
        if let Some(twice) = log.iter().find(|id| !seen.insert(**id)) {
            return violation(format!("S8: batch {twice} is twice in {log:?}"));
        }
        if self.setting.idempotent && !log.windows(2).all(|pair| pair[0] < pair[1]) {
            return violation(format!("S10: out of order: {log:?}"));
        }
        // These batches were acknowledged and are not in the chain at all.
        for (segment, mark) in &self.promised.acknowledged {
            let base = self.descriptor(*segment).first();
            if mark.end > base && !chain.contains(segment) && !self.promised.is_forgotten {
                return violation(format!("S1: {segment:?} was acknowledged and is not in the partition"));
            }
        }
        Ok(())
    }
}
