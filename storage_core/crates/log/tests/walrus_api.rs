//! The Walrus API: calls that embedders of the original know, without its faults, and new ones.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use support::*;
use walrus_log::batch::ProducerRef;
use walrus_log::{
    Backend, CrashChoice, Error, FsyncSchedule, Offset, Options, ReadConsistency, Retention, SimulatedDisk,
    TailKind, Walrus,
};

const LONG: Duration = Duration::from_secs(120);

fn on(disk: &SimulatedDisk) -> Walrus {
    Walrus::on(open_on(disk, &Options::small()).unwrap()).unwrap()
}

fn fill(walrus: &Walrus, topic: &str, range: std::ops::Range<u64>) {
    for number in range {
        walrus.append_for_topic(topic, &numbered(number, 100)).unwrap();
    }
}

/// The original skipped the rest of a sealed block after a read that its budget had cut.
#[test]
fn batch_reads_over_many_blocks_return_every_record_whatever_the_budget() {
    let options = Options {
        backend: Backend::Auto,
        fsync: FsyncSchedule::NoFsync,
        block_bytes: 16 << 10,
        blocks_per_file: 8,
        ..Options::default()
    };
    let walrus = Walrus::on(open_on(&SimulatedDisk::new(TailKind::Buffered), &options).unwrap()).unwrap();
    let records = 1100_u64;
    let mut random = Random(11);
    let mut next = 0;
    while next < records {
        let count = (1 + random.below(40)).min(records - next);
        let values: Vec<_> =
            (next..next + count).map(|n| numbered(n, 8 + random.below(100) as usize)).collect();
        let entries: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        walrus.batch_append_for_topic("t", &entries).unwrap();
        next += count;
    }
    assert!(walrus.get_topic_size("t") > 3 * options.block_bytes, "many blocks");
    let topic = walrus.topic("t").unwrap();
    for budget in (0..120).step_by(3).chain((120..20_000).step_by(331)).chain([1 << 20, usize::MAX]) {
        let cursor = walrus.cursor("t", &format!("budget {budget}")).unwrap();
        let (mut expected, mut stateless) = (0, Offset(0));
        loop {
            let read = cursor.batch_read(budget, true).unwrap();
            if budget > 2000 {
                assert_eq!(read, topic.read_at(stateless, budget).unwrap(), "budget {budget}");
            }
            let Some(last) = read.last() else { break };
            for entry in &read {
                assert_eq!(entry.offset, Offset(expected), "budget {budget}");
                assert_eq!(entry.data[..8], expected.to_le_bytes());
                expected += 1;
            }
            let bytes: usize = read.iter().map(|entry| entry.data.len()).sum();
            assert!(bytes <= budget || read.len() == 1, "budget {budget}");
            stateless = Offset(last.offset.0 + 1);
        }
        assert_eq!(expected, records, "budget {budget}");
    }
}

#[test]
fn at_least_once_repeats_at_most_its_number_after_a_crash_and_none_after_a_close() {
    for persist_every in [0, 1, 3, 10] {
        let disk = SimulatedDisk::new(TailKind::Buffered);
        let consistency = ReadConsistency::AtLeastOnce { persist_every };
        {
            let walrus = on(&disk);
            fill(&walrus, "t", 0..100);
            let log = walrus.topic("t").unwrap().log().clone();
            let cursor = log.cursor_with("c", consistency).unwrap();
            for consumed in 1..=95 {
                assert!(cursor.read_next(true).unwrap().is_some());
                if consumed % 7 == 0 {
                    let crashed = on(&disk.crash_image(disk.changes(), CrashChoice::Nothing));
                    let place = crashed.cursor("t", "c").unwrap().position().0;
                    assert!(place <= consumed, "{place} of {consumed}");
                    let repeated = consumed - place;
                    let at_most = u64::from(persist_every.max(1));
                    assert!((1..=at_most).contains(&repeated), "{repeated} repeated");
                }
            }
            assert_eq!(cursor.read_next(false).unwrap().unwrap().offset, Offset(95));
        }
        let walrus = on(&disk);
        assert_eq!(walrus.cursor("t", "c").unwrap().position(), Offset(95), "after a close");
    }
}

