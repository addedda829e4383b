//! What is remembered of one idempotent producer.

use std::collections::VecDeque;

/// Number of batches remembered of each producer: Kafka's limit of requests in flight.
pub(super) const BATCHES_KEPT: usize = 5;

/// A producer, by its newest epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Producer {
    pub(super) epoch: i16,
    /// Batches with the oldest first; never empty, at most [`BATCHES_KEPT`].
    pub(super) batches: VecDeque<KeptBatch>,
}

/// A batch that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeptBatch {
    pub(super) base_sequence: i32,
    pub(super) records: u32,
    pub(super) base_offset: u64,
}
