//! What is decided about a segment: decided together, adopted together, published together.

use crate::descriptor::Descriptor;
use crate::types::{Digest, Offset};

/// The end of a segment and what comes next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value {
    /// First offset behind the segment.
    pub end: Offset,
    /// Of the batches below `end`.
    pub digest: Digest,
    /// The whole descriptor of the next segment, its base being `end` (R6).
    pub successor: Box<Descriptor>,
    /// Offsets that may have been acknowledged and are gone, because a suspect or a gone disk had to be counted (R4).
    pub possible_loss: Vec<OffsetRange>,
}

/// Half-open run of offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OffsetRange {
    /// First offset in it.
    pub start: Offset,
    /// First offset behind it; the highest possible one where nobody knows how many there were.
    pub end: Offset,
}
