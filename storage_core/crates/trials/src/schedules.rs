//! Orders of threads: a store on the simulated disk with writers, readers, groups, trims and compactions beside each other,
//! run again and again by a scheduler that decides at each lock, atomic and disk call who goes on. A thread that waits for
//! ever is a deadlock, which it reports.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::thread::{self, JoinHandle};
use shuttle::{Config, FailurePersistence, Runner, future};
#[cfg(feature = "seeded-bugs")]
use walrus_log::Bug;
use walrus_log::batch::{Batch, BatchBuilder, HEADER_BYTES};
use walrus_log::{AppendReceipt, CrashChoice, Error, Log, Offset, Options, SimulatedDisk, Store, TailKind};

use crate::facts::{EPOCH, log_id, new_log};
use crate::images::message;

/// Stack of a scheduler's task, in bytes: it must be enough to open stores.
const STACK_BYTES: usize = 512 << 10;
/// Number of times that a thread of more priority is put off, in the orders that are not random.
const DEPTH: usize = 3;
/// Steps after which a schedule counts as one that never ends.
const STEPS_MAX: usize = 400_000;
/// Size of a large value: three of them fill a block.
const LARGE_BYTES: usize = 3_500;
const SMALL_BYTES: usize = 40;
/// Part of the acknowledgements that are held against a power failure.
const ACKS_CHECKED: f64 = 0.3;
/// Delay after which tombstones go: longer than any trial.
const NEVER: Duration = Duration::from_secs(1 << 40);
/// Limit of waits that have none: a wait with a limit ends when the scheduler likes.
const NO_LIMIT: Duration = Duration::MAX;

/// The threads that run beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Callers of two logs that wait in threads and in tasks, for what a crash must not take.
    Commits,
    /// Readers that wait for what single batches and batch groups bring.
    Publication,
    /// Readers of a log that is trimmed, and whose blocks are used again.
    Retention,
    /// Readers of a log of few keys that is compacted and trimmed.
    Compaction,
}

/// All scenes.
pub const SCENES: [Scene; 4] = [Scene::Commits, Scene::Publication, Scene::Retention, Scene::Compaction];

/// Runs a scene in so many random orders and half as many with priorities. Answers how many ran. Panics where a promise is
/// broken, with the order.
pub fn explore(scene: Scene, seed: u64, schedules: usize) -> u64 {
    let began = Arc::new(AtomicU64::new(0));
    let random = RandomScheduler::new_from_seed(seed, schedules);
    run(random, scene, &began);
    run(PctScheduler::new_from_seed(seed, DEPTH, schedules / 2), scene, &began);
    began.load(Ordering::Relaxed)
}

/// Runs a scene as [`explore`] does until an order fails. Answers the message of the failure.
pub fn find(scene: Scene, seed: u64, schedules: usize) -> Option<String> {
    let failed = catch_unwind(|| explore(scene, seed, schedules)).err()?;
    Some(message(&*failed).lines().next().unwrap_or_default().to_owned())
}

/// Mistakes that only an order of threads shows, and the scene that must fail.
#[cfg(feature = "seeded-bugs")]
pub const BUGS: [(Bug, Scene); 4] = [
    (Bug::AckBeforeSync, Scene::Commits),
    (Bug::EndBeforeBytes, Scene::Publication),
    (Bug::LetGoBeforeDone, Scene::Commits),
    (Bug::WishAfterLook, Scene::Publication),
];

fn run(scheduler: impl Scheduler + 'static, scene: Scene, began: &Arc<AtomicU64>) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = shuttle::MaxSteps::FailAfter(STEPS_MAX);
    // The warning says that only sequential consistency is modelled, which is known here.
    config.silence_warnings = true;
    config.failure_persistence = FailurePersistence::Print;
    let began = Arc::clone(began);
    Runner::new(scheduler, config).run(move || {
        let number = began.fetch_add(1, Ordering::Relaxed);
        let kind = if number.is_multiple_of(3) { TailKind::Mapped } else { TailKind::Buffered };
        Stage::new(kind).play(scene);
    });
}

/// A store with a log, and its disk.
#[derive(Clone)]
struct Stage {
    disk: SimulatedDisk,
    store: Store,
    log: Log,
}

impl Stage {
    fn new(kind: TailKind) -> Self {
        let disk = SimulatedDisk::new(kind);
        let options = Options { block_bytes: 16 << 10, blocks_per_file: 3, ..Options::default() };
        let store = Store::open_on(Arc::new(disk.clone()), options).expect("a new store opens");
        let log = create(&store, 1);
        Self { disk, store, log }
    }

