//! A whole batch, as it is stored and sent.

use std::borrow::Cow;

use bytes::Bytes;

use super::codec;
use super::error::BatchError;
use super::header::{
    BatchHeader, CHECKED_FROM, HEADER_BYTES, OFFSETS_END, ProducerRef, set_append_time, set_codec,
    set_max_timestamp, update_header, write_offsets,
};
use super::record::{RECORD_BYTES_MIN, Records};
use crate::seeded;

/// A whole batch, borrowed. Its checksum was verified, and its header keeps the rules of the format.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    header: BatchHeader,
    bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Takes one batch off the front of `bytes` and verifies it (Kafka's LogValidator rules, without those of a topic's
    /// config); returns it and the bytes behind it. Every byte of the batch is read once; records are not walked.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), BatchError> {
        let header = BatchHeader::peek(bytes)?;
        let Some((batch, rest)) = bytes.split_at_checked(header.size_bytes()) else {
            return Err(BatchError::Truncated {
                needed: header.size_bytes() as u64,
                available: bytes.len() as u64,
            });
        };
        let computed = crc_fast::crc32_iscsi(&batch[CHECKED_FROM..]);
        if computed != header.crc && !seeded!(CrcSkipped) {
            return Err(BatchError::ChecksumMismatch { stored: header.crc, computed });
        }
        let records_max = (batch.len() - HEADER_BYTES) / RECORD_BYTES_MIN;
        if header.codec() == 0 && header.records_left() as usize > records_max {
            return Err(BatchError::InvalidCount {
                records: header.records_left().cast_signed(),
                last_offset_delta: header.last_offset_delta.cast_signed(),
                bytes: batch.len() as u64,
            });
        }
        Ok((Self { header, bytes: batch }, rest))
    }

    /// Takes a batch that this process has just built, and does not verify it.
    pub(super) fn just_built(bytes: &'a [u8]) -> Self {
        Self { header: BatchHeader::peek(bytes).expect("a builder writes what can be read"), bytes }
    }

    /// The fields of the header.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Offset of the first record.
    pub fn base_offset(&self) -> u64 {
        self.header.base_offset
    }

    /// First offset behind the batch.
    pub fn end_offset(&self) -> u64 {
        self.header.end_offset()
    }

    /// Number of records that the batch was made with, which is also its number of offsets; at least one.
    pub fn record_count(&self) -> u32 {
        self.header.record_count()
    }

    /// Offset of the last record minus the base offset.
    pub fn last_offset_delta(&self) -> u32 {
        self.header.last_offset_delta
    }

    /// Greatest timestamp of the records, milliseconds since the epoch.
    pub fn max_timestamp(&self) -> i64 {
        self.header.max_timestamp
    }

    /// What the batch adds to the greatest timestamp of a block: less than any timestamp if no record is left in it, since a
    /// compaction lets the header keep the time of records that are gone.
    pub(crate) fn newest(&self) -> i64 {
        if self.header.records_left() == 0 { i64::MIN } else { self.header.max_timestamp }
    }

    /// The producer of the batch, if it is idempotent.
    pub fn producer(&self) -> Option<ProducerRef> {
        self.header.producer
    }

    /// Whether the records are compressed; then they are read through [`Batch::open`].
    pub fn is_compressed(&self) -> bool {
        self.header.codec() != 0
    }

    /// Name of the codec of the records; "none" if they are not compressed.
    pub fn codec_name(&self) -> &'static str {
        codec::name(self.header.codec())
    }

    /// The whole batch as it is stored.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The first bytes of the batch as it is written elsewhere, with another base offset and with `leader_epoch` in the
    /// four bytes of its leader epoch.
    pub(crate) fn front_with(&self, base_offset: u64, leader_epoch: u32) -> [u8; OFFSETS_END] {
        let mut front = *self.bytes.first_chunk().expect("a parsed batch is longer");
        write_offsets(&mut front, base_offset, leader_epoch);
        front
    }

    /// Walks the records. Also a batch with the right checksum can hold records that break the format, because its
    /// producer wrote them so; the walk ends at the first of them, with an error. The walk of a compressed batch ends
    /// with an error at once: its records are walked by [`BatchHeader::records_in`] of what [`Batch::open`] returns.
    pub fn records(&self) -> Records<'a> {
        Records::new(&self.header, &self.bytes[HEADER_BYTES..], self.header.codec())
    }

    /// The bytes of the records, decompressed. Those of an uncompressed batch are borrowed; those of a compressed one
    /// take memory of their own, at most [`OPENED_BYTES_MAX`].
    ///
    /// Errors: `Unopened` if the records are no stream of their codec, `OpenedTooLarge` if they exceed that limit.
    ///
    /// [`OPENED_BYTES_MAX`]: super::OPENED_BYTES_MAX
    pub fn open(&self) -> Result<Cow<'a, [u8]>, BatchError> {
        let records = &self.bytes[HEADER_BYTES..];
        match self.header.codec() {
            0 => Ok(Cow::Borrowed(records)),
            codec => codec::decompress(codec, records).map(Cow::Owned),
        }
    }

    /// The bytes of the records, decompressed, as memory that can be shared; `stored` must hold the bytes that the batch
    /// was parsed from. Errors are those of [`Batch::open`].
    pub fn open_shared(&self, stored: &Bytes) -> Result<Bytes, BatchError> {
        Ok(match self.open()? {
            Cow::Borrowed(records) => stored.slice_ref(records),
            Cow::Owned(records) => records.into(),
        })
    }

    /// Makes the same batch with its records compressed, by Kafka's number of a codec; 0 is none. Offsets, timestamps and
    /// producer stay. A batch without records is left uncompressed.
    ///
    /// Errors: those of [`Batch::open`]; `UnknownCodec`; `Unclosed` if the codec fails; `TooLarge` if no batch can hold
    /// the result.
    pub fn compressed(&self, codec: u8) -> Result<Vec<u8>, BatchError> {
        let opened = self.open()?;
        let codec = if self.header.records_left() == 0 { 0 } else { codec };
        let records = match codec {
            0 => opened,
            codec => codec::compress(codec, &opened)?.into(),
        };
        let mut batch = [&self.bytes[..HEADER_BYTES], &records].concat();
        set_codec(&mut batch, codec);
        update_header(&mut batch, self.header.records_left())?;
        Ok(batch)
    }

    /// Makes the same batch with all its records at the time at which a broker took it; compressed ones stay as they are. The
    /// batch is copied once.
    pub fn with_append_time(&self, timestamp_ms: i64) -> Vec<u8> {
        let mut batch = self.bytes.to_vec();
        set_append_time(&mut batch, timestamp_ms);
        batch
    }

    /// Makes the same batch with another greatest timestamp in its header, as that of a producer who put a wrong one there.
    pub fn with_max_timestamp(&self, timestamp_ms: i64) -> Vec<u8> {
        let mut batch = self.bytes.to_vec();
        set_max_timestamp(&mut batch, timestamp_ms);
        batch
    }

    /// The bytes of the records as they are stored.
    pub(super) fn record_bytes(&self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// Checks that each offset of the batch has a record; only a compaction may take records out.
    pub fn check_dense(&self) -> Result<(), BatchError> {
        if self.header.is_dense() {
            return Ok(());
        }
        Err(BatchError::InvalidCount {
            records: self.header.records_left().cast_signed(),
            last_offset_delta: self.last_offset_delta().cast_signed(),
            bytes: self.bytes.len() as u64,
        })
    }

    /// Walks every record, and so proves that [`Batch::records`] gives `record_count` records and that their greatest
    /// timestamp is the header's. It is made for batches of unknown producers; a compressed batch passes unopened.
    pub fn verify_records(&self) -> Result<(), BatchError> {
        self.check_dense()?;
        if self.is_compressed() {
            return Ok(());
        }
        let mut max_timestamp = i64::MIN;
        for record in self.records() {
            max_timestamp = max_timestamp.max(record?.timestamp_ms);
        }
        if max_timestamp != self.max_timestamp() {
            let index = self.last_offset_delta();
            return Err(BatchError::InvalidRecord {
                index,
                reason: "greatest timestamp differs from the batch's",
            });
        }
        Ok(())
    }
}
