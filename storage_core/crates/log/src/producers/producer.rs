//! What is remembered of one idempotent producer.

use siphasher::sip128::{Hasher128, SipHasher13};
use smallvec::SmallVec;

use std::hash::Hasher;

use crate::format::fields::{Fields, PutFields};

/// Number of batches remembered of each producer: Kafka's limit of requests in flight.
pub(super) const BATCHES_KEPT: usize = 5;
/// Bytes of an encoded producer in front of its batches: its epoch and their number.
const HEAD_BYTES: usize = 2 + 1;
const BATCH_BYTES: usize = 4 + 4 + 8;
/// Most bytes that a producer takes, without its id.
pub(super) const ENCODED_BYTES_MAX: usize = HEAD_BYTES + BATCHES_KEPT * BATCH_BYTES;

/// A producer, by its newest epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Producer {
    pub(super) epoch: i16,
    /// Batches with the oldest first; at most [`BATCHES_KEPT`], and none only before the first is recorded.
    pub(super) batches: SmallVec<[KeptBatch; BATCHES_KEPT]>,
}

/// A batch that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeptBatch {
    pub(super) base_sequence: i32,
    pub(super) records: u32,
    pub(super) base_offset: u64,
}

impl Producer {
    pub(super) fn new(epoch: i16) -> Self {
        Self { epoch, batches: SmallVec::new() }
    }

    /// Remembers a batch; those of another epoch, and the oldest of too many, are forgotten.
    pub(super) fn record(&mut self, epoch: i16, batch: KeptBatch) {
        if self.epoch != epoch {
            *self = Self::new(epoch);
        }
        if self.batches.len() == BATCHES_KEPT {
            self.batches.remove(0);
        }
        self.batches.push(batch);
    }

    /// First offset of the newest batch.
    pub(super) fn newest_offset(&self) -> u64 {
        self.batches.last().map_or(0, |batch| batch.base_offset)
    }

    /// A number over the id and everything else.
    pub(super) fn digest(&self, id: i64) -> u128 {
        let mut hasher = SipHasher13::new_with_keys(0, 0);
        hasher.write_i64(id);
        hasher.write_i16(self.epoch);
        for batch in &self.batches {
            hasher.write_i32(batch.base_sequence);
            hasher.write_u32(batch.records);
            hasher.write_u64(batch.base_offset);
        }
        hasher.finish128().as_u128()
    }

    /// Writes epoch (16 bits), number of batches (8), and of each the first sequence (32), the records (32) and the first offset
    /// (64), little-endian.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put(&self.epoch.to_le_bytes());
        out.put_u8(self.batches.len() as u8);
        for batch in &self.batches {
            out.put(&batch.base_sequence.to_le_bytes());
            out.put_u32(batch.records);
            out.put_u64(batch.base_offset);
        }
    }

    /// Reads what [`Producer::put`] wrote; `None` for what no producer can be.
    pub(super) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let (epoch, count) = (fields.i16()?, fields.u8()?);
        if epoch < 0 || !(1..=BATCHES_KEPT).contains(&usize::from(count)) {
            return None;
        }
        let mut producer = Self::new(epoch);
        for _ in 0..count {
            let (base_sequence, records, base_offset) = (fields.i32()?, fields.u32()?, fields.u64()?);
            base_offset.checked_add(u64::from(records))?;
            if base_sequence < 0 {
                return None;
            }
            producer.batches.push(KeptBatch { base_sequence, records, base_offset });
        }
        Some(producer)
    }
}
