//! Calls of the disk that fail: in a life, each of its calls in turn; in a recovery, each of its. What was promised
//! before, and what is promised afterwards, is there; nothing else is.

use std::sync::Arc;

use walrus_log::{CrashChoice, Error, Fault, SimulatedDisk, Store};

use crate::checks::check;
use crate::facts::Facts;
use crate::images::{open_and_check, told};
use crate::owner::{Owner, Plan};
use crate::random::Random;

/// How one call fails.
#[derive(Clone, Copy, Debug)]
pub enum Mishap {
    /// The call of that number fails, of those that change something.
    Call(u64, Fault),
    /// That call and all behind it fail.
    From(u64, Fault),
    /// The call of that number fails, of those that read.
    Read(u64, Fault),
}

/// The counts of what was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried {
    /// Calls that failed.
    pub faults: u64,
    /// Images opened afterwards.
    pub images: u64,
}

impl std::ops::AddAssign for Tried {
    fn add_assign(&mut self, other: Self) {
        self.faults += other.faults;
        self.images += other.images;
    }
}

fn plan_on(disk: &SimulatedDisk, mishap: Mishap) {
    match mishap {
        Mishap::Call(call, fault) => disk.fail_call(call, fault),
        Mishap::From(call, fault) => disk.break_from(call, fault),
        Mishap::Read(read, fault) => disk.fail_read(read, fault),
    }
}

/// All mishaps of so many calls and reads.
fn mishaps(calls: u64, reads: u64) -> impl Iterator<Item = Mishap> {
    let faults = [Fault::Eio, Fault::Enospc, Fault::Eintr, Fault::ShortWrite];
    let once = move |fault| (0..calls).map(move |call| Mishap::Call(call, fault));
    let from = move |fault| (0..calls).map(move |call| Mishap::From(call, fault));
    let read = (0..reads).map(|read| Mishap::Read(read, Fault::Eio));
    faults
        .into_iter()
        .flat_map(once)
        .chain([Fault::Eio, Fault::Enospc].into_iter().flat_map(from))
        .chain(read)
}

/// Lives the life of a seed again and again, another call failing each time.
pub fn fail_everywhere(plan: &Plan) -> Tried {
    let disk = SimulatedDisk::new(plan.tail_kind);
    told(&format!("{plan:?}"), || live(plan, &disk)).unwrap_or_else(|failed| panic!("{plan:?}: {failed:?}"));
    let mut tried = Tried::default();
    for mishap in mishaps(disk.calls(), disk.reads()) {
        tried += told(&format!("{plan:?}\n{mishap:?}"), || fail(plan, mishap));
    }
    tried
}

fn live(plan: &Plan, disk: &SimulatedDisk) -> Result<(), Error> {
    let mut owner = Owner::new(plan.clone(), disk.clone()).map_err(|failed| failed.error)?;
    owner.live().map_err(|failed| failed.error)
}

fn fail(plan: &Plan, mishap: Mishap) -> Tried {
    let disk = SimulatedDisk::new(plan.tail_kind);
    plan_on(&disk, mishap);
    let (mut owner, failed) = match Owner::new(plan.clone(), disk.clone()) {
        Ok(mut owner) => {
            let failed = owner.live().err();
            (Some(owner), failed)
        }
        Err(failed) => (None, Some(failed)),
    };
    let mut facts = match &failed {
        Some(failed) => {
            expect_a_fault(&failed.error);
            let is_short = matches!(mishap, Mishap::Call(_, Fault::ShortWrite));
            assert!(!is_short, "a short write is continued, not {}: {}", failed.call, failed.error);
            failed.facts.clone()
        }
        None => owner.as_ref().map_or_else(Facts::default, |owner| owner.facts.clone()),
    };
    if let Some(owner) = &mut owner {
        for _ in 0..2 {
            for id in owner.facts.logs.keys().copied().collect::<Vec<_>>() {
                if let Err(error) = owner.append_after_failure(id, &mut facts)
                    && !matches!(error, Error::Sealed { .. } | Error::UnknownLog { .. } | Error::Closed)
                {
                    expect_a_fault(&error);
                }
            }
        }
        disk.heal();
        if let Some(store) = owner.store() {
            let call = failed.as_ref().map_or("nothing", |failed| &failed.call);
            told(&format!("in the store that goes on after {call} failed"), || {
                check(store, &owner.facts, &facts, &[]);
            });
        }
    }
    let before = owner.map_or_else(Facts::default, |owner| owner.facts);
    let seed = match mishap {
        Mishap::Call(n, _) | Mishap::From(n, _) | Mishap::Read(n, _) => n ^ plan.seed << 20,
    };
    let mut images = 0;
    for choice in [CrashChoice::Everything, CrashChoice::Nothing, CrashChoice::Some(seed)] {
        let image = disk.crash_image(disk.changes(), choice);
        let call =
            failed.as_ref().map_or_else(String::new, |failed| format!("{}: {}", failed.call, failed.error));
        images +=
            told(&format!("{choice:?} after {call}"), || open_and_check(&image, plan, &before, &facts, None));
    }
    Tried { faults: 1, images }
}

/// Checks that an error is one that a failing disk may cause.
fn expect_a_fault(error: &Error) {
    let is_expected = matches!(error, Error::Io { .. } | Error::NoSpace { .. } | Error::Poisoned { .. });
    assert!(is_expected, "a failing disk was answered with: {error}");
}

/// Crashes the life of a seed at some places; recovers from each again and again, another call failing each time.
pub fn fail_recoveries(plan: &Plan, crashes: u64) -> Tried {
    let disk = SimulatedDisk::new(plan.tail_kind);
    let mut owner = Owner::new(plan.clone(), disk.clone()).unwrap_or_else(|failed| panic!("{failed:?}"));
    owner.live().unwrap_or_else(|failed| panic!("{failed:?}"));
    let mut random = Random(plan.seed ^ 0x7265_636f);
    let mut tried = Tried::default();
    for _ in 0..crashes {
        let changes = random.below(disk.changes() as u64 + 1) as usize;
        let choice = CrashChoice::Some(random.number());
        let ended = owner.moments.iter().take_while(|moment| moment.ended <= changes).count();
        let before =
            ended.checked_sub(1).map_or_else(Facts::default, |last| owner.moments[last].facts.clone());
        let after = owner.moments.get(ended).map_or_else(|| before.clone(), |next| next.facts.clone());
        let mut replay = disk.replay();
        while replay.changes() < changes && replay.step() {}
        let clean = replay.crash_image(choice);
        drop(open(&clean, plan));
        let what = format!("{plan:?}\nrecovery after {changes} changes, {choice:?}");
        for mishap in mishaps(clean.calls(), clean.reads()) {
            let image = replay.crash_image(choice);
            plan_on(&image, mishap);
            tried += told(&format!("{what}, {mishap:?}"), || {
                if let Err(error) = Store::open_on(Arc::new(image.clone()), plan.options()) {
                    expect_a_fault(&error);
                }
                image.heal();
                let lost = image.crash_image(image.changes(), CrashChoice::Some(random.number()));
                let again = open_and_check(&image, plan, &before, &after, None);
                Tried { faults: 1, images: again + open_and_check(&lost, plan, &before, &after, None) }
            });
        }
    }
    tried
}

fn open(image: &SimulatedDisk, plan: &Plan) -> Store {
    let opened = Store::open_on(Arc::new(image.clone()), plan.options());
    opened.unwrap_or_else(|error| panic!("it does not open: {error}"))
}
