//! The promises of the world: what clients were told, and what was decided.

use super::*;

impl World {
    /// The places between the written batches of a segment.
    pub(super) fn places(&self, segment: SegmentId) -> Vec<Mark> {
        let base = self.descriptor(segment).first();
        let written = self.promised.written.get(&segment).map_or(Digest(0), |mark| mark.digest);
        record::marks(base, written)
    }

    /// The same places with digests that leave out some ranges.
    pub(super) fn places_without(&self, segment: SegmentId, lost: &[OffsetRange]) -> Vec<Mark> {
        let places = self.places(segment);
        let is_lost = |mark: &Mark| lost.iter().any(|range| range.start < mark.end && mark.end <= range.end);
        let mut last = places[0];
        let mut without = vec![last];
        for mark in &places[1..] {
            last = match record::last_id(mark.digest).filter(|_| !is_lost(mark)) {
                Some(id) => batch_after(last, id).mark(),
                None => Mark { end: mark.end, digest: last.digest },
            };
            without.push(last);
        }
        without
    }

    pub(super) fn acknowledge(&mut self, segment: SegmentId, end: Offset) -> Checked {
        let Some(mark) = self.places(segment).into_iter().find(|mark| mark.end == end) else {
            return violation(format!("S1: {end:?} of {segment:?} was acknowledged and never written"));
        };
        let known = Arc::make_mut(&mut self.promised).acknowledged.entry(segment).or_insert(mark);
        *known = (*known).max(mark);
        self.check_decision(segment)?;
        self.check_log()
    }

    /// Notes what the only copy of a segment shows of an earlier process's batches: acknowledged or not, they were read, and stay.
    pub(super) fn read_if_shown(&mut self, id: NodeId, segment: SegmentId) -> Checked {
        let descriptor = self.descriptor(segment);
        let machine = self.node(id).held.get(&segment).and_then(|held| held.machine.as_ref());
        let shown = machine.map_or(descriptor.first(), Replica::readable_end);
        let known = self.promised.acknowledged.get(&segment).map_or(descriptor.first(), |mark| mark.end);
        let is_decided = self.promised.decided.contains_key(&segment);
        if descriptor.replicas.len() == 1 && shown > known && !is_decided {
            return self.acknowledge(segment, shown);
        }
        Ok(())
    }

    pub(super) fn decide(&mut self, segment: SegmentId, value: &Value) -> Checked {
        if let Some(known) = self.promised.decided.get(&segment) {
            if known == value {
                return Ok(());
            }
            let what = format!("S3: {segment:?} has {known:?} and {value:?}");
            if !self.may_have_forgotten(segment) || value.possible_loss.is_empty() {
                return violation(what);
            }
            let promised = Arc::make_mut(&mut self.promised);
            promised.is_forgotten = true;
        }
        let promised = Arc::make_mut(&mut self.promised);
        promised.decided.insert(segment, value.clone());
        let next = (*value.successor).clone();
        promised.descriptors.insert(next.id, next);
        self.check_decision(segment)?;
        self.check_copies(segment)?;
        self.check_lost(segment, value)?;
        self.check_log()
    }

    /// Whether all who voted may be among the lost disks: then nobody who is left knows of a decision (R15).
    fn may_have_forgotten(&self, segment: SegmentId) -> bool {
        let descriptor = self.descriptor(segment);
        let lost = descriptor.replicas.iter().filter(|replica| self.node(replica.node).lost);
        lost.count() >= descriptor.write_quorum()
    }

    pub(super) fn alarm(&self, segment: SegmentId, alarm: Alarm) -> Checked {
        // Where a decision said that something may be lost, a leader or a copy may hold more than it could save.
        let told = self.promised.decided.get(&segment).is_some_and(tells_loss);
        if told && matches!(alarm, Alarm::Diverged { .. }) {
            return Ok(());
        }
        violation(format!("alarm in {segment:?}: {alarm:?}"))
    }

    pub(super) fn losses_told(&self) -> bool {
        self.promised.decided.values().any(tells_loss)
    }
}

fn tells_loss(value: &Value) -> bool {
    !value.possible_loss.is_empty() || !value.lost.is_empty()
}
