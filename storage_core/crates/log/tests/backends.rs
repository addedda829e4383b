//! The backend that a store uses, and its reason not to use another; also where a seccomp filter forbids io_uring, and on
//! ext4, tmpfs, overlayfs and ramfs.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]
#![allow(unsafe_code, reason = "a thread forbids itself a system call")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use support::*;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use walrus_log::{Backend, LogId, Options, Store};

fn options(backend: Backend) -> Options {
    Options { backend, block_bytes: 2 << 20, ..Options::small() }
}

/// Number of batches, entries of each batch, and bytes of each entry, for four logs: they make small commits, commits of
/// several logs, and large commits.
const SHAPES: [(u64, usize, usize); 4] = [(10, 1, 700), (20, 1, 3000), (20, 1, 3000), (6, 100, 10_000)];

fn entries(log: u64, batch: u64) -> Vec<Vec<u8>> {
    let (_, count, size) = SHAPES[log as usize];
    (0..count as u64).map(|i| numbered(log * 1_000_000 + batch * 1000 + i, size)).collect()
}

/// Appends to four logs from four threads, behind the batches of `rounds` earlier fills.
fn fill(store: &Store, rounds: u64) {
    thread::scope(|scope| {
        for (log, (batches, ..)) in (0..).zip(SHAPES) {
            let handle = store.create_log(spec(u128::from(log) + 1, "log")).unwrap();
            scope.spawn(move || {
                for batch in rounds * batches..(rounds + 1) * batches {
                    let entries = entries(log, batch);
                    append_all(&handle, &entries.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
                }
            });
        }
    });
}

/// Checks that the logs hold the batches of `rounds` fills.
fn check(store: &Store, rounds: u64) {
    for (log, (batches, ..)) in (0..).zip(SHAPES) {
        let found = store.log(LogId(uuid::Uuid::from_u128(u128::from(log) + 1))).unwrap();
        let expected: Vec<_> = (0..rounds * batches).flat_map(|batch| entries(log, batch)).collect();
        // `assert_eq` would print megabytes.
        assert!(values(&found) == expected, "log {log} after {rounds} rounds");
    }
}

#[test]
fn stores_go_from_backend_to_backend() {
    let directory = tempfile::tempdir().unwrap();
    for (round, backend) in (0..).zip([BACKENDS, BACKENDS].concat()) {
        let store = open(directory.path(), &options(backend));
        fill(&store, round);
        check(&store, round + 1);
        store.close().unwrap();
        let store = open(directory.path(), &options(backend));
        check(&store, round + 1);
    }
}

#[test]
fn a_backend_that_was_asked_for_is_used_or_the_report_says_why_not() {
    let directory = tempfile::tempdir().unwrap();
    for (backend, name) in BACKENDS.into_iter().zip(["mmap", "direct", "io_uring"]) {
        let store = open(directory.path(), &options(backend));
        let (in_use, stats) = (store.backend(), store.stats());
        assert_eq!((stats.backend, stats.synced_writes), (in_use.name, in_use.synced_writes.name()));
        drop(store);
        assert!(in_use.name == name || in_use.refused.is_some(), "{in_use:?}");
        println!("{name} is {in_use:?}");
        assert_eq!(name.parse::<Backend>().unwrap(), backend);
    }
}

/// Lets io_uring_setup fail with EPERM in this thread, and in those that it starts, as container runtimes do.
fn forbid_io_uring() {
    /// Number of the system call, which is the same on every architecture.
    const IO_URING_SETUP: u32 = 425;
    let instruction = |code, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        // The filter loads the number of the system call, which is the first field of its data.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, IO_URING_SETUP),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its instructions live until the call returns; the kernel copies them.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(set, "{}", std::io::Error::last_os_error());
}

/// A subscriber that counts warnings and errors.
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn without_io_uring(directory: &Path) {
    forbid_io_uring();
    let warnings = Arc::new(AtomicUsize::new(0));
    let store = tracing::subscriber::with_default(Warnings(Arc::clone(&warnings)), || {
        let store = open(directory, &options(Backend::IoUring));
        fill(&store, 1);
        store
    });
    let in_use = store.backend();
    assert!(["direct", "mmap"].contains(&in_use.name), "{in_use:?}");
    // If the file system refuses O_DIRECT, io_uring is not even tried.
    let refused = in_use.refused.unwrap();
    let why = if in_use.name == "direct" { "io_uring: Operation not permitted" } else { "direct: " };
    assert!(refused.contains(why), "{refused}");
    assert_eq!(warnings.load(Ordering::SeqCst), 1, "said once");
    check(&store, 2);
}

#[test]
fn where_io_uring_is_forbidden_the_store_falls_back_says_so_once_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), &options(Backend::IoUring));
    fill(&store, 0);
    store.close().unwrap();
    let path = directory.path().to_owned();
    // A filter cannot be taken off its thread, so it gets a thread of its own.
    thread::spawn(move || without_io_uring(&path)).join().unwrap();
    let store = open(directory.path(), &options(Backend::IoUring));
    fill(&store, 2);
    check(&store, 3);
}

#[test]
fn on_each_file_system() {
    for (kind, said) in run_on_each_file_system(&[], "stores") {
        for line in said.lines().filter(|line| line.contains("BackendInUse")) {
            say(&format!("stores on {kind}: {line}"));
            assert_eq!(line.contains("synced_writes: Cached"), kind == "ramfs", "{line}");
        }
    }
}
