//! Group commits: many callers share few syncs, and tasks await their tickets in any runtime.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use support::*;
use walrus_log::batch::Batch;
use walrus_log::{CommitTicket, FsyncSchedule, Log, Offset, Options, SimulatedDisk, Store, TailKind};

#[test]
fn appends_of_many_threads_share_syncs() {
    for backend in BACKENDS {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), &Options { backend, blocks_per_file: 100, ..Options::small() });
        let logs: Vec<_> = (0..8).map(|i| store.create_log(spec(i, "t")).unwrap()).collect();
        let before = store.stats();
        thread::scope(|scope| {
            for (thread, log) in logs.iter().enumerate() {
                scope.spawn(move || {
                    for i in 0..100 {
                        append(log, &numbered(thread as u64 * 100 + i, 200)).unwrap();
                        assert_eq!(log.durable_offset(), Offset(i + 1));
                    }
                });
            }
        });
        let stats = store.stats();
        let commits = stats.commits - before.commits;
        assert!(commits < 800, "{commits} commits for 800 appends");
        assert!(stats.data_syncs - before.data_syncs <= commits);
        for (thread, log) in logs.iter().enumerate() {
            let expected: Vec<_> = (0..100).map(|i| numbered(thread as u64 * 100 + i, 200)).collect();
            assert_eq!(values(log), expected);
        }
    }
}

#[test]
fn readers_see_nothing_that_is_not_durable() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), &Options::small());
    let log = store.create_log(spec(1, "t")).unwrap();
    append(&log, b"one").unwrap();
    let bytes = batch_of(&[b"two"]);
    let appended = log.append(&Batch::parse(&bytes).unwrap().0).unwrap();
    assert_eq!((log.end_offset(), log.durable_offset()), (Offset(2), Offset(1)));
    assert!(log.read(Offset(1), 100).unwrap().batches.is_empty());
    assert!(log.read(Offset(2), 100).is_err());
    appended.commit.wait().unwrap();
    assert_eq!(values(&log), [&b"one"[..], b"two"]);
}

/// A waker that unparks a thread, and counts how often.
struct Unpark(thread::Thread, AtomicU64);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.unpark();
    }
}

#[test]
fn tickets_are_futures() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), &Options::small());
    let log = store.create_log(spec(1, "t")).unwrap();
    let unpark = Arc::new(Unpark(thread::current(), AtomicU64::new(0)));
    let waker = Arc::clone(&unpark).into();
    let mut context = Context::from_waker(&waker);
    for i in 0..50 {
        let tickets: Vec<_> = (0..10)
            .map(|j| {
                let bytes = batch_of(&[&numbered(i * 10 + j, 100)]);
                log.append(&Batch::parse(&bytes).unwrap().0).unwrap().commit
            })
            .collect();
        for ticket in tickets {
            let mut ticket = pin!(ticket);
            loop {
                match ticket.as_mut().poll(&mut context) {
                    Poll::Ready(result) => break result.unwrap(),
                    Poll::Pending => thread::park(),
                }
            }
        }
        assert_eq!(log.durable_offset(), Offset((i + 1) * 10));
    }
    let commits = store.stats().commits;
    assert!(commits <= 500, "{commits}");
}

/// Event loops have one task for many appends; the commit that answers them wakes it once.
#[test]
fn a_task_that_waits_for_many_appends_is_woken_once_for_each_commit() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), &Options::small());
    let log = store.create_log(spec(1, "t")).unwrap();
    let before = store.stats().commits;
    let unpark = Arc::new(Unpark(thread::current(), AtomicU64::new(0)));
    let waker = Arc::clone(&unpark).into();
    let mut context = Context::from_waker(&waker);
    let mut tickets: Vec<_> = (0..500)
        .map(|i| {
            let bytes = batch_of(&[&numbered(i, 100)]);
            Box::pin(log.append(&Batch::parse(&bytes).unwrap().0).unwrap().commit)
        })
        .collect();
    loop {
        tickets.retain_mut(|ticket| match ticket.as_mut().poll(&mut context) {
            Poll::Ready(result) => result.is_err(),
            Poll::Pending => true,
        });
        if tickets.is_empty() {
            break;
        }
        thread::park();
    }
    assert_eq!(log.durable_offset(), Offset(500));
    let (commits, woken) = (store.stats().commits - before, unpark.1.load(Ordering::SeqCst));
    assert!(woken <= commits, "woken {woken} times by {commits} commits");
}

