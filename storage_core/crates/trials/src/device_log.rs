//! The log of what a disk was told, in order, and the images that may be left of it when the power fails: everything that was
//! flushed is there, and of the rest whatever the disk had got to.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::random::Random;

/// The position that stands for a flush.
const FLUSH: u64 = u64::MAX;
const HEADER_BYTES: usize = 16;
const PAGE_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;

/// A log of events one after the other: position or `FLUSH`, length, bytes. Its length is the clock of the disk.
pub struct LogWriter(File);

impl LogWriter {
    /// An empty log.
    pub fn create(path: &Path) -> io::Result<Self> {
        File::create(path).map(Self)
    }

    /// Logs that bytes were written.
    pub fn write(&mut self, position: u64, bytes: &[u8]) -> io::Result<()> {
        let mut event = Vec::with_capacity(HEADER_BYTES + bytes.len());
        event.extend_from_slice(&position.to_le_bytes());
        event.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        event.extend_from_slice(bytes);
        self.0.write_all(&event)
    }

    /// Logs that all that was written before is durable.
    pub fn flush(&mut self) -> io::Result<()> {
        self.write(FLUSH, &[])
    }
}

/// One event of the log.
enum Event {
    Write { position: u64, bytes: Range<usize> },
    Flush,
}

/// The writes that a power failure loses, of those that were not flushed.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// All are lost.
    All,
    /// None is lost.
    None,
    /// The last ones are lost, from a random one on.
    Last(u64),
    /// Random ones are lost.
    Writes(u64),
    /// Random pages of 4 KiB of them are lost.
    Pages(u64),
    /// Random sectors of 512 bytes of them are lost.
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
    /// Place in the log behind the events that have happened.
    at: usize,
    /// The bytes that the disk keeps whatever happens.
    durable: Vec<u8>,
    /// Writes that were not flushed: position, and place of the bytes in the log.
    pending: Vec<(u64, Range<usize>)>,
}

impl<'a> DeviceReplay<'a> {
    /// A disk at the begin of its log, on which `image` lay before.
    pub fn new(image: Vec<u8>, log: &'a [u8]) -> Self {
        Self { log, at: 0, durable: image, pending: Vec::new() }
    }

    /// The places at which the events of a log end.
    pub fn ends(log: &[u8]) -> Vec<usize> {
        let ends = std::iter::successors(Some(0), |at| decode(log, *at).map(|(_, end)| end));
        ends.skip(1).collect()
    }

    /// Replays the log up to the end of an event.
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

    /// The image that a power failure at this moment leaves.
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

/// Writes any pieces of the writes into the image. The first page stays whole, for it holds the superblock, of which a file
/// system has to believe something.
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

/// Decodes the event at a place and where it ends; `None` at the end of the log, also where the event is cut off.
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
