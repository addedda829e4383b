//! Segments as the published metadata list them.

use walrus_metadata::{Segment, SegmentState};
use walrus_model::Descriptor;

use crate::cluster::Cluster;

impl Cluster {
    /// A segment as it is listed now.
    pub(crate) fn current(&self, segment: &Descriptor) -> Option<Segment> {
        let routing = self.routing();
        let partition = routing.topic(segment.topic)?.partition(segment.partition).ok()?;
        partition.segments.iter().rev().find(|listed| listed.descriptor.id == segment.id).cloned()
    }

    /// Metadata lists it, and not where it ends.
    pub(crate) fn is_unsealed(&self, segment: &Descriptor) -> bool {
        self.current(segment).is_some_and(|listed| !matches!(listed.state, SegmentState::Sealed(_)))
    }

    /// Metadata lists it, and where it ends.
    pub(crate) fn is_sealed(&self, segment: &Descriptor) -> bool {
        self.current(segment).is_some_and(|listed| matches!(listed.state, SegmentState::Sealed(_)))
    }
}
