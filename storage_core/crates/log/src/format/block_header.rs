//! The first page of a block: whose it is and where in its log it stands.

use uuid::Uuid;

use super::fields::{Fields, PutFields};
use super::{FORMAT_VERSION, PAGE_BYTES, checksum};
use crate::types::{Epoch, LogId};

const MAGIC: &[u8; 8] = b"WALRUSBK";
const NAME_BYTES_MAX: usize = 255;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub(crate) store: Uuid,
    pub(crate) log: LogId,
    /// Grows with every block that the store opens; never used twice.
    pub(crate) sequence: u64,
    /// Sequence of the log's block before; 0 in its first.
    pub(crate) previous: u64,
    pub(crate) base_offset: u64,
    pub(crate) epoch: Epoch,
    /// How many slots of the file the block takes.
    pub(crate) slots: u32,
    /// Batch group: id, part, count. Zero: none.
    pub(crate) group: (Uuid, u32, u32),
    /// 1..=255 bytes.
    pub(crate) name: String,
    /// Compacted: the block stands for all blocks before it from its base offset to here. Zero, as behind the names of
    /// headers that are older than compaction: it was not.
    pub(crate) replaces_to: u64,
}

/// What a header page turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderPage {
    /// Never written, or freed.
    Empty,
    Header(BlockHeader),
    /// Written by a newer version.
    Newer(u32),
    Damaged,
}

impl BlockHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PAGE_BYTES as usize);
        out.put(MAGIC);
        out.put_u32(FORMAT_VERSION);
        out.put_u32(0); // checksum, below
        out.put_uuid(self.store);
        out.put_uuid(self.log.0);
        out.put_u64(self.sequence);
        out.put_u64(self.previous);
        out.put_u64(self.base_offset);
        out.put_u32(self.epoch.0);
        out.put_u32(self.slots);
        out.put_uuid(self.group.0);
        out.put_u32(self.group.1);
        out.put_u32(self.group.2);
        assert!(self.name.len() <= NAME_BYTES_MAX, "names are checked when a log is created");
        out.put_u16(self.name.len() as u16);
        out.put(self.name.as_bytes());
        out.put_u64(self.replaces_to);
        out.resize(PAGE_BYTES as usize, 0);
        let crc = checksum(&out[16..]);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// `page` may be cut off: the file may be.
    pub(crate) fn decode(page: &[u8]) -> HeaderPage {
        if page.iter().all(|&byte| byte == 0) {
            return HeaderPage::Empty;
        }
        Self::read(page).unwrap_or(HeaderPage::Damaged)
    }

    fn read(page: &[u8]) -> Option<HeaderPage> {
        let mut fields = Fields(page);
        if fields.bytes(8)? != MAGIC {
            return None;
        }
        let version = fields.u32()?;
        let crc = fields.u32()?;
        if page.len() != PAGE_BYTES as usize || crc != checksum(&page[16..]) {
            return None;
        }
        if version == 0 {
            return None;
        }
        if version > FORMAT_VERSION {
            return Some(HeaderPage::Newer(version));
        }
        let header = Self {
            store: fields.uuid()?,
            log: LogId(fields.uuid()?),
            sequence: fields.u64()?,
            previous: fields.u64()?,
            base_offset: fields.u64()?,
            epoch: Epoch(fields.u32()?),
            slots: fields.u32()?,
            group: (fields.uuid()?, fields.u32()?, fields.u32()?),
            name: {
                let length = usize::from(fields.u16()?);
                let name = fields.bytes(length).filter(|_| length <= NAME_BYTES_MAX)?;
                String::from_utf8(name.to_vec()).ok()?
            },
            replaces_to: fields.u64()?,
        };
        Some(HeaderPage::Header(header))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> BlockHeader {
        BlockHeader {
            store: Uuid::from_u128(1),
            log: LogId(Uuid::from_u128(2)),
            sequence: 3,
            previous: 2,
            base_offset: 1 << 40,
            epoch: Epoch(5),
            slots: 1,
            group: (Uuid::nil(), 0, 0),
            name: "orders".to_owned(),
            replaces_to: 0,
        }
    }

    #[test]
    fn a_header_comes_back_and_no_flipped_byte_passes() {
        let good = header().encode();
        assert_eq!(BlockHeader::decode(&good), HeaderPage::Header(header()));
        for position in 0..good.len() {
            let mut bytes = good.clone();
            bytes[position] ^= 0x10;
            let read = BlockHeader::decode(&bytes);
            // The version is outside the checksum, as any reader must understand it.
            let expected = if (8..12).contains(&position) {
                matches!(read, HeaderPage::Newer(_))
            } else {
                read == HeaderPage::Damaged
            };
            assert!(expected, "byte {position}: {read:?}");
        }
        assert_eq!(BlockHeader::decode(&good[..100]), HeaderPage::Damaged);
        assert_eq!(BlockHeader::decode(&[0; 4096]), HeaderPage::Empty);
        assert_eq!(BlockHeader::decode(&[]), HeaderPage::Empty);
    }
}
