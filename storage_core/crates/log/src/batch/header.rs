//! The 61 bytes in front of the records, and the whole batch as it is stored and sent.

use std::borrow::Cow;

use bytes::Bytes;

use super::codec;
use super::error::BatchError;
use super::record::{RECORD_BYTES_MIN, Records};
use crate::seeded;

/// Size of the header: everything in front of the records.
pub const HEADER_BYTES: usize = 61;

/// Bytes that the length field does not count: base offset and itself.
const LENGTH_END: usize = 12;
/// What [`write_offsets`] patches lies in front of it.
pub(crate) const OFFSETS_END: usize = 16;
/// The length field of a batch without a record.
const LENGTH_MIN: i32 = 49;
/// First byte under the checksum. What is in front of it (base offset, leader epoch) a broker may patch.
pub(super) const CHECKED_FROM: usize = 21;

/// The codec is in the lowest bits of the last byte in front of it.
const ATTRIBUTES_END: usize = 23;

const MAGIC: i8 = 2;
const CODEC_MASK: i16 = 0b111;
const CODEC_MAX: i16 = 4;
const LOG_APPEND_TIME: i16 = 1 << 3;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;

/// The header of a batch, read and checked as far as a header alone can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: u64,
    /// Bytes behind the length field: `size_bytes() - 12`. At least 49.
    length: u32,
    /// Epoch of the leader that assigned the offsets; -1 as clients send it.
    pub leader_epoch: i32,
    /// CRC-32C of everything behind it.
    pub crc: u32,
    /// Flags; asked through the methods.
    attributes: i16,
    /// Last offset of the batch minus `base_offset`; never negative, `base_offset + last_offset_delta < 2^63 - 1`.
    pub last_offset_delta: u32,
    /// How many records are there: as many as it has offsets, or fewer once it was compacted.
    records: u32,
    /// Timestamp that the records' deltas count from, milliseconds since the epoch.
    pub base_timestamp: i64,
    /// Greatest timestamp of the records.
    pub max_timestamp: i64,
    /// Who produced it, if the producer is idempotent.
    pub producer: Option<ProducerRef>,
}

/// An idempotent producer, and where in its order a batch stands (KIP-98). No field is negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProducerRef {
    /// Given by the cluster.
    pub id: i64,
    /// A lower one is fenced.
    pub epoch: i16,
    /// Sequence of the first record; wraps at 2^31.
    pub base_sequence: i32,
}

impl BatchHeader {
    /// Reads the header at the front of `bytes`: for walking batches whose checksum was verified before. Of the
    /// records nothing needs to be there.
    pub fn peek(bytes: &[u8]) -> Result<Self, BatchError> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(BatchError::Truncated { needed: HEADER_BYTES as u64, available: bytes.len() as u64 });
        };
        let found = i8::from_be_bytes(field(header, 16));
        if found != MAGIC {
            return Err(BatchError::UnsupportedMagic { found });
        }
        let length = i32::from_be_bytes(field(header, 8));
        if length < LENGTH_MIN {
            return Err(BatchError::InvalidLength { length, least: LENGTH_MIN });
        }
        let length = length.cast_unsigned();
        let attributes = i16::from_be_bytes(field(header, 21));
        if attributes & CODEC_MASK > CODEC_MAX {
            return Err(BatchError::UnknownCodec { codec: (attributes & CODEC_MASK) as u8 });
        }
        if attributes & CONTROL != 0 {
            return Err(BatchError::Control);
        }
        let last_offset_delta = i32::from_be_bytes(field(header, 23));
        let records = i32::from_be_bytes(field(header, 57));
        // None is left of a compacted batch at the least, and then no byte either.
        let fits =
            (0..i32::MAX).contains(&last_offset_delta) && (0..=last_offset_delta + 1).contains(&records);
        if !fits || (records == 0) != (length == LENGTH_MIN.cast_unsigned()) {
            let bytes = LENGTH_END as u64 + u64::from(length);
            return Err(BatchError::InvalidCount { records, last_offset_delta, bytes });
        }
        let base_offset = i64::from_be_bytes(field(header, 0));
        if base_offset < 0 || base_offset.checked_add(i64::from(last_offset_delta) + 1).is_none() {
            return Err(BatchError::InvalidOffset { base_offset, last_offset_delta });
        }
        let producer = ProducerRef {
            id: i64::from_be_bytes(field(header, 43)),
            epoch: i16::from_be_bytes(field(header, 51)),
            base_sequence: i32::from_be_bytes(field(header, 53)),
        };
        Ok(Self {
            base_offset: base_offset.cast_unsigned(),
            length,
            leader_epoch: i32::from_be_bytes(field(header, 12)),
            crc: u32::from_be_bytes(field(header, 17)),
            attributes,
            last_offset_delta: last_offset_delta.cast_unsigned(),
            records: records.cast_unsigned(),
            base_timestamp: i64::from_be_bytes(field(header, 27)),
            max_timestamp: i64::from_be_bytes(field(header, 35)),
            producer: producer.checked()?,
        })
    }

    /// The length field: bytes behind it.
    pub(crate) fn length(&self) -> u32 {
        self.length
    }

    /// Size of the whole batch, header included.
    pub fn size_bytes(&self) -> usize {
        LENGTH_END + self.length as usize
    }

    /// How many records the batch was made with, and so how many offsets it has; at least one.
    pub fn record_count(&self) -> u32 {
        self.last_offset_delta + 1
    }

    /// How many records are there: fewer than it was made with once the batch was compacted, and then maybe none.
    pub fn holds(&self) -> u32 {
        self.records
    }

    /// Whether a record is at each of its offsets: always, but where it was compacted.
    pub fn is_dense(&self) -> bool {
        self.records == self.record_count()
    }

    /// First offset behind the batch.
    pub fn end_offset(&self) -> u64 {
        self.base_offset + u64::from(self.record_count())
    }

    /// Codec of the records: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    pub fn codec(&self) -> u8 {
        (self.attributes & CODEC_MASK) as u8
    }

    /// Walks records that were opened, with [`Batch::open`] of the batch of this header.
    pub fn records_in<'a>(&self, opened: &'a [u8]) -> Records<'a> {
        Records::new(self, opened, 0)
    }

    /// Whether `max_timestamp`, set by a broker, is the timestamp of every record.
    pub fn is_log_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME != 0
    }

    /// Whether the batch belongs to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }
}

