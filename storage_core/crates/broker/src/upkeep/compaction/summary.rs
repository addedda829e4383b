//! Counts of a pass: what it read, what stays and what goes.

use walrus_log::Sieve;
use walrus_model::Offset;

/// What stays of segments.
#[derive(Default)]
pub(super) struct Stay {
    pub(super) bytes_read: u64,
    pub(super) records_kept: u64,
    pub(super) records_gone: u64,
    /// Tombstones that stay.
    pub(super) tombstones_kept: u64,
    /// The first batch that could not be read: no tombstone goes behind it, and none there is all that is left of its key.
    pub(super) first_unread: Option<Offset>,
}

impl Stay {
    pub(super) fn of(sieve: &Sieve<'_>) -> Self {
        let sieved = sieve.sieved();
        Self {
            bytes_read: sieved.bytes_in,
            records_kept: sieved.records_kept,
            records_gone: sieved.records_gone,
            tombstones_kept: sieved.tombstones_kept,
            first_unread: sieve.first_unread(),
        }
    }

    /// Adds what stays of the segments behind these.
    pub(super) fn add(&mut self, behind: &Self) {
        self.bytes_read += behind.bytes_read;
        self.records_kept += behind.records_kept;
        self.records_gone += behind.records_gone;
        self.tombstones_kept += behind.tombstones_kept;
        self.first_unread = self.first_unread.or(behind.first_unread);
    }
}

/// What became of a pass.
#[derive(Default)]
pub(super) struct PassSummary {
    pub(super) cleaned_to: Offset,
    pub(super) segments_before: usize,
    pub(super) segments_after: usize,
    /// What stays of all its segments together.
    pub(super) stays: Stay,
}
