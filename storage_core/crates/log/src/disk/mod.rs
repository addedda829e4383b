//! The one door to files: a directory ([`Disk`]) and its files ([`DiskFile`]). Real files are mapped or opened with
//! O_DIRECT, with or without io_uring; the simulated disk keeps live and durable bytes and makes crash images. All
//! `unsafe` of the crate is in this folder.

mod aio;
mod bus;
mod calls;
mod closed;
mod crash;
mod directory;
mod memory;
mod overlay;
mod pieces;
mod process;
mod real_file;
mod replay;
mod ring;
mod several;
mod simulated;

use std::io;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use closed::ClosedFile;
pub use crash::CrashChoice;
pub(crate) use directory::Directory;
pub(crate) use memory::{
    AlignedPage, CHUNK_BYTES, ChunkPool, ChunkReader, ChunkWriter, PooledPage, SMALL_CHUNK_BYTES,
};
pub(crate) use overlay::Overlay;
pub use process::Origin;
pub use replay::Replay;
pub use simulated::{Fault, SimulatedDisk};
use smallvec::SmallVec;
use uuid::Uuid;

use crate::seeded;

/// Number of parts up to which a write allocates nothing for them: a commit of one record has at most two.
pub(crate) const FEW_PARTS: usize = 4;

/// The way in which appended bytes reach a file. A file has one way for ever, which its name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TailKind {
    /// An append stores its bytes into a claimed range of a mapping at once, so that they outlive the process; a sync
    /// makes them durable.
    Mapped,
    /// An append keeps its bytes in memory; the commit writes them in whole pages.
    Buffered,
}

/// The backend that a store really uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendInUse {
    /// `mmap`, `direct`, `io_uring`, `simulated`, or `memory` where the disk is only read.
    pub name: &'static str,
    /// Reason why a backend that was asked for, or would have been better, is not used.
    pub refused: Option<String>,
    /// The way in which commits write what they sync, with every backend.
    pub synced_writes: SyncedWrites,
}

/// The way in which a commit brings bytes to the disk that must be there when it is over. The file system decides: the
/// open of a store tries what it can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncedWrites {
    /// One write with O_DIRECT and RWF_DSYNC, past the page cache.
    Direct,
    /// A write into the page cache, and `fdatasync` behind it.
    Cached {
        /// Reason why direct writes are not used.
        reason: String,
    },
}

impl SyncedWrites {
    /// `direct` or `cached`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Cached { .. } => "cached",
        }
    }
}

/// Use of a file, which decides how it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Small file that is written once, in parts of any size.
    Plain,
    /// File that is written in whole aligned pages, from aligned memory.
    Pages,
    /// File of pages that commits write.
    Blocks,
    /// File of blocks whose ranges are claimed and stored into, where the disk maps files. Other writes go through the
    /// page cache, which the mapping shares: a direct write would be overwritten by what the cache still holds.
    Mapped,
}

impl FileKind {
    /// The kind of a file of blocks with such tails.
    pub(crate) fn of_tails(kind: TailKind) -> Self {
        match kind {
            TailKind::Mapped => Self::Mapped,
            TailKind::Buffered => Self::Blocks,
        }
    }
}

/// The way in which a range of a file gets its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepare {
    /// Zeros are written and synced, so that later small durable writes need no change of the file's metadata.
    Written,
    /// Space is set aside, and the range reads as zeros; nothing is synced. This is cheap, and suits large or unsynced
    /// writes.
    Reserved,
}

impl Prepare {
    /// The way that suits tails of a kind, of logs that sync their data or do not. Zeros that were written would have
    /// to be read again before the first store into a mapped page.
    pub(crate) fn fitting(tails: TailKind, syncs: bool) -> Self {
        if syncs && tails == TailKind::Buffered { Self::Written } else { Self::Reserved }
    }
}

