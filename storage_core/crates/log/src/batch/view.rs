//! The whole batch, as it is stored and sent.

use std::borrow::Cow;

use bytes::Bytes;

use super::codec;
use super::error::BatchError;
use super::header::{
    BatchHeader, CHECKED_FROM, HEADER_BYTES, OFFSETS_END, ProducerRef, seal, set_codec, write_offsets,
};
use super::record::{RECORD_BYTES_MIN, Records};
use crate::seeded;

/// A whole batch, borrowed: its checksum was verified, its header holds.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    header: BatchHeader,
    bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Takes one batch off the front of `bytes` and verifies it (Kafka's LogValidator rules, but for those of a
    /// topic's config); gives it and the bytes behind it. Reads every byte once; records are not walked.
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
        if header.codec() == 0 && header.holds() as usize > records_max {
            return Err(BatchError::InvalidCount {
                records: header.holds().cast_signed(),
                last_offset_delta: header.last_offset_delta.cast_signed(),
                bytes: batch.len() as u64,
            });
        }
        Ok((Self { header, bytes: batch }, rest))
    }

    /// A batch whose header was written in this process right now.
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

    /// How many records the batch was made with, and so how many offsets it has; at least one.
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

    /// Who produced it, if the producer is idempotent.
    pub fn producer(&self) -> Option<ProducerRef> {
        self.header.producer
    }

    /// Whether the records are compressed: then they have to be opened.
    pub fn is_compressed(&self) -> bool {
        self.header.codec() != 0
    }

    /// What people call the codec of the records: "none" where they are not compressed.
    pub fn codec_name(&self) -> &'static str {
        codec::name(self.header.codec())
    }

    /// The whole batch as it is stored.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The first bytes of the batch as it is written elsewhere: with that base offset, and that in the four bytes of its
    /// leader epoch.
    pub(crate) fn front_with(&self, base_offset: u64, leader_epoch: u32) -> [u8; OFFSETS_END] {
        let mut front = *self.bytes.first_chunk().expect("a parsed batch is longer");
        write_offsets(&mut front, base_offset, leader_epoch);
        front
    }

    /// Walks the records. A batch whose checksum is right can still hold records that break the format (its producer
    /// wrote them so): the walk ends at the first with an error. So does, at once, that of a compressed batch: see
    /// [`Batch::open`].
    pub fn records(&self) -> Records<'a> {
        Records::new(&self.header, &self.bytes[HEADER_BYTES..], self.header.codec())
    }

    /// The bytes of the records: those of the batch, or memory of their own, at most [`OPENED_BYTES_MAX`], where it is
    /// compressed. Takes as long as the codec needs.
    ///
    /// [`OPENED_BYTES_MAX`]: super::OPENED_BYTES_MAX
    pub fn open(&self) -> Result<Cow<'a, [u8]>, BatchError> {
        let records = &self.bytes[HEADER_BYTES..];
        match self.header.codec() {
            0 => Ok(Cow::Borrowed(records)),
            codec => codec::open(codec, records).map(Cow::Owned),
        }
    }

    /// The same, as memory that can be shared; `stored` is what the batch was parsed from.
    pub fn open_shared(&self, stored: &Bytes) -> Result<Bytes, BatchError> {
        Ok(match self.open()? {
            Cow::Borrowed(records) => stored.slice_ref(records),
            Cow::Owned(records) => records.into(),
        })
    }

    /// The same batch with its records compressed, as Kafka numbers codecs: 0 is none. Offsets, timestamps and producer
    /// stay. A batch without records is left uncompressed.
    ///
    /// Errors: those of [`Batch::open`]; `UnknownCodec`; `TooLarge` where the records do not become shorter and no batch can
    /// hold them.
    pub fn compressed(&self, codec: u8) -> Result<Vec<u8>, BatchError> {
        let opened = self.open()?;
        let codec = if self.header.holds() == 0 { 0 } else { codec };
        let records = match codec {
            0 => opened,
            codec => codec::close(codec, &opened)?.into(),
        };
        let mut batch = [&self.bytes[..HEADER_BYTES], &records].concat();
        set_codec(&mut batch, codec);
        seal(&mut batch, self.header.holds())?;
        Ok(batch)
    }

    /// That a record is at each offset, as nobody but a compaction may have it otherwise.
    pub fn check_dense(&self) -> Result<(), BatchError> {
        if self.header.is_dense() {
            return Ok(());
        }
        Err(BatchError::InvalidCount {
            records: self.header.holds().cast_signed(),
            last_offset_delta: self.last_offset_delta().cast_signed(),
            bytes: self.bytes.len() as u64,
        })
    }

    /// Walks every record, and so proves that [`Batch::records`] gives `record_count` records and that the greatest
    /// timestamp is the header's. For batches of unknown producers; a compressed batch passes unopened.
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
