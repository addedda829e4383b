//! Whichever call of the disk fails, and however: nothing promised is lost, before or afterwards, and the caller is told.
#![allow(clippy::unwrap_used, reason = "tests unwrap")]

use std::time::Instant;

use walrus_trials::faults::{Tried, fail_everywhere, fail_recoveries};
use walrus_trials::owner::Plan;
use walrus_trials::{effort, say};

/// Lives, each of whose calls fails in turn.
const LIVES: u64 = 12;
/// Calls of a life.
const STEPS: u64 = 25;
/// Crashes of each life whose recoveries fail.
const CRASHES: u64 = 2;

/// Plans whose calls come in one order.
fn plans() -> impl Iterator<Item = Plan> {
    (0..effort(LIVES)).map(|seed| Plan { catches_up: true, marks: false, ..Plan::of(seed, STEPS) })
}

fn told(what: &str, began: Instant, tried: Tried) {
    let Tried { faults, images } = tried;
    let seconds = began.elapsed().as_secs_f64();
    say(&format!("{what}: {faults} faults, {images} images opened and checked in {seconds:.1} s"));
    assert!(faults > 1500, "{faults} faults");
}

#[test]
fn whichever_call_of_a_life_fails_what_is_promised_is_there() {
    let (began, mut tried) = (Instant::now(), Tried::default());
    plans().for_each(|plan| tried += fail_everywhere(&plan));
    told("failing calls of lives", began, tried);
}

#[test]
fn whichever_call_of_a_recovery_fails_the_next_one_finds_everything() {
    let (began, mut tried) = (Instant::now(), Tried::default());
    plans().for_each(|plan| tried += fail_recoveries(&plan, CRASHES));
    told("failing calls of recoveries", began, tried);
}
