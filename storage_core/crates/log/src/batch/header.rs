//! The 61 bytes in front of the records of a batch.

use super::error::BatchError;

/// Size of the header, which is everything in front of the records.
pub const HEADER_BYTES: usize = 61;

/// End of the length field, which does not count the bytes up to here: base offset and itself.
const LENGTH_END: usize = 12;
/// End of the fields that [`write_offsets`] patches.
pub(crate) const OFFSETS_END: usize = 16;
/// The length field of a batch without a record.
const LENGTH_MIN: i32 = 49;
/// Position of the first byte under the checksum. A broker may patch base offset and leader epoch in front of it.
pub(super) const CHECKED_FROM: usize = 21;

/// End of the attributes, whose last byte has the codec in its lowest bits.
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
    /// Number of bytes behind the length field, `size_bytes() - 12`; at least 49.
    length: u32,
    /// Epoch of the leader that assigned the offsets; -1 as clients send it.
    pub leader_epoch: i32,
    /// CRC-32C of the bytes behind this field.
    pub crc: u32,
    /// Codec and flags, which the methods take apart.
    attributes: i16,
    /// Last offset of the batch minus `base_offset`; never negative, `base_offset + last_offset_delta < 2^63 - 1`.
    pub last_offset_delta: u32,
    /// Number of records in the batch: as many as it has offsets, or fewer once it was compacted.
    records: u32,
    /// Timestamp that the records' deltas count from, milliseconds since the epoch.
    pub base_timestamp: i64,
    /// Greatest timestamp of the records, milliseconds since the epoch.
    pub max_timestamp: i64,
    /// The producer of the batch, if it is idempotent.
    pub producer: Option<ProducerRef>,
}

/// An idempotent producer, and where in its order a batch stands (KIP-98). No field is negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProducerRef {
    /// Id of the producer, which the cluster gives.
    pub id: i64,
    /// Epoch of the producer's instance; instances with a lower one are fenced.
    pub epoch: i16,
    /// Sequence of the first record; sequences wrap at 2^31.
    pub base_sequence: i32,
}

impl BatchHeader {
    /// Reads the header at the front of `bytes`, without the checksum: for walks over batches that were verified before.
    /// The records need not be there.
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
        // A compaction may leave no record at all; then no byte is left of the records either.
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

    /// The length field, which is the number of bytes behind it.
    pub(crate) fn length(&self) -> u32 {
        self.length
    }

    /// Size of the whole batch, header included.
    pub fn size_bytes(&self) -> usize {
        LENGTH_END + self.length as usize
    }

    /// Number of records that the batch was made with, which is also its number of offsets; at least one.
    pub fn record_count(&self) -> u32 {
        self.last_offset_delta + 1
    }

    /// Number of records that are left in the batch: fewer than it was made with once it was compacted, maybe none.
    pub fn records_left(&self) -> u32 {
        self.records
    }

    /// Whether each offset of the batch has a record; only a compaction takes records out.
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

    /// Whether every record has the timestamp `max_timestamp`, which a broker has set.
    pub fn is_log_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME != 0
    }

    /// Whether the batch belongs to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }
}

impl ProducerRef {
    /// Checks the fields. `None` is Kafka's "no producer", which has the id -1 (or any negative one).
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

/// The fields of a new header that depend on the records.
pub(super) struct NewBatch {
    pub(super) records: u32,
    pub(super) base_timestamp: i64,
    pub(super) max_timestamp: i64,
    pub(super) producer: Option<ProducerRef>,
}

/// Sets the codec in the header of a batch.
pub(super) fn set_codec(batch: &mut [u8], codec: u8) {
    let last = &mut batch[ATTRIBUTES_END - 1];
    *last = *last & !(CODEC_MASK as u8) | codec;
}

/// Writes length, number of records and checksum of a changed batch into its header; `TooLarge` if its size does not fit
/// into the length field.
pub(super) fn update_header(batch: &mut [u8], records: u32) -> Result<(), BatchError> {
    let length = i32::try_from(batch.len() - LENGTH_END).map_err(|_| BatchError::TooLarge)?;
    batch[8..LENGTH_END].copy_from_slice(&length.to_be_bytes());
    batch[57..HEADER_BYTES].copy_from_slice(&records.to_be_bytes());
    let crc = crc_fast::crc32_iscsi(&batch[CHECKED_FROM..]);
    batch[17..CHECKED_FROM].copy_from_slice(&crc.to_be_bytes());
    Ok(())
}

/// Fills the header in front of the records, with base offset 0 and leader epoch -1 until [`write_offsets`]. `batch` is
/// header and records, with at most `i32::MAX` bytes behind the length field.
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

/// Gives every record of a whole batch the time at which a broker took it: sets the flag that says so, the greatest timestamp,
/// which is the time of all records then, and the checksum (Kafka's `LogAppendTime`).
pub(super) fn set_append_time(batch: &mut [u8], timestamp_ms: i64) {
    batch[ATTRIBUTES_END - 1] |= LOG_APPEND_TIME as u8;
    set_max_timestamp(batch, timestamp_ms);
}

/// Sets the greatest timestamp of a whole batch, and the checksum.
pub(super) fn set_max_timestamp(batch: &mut [u8], timestamp_ms: i64) {
    batch[35..43].copy_from_slice(&timestamp_ms.to_be_bytes());
    let crc = crc_fast::crc32_iscsi(&batch[CHECKED_FROM..]);
    batch[17..CHECKED_FROM].copy_from_slice(&crc.to_be_bytes());
}

/// Gives the batch at the front of `batch` its place in a log, by patching the 12 bytes of its base offset and leader
/// epoch, which are not under its checksum.
///
/// # Panics
/// If `batch` is shorter than a header.
pub fn write_offsets(batch: &mut [u8], base_offset: u64, leader_epoch: u32) {
    batch[0..8].copy_from_slice(&base_offset.to_be_bytes());
    batch[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
}

/// Gives the batch at the front of `batch` this leader epoch.
pub(crate) fn write_epoch(batch: &mut [u8], leader_epoch: u32) {
    batch[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
}

fn field<const N: usize>(header: &[u8; HEADER_BYTES], position: usize) -> [u8; N] {
    header[position..].first_chunk::<N>().copied().expect("fields lie inside the header")
}
