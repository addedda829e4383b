//! The options of a store: sizes, durability, backend.

use std::fs;
use std::str::FromStr;
use std::time::Duration;

use walrus_model::NoSchedule;

use crate::error::{Error, Result};
use crate::page::PAGE_BYTES;
use crate::types::FsyncSchedule;

/// How often the place of a cursor is made durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadConsistency {
    /// The place is stored at each read, before the entries are given: nobody gets an entry twice.
    #[default]
    StrictlyAtOnce,
    /// The place where a read begins is stored when the read would give more than this many entries since the stored
    /// place. After a crash at most so many entries come again, or those of the last read if it gave more, and none is
    /// lost: the entries of a read count as consumed at the next read, or when the store is closed. So a cursor has
    /// one reader at a time: a read by a second reader would count the entries that the first is still working on as
    /// consumed, and a crash would lose them.
    AtLeastOnce {
        /// Entries that may be given before a place is stored.
        persist_every: u32,
    },
}

/// The way in which bytes get to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The fastest that file system and kernel allow: `IoUring`, else `Direct`, else `Mmap`.
    #[default]
    Auto,
    /// Logs that do not sync each append have their bytes stored into a mapping of the file at once, so that they outlive
    /// the process. The others are written as with `Direct` where the file system takes that, else through the page cache.
    Mmap,
    /// Whole pages are written with O_DIRECT and RWF_DSYNC.
    Direct,
    /// Pages are written as with `Direct`, and writes of several logs are under way at the same time. It becomes
    /// `Direct` where the kernel or a seccomp filter forbids io_uring.
    IoUring,
}

impl From<NoSchedule> for Error {
    fn from(reason: NoSchedule) -> Self {
        invalid("fsync", reason.to_string())
    }
}

impl FromStr for Backend {
    type Err = Error;

    /// Parses `auto`, `mmap`, `direct` or `io_uring`.
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
    /// Backend by which bytes get to the disk.
    pub backend: Backend,
    /// Schedule of the logs that have none of their own.
    pub fsync: FsyncSchedule,
    /// Bytes of a block: a multiple of 4 KiB, at least 16 KiB. Fixed when a store is created; later opens use the
    /// store's.
    pub block_bytes: u64,
    /// Number of blocks in a file. Fixed when a store is created.
    pub blocks_per_file: u32,
    /// Bytes above which the journal is compacted, if it is also four times as large as after the last compaction.
    pub journal_bytes_max: u64,
    /// How long synced marks may lag behind what was synced.
    pub mark_interval: Duration,
    /// Limit on the unwritten bytes of all logs that never sync; an append above it waits until part of them is
    /// written. With `mmap` the kernel decides instead. By default a sixteenth of the memory of the machine or its
    /// container, from 16 MiB to 1 GiB.
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
    /// Options with small blocks and files, for tests and small embedded stores.
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

/// Bytes of memory that this process may use: those of the machine, or the limit of its container.
fn memory_bytes() -> u64 {
    let kibibytes = |text: &str| text.split_whitespace().nth(1)?.parse::<u64>().ok();
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| kibibytes(&text)).map(|n| n << 10);
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let container = limit.and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(container).min().unwrap_or(0)
}

/// Limit on the bytes of a file: positions in a block are 32 bits on disk.
const FILE_BYTES_MAX: u64 = u32::MAX as u64 - PAGE_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_have_names() {
        assert_eq!("mmap".parse::<Backend>().ok(), Some(Backend::Mmap));
        assert_eq!("io_uring".parse::<Backend>().ok(), Some(Backend::IoUring));
        assert!("floppy".parse::<Backend>().is_err());
    }
}
