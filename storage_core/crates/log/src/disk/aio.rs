//! Several writes at a time by the kernel's older interface (`io_submit(2)`): container runtimes forbid io_uring and allow
//! this one. Only direct writes are really under way together.
#![allow(unsafe_code, reason = "the disk folder is where unsafe lives")]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::process::abort;
use std::ptr;

use super::pieces::{DEPTH, Piece};
use crate::sync::plain::Mutex;

/// Code of a request that writes from several buffers (`IOCB_CMD_PWRITEV`).
const WRITE_VECTORS: u16 = 8;

/// A long-lived context of the kernel. It belongs to this process: a forked child has none of it.
pub(super) struct Aio {
    context: Mutex<libc::c_ulong>,
}

/// The end of a request, as the kernel tells it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    second_result: i64,
}

impl Aio {
    /// Fails where the kernel has no such interface, a seccomp filter forbids it, or too many contexts are open.
    pub(super) fn open() -> io::Result<Self> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the pointer is to a number that is zero, which the kernel fills.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, DEPTH, &raw mut context) };
        if made == 0 { Ok(Self { context: Mutex::new(context) }) } else { Err(io::Error::last_os_error()) }
    }

    /// Writes the pieces in any order, several at a time, not durably; returns for each how many of its bytes were
    /// written. Blocks until all requests are over.
    pub(super) fn write(&self, file: &File, pieces: &[Piece<'_>]) -> Vec<io::Result<usize>> {
        let context = self.context.lock();
        let vectors: Vec<Vec<libc::iovec>> = pieces.iter().map(Piece::vectors).collect();
        let mut requests: Vec<libc::iocb> = (0..)
            .zip(pieces.iter().zip(&vectors))
            .map(|(number, (piece, vectors))| request(file, number, piece.position, vectors))
            .collect();
        let mut results = Vec::with_capacity(pieces.len());
        while results.len() < pieces.len() {
            let first = results.len();
            let mut waiting: Vec<*mut libc::iocb> =
                requests[first..].iter_mut().take(DEPTH).map(ptr::from_mut).collect();
            // SAFETY: the requests, the vectors and the slices that they point to, and the file, live until `write`
            // returns, and it does not return before every request that the kernel took is over.
            let taken =
                unsafe { libc::syscall(libc::SYS_io_submit, *context, waiting.len(), waiting.as_mut_ptr()) };
            match usize::try_from(taken) {
                Ok(taken) => results.extend(wait_for(*context, first, taken)),
                // A request that the kernel does not take has written nothing. The caller writes its piece in another
                // way, and meets the error there if it lasts.
                Err(_) => results.push(Ok(0)),
            }
        }
        results
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: no memory is passed. In a forked child the number names no context, and the call fails.
        unsafe { libc::syscall(libc::SYS_io_destroy, *self.context.lock()) };
    }
}

fn request(file: &File, number: u64, position: u64, vectors: &[libc::iovec]) -> libc::iocb {
    // SAFETY: a request is made of numbers, for which zeros are a valid value.
    let mut request: libc::iocb = unsafe { MaybeUninit::zeroed().assume_init() };
    request.aio_data = number;
    request.aio_lio_opcode = WRITE_VECTORS;
    request.aio_fildes = file.as_raw_fd().cast_unsigned();
    request.aio_buf = vectors.as_ptr() as u64;
    request.aio_nbytes = vectors.len() as u64;
    request.aio_offset = position.cast_signed();
    request
}

/// Waits until the `count` requests from the number `first` on are over, and gives their results in order.
fn wait_for(context: libc::c_ulong, first: usize, count: usize) -> Vec<io::Result<usize>> {
    let mut events = [Event::default(); DEPTH];
    let mut done = 0;
    while done < count {
        let (wanted, free) = (count - done, &mut events[done..]);
        // SAFETY: the pointer is to room for at least `wanted` events, which the kernel fills; without a time limit the
        // call waits for all of them.
        let told = unsafe {
            let no_limit: *mut libc::timespec = ptr::null_mut();
            libc::syscall(libc::SYS_io_getevents, context, wanted, wanted, free.as_mut_ptr(), no_limit)
        };
        match usize::try_from(told) {
            Ok(told) => done += told,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    // The kernel reads memory that would be used for something else on return.
                    tracing::error!(%error, "cannot wait for writes that are on the way");
                    abort();
                }
            }
        }
    }
    let events = &mut events[..count];
    events.sort_unstable_by_key(|event| event.data);
    debug_assert!(events.first().is_none_or(|event| event.data == first as u64));
    let result = |event: &Event| {
        usize::try_from(event.result).map_err(|_| io::Error::from_raw_os_error(-(event.result as i32)))
    };
    events.iter().map(result).collect()
}
