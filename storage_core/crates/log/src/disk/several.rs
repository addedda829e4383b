//! Several direct writes at a time for the block files of a store, by the kernel's interface that is allowed: a call has
//! them under way together, and all of them are over when it returns. A single small write is quicker without, so it
//! never comes here.

use std::fs::File;
use std::io;

use super::aio::Aio;
use super::pieces::Piece;
use super::ring::Ring;

/// An interface of the kernel for several writes at a time.
pub(super) enum Several {
    Ring(Box<Ring>),
    Aio(Aio),
}

impl Several {
    /// Writes the pieces in any order, not durably; returns for each how many of its bytes were written. Blocks until all
    /// requests are over.
    pub(super) fn write(&self, file: &File, pieces: &[Piece<'_>]) -> Vec<io::Result<usize>> {
        match self {
            Self::Ring(ring) => ring.write(file, pieces),
            Self::Aio(aio) => aio.write(file, pieces),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    /// Where an interface is forbidden there is nothing to test.
    #[test]
    fn more_writes_than_may_be_under_way_all_arrive_and_errors_come_back() {
        let interfaces =
            [Ring::open().map(|ring| Several::Ring(Box::new(ring))), Aio::open().map(Several::Aio)];
        for several in interfaces.into_iter().flatten() {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("f");
            let file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).unwrap();
            let parts: Vec<Vec<u8>> = (0..100).map(|i| vec![i; 1000]).collect();
            let pieces: Vec<Piece<'_>> = (0..)
                .zip(&parts)
                .map(|(i, part)| Piece { position: i * 1000, parts: vec![&part[..300], &part[300..]] })
                .collect();
            let results = several.write(&file, &pieces);
            assert_eq!(results.len(), 100);
            assert!(results.into_iter().all(|result| result.unwrap() == 1000));
            assert_eq!(std::fs::read(&path).unwrap(), parts.concat());
            let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
            for result in several.write(&full, &pieces) {
                // The older interface does not take writes to devices, the ring does.
                let told = result.map_err(|error| error.raw_os_error());
                assert!(matches!(told, Ok(0) | Err(Some(libc::ENOSPC))), "{told:?}");
            }
            // The interface works after failed writes.
            assert!(several.write(&file, &pieces[..1])[0].is_ok());
        }
    }

    /// A piece that the kernel does not take at all is the caller's to write.
    #[test]
    fn a_write_that_is_not_taken_has_written_nothing() {
        let Ok(aio) = Aio::open() else { return };
        let readable = File::open("/dev/null").unwrap();
        let pieces = [Piece { position: 0, parts: vec![b"x"] }, Piece { position: 1, parts: vec![b"y"] }];
        let results: Vec<_> = aio.write(&readable, &pieces).into_iter().map(Result::unwrap).collect();
        assert_eq!(results, [0, 0]);
    }
}
