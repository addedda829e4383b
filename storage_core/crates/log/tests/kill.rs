//! Kills (SIGKILL) in the middle of appends, again and again on the same directory: acknowledged records are there
//! afterwards, with mapped tails also those that were never synced; they run on ext4, tmpfs,
//! overlayfs and ramfs, too. A ramfs takes no direct writes.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use support::*;
use walrus_log::{LogId, Offset, Options};

/// Runs in the child process: appends from several threads and prints each acknowledged append, until it is killed.
#[test]
#[ignore = "started by the tests below, which kill it"]
fn appends_until_killed() {
    let [directory, backend, fsync, round] = ["KILL_DIRECTORY", "KILL_BACKEND", "KILL_FSYNC", "KILL_ROUND"]
        .map(|name| std::env::var(name).unwrap());
    let round: u64 = round.parse().unwrap();
    let store = open(Path::new(&directory), &options(&backend, &fsync));
    thread::scope(|scope| {
        for log in 0..3_u64 {
            let handle = store.create_log(spec(u128::from(log) + 1, "log")).unwrap();
            scope.spawn(move || {
                for i in 0.. {
                    let number = (round << 40) | i;
                    let size = 8 + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize % 3000;
                    let offset = append(&handle, &value(number, size)).unwrap();
                    // A line is written by one call, so it is whole or not there.
                    let line = format!("ack {log} {offset} {number} {size}\n");
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
}

/// A value that starts with its number and repeats the lowest byte of that.
fn value(number: u64, size: usize) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(size, number as u8);
    value
}

fn options(backend: &str, fsync: &str) -> Options {
    let (backend, fsync) = (backend.parse().unwrap(), fsync.parse().unwrap());
    Options { backend, fsync, blocks_per_file: 8, ..Options::small() }
}

/// Number of kills for each backend and schedule.
const ROUNDS: u64 = 70;
/// Number of them on each file system that is mounted for this.
const ROUNDS_MOUNTED: &str = "12";

fn rounds() -> u64 {
    std::env::var("KILL_ROUNDS").ok().map_or(ROUNDS, |rounds| rounds.parse().unwrap())
}

/// Held by the one test that may start processes: a process that is started holds the locks of the other tests' stores
/// for a moment.
static STARTING: Mutex<()> = Mutex::new(());

fn acknowledged_survives(backend: &str, fsync: &str) {
    let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random(std::process::id().into());
    let mut acknowledged: HashMap<(u64, u64), (u64, usize)> = HashMap::new();
    for round in 0..effort(rounds()) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "appends_until_killed", "--ignored", "--nocapture"])
            .env("KILL_DIRECTORY", directory.path())
            .env("KILL_BACKEND", backend)
            .env("KILL_FSYNC", fsync)
            .env("KILL_ROUND", round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines =
            lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("ack ").map(str::to_owned));
        let mut note = |line: String| {
            let fields: Vec<u64> = line.split(' ').map(|field| field.parse().unwrap()).collect();
            let before = acknowledged.insert((fields[0], fields[1]), (fields[2], fields[3] as usize));
            assert_eq!(before, None, "an offset was given twice: {line}");
        };
        for _ in 0..20 + random.below(300) {
            note(lines.next().expect("the child appends until it is killed"));
        }
        child.kill().unwrap();
        lines.for_each(&mut note);
        child.wait().unwrap();
        let store = open(directory.path(), &options(backend, fsync));
        assert!(!store.report().clean);
        assert_eq!(store.report().corrupted, []);
        for log in 0..3 {
            let mine: Vec<_> = acknowledged.iter().filter(|((of, _), _)| *of == log).collect();
            let Some(handle) = store.log(LogId(uuid::Uuid::from_u128(u128::from(log) + 1))) else {
                assert!(mine.is_empty(), "round {round}: log {log} is gone");
                continue;
            };
            let (records, fences) = read_from(&handle, Offset(0), 1 << 20);
            assert_eq!(fences, []);
            for (&(_, offset), &(number, size)) in mine {
                let Some((at, value)) = records.get(offset as usize) else {
                    panic!("round {round}: offset {offset} of log {log} was acknowledged and is gone");
                };
                assert_eq!(*at, offset);
                assert_eq!(*value, self::value(number, size), "round {round}: offset {offset} of log {log}");
            }
        }
    }
    assert!(acknowledged.len() > 300);
}

#[test]
fn acknowledged_appends_survive_kills_with_mmap() {
    acknowledged_survives("mmap", "each");
}

#[test]
fn acknowledged_appends_survive_kills_with_direct() {
    acknowledged_survives("direct", "each");
}

#[test]
fn acknowledged_appends_survive_kills_with_io_uring() {
    acknowledged_survives("io_uring", "each");
}

/// The kernel has what was stored into a mapping, whether it was synced or not.
#[test]
fn appends_that_never_sync_survive_kills_with_mmap() {
    acknowledged_survives("mmap", "never");
}

#[test]
fn appends_that_sync_later_survive_kills_with_mmap() {
    acknowledged_survives("mmap", "5ms");
}

#[test]
fn on_each_file_system() {
    for (kind, _) in run_on_each_file_system(&[("KILL_ROUNDS", ROUNDS_MOUNTED)], "kills") {
        say(&format!("kills on {kind}: {ROUNDS_MOUNTED} of each backend and schedule"));
    }
}
