//! Seals, trims, truncations and deletions: their promises hold over a reopen, and space comes back.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use support::*;
use walrus_log::batch::Batch;
use walrus_log::{
    Error, FsyncSchedule, LogId, Offset, OpenProgress, Options, SimulatedDisk, Store, TailKind,
};

const DISKS: [TailKind; 2] = [TailKind::Mapped, TailKind::Buffered];

fn fill(log: &walrus_log::Log, from: u64, count: u64) {
    for i in from..from + count {
        append(log, &numbered(i, 1000)).unwrap();
    }
}

fn expected(range: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    range.map(|i| numbered(i, 1000)).collect()
}

#[test]
fn a_sealed_log_keeps_end_digest_and_value() {
    for kind in DISKS {
        let disk = SimulatedDisk::new(kind);
        let sealed = {
            let store = open_on(&disk, &Options::small()).unwrap();
            let log = store.create_log(spec(1, "a")).unwrap();
            fill(&log, 0, 200);
            let sealed = log.seal(b"value").unwrap();
            assert_eq!(sealed.end, Offset(200));
            assert_eq!(log.seal(b"value").unwrap(), sealed);
            assert!(matches!(log.seal(b"other"), Err(Error::Sealed { end: Offset(200), .. })));
            assert!(matches!(append(&log, b"x"), Err(Error::Sealed { end: Offset(200), .. })));
            sealed
        };
        let store = open_on(&disk, &Options::small()).unwrap();
        let log = store.log(LogId(uuid::Uuid::from_u128(1))).unwrap();
        assert_eq!(log.sealed_value().as_deref(), Some(&b"value"[..]));
        assert_eq!(log.sealed(), Some(sealed));
        assert!(matches!(append(&log, b"x"), Err(Error::Sealed { .. })));
        assert_eq!(values(&log), expected(0..200));
    }
}

#[test]
fn equal_logs_have_equal_digests_however_they_are_cut() {
    let digest = |options: &Options, reopen: bool| {
        let disk = SimulatedDisk::new(TailKind::Buffered);
        {
            let store = open_on(&disk, options).unwrap();
            fill(&store.create_log(spec(1, "a")).unwrap(), 0, 100);
        }
        let disk = if reopen { disk } else { disk.clone() };
        let store = open_on(&disk, options).unwrap();
        let log = store.logs()[0].clone();
        fill(&log, 100, 100);
        if reopen {
            log.delete_before(Offset(90)).unwrap();
        }
        log.seal(b"").unwrap().digest
    };
    let small = Options::small();
    let smaller = Options { block_bytes: 16 << 10, ..Options::small() };
    assert_eq!(digest(&small, false), digest(&smaller, true));
}

#[test]
fn trimmed_records_are_gone_and_their_files_too() {
    for kind in DISKS {
        let disk = SimulatedDisk::new(kind);
        {
            let store = open_on(&disk, &Options::small()).unwrap();
            let log = store.create_log(spec(1, "a")).unwrap();
            fill(&log, 0, 1000);
            let files = store.stats().files;
            assert!(files >= 5, "{files}");
            log.delete_before(Offset(900)).unwrap();
            store.drain();
            assert!(store.stats().files <= 2);
            assert_eq!(log.start_offset(), Offset(900));
            assert!(matches!(
                log.read(Offset(899), 1),
                Err(Error::OffsetOutOfRange { start: Offset(900), .. })
            ));
            assert!(matches!(log.delete_before(Offset(1001)), Err(Error::OffsetOutOfRange { .. })));
            log.delete_before(Offset(5)).unwrap();
            assert_eq!(values(&log), expected(900..1000));
        }
        let store = open_on(&disk, &Options::small()).unwrap();
        let log = store.logs()[0].clone();
        assert_eq!(log.start_offset(), Offset(900));
        assert_eq!(values(&log), expected(900..1000));
        fill(&log, 1000, 200);
        assert_eq!(values(&log), expected(900..1200));
    }
}

#[test]
fn a_truncated_log_goes_on_at_its_new_end() {
    for kind in DISKS {
        for cut in [0, 1, 30, 150, 199, 200] {
            let disk = SimulatedDisk::new(kind);
            {
                let store = open_on(&disk, &Options::small()).unwrap();
                let log = store.create_log(spec(1, "a")).unwrap();
                fill(&log, 0, 200);
                log.truncate_to(Offset(cut)).unwrap();
                assert_eq!((log.end_offset(), log.durable_offset()), (Offset(cut), Offset(cut)));
                assert_eq!(values(&log), expected(0..cut));
            }
            {
                let store = open_on(&disk, &Options::small()).unwrap();
                let log = store.logs()[0].clone();
                assert_eq!(values(&log), expected(0..cut), "cut at {cut}");
                assert_eq!(store.report().torn_tails, []);
                fill(&log, cut, 20);
                log.truncate_to(Offset(cut + 10)).unwrap();
                fill(&log, cut + 10, 3);
            }
            let store = open_on(&disk, &Options::small()).unwrap();
            assert_eq!(values(&store.logs()[0]), expected(0..cut + 13), "cut at {cut}");
        }
    }
}

