//! A small ext4 that fills up, is freed and filled again, for as long as one likes: a full disk is told before anything
//! is accepted, what was accepted stays, and nothing piles up.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::thread;

use walrus_log::batch::{Batch, BatchBuilder};
use walrus_log::{Backend, Error, Log, Offset, Options, Store};

use crate::checks::read_from;
use crate::facts::{log_id, new_log};
use crate::mounts::{Mounted, image_directory, make_ext4};
use crate::power::open;
use crate::random::{Random, Value};

const DISK_BYTES: u64 = 32 << 20;
/// Logs that are filled at the same time.
const LOGS: u64 = 2;
/// Cycles after which the store is closed and opened again on the full disk.
const REOPENED_EACH: u64 = 10;
/// Cycles after which a log is deleted and another one made.
const DELETED_EACH: u64 = 3;
/// Cycles after which everything has been used once.
const WARM_CYCLES: usize = 20;
/// Allowed growth of descriptors: files that are being made ready, or freed, have two each.
const DESCRIPTORS_SLACK: u64 = 8;
/// Allowed growth of memory: it is taken in chunks, and given back when the allocator likes.
const MEMORY_SLACK_BYTES: u64 = 8 << 20;
/// Allowed growth on the disk: blocks of the file system's own, and a file of ours that is just being freed.
const DISK_SLACK_BYTES: u64 = 4 << 20;
/// The least that fills the disk: where less does, something was not given back.
const FILL_BYTES_MIN: u64 = 12 << 20;

/// The resources that a process and its disk use when a cycle is over, and everything was freed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Use {
    /// Open file descriptors.
    pub descriptors: u64,
    /// Memory of the process, without what is mapped from files: those are on the disk.
    pub memory_bytes: u64,
    /// Bytes of the file system that are in use.
    pub disk_bytes: u64,
}

/// One log, and the records in it from its start on.
struct Filled {
    log: Log,
    start: u64,
    values: VecDeque<Value>,
}

impl Filled {
    fn end(&self) -> u64 {
        self.start + self.values.len() as u64
    }

    /// Appends until the disk is full. Answers how many bytes were appended.
    fn fill(&mut self, random: &mut Random) -> u64 {
        let mut total = 0;
        loop {
            let bytes = if random.one_in(3) { 8 + random.below(3000) } else { random.below(200_000) };
            let value = Value { number: random.number(), bytes: bytes as usize };
            let mut builder = BatchBuilder::new();
            builder.push(None, Some(&value.to_bytes()), 0, &[]);
            let mut bytes = Vec::new();
            builder.build(&mut bytes).expect("small");
            let (batch, _) = Batch::parse(&bytes).expect("just built");
            match self.log.append(&batch) {
                Ok(appended) => {
                    assert_eq!(appended.base_offset.0, self.end(), "where an append went");
                    self.values.push_back(value);
                    appended.commit.wait().unwrap_or_else(|error| panic!("accepted, and then: {error}"));
                    total += bytes.len() as u64;
                }
                Err(Error::NoSpace { .. }) => {
                    assert_eq!(self.log.end_offset().0, self.end(), "nothing was accepted");
                    return total;
                }
                Err(error) => panic!("a full disk is told as {error}"),
            }
        }
    }

    fn check(&self) {
        let (start, end) = (self.log.start_offset().0, self.log.durable_offset().0);
        assert_eq!((start, end), (self.start, self.end()), "start and end");
        let (records, fences) = read_from(&self.log, self.start);
        assert_eq!(fences, [], "damage");
        assert_eq!(records.len(), self.values.len(), "records");
        for ((offset, bytes), (index, value)) in records.iter().zip(self.values.iter().enumerate()) {
            assert!(*offset == self.start + index as u64 && value.is(bytes), "offset {offset}");
        }
    }

    /// Trims the log, which must go on also where the disk is full.
    fn free(&mut self, to: u64) {
        self.log.delete_before(Offset(to)).unwrap_or_else(|error| panic!("a trim of a full disk: {error}"));
        self.values.drain(..(to - self.start) as usize);
        self.start = to;
    }
}

