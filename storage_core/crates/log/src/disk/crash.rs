//! The image that a power failure leaves of a simulated disk: any part of the changes that were not synced is lost.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::page::PAGE_BYTES;

/// Least size of what a disk writes as a whole or not at all.
const SECTOR_BYTES: usize = 512;

/// Choice of the unsynced changes that survive a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashChoice {
    /// No change survives.
    Nothing,
    /// Every change survives, as after the kill of a process.
    Everything,
    /// Some sectors of 512 bytes survive, and the first changes of the directory up to some point; this seed chooses.
    Some(u64),
    /// The same as `Some`, with sectors of 4 KiB.
    Pages(u64),
    /// Some sectors of 512 bytes survive, a quarter of them only up to some byte, and any changes of the directory,
    /// whatever their order; this seed chooses.
    Torn(u64),
}

/// A change of a simulated disk. Files have numbers, which they keep when they are renamed.
#[derive(Clone)]
pub(super) enum Change {
    /// A file that was there from the beginning, durable.
    Given {
        name: String,
        file: usize,
        bytes: Arc<Vec<u8>>,
    },
    Create {
        name: String,
        file: usize,
        bytes: usize,
    },
    Grow {
        file: usize,
        bytes: usize,
    },
    Write {
        file: usize,
        position: usize,
        data: Vec<u8>,
        durable: bool,
    },
    Sync {
        file: usize,
    },
    /// A sync that failed. The kernel reports the error once and takes the unsynced bytes for written from then on, so no
    /// later sync makes them durable.
    SyncFailed {
        file: usize,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        name: String,
    },
    SyncDirectory,
}

/// The durable state of a disk, and its changes that are not durable yet.
#[derive(Default)]
pub(super) struct Image {
    files: HashMap<usize, ImageFile>,
    names: BTreeMap<String, usize>,
    unsynced_names: Vec<Change>,
}

#[derive(Default)]
struct ImageFile {
    durable: Vec<u8>,
    /// Writes before a sync that failed: no later sync makes them durable, but the disk may hold them.
    doubtful: Vec<(usize, Vec<u8>)>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

impl ImageFile {
    fn of(durable: Vec<u8>) -> Self {
        Self { durable, ..Self::default() }
    }

    /// Forgets earlier writes to the range, so that they do not come back over its durable bytes.
    fn forget(&mut self, range: &Range<usize>) {
        for list in [&mut self.doubtful, &mut self.unsynced] {
            for (start, old) in std::mem::take(list) {
                keep_outside(start, old, range, list);
            }
        }
    }

    fn write(&mut self, position: usize, data: &[u8]) {
        let end = position + data.len();
        if self.durable.len() < end {
            self.durable.resize(end, 0);
        }
        self.durable[position..end].copy_from_slice(data);
    }

    /// Bytes of the file that a crash leaves.
    fn crash(&self, dice: &mut Dice) -> Vec<u8> {
        let mut left = Self::of(self.durable.clone());
        for (position, data) in self.doubtful.iter().chain(&self.unsynced) {
            let mut done = 0;
            while done < data.len() {
                let at = position + done;
                let count = (dice.sector_bytes - at % dice.sector_bytes).min(data.len() - done);
                let kept = dice.kept_of(count);
                left.write(at, &data[done..done + kept]);
                done += count;
            }
        }
        left.durable
    }
}

/// Decides which changes survive.
struct Dice {
    random: Random,
    sector_bytes: usize,
    is_torn: bool,
    /// Chance, in 64ths, that a crash keeps what was not synced.
    kept: u64,
}

impl Dice {
    fn new(choice: CrashChoice) -> Self {
        let (seed, sector_bytes, is_torn) = match choice {
            CrashChoice::Nothing | CrashChoice::Everything => (0, SECTOR_BYTES, false),
            CrashChoice::Some(seed) => (seed, SECTOR_BYTES, false),
            CrashChoice::Pages(seed) => (seed, PAGE_BYTES as usize, false),
            CrashChoice::Torn(seed) => (seed, SECTOR_BYTES, true),
        };
        let mut random = Random(seed);
        let kept = match choice {
            CrashChoice::Nothing => 0,
            CrashChoice::Everything => 64,
            // Half of the changes survives as a rule; sometimes nearly everything does, or little.
            _ => [32, 32, 60, 4][random.next() as usize % 4],
        };
        Self { random, sector_bytes, is_torn, kept }
    }