/// One directory of files.
pub trait Disk: Send + Sync + 'static {
    /// Whether files are mapped for the logs that do not sync each append.
    fn maps(&self) -> bool;
    /// The backend in use, for reports.
    fn backend(&self) -> BackendInUse;
    /// Number of reads up to which the disk answers faster at the same time than one after the other.
    fn reads_at_once(&self) -> usize {
        1
    }
    /// Identity of the machine's current run, from its boot on: as long as it is the same, everything that was written
    /// is there, synced or not. `None` if it is unknown.
    fn boot(&self) -> Option<Uuid>;
    /// Path of a file, or of the directory for an empty name, for messages.
    fn path(&self, name: &str) -> String;
    /// Locks the directory against other openers until the guard is dropped; `WouldBlock` if it is locked already.
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>>;
    /// Lists the names of the files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Length of a file, without opening it.
    fn size_bytes(&self, name: &str) -> io::Result<u64>;
    /// Makes a file that reads as `bytes` zeros and takes no space; `AlreadyExists` if the name is taken. Its name is
    /// durable after [`Disk::sync_directory`].
    fn create(&self, name: &str, bytes: u64, kind: FileKind) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file; one that is shorter than `bytes` reads as zeros up to there.
    fn open(&self, name: &str, bytes: u64, kind: FileKind) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file; a file that has the name `to` is replaced.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file; its descriptor is closed when the last handle is dropped.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_directory(&self) -> io::Result<()>;
    /// Bytes that this process could still take on the disk.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// One open file of a [`Disk`].
pub trait DiskFile: Send + Sync {
    /// Length of the file.
    fn size_bytes(&self) -> io::Result<u64>;
    /// Appends up to `bytes` bytes from `position` to `out`; fewer only at the end of the file. `bytes` is checked
    /// against the file's length before memory is taken.
    fn read(&self, position: u64, bytes: usize, out: &mut Vec<u8>) -> io::Result<()>;
    /// Writes the parts one after the other, and returns how many bytes were written, which may be fewer than given.
    /// With `durable` these bytes are on the disk on return.
    fn write(&self, position: u64, parts: &[&[u8]], durable: bool) -> io::Result<usize>;
    /// Writes all parts at several positions, in any order, not durably. After an error any of them may be written.
    fn write_many(&self, writes: &[(u64, Vec<&[u8]>)]) -> io::Result<()> {
        writes.iter().try_for_each(|(position, parts)| write_all(self, *position, parts, false))
    }
    /// Makes all bytes that were written or stored before durable.
    fn sync(&self) -> io::Result<()>;
    /// Gives space to a range of pages that was never used, or was discarded since; the range reads as zeros.
    fn prepare(&self, range: Range<u64>, how: Prepare) -> io::Result<()>;
    /// Has the kernel make the pages of a mapped range present and writable, so that stores there do not fault. Pages
    /// that the file does not have stay missing, and other files have nothing to make ready.
    fn make_ready(&self, _range: Range<u64>) {}
    /// Makes a range of pages read as zeros and gives its space back.
    fn discard(&self, range: Range<u64>) -> io::Result<()>;
    /// Lists the parts of a range that may hold something else than zeros, in order.
    fn data_ranges(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>>;
    /// Claims the exclusive right to store into a range, which must not overlap another claim. Only files of the kind
    /// `Mapped` have ranges to claim, on a disk that maps.
    fn claim(self: Arc<Self>, range: Range<u64>) -> Box<dyn MappedRange>;
}

/// Exclusive right to store into a range of a file.
pub trait MappedRange: Send + Sync {
    /// Stores bytes at a position in the range, which must have been prepared. An error means that the file has no page
    /// there, because somebody cut it or the disk is full; the bytes are nowhere, and bytes stored before may be lost
    /// too. Panics outside of the range.
    fn store(&mut self, position: u64, bytes: &[u8]) -> io::Result<()>;
}

/// Writes all parts, and goes on after short writes.
pub(crate) fn write_all(
    file: &(impl DiskFile + ?Sized),
    position: u64,
    parts: &[&[u8]],
    durable: bool,
) -> io::Result<()> {
    let total: usize = parts.iter().map(|part| part.len()).sum();
    let mut done = 0;
    while done < total {
        // A direct write must start at a page, so the written part of the last page is written a second time.
        let from = if done == 0 { 0 } else { done - done % crate::page::PAGE_BYTES as usize };
        let mut skip = from;
        let rest: SmallVec<[&[u8]; FEW_PARTS]> = parts
            .iter()
            .filter_map(|part| {
                let skipped = skip.min(part.len());
                skip -= skipped;
                (skipped < part.len()).then(|| &part[skipped..])
            })
            .collect();
        let written = file.write(position + from as u64, &rest, durable)?;
        if from + written <= done {
            return Err(io::ErrorKind::WriteZero.into());
        }
        done = if seeded!(ShortWriteBelieved) { total } else { from + written };
    }
    Ok(())
}
