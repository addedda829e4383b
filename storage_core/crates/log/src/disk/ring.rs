//! One io_uring for the block files of a store: a call has several writes under way at the same time, and all of them
//! are over when it returns. A single small write is quicker without a ring, so it never comes here.
#![allow(unsafe_code, reason = "the disk folder is where unsafe lives")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::abort;

use io_uring::{IoUring, opcode, types};

use crate::sync::plain::Mutex;

/// Limit on the writes that are under way at the same time.
const DEPTH: usize = 16;
/// Size of the pieces into which a large write is cut, about.
const PIECE_BYTES: usize = 1 << 20;
/// Size from which on a write is cut into at least two pieces.
pub(super) const SPLIT_BYTES: usize = 256 << 10;

/// A long-lived ring.
pub(super) struct Ring {
    /// The kernel's ring; `None` after the kernel has refused requests, since it is not asked again then.
    ring: Mutex<Option<IoUring>>,
}

/// One write of parts, each of whole pages, back to back from a position.
pub(super) struct Piece<'a> {
    pub(super) position: u64,
    pub(super) parts: Vec<&'a [u8]>,
}

impl Piece<'_> {
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }
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
        let vector =
            |part: &&[u8]| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
        let vectors = pieces.iter().map(|piece| piece.parts.iter().map(vector).collect()).collect();
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

/// Cuts a large write into pieces of at least one part; a small write stays whole.
pub(super) fn split<'a>(position: u64, parts: &[&'a [u8]]) -> Vec<Piece<'a>> {
    let total: usize = parts.iter().map(|part| part.len()).sum();
    let piece_bytes = if total < SPLIT_BYTES { total } else { PIECE_BYTES.min(total.div_ceil(2)) };
    let mut pieces: Vec<Piece<'a>> = Vec::new();
    let (mut at, mut bytes) = (position, piece_bytes);
    for part in parts {
        if bytes >= piece_bytes {
            pieces.push(Piece { position: at, parts: Vec::new() });
            bytes = 0;
        }
        if let Some(piece) = pieces.last_mut() {
            piece.parts.push(part);
        }
        bytes += part.len();
        at += part.len() as u64;
    }
    pieces
}

/// Number of bytes that the pieces of a split write have written from the first byte on, without a gap; the error of
/// the first piece if it wrote nothing.
pub(super) fn written_bytes(pieces: &[Piece<'_>], results: Vec<io::Result<usize>>) -> io::Result<usize> {
    let mut total = 0;
    for (piece, result) in pieces.iter().zip(results) {
        match result {
            Ok(count) => {
                total += count;
                if count < piece.bytes() {
                    break;
                }
            }
            Err(error) if total == 0 => return Err(error),
            // The caller writes the rest, and meets the error then if it lasts.
            Err(_) => break,
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    fn pieces(parts: &[Vec<u8>]) -> Vec<&[u8]> {
        parts.iter().map(Vec::as_slice).collect()
    }

    #[test]
    fn large_writes_are_cut_at_parts_and_nothing_is_left_out() {
        for (count, size, cut) in [(2, 128 << 10, 2), (17, 128 << 10, 3), (40, 128 << 10, 5), (3, 4096, 1)] {
            let parts = vec![vec![1; size]; count];
            let pieces = split(4096, &pieces(&parts));
            assert_eq!(pieces.len(), cut);
            let mut at = 4096;
            for piece in &pieces {
                assert_eq!(piece.position, at);
                at += piece.bytes() as u64;
            }
            assert_eq!(at, 4096 + (count * size) as u64);
        }
    }

    #[test]
    fn only_what_was_written_without_a_gap_counts() {
        let parts = vec![vec![1; 100]; 3];
        let pieces: Vec<Piece<'_>> =
            parts.iter().map(|part| Piece { position: 0, parts: vec![part] }).collect();
        let eio = || io::Error::from_raw_os_error(libc::EIO);
        let count = |results: [io::Result<usize>; 3]| {
            written_bytes(&pieces, results.into()).map_err(|e| e.raw_os_error())
        };
        assert_eq!(count([Ok(100), Ok(100), Ok(100)]), Ok(300));
        assert_eq!(count([Ok(100), Ok(40), Ok(100)]), Ok(140));
        assert_eq!(count([Ok(100), Err(eio()), Ok(100)]), Ok(100));
        assert_eq!(count([Err(eio()), Ok(100), Ok(100)]), Err(Some(libc::EIO)));
    }

    /// Where io_uring is forbidden there is nothing to test.
    #[test]
    fn more_writes_than_the_ring_holds_all_arrive_and_errors_come_back() {
        let Ok(ring) = Ring::open() else { return };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).unwrap();
        let parts: Vec<Vec<u8>> = (0..100).map(|i| vec![i; 1000]).collect();
        let pieces: Vec<Piece<'_>> = (0..)
            .zip(&parts)
            .map(|(i, part)| Piece { position: i * 1000, parts: vec![&part[..300], &part[300..]] })
            .collect();
        let results = ring.write(&file, &pieces);
        assert!(results.into_iter().all(|result| result.unwrap() == 1000));
        assert_eq!(std::fs::read(&path).unwrap(), parts.concat());
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        for result in ring.write(&full, &pieces) {
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        }
        // The ring works after failed writes.
        assert!(ring.write(&file, &pieces[..1])[0].is_ok());
    }
}
