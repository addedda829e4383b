//! Counts of a pass: what it read, what stays and what goes.

use walrus_log::Sieve;
use walrus_model::Offset;

/// What stays of segments.
#[derive(Default)]
pub(super) struct Stay {
    pub(super) bytes_read: u64,
    pub(super) records_kept: u64,
    pub(super) records_gone: u64,
    pub(super) tombstones_kept: u64,
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
}

/// What became of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PassSummary {
    pub(super) cleaned_to: Offset,
    pub(super) segments_before: usize,
    pub(super) segments_after: usize,
    pub(super) bytes_read: u64,
    pub(super) records_kept: u64,
    pub(super) records_gone: u64,
    /// Tombstones that stay.
    pub(super) tombstones_kept: u64,
    /// The first batch that could not be read: no tombstone goes behind it, and none there is all that is left of its key.
    pub(super) first_unread: Option<Offset>,
}

impl PassSummary {
    /// Counts what stays of a segment.
    pub(super) fn count(&mut self, stays: &Stay) {
        self.bytes_read += stays.bytes_read;
        self.records_kept += stays.records_kept;
        self.records_gone += stays.records_gone;
        self.tombstones_kept += stays.tombstones_kept;
        self.first_unread = self.first_unread.or(stays.first_unread);
    }
}
