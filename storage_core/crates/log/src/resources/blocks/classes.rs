//! The size classes of blocks: a log that writes little gets small ones, so that many such logs take little space; one
//! that fills them fast gets larger ones.

use std::time::Duration;

use crate::disk::TailKind;
use crate::format::footer::data_max;
use crate::page::PAGE_BYTES;

/// The smaller sizes; the largest is the store's own.
const SMALL_BYTES: [u64; 3] = [64 << 10, 256 << 10, 1 << 20];
/// A block that was filled in less time is followed by a larger one.
const FAST: Duration = Duration::from_secs(60);
/// A block that took more time is followed by a smaller one.
const SLOW: Duration = Duration::from_secs(3600);
/// Bytes of a commit from which on a log is bound by the disk's bandwidth and not by its syncs.
const BULK_COMMIT_BYTES: u64 = 128 << 10;
/// Number of batches of the size that opens a block that should fit into it.
const BATCHES_MIN: u64 = 4;

/// Index into a store's sizes, smallest first.
pub(crate) type Class = usize;

/// The facts about a file of blocks that its name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileName {
    pub(crate) number: u64,
    pub(crate) class: Class,
    /// The one way in which appended bytes reach the file.
    pub(crate) tails: TailKind,
}

/// The block sizes of a store.
pub(crate) struct Classes {
    /// Size of one slot of each class, ascending.
    slot_bytes: Vec<u64>,
    file_bytes: u64,
}

/// The slots that a block takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) class: Class,
    /// Number of slots; more than one only in the largest class.
    pub(crate) slots: u32,
    /// Whether commits to the block will be large.
    pub(crate) bulk: bool,
}

/// The log's last block, and how fast it was filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastBlock {
    pub(crate) class: Class,
    pub(crate) took: Duration,
    /// Bytes that each commit wrote, on average.
    pub(crate) commit_bytes: u64,
}

impl LastBlock {
    /// A last block that does not tell how fast it was filled.
    pub(crate) fn at_no_known_rate(class: Class) -> Self {
        Self { class, took: FAST, commit_bytes: 0 }
    }
}

impl Classes {
    pub(crate) fn new(block_bytes: u64, blocks_per_file: u32) -> Self {
        let file_bytes = block_bytes * u64::from(blocks_per_file);
        let smaller = SMALL_BYTES.into_iter().filter(|bytes| *bytes < block_bytes);
        Self { slot_bytes: smaller.chain([block_bytes]).collect(), file_bytes }
    }

    pub(crate) fn slot_bytes(&self, class: Class) -> u64 {
        self.slot_bytes[class]
    }