    fn keeps(&mut self) -> bool {
        self.random.next() % 64 < self.kept
    }

    /// Number of a sector's `count` new bytes that survive, from the first on.
    fn kept_of(&mut self, count: usize) -> usize {
        match self.keeps() {
            true if self.is_torn && self.random.next().is_multiple_of(4) => {
                self.random.next() as usize % (count + 1)
            }
            true => count,
            false => 0,
        }
    }
}

impl Image {
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Given { name, file, bytes } => {
                self.files.insert(*file, ImageFile::of(bytes.to_vec()));
                self.names.insert(name.clone(), *file);
            }
            Change::Create { file, bytes, .. } => {
                self.files.insert(*file, ImageFile::of(vec![0; *bytes]));
                self.unsynced_names.push(change.clone());
            }
            Change::Grow { file, bytes } => {
                let durable = &mut self.files.entry(*file).or_default().durable;
                durable.resize(durable.len().max(*bytes), 0);
            }
            Change::Write { file, position, data, durable } => {
                let file = self.files.entry(*file).or_default();
                if *durable {
                    file.forget(&(*position..*position + data.len()));
                    file.write(*position, data);
                } else {
                    file.unsynced.push((*position, data.clone()));
                }
            }
            Change::Sync { file } => {
                let file = self.files.entry(*file).or_default();
                for (position, data) in std::mem::take(&mut file.unsynced) {
                    file.forget(&(position..position + data.len()));
                    file.write(position, &data);
                }
            }
            Change::SyncFailed { file } => {
                let file = self.files.entry(*file).or_default();
                file.doubtful.append(&mut file.unsynced);
            }
            Change::Rename { .. } | Change::Remove { .. } => self.unsynced_names.push(change.clone()),
            Change::SyncDirectory => {
                for change in std::mem::take(&mut self.unsynced_names) {
                    self.apply_name(&change);
                }
            }
        }
    }

    fn apply_name(&mut self, change: &Change) {
        match change {
            Change::Create { name, file, .. } => {
                self.names.insert(name.clone(), *file);
            }
            Change::Rename { from, to } => {
                if let Some(file) = self.names.remove(from) {
                    self.names.insert(to.clone(), file);
                }
            }
            Change::Remove { name } => {
                self.names.remove(name);
            }
            _ => {}
        }
    }

    /// Contents of the files that a crash now leaves, by name.
    pub(super) fn crash(&self, choice: CrashChoice) -> BTreeMap<String, Vec<u8>> {
        let mut dice = Dice::new(choice);
        let mut named = Self { names: self.names.clone(), ..Self::default() };
        for change in &self.unsynced_names {
            if dice.keeps() {
                named.apply_name(change);
            } else if !matches!(choice, CrashChoice::Torn(_)) {
                // File systems journal their directories as a rule, so changes survive in order.
                break;
            }
        }
        let mut contents =
            |file: &usize| self.files.get(file).map_or_else(Vec::new, |file| file.crash(&mut dice));
        named.names.iter().map(|(name, file)| (name.clone(), contents(file))).collect()
    }
}

/// Pushes the parts of `data` that lie outside of `range`.
fn keep_outside(start: usize, data: Vec<u8>, range: &Range<usize>, out: &mut Vec<(usize, Vec<u8>)>) {
    let end = start + data.len();
    if end <= range.start || range.end <= start {
        out.push((start, data));
        return;
    }
    if start < range.start {
        out.push((start, data[..range.start - start].to_vec()));
    }
    if range.end < end {
        out.push((range.end, data[range.end - start..].to_vec()));
    }
}

/// The random numbers of a seed, by SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) >> 7
    }
}
