//! The first page of a block. It tells to which store and log the block belongs, where in the log it stands, and where
//! in its file it lies.

use uuid::Uuid;

use super::epochs::{EPOCH_RUNS_MAX, EpochRun, Epochs};
use super::fields::{Fields, PutFields};
use super::manifest::Manifest;
use super::{FORMAT_VERSION, SEQUENCE_MAX, checksum_around};
use crate::page::PAGE_BYTES;
use crate::types::{Epoch, FsyncSchedule, LogId};

const MAGIC: &[u8; 8] = b"WALRUSBK";
const CHECKSUM_AT: usize = 12;
const NAME_BYTES_MAX: usize = 255;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    /// The store's manifest, which can be made again from any header.
    pub(crate) manifest: Manifest,
    pub(crate) log: LogId,
    /// Number of the block, which grows with every block that the store opens and is never used twice.
    pub(crate) sequence: u64,
    /// Sequence of the log's previous block; 0 in its first.
    pub(crate) previous: u64,
    pub(crate) base_offset: u64,
    /// Where the block lies; a header that is found anywhere else does not count.
    pub(crate) place: BlockPlace,
    /// Sequence of the journal's last durable record when the block was opened.
    pub(crate) journal_sequence: u64,
    /// The log's own schedule; `None` if it has the store's.
    pub(crate) fsync: Option<FsyncSchedule>,
    /// End of the offsets for which a compacted block replaces all earlier blocks, from its base offset on; zero if the
    /// block was not compacted.
    pub(crate) replaces_to: u64,
    /// Batch group of the block: its id, the number of this part, and the number of parts; zeros if there is none.
    pub(crate) group: (Uuid, u32, u32),
    /// Name of the log, 1 to 255 bytes.
    pub(crate) name: String,
    /// Epochs of the block's batches.
    pub(crate) epochs: Epochs,
}

/// Place of a block in the files of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPlace {
    /// Number of the file.
    pub(crate) file: u64,
    /// First slot of the block in the file.
    pub(crate) slot: u32,
    /// Number of slots that the block takes.
    pub(crate) slots: u32,
    /// Size of each slot.
    pub(crate) slot_bytes: u32,
}

impl BlockPlace {
    /// Whether the place begins at that slot of that file.
    pub(crate) fn is_at(&self, file: u64, slot: u32) -> bool {
        (self.file, self.slot) == (file, slot)
    }
}

/// The content of a header page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderPage {
    /// A page of zeros, which was never written or was freed.
    Empty,
    Header(Box<BlockHeader>),
    /// A header of another format version, which is given.
    Other(u32),
    Damaged,
}

