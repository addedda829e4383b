//! What the logs of a store share: the commit that writes and syncs all of them, and what waits for it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

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

/// Bytes in memory from which on a log's appends are written in the background, whatever its schedule.
const WRITE_EARLY_BYTES: u64 = 1 << 20;
/// Limit on the unwritten bytes of a log that syncs: an append that leaves more commits, in its own thread.
const SYNCED_WAITING_MAX: u64 = 4 << 20;
/// A commit writes so much of a log that never syncs: as much as keeps the disk busy, so that memory is free again soon.
pub(super) const UNSYNCED_WRITE_BYTES: u64 = 8 << 20;

/// A commit that took no longer is quick.
const QUICK_COMMIT: Duration = Duration::from_millis(1);
/// A commit for no more bytes is small: streams of appends bring more at a time.
const SMALL_COMMIT_BYTES: u64 = 16 << 10;

/// Commits the logs of a store: one thread at a time, for everybody who waits.
pub(crate) struct Committer {
    pub(crate) resources: Arc<Resources>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) registry: Registry,
    pub(crate) marks: Marks,
    group: Group,
    waiters: Waiters,
    /// Limit on the unwritten bytes of all logs that never sync: an append above it waits until part of them is written.
    unsynced_bytes_max: u64,
    /// How many logs the last commit wrote.
    busy_logs: AtomicU64,
    commits: AtomicU64,
    bytes_written: AtomicU64,
    /// Size of the appends that the last commit was for.
    last_bytes: AtomicU64,
}

/// Counters since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Syncs of block files; a durable write counts as one.
    pub data_syncs: u64,
    /// Durable writes of the journal.
    pub journal_syncs: u64,
    /// Group commits that had something to do.
    pub commits: u64,
    /// Bytes given to block files by commits. With `mmap` the kernel writes them.
    pub bytes_written: u64,
    /// Files of blocks.
    pub files: u64,
    /// Damaged ranges found, at open and by readers.
    pub corrupted_ranges: u64,
}

impl Committer {
    /// A store that has no logs yet.
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
            data_syncs: resources.data_syncs.load(Ordering::Relaxed),
            journal_syncs: resources.journal.syncs.load(Ordering::Relaxed),
            commits: self.commits.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            files: resources.blocks.file_count() as u64,
            corrupted_ranges: resources.corrupted_ranges.load(Ordering::Relaxed),
        }
    }

    /// Returns when the log is committed up to there; commits for everybody if nobody does.
    pub(crate) fn wait(&self, log: &LogState, extent: Extent) -> Result<()> {
        self.commit_until(|| log.is_answered(extent));
        log.commit_result(extent)
    }

    /// Returns when the log is synced up to `end`, also where appends do not wait for that. The caller keeps
    /// truncations away.
    pub(crate) fn wait_synced(&self, log: &LogState, end: u64) -> Result<()> {
        self.commit_until(|| log.synced.load(Ordering::Acquire) >= end || log.is_dead());
        if log.synced.load(Ordering::Acquire) >= end { Ok(()) } else { log.check_alive() }
    }

    /// An append left so many bytes of its log in memory: has them written before they become too many.
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

    /// What each log that never syncs may have in memory.
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

    /// Wakes the task when the log is committed up to there; false: it is. `is_noted`: this was asked before, for the same
    /// task.
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

    /// Commits everything that is there now.
    pub(crate) fn commit_all(&self) {
        self.commit_in_turn(u64::MAX);
    }

    pub(super) fn commit_in_turn(&self, unsynced_max: u64) {
        self.between_commits(|| self.commit(unsynced_max));
    }

    /// Does something while no commit is under way.
    pub(crate) fn between_commits<T>(&self, work: impl FnOnce() -> T) -> T {
        let done = self.group.exclusive(work);
        self.waiters.wake_answered();
        done
    }

    /// Commits everything that is there now, and then does something before the next commit may begin.
    pub(crate) fn behind_commit<T>(&self, work: impl FnOnce() -> T) -> T {
        self.between_commits(|| {
            self.commit(u64::MAX);
            work()
        })
    }

    /// Writes and syncs what all dirty logs have, of those that never sync only about `unsynced_max` bytes each. Only one
    /// thread does, by `group`; `Waiters::wake_answered` follows.
    fn commit(&self, unsynced_max: u64) {
        let dirty = self.queues.commits.take();
        self.busy_logs.store(dirty.len() as u64, Ordering::Relaxed);
        let mut captures = Vec::with_capacity(dirty.len());
        for log in self.registry.get_all(&dirty) {
            // Before the capture: what is appended after it makes the log dirty again.
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
