//! What can be wrong with the bytes of a batch.

/// Why bytes are not a batch that may be stored, or why its records cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end before the batch does.
    #[error("batch is cut off: it needs {needed} bytes, {available} are there")]
    Truncated {
        /// Bytes of the batch, or of its header where that is not whole.
        needed: u64,
        /// Bytes that were given.
        available: u64,
    },
    /// Not version 2 of the format.
    #[error("batch has magic {found}; only 2 is stored: produce with a client that speaks message format v2")]
    UnsupportedMagic {
        /// The byte that was there.
        found: i8,
    },
    /// The length field is smaller than a header.
    #[error("batch length {length} is less than the {least} bytes of an empty batch")]
    InvalidLength {
        /// The field.
        length: i32,
        /// Its least value.
        least: i32,
    },
    /// The checksum says that the bytes changed.
    #[error("batch checksum is {stored:#010x}, its bytes have {computed:#010x}")]
    ChecksumMismatch {
        /// In the batch.
        stored: u32,
        /// Checksum of the batch's bytes.
        computed: u32,
    },
    /// The number of records is not positive, differs from the offsets that they take, or cannot fit.
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
    /// A codec that Kafka does not have.
    #[error("batch is compressed with codec {codec}; known are 1 gzip, 2 snappy, 3 lz4, 4 zstd")]
    UnknownCodec {
        /// The lowest three bits of the attributes.
        codec: u8,
    },
    /// Control batches are written by brokers, never by clients.
    #[error("control batches are not accepted")]
    Control,
    /// A producer id without an epoch or a sequence.
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
    /// The records were asked for without opening the batch.
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
        /// What the codec says.
        reason: String,
    },
    /// The records cannot be compressed.
    #[error("records cannot be compressed with {codec}: {reason}")]
    Unclosed {
        /// Name of the codec.
        codec: &'static str,
        /// What the codec says.
        reason: String,
    },
    /// The records are too large, opened.
    #[error("records that are compressed with {codec} have more than {bytes_max} bytes, opened")]
    OpenedTooLarge {
        /// Name of the codec.
        codec: &'static str,
        /// Most bytes.
        bytes_max: u64,
    },
    /// A record breaks the format.
    #[error("record {index} of the batch: {reason}")]
    InvalidRecord {
        /// Place of the record in its batch, from 0.
        index: u32,
        /// What is wrong.
        reason: &'static str,
    },
    /// More than a batch can say.
    #[error("records do not fit into one batch: at most 2^31 - 1 bytes and records; build several batches")]
    TooLarge,
}
