//! The Kafka RecordBatch v2, which is the unit that logs store and exchange: bytes in and bytes out.
//!
//! Bytes that come from a network or a disk are hostile: every bound is checked, nothing panics, and no memory is
//! allocated just because a length field asks for it. Offsets and epochs are plain numbers here, as on the wire.
//! Compressed batches are stored and passed on as they came; `codec` opens them for whoever reads their records.
//! All integers of a batch are big-endian (Kafka protocol guide, "Record Batch"; KIP-98).

mod builder;
mod codec;
mod compaction;
mod error;
mod header;
mod record;
mod varint;
mod view;
mod walk;

#[cfg(test)]
mod tests;

pub use builder::BatchBuilder;
pub use codec::OPENED_BYTES_MAX;
pub(crate) use compaction::{each_key, retain_records, write_gap};
pub use error::BatchError;
pub use header::{BatchHeader, HEADER_BYTES, ProducerRef, write_offsets};
pub(crate) use header::{OFFSETS_END, write_epoch};
pub use record::{Header, Headers, Record, Records};
pub use view::Batch;
pub use walk::RecordsSeen;
