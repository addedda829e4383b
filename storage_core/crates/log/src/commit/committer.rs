//! The committer of a store: the commit that writes and syncs what all logs have, and the ways to wait for it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;

use super::marks::Marks;
use super::registry::Registry;
use super::waiters::Waiters;
use super::write::write;
use crate::error::Result;
use crate::log::capture::LogCapture;
use crate::log::queues::Queues;
use crate::log::state::{Extent, LogState};
use crate::options::Options;
use crate::resources::Resources;
use crate::resources::group::Group;
use crate::seeded;
use crate::sync::atomic::AtomicU64;

/// Unwritten bytes of a log from which on they are written in the background, whatever its schedule.
const WRITE_EARLY_BYTES: u64 = 1 << 20;
/// Limit on the unwritten bytes of a log that syncs: the caller of an append that leaves more commits in its own
/// thread.
const SYNCED_WAITING_MAX: u64 = 4 << 20;
/// How much a commit writes of a log that never syncs: enough to keep the disk busy, and little enough that memory is
/// free again soon.
pub(super) const UNSYNCED_WRITE_BYTES: u64 = 8 << 20;

/// Longest time of a commit that counts as quick.
const QUICK_COMMIT: Duration = Duration::from_millis(1);
/// Most bytes of a commit that counts as small; a stream of appends brings more at a time.
const SMALL_COMMIT_BYTES: u64 = 16 << 10;

/// Commits the logs of a store: one thread at a time, for everybody who waits.
pub(crate) struct Committer {
    pub(crate) resources: Arc<Resources>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) registry: Registry,
    pub(crate) marks: Marks,
    group: Group,
    waiters: Waiters,
    /// Limit on the unwritten bytes of all logs that never sync; an append above it waits until part of them is
    /// written.
    unsynced_bytes_max: u64,
    /// Number of logs that the last commit wrote.
    busy_logs: AtomicU64,
    commits: AtomicU64,
    bytes_written: AtomicU64,
    /// Bytes of the appends that the last commit wrote.
    last_bytes: AtomicU64,
}

/// Counters since the store was opened, and the way in which it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The backend in use, as [`Store::backend`](crate::Store::backend) names it.
    pub backend: &'static str,
    /// `direct` or `cached`: how commits write what they sync ([`SyncedWrites`](crate::SyncedWrites)).
    pub synced_writes: &'static str,
    /// Syncs of block files; a durable write counts as one.
    pub data_syncs: u64,
    /// Durable writes of the journal.
    pub journal_syncs: u64,
    /// Group commits that had something to write.
    pub commits: u64,
    /// Bytes given to block files by commits. What was stored into a mapping is not counted: the kernel writes it.
    pub bytes_written: u64,
    /// Number of files of blocks.
    pub files: u64,
    /// Damaged ranges that were found, at open and by readers.
    pub corrupted_ranges: u64,
}