    /// Number of slots in a file of the class.
    pub(crate) fn slots(&self, class: Class) -> u32 {
        (self.file_bytes / self.slot_bytes[class]) as u32
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    pub(crate) fn largest(&self) -> Class {
        self.slot_bytes.len() - 1
    }

    /// The size of a log's next block, whose first batch has `batch_bytes`. The error is the largest batch that would
    /// fit.
    pub(crate) fn next(&self, last: Option<LastBlock>, batch_bytes: u64) -> Result<Size, u64> {
        let wanted = match last {
            None => 0,
            Some(LastBlock { class, took, .. }) if took < FAST => (class + 1).min(self.largest()),
            Some(LastBlock { class, took, .. }) if took > SLOW => class.saturating_sub(1),
            Some(LastBlock { class, .. }) => class,
        };
        let commit_bytes = last.map_or(0, |last| last.commit_bytes).max(batch_bytes);
        let bulk = commit_bytes >= BULK_COMMIT_BYTES;
        let roomy = (wanted..self.largest())
            .find(|class| Self::fits(self.slot_bytes[*class], batch_bytes.saturating_mul(BATCHES_MIN)));
        if let Some(class) = roomy {
            return Ok(Size { class, slots: 1, bulk });
        }
        let class = self.largest();
        let slots = (1..=self.slots(class))
            .find(|slots| Self::fits(self.slot_bytes[class] * u64::from(*slots), batch_bytes));
        slots.map(|slots| Size { class, slots, bulk }).ok_or(self.batch_bytes_max())
    }

    /// The smallest size that takes `data_bytes`. The error is the largest number that would fit.
    pub(crate) fn smallest(&self, data_bytes: u64) -> Result<Size, u64> {
        let fitting = (0..self.largest()).find(|class| Self::fits(self.slot_bytes[*class], data_bytes));
        fitting.map_or_else(
            || self.next(Some(LastBlock::at_no_known_rate(self.largest())), data_bytes),
            |class| Ok(Size { class, slots: 1, bulk: data_bytes >= BULK_COMMIT_BYTES }),
        )
    }

    /// Largest batch, which fits into a block that takes a whole file.
    pub(crate) fn batch_bytes_max(&self) -> u64 {
        data_max(self.file_bytes) - PAGE_BYTES
    }

    fn fits(block_bytes: u64, data_bytes: u64) -> bool {
        PAGE_BYTES.saturating_add(data_bytes) <= data_max(block_bytes)
    }

    /// Writes the name of a file: `00000007.wal` of the largest class, `00000007-64k.wal` of another; one with mapped
    /// tails is `00000007-mapped.wal` or `00000007-64k-mapped.wal`.
    pub(crate) fn write_name(&self, name: FileName) -> String {
        let FileName { number, class, tails } = name;
        let size = if class == self.largest() {
            String::new()
        } else {
            format!("-{}k", self.slot_bytes[class] >> 10)
        };
        let mapped = if tails == TailKind::Mapped { MAPPED } else { "" };
        format!("{number:08}{size}{mapped}{NAME_SUFFIX}")
    }

    /// Reads the name of a file; `None` if it is no file of blocks.
    pub(crate) fn parse_name(&self, name: &str) -> Option<FileName> {
        let stem = name.strip_suffix(NAME_SUFFIX)?;
        let (stem, tails) = match stem.strip_suffix(MAPPED) {
            Some(stem) => (stem, TailKind::Mapped),
            None => (stem, TailKind::Buffered),
        };
        let (number, class) = match stem.split_once('-') {
            None => (stem, self.largest()),
            Some((number, size)) => {
                let bytes = size.strip_suffix('k')?.parse::<u64>().ok()? << 10;
                (number, self.slot_bytes[..self.largest()].iter().position(|known| *known == bytes)?)
            }
        };
        Some(FileName { number: number.parse().ok()?, class, tails })
    }
}

const MAPPED: &str = "-mapped";
const NAME_SUFFIX: &str = ".wal";

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn filled(class: Class, seconds: u64) -> Option<LastBlock> {
        Some(LastBlock { class, took: Duration::from_secs(seconds), commit_bytes: 1000 })
    }

    #[test]
    fn blocks_follow_the_rate_of_their_log() {
        let classes = Classes::new(10 * MIB, 100);
        let class = |last, batch_bytes| classes.next(last, batch_bytes).map(|size| (size.class, size.slots));
        assert_eq!(class(None, 100), Ok((0, 1)));
        assert_eq!(class(filled(0, 1), 100), Ok((1, 1)));
        assert_eq!(class(filled(3, 1), 100), Ok((3, 1)));
        assert_eq!(class(filled(2, 600), 100), Ok((2, 1)));
        assert_eq!(class(filled(2, 4000), 100), Ok((1, 1)));
        assert_eq!(class(filled(0, 4000), 100), Ok((0, 1)));
        // A large batch tells something of the rate, too.
        assert_eq!(class(None, 100_000), Ok((2, 1)));
        assert_eq!(class(None, 2 * MIB), Ok((3, 1)));
        assert_eq!(class(None, 30 * MIB), Ok((3, 4)));
        let is_bulk = |last, batch_bytes| classes.next(last, batch_bytes).map(|size| size.bulk);
        assert_eq!(is_bulk(filled(3, 1), 100), Ok(false));
        assert_eq!(is_bulk(None, 2 * MIB), Ok(true));
        let large = LastBlock { commit_bytes: MIB, ..LastBlock::at_no_known_rate(3) };
        assert_eq!(is_bulk(Some(large), 100), Ok(true));
        assert!(class(None, 1000 * MIB).is_err_and(|most| class(None, most).is_ok()));
    }

    #[test]
    fn a_name_says_number_and_class() {
        let classes = Classes::new(10 * MIB, 100);
        for (class, name) in
            (0..).zip(["00000007-64k.wal", "00000007-256k.wal", "00000007-1024k.wal", "00000007.wal"])
        {
            let written = FileName { number: 7, class, tails: TailKind::Buffered };
            assert_eq!(classes.write_name(written), name);
            assert_eq!(classes.parse_name(name), Some(written));
            let mapped = FileName { tails: TailKind::Mapped, ..written };
            let name = name.replace(".wal", "-mapped.wal");
            assert_eq!(classes.write_name(mapped), name);
            assert_eq!(classes.parse_name(&name), Some(mapped));
        }
        assert_eq!(
            ["7.wals", "x.wal", "7-63k.wal", "7-64.wal"].map(|name| classes.parse_name(name)),
            [None; 4]
        );
        let single = Classes::new(64 << 10, 4);
        assert_eq!((single.largest(), single.slots(0)), (0, 4));
    }
}