/// Appends a value without waiting for its commit.
fn begin(log: &Log, value: &[u8]) -> CommitTicket {
    let bytes = batch_of(&[value]);
    log.append(&Batch::parse(&bytes).unwrap().0).unwrap().commit
}

fn task() -> (Arc<Unpark>, Waker) {
    let unpark = Arc::new(Unpark(thread::current(), AtomicU64::new(0)));
    (Arc::clone(&unpark), unpark.into())
}

/// A task that waits for several things polls all of them whenever one comes.
#[test]
fn a_task_that_looks_again_is_woken_once_all_the_same() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = Store::open_on(Arc::new(disk.clone()), Options::small()).unwrap();
    let log = store.create_log(spec(1, "t")).unwrap();
    append(&log, b"first").unwrap(); // The log has its block now.
    disk.set_stalled(true);
    let mut tickets = [begin(&log, b"one"), begin(&log, b"two")].map(Box::pin);
    let tasks = [task(), task()];
    for _ in 0..3 {
        for (ticket, (_, waker)) in tickets.iter_mut().zip(&tasks) {
            assert!(ticket.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        }
    }
    disk.set_stalled(false);
    log.commit().unwrap();
    store.close().unwrap(); // The committing thread ends only after it has woken all tasks.
    assert_eq!(tasks.map(|(unpark, _)| unpark.1.load(Ordering::SeqCst)), [1, 1]);
}

#[test]
fn an_append_that_is_alone_on_a_quick_disk_is_better_waited_for() {
    alone_and_not(TailKind::Buffered);
}

/// With mappings the kernel writes the bytes, so a commit is not measured by the bytes that it wrote itself.
#[test]
fn an_append_that_is_alone_on_a_quick_mapped_disk_is_better_waited_for() {
    alone_and_not(TailKind::Mapped);
}

fn alone_and_not(kind: TailKind) {
    let disk = SimulatedDisk::new(kind);
    let store = Store::open_on(Arc::new(disk.clone()), Options::small()).unwrap();
    let log = store.create_log(spec(1, "t")).unwrap();
    let alone = begin(&log, b"alone");
    assert!(alone.is_better_waited_for());
    alone.wait().unwrap();

    // A large append is often one of a stream, so the next is not alone for long.
    begin(&log, &[7; 40_000]).wait().unwrap();
    let behind = begin(&log, b"behind a large one");
    assert!(!behind.is_better_waited_for());
    behind.wait().unwrap();
    // An append behind a small one is better waited for, as soon as a commit was quick; a busy machine may slow some.
    let mut smalls = 0;
    while !begin(&log, b"behind a small one").is_better_waited_for() {
        log.commit().unwrap();
        smalls += 1;
        assert!(smalls < 1_000, "small commits are never quick");
    }
    log.commit().unwrap();

    // An append is not better waited for while a task awaits a commit that is under way.
    disk.set_stalled(true);
    let mut awaited = Box::pin(begin(&log, b"awaited"));
    let (_, waker) = task();
    assert!(awaited.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let beside = begin(&log, b"beside it");
    let was_better = beside.is_better_waited_for();
    disk.set_stalled(false);
    assert!(!was_better);
    beside.wait().unwrap();
    assert_eq!(values(&log).len(), 6 + smalls);
}

#[test]
fn what_needs_no_commit_is_ready_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { fsync: FsyncSchedule::NoFsync, ..Options::small() };
    let store = open(directory.path(), &options);
    let log = store.create_log(spec(1, "t")).unwrap();
    let bytes = batch_of(&[b"x"]);
    let appended = log.append(&Batch::parse(&bytes).unwrap().0).unwrap();
    let unpark = Arc::new(Unpark(thread::current(), AtomicU64::new(0)));
    let waker = Arc::clone(&unpark).into();
    assert!(matches!(pin!(appended.commit).poll(&mut Context::from_waker(&waker)), Poll::Ready(Ok(()))));
    assert_eq!(unpark.1.load(Ordering::SeqCst), 0);
    assert_eq!(values(&log), [b"x"]);
    assert_eq!(store.stats().data_syncs, 0);
}
