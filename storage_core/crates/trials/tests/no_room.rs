//! A store on a real disk without one free byte. Says aloud where it cannot run, and which right is missing.
#![allow(clippy::unwrap_used, reason = "tests unwrap")]

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use walrus_trials::mounts::{cannot_mount, private, private_memory};
use walrus_trials::power::BACKENDS;
use walrus_trials::say;

fn try_on(file_system: &str, backend: &str, private: impl Fn(&Path) -> Command) {
    let began = Instant::now();
    let program = Path::new(env!("CARGO_BIN_EXE_walrus-trials"));
    let tried = private(program).args(["no_room", backend, file_system]).output().unwrap();
    assert!(tried.status.success(), "{file_system}, {backend}: {}", String::from_utf8_lossy(&tried.stderr));
    // Behind what the processes were promised.
    let said = String::from_utf8_lossy(&tried.stdout);
    let records = said.lines().last().unwrap_or_default();
    let seconds = began.elapsed().as_secs_f64();
    say(&format!("no room on {file_system}, {backend}: {} records in {seconds:.1} s", records.trim()));
}

#[test]
fn a_store_on_a_full_tmpfs_frees_ends_and_closes_and_without_its_reserve_it_is_read() {
    match private_memory() {
        Ok(private) => try_on("tmpfs", "mmap", private),
        Err(reason) => say(&format!("no room on tmpfs: NOT RUN: {reason}")),
    }
}

#[test]
fn a_store_on_a_full_ext4_frees_ends_and_closes_and_without_its_reserve_it_is_read() {
    if let Some(reason) = cannot_mount() {
        say(&format!("no room on ext4: NOT RUN: {reason}"));
        return;
    }
    for backend in BACKENDS {
        try_on("ext4", backend, private);
    }
}