impl Committer {
    /// Makes the committer of a store that has no logs yet.
    pub(crate) fn new(resources: Resources, options: &Options) -> Self {
        let (resources, queues) = (Arc::new(resources), Arc::new(Queues::default()));
        Self {
            registry: Registry::default(),
            marks: Marks::new(Arc::clone(&resources), Arc::clone(&queues), options.mark_interval),
            resources,
            queues,
            group: Group::default(),
            waiters: Waiters::default(),
            unsynced_bytes_max: options.unsynced_bytes_max,
            busy_logs: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            last_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let resources = &self.resources;
        Stats {
            backend: resources.backend.name,
            synced_writes: resources.backend.synced_writes.name(),
            data_syncs: resources.data_syncs.load(Ordering::Relaxed),
            journal_syncs: resources.journal.syncs.load(Ordering::Relaxed),
            commits: self.commits.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            files: resources.blocks.file_count() as u64,
            corrupted_ranges: resources.corrupted_ranges.load(Ordering::Relaxed),
        }
    }

    /// Blocks until the log is committed up to `extent`; commits for everybody if nobody does.
    pub(crate) fn wait(&self, log: &LogState, extent: Extent) -> Result<()> {
        self.commit_until(|| log.is_answered(extent));
        log.commit_result(extent)
    }

    /// Blocks until the log is synced up to `end`, also where appends do not wait for that. The caller keeps
    /// truncations away.
    pub(crate) fn wait_synced(&self, log: &LogState, end: u64) -> Result<()> {
        self.commit_until(|| log.synced.load(Ordering::Acquire) >= end || log.is_dead());
        if log.synced.load(Ordering::Acquire) >= end { Ok(()) } else { log.check_alive() }
    }

    /// Has the log's bytes written before they become too many, after an append that left `waiting_bytes` in memory;
    /// waits if they are too many already.
    #[inline]
    pub(crate) fn relieve(&self, log: &LogState, waiting_bytes: u64) {
        if waiting_bytes >= WRITE_EARLY_BYTES {
            self.write_early(log, waiting_bytes);
        }
    }

    /// Whether the log is far from having to wait until some of its appends are written.
    pub(crate) fn has_memory_for(&self, log: &LogState) -> bool {
        log.waiting_bytes.load(Ordering::Relaxed) <= self.waiting_bytes_max() / 2
    }

    /// How many unwritten bytes each log that never syncs may have.
    fn waiting_bytes_max(&self) -> u64 {
        self.unsynced_bytes_max / self.busy_logs.load(Ordering::Relaxed).max(1)
    }

    fn write_early(&self, log: &LogState, waiting_bytes: u64) {
        if log.syncs() {
            if waiting_bytes > SYNCED_WAITING_MAX {
                self.commit_all();
            }
            return;
        }
        self.queues.commits.commit_now();
        let bytes_max = self.waiting_bytes_max();
        if waiting_bytes > bytes_max {
            self.commit_until(|| log.waiting_bytes.load(Ordering::Acquire) <= bytes_max || log.is_dead());
        }
    }

    fn commit_until(&self, reached: impl Fn() -> bool) {
        let has_committed = Cell::new(false);
        self.group.wait(reached, || {
            has_committed.set(true);
            self.commit(UNSYNCED_WRITE_BYTES);
        });
        if has_committed.get() {
            self.waiters.wake_answered();
        }
    }

    /// Registers a task to be woken when the log is committed up to `extent`; false if the wait is over already. With
    /// `is_noted` the same task was registered before.
    pub(crate) fn wake_after(
        &self,
        log: &Arc<LogState>,
        extent: Extent,
        waker: &Waker,
        is_noted: bool,
    ) -> bool {
        let waits = self.waiters.note(log, extent, waker, is_noted);
        if waits && !is_noted {
            self.queues.commits.commit_now();
        }
        waits
    }

    /// Whether a commit is likely to be over soon, and to be for one caller alone.
    pub(crate) fn is_quiet(&self) -> bool {
        self.group.is_free_and_quick(QUICK_COMMIT)
            && self.last_bytes.load(Ordering::Relaxed) <= SMALL_COMMIT_BYTES
            && self.waiters.is_empty()
    }

    /// Commits everything that was appended so far.
    pub(crate) fn commit_all(&self) {
        self.commit_in_turn(u64::MAX);
    }

    pub(super) fn commit_in_turn(&self, unsynced_max: u64) {
        self.between_commits(|| self.commit(unsynced_max));
    }

    /// Runs `work` while no commit is under way.
    pub(crate) fn between_commits<T>(&self, work: impl FnOnce() -> T) -> T {
        let done = self.group.exclusive(work);
        self.waiters.wake_answered();
        done
    }

    /// Commits everything that was appended so far, and runs `work` before the next commit may begin.
    pub(crate) fn behind_commit<T>(&self, work: impl FnOnce() -> T) -> T {
        self.between_commits(|| {
            self.commit(u64::MAX);
            work()
        })
    }

    /// Writes and syncs the bytes of all dirty logs; a log that never syncs gives only about `unsynced_max` bytes. The
    /// caller has the turn of `group`, and calls `Waiters::wake_answered` afterwards.
    fn commit(&self, unsynced_max: u64) {
        let dirty = self.queues.commits.take();
        self.busy_logs.store(dirty.len() as u64, Ordering::Relaxed);
        let mut captures = SmallVec::<[LogCapture; 1]>::new();
        for log in self.registry.get_all(&dirty) {
            // The flag is cleared before the capture, so that an append after the capture makes the log dirty again.
            log.dirty.store(false, Ordering::Release);
            captures.extend(log.capture(unsynced_max));
        }
        if !captures.is_empty() {
            self.commits.fetch_add(1, Ordering::Relaxed);
            if seeded!(AckBeforeSync) {
                captures.iter().for_each(|capture| capture.log.publish(capture));
            }
            let bytes = write(&self.resources, &captures);
            self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
            self.last_bytes.store(captures.iter().map(|capture| capture.bytes).sum(), Ordering::Relaxed);
            for capture in &captures {
                match poisoned_file(capture) {
                    Some(reason) => capture.log.poison(reason),
                    None => {
                        capture.log.publish(capture);
                        self.marks.note(&capture.log);
                        if !capture.is_all && !capture.log.dirty.swap(true, Ordering::AcqRel) {
                            self.queues.commits.push_rest(capture.log.id);
                        }
                    }
                }
            }
        }
    }
}

fn poisoned_file(capture: &LogCapture) -> Option<&Arc<str>> {
    capture.blocks.iter().find_map(|(block, _)| block.slots.file.poisoned.get())
}
