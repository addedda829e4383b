//! The last pages of a sealed block: a sparse index, totals, and the producers at the block's end. All of it is derived
//! data: a block without a footer, or with a damaged one, is scanned instead.

use std::sync::Arc;

use super::fields::{Fields, PutFields};
use super::mark::BlockKey;
use super::{FORMAT_VERSION, checksum_around};
use crate::digest::Digest;
use crate::page::{PAGE_BYTES, page_up};

const MAGIC: &[u8; 8] = b"WALRUSFT";
pub(crate) const TRAILER_BYTES: u64 = 96;
/// Position of the checksum in the trailer.
const CHECKSUM_AT: usize = 12;
const ENTRY_BYTES: u64 = 20;
/// Length of the producer table that says that it did not fit.
const NO_PRODUCERS: u32 = u32::MAX;

/// Entry of the sparse index; it covers the batches from its offset up to the next entry's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// Offset of the first batch.
    pub(crate) offset: u64,
    /// Greatest timestamp of the covered batches and of all before them in the block, so that it never falls from entry
    /// to entry.
    pub(crate) max_timestamp: i64,
    /// Position of the first batch, from the start of the block.
    pub(crate) position: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    /// Key of the block; the footer does not count in any other block.
    pub(crate) key: BlockKey,
    pub(crate) sequence: u64,
    pub(crate) base_offset: u64,
    pub(crate) end_offset: u64,
    pub(crate) max_timestamp: i64,
    /// End of the batches, from the start of the block.
    pub(crate) data_end: u64,
    /// Digest of the block's batches.
    pub(crate) digest: Digest,
    pub(crate) entries: Arc<Vec<IndexEntry>>,
    /// Encoded producers at the block's end, as changes since the log's start; `None` if they did not fit.
    pub(crate) producers: Option<Vec<u8>>,
}

/// Bytes at the end of a block that data leaves free, so that the index always fits.
pub(crate) const fn footer_reserve(block_bytes: u64) -> u64 {
    page_up(TRAILER_BYTES + block_bytes / PAGE_BYTES * ENTRY_BYTES)
}

/// Limit on the end of the data of a block with `block_bytes`.
pub(crate) const fn data_max(block_bytes: u64) -> u64 {
    block_bytes - footer_reserve(block_bytes)
}

