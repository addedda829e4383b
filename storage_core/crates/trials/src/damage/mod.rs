//! The damage campaign: whatever happens to the bytes of a store behind its back, it never serves wrong ones, never loses a
//! promise without saying so, and never hangs. Damage hits bytes that are used: flips, zeros, garbage, pages and blocks that were
//! moved, swapped or never written, files that are cut, lost, doubled or swapped; of stores that were closed in order, of stores
//! that were killed, and of stores that are open, on the simulated disk and on each real backend.

mod hits;
mod on_disk;
mod strike;
mod subject;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use walrus_log::{Backend, SimulatedDisk, Store};

use self::hits::Hits;
use self::strike::strike;
pub use self::subject::Structure;
use self::subject::{SUBJECTS, options};
use self::verdict::check;
use crate::images::message;
use crate::random::Random;

/// Limit on the time of a case: one that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The counts of what became of cases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Cases.
    pub tried: u64,
    /// The store did not open, and said why.
    pub refused: u64,
    /// Records were lost, and it was told.
    pub told: u64,
    /// The last records of a killed store read as if they had never been written: nothing can tell.
    pub tails: u64,
    /// Nothing was lost.
    pub whole: u64,
    /// Hits by structure.
    pub hits: BTreeMap<Structure, u64>,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tried, refused, told, tails, whole, hits } = self;
        write!(
            f,
            "damage: {tried} cases: {whole} lost nothing, {told} told what they lost, {refused} refused to open, \
             {tails} ended before their last records; hit:"
        )?;
        hits.iter().try_for_each(|(structure, count)| write!(f, " {structure:?} {count}"))
    }
}

/// Damages `count` stores, from a seed on; panics with the seed of the first that serves wrong bytes, loses something without
/// a word, or hangs.
pub fn campaign(count: u64, seed: u64) -> Counts {
    let mut counts = Counts::default();
    for seed in seed..seed + count {
        let (send, receive) = mpsc::channel();
        let case = std::thread::spawn(move || {
            let done = std::panic::catch_unwind(|| damage(seed));
            let _ = send.send(done.map_err(|panic| message(&*panic)));
        });
        match receive.recv_timeout(PATIENCE) {
            Ok(Ok(case)) => counts.add(case),
            Ok(Err(said)) => panic!("seed {seed}: {said}"),
            Err(_) => panic!("seed {seed}: it hangs"),
        }
        let _ = case.join();
    }
    counts
}

/// One case.
#[derive(Clone, Debug)]
struct Case {
    outcome: Outcome,
    hits: BTreeSet<Structure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Whole,
    Tail,
    Told,
    Refused,
}

impl Counts {
    fn add(&mut self, case: Case) {
        self.tried += 1;
        *match case.outcome {
            Outcome::Whole => &mut self.whole,
            Outcome::Tail => &mut self.tails,
            Outcome::Told => &mut self.told,
            Outcome::Refused => &mut self.refused,
        } += 1;
        for structure in case.hits {
            *self.hits.entry(structure).or_default() += 1;
        }
    }
}

/// Damages a store as the seed says, and checks what comes of it.
fn damage(seed: u64) -> Case {
    let mut random = Random(seed ^ 0x6461_6d61);
    let subject = random.choose(&SUBJECTS);
    let backend = *random.choose(&[Backend::Mmap, Backend::Direct, Backend::IoUring]);
    let what = format!("{} {}", subject.name, if subject.is_closed { "closed" } else { "killed" });
    let place = random.below(12);
    if place < 3 {
        let (outcome, hits) = on_disk::open(subject, &mut random, backend, &format!("{what}, {backend:?}"));
        return Case { outcome, hits: hits.structures };
    }
    let (contents, did) = strike(subject, &mut random);
    let hits = Hits::new(subject, &contents);
    let hit = (contents, hits);
    let outcome = if place < 6 {
        on_disk::closed(subject, &hit, backend, &format!("{what}, {did}, {backend:?}"))
    } else {
        let disk = SimulatedDisk::from_contents(subject.kind, &hit.0);
        let open = || Store::open_on(Arc::new(disk.clone()), options());
        check(subject, &open, &hit.1, &format!("{what}, {did}"))
    };
    Case { outcome, hits: hit.1.structures }
}