/// The read that reached the number once stored the place behind the entries that it was about to give: a crash before the
/// reader had done anything with them lost up to 2,000 entries.
#[test]
fn a_crash_loses_nothing_of_the_last_at_least_once_read_and_repeats_at_most_the_number_or_that_read() {
    for persist_every in [0, 1, 3, 10, 25, 1000] {
        let disk = SimulatedDisk::new(TailKind::Buffered);
        let walrus = on(&disk);
        fill(&walrus, "t", 0..200);
        let log = walrus.topic("t").unwrap().log().clone();
        let cursor = log.cursor_with("c", ReadConsistency::AtLeastOnce { persist_every }).unwrap();
        for bytes_max in [1, 500, 100, 2000, 1, 1, 700, 100, 3000, 1] {
            let read = cursor.batch_read(bytes_max, true).unwrap();
            let (first, last) = (read[0].offset.0, read.last().unwrap().offset.0);
            let crashed = on(&disk.crash_image(disk.changes(), CrashChoice::Nothing));
            let again = crashed.cursor("t", "c").unwrap().position().0;
            assert!(again <= first, "{again}, but {first}..={last} was just given");
            let repeated = last + 1 - again;
            let at_most = u64::from(persist_every).max(read.len() as u64);
            assert!(repeated <= at_most, "{repeated} repeated, of at most {at_most}");
        }
    }
}

#[test]
fn a_persisted_place_survives_a_crash_and_strict_handles_share_it() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let walrus = on(&disk);
    fill(&walrus, "t", 0..20);
    let log = walrus.topic("t").unwrap().log().clone();
    let lazy = log.cursor_with("c", ReadConsistency::AtLeastOnce { persist_every: 1000 }).unwrap();
    let strict = log.cursor("c").unwrap();
    let place = |disk: &SimulatedDisk| {
        let crashed = on(&disk.crash_image(disk.changes(), CrashChoice::Nothing));
        crashed.cursor("t", "c").unwrap().position().0
    };
    assert_eq!(lazy.batch_read(500, true).unwrap().len(), 5);
    assert_eq!((strict.position(), place(&disk)), (Offset(5), 0));
    lazy.persist().unwrap();
    assert_eq!(place(&disk), 5);
    lazy.read_next(true).unwrap();
    strict.read_next(true).unwrap();
    assert_eq!(place(&disk), 7);
    lazy.persist().unwrap();
    lazy.read_next(true).unwrap();
    log.truncate_to(Offset(3)).unwrap();
    assert_eq!((lazy.position(), lazy.read_next(true).unwrap()), (Offset(3), None));
    assert_eq!(lazy.position(), Offset(3), "an empty read changes nothing");
    fill(&walrus, "t", 100..101);
    assert_eq!(lazy.read_next(true).unwrap().unwrap().data, numbered(100, 100));
}

#[test]
fn counts_and_sizes_are_of_what_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Walrus::builder().data_dir(directory.path()).options(Options::small()).build().unwrap();
    {
        let walrus = open();
        assert_eq!((walrus.get_topic_entry_count("none"), walrus.get_topic_size("none")), (0, 0));
        fill(&walrus, "a", 0..10);
        fill(&walrus, "b", 0..3);
        walrus.read_next("a", true).unwrap();
        walrus.read_next("a", false).unwrap();
        walrus.batch_read_for_topic("a", 1000, true, Some(Offset(5))).unwrap();
        assert_eq!(walrus.get_topic_entry_count("a"), 9);
    }
    let walrus = open();
    let counts = walrus.get_topic_entry_counts();
    assert_eq!(counts, [("a".to_owned(), 9), ("b".to_owned(), 3)].into());
    let size = walrus.get_topic_size("a");
    assert!((1000..3000).contains(&size), "{size}");
    walrus.trim("a", Offset(4)).unwrap();
    assert_eq!(walrus.get_topic_entry_count("a"), 6);
    assert_eq!(walrus.read_next("a", true).unwrap().unwrap().offset, Offset(4));
    assert!(walrus.trim("none", Offset(4)).unwrap().is_none());
}

