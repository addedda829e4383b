//! A store in a forked child of the process that opened it. The tests are alone in their program, since they fork while
//! their own threads work.
#![allow(clippy::unwrap_used, reason = "tests unwrap")]
#![expect(unsafe_code, reason = "forks are made of system calls")]

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use walrus_log::{Offset, Options, Retention, Walrus};

/// Seconds after which a child counts as hanging; the system ends it then.
const LONG_S: u32 = 60;

/// Forks, does the work in the child, and returns its result, which is the child's exit code; or the negative number of
/// the signal that ended the child.
fn in_child(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child leaves by `_exit`, and so runs no code of its parent's exit. glibc lets it allocate.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(LONG_S);
            libc::_exit(work());
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
    }
}

/// Drops the answer of a call, so that calls of all types can stand in one list.
fn forget<T>(_answer: T) {}

/// A call that returns no error once waited for a lock that a thread of the parent held, and hung; or it told what was
/// true before the fork.
#[test]
fn a_call_that_has_no_error_to_give_panics_in_a_child_and_never_waits() {
    let directory = tempfile::tempdir().unwrap();
    let walrus = Walrus::open(directory.path(), Options::small()).unwrap();
    walrus.append_for_topic("t", b"before").unwrap();
    let (store, topic) = (walrus.store(), walrus.topic("t").unwrap());
    let (log, cursor) = (topic.log(), topic.cursor());
    let hold = log.hold("test", Offset(0));
    let calls: [&(dyn Fn() + Sync); 24] = [
        &|| forget(walrus.find("t")),
        &|| forget(walrus.topics()),
        &|| forget(walrus.get_topic_entry_count("t")),
        &|| forget(walrus.get_topic_entry_counts()),
        &|| forget(walrus.get_topic_size("t")),
        &|| forget(walrus.topic_is_clean("t")),
        &|| forget(store.logs()),
        &|| forget(store.log(log.id())),
        &|| forget(store.property("key")),
        &|| forget(store.properties()),
        &|| forget(store.has_lost_promises()),
        &|| forget(store.stats()),
        &|| forget(log.cursors()),
        &|| forget(log.digest()),
        &|| forget(log.producers()),
        &|| forget(log.is_crowded_with_producers()),
        &|| forget(log.is_clean()),
        &|| log.set_retention(Retention::default()),
        &|| forget(log.retention()),
        &|| forget(log.floor()),
        &|| forget(log.hold("child", Offset(0))),
        &|| hold.advance(Offset(0)),
        &|| forget(cursor.position()),
        &|| forget(cursor.unread()),
    ];
    let is_refused = |call: &dyn Fn()| {
        let said = catch_unwind(AssertUnwindSafe(call)).err().and_then(|said| said.downcast::<String>().ok());
        said.is_some_and(|said| said.contains("before this process was forked"))
    };
    // The default hook prints, which waits for a lock of its own.
    set_hook(Box::new(|_| ()));
    let is_over = AtomicBool::new(false);
    let codes: Vec<i32> = thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    topic.append(b"parent's").unwrap();
                    calls.iter().for_each(|call| call());
                }
            });
        }
        let first_taken = || {
            calls
                .iter()
                .position(|call| !is_refused(call))
                .map_or(0, |place| 1 + i32::try_from(place).unwrap())
        };
        let codes = (0..20).map(|_| in_child(first_taken)).collect();
        is_over.store(true, Ordering::Relaxed);
        codes
    });
    drop(std::panic::take_hook());
    assert_eq!(codes, [0; 20], "0, or which call was taken, or the signal that ended a child that hung");
    walrus.close().unwrap();
}
