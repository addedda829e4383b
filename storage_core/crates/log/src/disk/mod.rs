//! The one door to files: a directory ([`Disk`]) and its files ([`DiskFile`]). Real ones are mapped or O_DIRECT, with
//! or without io_uring; the
//! simulated one keeps live and durable bytes and makes crash images. All `unsafe` of the crate is in this folder.

mod bus;
mod calls;
mod closed;
mod crash;
mod directory;
mod memory;
mod overlay;
mod process;
mod real_file;
mod replay;
mod ring;
mod simulated;

use std::io;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use closed::ClosedFile;
pub use crash::CrashChoice;
pub(crate) use directory::Directory;
pub(crate) use memory::{AlignedPage, CHUNK_BYTES, ChunkPool, ChunkReader, ChunkWriter, SMALL_CHUNK_BYTES};
pub(crate) use overlay::Overlay;
pub use process::Origin;
pub use replay::Replay;
pub use simulated::{Fault, SimulatedDisk};
use uuid::Uuid;

use crate::options::FsyncSchedule;
use crate::seeded;

/// How appended bytes reach a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailKind {
    /// Stored into a claimed range at once; a sync makes them durable.
    Mapped,
    /// Kept in memory and written in whole pages by the commit.
    Buffered,
}

/// The backend that a store really uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendInUse {
    /// `mmap`, `direct`, `io_uring`, `simulated`, or `memory` where the disk is only read.
    pub name: &'static str,
    /// Why another one that was asked for, or would have been better, is not used.
    pub refused: Option<String>,
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Small, written once.
    Plain,
    /// Written in whole aligned pages, from aligned memory.
    Pages,
    /// As `Pages`, and its ranges may be claimed where tails are mapped.
    Blocks,
}

/// How a range gets its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepare {
    /// Zeros are written and synced: later small durable writes need no change of the file's metadata.
    Written,
    /// Space is set aside, the range reads as zeros: cheap, for large or unsynced writes.
    Reserved,
}

impl Prepare {
    /// What suits data that is synced like this.
    pub(crate) fn fitting(fsync: FsyncSchedule) -> Self {
        if fsync.syncs() { Self::Written } else { Self::Reserved }
    }
}

/// One directory of files.
pub trait Disk: Send + Sync + 'static {
    /// How appended bytes reach block files.
    fn tail_kind(&self) -> TailKind;
    /// For reports.
    fn backend(&self) -> BackendInUse;
    /// How many reads at a time it answers faster than one by one.
    fn reads_at_once(&self) -> usize {
        1
    }
    /// Which run of the machine this is: as long as it is the same, what was written is there, synced or not. `None`:
    /// unknown.
    fn boot(&self) -> Option<Uuid>;
    /// Path of a file, or of the directory for an empty name, for messages.
    fn path(&self, name: &str) -> String;
    /// Holds the directory against other openers until the guard is dropped; `WouldBlock` if one has it.
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>>;
    /// Names of the files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Length of a file, as it lies there.
    fn size_bytes(&self, name: &str) -> io::Result<u64>;
    /// Makes a file that reads as `bytes` zeros and takes no space. `AlreadyExists` if there is one.
    fn create(&self, name: &str, bytes: u64, kind: FileKind) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file; one that is shorter than `bytes` reads as zeros up to there.
    fn open(&self, name: &str, bytes: u64, kind: FileKind) -> io::Result<Arc<dyn DiskFile>>;
    /// Replaces `to`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file; its descriptor is closed when the last handle is dropped.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_directory(&self) -> io::Result<()>;
    /// Bytes that this process could still take.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// One file.
pub trait DiskFile: Send + Sync {
    /// Length.
    fn size_bytes(&self) -> io::Result<u64>;
    /// Appends up to `bytes` bytes from `position` to `out`; fewer only at the end of the file. `bytes` is checked
    /// against the file's length before memory is taken.
    fn read(&self, position: u64, bytes: usize, out: &mut Vec<u8>) -> io::Result<()>;
    /// Writes the parts one after the other; may write less than given. `durable`: what was written is on the disk.
    fn write(&self, position: u64, parts: &[&[u8]], durable: bool) -> io::Result<usize>;
    /// Writes all parts of several places, in any order, not durably. After an error any of them may be written.
    fn write_many(&self, writes: &[(u64, Vec<&[u8]>)]) -> io::Result<()> {
        writes.iter().try_for_each(|(position, parts)| write_all(self, *position, parts, false))
    }
    /// Makes what was written or stored durable.
    fn sync(&self) -> io::Result<()>;
    /// Makes sure that a range of pages that was never used reads as zeros and has space.
    fn prepare(&self, range: Range<u64>, how: Prepare) -> io::Result<()>;
    /// Makes a range of pages read as zeros and gives its space back.
    fn discard(&self, range: Range<u64>) -> io::Result<()>;
    /// The parts of a range that may hold something else than zeros, in order.
    fn data_ranges(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>>;
    /// The right to store into a range, for one owner at a time. Only on `Blocks` files where tails are mapped.
    fn claim(self: Arc<Self>, range: Range<u64>) -> Box<dyn MappedRange>;
}

/// Exclusive right to store into a range of a file.
pub trait MappedRange: Send + Sync {
    /// Stores bytes at a position in the range. The place must have been prepared. An error: the file has no page there,
    /// because somebody cut it; what was stored is nowhere, and what was stored before may be lost too. Panics outside of
    /// the range.
    fn store(&mut self, position: u64, bytes: &[u8]) -> io::Result<()>;
}

/// Writes all of the parts, going on after short writes.
pub(crate) fn write_all(
    file: &(impl DiskFile + ?Sized),
    position: u64,
    parts: &[&[u8]],
    durable: bool,
) -> io::Result<()> {
    let total: usize = parts.iter().map(|part| part.len()).sum();
    let mut done = 0;
    while done < total {
        // A direct write must start on a page again: what was written of the last page is written twice.
        let from = if done == 0 { 0 } else { done - done % crate::page::PAGE_BYTES as usize };
        let mut skip = from;
        let rest: Vec<&[u8]> = parts
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
