//! What is on disk, apart from batches: manifest, block header, footer, and the marks of batches. Pure bytes, no I/O; every reader takes any
//! bytes. The page `docs/internals/format.md` draws them; golden files in `tests/golden/` hold them still.

pub(crate) mod block_header;
pub(crate) mod epochs;
pub(crate) mod fields;
pub(crate) mod footer;
pub(crate) mod manifest;
pub(crate) mod mark;

/// The version that is read and written, for each kind of structure.
pub(crate) const FORMAT_VERSION: u32 = 2;

/// No store gets beyond this sequence, of its blocks or of its journal's records. What names a higher one is damaged, whatever
/// its checksum says: whoever counts on from there must not overflow.
pub(crate) const SEQUENCE_MAX: u64 = 1 << 62;

/// CRC-32C, the checksum of everything that is not a promise of another kind.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// As [`checksum`], of bytes that hold it themselves: its four bytes, at that place, count as zero. They must be there.
pub(crate) fn checksum_around(bytes: &[u8], at: usize) -> u32 {
    let mut bytes = bytes.to_vec();
    bytes[at..at + 4].fill(0);
    checksum(&bytes)
}
