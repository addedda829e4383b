//! Golden files, which hold the format still: stores that an earlier program wrote open, and the files of a fixed history
//! are the same byte for byte. `WALRUS_WRITE_GOLDEN=1 cargo test -p walrus-log --test golden` writes them anew; their
//! diff must be read.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use support::*;
use walrus_log::batch::{Batch, BatchBuilder, ProducerRef};
use walrus_log::{FsyncSchedule, Log, LogId, LogSpec, Offset, Options, SimulatedDisk, TailKind};

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn write(name: &str, contents: &BTreeMap<String, Vec<u8>>) {
    for (file, bytes) in contents.iter().filter(|(_, bytes)| !trimmed(bytes).is_empty()) {
        fs::write(directory(name).join(file), trimmed(bytes)).unwrap();
    }
}

fn read(name: &str) -> BTreeMap<String, Vec<u8>> {
    let paths = fs::read_dir(directory(name)).unwrap().map(|entry| entry.unwrap().path());
    let file = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut bytes = fs::read(&path).unwrap();
        if name.starts_with("journal-") {
            // Golden files lack their zeros at the end. The last record of a journal may end with zeros, and without them
            // the journal would have lost its end.
            bytes.resize(bytes.len().next_multiple_of(4096), 0);
        }
        (name, bytes)
    };
    paths.map(file).collect()
}

fn is_writing() -> bool {
    std::env::var_os("WALRUS_WRITE_GOLDEN").is_some()
}

/// The files of the fixed history, which are written anew first, once for all tests, if that was asked for.
static GOLDEN: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| {
    if is_writing() {
        write("golden", &history());
    }
    read("golden")
});

fn options() -> Options {
    // Synced marks are written at close only; others would depend on the clock.
    let mark_interval = Duration::from_secs(3600);
    Options { block_bytes: 16 << 10, blocks_per_file: 3, mark_interval, ..Options::small() }
}

/// The files of a history in which every structure occurs: blocks with footers, an open block, a mapped file, all kinds of
/// journal records that stay. The background must finish its work before each block is taken, or the next one may or may not be ready.
fn history() -> BTreeMap<String, Vec<u8>> {
    let disk = SimulatedDisk::from_contents(TailKind::Mapped, &manifest_alone());
    let store = open_on(&disk, &options()).unwrap();
    store.drain();
    let log = store.create_log(spec(1, "orders")).unwrap();
    store.drain();
    for i in 0..12 {
        let producer = ProducerRef { id: 7, epoch: 0, base_sequence: i * 2 };
        let values = [numbered(i as u64 * 2, 900), numbered(i as u64 * 2 + 1, 900)];
        let bytes = batch_by(&[&values[0], &values[1]], Some(producer), 1_000 + i64::from(i));
        log.append(&Batch::parse(&bytes).unwrap().0).unwrap().commit.wait().unwrap();
        store.drain();
    }
    let sealed = store.create_log(spec(2, "sealed")).unwrap();
    store.drain();
    append(&sealed, b"last").unwrap();
    store.drain();
    sealed.seal(b"value").unwrap();
    let gone = store.create_log(spec(3, "gone")).unwrap();
    store.drain();
    append(&gone, b"x").unwrap();
    store.drain();
    let fsync = Some(FsyncSchedule::Milliseconds(NonZeroU64::new(3_600_000).unwrap()));
    let mapped = store.create_log(LogSpec { fsync, ..spec(4, "mapped") }).unwrap();
    store.drain();
    append(&mapped, b"stored").unwrap();
    store.drain();
    log.cursor("reader").unwrap().seek(Offset(5)).unwrap();
    log.delete_before(Offset(2)).unwrap();
    store.put_property("cluster", b"c1").unwrap();
    store.drain();
    store.close().unwrap();
    disk.contents()
}

/// The files of a store that was made and never promised anything. A new store would have a uuid of its own, and so other
/// checksums.
fn manifest_alone() -> BTreeMap<String, Vec<u8>> {
    let mut manifest = b"WALRUSMF".to_vec();
    manifest.extend(4_u32.to_le_bytes());
    manifest.extend([0; 16]);
    manifest.extend(options().block_bytes.to_le_bytes());
    manifest.extend(options().blocks_per_file.to_le_bytes());
    let crc = crc_fast::crc32_iscsi(&manifest);
    manifest.extend(crc.to_le_bytes());
    BTreeMap::from([("MANIFEST".to_owned(), manifest)])
}

#[test]
fn a_fixed_history_gives_the_same_bytes() {
    let mut contents = history();
    contents.retain(|_, bytes| !trimmed(bytes).is_empty());
    assert!(GOLDEN.keys().eq(contents.keys()));
    for (name, bytes) in &contents {
        let golden = trimmed(&GOLDEN[name]);
        let differs = golden.iter().zip(trimmed(bytes)).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{name} differs at byte {differs:?}");
        assert_eq!(golden.len(), trimmed(bytes).len(), "{name}");
    }
}

