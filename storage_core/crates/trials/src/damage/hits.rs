//! What a case does to the bytes of a store, and what of it was used.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use walrus_log::LogId;

use super::subject::{BLOCK, PAGE, StoredBatch, Structure, Subject};
use crate::random::Random;
use crate::rot::Contents;

const SECTOR: usize = 512;

/// What a case damaged.
pub(super) struct Hits {
    pub(super) structures: BTreeSet<Structure>,
    /// Offsets whose batches, or the headers in front of them, are not as they were.
    pub(super) offsets: BTreeMap<LogId, BTreeSet<u64>>,
}

impl Hits {
    pub(super) fn new(subject: &Subject, contents: &Contents) -> Self {
        let is_hit = |(structure, file, range): &(Structure, String, Range<usize>)| {
            let now = contents.get(file).and_then(|bytes| bytes.get(range.clone()));
            (now != Some(&subject.contents[file][range.clone()])).then_some(*structure)
        };
        let structures = subject.places.iter().filter_map(is_hit).collect();
        let mut offsets: BTreeMap<LogId, BTreeSet<u64>> = BTreeMap::new();
        for StoredBatch { log, offsets: of_batch, file, header, bytes } in &subject.batches {
            let is_same = |range: &Range<usize>| {
                let now = contents.get(file).and_then(|bytes| bytes.get(range.clone()));
                now == Some(&subject.contents[file][range.clone()])
            };
            if !is_same(header) || !is_same(bytes) {
                offsets.entry(*log).or_default().extend(of_batch.clone());
            }
        }
        Self { structures, offsets }
    }
}

/// Damages bytes of a store: what its files hold then, and what was done.
pub(super) fn strike(subject: &Subject, random: &mut Random) -> (Contents, String) {
    let mut contents = subject.contents.clone();
    let structures: BTreeSet<Structure> = subject.places.iter().map(|(structure, ..)| *structure).collect();
    let structures: Vec<Structure> = structures.into_iter().collect();
    let pick = |random: &mut Random| {
        // Most bytes are batches.
        let wanted = if random.one_in(2) { Structure::Batch } else { *random.choose(&structures) };
        let of_kind: Vec<_> = subject.places.iter().filter(|(structure, ..)| *structure == wanted).collect();
        (*random.choose(&of_kind)).clone()
    };
    let (_, file, range) = pick(random);
    let at = range.start + random.below(range.len() as u64) as usize;
    let page = at / PAGE * PAGE..(at / PAGE * PAGE + PAGE).min(contents[&file].len());
    let what = match random.below(14) {
        0..3 => {
            contents.get_mut(&file).expect("there")[at] ^= 1 << random.below(8);
            format!("{file}: bit flipped at {at}")
        }
        3 => {
            let flips: Vec<_> = (0..3)
                .map(|_| {
                    let (_, file, range) = pick(random);
                    let at = range.start + random.below(range.len() as u64) as usize;
                    contents.get_mut(&file).expect("there")[at] ^= 1 << random.below(8);
                    (file, at)
                })
                .collect();
            format!("bits flipped at {flips:?}")
        }
        4 => {
            contents.get_mut(&file).expect("there")[page.clone()].fill(0);
            format!("{file}: zeros at {page:?}")
        }
        5 => {
            let sector = at / SECTOR * SECTOR..(at / SECTOR * SECTOR + SECTOR).min(contents[&file].len());
            let bytes = contents.get_mut(&file).expect("there");
            bytes[sector.clone()].iter_mut().for_each(|byte| *byte = random.number() as u8);
            format!("{file}: garbage at {sector:?}")
        }
        6 | 7 => {
            let (_, from, place) = pick(random);
            let other =
                place.start / PAGE * PAGE..(place.start / PAGE * PAGE + PAGE).min(contents[&from].len());
            let moved = contents[&from][other.clone()].to_vec();
            let replaced = contents[&file][page.clone()].to_vec();
            put(&mut contents, &file, page.start, &moved);
            let swaps = random.one_in(2);
            if swaps {
                put(&mut contents, &from, other.start, &replaced);
            }
            format!("{from} {other:?} at {file} {page:?}, swapped: {swaps}")
        }
        8 => {
            let blocks: Vec<_> = subject
                .places
                .iter()
                .filter(|(structure, ..)| *structure == Structure::BlockHeader)
                .collect();
            let [a, b] = [(); 2].map(|()| *random.choose(&blocks));
            let [of_a, of_b] =
                [a, b].map(|(_, file, at)| subject.contents[file][at.start..at.start + BLOCK].to_vec());
            put(&mut contents, &a.1, a.2.start, &of_b);
            if random.one_in(2) {
                put(&mut contents, &b.1, b.2.start, &of_a);
            }
            format!("block {} {} and block {} {}", a.1, a.2.start, b.1, b.2.start)
        }
        9 => {
            contents.get_mut(&file).expect("there").truncate(at);
            format!("{file}: cut to {at} bytes")
        }
        10 => {
            contents.remove(&file);
            format!("{file}: lost")
        }
        11 => {
            let number = 50 + random.below(9);
            contents.insert(format!("{number:08}.wal"), contents[&file].clone());
            format!("{file}: doubled")
        }
        12 => {
            let (_, other, _) = pick(random);
            let [a, b] = [&file, &other].map(|name| subject.contents[name].clone());
            contents.insert(file.clone(), b);
            contents.insert(other.clone(), a);
            format!("{file} and {other}: swapped")
        }
        _ => {
            let old = subject.earlier.get(&file).map_or(&[][..], Vec::as_slice);
            let old = old.get(page.clone()).map_or_else(|| vec![0; page.len()], <[u8]>::to_vec);
            put(&mut contents, &file, page.start, &old);
            format!("{file}: not written since half of its life at {page:?}")
        }
    };
    (contents, what)
}

fn put(contents: &mut Contents, file: &str, at: usize, bytes: &[u8]) {
    let file = contents.get_mut(file).expect("there");
    let end = (at + bytes.len()).min(file.len());
    file[at..end].copy_from_slice(&bytes[..end - at]);
}