impl ProducerRef {
    /// Kafka's "no producer" is the id -1 (any negative one).
    fn checked(self) -> Result<Option<Self>, BatchError> {
        let Self { id, epoch, base_sequence } = self;
        if id < 0 {
            return Ok(None);
        }
        if epoch < 0 || base_sequence < 0 {
            return Err(BatchError::InvalidProducer { id, epoch, base_sequence });
        }
        Ok(Some(self))
    }
}

/// What a builder knows when it writes a header.
pub(super) struct NewBatch {
    pub(super) records: u32,
    pub(super) base_timestamp: i64,
    pub(super) max_timestamp: i64,
    pub(super) producer: Option<ProducerRef>,
}

/// Says with which codec the records of a batch are compressed.
pub(super) fn set_codec(batch: &mut [u8], codec: u8) {
    let last = &mut batch[ATTRIBUTES_END - 1];
    *last = *last & !(CODEC_MASK as u8) | codec;
}

/// Makes length, number of records and checksum of a batch right that was changed. `TooLarge`: no length says it.
pub(super) fn seal(batch: &mut [u8], records: u32) -> Result<(), BatchError> {
    let length = i32::try_from(batch.len() - LENGTH_END).map_err(|_| BatchError::TooLarge)?;
    batch[8..LENGTH_END].copy_from_slice(&length.to_be_bytes());
    batch[57..HEADER_BYTES].copy_from_slice(&records.to_be_bytes());
    let crc = crc_fast::crc32_iscsi(&batch[CHECKED_FROM..]);
    batch[17..CHECKED_FROM].copy_from_slice(&crc.to_be_bytes());
    Ok(())
}

/// Fills the header in front of the records; `batch` is header and records, at most `i32::MAX` bytes behind the
/// length field. Base offset 0 and leader epoch -1 wait for [`write_offsets`].
pub(super) fn write_header(batch: &mut [u8], new: &NewBatch) {
    let length = i32::try_from(batch.len() - LENGTH_END).expect("the builder refuses larger batches");
    let count = i32::try_from(new.records).expect("the builder refuses more records");
    let none = ProducerRef { id: -1, epoch: -1, base_sequence: -1 };
    let producer = new.producer.unwrap_or(none);
    let mut put =
        |position: usize, bytes: &[u8]| batch[position..position + bytes.len()].copy_from_slice(bytes);
    put(0, &0_i64.to_be_bytes());
    put(8, &length.to_be_bytes());
    put(12, &(-1_i32).to_be_bytes());
    put(16, &MAGIC.to_be_bytes());
    put(21, &0_i16.to_be_bytes());
    put(23, &(count - 1).to_be_bytes());
    put(27, &new.base_timestamp.to_be_bytes());
    put(35, &new.max_timestamp.to_be_bytes());
    put(43, &producer.id.to_be_bytes());
    put(51, &producer.epoch.to_be_bytes());
    put(53, &producer.base_sequence.to_be_bytes());
    put(57, &count.to_be_bytes());
    let crc = crc_fast::crc32_iscsi(&batch[CHECKED_FROM..]);
    batch[17..CHECKED_FROM].copy_from_slice(&crc.to_be_bytes());
}

/// Gives the batch at the front of `batch` its place in a log: patches the 12 bytes outside the checksum.
///
/// # Panics
/// If `batch` is shorter than a header.
pub fn write_offsets(batch: &mut [u8], base_offset: u64, leader_epoch: u32) {
    batch[0..8].copy_from_slice(&base_offset.to_be_bytes());
    batch[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
}

/// Gives the batch at the front of `batch` that epoch.
pub(crate) fn write_epoch(batch: &mut [u8], leader_epoch: u32) {
    batch[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
}

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

fn field<const N: usize>(header: &[u8; HEADER_BYTES], position: usize) -> [u8; N] {
    header[position..].first_chunk::<N>().copied().expect("fields lie inside the header")
}
