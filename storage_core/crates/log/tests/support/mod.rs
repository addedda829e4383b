//! Helpers that the tests share: they make batches of values, and read logs back.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::Write;
use std::num::NonZeroU64;
use std::process::Command;

use uuid::Uuid;
use walrus_log::batch::{Batch, BatchBuilder, ProducerRef};
use walrus_log::{
    Backend, Epoch, Error, FsyncSchedule, Log, LogId, LogSpec, Offset, Options, ProducerTable, Store,
};

/// Builds a batch of these values.
pub(crate) fn batch_of(values: &[&[u8]]) -> Vec<u8> {
    batch_by(values, None, 0)
}

pub(crate) fn batch_by(values: &[&[u8]], producer: Option<ProducerRef>, timestamp_ms: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    if let Some(producer) = producer {
        builder.producer(producer);
    }
    for value in values {
        builder.push(None, Some(value), timestamp_ms, &[]);
    }
    let mut out = Vec::new();
    builder.build(&mut out).unwrap();
    out
}

/// Appends one record and waits for its commit.
pub(crate) fn append(log: &Log, value: &[u8]) -> Result<Offset, Error> {
    append_all(log, &[value])
}

/// Appends one batch and waits for its commit.
pub(crate) fn append_all(log: &Log, values: &[&[u8]]) -> Result<Offset, Error> {
    let bytes = batch_of(values);
    let (batch, _) = Batch::parse(&bytes).unwrap();
    let appended = log.append(&batch)?;
    appended.commit.wait()?;
    Ok(appended.base_offset)
}

/// The first offset of a log whose record is not older.
pub(crate) fn offset_at(log: &Log, ms: i64) -> Option<Offset> {
    log.find_by_timestamp(ms, Offset(0)..Offset(u64::MAX)).unwrap().found.map(|found| found.offset)
}

pub(crate) fn spec(id: u128, name: &str) -> LogSpec {
    LogSpec {
        id: LogId(Uuid::from_u128(id)),
        name: name.to_owned(),
        base_offset: Offset(0),
        epoch: Epoch(1),
        producers: ProducerTable::new(),
        after: None,
        fsync: None,
    }
}

/// Offset and value of each record.
pub(crate) type Records = Vec<(u64, Vec<u8>)>;
/// Start and end of each damaged range.
pub(crate) type Fences = Vec<(u64, u64)>;

/// Reads all records from `from` on; damaged ranges are skipped and listed.
pub(crate) fn read_from(log: &Log, from: Offset, bytes_max: usize) -> (Records, Fences) {
    let (mut records, mut fences) = (Vec::new(), Vec::new());
    let mut next = from;
    loop {
        match log.read(next, bytes_max) {
            Ok(slices) if slices.batches.is_empty() => return (records, fences),
            Ok(slices) => {
                for bytes in &slices.batches {
                    let (batch, rest) = Batch::parse(bytes).unwrap();
                    assert!(rest.is_empty());
                    for record in batch.records() {
                        let record = record.unwrap();
                        if record.offset >= next.0 {
                            records.push((record.offset, record.value.unwrap_or_default().to_vec()));
                        }
                    }
                }
                assert!(slices.next_offset > next);
                next = slices.next_offset;
            }
            Err(Error::Corrupted { start, end, .. }) => {
                assert!(start <= next && next < end);
                fences.push((next.0, end.0));
                next = end;
            }
            Err(error) => panic!("read at {next}: {error}"),
        }
    }
}

/// Reads all values of a log without damage, whose offsets must be dense.
pub(crate) fn values(log: &Log) -> Vec<Vec<u8>> {
    let (records, fences) = read_from(log, log.start_offset(), 10_000);
    assert_eq!(fences, []);
    let mut offset = log.start_offset().0;
    let dense = |(at, value)| {
        assert_eq!(at, offset);
        offset += 1;
        value
    };
    let values: Vec<_> = records.into_iter().map(dense).collect();
    assert_eq!(offset, log.durable_offset().0);
    values
}

/// All real backends; `IoUring` becomes `Direct` where it is forbidden.
pub(crate) const BACKENDS: [Backend; 3] = [Backend::Mmap, Backend::Direct, Backend::IoUring];

