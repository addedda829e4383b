//! One blow to the bytes of a store, as disks, cables, file systems and people deal it.

use super::subject::{BLOCK, PAGE, Place, Structure, Subject};
use crate::random::Random;
use crate::rot::Contents;

const SECTOR: usize = 512;
/// Doubled files get numbers from here on: the store has none of them.
const DOUBLES_FROM: u64 = 50;

/// A kind of damage. Each kind is drawn as often as it stands in [`KINDS`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    BitFlipped,
    BitsFlipped,
    PageOfZeros,
    SectorOfGarbage,
    PageMoved,
    BlockMoved,
    FileCut,
    FileLost,
    FileDoubled,
    FilesSwapped,
    PageNotWritten,
}

const KINDS: [Kind; 14] = [
    Kind::BitFlipped,
    Kind::BitFlipped,
    Kind::BitFlipped,
    Kind::BitsFlipped,
    Kind::PageOfZeros,
    Kind::SectorOfGarbage,
    Kind::PageMoved,
    Kind::PageMoved,
    Kind::BlockMoved,
    Kind::FileCut,
    Kind::FileLost,
    Kind::FileDoubled,
    Kind::FilesSwapped,
    Kind::PageNotWritten,
];

/// Damages bytes of a store that are used. Answers the files as they are then, and what was done.
pub(super) fn strike(subject: &Subject, random: &mut Random) -> (Contents, String) {
    let kind = *random.choose(&KINDS);
    let contents = subject.contents.clone();
    let mut blow = Blow { subject, random, contents };
    let what = blow.deal(kind);
    (blow.contents, what)
}

/// A byte that is used.
struct Spot {
    file: String,
    at: usize,
}

struct Blow<'a> {
    subject: &'a Subject,
    random: &'a mut Random,
    contents: Contents,
}

impl Blow<'_> {
    fn deal(&mut self, kind: Kind) -> String {
        let spot = self.spot();
        let Spot { file, at } = &spot;
        match kind {
            Kind::BitFlipped => {
                self.flip(&spot);
                format!("{file}: bit flipped at {at}")
            }
            Kind::BitsFlipped => {
                let spots = [spot, self.spot(), self.spot()];
                spots.iter().for_each(|spot| self.flip(spot));
                format!("bits flipped at {:?}", spots.map(|Spot { file, at }| (file, at)))
            }
            Kind::PageOfZeros => {
                let page = self.around(&spot, PAGE);
                self.bytes(file)[page.clone()].fill(0);
                format!("{file}: zeros at {page:?}")
            }
            Kind::SectorOfGarbage => {
                let sector = self.around(&spot, SECTOR);
                let garbage: Vec<u8> = sector.clone().map(|_| self.random.number() as u8).collect();
                self.put(file, sector.start, &garbage);
                format!("{file}: garbage at {sector:?}")
            }
            Kind::PageMoved => self.move_page(&spot),
            Kind::BlockMoved => self.move_block(),
            Kind::FileCut => {
                self.bytes(file).truncate(*at);
                format!("{file}: cut to {at} bytes")
            }
            Kind::FileLost => {
                self.contents.remove(file);
                format!("{file}: lost")
            }
            Kind::FileDoubled => {
                let number = DOUBLES_FROM + self.random.below(9);
                let double = format!("{number:08}.wal");
                self.contents.insert(double.clone(), self.subject.contents[file].clone());
                format!("{file}: doubled as {double}")
            }
            Kind::FilesSwapped => {
                let other = self.spot().file;
                let [one, another] = [file, &other].map(|name| self.subject.contents[name].clone());
                self.contents.insert(file.clone(), another);
                self.contents.insert(other.clone(), one);
                format!("{file} and {other}: swapped")
            }
            Kind::PageNotWritten => {
                let page = self.around(&spot, PAGE);
                let old = self.subject.before(file, page.clone());
                self.put(file, page.start, &old);
                format!("{file}: not written since half of its life at {page:?}")
            }
        }
    }

    /// Chooses a byte. Most bytes are those of batches, so every structure gets its share.
    fn spot(&mut self) -> Spot {
        let wanted = match self.random.one_in(2) {
            true => Structure::Batch,
            false => *self.random.choose(&self.subject.structures()),
        };
        let alike: Vec<&Place> =
            self.subject.places.iter().filter(|place| place.structure == wanted).collect();
        let Place { file, range, .. } = *self.random.choose(&alike);
        Spot { file: file.clone(), at: range.start + self.random.below(range.len() as u64) as usize }
    }

    fn flip(&mut self, spot: &Spot) {
        let bit = 1 << self.random.below(8);
        self.bytes(&spot.file)[spot.at] ^= bit;
    }

    fn move_page(&mut self, to: &Spot) -> String {
        let from = self.spot();
        let (target, source) = (self.around(to, PAGE), self.around(&from, PAGE));
        let moved = self.contents[&from.file][source.clone()].to_vec();
        let replaced = self.contents[&to.file][target.clone()].to_vec();
        self.put(&to.file, target.start, &moved);
        let swaps = self.random.one_in(2);
        if swaps {
            self.put(&from.file, source.start, &replaced);
        }
        format!("{} {source:?} at {} {target:?}, swapped: {swaps}", from.file, to.file)
    }

    fn move_block(&mut self) -> String {
        let is_block = |place: &&Place| place.structure == Structure::BlockHeader;
        let blocks: Vec<&Place> = self.subject.places.iter().filter(is_block).collect();
        let [to, from] = [(); 2].map(|()| *self.random.choose(&blocks));
        let bytes = |place: &Place| {
            self.subject.contents[&place.file][place.range.start..place.range.start + BLOCK].to_vec()
        };
        let (moved, replaced) = (bytes(from), bytes(to));
        self.put(&to.file, to.range.start, &moved);
        let swaps = self.random.one_in(2);
        if swaps {
            self.put(&from.file, from.range.start, &replaced);
        }
        let [to, from] = [to, from].map(|place| format!("{} {}", place.file, place.range.start));
        format!("block {from} at {to}, swapped: {swaps}")
    }

    /// The page or sector that a byte lies in, as far as its file goes.
    fn around(&self, spot: &Spot, bytes: usize) -> std::ops::Range<usize> {
        let start = spot.at / bytes * bytes;
        start..(start + bytes).min(self.contents[&spot.file].len())
    }

    fn bytes(&mut self, file: &str) -> &mut Vec<u8> {
        self.contents.get_mut(file).expect("files are lost by the one blow only")
    }

    /// Writes as far as the file goes.
    fn put(&mut self, file: &str, at: usize, bytes: &[u8]) {
        let file = self.bytes(file);
        let end = (at + bytes.len()).min(file.len());
        file[at..end].copy_from_slice(&bytes[..end - at]);
    }
}
