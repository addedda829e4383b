//! The order of attempts to decide a segment's end.

use crate::identity::AttemptId;
use crate::number::Epoch;

/// A ballot of the single decision about a segment's end: (epoch, attempt), compared in this order. The default is below
/// every real one: nothing was promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ballot {
    /// The segment's epoch for ballot 0, else a fresh one from the metadata (R4).
    pub epoch: Epoch,
    /// Identity of the attempt; two recoverers never share one.
    pub attempt: AttemptId,
}

impl Ballot {
    /// Ballot 0 of an epoch: it belongs to the process that writes the segment, and carries one value, once (R3).
    #[must_use]
    pub const fn zero(epoch: Epoch) -> Self {
        Self { epoch, attempt: AttemptId::WRITER }
    }

    /// Whether this is the writer's own ballot.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.attempt == AttemptId::WRITER
    }
}
