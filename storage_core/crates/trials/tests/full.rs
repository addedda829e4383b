//! A real file system that is full again and again. The test says aloud where it cannot run.
#![allow(clippy::unwrap_used, reason = "tests unwrap")]

use std::path::Path;
use std::thread;
use std::time::Instant;

use walrus_trials::mounts::{cannot_mount, private};
use walrus_trials::power::BACKENDS;
use walrus_trials::{effort, say};

const CYCLES: u64 = 100;

fn fill(backend: &str) {
    let began = Instant::now();
    let cycles = effort(CYCLES).to_string();
    let tried = private(Path::new(env!("CARGO_BIN_EXE_walrus-trials")))
        .args(["full", backend, &cycles])
        .output()
        .unwrap();
    assert!(tried.status.success(), "{backend}: {}", String::from_utf8_lossy(&tried.stderr));
    let said = String::from_utf8_lossy(&tried.stdout);
    say(&format!("a full disk, {backend}: {} in {:.1} s", said.trim(), began.elapsed().as_secs_f64()));
}

#[test]
fn a_disk_that_fills_up_is_freed_and_filled_again_and_nothing_piles_up() {
    if let Some(reason) = cannot_mount() {
        say(&format!("a full disk: NOT RUN: {reason}"));
        return;
    }
    thread::scope(|scope| {
        for backend in BACKENDS {
            scope.spawn(move || fill(backend));
        }
    });
}
