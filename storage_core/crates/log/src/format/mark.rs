//! The mark that a batch has on the disk in the place of its leader epoch: it proves that the batch lies where it was
//! written, and tells whether it begins a commit. So a batch is found out that landed in another block or at another
//! position, or that is left from an earlier block in the slot.

use uuid::Uuid;

use super::checksum;
use crate::batch::BatchHeader;
use crate::types::LogId;

const BEGINS_COMMIT: u32 = 1 << 31;
/// Number of bytes that a mark covers.
const COVERED_BYTES: usize = 24;

/// The key of a block, by which the marks of its batches name it: a checksum over store, log and block sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockKey(pub(crate) u32);

impl BlockKey {
    pub(crate) fn new(store: Uuid, log: LogId, sequence: u64) -> Self {
        let mut bytes = [0; 40];
        bytes[..16].copy_from_slice(store.as_bytes());
        bytes[16..32].copy_from_slice(log.0.as_bytes());
        bytes[32..].copy_from_slice(&sequence.to_le_bytes());
        Self(checksum(&bytes))
    }

    /// The mark of a batch with that base offset at a position of the block. With `begins_commit` the mark says that all
    /// earlier batches of the log were durable before this one could be written.
    #[inline]
    pub(crate) fn mark(
        self,
        position: u64,
        base_offset: u64,
        header: &BatchHeader,
        begins_commit: bool,
    ) -> u32 {
        let bit = if begins_commit { BEGINS_COMMIT } else { 0 };
        let mut bytes = [0; COVERED_BYTES];
        bytes[..4].copy_from_slice(&self.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&(position as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&(header.length() | bit).to_le_bytes());
        bytes[12..16].copy_from_slice(&header.crc.to_le_bytes());
        bytes[16..].copy_from_slice(&base_offset.to_le_bytes());
        checksum(&bytes) & !BEGINS_COMMIT | bit
    }

    /// Whether a stored batch begins a commit; `None` if it was not written to that position of this block.
    #[inline]
    pub(crate) fn check(self, position: u64, header: &BatchHeader) -> Option<bool> {
        let found = header.leader_epoch.cast_unsigned();
        let begins_commit = found & BEGINS_COMMIT != 0;
        (found == self.mark(position, header.base_offset, header, begins_commit)
            || crate::seeded!(PlaceNotCompared))
        .then_some(begins_commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, write_offsets};

    fn key(store: u128, log: u128, sequence: u64) -> BlockKey {
        BlockKey::new(Uuid::from_u128(store), LogId(Uuid::from_u128(log)), sequence)
    }

    fn stored(key: BlockKey, position: u64, base_offset: u64, begins_commit: bool) -> BatchHeader {
        let mut bytes = Vec::new();
        BatchBuilder::new().push(None, Some(b"value"), 7, &[]).build(&mut bytes).unwrap();
        let header = BatchHeader::peek(&bytes).unwrap();
        write_offsets(&mut bytes, base_offset, key.mark(position, base_offset, &header, begins_commit));
        BatchHeader::peek(&bytes).unwrap()
    }

    #[test]
    fn a_mark_holds_in_its_place_and_nowhere_else() {
        for begins_commit in [false, true] {
            let header = stored(key(1, 2, 3), 4096, 50, begins_commit);
            let changed = |change: fn(&mut BatchHeader)| {
                let mut changed = header;
                change(&mut changed);
                changed
            };
            assert_eq!(key(1, 2, 3).check(4096, &header), Some(begins_commit));
            let elsewhere =
                [(key(9, 2, 3), 4096), (key(1, 9, 3), 4096), (key(1, 2, 9), 4096), (key(1, 2, 3), 4097)];
            for (other, position) in elsewhere {
                assert_eq!(other.check(position, &header), None);
            }
            assert_eq!(key(1, 2, 3).check(4096, &changed(|it| it.base_offset = 51)), None);
            assert_eq!(key(1, 2, 3).check(4096, &changed(|it| it.crc ^= 1)), None);
            for bit in 0..32 {
                let mut flipped = header;
                flipped.leader_epoch ^= (1_u32 << bit).cast_signed();
                assert_eq!(key(1, 2, 3).check(4096, &flipped), None, "bit {bit}");
            }
        }
    }
}
