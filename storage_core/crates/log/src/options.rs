//! How a store is opened: sizes, durability, backend.

use std::fs;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::page::PAGE_BYTES;

/// When data is synced. Of a store, and of each log that says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsyncSchedule {
    /// An append is durable when its ticket resolves; concurrent appends share a sync.
    #[default]
    SyncEach,
    /// In the background, every so many milliseconds while there is something to sync.
    Milliseconds(NonZeroU64),
    /// Never: not at a seal, not at close. A power failure may take everything. A killed process loses nothing with
    /// `mmap`, else what waited in memory: a tenth of a second of appends, more where they outran the disk
    /// ([`Options::unsynced_bytes_max`]). What [`Store::put_property`](crate::Store::put_property) promises is synced all the same.
    NoFsync,
}

impl FsyncSchedule {
    /// Whether data is synced at all.
    pub(crate) fn syncs(self) -> bool {
        self != Self::NoFsync
    }

    /// As the disk has it: each is 0, never is the greatest.
    pub(crate) fn to_number(self) -> u64 {
        match self {
            Self::SyncEach => 0,
            Self::Milliseconds(interval) => interval.get(),
            Self::NoFsync => u64::MAX,
        }
    }

    /// What [`FsyncSchedule::to_number`] gave.
    pub(crate) fn from_number(number: u64) -> Self {
        match NonZeroU64::new(number) {
            None => Self::SyncEach,
            Some(NonZeroU64::MAX) => Self::NoFsync,
            Some(interval) => Self::Milliseconds(interval),
        }
    }

    /// Whether a record is shown before it is synced, and so can be lost by a power failure after it was.
    pub(crate) fn publishes_at_append(self) -> bool {
        self != Self::SyncEach
    }
}

/// How often the place of a cursor is made durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadConsistency {
    /// At each read, before the entries are given: nobody gets one twice.
    #[default]
    StrictlyAtOnce,
    /// When a read would give more than so many entries since the place that is stored: then the place where that read
    /// begins is stored. After a crash at most so many come again, or those of the last read where that gave more, and none
    /// is lost: what a read gives counts as consumed by the next one, or when the store is closed. So a cursor has one reader
    /// at a time: the next read of another one says that what this one is still working on is consumed, and a crash loses it.
    AtLeastOnce {
        /// Entries.
        persist_every: u32,
    },
}

/// How bytes get to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The fastest that the file system and the kernel allow: `IoUring`, else `Direct`, else `Mmap`.
    #[default]
    Auto,
    /// Stores into a mapping of the file; `fdatasync`.
    Mmap,
    /// O_DIRECT writes of whole pages with RWF_DSYNC.
    Direct,
    /// As `Direct`, and writes of several logs are on their way at the same time. `Direct` where the
    /// kernel or a seccomp filter forbids it.
    IoUring,
}

impl FromStr for FsyncSchedule {
    type Err = Error;

    /// `each`, `never` or `<n>ms`.
    fn from_str(text: &str) -> Result<Self> {
        let milliseconds = || text.strip_suffix("ms")?.parse().ok().map(Self::Milliseconds);
        match text {
            "each" => Ok(Self::SyncEach),
            "never" => Ok(Self::NoFsync),
            _ => milliseconds()
                .ok_or_else(|| invalid("fsync", format!("{text:?} is not each, never or <n>ms"))),
        }
    }
}

impl FromStr for Backend {
    type Err = Error;

    /// `auto`, `mmap`, `direct` or `io_uring`.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "mmap" => Ok(Self::Mmap),
            "direct" => Ok(Self::Direct),
            "io_uring" => Ok(Self::IoUring),
            _ => Err(invalid("backend", format!("{text:?} is not auto, mmap, direct or io_uring"))),
        }
    }
}

fn invalid(option: &'static str, reason: String) -> Error {
    Error::InvalidOption { option, reason }
}

/// Options of [`Store::open`](crate::Store::open).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How bytes get to the disk.
    pub backend: Backend,
    /// When they are synced.
    pub fsync: FsyncSchedule,
    /// Size of a block: a multiple of 4 KiB, at least 16 KiB. Fixed when a store is created; later opens use the store's.
    pub block_bytes: u64,
    /// Blocks in a file. Fixed when a store is created.
    pub blocks_per_file: u32,
    /// The journal is rewritten when it is larger than this and than four times what it says.
    pub journal_bytes_max: u64,
    /// How long synced marks may lag behind what was synced.
    pub mark_interval: Duration,
    /// So much of logs that never sync may wait in memory for the disk; then appends wait too. With `mmap` the kernel
    /// decides instead. By default a sixteenth of the memory of the machine or its container, from 16 MiB to 1 GiB.
    pub unsynced_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backend: Backend::Auto,
            fsync: FsyncSchedule::SyncEach,
            block_bytes: 10 << 20,
            blocks_per_file: 100,
            journal_bytes_max: 4 << 20,
            mark_interval: Duration::from_secs(1),
            unsynced_bytes_max: (memory_bytes() / 16).clamp(UNSYNCED_BYTES_LEAST, UNSYNCED_BYTES_MOST),
        }
    }
}

impl Options {
    /// Small blocks and files, for tests and small embedded stores.
    pub fn small() -> Self {
        Self { block_bytes: 64 << 10, blocks_per_file: 4, journal_bytes_max: 64 << 10, ..Self::default() }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let invalid = |option, reason: &str| Err(invalid(option, reason.to_owned()));
        if !self.block_bytes.is_multiple_of(PAGE_BYTES) || self.block_bytes < 4 * PAGE_BYTES {
            return invalid("block_bytes", "must be a multiple of 4096 and at least 16384");
        }
        let file_bytes = self.block_bytes.checked_mul(u64::from(self.blocks_per_file));
        if self.blocks_per_file == 0 || file_bytes.is_none_or(|bytes| bytes > FILE_BYTES_MAX) {
            return invalid(
                "blocks_per_file",
                "a file must have at least one block and at most 4 GiB less a page",
            );
        }
        Ok(())
    }
}

const UNSYNCED_BYTES_LEAST: u64 = 16 << 20;
const UNSYNCED_BYTES_MOST: u64 = 1 << 30;

/// What this process may use: the machine's memory, or the limit of its container.
fn memory_bytes() -> u64 {
    let kibibytes = |text: &str| text.split_whitespace().nth(1)?.parse::<u64>().ok();
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| kibibytes(&text)).map(|n| n << 10);
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let container = limit.and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(container).min().unwrap_or(0)
}

/// Positions in a block are 32 bits on disk.
const FILE_BYTES_MAX: u64 = u32::MAX as u64 - PAGE_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_and_backends_have_names() {
        let schedule = |text: &str| text.parse::<FsyncSchedule>().ok();
        assert_eq!(schedule("each"), Some(FsyncSchedule::SyncEach));
        assert_eq!(schedule("never"), Some(FsyncSchedule::NoFsync));
        assert_eq!(schedule("50ms"), NonZeroU64::new(50).map(FsyncSchedule::Milliseconds));
        assert_eq!(["0ms", "ms", "-1ms", "", "sometimes"].map(schedule), [None; 5]);
        assert_eq!("mmap".parse::<Backend>().ok(), Some(Backend::Mmap));
        assert_eq!("io_uring".parse::<Backend>().ok(), Some(Backend::IoUring));
        assert!("floppy".parse::<Backend>().is_err());
    }
}
