//! A trial of the trials: each mistake of `walrus_log::BUGS` is made on purpose, and one of the trials must fail.

use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use walrus_log::{BUGS, Bug, TailKind, seed_bug};

use crate::compactions::compact;
use crate::cuts::cut;
use crate::damage::campaign;
use crate::faults::fail_everywhere;
use crate::images::{crash_everywhere, message};
use crate::mounts::private;
use crate::owner::Plan;
use crate::power::BACKENDS;
use crate::rot::{Subject, larger};
use crate::tails::tear;

/// Limit on the time that is spent on finding one mistake.
const LIMIT: Duration = Duration::from_secs(420);
/// Lives whose calls fail: as many as in the test.
const LIVES: u64 = 12;
/// Lives that are crashed everywhere in a round.
const CRASHED: u64 = 3;
/// Damages tried in a round.
const DAMAGES: u64 = 200;
/// Stores that are damaged by the campaign in a round, from the seed on that CI runs it with.
const CAMPAIGN: u64 = 100;
const CAMPAIGN_SEED: u64 = 7;
/// Lives whose tails are torn in a round.
const TAILS: u64 = 60;
/// Logs that are compacted in a round.
const COMPACTIONS: u64 = 4;
/// Mapped files that are cut in a round.
const CUTS: u64 = 40;
/// Rounds without any mistake, before and after: nothing must be found.
const CLEAN_ROUNDS: u64 = 3;

/// How a mistake was found, or that it was not.
pub struct Found {
    /// The mistake.
    pub bug: Bug,
    /// The trial that failed, and what it said first; `None` if none did.
    pub by: Option<(&'static str, String)>,
    /// Time that it took.
    pub elapsed: Duration,
}

/// Makes each mistake in turn, or only that one.
pub fn find_all(only: Option<&str>, mut each: impl FnMut(&Found)) -> bool {
    std::panic::set_hook(Box::new(|_| {}));
    let subject = larger(TailKind::Buffered);
    let clean = || (0..CLEAN_ROUNDS).find_map(|round| try_round(&subject, round));
    if let Some((trial, said)) = clean() {
        drop(std::panic::take_hook());
        panic!("without any mistake, {trial} found: {said}");
    }
    let mut all = true;
    for bug in BUGS.into_iter().filter(|bug| only.is_none_or(|only| only == format!("{bug:?}"))) {
        seed_bug(Some(bug));
        let began = Instant::now();
        let mut by = None;
        for round in 0.. {
            by = try_round(&subject, round);
            if by.is_some() || began.elapsed() > LIMIT {
                break;
            }
        }
        seed_bug(None);
        all &= by.is_some();
        each(&Found { bug, by, elapsed: began.elapsed() });
    }
    if let Some((trial, said)) = clean() {
        drop(std::panic::take_hook());
        panic!("after all mistakes, {trial} found: {said}");
    }
    all
}

/// The mistake that real disks must show, too: their syncs are not simulated.
const ON_DISKS: Bug = Bug::NoSync;
/// Lives of each backend, and images of each, among which a mistake must show.
const DISK_LIVES: &str = "20";
const DISK_IMAGES: &str = "20";
/// Exit code of a process that panicked: a check failed, rather than something that it needs to run.
const PANICKED: i32 = 101;

/// Makes the engine never sync on real disks, with each backend. Answers whether the trials found that.
pub fn find_on_disks(mut each: impl FnMut(Bug, &str, &str, Duration)) -> bool {
    let mut all = true;
    for backend in BACKENDS {
        let began = Instant::now();
        let program = std::env::current_exe().expect("this program");
        let tried = private(&program)
            .args(["power", backend, DISK_LIVES, DISK_IMAGES, &format!("{ON_DISKS:?}")])
            .output()
            .expect("a process");
        let said = String::from_utf8_lossy(&tried.stderr);
        // The message stands behind an empty line and the line that says where.
        let said = said.lines().nth(2).filter(|_| tried.status.code() == Some(PANICKED));
        all &= said.is_some();
        each(ON_DISKS, backend, said.unwrap_or("NOT FOUND"), began.elapsed());
    }
    all
}

/// Makes a round of all trials, the quick ones first, and answers the first that failed.
fn try_round(subject: &Subject, round: u64) -> Option<(&'static str, String)> {
    let damages = DAMAGES * round..DAMAGES * (round + 1);
    let faults = Plan { catches_up: true, marks: false, ..Plan::of(round % LIVES, 25) };
    let crashed = CRASHED * round..CRASHED * (round + 1);
    failing("crash images", || crashed.map(|seed| crash_everywhere(Plan::of(seed, 60), 2)).sum::<u64>())
        .or_else(|| failing("torn tails", || (TAILS * round..TAILS * (round + 1)).map(tear).sum::<u64>()))
        .or_else(|| {
            failing("compactions", || {
                (COMPACTIONS * round..COMPACTIONS * (round + 1)).map(compact).sum::<u64>()
            })
        })
        .or_else(|| failing("cut files", || (CUTS * round..CUTS * (round + 1)).map(cut).sum::<u64>()))
        .or_else(|| failing("damage", || damages.filter(|seed| subject.damage(*seed)).count()))
        .or_else(|| failing("failing calls", || fail_everywhere(&faults)))
        .or_else(|| {
            let seed = CAMPAIGN_SEED + CAMPAIGN * round;
            failing("the damage campaign", || campaign(CAMPAIGN, seed))
        })
}

fn failing<T>(trial: &'static str, run: impl FnOnce() -> T) -> Option<(&'static str, String)> {
    let failed = catch_unwind(std::panic::AssertUnwindSafe(run)).err()?;
    Some((trial, message(&*failed).lines().next().unwrap_or_default().to_owned()))
}
