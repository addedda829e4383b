//! Builds uncompressed batches, one after the other, in the same memory.

use super::error::BatchError;
use super::header::{HEADER_BYTES, NewBatch, ProducerRef, write_header};
use super::record::NewRecord;
use super::view::Batch;

/// What the length field of a batch can say, less the header.
const RECORDS_BYTES_MAX: usize = i32::MAX as usize - HEADER_BYTES;

/// Collects records and builds a batch of them. Its memory is reused: pushing a record allocates nothing once the
/// builder has seen a batch of that size.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    /// Room for the header, and the records, encoded; empty as long as there are none.
    batch: Vec<u8>,
    count: u32,
    /// Timestamp of the first record.
    base_timestamp: i64,
    max_timestamp: i64,
    producer: Option<ProducerRef>,
    /// A record did not fit: what was pushed from then on is not there, so `build` must refuse.
    too_large: bool,
}

impl BatchBuilder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says who produces the batch that is being built.
    pub fn producer(&mut self, producer: ProducerRef) -> &mut Self {
        self.producer = Some(producer);
        self
    }

    /// Adds a record. More than a batch can hold is reported by [`BatchBuilder::build`].
    pub fn push(
        &mut self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        timestamp_ms: i64,
        headers: &[(&str, Option<&[u8]>)],
    ) -> &mut Self {
        if self.count == 0 {
            (self.base_timestamp, self.max_timestamp) = (timestamp_ms, timestamp_ms);
        }
        // Deltas wrap here and at the reader alike, so any two timestamps can share a batch.
        let timestamp_delta = timestamp_ms.wrapping_sub(self.base_timestamp);
        let offset_delta = self.count.cast_signed();
        let record = NewRecord { timestamp_delta, offset_delta, key, value, headers };
        let length = record.length();
        let records_bytes = self.size_bytes() - HEADER_BYTES;
        let fits = length < RECORDS_BYTES_MAX && records_bytes <= RECORDS_BYTES_MAX - length - 5;
        match i32::try_from(length) {
            Ok(length) if fits && !self.too_large => {
                if self.batch.is_empty() {
                    self.batch.extend_from_slice(&[0; HEADER_BYTES]);
                }
                record.write(&mut self.batch, length);
                self.max_timestamp = self.max_timestamp.max(timestamp_ms);
                self.count += 1;
            }
            _ => self.too_large = true,
        }
        self
    }

    /// Number of records pushed.
    pub fn record_count(&self) -> u32 {
        self.count
    }

    /// Size of the batch that `build` would append.
    pub fn size_bytes(&self) -> usize {
        self.batch.len().max(HEADER_BYTES)
    }

    /// Appends the batch to `out`: base offset 0, leader epoch -1. The builder is empty again, its producer included,
    /// also after an error: `InvalidCount` where nothing was pushed, `TooLarge`, `InvalidProducer`.
    pub fn build(&mut self, out: &mut Vec<u8>) -> Result<(), BatchError> {
        let built = self.finish();
        if built.is_ok() {
            out.extend_from_slice(&self.batch);
        }
        self.clear();
        built
    }

    /// As [`BatchBuilder::build`] into emptied memory, and gives the batch. Nothing is copied, the builder goes on in the
    /// memory that `out` had; the checksum was just made and is not computed again.
    pub fn build_in<'a>(&mut self, out: &'a mut Vec<u8>) -> Result<Batch<'a>, BatchError> {
        let built = self.finish();
        if built.is_ok() {
            std::mem::swap(&mut self.batch, out);
        }
        self.clear();
        built.map(|()| Batch::just_built(out))
    }

    /// Forgets what was pushed.
    pub fn clear(&mut self) {
        self.batch.clear();
        self.count = 0;
        self.producer = None;
        self.too_large = false;
    }

    /// Fills the header.
    fn finish(&mut self) -> Result<(), BatchError> {
        if self.too_large {
            return Err(BatchError::TooLarge);
        }
        if self.count == 0 {
            return Err(BatchError::InvalidCount {
                records: 0,
                last_offset_delta: -1,
                bytes: HEADER_BYTES as u64,
            });
        }
        if let Some(ProducerRef { id, epoch, base_sequence }) = self.producer
            && (id < 0 || epoch < 0 || base_sequence < 0)
        {
            return Err(BatchError::InvalidProducer { id, epoch, base_sequence });
        }
        let new = NewBatch {
            records: self.count,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer: self.producer,
        };
        write_header(&mut self.batch, &new);
        Ok(())
    }
}
