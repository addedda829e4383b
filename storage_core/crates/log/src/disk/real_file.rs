//! A file of a real directory. It is read through the page cache, and written through a mapping, the page cache or
//! O_DIRECT: always in the same way, since a write of one way may undo what another has just written.
#![allow(unsafe_code, reason = "the disk folder is where unsafe lives")]

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

use super::bus::{self, Guard};
use super::memory::AlignedPage;
use super::pieces::{self, Piece};
use super::process::Origin;
use super::several::Several;
use super::{DiskFile, MappedRange, Prepare, calls, write_all};
use crate::page::PAGE_BYTES;
use crate::sync::plain::Mutex;

/// Limit on the zeros of one write that prepares space.
const ZEROS_BYTES: u64 = 512 << 10;

/// The way in which a file is written.
pub(super) enum Writer {
    /// Writer through the page cache. What must be durable is written, and then the file is synced.
    Buffered,
    /// Writer with a second descriptor, opened with O_DIRECT. The kernel drops cached pages that the first descriptor
    /// has read when the second one writes them.
    Direct(File),
    /// Writer like `Direct` that has several writes under way at a time, and cuts large ones that are not durable.
    Several(File, Arc<Several>),
    Mapped(Mapping),
}

/// A mapping of the whole file. It is only stored into, never read: reads go through `pread`, which reports a bad disk
/// as an error where a mapping would kill the process.
pub(super) struct Mapping {
    /// The guard of the mapping; it stands first because it must be dropped before the mapping.
    guard: Guard,
    map: MmapRaw,
    claims: Mutex<Vec<Range<u64>>>,
    origin: Origin,
}

impl Writer {
    pub(super) fn mapped(file: &File) -> io::Result<Self> {
        let map = MmapOptions::new().map_raw(file)?;
        let start = map.as_ptr() as usize;
        let guard = Guard::new(start..start + map.len())?;
        Ok(Self::Mapped(Mapping { guard, map, claims: Mutex::new(Vec::new()), origin: Origin::here() }))
    }
}

pub(super) struct RealFile {
    file: File,
    writer: Writer,
    /// Length below which the file never is, unless somebody cuts it.
    bytes_min: u64,
}

impl RealFile {
    pub(super) fn new(file: File, writer: Writer, bytes_min: u64) -> Self {
        Self { file, writer, bytes_min }
    }

    fn mapping(&self) -> &Mapping {
        match &self.writer {
            Writer::Mapped(mapping) => mapping,
            Writer::Buffered | Writer::Direct(_) | Writer::Several(..) => {
                panic!("only mapped files have ranges to claim")
            }
        }
    }

    /// The descriptor to write through.
    fn writer(&self) -> &File {
        match &self.writer {
            Writer::Direct(direct) | Writer::Several(direct, _) => direct,
            Writer::Buffered | Writer::Mapped(_) => &self.file,
        }
    }

    /// Returns an error if the file is shorter than it was made, because somebody cut it. Called before every call that
    /// would make the file longer again, which would hide that, and after a sync.
    fn check_length(&self) -> io::Result<()> {
        if self.bytes_min > 0 && self.size_bytes()? < self.bytes_min {
            return Err(bus::missing_page());
        }
        Ok(())
    }

