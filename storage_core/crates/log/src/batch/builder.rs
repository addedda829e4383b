//! A builder of uncompressed batches, which builds one after the other in the same memory.

use super::error::BatchError;
use super::header::{HEADER_BYTES, NewBatch, ProducerRef, write_header};
use super::record::NewRecord;
use super::view::Batch;

/// Limit on the bytes of the records of a batch, a little below what its length field can count.
const RECORDS_BYTES_MAX: usize = i32::MAX as usize - HEADER_BYTES;

/// Collects records and builds a batch of them. Its memory is reused: pushing a record allocates nothing once the
/// builder has seen a batch of that size.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    /// Room for the header, and the encoded records behind it; empty as long as there are none.
    batch: Vec<u8>,
    count: u32,
    /// Timestamp of the first record.
    base_timestamp: i64,
    max_timestamp: i64,
    producer: Option<ProducerRef>,
    /// Whether a record did not fit. It and those pushed after it are left out, so `build` must refuse.
    too_large: bool,
}

impl BatchBuilder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the producer of the batch that is being built.
    pub fn producer(&mut self, producer: ProducerRef) -> &mut Self {
        self.producer = Some(producer);
        self
    }

    /// Adds a record; `timestamp_ms` counts from the epoch. If a batch cannot hold it, [`BatchBuilder::build`] fails.
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

    /// Number of records that the batch holds so far.
    pub fn record_count(&self) -> u32 {
        self.count
    }

    /// Size of the batch that `build` would append.
    pub fn size_bytes(&self) -> usize {
        self.batch.len().max(HEADER_BYTES)
    }

    /// Appends the batch to `out`, with base offset 0 and leader epoch -1. Afterwards the builder is empty and has no
    /// producer, also after an error.
    ///
    /// Errors: `InvalidCount` if nothing was pushed; `TooLarge` if not all records fit; `InvalidProducer`.
    pub fn build(&mut self, out: &mut Vec<u8>) -> Result<(), BatchError> {
        let built = self.finish();
        if built.is_ok() {
            out.extend_from_slice(&self.batch);
        }
        self.clear();
        built
    }

    /// Builds the batch like [`BatchBuilder::build`], but replaces the contents of `out` with it, and returns it. Nothing
    /// is copied: the builder goes on in the memory that `out` had. The checksum is not computed a second time.
    pub fn build_in<'a>(&mut self, out: &'a mut Vec<u8>) -> Result<Batch<'a>, BatchError> {
        let built = self.finish();
        if built.is_ok() {
            std::mem::swap(&mut self.batch, out);
        }
        self.clear();
        built.map(|()| Batch::just_built(out))
    }

    /// Empties the builder, whose memory stays, and forgets the producer.
    pub fn clear(&mut self) {
        self.batch.clear();
        self.count = 0;
        self.producer = None;
        self.too_large = false;
    }

    /// Checks the batch and fills its header.
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
