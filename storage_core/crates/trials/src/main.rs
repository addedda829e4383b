//! The processes that trials start: `device` serves a disk, `power` cuts its power, in a mount namespace of
//! its own; `full` fills one there; `no_room` leaves a store there not one free byte, and `fills` is its process that is killed; `damage` damages stores: what `make damage` runs; with the feature `seeded-bugs`, `bugs`: what `make bugs` runs.

use std::path::Path;
use std::process::ExitCode;

use walrus_log::Backend;
use walrus_trials::device::serve;
use walrus_trials::full::{fill_often, grown};
use walrus_trials::no_room::{FileSystem, fill_and_kill, live};
use walrus_trials::power::cut_power;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["device", image, log, at] => code(serve(Path::new(image), Path::new(log), Path::new(at))),
        ["power", backend, lives, images] => power(backend, lives, images),
        ["no_room", backend, "tmpfs"] => no_room(backend, FileSystem::Tmpfs),
        ["no_room", backend, "ext4"] => no_room(backend, FileSystem::Ext4),
        ["fills", backend, life, directory] => {
            let life = life.parse().expect("a number");
            code(live(backend.parse().expect("a backend"), life, Path::new(directory)))
        }
        ["full", backend, cycles] => full(backend, cycles),
        ["damage", count, seed] => damage(count, seed),
        #[cfg(feature = "seeded-bugs")]
        ["power", backend, lives, images, bug] => {
            let mistake = walrus_log::BUGS.into_iter().find(|mistake| format!("{mistake:?}") == bug);
            walrus_log::seed_bug(Some(mistake.expect("a mistake")));
            power(backend, lives, images)
        }
        #[cfg(feature = "seeded-bugs")]
        ["bugs"] => bugs(None),
        #[cfg(feature = "seeded-bugs")]
        ["bugs", only] => bugs(Some(only)),
        _ => {
            eprintln!("usage: walrus-trials bugs [NAME] (feature seeded-bugs)");
            ExitCode::FAILURE
        }
    }
}

fn code(done: std::io::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Cuts the power of a disk, and prints how many images were opened.
fn power(backend: &str, lives: &str, images: &str) -> ExitCode {
    let backend: Backend = backend.parse().expect("a backend");
    let [lives, images]: [u64; 2] = [lives, images].map(|number| number.parse().expect("a number"));
    let all = (0..lives).try_fold(0, |all, seed| Ok(all + cut_power(backend, seed, images)?));
    code(all.map(|all: u64| println!("{all}")))
}

/// Damages stores, and prints what was damaged and what came of it.
fn damage(count: &str, seed: &str) -> ExitCode {
    let [count, seed]: [u64; 2] = [count, seed].map(|number| number.parse().expect("a number"));
    println!("{}", walrus_trials::damage::campaign(count, seed));
    ExitCode::SUCCESS
}

/// Fills disks to the last byte, and prints how many records were acknowledged and read.
fn no_room(backend: &str, file_system: FileSystem) -> ExitCode {
    code(fill_and_kill(backend, file_system).map(|records| println!("{records}")))
}

/// Fills a disk again and again, and prints what was appended and what was in use.
fn full(backend: &str, cycles: &str) -> ExitCode {
    let backend: Backend = backend.parse().expect("a backend");
    let filled = fill_often(backend, cycles.parse().expect("a number"));
    code(filled.map(|(uses, bytes)| {
        let last = uses.last().copied().unwrap_or_default();
        println!("{} cycles, {} MiB appended, at last {last:?}", uses.len(), bytes >> 20);
        if let Some(grown) = grown(&uses) {
            panic!("{grown}");
        }
    }))
}

#[cfg(feature = "seeded-bugs")]
fn bugs(only: Option<&str>) -> ExitCode {
    let mut times = Vec::new();
    let all = walrus_trials::bugs::find_all(only, |found| {
        let seconds = found.elapsed.as_secs_f64();
        times.push(seconds);
        let said =
            found.by.as_ref().map_or("NOT FOUND".to_owned(), |(trial, said)| format!("{trial}: {said:.100}"));
        println!("{:24} {seconds:6.2} s  {said}", format!("{:?}", found.bug));
    });
    times.sort_by(f64::total_cmp);
    let Some(worst) = times.last() else { return ExitCode::FAILURE };
    let median = times[times.len() / 2];
    println!("bugs: {} mistakes, median {median:.2} s, at most {worst:.2} s", times.len());
    let found = |all| if all { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if only.is_some() {
        return found(all);
    }
    if let Some(reason) = walrus_trials::mounts::cannot_serve() {
        println!("bugs on a real disk: NOT RUN: {reason}");
        return found(all);
    }
    let on_disks = walrus_trials::bugs::find_on_disks(|bug, backend, said, elapsed| {
        let seconds = elapsed.as_secs_f64();
        println!("{:24} {seconds:6.2} s  {backend} on a real disk: {said:.100}", format!("{bug:?}"));
    });
    found(all && on_disks)
}