/// The bytes without the zeros at their end, since files read as zeros there.
fn trimmed(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)]
}

#[test]
fn a_store_that_an_earlier_program_of_this_format_wrote_opens_whole() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let disk = SimulatedDisk::from_contents(kind, &GOLDEN);
        let store = open_on(&disk, &options()).unwrap();
        assert!(store.report().clean && store.report().lost_end.is_none(), "{:?}", store.report());
        assert_eq!(store.logs().len(), 4);
        let log = store.log(LogId(uuid::Uuid::from_u128(1))).unwrap();
        let expected: Vec<_> = (2..24).map(|i| numbered(i, 900)).collect();
        assert_eq!((log.name(), values(&log)), ("orders", expected));
        assert_eq!(offset_at(&log, 1_009), Some(Offset(18)));
        assert_eq!(log.producers().len(), 1);
        assert_eq!(log.cursor("reader").unwrap().position(), Offset(5));
        let sealed = store.log(LogId(uuid::Uuid::from_u128(2))).unwrap();
        assert_eq!(
            (values(&sealed), sealed.sealed_value().as_deref()),
            (vec![b"last".to_vec()], Some(&b"value"[..]))
        );
        assert_eq!(values(&log_of(&store, 4)), [b"stored"]);
        assert_eq!(store.property("cluster").as_deref(), Some(&b"c1"[..]));
    }
}

/// Key and value of the record at an offset, of 40; the last four are the last of their keys.
fn keyed(i: u64) -> ([u8; 1], Vec<u8>) {
    ([(i % 4) as u8], numbered(i, 1500))
}

/// Batches of a group, each of which fills a block.
fn parts() -> Vec<Vec<u8>> {
    (0..3).map(|part| batch_of(&[&numbered(100 + part * 2, 5000), &numbered(101 + part * 2, 5000)])).collect()
}

/// The files of a history with compacted blocks and blocks of a batch group. The id of a group is new each time, so their
/// bytes are not compared.
fn later_history() -> BTreeMap<String, Vec<u8>> {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = open_on(&disk, &options()).unwrap();
    let log = store.create_log(spec(1, "compacted")).unwrap();
    for i in 0..40 {
        let (key, value) = keyed(i);
        let mut builder = BatchBuilder::new();
        builder.push(Some(&key), Some(&value), 0, &[]);
        let mut bytes = Vec::new();
        log.append(&builder.build_in(&mut bytes).unwrap()).unwrap().commit.wait().unwrap();
    }
    store.drain();
    assert!(log.compact(Duration::from_secs(1 << 40)).unwrap().records > 20);
    let grouped = store.create_log(spec(2, "grouped")).unwrap();
    append(&grouped, b"before").unwrap();
    let parts = parts();
    let batches: Vec<_> = parts.iter().map(|bytes| Batch::parse(bytes).unwrap().0).collect();
    grouped.append_group(&batches).unwrap();
    append(&grouped, b"behind").unwrap();
    store.drain();
    store.close().unwrap();
    disk.contents()
}

fn log_of(store: &walrus_log::Store, id: u128) -> Log {
    store.log(LogId(uuid::Uuid::from_u128(id))).unwrap()
}

#[test]
fn a_store_with_compacted_blocks_and_batch_groups_opens_whole() {
    if is_writing() {
        fs::create_dir_all(directory("golden_later")).unwrap();
        for name in read("golden_later").keys() {
            fs::remove_file(directory("golden_later").join(name)).unwrap();
        }
        write("golden_later", &later_history());
    }
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let disk = SimulatedDisk::from_contents(kind, &read("golden_later"));
        let store = open_on(&disk, &options()).unwrap();
        assert!(store.report().clean && store.report().lost_end.is_none(), "{:?}", store.report());
        assert_eq!((store.report().corrupted.len(), store.logs().len()), (0, 2));
        let (found, fences) = read_from(&log_of(&store, 1), Offset(0), 10_000);
        assert_eq!((fences, log_of(&store, 1).end_offset()), (vec![], Offset(40)));
        assert!(found.len() < 20, "{} records of 40", found.len());
        assert!(found.iter().all(|(offset, value)| *value == keyed(*offset).1));
        let last: Vec<u64> = found.iter().map(|(offset, _)| *offset).filter(|offset| *offset >= 36).collect();
        assert_eq!(last, [36, 37, 38, 39]);
        let group = (100..106).map(|i| numbered(i, 5000));
        let expected: Vec<_> =
            [b"before".to_vec()].into_iter().chain(group).chain([b"behind".to_vec()]).collect();
        assert!(values(&log_of(&store, 2)) == expected, "the group and what is around it");
    }
}