/// Fills an ext4 so many times. Answers what was in use after each, and how many bytes were appended. Needs a mount
/// namespace of its own.
pub fn fill_often(backend: Backend, cycles: u64) -> io::Result<(Vec<Use>, u64)> {
    let work = image_directory()?;
    let image = work.path().join("image");
    make_ext4(&image, DISK_BYTES)?;
    let mounted = Mounted::ext4(&image, &work.path().join("full"))?;
    let directory = mounted.path().join("store");
    let options = Options { block_bytes: 256 << 10, blocks_per_file: 8, ..Options::small() };
    let mut store = open(&directory, options.clone(), backend).expect("an empty disk");
    let mut logs: Vec<Filled> = (0..LOGS).map(|number| create(&store, number)).collect();
    let mut random = Random(0x6675_6c6c);
    let (mut uses, mut total) = (Vec::new(), 0);
    for cycle in 0..cycles {
        let filled = fill(&mut logs, &mut random);
        assert!(filled >= FILL_BYTES_MIN, "cycle {cycle}: full after {filled} bytes");
        total += filled;
        if cycle % REOPENED_EACH == 0 {
            store.close().unwrap_or_else(|error| panic!("a full disk is not closed: {error}"));
            store = open(&directory, options.clone(), backend).expect("a full disk opens");
            for filled in &mut logs {
                filled.log = store.log(filled.log.id()).expect("the log");
            }
        }
        logs.iter().for_each(Filled::check);
        for filled in &mut logs {
            filled.free(filled.start + random.below(filled.values.len() as u64 + 1));
            filled.check();
            filled.free(filled.end());
        }
        if cycle % DELETED_EACH == 0 {
            let gone = std::mem::replace(&mut logs[0], create(&store, LOGS + cycle));
            store.delete_log(gone.log.id()).unwrap_or_else(|error| panic!("a deletion: {error}"));
        }
        store.drain();
        uses.push(used(&store)?);
    }
    store.close().expect("an empty disk");
    Ok((uses, total))
}

/// The resource that grew between the first cycles and the last, in words; `None` if none did.
pub fn grown(uses: &[Use]) -> Option<String> {
    let (first, last) = (&uses[WARM_CYCLES..2 * WARM_CYCLES], &uses[uses.len() - WARM_CYCLES..]);
    let grown = |what: &str, slack: u64, of: fn(&Use) -> u64| {
        let most = |uses: &[Use]| uses.iter().map(of).max().unwrap_or(0);
        let (before, after) = (most(first), most(last));
        (after > before + slack).then(|| format!("{what}: {before} at first, {after} at last"))
    };
    grown("descriptors", DESCRIPTORS_SLACK, |used| used.descriptors)
        .or_else(|| grown("bytes of memory", MEMORY_SLACK_BYTES, |used| used.memory_bytes))
        .or_else(|| grown("bytes of the disk", DISK_SLACK_BYTES, |used| used.disk_bytes))
}

fn create(store: &Store, number: u64) -> Filled {
    let spec = new_log(log_id(number + 1), format!("log {number}"));
    let log = store.create_log(spec).unwrap_or_else(|error| panic!("a new log: {error}"));
    Filled { log, start: 0, values: VecDeque::new() }
}

/// Fills all logs at the same time. Answers how many bytes were appended.
fn fill(logs: &mut [Filled], random: &mut Random) -> u64 {
    thread::scope(|scope| {
        let fill = |filled| {
            let (filled, seed): (&mut Filled, _) = (filled, random.number());
            scope.spawn(move || filled.fill(&mut Random(seed)))
        };
        let threads: Vec<_> = logs.iter_mut().map(fill).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that fills")).sum()
    })
}

fn used(store: &Store) -> io::Result<Use> {
    let status = fs::read_to_string("/proc/self/status")?;
    let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.split_whitespace().next());
    let kibibytes: u64 = memory.and_then(|number| number.parse().ok()).expect("the kernel says so");
    let free_bytes = store.free_bytes().map_err(io::Error::other)?;
    Ok(Use {
        descriptors: fs::read_dir("/proc/self/fd")?.count() as u64,
        memory_bytes: kibibytes << 10,
        disk_bytes: DISK_BYTES - free_bytes,
    })
}