#[test]
fn a_topic_is_clean_until_its_next_append_also_over_restarts() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let check = |walrus: &Walrus, expected: [bool; 3]| {
        assert_eq!(["a", "b", "unknown"].map(|topic| walrus.topic_is_clean(topic)), expected);
    };
    {
        let walrus = on(&disk);
        walrus.topic("a").unwrap();
        check(&walrus, [true; 3]);
        fill(&walrus, "a", 0..2);
        fill(&walrus, "b", 0..2);
        check(&walrus, [false, false, true]);
        walrus.mark_topic_clean("a").unwrap();
        walrus.mark_topic_clean("b").unwrap();
        check(&walrus, [true; 3]);
        fill(&walrus, "b", 2..3);
    }
    let crashed = on(&disk.crash_image(disk.changes(), CrashChoice::Nothing));
    check(&crashed, [true, false, true]);
    let walrus = on(&disk);
    check(&walrus, [true, false, true]);
    walrus.mark_topic_dirty("a").unwrap();
    check(&walrus, [false, false, true]);
    walrus.mark_topic_clean("b").unwrap();
    let log = walrus.topic("b").unwrap().log().clone();
    log.truncate_to(Offset(1)).unwrap();
    assert!(!log.is_clean(), "a cut changes the log too");
    fill(&walrus, "b", 1..3);
    assert!(!log.is_clean(), "it ends where it did, with something else");
    drop((walrus, log));
    check(&on(&disk), [false, false, true]);
}

#[test]
fn namespaces_share_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let open = |key: &str| {
        Walrus::builder().data_dir(directory.path()).key(key).options(Options::small()).build().unwrap()
    };
    let keys = ["a/b", "a_b", "..", "default"];
    let all: Vec<Walrus> = keys.iter().map(|key| open(key)).collect();
    for (number, walrus) in (0..).zip(&all) {
        fill(walrus, "t", number..number + 1);
    }
    drop(all);
    for (number, key) in (0..).zip(keys) {
        let walrus = open(key);
        assert_eq!(walrus.read_next("t", true).unwrap().unwrap().data, numbered(number, 100));
        assert_eq!(walrus.read_next("t", true).unwrap(), None);
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 4, "all below the directory of data");
    let refused = Walrus::builder().data_dir(directory.path()).key("").build();
    assert!(matches!(refused, Err(Error::InvalidName { .. })));
}

#[test]
fn who_waits_for_a_record_gets_each() {
    for fsync in [FsyncSchedule::SyncEach, FsyncSchedule::NoFsync] {
        let disk = SimulatedDisk::new(TailKind::Mapped);
        let options = Options { fsync, ..Options::small() };
        let walrus = Walrus::on(open_on(&disk, &options).unwrap()).unwrap();
        walrus.topic("t").unwrap();
        let readers: Vec<_> = (0..3)
            .map(|reader| {
                let walrus = walrus.clone();
                thread::spawn(move || {
                    let cursor = walrus.cursor("t", &format!("reader {reader}")).unwrap();
                    for expected in 0..200 {
                        assert!(cursor.wait(LONG).unwrap());
                        assert_eq!(cursor.read_next(true).unwrap().unwrap().offset, Offset(expected));
                    }
                })
            })
            .collect();
        fill(&walrus, "t", 0..200);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert!(walrus.wait_for_data("t", Duration::ZERO).unwrap());
        let log = walrus.topic("t").unwrap().log().clone();
        assert!(!log.wait_for(Offset(200), Duration::ZERO).unwrap());
        assert!(!log.wait_for(Offset(200), Duration::from_millis(1)).unwrap());
    }
}

#[test]
fn a_wait_ends_when_nothing_can_come_any_more() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let walrus = on(&disk);
    let wait = |topic: &str| {
        let log = walrus.topic(topic).unwrap().log().clone();
        thread::spawn(move || log.wait_for(Offset(0), LONG))
    };
    let (sealed, deleted, closed) = (wait("sealed"), wait("deleted"), wait("closed"));
    walrus.topic("sealed").unwrap().log().seal(b"").unwrap();
    walrus.delete_topic("deleted").unwrap();
    assert!(!sealed.join().unwrap().unwrap());
    assert!(matches!(deleted.join().unwrap(), Err(Error::UnknownLog { .. })));
    walrus.close().unwrap();
    assert!(matches!(closed.join().unwrap(), Err(Error::Closed)));
}

