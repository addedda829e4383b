//! System calls that the standard library does not have, each with its error as `io::Error`.
#![allow(unsafe_code, reason = "the disk folder is where unsafe lives")]

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use libc::off_t;

/// Opens a file of a store. A link may lead anywhere, and a pipe would hold its opener up for ever: neither is followed.
pub(super) fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let refused = || {
        io::Error::other(
            "it is a link, or no regular file, and no store makes such: move it out of the directory",
        )
    };
    let opened = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP | libc::ENXIO | libc::EISDIR) => refused(),
        _ => error,
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(refused()) }
}

/// Most parts that one call takes.
const PARTS_MAX: usize = 1024;

/// Appends what one `pread` gives, at most `bytes`, to `out`; 0 at the end of the file.
pub(super) fn read(file: &File, position: u64, bytes: usize, out: &mut Vec<u8>) -> io::Result<usize> {
    out.reserve(bytes);
    loop {
        // SAFETY: the pointer is to `bytes` reserved bytes behind the vector's length.
        let count = unsafe {
            let spare = out.as_mut_ptr().add(out.len());
            libc::pread(file.as_raw_fd(), spare.cast(), bytes, position.cast_signed())
        };
        match usize::try_from(count) {
            Ok(count) => {
                // SAFETY: the kernel wrote `count <= bytes` bytes there.
                unsafe { out.set_len(out.len() + count) };
                return Ok(count);
            }
            Err(_) => interrupted_or_err()?,
        }
    }
}

/// One `pwritev2`; `durable` is RWF_DSYNC.
pub(super) fn write(file: &File, position: u64, parts: &[&[u8]], durable: bool) -> io::Result<usize> {
    let vectors: Vec<libc::iovec> = parts
        .iter()
        .take(PARTS_MAX)
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() })
        .collect();
    let flags = if durable { libc::RWF_DSYNC } else { 0 };
    loop {
        // SAFETY: the vectors point to live slices; the kernel only reads them.
        let count = unsafe {
            let count = vectors.len() as libc::c_int;
            libc::pwritev2(file.as_raw_fd(), vectors.as_ptr(), count, position.cast_signed(), flags)
        };
        match usize::try_from(count) {
            Ok(count) => return Ok(count),
            Err(_) => interrupted_or_err()?,
        }
    }
}

/// Bytes that this process could still take on the file's file system.
pub(super) fn free_bytes(file: &File) -> io::Result<u64> {
    let mut facts = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the pointer is to memory for one such struct, which the kernel fills.
    retry(|| unsafe { libc::fstatvfs(file.as_raw_fd(), facts.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so it is filled.
    let facts = unsafe { facts.assume_init() };
    Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
}

/// `fallocate` with a mode.
pub(super) fn allocate(file: &File, mode: libc::c_int, range: &Range<u64>) -> io::Result<()> {
    let (start, length) = (range.start.cast_signed(), (range.end - range.start).cast_signed());
    retry(|| {
        // SAFETY: no memory is passed.
        unsafe { libc::fallocate(file.as_raw_fd(), mode, start as off_t, length as off_t) }
    })
}

/// Drops clean cached pages of a range.
pub(super) fn drop_cache(file: &File, range: &Range<u64>) -> io::Result<()> {
    let (start, length) = (range.start.cast_signed(), (range.end - range.start).cast_signed());
    // SAFETY: no memory is passed.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), start, length, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The parts of a range that are no holes.
pub(super) fn data_ranges(file: &File, range: &Range<u64>) -> io::Result<Vec<Range<u64>>> {
    let mut ranges = Vec::new();
    let mut position = range.start;
    while position < range.end {
        let Some(start) = seek(file, position, libc::SEEK_DATA)?.filter(|at| *at < range.end) else {
            break;
        };
        let end = seek(file, start, libc::SEEK_HOLE)?.map_or(range.end, |end| end.min(range.end));
        ranges.push(start..end);
        position = end.max(start + 1);
    }
    Ok(ranges)
}

/// The next byte at or behind a position that is data (`SEEK_DATA`) or not (`SEEK_HOLE`); `None` behind the last.
fn seek(file: &File, position: u64, whence: libc::c_int) -> io::Result<Option<u64>> {
    // SAFETY: no memory is passed. The descriptor's own position is used by nobody: reads and writes name theirs.
    let found = unsafe { libc::lseek(file.as_raw_fd(), position.cast_signed(), whence) };
    match u64::try_from(found) {
        Ok(found) => Ok(Some(found)),
        Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            error => Err(error),
        },
    }
}

/// Takes an exclusive lock on the file of a descriptor, for that descriptor, or answers `WouldBlock`.
pub(super) fn lock(descriptor: RawFd) -> io::Result<()> {
    retry(|| {
        // SAFETY: no memory is passed.
        unsafe { libc::flock(descriptor, libc::LOCK_EX | libc::LOCK_NB) }
    })
}

/// Gives up the lock that [`lock`] took, for all copies of the descriptor at once.
pub(super) fn unlock(descriptor: RawFd) {
    // SAFETY: no memory is passed. It fails only for what is no open descriptor, and such a one locks nothing.
    unsafe { libc::flock(descriptor, libc::LOCK_UN) };
}

/// Makes the pages of a mapped range present and writable, now rather than at the first store. Kernels before 5.14 do
/// not know it; then the stores fault one by one.
pub(super) fn populate(pointer: *mut u8, bytes: usize) {
    advise(pointer, bytes, libc::MADV_POPULATE_WRITE);
}

/// Asks for huge pages; where there are none, small ones do.
pub(super) fn advise_huge(pointer: *mut u8, bytes: usize) {
    advise(pointer, bytes, libc::MADV_HUGEPAGE);
}

/// Errors are for the stores to meet. An interpreter (Miri) has no such system call.
fn advise(pointer: *mut u8, bytes: usize, advice: libc::c_int) {
    if !cfg!(miri) {
        // SAFETY: the memory is the caller's and alive, and the advice changes no contents.
        unsafe { libc::madvise(pointer.cast(), bytes, advice) };
    }
}

fn retry(mut call: impl FnMut() -> libc::c_int) -> io::Result<()> {
    while call() != 0 {
        interrupted_or_err()?;
    }
    Ok(())
}

fn interrupted_or_err() -> io::Result<()> {
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}
