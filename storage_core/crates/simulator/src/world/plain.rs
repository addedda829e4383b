//! Copies of sealed segments that have no vote: those that a compactor writes, those that are fetched page by page, and how
//! copies are told from each other.

use walrus_metadata::{Command, CopyReport, Found};

use super::*;
use crate::record::Record;

/// Records in a page.
const PAGE: usize = 3;

/// A copy without a vote. What is in it is durable, page by page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plain {
    /// Its records.
    pub records: Vec<Record>,
    /// It has all below.
    pub to: Offset,
    /// Its digest, once it is whole.
    pub sealed: Option<Digest>,
    /// Whether the metadata do not know it yet.
    pub is_scratch: bool,
}

impl World {
    /// Whether a node has all of a segment, compared and sealed.
    pub(super) fn has_whole(&self, node: &Node, segment: SegmentId) -> bool {
        let is_sealed = |held: &Held| held.stored.promises.sealed.is_some() && !held.stored.promises.trimmed;
        node.plain.get(&segment).is_some_and(|plain| plain.sealed.is_some())
            || node.held.get(&segment).is_some_and(is_sealed)
    }

    /// Whether a node has anything of a segment.
    pub(super) fn has_some(&self, node: &Node, segment: SegmentId) -> bool {
        node.plain.contains_key(&segment)
            || node.held.get(&segment).is_some_and(|held| !held.stored.promises.trimmed)
    }

    /// What a whole copy of a node holds.
    pub(super) fn records_on(&self, node: &Node, segment: SegmentId) -> Vec<Record> {
        node.plain.get(&segment).map_or_else(|| self.records(segment), |plain| plain.records.clone())
    }

    /// Copies one page of a sealed segment from a node that has it, and compares the whole with the digest at the end.
    pub(super) fn copy_page(&mut self, id: NodeId, segment: SegmentId, value: &Value) -> Checked {
        let Some((base, end)) = self.range(segment) else { return Ok(()) };
        let of_number = self.makes(Mistake::DigestOverBothForms);
        let mut plain = self.node(id).plain.get(&segment).cloned().unwrap_or_else(|| Plain {
            records: Vec::new(),
            to: base,
            sealed: None,
            is_scratch: false,
        });
        let others = || self.nodes.iter().filter(|node| node.up && node.id != id);
        let same = others().find(|node| self.has_whole(node, segment)).map(|node| (node, segment));
        // A mistake: whatever lies at these offsets is taken.
        let any = of_number.then(|| {
            others().rev().find_map(|node| {
                let of_node = node.plain.keys().chain(node.held.keys());
                let mut whole = of_node.filter(|other| self.has_whole(node, **other));
                let has_place = |other: &&SegmentId| {
                    self.range(**other).is_some_and(|(from, to)| (from..to).contains(&plain.to))
                };
                whole.find(has_place).map(|other| (node, *other))
            })
        });
        if plain.to < end {
            let Some((node, source)) = any.flatten().or(same) else { return Ok(()) };
            let there = self.records_on(node, source);
            let mut rest =
                there.into_iter().filter(|record| plain.to <= record.offset && record.offset < end);
            plain.records.extend(rest.by_ref().take(PAGE));
            plain.to = rest.next().map_or(end, |next| next.offset);
        }
        if plain.to == end {
            let digest = match self.promised.forms.contains_key(&segment) {
                true => record::digest_of_rest(&plain.records),
                false => record::digest_of_batches(&plain.records),
            };
            plain.sealed = (of_number || digest == value.digest).then_some(value.digest);
            if plain.sealed.is_none() {
                return violation(format!("S2: a copy of {segment:?} has other bytes: {plain:?}"));
            }
        }
        self.node_mut(id).plain.insert(segment, plain);
        self.check_plain(id, segment)
    }

    /// Checks that a whole copy holds one form of its segment, and all of it (S2).
    pub(super) fn check_plain(&self, id: NodeId, segment: SegmentId) -> Checked {
        let Some(plain) = self.node(id).plain.get(&segment) else { return Ok(()) };
        if plain.sealed.is_some() && plain.records != self.records(segment) {
            return violation(format!("S2: the copy of {segment:?} on {id:?} mixes two forms"));
        }
        Ok(())
    }

    /// Tells the metadata how a copy is that they list.
    pub(super) fn report(&mut self, id: NodeId, segment: SegmentId, since: u64) -> Checked {
        let node = self.node(id);
        let replica = ReplicaRef { node: id, disk: node.disk };
        let (found, contents) = if self.has_whole(node, segment) {
            let digest = match self.promised.forms.get(&segment) {
                Some(form) => form.replacement.value.digest,
                None => self.promised.decided[&segment].digest,
            };
            (Found::Whole { digest }, Some(self.contents(&self.records_on(node, segment))))
        } else {
            (Found::Gone, None)
        };
        let report = CopyReport { topic: TOPIC, partition: 0, segment, since, found, contents };
        self.propose(Command::ReportCopies { replica, reports: vec![report] })?
            .map_or(Ok(()), |()| self.check_metadata())
    }

    /// What records are told to hold: ten bytes each, and when the newest was sent.
    pub(super) fn contents(&self, records: &[Record]) -> metadata::Contents {
        let times = records.iter().filter_map(|record| self.promised.times.get(&record.batch));
        let newest_ms = times.max().and_then(|newest| i64::try_from(*newest).ok());
        metadata::Contents { bytes: 10 * records.len() as u64, newest_ms }
    }
}