impl BlockHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PAGE_BYTES as usize);
        out.put(MAGIC);
        out.put_u32(FORMAT_VERSION);
        out.put_u32(0); // The checksum is filled in below.
        out.put_uuid(self.manifest.store);
        out.put_uuid(self.log.0);
        out.put_u64(self.sequence);
        out.put_u64(self.previous);
        out.put_u64(self.base_offset);
        out.put_u64(self.place.file);
        out.put_u32(self.place.slot);
        out.put_u32(self.place.slots);
        out.put_u32(self.place.slot_bytes);
        out.put_u32(self.manifest.blocks_per_file);
        out.put_u64(self.manifest.block_bytes);
        out.put_u64(self.journal_sequence);
        out.put_u64(self.fsync.map_or(0, |fsync| fsync.to_number().saturating_add(1)));
        out.put_u64(self.replaces_to);
        out.put_uuid(self.group.0);
        out.put_u32(self.group.1);
        out.put_u32(self.group.2);
        assert!(self.name.len() <= NAME_BYTES_MAX, "names are checked when a log is created");
        out.put_u16(self.name.len() as u16);
        out.put_u16(self.epochs.runs().len() as u16);
        out.put(self.name.as_bytes());
        for run in self.epochs.runs() {
            out.put_u64(run.first_offset);
            out.put_u32(run.epoch.0);
        }
        out.resize(PAGE_BYTES as usize, 0);
        let crc = checksum_around(&out, CHECKSUM_AT);
        out[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header page, which may be too short, because its file was cut off.
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
        if page.len() != PAGE_BYTES as usize || fields.u32()? != checksum_around(page, CHECKSUM_AT) {
            return None;
        }
        if version != FORMAT_VERSION {
            return Some(HeaderPage::Other(version));
        }
        let (store, log) = (fields.uuid()?, LogId(fields.uuid()?));
        let (sequence, previous, base_offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let place = BlockPlace {
            file: fields.u64()?,
            slot: fields.u32()?,
            slots: fields.u32()?,
            slot_bytes: fields.u32()?,
        };
        let (blocks_per_file, block_bytes) = (fields.u32()?, fields.u64()?);
        let manifest = Manifest { store, block_bytes, blocks_per_file };
        let journal_sequence = fields.u64()?;
        if sequence.max(previous).max(journal_sequence) > SEQUENCE_MAX || base_offset > i64::MAX as u64 {
            return None;
        }
        let fsync = match fields.u64()? {
            u64::MAX => Some(FsyncSchedule::NoFsync),
            number => number.checked_sub(1).map(FsyncSchedule::from_number),
        };
        let replaces_to = fields.u64()?;
        let group = (fields.uuid()?, fields.u32()?, fields.u32()?);
        let (name_bytes, runs) = (usize::from(fields.u16()?), usize::from(fields.u16()?));
        if name_bytes > NAME_BYTES_MAX || runs > EPOCH_RUNS_MAX {
            return None;
        }
        let name = String::from_utf8(fields.bytes(name_bytes)?.to_vec()).ok()?;
        let runs: Option<Vec<_>> = (0..runs)
            .map(|_| Some(EpochRun { first_offset: fields.u64()?, epoch: Epoch(fields.u32()?) }))
            .collect();
        let epochs = Epochs::from_runs(runs?, base_offset)?;
        Some(HeaderPage::Header(Box::new(Self {
            manifest,
            log,
            sequence,
            previous,
            base_offset,
            place,
            journal_sequence,
            fsync,
            replaces_to,
            group,
            name,
            epochs,
        })))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    fn header() -> BlockHeader {
        BlockHeader {
            manifest: Manifest { store: Uuid::from_u128(1), block_bytes: 1 << 20, blocks_per_file: 100 },
            log: LogId(Uuid::from_u128(2)),
            sequence: 3,
            previous: 2,
            base_offset: 1 << 40,
            place: BlockPlace { file: 7, slot: 5, slots: 1, slot_bytes: 1 << 16 },
            journal_sequence: 9,
            fsync: None,
            replaces_to: 0,
            group: (Uuid::nil(), 0, 0),
            name: "orders".to_owned(),
            epochs: Epochs::one(1 << 40, Epoch(5)),
        }
    }

    #[test]
    fn a_header_with_numbers_that_no_store_gets_to_is_damaged() {
        let wrong = [
            BlockHeader { sequence: u64::MAX, ..header() },
            BlockHeader { previous: u64::MAX, ..header() },
            BlockHeader { journal_sequence: u64::MAX, ..header() },
            BlockHeader { base_offset: u64::MAX, epochs: Epochs::one(u64::MAX, Epoch(5)), ..header() },
        ];
        for header in wrong {
            assert_eq!(BlockHeader::decode(&header.encode()), HeaderPage::Damaged);
        }
    }

    #[test]
    fn a_header_comes_back_and_no_flipped_byte_passes() {
        let good = header().encode();
        assert_eq!(BlockHeader::decode(&good), HeaderPage::Header(Box::new(header())));
        for position in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[position] ^= 1 << bit;
                // The version, too, is under the checksum: a flipped bit in it is damage, not another format.
                assert_eq!(BlockHeader::decode(&bytes), HeaderPage::Damaged, "byte {position} bit {bit}");
            }
        }
        assert_eq!(BlockHeader::decode(&good[..100]), HeaderPage::Damaged);
        assert_eq!(BlockHeader::decode(&[0; 4096]), HeaderPage::Empty);
        assert_eq!(BlockHeader::decode(&[]), HeaderPage::Empty);
    }

    #[test]
    fn the_longest_name_with_the_most_runs_and_each_schedule_fit() {
        let runs: Vec<_> = (0..EPOCH_RUNS_MAX as u64)
            .map(|run| EpochRun { first_offset: (1 << 40) + run, epoch: Epoch(run as u32) })
            .collect();
        for fsync in [
            FsyncSchedule::SyncEach,
            FsyncSchedule::Milliseconds(NonZeroU64::new(7).unwrap()),
            FsyncSchedule::NoFsync,
        ] {
            let full = BlockHeader {
                name: "n".repeat(NAME_BYTES_MAX),
                epochs: Epochs::from_runs(runs.clone(), 1 << 40).unwrap(),
                fsync: Some(fsync),
                ..header()
            };
            assert_eq!(BlockHeader::decode(&full.encode()), HeaderPage::Header(Box::new(full)));
        }
    }

    #[test]
    fn another_version_under_a_right_checksum_is_told_from_damage() {
        let mut bytes = header().encode();
        bytes[8] = 9;
        let crc = checksum_around(&bytes, CHECKSUM_AT);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(BlockHeader::decode(&bytes), HeaderPage::Other(9));
    }
}