impl Footer {
    /// Encodes the pages of the footer, which end where the block ends. `room` is the number of bytes between the data
    /// and the block's end; the producers are left out if they do not fit, and the result is `None` if the index does
    /// not.
    pub(crate) fn encode(&self, room: u64) -> Option<Vec<u8>> {
        let needed =
            |producers: u64| page_up(TRAILER_BYTES + self.entries.len() as u64 * ENTRY_BYTES + producers);
        let snapshot = self.producers.as_deref().filter(|bytes| needed(bytes.len() as u64) <= room);
        let footer_bytes = needed(snapshot.map_or(0, <[u8]>::len) as u64);
        if footer_bytes > room {
            return None;
        }
        let mut out = Vec::with_capacity(footer_bytes as usize);
        for entry in &*self.entries {
            out.put_u64(entry.offset - self.base_offset);
            out.put_i64(entry.max_timestamp);
            out.put_u32(entry.position);
        }
        out.put(snapshot.unwrap_or_default());
        out.resize((footer_bytes - TRAILER_BYTES) as usize, 0);
        out.put(MAGIC);
        out.put_u32(FORMAT_VERSION);
        out.put_u32(0); // The checksum is filled in below.
        out.put_u32(u32::try_from(footer_bytes).ok()?);
        out.put_u32(u32::try_from(self.entries.len()).ok()?);
        out.put_u32(snapshot.map_or(NO_PRODUCERS, |bytes| bytes.len() as u32));
        out.put_u32(self.key.0);
        out.put_u64(self.sequence);
        out.put_u64(self.base_offset);
        out.put_u64(self.end_offset);
        out.put_i64(self.max_timestamp);
        out.put_u64(self.data_end);
        out.put_u64(self.digest.value);
        out.put_u64(self.digest.batches);
        out.resize(footer_bytes as usize, 0);
        let at = (footer_bytes - TRAILER_BYTES) as usize + CHECKSUM_AT;
        let crc = checksum_around(&out, at);
        out[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        Some(out)
    }

    /// Size of the footer that the last page of a block announces; `None` if the page ends no footer.
    pub(crate) fn announced_bytes(last_page: &[u8]) -> Option<u64> {
        let trailer = last_page.len().checked_sub(TRAILER_BYTES as usize)?;
        let mut fields = Fields(&last_page[trailer..]);
        if fields.bytes(8)? != MAGIC {
            return None;
        }
        let (_version, _checksum) = (fields.u32()?, fields.u32()?);
        Some(u64::from(fields.u32()?))
    }

    /// Reads what [`Footer::encode`] wrote; `None` for anything else.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let body_bytes = bytes.len().checked_sub(TRAILER_BYTES as usize)?;
        let mut trailer = Fields(&bytes[body_bytes..]);
        if trailer.bytes(8)? != MAGIC || trailer.u32()? != FORMAT_VERSION {
            return None;
        }
        let (crc, footer_bytes) = (trailer.u32()?, trailer.u32()?);
        let is_whole = crc == checksum_around(bytes, body_bytes + CHECKSUM_AT);
        if !is_whole || u64::from(footer_bytes) != bytes.len() as u64 {
            return None;
        }
        let (entries, producers) = (trailer.u32()?, trailer.u32()?);
        let key = BlockKey(trailer.u32()?);
        let (sequence, base_offset, end_offset) = (trailer.u64()?, trailer.u64()?, trailer.u64()?);
        let (max_timestamp, data_end) = (trailer.i64()?, trailer.u64()?);
        let digest = Digest { value: trailer.u64()?, batches: trailer.u64()? };
        let mut body = Fields(&bytes[..body_bytes]);
        let entries = (0..entries)
            .map(|_| {
                let (offset, max_timestamp, position) = (body.u64()?, body.i64()?, body.u32()?);
                Some(IndexEntry { offset: base_offset.checked_add(offset)?, max_timestamp, position })
            })
            .collect::<Option<Vec<_>>>()?;
        let entries = Arc::new(entries);
        let producers = match producers {
            NO_PRODUCERS => None,
            length => Some(body.bytes(length as usize)?.to_vec()),
        };
        Some(Self {
            key,
            sequence,
            base_offset,
            end_offset,
            max_timestamp,
            data_end,
            digest,
            entries,
            producers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footer() -> Footer {
        let entry = |i: u64| IndexEntry {
            offset: 100 + i * 10,
            max_timestamp: -5 + i as i64,
            position: 4096 + i as u32,
        };
        Footer {
            key: BlockKey(4),
            sequence: 9,
            base_offset: 100,
            end_offset: 200,
            max_timestamp: 77,
            data_end: 20_000,
            digest: Digest { value: 1, batches: 2 },
            entries: Arc::new((0..10).map(entry).collect()),
            producers: Some(vec![1, 2, 3]),
        }
    }

    #[test]
    fn a_footer_comes_back_and_no_flipped_byte_passes() {
        let good = footer().encode(8192).unwrap();
        assert_eq!(good.len(), 4096);
        assert_eq!(Footer::announced_bytes(&good), Some(4096));
        assert_eq!(Footer::decode(&good), Some(footer()));
        let step = if cfg!(miri) { 199 } else { 1 }; // An interpreter takes seconds for each.
        for position in (0..good.len()).step_by(step) {
            let mut bytes = good.clone();
            bytes[position] ^= 0x40;
            assert_eq!(Footer::decode(&bytes), None, "byte {position}");
        }
        assert_eq!(Footer::decode(&good[..50]), None);
        assert_eq!(Footer::announced_bytes(&[0; 4096]), None);
    }

    #[test]
    fn producers_that_do_not_fit_are_left_out() {
        let full = Footer { producers: Some(vec![0; 5000]), ..footer() };
        let read = Footer::decode(&full.encode(4096).unwrap()).unwrap();
        assert_eq!(read, Footer { producers: None, ..full.clone() });
        assert_eq!(full.encode(4095), None);
    }
}