/// Options with small blocks and files, for each backend and schedule.
pub(crate) fn all_options() -> Vec<Options> {
    let schedules = [
        FsyncSchedule::SyncEach,
        FsyncSchedule::Milliseconds(NonZeroU64::new(5).unwrap()),
        FsyncSchedule::NoFsync,
    ];
    let mut all = Vec::new();
    for backend in BACKENDS {
        for fsync in schedules {
            all.push(Options { backend, fsync, ..Options::small() });
        }
    }
    all
}

pub(crate) fn open(directory: &std::path::Path, options: &Options) -> Store {
    Store::open(directory, options.clone()).unwrap()
}

/// The random numbers of a seed, by SplitMix64. Tests name the seed when they fail.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The value of a number, of `size` bytes but at least 8; values of different numbers differ.
pub(crate) fn numbered(number: u64, size: usize) -> Vec<u8> {
    let mut random = Random(number);
    let mut value = number.to_le_bytes().to_vec();
    while value.len() < size {
        value.extend_from_slice(&random.next().to_le_bytes());
    }
    value.truncate(size.max(8));
    value
}

/// Opens a store on a simulated disk.
pub(crate) fn open_on(disk: &walrus_log::SimulatedDisk, options: &Options) -> Result<Store, Error> {
    Store::open_on(std::sync::Arc::new(disk.clone()), options.clone())
}

/// Number of repetitions of a random test: `WALRUS_TEST_EFFORT=20` does twenty times as many as a normal run.
pub(crate) fn effort(normal: u64) -> u64 {
    normal * std::env::var("WALRUS_TEST_EFFORT").ok().and_then(|effort| effort.parse().ok()).unwrap_or(1)
}

/// Script that mounts a file system in a namespace of its own, and runs a program with its temporary files there.
const ON_FILE_SYSTEM: &str = r#"
cannot() { echo "$@" >&2; exit 77; }
directory=$1 kind=$2 program=$3
mkdir "$directory/mounted"
mount_ext4() {
    truncate --size 512M "$directory/image" || cannot truncate
    mkfs.ext4 -q -F "$directory/image" || cannot mkfs.ext4
    mount -t ext4 -o loop "$directory/image" "$1" || cannot mount
}
case $kind in
ext4) mount_ext4 "$directory/mounted" ;;
ramfs) mount -t ramfs none "$directory/mounted" || cannot mount ;;
tmpfs) mount -t tmpfs -o size=512m none "$directory/mounted" || cannot mount ;;
overlay)
    mkdir "$directory/disk"
    mount_ext4 "$directory/disk"
    mkdir "$directory/disk/lower" "$directory/disk/upper" "$directory/disk/work"
    layers="lowerdir=$directory/disk/lower,upperdir=$directory/disk/upper,workdir=$directory/disk/work"
    mount -t overlay -o "$layers" none "$directory/mounted" || cannot mount
    ;;
esac
TMPDIR=$directory/mounted exec "$program" --skip on_each_file_system --nocapture
"#;

/// Prints a line, also where the output of tests is kept back.
pub(crate) fn say(what: &str) {
    std::io::stderr().write_all(format!("{what}\n").as_bytes()).unwrap();
}

/// Runs the tests of this program, but for `on_each_file_system`, with their files on an ext4, a tmpfs, an overlayfs and a
/// ramfs. A ramfs takes no direct writes. The answer is what the tests said on each file system; where this machine or
/// this user cannot mount one, a line on the terminal says so.
pub(crate) fn run_on_each_file_system(
    environment: &[(&str, &str)],
    what: &str,
) -> Vec<(&'static str, String)> {
    let mut ran = Vec::new();
    for kind in ["ext4", "tmpfs", "overlay", "ramfs"] {
        let directory = tempfile::tempdir().unwrap();
        let child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--", "sh", "-c", ON_FILE_SYSTEM, "sh"])
            .arg(directory.path())
            .arg(kind)
            .arg(std::env::current_exe().unwrap())
            .envs(environment.iter().copied())
            .output();
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                say(&format!("{what} on {kind}: NOT RUN: unshare: {error}"));
                continue;
            }
        };
        let (out, err) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
        match child.status.code() {
            Some(0) => ran.push((kind, out.into_owned())),
            // `unshare` itself ends with 1, and the script with 77 if it cannot mount.
            Some(1 | 77) if !out.contains("running") => {
                say(&format!("{what} on {kind}: NOT RUN: {}", err.trim()));
            }
            _ => panic!("{kind}: {out}{err}"),
        }
    }
    ran
}
