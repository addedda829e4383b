//! The 61 bytes in front of the records of a batch.

use super::error::BatchError;

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

fn field<const N: usize>(header: &[u8; HEADER_BYTES], position: usize) -> [u8; N] {
    header[position..].first_chunk::<N>().copied().expect("fields lie inside the header")
}
