//! A power failure at any moment leaves a store that holds all that was promised, in order, with nothing torn.
#![allow(clippy::unwrap_used, reason = "tests unwrap")]

use std::time::Instant;

use walrus_trials::images::crash_everywhere;
use walrus_trials::owner::Plan;
use walrus_trials::{effort, say};

/// Lives that each of the tests below crashes at all of their changes.
const LIVES: u64 = 40;
/// Images of each change.
const IMAGES: u64 = 2;
/// Calls of a life.
const STEPS: u64 = 60;

fn crash(what: &str, seeds: impl Iterator<Item = u64>, expected: u64) {
    let began = Instant::now();
    let images: u64 = seeds.map(|seed| crash_everywhere(Plan::of(seed, STEPS), IMAGES)).sum();
    say(&format!(
        "crash images, {what}: {images} opened and checked in {:.1} s",
        began.elapsed().as_secs_f64()
    ));
    assert!(images >= expected, "{images} images are fewer than {expected}");
}

/// Seeds of mapped tails are even.
#[test]
fn every_image_of_a_mapped_store_holds_what_was_promised() {
    crash("mapped", (0..effort(LIVES)).map(|seed| 2 * seed), 11_000);
}

#[test]
fn every_image_of_a_buffered_store_holds_what_was_promised() {
    crash("buffered", (0..effort(LIVES)).map(|seed| 2 * seed + 1), 11_000);
}
