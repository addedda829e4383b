//! The failures of those that were asked for records, and the one error that comes of them.

use walrus_model::SegmentId;

use crate::node::error::Error;
use crate::node::obstacle::Obstacle;

/// Why no source had the wanted batch.
#[derive(Default)]
pub(super) struct Failures {
    last: Option<Error>,
    /// The range that is damaged on every copy that was asked so far.
    damaged: Option<(String, u64, u64)>,
    /// Some node could not say, so its copy may be sound.
    pub(super) is_unsure: bool,
}

impl Failures {
    /// Notes why one source had nothing.
    pub(super) fn add(&mut self, error: Error) {
        let error = match error {
            // A read may always be repeated; and one whose metadata are older than ours has yet to learn.
            Error::OutcomeUnknown { what } => Obstacle::Told { words: what }.into(),
            Error::UnknownSegment { segment } => Obstacle::SegmentUnheardOf { segment }.into(),
            error => error,
        };
        if let Error::Corrupted { key, start, end, .. } = &error {
            let (from, to) = self.damaged.take().map_or((0, u64::MAX), |(_, from, to)| (from, to));
            self.damaged = Some((key.clone(), from.max(*start), to.min(*end)));
        } else {
            self.is_unsure = true;
        }
        self.last = Some(error);
    }

    /// The error for all of them. It is a loss only where every copy is damaged; as long as one may come back, it is waited for.
    pub(super) fn sum(self, segment: SegmentId) -> Error {
        let nobody = || Obstacle::WithoutReplica { segment }.into();
        match (self.damaged, self.is_unsure) {
            (Some((key, start, end)), false) => Error::DataLoss { key, start, end },
            (Some(_), true) => Obstacle::AnsweringCopiesDamaged { segment }.into(),
            (None, _) => self.last.unwrap_or_else(nobody),
        }
    }
}
