//! A power failure on a real file system: the disk, ext4 and the kernel's caches are no simulation. Says aloud where it
//! cannot run.
#![allow(clippy::unwrap_used, reason = "tests unwrap")]

use std::path::Path;
use std::time::Instant;

use walrus_trials::mounts::{cannot_serve, private};
use walrus_trials::power::BACKENDS;
use walrus_trials::{effort, say};

/// Lives of each backend: each schedule comes twice.
const LIVES: u64 = 8;
/// Images of each life.
const IMAGES: u64 = 10;

#[test]
fn every_image_of_a_real_disk_holds_what_was_promised() {
    if let Some(reason) = cannot_serve() {
        say(&format!("power failures on a real disk: NOT RUN: {reason}"));
        return;
    }
    for backend in BACKENDS {
        let began = Instant::now();
        let tried = private(Path::new(env!("CARGO_BIN_EXE_walrus-trials")))
            .args(["power", backend])
            .args([effort(LIVES), IMAGES].map(|number| number.to_string()))
            .output()
            .unwrap();
        assert!(tried.status.success(), "{backend}: {}", String::from_utf8_lossy(&tried.stderr));
        let images: u64 = String::from_utf8_lossy(&tried.stdout).trim().parse().unwrap();
        assert!(images >= LIVES * IMAGES, "{images} images");
        let seconds = began.elapsed().as_secs_f64();
        say(&format!(
            "power failures on a real disk, {backend}: {images} images opened and checked in {seconds:.1} s"
        ));
    }
}