    fn write_zeros(&self, range: &Range<u64>) -> io::Result<()> {
        let zeros = AlignedPage::padded(&[]);
        let mut position = range.start;
        while position < range.end {
            let pages = (range.end - position).min(ZEROS_BYTES) / PAGE_BYTES;
            let parts: Vec<&[u8]> = (0..pages).map(|_| &*zeros).collect();
            let written = calls::write(self.writer(), position, &parts, false)? as u64;
            // A direct write must start at a page.
            position += written - written % PAGE_BYTES;
            if written < PAGE_BYTES {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}

impl DiskFile for RealFile {
    fn size_bytes(&self) -> io::Result<u64> {
        // `stat` would be dearer: since it asks for the file's times, Linux 6.13 and later give the next write a time of
        // its own, which is one more change of metadata for each commit. The descriptor's position, which `seek` moves,
        // is used by nobody: all reads and writes name theirs.
        (&self.file).seek(SeekFrom::End(0))
    }

    fn read(&self, position: u64, bytes: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let end = out.len() + bytes;
        let mut position = position;
        while out.len() < end {
            let count = calls::read(&self.file, position, end - out.len(), out)?;
            if count == 0 {
                break;
            }
            position += count as u64;
        }
        Ok(())
    }

    fn write(&self, position: u64, parts: &[&[u8]], durable: bool) -> io::Result<usize> {
        self.check_length()?;
        // A durable write stays one request that includes its sync; pieces with a sync behind them take longer.
        if let Writer::Several(direct, several) = &self.writer
            && !durable
            && parts.len() > 1
            && parts.iter().map(|part| part.len()).sum::<usize>() >= pieces::SPLIT_BYTES
        {
            let cut = pieces::split(position, parts);
            return pieces::written_bytes(&cut, several.write(direct, &cut));
        }
        match self.writer {
            Writer::Direct(_) | Writer::Several(..) => calls::write(self.writer(), position, parts, durable),
            // Some file systems take RWF_DSYNC through the page cache and sync nothing; `fdatasync` they all know.
            Writer::Buffered | Writer::Mapped(_) => {
                let written = calls::write(&self.file, position, parts, false)?;
                if durable {
                    self.sync()?;
                }
                Ok(written)
            }
        }
    }

    fn write_many(&self, writes: &[(u64, Vec<&[u8]>)]) -> io::Result<()> {
        let (direct, several) = match &self.writer {
            Writer::Several(direct, several) if writes.len() > 1 => (direct, several),
            _ => {
                return writes
                    .iter()
                    .try_for_each(|(position, parts)| write_all(self, *position, parts, false));
            }
        };
        self.check_length()?;
        let pieces: Vec<Piece<'_>> =
            writes.iter().flat_map(|(position, parts)| pieces::split(*position, parts)).collect();
        for (piece, result) in pieces.iter().zip(several.write(direct, &pieces)) {
            if result? < piece.bytes() {
                // A short write may end anywhere, and a direct one must start at a page: the whole piece is written
                // again.
                write_all(self, piece.position, &piece.parts, false)?;
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()?;
        // Bytes that were stored behind the end of a cut file are not part of it, and stores into its last page do not
        // fault: only its length tells.
        self.check_length()
    }

    fn prepare(&self, range: Range<u64>, how: Prepare) -> io::Result<()> {
        self.check_length()?;
        if how == Prepare::Reserved {
            match calls::allocate(&self.file, 0, &range) {
                Ok(()) => return Ok(()),
                // A file system without fallocate gets zeros written.
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
                Err(error) => return Err(error),
            }
        }
        self.write_zeros(&range)?;
        if how == Prepare::Written {
            self.file.sync_data()?;
            if matches!(self.writer, Writer::Buffered) {
                // Zeros stay in the page cache in large folios, and each later fdatasync of a page would write all of
                // its folio.
                calls::drop_cache(&self.file, &range)?;
            }
        }
        Ok(())
    }

    fn make_ready(&self, range: Range<u64>) {
        let Writer::Mapped(mapping) = &self.writer else { return };
        assert!(
            range.start <= range.end && range.end <= mapping.map.len() as u64,
            "made ready outside of the mapping"
        );
        // SAFETY: the range lies in the mapping (asserted), so the pointer is in bounds.
        let start = unsafe { mapping.map.as_mut_ptr().add(range.start as usize) };
        // Behind the end of a file that somebody cut, the kernel answers with an error and makes nothing.
        calls::populate(start, (range.end - range.start) as usize);
    }

    fn discard(&self, range: Range<u64>) -> io::Result<()> {
        self.check_length()?;
        match calls::allocate(&self.file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, &range) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => self.write_zeros(&range),
            result => result,
        }
    }

    fn data_ranges(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        calls::data_ranges(&self.file, &range)
    }

    fn claim(self: Arc<Self>, range: Range<u64>) -> Box<dyn MappedRange> {
        let mapping = self.mapping();
        assert!(
            range.start <= range.end && range.end <= mapping.map.len() as u64,
            "claim outside of the file"
        );
        let mut claims = mapping.claims.lock();
        let overlaps = |other: &Range<u64>| range.start < other.end && other.start < range.end;
        assert!(!claims.iter().any(overlaps), "claimed twice: {range:?}");
        claims.push(range.clone());
        drop(claims);
        Box::new(Claim { file: self, range })
    }
}

struct Claim {
    file: Arc<RealFile>,
    range: Range<u64>,
}

impl MappedRange for Claim {
    fn store(&mut self, position: u64, bytes: &[u8]) -> io::Result<()> {
        let length = self.range.end - self.range.start;
        assert!(position <= length && bytes.len() as u64 <= length - position, "store outside of the claim");
        let Mapping { map, guard, .. } = self.file.mapping();
        // SAFETY: the claim lies in the mapping (asserted when it was made), which lives as long as the file. Claims do
        // not overlap, `&mut self` is the only user of this one, and nobody makes references into the mapping.
        unsafe {
            let target = map.as_mut_ptr().add((self.range.start + position) as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
        guard.check()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mapping = self.file.mapping();
        // In a forked child the mutex may be locked for ever: a thread of the parent may have held it at the fork.
        if mapping.origin.is_here() {
            mapping.claims.lock().retain(|claim| *claim != self.range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::directory::Directory;
    use crate::disk::{Disk, FileKind};
    use crate::options::Backend;

    /// Pages that were made ready by making the file longer would hide that somebody has cut it.
    #[test]
    fn no_page_behind_the_end_of_a_cut_file_is_made_ready() {
        const FILE_BYTES: u64 = 1 << 20;
        const LEFT_BYTES: u64 = 64 << 10;
        let directory = tempfile::tempdir().unwrap();
        let disk = Directory::open(directory.path(), Backend::Mmap).unwrap();
        let file = disk.create("a", FILE_BYTES, FileKind::Mapped).unwrap();
        file.prepare(0..FILE_BYTES, Prepare::Reserved).unwrap();
        file.make_ready(0..FILE_BYTES);
        file.sync().unwrap();
        File::options().write(true).open(directory.path().join("a")).unwrap().set_len(LEFT_BYTES).unwrap();
        file.make_ready(0..FILE_BYTES);
        assert_eq!(file.size_bytes().unwrap(), LEFT_BYTES);
        assert!(file.sync().unwrap_err().to_string().contains("somebody cut the file"));
    }
}
