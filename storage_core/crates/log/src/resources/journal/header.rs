//! The first bytes of a journal: the store that it belongs to, and the records that it was made with.

use crate::format::fields::{Fields, PutFields};
use crate::format::manifest::Manifest;
use crate::format::{FORMAT_VERSION, SEQUENCE_MAX, checksum_around};

const MAGIC: &[u8; 8] = b"WALRUSJN";
const CHECKSUM_AT: usize = 12;
pub(super) const HEADER_BYTES: usize = 96;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalHeader {
    /// The store and how it cuts its files, so that the manifest can be made again from the journal.
    pub(crate) manifest: Manifest,
    /// Number of the journal, as in its name.
    pub(crate) number: u64,
    pub(crate) first_sequence: u64,
    /// Sequence of the last record that the journal was made with: one that ends before it has lost its end.
    pub(crate) made_sequence: u64,
    /// Position at which that record ends.
    pub(crate) made_bytes: u64,
}

/// The first bytes of a journal, as far as they could be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderBytes {
    Header(JournalHeader),
    /// The header has another format, of this version.
    Other(u32),
    Damaged(&'static str),
}

impl JournalHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.put(MAGIC);
        out.put_u32(FORMAT_VERSION);
        out.put_u32(0); // checksum, below
        out.put_uuid(self.manifest.store);
        out.put_u64(self.number);
        out.put_u64(self.first_sequence);
        out.put_u64(self.made_sequence);
        out.put_u64(self.made_bytes);
        out.put_u64(self.manifest.block_bytes);
        out.put_u32(self.manifest.blocks_per_file);
        out.resize(HEADER_BYTES, 0);
        let crc = checksum_around(&out, CHECKSUM_AT);
        out[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes the header at the front of a journal.
    pub(crate) fn decode(bytes: &[u8]) -> HeaderBytes {
        let Some(header) = bytes.get(..HEADER_BYTES) else { return HeaderBytes::Damaged("it is cut off") };
        Self::read(header).unwrap_or(HeaderBytes::Damaged("the checksum of its header is wrong"))
    }

    fn read(header: &[u8]) -> Option<HeaderBytes> {
        let mut fields = Fields(header);
        if fields.bytes(8)? != MAGIC {
            return Some(HeaderBytes::Damaged("it does not start with WALRUSJN"));
        }
        let version = fields.u32()?;
        if fields.u32()? != checksum_around(header, CHECKSUM_AT) {
            return None;
        }
        if version != FORMAT_VERSION {
            return Some(HeaderBytes::Other(version));
        }
        let store = fields.uuid()?;
        let (number, first_sequence) = (fields.u64()?, fields.u64()?);
        let (made_sequence, made_bytes) = (fields.u64()?, fields.u64()?);
        if !(1..=SEQUENCE_MAX).contains(&first_sequence) || made_sequence > SEQUENCE_MAX {
            return Some(HeaderBytes::Damaged("no store gets to the sequences in its header"));
        }
        let manifest = Manifest { store, block_bytes: fields.u64()?, blocks_per_file: fields.u32()? };
        Some(HeaderBytes::Header(Self { manifest, number, first_sequence, made_sequence, made_bytes }))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_header_comes_back_and_no_flipped_bit_passes() {
        let header = JournalHeader {
            manifest: Manifest { store: Uuid::from_u128(1), block_bytes: 1 << 20, blocks_per_file: 100 },
            number: 7,
            first_sequence: 8,
            made_sequence: 9,
            made_bytes: 200,
        };
        let good = header.encode();
        assert_eq!(JournalHeader::decode(&good), HeaderBytes::Header(header));
        for position in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[position] ^= 1 << bit;
                let read = JournalHeader::decode(&bytes);
                assert!(matches!(read, HeaderBytes::Damaged(_)), "byte {position} bit {bit}: {read:?}");
            }
        }
        assert!(matches!(JournalHeader::decode(&good[..50]), HeaderBytes::Damaged(_)));
    }

    /// Sums that were computed from the fields overflowed.
    #[test]
    fn a_header_with_sequences_that_no_store_gets_to_is_damaged() {
        let manifest = Manifest { store: Uuid::from_u128(1), block_bytes: 1 << 20, blocks_per_file: 100 };
        let header = |first_sequence, made_sequence| JournalHeader {
            manifest,
            number: 7,
            first_sequence,
            made_sequence,
            made_bytes: 200,
        };
        for (first, made) in [(0, 9), (u64::MAX, u64::MAX), (8, u64::MAX)] {
            let read = JournalHeader::decode(&header(first, made).encode());
            assert!(matches!(read, HeaderBytes::Damaged(_)), "{first}, {made}: {read:?}");
        }
    }
}
