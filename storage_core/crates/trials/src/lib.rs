//! Trials that try to break the storage engine: power failures at every change of the disk, calls that fail, damaged files;
//! and mistakes in the engine that these trials must find.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of trials are small"
)]

use std::io::Write;

#[cfg(feature = "seeded-bugs")]
pub mod bugs;
pub mod checks;
pub mod compactions;
pub mod cuts;
pub mod damage;
pub mod device;
pub mod device_log;
pub mod facts;
pub mod faults;
pub mod full;
pub mod images;
pub mod mounts;
pub mod no_room;
pub mod owner;
pub mod power;
pub mod random;
pub mod rot;
#[cfg(feature = "schedules")]
pub mod schedules;
pub mod tails;

/// The number of times that something is tried: `WALRUS_TEST_EFFORT=20` tries twenty times as much as a normal run.
pub fn effort(normal: u64) -> u64 {
    normal * std::env::var("WALRUS_TEST_EFFORT").ok().and_then(|effort| effort.parse().ok()).unwrap_or(1)
}

/// Prints what was tried, also where the output of tests is kept back.
pub fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}
