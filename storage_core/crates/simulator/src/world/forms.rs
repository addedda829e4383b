//! What sealed segments hold, record by record: as their leaders wrote them, or as a compaction left it.

use std::hash::{Hash, Hasher};

use walrus_metadata::Replacement;

use super::*;
use crate::record::Record;

/// A segment that a compaction wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// The segment as metadata list it, once it takes the place of others.
    pub replacement: Replacement,
    /// Its records.
    pub records: Vec<Record>,
}

impl Hash for Form {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.replacement.descriptor.id, &self.records).hash(state);
    }
}

impl World {
    /// What a sealed segment holds.
    pub(super) fn records(&self, segment: SegmentId) -> Vec<Record> {
        match self.promised.forms.get(&segment) {
            Some(form) => form.records.clone(),
            None => self.written_up_to(segment, self.promised.decided.get(&segment)),
        }
    }

    /// The offsets of a sealed segment; `None` if nobody has decided its end.
    pub(super) fn range(&self, segment: SegmentId) -> Option<(Offset, Offset)> {
        let Some(form) = self.promised.forms.get(&segment) else {
            let value = self.promised.decided.get(&segment)?;
            return Some((self.descriptor(segment).first(), value.end));
        };
        Some((form.replacement.descriptor.first(), form.replacement.value.end))
    }

    /// The number of a segment, also of one that a compaction wrote.
    pub(super) fn number(&self, segment: SegmentId) -> u64 {
        let form = self.promised.forms.get(&segment);
        form.map_or_else(|| self.descriptor(segment).number, |form| form.replacement.descriptor.number)
    }

    /// All records that are decided or acknowledged, whatever became of them later.
    pub(super) fn all_records(&self) -> Vec<Record> {
        let chain = self.chain();
        let open = chain[chain.len() - 1];
        let decided =
            chain.iter().flat_map(|link| self.written_up_to(*link, self.promised.decided.get(link)));
        let mut all: Vec<Record> = decided.collect();
        if let Some(mark) = self.promised.acknowledged.get(&open) {
            let written = self.written(open).into_iter();
            all.extend(written.filter(|record| record.offset < mark.end));
        }
        all
    }

    fn written_up_to(&self, segment: SegmentId, value: Option<&Value>) -> Vec<Record> {
        let Some(value) = value else { return Vec::new() };
        let is_lost = |at: Offset| value.lost.iter().any(|range| range.start <= at && at < range.end);
        let written = self.written(segment).into_iter();
        written.filter(|record| record.offset < value.end && !is_lost(record.offset)).collect()
    }

    /// All that the leader of a segment has written.
    pub(super) fn written(&self, segment: SegmentId) -> Vec<Record> {
        let places = self.places(segment);
        let batches =
            places.windows(2).filter_map(|pair| Some((pair[0].end, record::last_id(pair[1].digest)?)));
        batches.flat_map(|(base, batch)| record::records_of(base, batch)).collect()
    }

    /// Checks that a listed segment that took the place of others is the one that was written.
    pub(super) fn check_replacement(&self, listed: &metadata::Segment) -> Checked {
        let Some(form) = self.promised.forms.get(&listed.descriptor.id) else {
            return violation(format!(
                "S9: {:?} took the place of others and nobody wrote it",
                listed.descriptor.id
            ));
        };
        let Replacement { descriptor, value, .. } = &form.replacement;
        if listed.descriptor != *descriptor || listed.state != SegmentState::Sealed(value.clone()) {
            return violation(format!("S3: {:?} is listed otherwise than it was written", descriptor.id));
        }
        Ok(())
    }
}