/// A waker that unparks the thread that polls.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn an_arrival_can_be_awaited() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let walrus = on(&disk);
    let log = walrus.topic("t").unwrap().log().clone();
    let arrival = log.arrival(Offset(2));
    let appending = thread::spawn(move || fill(&walrus, "t", 0..3));
    assert!(block_on(arrival).unwrap());
    appending.join().unwrap();
    assert_eq!(log.durable_offset(), Offset(3));
}

/// A refused append once left an empty topic of its name behind, durably.
#[test]
fn a_refused_append_makes_no_topic() {
    let walrus = on(&SimulatedDisk::new(TailKind::Buffered));
    let (many, huge) = (vec![&b""[..]; 2001], vec![0; 1 << 20]);
    let too_large = |refused: Result<_, Error>| assert!(matches!(refused, Err(Error::TooLarge { .. })));
    let too_many = |refused: Result<_, Error>| {
        let told = Error::TooManyEntries { entries: 2001, entries_max: 2000 };
        assert_eq!(refused.map_err(|error| error.to_string()), Err(told.to_string()));
    };
    too_many(walrus.batch_append_for_topic("t", &many).map(drop));
    too_large(walrus.batch_append_for_topic("t", &[b"small", &huge]).map(drop));
    too_large(walrus.append_for_topic("t", &huge).map(drop));
    too_large(walrus.append_keyed_for_topic("t", b"key", Some(&huge)).map(drop));
    too_many(walrus.submit_for_topic("t", &many).map(drop));
    assert!(matches!(walrus.submit_for_topic("t", &[]), Err(Error::Batch(_))));
    assert!(matches!(walrus.append_for_topic("", b"x"), Err(Error::InvalidName { .. })));
    assert_eq!(walrus.batch_append_for_topic("t", &[]).unwrap(), Offset(0)..Offset(0));
    assert!(walrus.topics().is_empty(), "{:?}", walrus.topics());
}

/// A question about a misspelt topic once made the topic, and whoever waited there waited for ever.
#[test]
fn what_is_said_of_a_topic_that_is_not_there_is_refused() {
    let walrus = on(&SimulatedDisk::new(TailKind::Buffered));
    let unknown = |refused: Result<(), Error>| {
        assert!(matches!(refused, Err(Error::UnknownTopic { name }) if name == "mispelt"));
    };
    unknown(walrus.cursor("mispelt", "c").map(drop));
    unknown(walrus.mark_topic_clean("mispelt"));
    unknown(walrus.mark_topic_dirty("mispelt"));
    unknown(walrus.set_topic_retention("mispelt", Retention::default()));
    assert!(walrus.topics().is_empty());
}

#[test]
fn a_wait_for_a_topic_that_is_not_there_makes_none_and_ends_with_its_first_entry() {
    let walrus = on(&SimulatedDisk::new(TailKind::Buffered));
    assert!(!walrus.wait_for_data("t", Duration::ZERO).unwrap());
    assert!(!walrus.wait_for_data("t", Duration::from_millis(1)).unwrap());
    let (at_cursor, at_offset) = (walrus.arrival("t", None), walrus.arrival("t", Some(Offset(1))));
    let threads = [0; 2].map(|_| {
        let walrus = walrus.clone();
        thread::spawn(move || walrus.wait_for_data("t", LONG))
    });
    let tasks = [at_cursor, at_offset].map(|arrival| thread::spawn(move || block_on(arrival)));
    assert!(walrus.topics().is_empty());
    fill(&walrus, "t", 0..2);
    for waiting in threads.into_iter().chain(tasks) {
        assert!(waiting.join().unwrap().unwrap());
    }
    let other = walrus.clone();
    let (thread, task) =
        (thread::spawn(move || other.wait_for_data("none", LONG)), walrus.arrival("none", None));
    let task = thread::spawn(move || block_on(task));
    walrus.store().close().unwrap();
    for waiting in [thread, task] {
        assert!(matches!(waiting.join().unwrap(), Err(Error::Closed)));
    }
}

