//! What a disk was told, in order, and what may be left of it when the power fails: everything that was flushed, and of
//! the rest whatever the disk had got to.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::random::Random;

/// In place of a position: a flush.
const FLUSH: u64 = u64::MAX;
const HEADER_BYTES: usize = 16;
const PAGE_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;

/// Events one after the other: position or `FLUSH`, length, bytes. Its length is the clock of the disk.
pub struct LogWriter(File);

impl LogWriter {
    /// An empty log.
    pub fn create(path: &Path) -> io::Result<Self> {
        File::create(path).map(Self)
    }

    /// Bytes were written.
    pub fn write(&mut self, position: u64, bytes: &[u8]) -> io::Result<()> {
        let mut event = Vec::with_capacity(HEADER_BYTES + bytes.len());
        event.extend_from_slice(&position.to_le_bytes());
        event.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        event.extend_from_slice(bytes);
        self.0.write_all(&event)
    }

    /// What was written before is durable.
    pub fn flush(&mut self) -> io::Result<()> {
        self.write(FLUSH, &[])
    }
}

/// One thing that the disk was told.
enum Event {
    Write { position: u64, bytes: Range<usize> },
    Flush,
}

/// What a power failure leaves of what was not flushed.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// Nothing.
    All,
    /// Everything.
    None,
    /// What came first, up to somewhere.
    Last(u64),
    /// Any of the writes.
    Writes(u64),
    /// Any pages of 4 KiB.
    Pages(u64),
    /// Any sectors of 512 bytes.
    Sectors(u64),
}

impl Loss {
    /// Any kind.
    pub fn any(random: &mut Random) -> Self {
        let seed = random.number();
        match random.below(10) {
            0 => Self::All,
            1 => Self::None,
            2..=3 => Self::Last(seed),
            4..=5 => Self::Writes(seed),
            6..=7 => Self::Pages(seed),
            _ => Self::Sectors(seed),
        }
    }
}

/// A disk that goes through its log again.
pub struct DeviceReplay<'a> {
    log: &'a [u8],
    /// The place in the log behind what has happened.
    at: usize,
    /// What the disk keeps whatever happens.
    durable: Vec<u8>,
    /// Written and not flushed.
    pending: Vec<(u64, Range<usize>)>,
}

impl<'a> DeviceReplay<'a> {
    /// `image`: what lay there before.
    pub fn new(image: Vec<u8>, log: &'a [u8]) -> Self {
        Self { log, at: 0, durable: image, pending: Vec::new() }
    }

    /// Where the events of a log end.
    pub fn ends(log: &[u8]) -> Vec<usize> {
        let ends = std::iter::successors(Some(0), |at| decode(log, *at).map(|(_, end)| end));
        ends.skip(1).collect()
    }

    /// Goes on to where an event ends.
    pub fn advance(&mut self, to: usize) {
        while self.at < to {
            let Some((event, end)) = decode(self.log, self.at) else { return };
            match event {
                Event::Write { position, bytes } => self.pending.push((position, bytes)),
                Event::Flush => {
                    for (position, bytes) in self.pending.drain(..) {
                        write(&mut self.durable, position, &self.log[bytes]);
                    }
                }
            }
            self.at = end;
        }
    }

    /// What a power failure now may leave.
    pub fn image(&self, loss: Loss) -> Vec<u8> {
        let mut image = self.durable.clone();
        let writes = self.pending.iter().map(|(position, bytes)| (*position, &self.log[bytes.clone()]));
        match loss {
            Loss::All => {}
            Loss::None => writes.for_each(|(position, bytes)| write(&mut image, position, bytes)),
            Loss::Last(seed) => {
                let kept = Random(seed).below(self.pending.len() as u64 + 1) as usize;
                writes.take(kept).for_each(|(position, bytes)| write(&mut image, position, bytes));
            }
            Loss::Writes(seed) => {
                let mut random = Random(seed);
                let kept = writes.filter(|_| random.one_in(2));
                kept.for_each(|(position, bytes)| write(&mut image, position, bytes));
            }
            Loss::Pages(seed) => torn(&mut image, writes, PAGE_BYTES, seed),
            Loss::Sectors(seed) => torn(&mut image, writes, SECTOR_BYTES, seed),
        }
        image
    }
}

/// Keeps any pieces of the writes. The first page stays whole: it holds the superblock, of which a file system has to
/// believe something.
fn torn<'a>(image: &mut [u8], writes: impl Iterator<Item = (u64, &'a [u8])>, piece_bytes: usize, seed: u64) {
    let mut random = Random(seed);
    for (position, bytes) in writes {
        for (index, piece) in bytes.chunks(piece_bytes).enumerate() {
            let at = position + (index * piece_bytes) as u64;
            let in_first_page = at < PAGE_BYTES as u64;
            if in_first_page || random.one_in(2) {
                write(image, at, piece);
            }
        }
    }
}

fn write(image: &mut [u8], position: u64, bytes: &[u8]) {
    let position = position as usize;
    image[position..position + bytes.len()].copy_from_slice(bytes);
}

/// The event at a place and where it ends; `None` at the end, also where it is cut off.
fn decode(log: &[u8], at: usize) -> Option<(Event, usize)> {
    let field = |at: usize| Some(u64::from_le_bytes(*log.get(at..)?.first_chunk()?));
    let (position, bytes) = (field(at)?, field(at + 8)?);
    let start = at + HEADER_BYTES;
    let end = start + bytes as usize;
    let event = if position == FLUSH { Event::Flush } else { Event::Write { position, bytes: start..end } };
    (end <= log.len()).then_some((event, end))
}

/// Writes an image to a file that takes no space for zeros.
pub fn write_sparse(path: &Path, image: &[u8]) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(image.len() as u64)?;
    for (index, page) in image.chunks(PAGE_BYTES).enumerate() {
        if page.iter().any(|byte| *byte != 0) {
            file.write_all_at(page, (index * PAGE_BYTES) as u64)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(tell: impl FnOnce(&mut LogWriter)) -> Vec<u8> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        tell(&mut LogWriter::create(&path).expect("a log"));
        std::fs::read(path).expect("the log")
    }

    #[test]
    fn what_was_flushed_stays_and_of_the_rest_any_part() {
        let log = log(|log| {
            log.write(8192, &[1; 1024]).expect("written");
            log.flush().expect("flushed");
            log.write(8704, &[2; 1024]).expect("written");
            log.write(12288, &[3; 512]).expect("written");
        });
        let ends = DeviceReplay::ends(&log);
        assert_eq!(ends.len(), 4);
        let mut replay = DeviceReplay::new(vec![0; 16384], &log);
        replay.advance(ends[0]);
        assert_eq!((replay.image(Loss::All)[8192], replay.image(Loss::None)[8192]), (0, 1));
        replay.advance(ends[3]);
        let sectors = |loss| {
            let image = replay.image(loss);
            [8192, 8704, 9216, 12288].map(|at: usize| {
                assert!(image[at..at + 512].iter().all(|byte| *byte == image[at]), "sectors are whole");
                image[at]
            })
        };
        assert_eq!(sectors(Loss::All), [1, 1, 0, 0]);
        assert_eq!(sectors(Loss::None), [1, 2, 2, 3]);
        let seen: std::collections::BTreeSet<_> = (0..200).map(|seed| sectors(Loss::Sectors(seed))).collect();
        assert_eq!(seen.len(), 8, "each of three sectors is lost or kept");
        let seen: std::collections::BTreeSet<_> = (0..200).map(|seed| sectors(Loss::Last(seed))).collect();
        assert_eq!(seen.len(), 3, "none, the first, both");
    }
}
