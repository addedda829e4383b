//! Damage of stored bytes. The structures that it hits are known, so the offsets that must be fenced are known exactly, too.
//! Everything else is served as it was written, and a store with damaged records of the journal refuses to open.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use walrus_log::batch::{Batch, BatchBuilder};
use walrus_log::{Error, LogId, Options, SimulatedDisk, Store, TailKind};

use crate::checks::read_from;
use crate::facts::{log_id, new_log};
use crate::images::told;
use crate::random::{Random, Value};

const BLOCK_MAGIC: &[u8] = b"WALRUSBK";
const PAGE: usize = 4096;
/// End of the front of a batch, in bytes; in it the disk differs from what a reader gets.
const OFFSETS_END: usize = 16;
/// Bytes in front of a journal's records.
const JOURNAL_HEADER_BYTES: usize = 96;
/// Bytes of the last record of a journal that was closed in order, which nothing proves but itself.
const LAST_RECORD_BYTES: usize = 25;

/// Files, as bytes by name.
pub type Contents = BTreeMap<String, Vec<u8>>;

/// A store that was closed in order, and the place of everything in it.
pub struct Subject {
    tail_kind: TailKind,
    options: Options,
    /// Its files.
    pub contents: Contents,
    values: BTreeMap<LogId, Vec<Value>>,
    places: Vec<Place>,
}

/// Bytes that belong together.
struct Place {
    file: String,
    bytes: Range<usize>,
    kind: Kind,
}

enum Kind {
    /// Batches of a log: these offsets are lost with them.
    Offsets(LogId, Range<u64>),
    /// Promises: the store refuses to open without them.
    Promises,
}

/// How much of what is hit must be fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// Everything that was hit, and nothing else.
    Exact,
    /// Everything that was hit, and perhaps what lies between two hits.
    AtLeast,
}

/// The consequences of a damage.
#[derive(Default)]
struct Expected {
    refused: bool,
    may_refuse: bool,
    /// Whether the journal's end is gone as if it had never been written, so that nothing can tell.
    rolled_back: bool,
    lost: BTreeMap<LogId, BTreeSet<u64>>,
}

impl Subject {
    /// Fills a store with so many batches.
    pub fn new(tail_kind: TailKind, options: Options, batches: u64) -> Self {
        let disk = SimulatedDisk::new(tail_kind);
        let store = Store::open_on(Arc::new(disk.clone()), options.clone()).expect("a new store");
        let ids = [1, 2].map(log_id);
        let logs = ids.map(|id| store.create_log(new_log(id, "log".to_owned())).expect("a new log"));
        let mut values: BTreeMap<LogId, Vec<Value>> = BTreeMap::new();
        let mut random = Random(batches);
        for number in 0..batches {
            let log = &logs[number as usize % 2];
            let known = values.entry(log.id()).or_default();
            let mut builder = BatchBuilder::new();
            for part in 0..1 + number % 3 {
                let value =
                    Value { number: number << 8 | part | 1 << 40, bytes: 60 + random.below(900) as usize };
                builder.push(None, Some(&value.to_bytes()), number as i64, &[]);
                known.push(value);
            }
            let mut bytes = Vec::new();
            builder.build(&mut bytes).expect("small");
            let (batch, _) = Batch::parse(&bytes).expect("just built");
            log.append(&batch).and_then(|appended| appended.commit.wait()).expect("an append");
        }
        logs[1].seal(b"the end").expect("a seal");
        logs[0].cursor("first").and_then(|cursor| cursor.read_next(true)).expect("a read");
        store.drain();
        store.close().expect("a close in order");
        let mut subject = Self { tail_kind, options, contents: disk.contents(), values, places: Vec::new() };
        subject.places = subject.find_places();
        subject
    }

    fn open(&self, contents: &Contents) -> Result<Store, Error> {
        let disk = SimulatedDisk::from_contents(self.tail_kind, contents);
        Store::open_on(Arc::new(disk), self.options.clone())
    }

