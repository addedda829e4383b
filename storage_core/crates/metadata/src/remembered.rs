//! What disks remember and metadata may have forgotten, for they can be set back: trims, and segments that took the place of others.
//! Brokers ask here before they tell the metadata again, and before they delete what they could be asked for.

use walrus_model::Descriptor;

use crate::compaction::Replacement;
use crate::segment::{Segment, SegmentCopy};
use crate::state::{Metadata, Partition};

impl Partition {
    /// Whether these metadata know that everything before a segment was trimmed. Where a compaction has put the segment and some that
    /// were trimmed into one, because metadata that were set back had forgotten the trim, what was trimmed lies below the start instead.
    #[must_use]
    pub fn knows_trim(&self, below_number: u64, first: &Descriptor) -> bool {
        below_number <= self.trimmed_below
            || (self.lies_within(below_number)
                && first.base_offset.is_none_or(|base| base <= self.log_start()))
    }

    /// Whether the first segment is one into which this number and some before it were put.
    pub(crate) fn lies_within(&self, number: u64) -> bool {
        let is_within =
            |first: &Segment| (first.first_number() + 1..=first.descriptor.number).contains(&number);
        self.segments.first().is_some_and(is_within)
    }

    /// Whether these metadata list the segment of a replacement, or what took its place in turn, or know that it was trimmed.
    #[must_use]
    pub fn knows_replacement(&self, replacement: &Replacement) -> bool {
        let id = replacement.descriptor.id;
        replacement.descriptor.number < self.trimmed_below
            || self.segments.iter().any(|listed| listed.descriptor.id == id)
            || self.successor_of(replacement).is_some()
    }

    /// The listed segment that has the place of one that was replaced or given up as a candidate.
    #[must_use]
    pub fn holder_of_place(&self, replaced: &Segment) -> Option<&Segment> {
        let holder = self.holder_of_number(replaced.descriptor.number);
        holder.filter(|listed| listed.descriptor.id != replaced.descriptor.id)
    }

    /// The listed segment that took the place of a replacement in turn.
    fn successor_of(&self, replacement: &Replacement) -> Option<&Segment> {
        let Replacement { descriptor, compacted, .. } = replacement;
        let holder = self.holder_of_number(descriptor.number)?;
        let is_later = holder.compacted.is_some() && holder.generation() >= compacted.generation;
        (is_later && holder.descriptor.id != descriptor.id).then_some(holder)
    }

    fn holder_of_number(&self, number: u64) -> Option<&Segment> {
        self.segments
            .iter()
            .find(|listed| (listed.first_number()..=listed.descriptor.number).contains(&number))
    }
}

impl Metadata {
    /// Whether what a segment took the place of may go: as many disks as have to acknowledge a record have a whole copy of it, and
    /// remember that it took the place of others. However far metadata are set back, these keep their copies, and tell of it.
    #[must_use]
    pub fn holds_its_place(&self, segment: &Segment) -> bool {
        let counts = |copy: &&SegmentCopy| self.is_here(copy.replica) && segment.counts(copy);
        segment.copies.iter().filter(counts).count() >= segment.descriptor.write_quorum as usize
    }

    /// Whether nobody will need to remember a replacement any more: it was trimmed, or what took its place in turn is remembered by
    /// enough disks.
    #[must_use]
    pub fn outlives(&self, partition: &Partition, replacement: &Replacement) -> bool {
        let successor = partition.successor_of(replacement);
        replacement.descriptor.number < partition.trimmed_below
            || successor.is_some_and(|successor| self.holds_its_place(successor))
    }
}
