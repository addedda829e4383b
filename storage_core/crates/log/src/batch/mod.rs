//! The unit of everything: the Kafka RecordBatch v2, bytes in and bytes out.
//!
//! Bytes that come from a network or a disk are hostile: every bound is checked, nothing panics, and no length that
//! was only read is ever allocated. Offsets and epochs are plain numbers here, as on the wire.
//! No compression codec lives here: a compressed batch is checked and passed on whole, its records stay closed.
//! All integers of a batch are big-endian (Kafka protocol guide, "Record Batch"; KIP-98).

mod builder;
mod compaction;
mod error;
mod header;
mod record;
mod varint;

#[cfg(test)]
mod tests;

pub use builder::BatchBuilder;
pub(crate) use compaction::{retain_records, write_gap};
pub use error::BatchError;
pub use header::{Batch, BatchHeader, HEADER_BYTES, ProducerRef, write_offsets};
pub use record::{Header, Headers, Record, Records};
