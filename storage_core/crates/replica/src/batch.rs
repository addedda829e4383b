//! Batches as the machines see them: their offsets and their digests. The driver alone handles their bytes.

use walrus_model::{Digest, Offset};

/// A place between two batches, and the digest of everything before it in the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// First offset behind the place.
    pub end: Offset,
    /// Digest of the segment's batches below `end`.
    pub digest: Digest,
}

/// A batch of a segment, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Batch {
    /// Offset of its first record.
    pub base: Offset,
    /// First offset behind it.
    pub end: Offset,
    /// Digest of the segment's batches up to and with this one.
    pub digest: Digest,
}

impl Batch {
    /// The place behind it.
    #[must_use]
    pub fn mark(self) -> Mark {
        Mark { end: self.end, digest: self.digest }
    }
}
