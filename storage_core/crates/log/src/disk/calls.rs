//! System calls that the standard library does not have, each with its error as `io::Error`.
#![allow(unsafe_code, reason = "the disk folder is where unsafe lives")]

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use libc::off_t;
use smallvec::SmallVec;

use super::FEW_PARTS;

/// Opens a file of a store, and refuses whatever is no regular file: a link may lead anywhere, and a pipe would hold
/// its opener up for ever.
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

/// Limit on the parts of one `pwritev2` (IOV_MAX of Linux).
const PARTS_MAX: usize = 1024;

/// Appends the result of one `pread` of `bytes` to `out`, and returns its length: 0 at the end of the file.
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

/// Writes the parts with one `pwritev2`, and returns how many bytes were written; `durable` sets RWF_DSYNC.
pub(super) fn write(file: &File, position: u64, parts: &[&[u8]], durable: bool) -> io::Result<usize> {
    let vectors: SmallVec<[libc::iovec; FEW_PARTS]> = parts
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

/// Calls `fallocate` with a mode.
pub(super) fn allocate(file: &File, mode: libc::c_int, range: &Range<u64>) -> io::Result<()> {
    let (start, length) = (range.start.cast_signed(), (range.end - range.start).cast_signed());
    retry(|| {
        // SAFETY: no memory is passed.
        unsafe { libc::fallocate(file.as_raw_fd(), mode, start as off_t, length as off_t) }
    })
}

/// Drops the clean pages of a range from the page cache.
pub(super) fn drop_cache(file: &File, range: &Range<u64>) -> io::Result<()> {
    let (start, length) = (range.start.cast_signed(), (range.end - range.start).cast_signed());
    // SAFETY: no memory is passed.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), start, length, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Lists the parts of a range that are no holes, in order.
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

/// Finds the first byte from a position on that is data (`SEEK_DATA`) or not (`SEEK_HOLE`); `None` if the file has none.
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

/// Takes an exclusive lock on the file of a descriptor, for that descriptor; `WouldBlock` if somebody else has it.
pub(super) fn lock(descriptor: RawFd) -> io::Result<()> {
    retry(|| {
        // SAFETY: no memory is passed.
        unsafe { libc::flock(descriptor, libc::LOCK_EX | libc::LOCK_NB) }
    })
}

/// Gives up the lock that [`lock`] took, for all copies of the descriptor at once.
pub(super) fn unlock(descriptor: RawFd) {
    // SAFETY: no memory is passed. The call fails only for a number that is no open descriptor, and that locks nothing.
    unsafe { libc::flock(descriptor, libc::LOCK_UN) };
}

/// Makes the pages of a mapped range present and writable now, so that the first stores do not fault. Kernels before
/// 5.14 do not know the call; then the stores fault one by one.
pub(super) fn populate(pointer: *mut u8, bytes: usize) {
    advise(pointer, bytes, libc::MADV_POPULATE_WRITE);
}

/// Asks the kernel to back memory with huge pages; without them the memory stays as it is.
pub(super) fn advise_huge(pointer: *mut u8, bytes: usize) {
    advise(pointer, bytes, libc::MADV_HUGEPAGE);
}

/// Gives the kernel advice. Its error is ignored: the memory works as well without, and a store meets a real problem.
/// An interpreter (Miri) has no such system call.
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