#[test]
fn what_a_producer_sends_again_is_stored_once_also_after_a_restart() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let once = |walrus: &Walrus, epoch, base_sequence, entries: &[&[u8]]| {
        let producer = ProducerRef { id: 7, epoch, base_sequence };
        let appended = walrus.submit_once_for_topic("t", producer, entries)?;
        appended.commit.wait()?;
        Ok((appended.base_offset.0..appended.end_offset.0, appended.duplicate))
    };
    let walrus = on(&disk);
    for refused in [once(&walrus, 0, -1, &[b"x"]), once(&walrus, 0, 0, &[])] {
        assert!(matches!(refused, Err(Error::Batch(_))), "{refused:?}");
    }
    let huge = vec![0; 1 << 20];
    assert!(matches!(once(&walrus, 0, 0, &[&huge]), Err(Error::TooLarge { .. })));
    assert!(walrus.topics().is_empty());
    walrus.append_for_topic("t", b"another's").unwrap();
    assert_eq!(once(&walrus, 0, 0, &[b"a", b"b"]).unwrap(), (1..3, false));
    assert_eq!(once(&walrus, 0, 0, &[b"a", b"b"]).unwrap(), (1..3, true));
    assert_eq!(once(&walrus, 0, 2, &[b"c"]).unwrap(), (3..4, false));
    drop(walrus);
    let walrus = on(&disk.crash_image(disk.changes(), CrashChoice::Nothing));
    assert_eq!(once(&walrus, 0, 0, &[b"a", b"b"]).unwrap(), (1..3, true));
    let gap = once(&walrus, 0, 4, &[b"x"]);
    assert!(matches!(gap, Err(Error::OutOfOrderSequence { expected: 3, got: 4, .. })), "{gap:?}");
    assert_eq!(once(&walrus, 1, 0, &[b"d"]).unwrap(), (4..5, false));
    let fenced = once(&walrus, 0, 3, &[b"x"]);
    assert!(matches!(fenced, Err(Error::ProducerFenced { current: 1, attempted: 0, .. })), "{fenced:?}");
    let data = |entry: &walrus_log::Entry| entry.data.to_vec();
    let stored = walrus.batch_read_for_topic("t", 1 << 20, false, Some(Offset(1))).unwrap();
    assert_eq!(stored.iter().map(data).collect::<Vec<_>>(), [b"a", b"b", b"c", b"d"]);
}

/// Each wait that was given up once left its waker, and so its task, in the log until the next record came.
#[test]
fn a_wait_that_is_dropped_leaves_no_waker_behind() {
    let walrus = on(&SimulatedDisk::new(TailKind::Buffered));
    let log = walrus.topic("t").unwrap().log().clone();
    let task = Arc::new(Unpark(thread::current()));
    let waker = Waker::from(Arc::clone(&task));
    let mut context = Context::from_waker(&waker);
    let mut waits = (log.arrival(Offset(5)), walrus.arrival("t", None), walrus.arrival("none", None));
    for _ in 0..3 {
        assert!(pin!(&mut waits.0).poll(&mut context).is_pending());
        assert!(pin!(&mut waits.1).poll(&mut context).is_pending());
        assert!(pin!(&mut waits.2).poll(&mut context).is_pending());
    }
    assert_eq!(Arc::strong_count(&task), 2 + 3, "one for each wait, however often it is looked at");
    drop(waits);
    assert_eq!(Arc::strong_count(&task), 2);
}

#[test]
fn errors_have_the_kinds_of_the_original() {
    let walrus = on(&SimulatedDisk::new(TailKind::Buffered));
    let kind = |error: Error| io::Error::from(error).kind();
    let many = vec![&b""[..]; 2001];
    assert_eq!(kind(walrus.batch_append_for_topic("t", &many).unwrap_err()), io::ErrorKind::InvalidInput);
    assert_eq!(kind(walrus.append_for_topic("", b"").unwrap_err()), io::ErrorKind::InvalidInput);
    walrus.append_for_topic("t", b"x").unwrap();
    let behind = walrus.batch_read_for_topic("t", 10, false, Some(Offset(2))).unwrap_err();
    assert_eq!(kind(behind), io::ErrorKind::InvalidInput);
    let error = io::Error::from(Error::NoSpace { path: "p".to_owned() });
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(error.to_string().contains("no space left"));
}
