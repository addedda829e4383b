//! Pieces: what is written at several places of a file at the same time, and a large write cut into such.

use std::io;

/// Limit on the writes that are under way at the same time.
pub(super) const DEPTH: usize = 16;
/// Size of the pieces into which a large write is cut, about.
const PIECE_BYTES: usize = 1 << 20;
/// Size from which on a write is cut into at least two pieces.
pub(super) const SPLIT_BYTES: usize = 256 << 10;

/// One write of parts, each of whole pages, back to back from a position.
pub(super) struct Piece<'a> {
    pub(super) position: u64,
    pub(super) parts: Vec<&'a [u8]>,
}

impl Piece<'_> {
    /// The parts as the kernel takes them; it reads them, and what they point to, until the write is over.
    pub(super) fn vectors(&self) -> Vec<libc::iovec> {
        let vector =
            |part: &&[u8]| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
        self.parts.iter().map(vector).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }
}

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
}