    fn play(self, scene: Scene) {
        let threads = match scene {
            Scene::Commits => self.commits(),
            Scene::Publication => self.publication(),
            Scene::Retention => self.retention(),
            Scene::Compaction => self.compaction(),
        };
        for thread in threads {
            thread.join().expect("no thread panicked");
        }
        self.store.close().expect("the store closes");
    }

    fn spawn(&self, run: impl FnOnce(&Self) + Send + 'static) -> JoinHandle<()> {
        let stage = self.clone();
        thread::spawn(move || run(&stage))
    }

    fn commits(&self) -> Vec<JoinHandle<()>> {
        let other = create(&self.store, 2);
        let in_a_thread = |log: Log, caller: u64| {
            self.spawn(move |stage| {
                for number in 0..2 {
                    stage.append_and_wait(&log, 10 * caller + number, SMALL_BYTES, 2);
                }
            })
        };
        vec![
            in_a_thread(self.log.clone(), 1),
            in_a_thread(self.log.clone(), 2),
            in_a_thread(other.clone(), 3),
            self.spawn(move |stage| {
                let first = append(&other, 40, SMALL_BYTES, 1);
                let second = append(&stage.log, 50, SMALL_BYTES, 1);
                stage.wait_in_a_task(&other, first);
                stage.wait_in_a_task(&stage.log, second);
            }),
        ]
    }

    fn publication(&self) -> Vec<JoinHandle<()>> {
        // Two batches, a group of two more, and one that is awaited.
        const RECORDS: u64 = 2 * 2 + 2 * 2 + 1;
        vec![
            self.spawn(|stage| {
                for _ in 0..2 {
                    stage.append_and_wait(&stage.log, 1, SMALL_BYTES, 2);
                }
            }),
            self.spawn(|stage| {
                let (first, second) = (batch(5, SMALL_BYTES, 2), batch(6, SMALL_BYTES, 2));
                let parts = [Batch::parse(&first), Batch::parse(&second)].map(|part| part.expect("built").0);
                let range = stage.log.append_group(&parts).expect("a group is appended");
                assert!(stage.log.durable_offset() >= range.end, "a group that is not there yet");
            }),
            self.spawn(|stage| stage.wait_in_a_task(&stage.log, append(&stage.log, 3, SMALL_BYTES, 1))),
            self.spawn(|stage| stage.read_all(RECORDS, false)),
            self.spawn(|stage| stage.read_all(RECORDS, true)),
        ]
    }

    fn retention(&self) -> Vec<JoinHandle<()>> {
        const BATCHES: u64 = 8;
        vec![
            self.spawn(|stage| {
                for number in 0..BATCHES {
                    stage.append_and_wait(&stage.log, number, LARGE_BYTES, 1);
                }
            }),
            self.spawn(|stage| {
                for to in [2, 5] {
                    assert!(stage.log.wait_for(Offset(to), NO_LIMIT).expect("the log is open"));
                    stage.log.delete_before(Offset(to)).expect("what is there is trimmed");
                    assert_eq!(stage.log.start_offset(), Offset(to));
                }
                stage.store.drain();
            }),
            self.spawn(|stage| stage.read_all(BATCHES, false)),
            self.spawn(|stage| stage.read_all(BATCHES, true)),
        ]
    }

    /// Threads of [`Scene::Compaction`], in which values of the same number have one key.
    fn compaction(&self) -> Vec<JoinHandle<()>> {
        const BATCHES: u64 = 8;
        vec![
            self.spawn(|stage| {
                for number in 0..BATCHES {
                    stage.append_and_wait(&stage.log, number % 2, LARGE_BYTES, 1);
                }
            }),
            self.spawn(|stage| {
                for until in [4, 7] {
                    assert!(stage.log.wait_for(Offset(until), NO_LIMIT).expect("the log is open"));
                    stage.log.compact(NEVER).expect("the log is compacted");
                }
                stage.log.delete_before(Offset(1)).expect("what is there is trimmed");
                stage.store.drain();
                let last = stage.numbers_from(0);
                assert!(last.ends_with(&[(6, 0), (7, 1)]), "the last of each key: {last:?}");
            }),
            self.spawn(|stage| stage.read_all(BATCHES, false)),
        ]
    }

    fn append_and_wait(&self, log: &Log, number: u64, value_bytes: usize, records: usize) {
        let (appended, head) = append(log, number, value_bytes, records);
        appended.commit.wait().expect("nothing fails");
        self.check_promise(log, appended.end_offset, &head);
    }

