//! Whatever the order of threads: what is acknowledged is durable, readers see whole batches in order, and nobody waits for ever.
#![allow(clippy::cast_possible_truncation, reason = "numbers of trials are small")]

use std::sync::Mutex;
use std::time::Instant;

use walrus_log::seed_bug;
use walrus_trials::schedules::{BUGS, SCENES, Scene, explore, find};
use walrus_trials::{effort, say};

/// Random orders of each scene, and half as many with priorities.
const SCHEDULES: u64 = 1_000;
/// Limit on the orders in which one mistake is looked for.
const SCHEDULES_MAX: usize = 4_000;

/// Held by each test, because a mistake is made by all stores of the process.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn every_order_keeps_the_promises() {
    let _alone = ALONE.lock();
    let mut all = 0;
    for scene in SCENES {
        let began = Instant::now();
        let schedules = explore(scene, 1, effort(SCHEDULES) as usize);
        say(&format!("schedules, {scene:?}: {schedules} in {:.1} s", began.elapsed().as_secs_f64()));
        all += schedules;
    }
    assert!(all >= effort(SCHEDULES) * SCENES.len() as u64, "{all} schedules");
}

#[test]
fn mistakes_in_the_order_are_found() {
    let _alone = ALONE.lock();
    std::panic::set_hook(Box::new(|_| {}));
    for (bug, scene) in BUGS {
        seed_bug(Some(bug));
        let began = Instant::now();
        let said = find(scene, 1, SCHEDULES_MAX);
        seed_bug(None);
        let seconds = began.elapsed().as_secs_f64();
        say(&format!(
            "{bug:?} in {scene:?}: {seconds:.2} s, {:.100}",
            said.as_deref().unwrap_or("NOT FOUND")
        ));
        assert!(said.is_some(), "{bug:?} was not found");
    }
    let _ = std::panic::take_hook();
    assert_eq!(find(Scene::Publication, 2, 20), None, "without a mistake");
}
