//! The program that `make model` and `make simulate` run: `model [STATES]`, `simulate [COUNT] [FIRST]`, and with the feature
//! `seeded-bugs` `bugs`. It prints counts, and the seed or the shortest trace of what it finds.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

#[cfg(feature = "seeded-bugs")]
use walrus_simulator::mistake::Mistake;
#[cfg(feature = "seeded-bugs")]
use walrus_simulator::model::text_of;
use walrus_simulator::model::{Report, search};
#[cfg(feature = "seeded-bugs")]
use walrus_simulator::simulation::setting_of;
use walrus_simulator::simulation::{Tally, run};
use walrus_simulator::suite::searches;
#[cfg(feature = "seeded-bugs")]
use walrus_simulator::world::Violation;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(Some(default), |text| text.parse().ok());
    match (arguments.first().map(String::as_str), number(1, 0), number(2, 0)) {
        (Some("model"), Some(states), _) => model(if states == 0 { 2_200_000 } else { states }),
        (Some("simulate"), Some(count), Some(first)) => {
            simulate(if count == 0 { 10_000 } else { count }, first)
        }
        #[cfg(feature = "seeded-bugs")]
        (Some("bugs"), ..) => bugs(),
        _ => {
            eprintln!(
                "usage: walrus-simulator model [STATES] | simulate [COUNT] [FIRST SEED] | bugs (feature seeded-bugs)"
            );
            ExitCode::FAILURE
        }
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(8)
}

/// Shares the states among the searches; states that one does not need are left to the next.
fn model(states: u64) -> ExitCode {
    let (all, started) = (searches(None), Instant::now());
    let (mut total, mut depth_max) = (0, 0);
    let wanted = usize::try_from(states).unwrap_or(usize::MAX);
    for (index, one) in all.iter().enumerate() {
        let share = wanted.saturating_sub(total) / (all.len() - index);
        let Report { states, depth, exhausted, found, elapsed } =
            search(&one.setting, &one.events, share, threads());
        let how = if exhausted { "exhausted" } else { "bounded" };
        println!("{:32} {states:9} states, depth {depth:3}, {how}, {:.1} s", one.name, elapsed.as_secs_f64());
        if let Some(trace) = found {
            println!("{trace}");
            return ExitCode::FAILURE;
        }
        total += states;
        depth_max = depth_max.max(depth);
    }
    println!(
        "model: {total} distinct states, depth {depth_max}, no violation, {:.1} s",
        started.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}

fn simulate(count: u64, first: u64) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let started = Instant::now();
    // Lives of coordinators take much longer than others: each thread takes the next seed when it is through with one.
    let seeds = Mutex::new(first..first.saturating_add(count));
    let outcomes: Vec<Result<Tally, u64>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads()).map(|_| scope.spawn(|| live(&seeds))).collect();
        workers.into_iter().map(|worker| worker.join().expect("violations are values")).collect()
    });
    let mut tally = Tally::default();
    let mut failed = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(part) => tally.add(part),
            Err(seed) => failed.push(seed),
        }
    }
    if let Some(seed) = failed.into_iter().min() {
        let violation = run(seed, None).err().map_or_else(String::new, |violation| violation.0);
        println!("simulate: seed {seed}: {violation}\nagain: make simulate SEED={seed} COUNT=1");
        return ExitCode::FAILURE;
    }
    report(&tally, started.elapsed());
    ExitCode::SUCCESS
}

/// Lives one seed after the other, until none is left. A seed that fails leaves no more to the others: those before it are
/// under way.
fn live(seeds: &Mutex<Range<u64>>) -> Result<Tally, u64> {
    let mut tally = Tally::default();
    loop {
        let next = seeds.lock().expect("nobody panics in between").next();
        let Some(seed) = next else { return Ok(tally) };
        match run(seed, None) {
            Ok(part) => tally.add(part),
            Err(_) => {
                *seeds.lock().expect("nobody panics in between") = 0..0;
                return Err(seed);
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "printed with one digit")]
fn report(tally: &Tally, elapsed: Duration) {
    let simulated = tally.simulated_us as f64 / 1e6;
    println!(
        "simulate: {} schedules, {} events, {} faults, {} recoveries, {} segments sealed, {} batches acknowledged, \
         {} losses told, {} holes filled, {} ranges lost everywhere, {} segments compacted, {} trimmed, {} readings, {} commits of groups through {} takeovers and {} trims, no violation; {:.1} simulated days in {:.1} s, {:.0} times as fast as the clock",
        tally.schedules,
        tally.events,
        tally.faults,
        tally.recoveries,
        tally.sealed,
        tally.acknowledged,
        tally.losses_told,
        tally.filled,
        tally.lost,
        tally.compacted,
        tally.trimmed,
        tally.readings,
        tally.commits,
        tally.takeovers,
        tally.owner_trims,
        simulated / 86_400.0,
        elapsed.as_secs_f64(),
        simulated / elapsed.as_secs_f64(),
    );
}

/// Makes one mistake after another, and looks for each: first in random lives, then in every order of few events.
#[cfg(feature = "seeded-bugs")]
fn bugs() -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let in_replicas = walrus_replica::BUGS.iter().map(|bug| Mistake::Replica(*bug));
    let (mut missed, mut caught) = (Vec::new(), 0);
    for mistake in in_replicas.chain(walrus_simulator::mistake::OF_THE_DRIVER) {
        walrus_replica::seed_bug(match mistake {
            Mistake::Replica(bug) => Some(bug),
            _ => None,
        });
        let started = Instant::now();
        let found = find(mistake);
        let seconds = started.elapsed().as_secs_f64();
        match found {
            Some(what) => {
                caught += 1;
                println!("caught {mistake:?} in {seconds:.2} s {what}");
            }
            None => {
                println!("MISSED {mistake:?} after {seconds:.1} s");
                missed.push(mistake);
            }
        }
    }
    println!("bugs: {caught} caught, {} missed", missed.len());
    if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(feature = "seeded-bugs")]
fn find(mistake: Mistake) -> Option<String> {
    const LIVES: usize = 1_000;
    const STATES: usize = 60_000;
    for (name, scenario) in walrus_simulator::scenario::SCENARIOS {
        // Some mistakes show before the events begin.
        let outcome = std::panic::catch_unwind(|| scenario(Some(mistake)));
        let failed = |panic: Box<dyn std::any::Any + Send>| Err(Violation(text_of(&*panic)));
        if let Err(violation) = outcome.unwrap_or_else(failed) {
            return Some(format!(
                "by the scenario {name:?}: {}",
                violation.0.chars().take(90).collect::<String>()
            ));
        }
    }
    let is_meant = |seed: &u64| !mistake.is_of_coordinators() || setting_of(*seed, None).coordinates;
    for seed in (0..).filter(is_meant).take(LIVES) {
        if let Err(violation) = run(seed, Some(mistake)) {
            let what: String = violation.0.chars().take(90).collect();
            return Some(format!("by seed {seed}: {what}"));
        }
    }
    searches(Some(mistake)).into_iter().find_map(|one| {
        let trace = search(&one.setting, &one.events, STATES, threads()).found?;
        let what: String = trace.violation.0.chars().take(90).collect();
        Some(format!("by {:?} in {} events: {what}", one.name, trace.events.len()))
    })
}