    fn wait_in_a_task(&self, log: &Log, (appended, head): (AppendReceipt, Vec<u8>)) {
        future::block_on(appended.commit).expect("nothing fails");
        self.check_promise(log, appended.end_offset, &head);
    }

    /// Checks the promise of an acknowledged append: readers see it, and no power failure from now on takes it.
    fn check_promise(&self, log: &Log, end: Offset, head: &[u8]) {
        let readable = log.durable_offset();
        assert!(readable >= end, "acknowledged up to {end:?}, readable up to {readable:?}");
        if thread_rng().gen_bool(ACKS_CHECKED) {
            let image = self.disk.crash_image(self.disk.changes(), CrashChoice::Nothing).contents();
            // On disk the epoch's four bytes, from 12 on, hold the mark of the batch's place.
            let is_it = |window: &[u8]| window[..12] == head[..12] && window[16..] == head[16..];
            let has_it = |bytes: &Vec<u8>| bytes.windows(head.len()).any(is_it);
            assert!(image.values().any(has_it), "acknowledged up to {end:?}, and lost by a power failure");
        }
    }

    /// Reads up to a number of records, waiting for each of them, in a thread or in a task.
    fn read_all(&self, records: u64, in_a_task: bool) {
        let mut next = 0;
        while next < records {
            let is_there = if in_a_task {
                future::block_on(self.log.arrival(Offset(next)))
            } else {
                self.log.wait_for(Offset(next), NO_LIMIT)
            };
            assert!(is_there.expect("the log is open"), "the log ended at {next}");
            let seen = self.log.durable_offset().0;
            assert!(seen > next, "woken for {next}, readable up to {seen}");
            next = self.read_from(next).1;
        }
    }

    fn numbers_from(&self, from: u64) -> Vec<(u64, u64)> {
        let (mut all, mut next) = (Vec::new(), from);
        while next < self.log.durable_offset().0 {
            let (read, behind) = self.read_from(next);
            all.extend(read);
            next = behind;
        }
        all
    }

    /// Reads at once: the (offset, number) of the records, in whole batches, and the offset at which reading goes on.
    fn read_from(&self, next: u64) -> (Vec<(u64, u64)>, u64) {
        let seen = self.log.durable_offset().0;
        let slices = match self.log.read(Offset(next), 1 << 20) {
            Ok(slices) => slices,
            Err(Error::OffsetOutOfRange { start, .. }) if start.0 > next => return (Vec::new(), start.0),
            Err(error) => panic!("read at {next}: {error}"),
        };
        let (mut read, mut at) = (Vec::new(), None);
        for bytes in &slices.batches {
            let (batch, rest) = Batch::parse(bytes).expect("what is read was checked");
            assert!(rest.is_empty(), "one batch each");
            let base = batch.base_offset();
            assert!(at.is_none_or(|at| at == base), "a batch at {base} follows one up to {at:?}");
            at = Some(batch.end_offset());
            for record in batch.records() {
                let record = record.expect("records as they were built");
                read.push((record.offset, number_of(record.value.expect("all have a value"))));
            }
        }
        let behind = slices.next_offset.0;
        assert!(behind >= seen || !slices.batches.is_empty(), "nothing read at {next} of {seen}");
        assert!(read.is_sorted_by_key(|(offset, _)| *offset), "out of order: {read:?}");
        (read, behind)
    }
}

fn create(store: &Store, number: u64) -> Log {
    store.create_log(new_log(log_id(number), format!("log {number}"))).expect("nothing fails")
}

/// A batch whose keys are the number, and whose values begin with it.
fn batch(number: u64, value_bytes: usize, records: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    let mut value = vec![b'.'; value_bytes];
    value[..8].copy_from_slice(&number.to_le_bytes());
    for _ in 0..records {
        builder.push(Some(&number.to_le_bytes()), Some(&value), 1, &[]);
    }
    let mut bytes = Vec::new();
    builder.build(&mut bytes).expect("small");
    bytes
}

fn number_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(*value.first_chunk().expect("values are longer"))
}

/// Appends a batch. Answers also how it begins on the disk: offset, length, epoch, checksum.
fn append(log: &Log, number: u64, value_bytes: usize, records: usize) -> (AppendReceipt, Vec<u8>) {
    let mut bytes = batch(number, value_bytes, records);
    let (batch, _) = Batch::parse(&bytes).expect("just built");
    let appended = log.append(&batch).expect("nothing fails");
    bytes[..8].copy_from_slice(&appended.base_offset.0.to_be_bytes());
    bytes[12..16].copy_from_slice(&EPOCH.0.to_be_bytes());
    bytes.truncate(HEADER_BYTES);
    (appended, bytes)
}