    fn find_places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        let store = self.open(&self.contents).expect("undamaged");
        for log in store.logs() {
            let slices = log.read(log.start_offset(), usize::MAX).expect("undamaged");
            for bytes in &slices.batches {
                let (batch, _) = Batch::parse(bytes).expect("undamaged");
                let (file, at) = self.find(bytes);
                let kind = Kind::Offsets(log.id(), batch.base_offset()..batch.end_offset());
                places.push(Place { file, bytes: at..at + bytes.len(), kind });
            }
        }
        let mut headers = Vec::new();
        for (file, bytes) in self.contents.iter().filter(|(file, _)| file.ends_with(".wal")) {
            let starts = (0..bytes.len()).step_by(self.options.block_bytes as usize);
            let starts: Vec<_> = starts.filter(|start| bytes[*start..].starts_with(BLOCK_MAGIC)).collect();
            for (index, &start) in starts.iter().enumerate() {
                let end = starts.get(index + 1).copied().unwrap_or(bytes.len());
                let inside = places.iter().filter(|place: &&Place| {
                    place.file == *file && (start..end).contains(&place.bytes.start)
                });
                let kind = inside.fold(None, |all: Option<(LogId, Range<u64>)>, place| match &place.kind {
                    Kind::Offsets(log, offsets) => {
                        let start = all.map_or(offsets.start, |(_, all)| all.start);
                        Some((*log, start..offsets.end))
                    }
                    Kind::Promises => all,
                });
                if let Some((log, offsets)) = kind {
                    let (file, bytes) = (file.clone(), start..start + PAGE);
                    headers.push(Place { file, bytes, kind: Kind::Offsets(log, offsets) });
                }
            }
        }
        places.extend(headers);
        for (file, bytes) in &self.contents {
            let used = used_bytes(bytes);
            // The contents of the manifest and of the journal's header are known from elsewhere.
            if file.starts_with("journal-") {
                let proven = JOURNAL_HEADER_BYTES..used - LAST_RECORD_BYTES;
                places.push(Place { file: file.clone(), bytes: proven, kind: Kind::Promises });
            }
        }
        places
    }

    fn find(&self, wanted: &[u8]) -> (String, usize) {
        for (file, bytes) in self.contents.iter().filter(|(file, _)| file.ends_with(".wal")) {
            let (front, rest) = wanted.split_at(OFFSETS_END);
            let mut found = (OFFSETS_END..).zip(bytes[OFFSETS_END..].windows(rest.len()));
            // Base offset and length; a mark is in the place of the epoch.
            let is_it =
                |at: usize, window: &[u8]| window == rest && bytes[at - OFFSETS_END..][..12] == front[..12];
            if let Some((at, _)) = found.find(|(at, window)| is_it(*at, window)) {
                return (file.clone(), at - OFFSETS_END);
            }
        }
        panic!("a batch lies nowhere");
    }

    fn expected(&self, damaged: &Contents) -> Expected {
        let mut expected = Expected::default();
        for place in &self.places {
            let old = &self.contents[&place.file][place.bytes.clone()];
            let file = damaged.get(&place.file).map_or(&[][..], Vec::as_slice);
            let byte = |index: usize| file.get(place.bytes.start + index).copied().unwrap_or(0);
            // A file that is cut off reads as zeros where blocks were.
            let is_same = (0..old.len()).all(|index| byte(index) == old[index]);
            if is_same && (place.bytes.end <= file.len() || place.file.ends_with(".wal")) {
                continue;
            }
            match &place.kind {
                Kind::Promises => {
                    let last = place.bytes.end..place.bytes.end + LAST_RECORD_BYTES;
                    let is_last_gone = file.get(last.clone()) != self.contents[&place.file].get(last);
                    expected.refused |= !is_last_gone;
                    (expected.may_refuse, expected.rolled_back) =
                        (expected.may_refuse | is_last_gone, expected.rolled_back | is_last_gone);
                }
                Kind::Offsets(log, offsets) => {
                    expected.lost.entry(*log).or_default().extend(offsets.clone());
                }
            }
        }
        expected
    }

    /// Opens the damaged store, reads everything and checks it. Answers whether something was damaged that matters.
    pub fn check(&self, damaged: &Contents, fencing: Fencing, what: &str) -> bool {
        told(what, || {
            let Expected { refused, may_refuse, rolled_back, lost } = self.expected(damaged);
            let store = match self.open(damaged) {
                Ok(store) => store,
                Err(
                    Error::Damaged { .. } | Error::UnsupportedFormat { .. } | Error::InvalidOption { .. },
                ) if refused || may_refuse => {
                    return true;
                }
                Err(error) => panic!("it does not open: {error}"),
            };
            assert!(!refused, "promises are damaged, and it opens");
            let nothing = BTreeSet::new();
            for (id, values) in &self.values {
                let Some(log) = store.log(*id) else {
                    assert!(rolled_back, "log {id} is gone");
                    continue;
                };
                let (records, fences) = read_from(&log, 0);
                let lost = lost.get(id).unwrap_or(&nothing);
                let fenced: BTreeSet<u64> = fences.iter().flat_map(|(start, end)| *start..*end).collect();
                let is_right = match fencing {
                    Fencing::Exact => fenced == *lost,
                    Fencing::AtLeast => fenced.is_superset(lost),
                };
                assert!(is_right, "offsets of log {id} that are fenced: {fenced:?}, damaged: {lost:?}");
                for (offset, bytes) in &records {
                    assert!(values[*offset as usize].is(bytes), "wrong bytes at {offset} of log {id}");
                }
                assert_eq!(records.len() + fenced.len(), values.len(), "offsets of log {id}");
            }
            rolled_back || !lost.is_empty()
        })
    }

    /// Flips one bit in each byte, one after the other. Answers how many were tried, and how many mattered.
    ///
    /// Bytes that lie among zeros, as at the ends of blocks and behind the journal's records, are alike: one of 509 is
    /// tried.
    pub fn flip_every_byte(&self, part: u64, parts: u64) -> (u64, u64) {
        let (mut tried, mut mattered) = (0, 0);
        for (file, bytes) in self.contents.iter().filter(|(file, _)| *file != "LOCK") {
            for position in (0..bytes.len()).filter(|position| *position as u64 % parts == part) {
                let among = &bytes[position.saturating_sub(64)..(position + 64).min(bytes.len())];
                if among.iter().all(|byte| *byte == 0) && !position.is_multiple_of(509) {
                    continue;
                }
                let mut damaged = self.contents.clone();
                let byte = &mut damaged.get_mut(file).expect("it is there")[position];
                *byte ^= 1 << (position % 8);
                tried += 1;
                mattered += u64::from(self.check(
                    &damaged,
                    Fencing::Exact,
                    &format!("{file}: bit flipped in byte {position}"),
                ));
            }
        }
        (tried, mattered)
    }

    /// Flips so many bits of blocks at once and answers whether any mattered. The promises stay, so that the store opens.
    pub fn flip_many(&self, seed: u64, flips: usize) -> bool {
        let mut random = Random(seed);
        let mut damaged = self.contents.clone();
        let files = self.contents.iter().filter(|(file, _)| file.ends_with(".wal"));
        let ends: Vec<(&String, u64)> = files.map(|(file, bytes)| (file, used_bytes(bytes) as u64)).collect();
        for _ in 0..flips {
            let mut at = random.below(ends.iter().map(|(_, used)| used).sum());
            let mut files = ends.iter();
            let file = loop {
                let (file, used) = files.next().expect("it lies in one of them");
                match at.checked_sub(*used) {
                    Some(behind) => at = behind,
                    None => break *file,
                }
            };
            damaged.get_mut(file).expect("it is there")[at as usize] ^= 1 << random.below(8);
        }
        // Batches between two places that are damaged may not be found again.
        self.check(&damaged, Fencing::AtLeast, &format!("seed {seed}, {flips} bits flipped"))
    }

    /// Does random damage: flips bits, makes sectors zero, garbage or another's, cuts files off. Answers whether it mattered.
    pub fn damage(&self, seed: u64) -> bool {
        let mut random = Random(seed);
        let mut damaged = self.contents.clone();
        let files: Vec<_> = self.contents.keys().filter(|file| *file != "LOCK").cloned().collect();
        let file = random.choose(&files).clone();
        let bytes = damaged.get_mut(&file).expect("it is there");
        // Most of a file is empty as a rule.
        let used = used_bytes(bytes).max(1);
        let at = random.below(used as u64) as usize;
        let sector = if random.one_in(2) { 512 } else { PAGE };
        let range = at - at % sector..(at - at % sector + sector).min(bytes.len());
        let kind = random.below(9);
        let fencing = match kind {
            4 => Fencing::AtLeast,
            _ => Fencing::Exact,
        };
        let what = match kind {
            0 => {
                bytes[range.clone()].fill(0);
                format!("{file}: zeros at {range:?}")
            }
            1 => {
                bytes[range.clone()].iter_mut().for_each(|byte| *byte = random.number() as u8);
                format!("{file}: garbage at {range:?}")
            }
            2 => {
                let from = random.below(used as u64) as usize / sector * sector;
                let other = bytes[from..(from + range.len()).min(bytes.len())].to_vec();
                bytes[range.start..range.start + other.len()].copy_from_slice(&other);
                format!("{file}: bytes of {from} at {range:?}")
            }
            3 => {
                bytes.truncate(at);
                format!("{file}: cut to {at} bytes")
            }
            4 => {
                let flips: Vec<_> = (0..3).map(|_| random.below(used as u64) as usize).collect();
                flips.iter().for_each(|at| bytes[*at] ^= 1 << random.below(8));
                format!("{file}: bits flipped at {flips:?}")
            }
            _ => {
                bytes[at] ^= 1 << random.below(8);
                format!("{file}: bit flipped at {at}")
            }
        };
        self.check(&damaged, fencing, &format!("seed {seed}, {what}"))
    }
}

/// A store that is small enough to flip every byte.
pub fn small(tail_kind: TailKind) -> Subject {
    let options = Options { block_bytes: 16 << 10, blocks_per_file: 3, ..Options::small() };
    Subject::new(tail_kind, options, 24)
}

/// A store of dozens of blocks.
pub fn larger(tail_kind: TailKind) -> Subject {
    Subject::new(tail_kind, Options { block_bytes: 32 << 10, blocks_per_file: 4, ..Options::small() }, 600)
}

/// The number of bytes behind which all are zero.
fn used_bytes(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}