#[test]
fn a_deleted_log_leaves_nothing_and_its_name_can_be_used_again() {
    for kind in DISKS {
        let disk = SimulatedDisk::new(kind);
        {
            let store = open_on(&disk, &Options::small()).unwrap();
            let kept = store.create_log(spec(1, "kept")).unwrap();
            let gone = store.create_log(spec(2, "t")).unwrap();
            fill(&kept, 0, 10);
            fill(&gone, 0, 1000);
            let files = store.stats().files;
            store.delete_log(gone.id()).unwrap();
            store.drain();
            assert!(store.stats().files < files);
            assert!(matches!(append(&gone, b"x"), Err(Error::UnknownLog { .. })));
            assert!(store.log(gone.id()).is_none());
            let again = store.create_log(spec(3, "t")).unwrap();
            append(&again, b"new").unwrap();
        }
        let store = open_on(&disk, &Options::small()).unwrap();
        assert_eq!(store.logs().len(), 2);
        assert_eq!(values(&store.log(LogId(uuid::Uuid::from_u128(3))).unwrap()), [b"new"]);
        assert_eq!(values(&store.log(LogId(uuid::Uuid::from_u128(1))).unwrap()), expected(0..10));
        assert_eq!(store.report().unknown_blocks, []);
    }
}

#[test]
fn freed_space_is_used_again() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = open_on(&disk, &Options::small()).unwrap();
    let pinned = store.create_log(spec(1, "pinned")).unwrap();
    append(&pinned, b"x").unwrap();
    for round in 0..30 {
        let log = store.create_log(spec(2 + round, "t")).unwrap();
        fill(&log, 0, 60);
        assert_eq!(values(&log), expected(0..60));
        store.delete_log(log.id()).unwrap();
        store.drain();
    }
    assert!(store.stats().files <= 2);
    assert_eq!(values(&pinned), [b"x"]);
}

#[test]
fn the_same_spec_is_the_same_log_and_another_is_refused() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = open_on(&disk, &Options::small()).unwrap();
    let log = store.create_log(spec(1, "a")).unwrap();
    append(&log, b"x").unwrap();
    assert_eq!(values(&store.create_log(spec(1, "a")).unwrap()), [b"x"]);
    assert!(matches!(store.create_log(spec(1, "b")), Err(Error::LogExists { field: "name", .. })));
    for name in [String::new(), "x".repeat(256), "a\0b".to_owned()] {
        assert!(matches!(store.create_log(spec(2, &name)), Err(Error::InvalidName { .. })));
    }
    store.create_log(spec(2, &"é".repeat(127))).unwrap();
}

#[test]
fn properties_hold_over_a_reopen() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    {
        let store = open_on(&disk, &Options::small()).unwrap();
        store.put_property("cluster", b"c1").unwrap();
        store.put_property("cluster", b"c2").unwrap();
        store.put_property("disk", b"d").unwrap();
        store.put_property("past", b"p").unwrap();
        store.remove_property("past").unwrap();
        assert_eq!(store.property("past"), None);
        store.put_property("emptied", b"e").unwrap();
        store.put_property("emptied", b"").unwrap();
    }
    let store = open_on(&disk, &Options::small()).unwrap();
    assert_eq!(store.property("cluster").as_deref(), Some(&b"c2"[..]));
    assert_eq!(store.property("past"), None);
    assert_eq!(store.properties().len(), 2);
}

#[test]
fn a_closed_store_refuses_and_lets_go_of_the_directory() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = open_on(&disk, &Options::small()).unwrap();
    let log = store.create_log(spec(1, "a")).unwrap();
    append(&log, b"x").unwrap();
    store.close().unwrap();
    assert!(matches!(append(&log, b"y"), Err(Error::Closed)));
    assert!(matches!(store.create_log(spec(2, "b")), Err(Error::Closed)));
    assert!(matches!(store.put_property("k", b""), Err(Error::Closed)));
    assert!(matches!(log.read(Offset(0), 1), Err(Error::Closed)));
    open_on(&disk, &Options::small()).unwrap();
}

/// A wait for the commit of an append that was committed and then cut off once never ended, since the log's end stayed
/// below it.
#[test]
fn a_ticket_of_what_a_truncation_cut_off_resolves() {
    for kind in DISKS {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &Options::small()).unwrap();
        let log = store.create_log(spec(1, "a")).unwrap();
        fill(&log, 0, 3);
        let bytes = batch_of(&[b"cut off"]);
        let appended = log.append(&Batch::parse(&bytes).unwrap().0).unwrap();
        log.truncate_to(Offset(2)).unwrap();
        appended.commit.wait().unwrap();
        assert_eq!(log.end_offset(), Offset(2));
    }
}

