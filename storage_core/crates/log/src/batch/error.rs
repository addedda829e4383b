//! The errors of the bytes of a batch.

/// Reason why bytes are not a batch that may be stored, or why its records cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end before the batch does.
    #[error("batch is cut off: it needs {needed} bytes, {available} are there")]
    Truncated {
        /// Bytes of the batch, or of its header if not even that is whole.
        needed: u64,
        /// Bytes that were given.
        available: u64,
    },
    /// The batch is not in version 2 of the format.
    #[error("batch has magic {found}; only 2 is stored: produce with a client that speaks message format v2")]
    UnsupportedMagic {
        /// Magic byte of the batch.
        found: i8,
    },
    /// The length field is smaller than a header.
    #[error("batch length {length} is less than the {least} bytes of an empty batch")]
    InvalidLength {
        /// Value of the length field.
        length: i32,
        /// Least value of the length field.
        least: i32,
    },
    /// The bytes do not have the checksum that the batch names.
    #[error("batch checksum is {stored:#010x}, its bytes have {computed:#010x}")]
    ChecksumMismatch {
        /// Checksum in the batch.
        stored: u32,
        /// Checksum of the batch's bytes.
        computed: u32,
    },
    /// The number of records is negative, does not agree with the batch's offsets or bytes, or is zero in a builder.
    #[error("batch of {bytes} bytes says {records} records and a last offset delta of {last_offset_delta}")]
    InvalidCount {
        /// Number of records in the header.
        records: i32,
        /// Last offset delta in the header.
        last_offset_delta: i32,
        /// Size of the whole batch.
        bytes: u64,
    },
    /// The offsets of the records are not in 0..2^63.
    #[error("batch has base offset {base_offset} and a last offset delta of {last_offset_delta}")]
    InvalidOffset {
        /// Base offset in the header.
        base_offset: i64,
        /// Last offset delta in the header.
        last_offset_delta: i32,
    },
    /// The batch names a codec that Kafka does not have.
    #[error("batch is compressed with codec {codec}; known are 1 gzip, 2 snappy, 3 lz4, 4 zstd")]
    UnknownCodec {
        /// Number of the codec.
        codec: u8,
    },
    /// The batch is a control batch, which only brokers write, never clients.
    #[error("control batches are not accepted")]
    Control,
    /// The batch has a producer id without an epoch or a sequence.
    #[error(
        "producer {id} needs an epoch and a sequence that are not negative, got {epoch} and {base_sequence}"
    )]
    InvalidProducer {
        /// Producer id.
        id: i64,
        /// Producer epoch.
        epoch: i16,
        /// Sequence of the first record.
        base_sequence: i32,
    },
    /// The records of a compressed batch were asked for, but it was not opened.
    #[error("records are compressed with {codec}: the batch has to be opened first")]
    Compressed {
        /// Name of the codec.
        codec: &'static str,
    },
    /// The compressed records are no stream of their codec.
    #[error("records are compressed with {codec} and cannot be opened: {reason}")]
    Unopened {
        /// Name of the codec.
        codec: &'static str,
        /// Message of the codec.
        reason: String,
    },
    /// The records cannot be compressed.
    #[error("records cannot be compressed with {codec}: {reason}")]
    Unclosed {
        /// Name of the codec.
        codec: &'static str,
        /// Message of the codec.
        reason: String,
    },
    /// The decompressed records are too large.
    #[error("records that are compressed with {codec} have more than {bytes_max} bytes, opened")]
    OpenedTooLarge {
        /// Name of the codec.
        codec: &'static str,
        /// Limit on the decompressed bytes.
        bytes_max: u64,
    },
    /// A record breaks the format.
    #[error("record {index} of the batch: {reason}")]
    InvalidRecord {
        /// Place of the record in its batch, from 0.
        index: u32,
        /// Rule that the record breaks.
        reason: &'static str,
    },
    /// One batch cannot hold the records.
    #[error("records do not fit into one batch: at most 2^31 - 1 bytes and records; build several batches")]
    TooLarge,
}
