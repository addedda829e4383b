//! The structures on disk, apart from batches and the journal: manifest, block header, footer, and the marks of batches.
//! Everything here is pure bytes without I/O, and each reader takes any bytes. The page `docs/internals/format.md` draws
//! the structures; golden files in `tests/golden/` hold them still.

pub(crate) mod block_header;
pub(crate) mod epochs;
pub(crate) mod fields;
pub(crate) mod footer;
pub(crate) mod manifest;
pub(crate) mod mark;

/// Format version of all structures that are read and written.
pub(crate) const FORMAT_VERSION: u32 = 4;

/// Greatest sequence of a block or of a journal's record; no store gets there. A structure that names a higher one is
/// damaged, whatever its checksum says, so that counting on from a sequence never overflows.
pub(crate) const SEQUENCE_MAX: u64 = 1 << 62;

/// The checksum of the structures: CRC-32C.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The checksum of bytes that hold it themselves: its four bytes, from index `at` on, count as zero. Panics if `bytes`
/// is too short for them.
pub(crate) fn checksum_around(bytes: &[u8], at: usize) -> u32 {
    let mut bytes = bytes.to_vec();
    bytes[at..at + 4].fill(0);
    checksum(&bytes)
}
