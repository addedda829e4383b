//! Several writes at a time by one io_uring.
#![allow(unsafe_code, reason = "the disk folder is where unsafe lives")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::abort;

use io_uring::{IoUring, opcode, types};

use super::pieces::{DEPTH, Piece};
use crate::sync::plain::Mutex;

/// A long-lived ring.
pub(super) struct Ring {
    /// The kernel's ring; `None` after the kernel has refused requests, since it is not asked again then.
    ring: Mutex<Option<IoUring>>,
}

impl Ring {
    /// Fails where the kernel has no io_uring, or a seccomp filter forbids it.
    pub(super) fn open() -> io::Result<Self> {
        let ring = IoUring::new(DEPTH as u32)?;
        Ok(Self { ring: Mutex::new(Some(ring)) })
    }

    /// Writes the pieces in any order, several at a time, not durably; returns for each how many of its bytes were
    /// written. Blocks until all requests are over.
    pub(super) fn write(&self, file: &File, pieces: &[Piece<'_>]) -> Vec<io::Result<usize>> {
        let mut guard = self.ring.lock();
        let Some(ring) = &mut *guard else {
            return pieces.iter().map(|_| Err(io::ErrorKind::BrokenPipe.into())).collect();
        };
        let mut batch = Batch::new(file, pieces);
        let broken = batch.run(ring).err();
        if let Some(error) = &broken {
            batch.reap_all(ring);
            // The ring goes too: it still holds requests that the kernel has not taken, and would hand them over
            // with those of the next call, when their memory is used for something else.
            tracing::error!(%error, "io_uring takes no more writes");
            *guard = None;
        }
        let refused = |error: &Option<io::Error>| {
            io::Error::new(error.as_ref().map_or(io::ErrorKind::Other, io::Error::kind), "not submitted")
        };
        batch.results.into_iter().map(|result| result.unwrap_or_else(|| Err(refused(&broken)))).collect()
    }
}

/// The pieces of one call, some of them under way. The kernel reads `vectors`, and the memory that they point to, until
/// every request is over.
struct Batch<'a> {
    file: &'a File,
    pieces: &'a [Piece<'a>],
    vectors: Vec<Vec<libc::iovec>>,
    next: usize,
    on_the_way: usize,
    results: Vec<Option<io::Result<usize>>>,
}

impl<'a> Batch<'a> {
    fn new(file: &'a File, pieces: &'a [Piece<'a>]) -> Self {
        let vectors = pieces.iter().map(Piece::vectors).collect();
        let results = pieces.iter().map(|_| None).collect();
        Self { file, pieces, vectors, next: 0, on_the_way: 0, results }
    }

    /// Submits all pieces and waits until they are over. An error means that the kernel refused; requests may still be
    /// under way.
    fn run(&mut self, ring: &mut IoUring) -> io::Result<()> {
        while self.next < self.pieces.len() || self.on_the_way > 0 {
            self.fill(ring);
            let wanted = if self.next < self.pieces.len() { 1 } else { self.on_the_way };
            match ring.submit_and_wait(wanted) {
                Ok(_) => {}
                // The kernel may have taken some requests, or wants completions to be reaped first.
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(error) => return Err(error),
            }
            self.reap(ring);
        }
        Ok(())
    }

    fn fill(&mut self, ring: &mut IoUring) {
        while self.next < self.pieces.len() && self.on_the_way < DEPTH {
            let vectors = &self.vectors[self.next];
            let entry = opcode::Writev::new(
                types::Fd(self.file.as_raw_fd()),
                vectors.as_ptr().cast(),
                vectors.len() as u32,
            )
            .offset(self.pieces[self.next].position)
            .build()
            .user_data(self.next as u64);
            // SAFETY: the vectors, the slices that they point to and the file live until `write` returns, and it does
            // not return before every request that the kernel took is over.
            let pushed = unsafe { ring.submission().push(&entry) };
            if pushed.is_err() {
                return;
            }
            self.next += 1;
            self.on_the_way += 1;
        }
    }

    fn reap(&mut self, ring: &mut IoUring) {
        for done in ring.completion() {
            let result =
                usize::try_from(done.result()).map_err(|_| io::Error::from_raw_os_error(-done.result()));
            self.results[done.user_data() as usize] = Some(result);
            self.on_the_way -= 1;
        }
    }

    /// Waits for the requests that the kernel has taken, submitting none.
    fn reap_all(&mut self, ring: &mut IoUring) {
        loop {
            self.reap(ring);
            if self.on_the_way <= ring.submission().len() {
                return;
            }
            // SAFETY: no argument is passed.
            let waited = unsafe { ring.submitter().enter::<libc::sigset_t>(0, 1, ENTER_GETEVENTS, None) };
            match waited {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // The kernel reads memory that would be used for something else on return.
                    tracing::error!(%error, "cannot wait for writes that are on the way");
                    abort();
                }
            }
        }
    }
}

/// Flag of `io_uring_enter` by which the call waits for completions.
const ENTER_GETEVENTS: u32 = 1;
