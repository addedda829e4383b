//! Segments as the published metadata list them.

use walrus_metadata::{Segment, SegmentState};
use walrus_model::Descriptor;

use crate::cluster::Cluster;

impl Cluster {
    /// A segment as the metadata list it now, as a candidate of a compaction or a replaced one too; `None` if they do not.
    pub(crate) fn current(&self, segment: &Descriptor) -> Option<Segment> {
        let routing = self.routing();
        let partition = routing.topic(segment.topic)?.partition(segment.partition).ok()?;
        partition.all_segments().find(|listed| listed.descriptor.id == segment.id).cloned()
    }

    /// Whether metadata list a segment and not where it ends.
    pub(crate) fn is_unsealed(&self, segment: &Descriptor) -> bool {
        self.current(segment).is_some_and(|listed| !matches!(listed.state, SegmentState::Sealed(_)))
    }

    /// Whether metadata list a segment and where it ends.
    pub(crate) fn is_sealed(&self, segment: &Descriptor) -> bool {
        self.current(segment).is_some_and(|listed| matches!(listed.state, SegmentState::Sealed(_)))
    }
}