/// A footer is derived data and not synced. The rest of one after a power failure, with the next block gone, was once
/// reported as a torn tail of the log.
#[test]
fn what_is_left_of_a_footer_is_no_torn_tail() {
    for kind in DISKS {
        let disk = SimulatedDisk::new(kind);
        let options = Options { fsync: FsyncSchedule::NoFsync, ..Options::small() };
        let name = if kind == TailKind::Mapped { "00000001-mapped.wal" } else { "00000001.wal" };
        let store = open_on(&disk, &options).unwrap();
        let log = store.create_log(spec(1, "a")).unwrap();
        // The first slot is ready now, so the first block does not take the second.
        store.drain();
        let mut count = 0;
        // Values are appended until the log has its second block.
        loop {
            fill(&log, count, 1);
            count += 1;
            store.drain();
            if disk.contents()[name][64 << 10..].starts_with(b"WALRUSBK") {
                break;
            }
        }
        drop((log, store));
        let mut contents = disk.contents();
        let file = contents.get_mut(name).unwrap();
        file[64 << 10..].fill(0);
        let footer = (64 << 10) - 96;
        assert_eq!(&file[footer..footer + 8], b"WALRUSFT");
        for (torn, announces) in [(footer + 20, true), (footer, false)] {
            let mut contents = contents.clone();
            contents.get_mut(name).unwrap()[torn] ^= 1;
            let disk = SimulatedDisk::from_contents(kind, &contents);
            let store = open_on(&disk, &options).unwrap();
            assert_eq!((&store.report().torn_tails[..], &store.report().corrupted[..]), (&[][..], &[][..]));
            let log = store.logs()[0].clone();
            assert_eq!(values(&log), expected(0..count - 1), "{announces}");
            // The rest of the footer does no harm to appends that come next.
            fill(&log, count - 1, 200);
            assert_eq!(values(&log), expected(0..count + 199));
            store.close().unwrap();
            drop((log, store));
            let store = open_on(&disk, &options).unwrap();
            assert_eq!((&store.report().torn_tails[..], &store.report().corrupted[..]), (&[][..], &[][..]));
            assert_eq!(values(&store.logs()[0]), expected(0..count + 199));
        }
    }
}

/// A wait for an append to a log that was deleted before its commit once never ended.
#[test]
fn an_append_to_a_log_that_is_deleted_is_answered() {
    for kind in DISKS {
        let disk = SimulatedDisk::new(kind);
        let store = open_on(&disk, &Options::small()).unwrap();
        let log = store.create_log(spec(1, "a")).unwrap();
        let bytes = batch_of(&[b"x"]);
        let appended = log.append(&Batch::parse(&bytes).unwrap().0).unwrap();
        store.delete_log(log.id()).unwrap();
        let is_answered = |result| matches!(result, Ok(()) | Err(Error::UnknownLog { .. }));
        assert!(appended.commit.is_over());
        assert!(is_answered(appended.commit.wait()));
        assert!(is_answered(log.commit()));
    }
}

struct Alarm(Sender<()>);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.send(()).unwrap();
    }
}

#[test]
fn a_task_that_awaits_an_append_to_a_log_that_is_deleted_is_woken() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = open_on(&disk, &Options::small()).unwrap();
    let log = store.create_log(spec(1, "a")).unwrap();
    // The log has its open block now, so the next append needs nothing of the disk.
    append(&log, b"first").unwrap();
    store.drain();
    // The commit that the task asks for stands still until the deletion has begun.
    disk.set_stalled(true);
    let bytes = batch_of(&[b"x"]);
    let mut commit = log.append(&Batch::parse(&bytes).unwrap().0).unwrap().commit;
    let (alarm, woken) = channel();
    let waker = Waker::from(Arc::new(Alarm(alarm)));
    assert!(Pin::new(&mut commit).poll(&mut Context::from_waker(&waker)).is_pending());
    std::thread::scope(|scope| {
        let deletion = scope.spawn(|| store.delete_log(log.id()));
        disk.set_stalled(false);
        deletion.join().unwrap().unwrap();
    });
    woken.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(Pin::new(&mut commit).poll(&mut Context::from_waker(&waker)).is_ready());
}

#[test]
fn an_open_tells_how_far_it_is_and_at_its_end_that_all_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    {
        let store = Store::open(directory.path(), Options::small()).unwrap();
        for id in 1..=20 {
            fill(&store.create_log(spec(id, &format!("log-{id}"))).unwrap(), 0, 50);
        }
        store.delete_log(LogId(uuid::Uuid::from_u128(7))).unwrap();
    }
    let progress = OpenProgress::default();
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| Store::open_told(directory.path(), Options::small(), &progress).unwrap());
        let mut seen = 0;
        while !opened.is_finished() {
            let percent = progress.percent().unwrap_or(0);
            assert!(percent >= seen, "{percent} after {seen}");
            seen = percent;
        }
        assert_eq!(progress.percent(), Some(100));
        assert_eq!(opened.join().unwrap().logs().len(), 19);
    });
}
