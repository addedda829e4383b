//! What the logs of a store share: the commit that writes and syncs all of them, and what waits for it.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use crate::commit::tending::Tending;
use crate::commit::thread::Committing;
use crate::commit::waiters::Waiters;
use crate::disk::{ChunkPool, Disk, Origin, TailKind};
use crate::error::{Error, Result};
use crate::format::manifest::Manifest;
use crate::handle::ticket::Wait;
use crate::log::capture::LogCapture;
use crate::log::state::LogState;
use crate::options::{FsyncSchedule, Options};
use crate::resources::arrivals::Arrivals;
use crate::resources::blocks::{BlockFile, Blocks};
use crate::resources::group::Group;
use crate::resources::indexes::IndexCache;
use crate::resources::journal::{Journal, Record};
use crate::resources::tail::Captured;
use crate::seeded;
use crate::sync::{
    Mutex, RwLock,
    atomic::{AtomicBool, AtomicU64},
};
use crate::types::LogId;

/// Unwritten bytes of an unsynced, buffered log reach the disk after so long.
const WRITE_BEHIND: Duration = Duration::from_millis(100);
/// Bytes in memory from which on a log's appends are written in the background, whatever its schedule.
const WRITE_EARLY_BYTES: u64 = 1 << 20;
/// Limit on the unwritten bytes of a log that syncs: an append that leaves more commits, in its own thread.
const SYNCED_WAITING_MAX: u64 = 4 << 20;
/// A commit writes so much of a log that never syncs: as much as keeps the disk busy, so that memory is free again soon.
pub(crate) const UNSYNCED_WRITE_BYTES: u64 = 8 << 20;
/// A log whose synced mark is behind by so many bytes gets one soon: recovery scans what lies above it.
const MARK_BYTES: u64 = 16 << 20;

/// A commit that took no longer is quick.
const QUICK_COMMIT: Duration = Duration::from_millis(1);
/// One for no more bytes is small: streams of appends bring more at a time.
const SMALL_COMMIT_BYTES: u64 = 16 << 10;

pub(crate) struct Engine {
    /// The process that opened the store: no other one touches it.
    pub(crate) origin: Origin,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) manifest: Manifest,
    /// Schedule of the logs that have none of their own.
    pub(crate) fsync: FsyncSchedule,
    pub(crate) tail_kind: TailKind,
    /// Limit on the unwritten bytes of all logs that never sync: an append above it waits until part of them is written.
    unsynced_bytes_max: u64,
    /// How long synced marks may lag behind.
    pub(crate) mark_interval: Duration,
    pub(crate) blocks: Blocks,
    pub(crate) journal: Journal,
    pub(crate) pool: Arc<ChunkPool>,
    pub(crate) indexes: IndexCache,
    pub(crate) tending: Tending,
    pub(crate) committing: Committing,
    pub(crate) group: Group,
    /// Logs with bytes that are not committed, each once.
    dirty: Mutex<Vec<Arc<LogState>>>,
    /// How many logs the last commit wrote.
    busy_logs: AtomicU64,
    pub(crate) waiters: Waiters,
    /// Those who wait for a topic that is not there.
    pub(crate) topics_made: Arrivals,
    pub(crate) logs: RwLock<HashMap<LogId, Arc<LogState>>>,
    /// Deleted logs whose blocks may not be zeroed yet.
    pub(crate) deleted: Mutex<Vec<LogId>>,
    /// Logs that forget what is old.
    aged: Mutex<BTreeSet<LogId>>,
    /// Logs whose mark in the journal is behind.
    unmarked: Mutex<Vec<Arc<LogState>>>,
    pub(crate) closed: AtomicBool,
    pub(crate) corrupted_ranges: AtomicU64,
    data_syncs: AtomicU64,
    commits: AtomicU64,
    bytes_written: AtomicU64,
    /// Size of the appends that the last commit was for.
    last_bytes: AtomicU64,
}

/// What a commit does to one file.
struct FileWrites<'a> {
    file: &'a Arc<BlockFile>,
    /// A log that syncs has written to it.
    syncs: bool,
    writes: Vec<(u64, Vec<&'a [u8]>)>,
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

impl Engine {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        manifest: Manifest,
        options: &Options,
        blocks: Blocks,
        journal: Journal,
        pool: Arc<ChunkPool>,
    ) -> Self {
        let tail_kind = disk.tail_kind();
        Self {
            origin: Origin::here(),
            disk,
            manifest,
            fsync: options.fsync,
            tail_kind,
            unsynced_bytes_max: options.unsynced_bytes_max,
            mark_interval: options.mark_interval,
            blocks,
            journal,
            pool,
            indexes: IndexCache::default(),
            tending: Tending::default(),
            committing: Committing::default(),
            group: Group::default(),
            dirty: Mutex::default(),
            busy_logs: AtomicU64::new(0),
            waiters: Waiters::default(),
            topics_made: Arrivals::default(),
            logs: RwLock::default(),
            deleted: Mutex::default(),
            aged: Mutex::default(),
            unmarked: Mutex::default(),
            closed: AtomicBool::new(false),
            corrupted_ranges: AtomicU64::new(0),
            data_syncs: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            last_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            data_syncs: self.data_syncs.load(Ordering::Relaxed),
            journal_syncs: self.journal.syncs.load(Ordering::Relaxed),
            commits: self.commits.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            files: self.blocks.file_count() as u64,
            corrupted_ranges: self.corrupted_ranges.load(Ordering::Relaxed),
        }
    }

    /// The log's bytes wait for a commit.
    pub(crate) fn mark_dirty(&self, log: &Arc<LogState>) {
        self.dirty.lock().push(Arc::clone(log));
        match log.fsync {
            // Who waits for the append sees to its commit.
            FsyncSchedule::SyncEach => {}
            FsyncSchedule::Milliseconds(n) => self.committing.commit_in(Duration::from_millis(n.get())),
            FsyncSchedule::NoFsync => self.committing.commit_in(WRITE_BEHIND),
        }
    }

    /// Returns when the log is committed up to `end`; commits for everybody if nobody does.
    pub(crate) fn wait(&self, log: &LogState, end: u64, generation: u64) -> Result<()> {
        self.commit_until(|| log.is_answered(end, generation));
        log.commit_result(end, generation)
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
        self.committing.commit_now();
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

    /// Wakes the task when the wait is over; false: it is. `is_noted`: this was asked before, for the same task.
    pub(crate) fn wake_after(&self, wait: &Wait, waker: &Waker, is_noted: bool) -> bool {
        let waits = self.waiters.note(wait, waker, is_noted);
        if waits && !is_noted {
            self.committing.commit_now();
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

    pub(crate) fn commit_in_turn(&self, unsynced_max: u64) {
        self.group.exclusive(|| self.commit(unsynced_max));
        self.waiters.wake_answered();
    }

    /// Writes and syncs what all dirty logs have, of those that never sync only about `unsynced_max` bytes each. Only one
    /// thread does, by `group`; `Waiters::wake_answered` follows.
    pub(crate) fn commit(&self, unsynced_max: u64) {
        let dirty = std::mem::take(&mut *self.dirty.lock());
        self.busy_logs.store(dirty.len() as u64, Ordering::Relaxed);
        let mut captures = Vec::with_capacity(dirty.len());
        for log in dirty {
            // Before the capture: what is appended after it makes the log dirty again.
            log.dirty.store(false, Ordering::Release);
            captures.extend(log.capture(unsynced_max));
        }
        if !captures.is_empty() {
            self.commits.fetch_add(1, Ordering::Relaxed);
            if seeded!(AckBeforeSync) {
                captures.iter().for_each(|capture| capture.log.publish(capture));
            }
            self.write(&captures);
            self.last_bytes.store(captures.iter().map(|capture| capture.bytes).sum(), Ordering::Relaxed);
            for capture in &captures {
                match poisoned_file(capture) {
                    Some(reason) => capture.log.poison(reason),
                    None => {
                        capture.log.publish(capture);
                        self.note_unmarked(&capture.log);
                        if !capture.is_all && !capture.log.dirty.swap(true, Ordering::AcqRel) {
                            self.dirty.lock().push(Arc::clone(&capture.log));
                            self.committing.commit_now();
                        }
                    }
                }
            }
        }
    }

    /// One dirty block is one durable write; several are the writes of each file, and one sync of it. Logs that never
    /// sync are written only.
    fn write(&self, captures: &[LogCapture]) {
        let synced =
            captures.iter().filter(|capture| capture.log.syncs()).map(|capture| capture.blocks.len());
        let is_single = synced.sum::<usize>() == 1;
        let mut files: Vec<FileWrites<'_>> = Vec::new();
        let parts = captures.iter().flat_map(|capture| {
            capture.blocks.iter().map(|(block, captured)| (capture.log.syncs(), block, captured))
        });
        for (syncs, block, captured) in parts {
            let file = &block.slots.file;
            if is_single && syncs && captured.has_writes() {
                self.write_durably(file, captured);
                continue;
            }
            let known = files.iter().position(|known| known.file.number == file.number);
            let index = known.unwrap_or_else(|| {
                files.push(FileWrites { file, syncs: false, writes: Vec::new() });
                files.len() - 1
            });
            files[index].syncs |= syncs;
            files[index].writes.extend(captured.has_writes().then(|| captured.as_write()));
        }
        let is_usable = |file: &BlockFile| file.poisoned.get().is_none();
        for FileWrites { file, writes, .. } in files.iter().filter(|file| is_usable(file.file)) {
            match file.file.write_many(writes) {
                Ok(()) => self.count_written(writes.iter().flat_map(|(_, parts)| parts)),
                Err(error) => drop(file.poison("write", error)),
            }
        }
        for FileWrites { file, .. } in files.iter().filter(|file| file.syncs && is_usable(file.file)) {
            self.data_syncs.fetch_add(1, Ordering::Relaxed);
            let synced = if seeded!(NoSync) { Ok(()) } else { file.file.sync() };
            let synced = if seeded!(RetryAfterEio) { synced.or_else(|_| file.file.sync()) } else { synced };
            if let Err(error) = synced {
                let _ = file.poison("sync", error);
            }
        }
    }

    /// Syncs files that were written outside of commits.
    pub(crate) fn sync_files(&self, files: &[&Arc<BlockFile>]) -> Result<()> {
        files.iter().try_for_each(|file| {
            self.data_syncs.fetch_add(1, Ordering::Relaxed);
            if seeded!(NoSync) { Ok(()) } else { file.file.sync().map_err(|e| file.poison("sync", e)) }
        })
    }

    fn write_durably(&self, file: &BlockFile, captured: &Captured) {
        if file.poisoned.get().is_some() {
            return;
        }
        match captured.write(!seeded!(NoSync)) {
            Ok(bytes) => {
                self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
                self.data_syncs.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => drop(file.poison("write", error)),
        }
    }

    fn count_written<'a>(&self, parts: impl Iterator<Item = &'a &'a [u8]>) {
        self.bytes_written.fetch_add(parts.map(|part| part.len() as u64).sum(), Ordering::Relaxed);
    }

    pub(crate) fn note_unmarked(&self, log: &Arc<LogState>) {
        if !log.syncs() {
            return;
        }
        if !log.unmarked.swap(true, Ordering::AcqRel) {
            self.unmarked.lock().push(Arc::clone(log));
            self.tending.mark_later(self.mark_interval);
        }
        if log.unmarked_bytes.load(Ordering::Relaxed) >= MARK_BYTES {
            self.tending.mark_soon();
        }
    }

    /// Puts the log's synced end into the journal, not yet durable.
    fn mark(&self, log: &LogState) -> Result<()> {
        log.unmarked_bytes.store(0, Ordering::Relaxed);
        // A truncation says its end under this mutex: a mark of before, said behind it, would name what is cut off.
        let _writer = log.writer.lock();
        let end = log.synced.load(Ordering::Acquire);
        // A deleted log is not in the journal any more; the check and the record must not be torn apart.
        let logs = self.logs.read();
        if logs.contains_key(&log.id) {
            self.journal.append(&Record::Synced { log: log.id, end }).map(drop)
        } else {
            Ok(())
        }
    }

    /// Makes the synced marks of all logs durable.
    pub(crate) fn write_marks(&self) {
        let unmarked = std::mem::take(&mut *self.unmarked.lock());
        for log in &unmarked {
            log.unmarked.store(false, Ordering::Release);
        }
        self.put_marks(&unmarked, true);
    }

    /// Writes the marks of the logs that synced much since their last one: a killed process leaves little to scan. They
    /// are durable with the next that are.
    pub(crate) fn write_busy_marks(&self) {
        let is_busy = |log: &&Arc<LogState>| log.unmarked_bytes.load(Ordering::Relaxed) >= MARK_BYTES;
        let busy: Vec<_> = self.unmarked.lock().iter().filter(is_busy).cloned().collect();
        self.put_marks(&busy, false);
    }

    fn put_marks(&self, logs: &[Arc<LogState>], durable: bool) {
        if logs.is_empty() {
            return;
        }
        let marked = logs.iter().try_for_each(|log| self.mark(log));
        if let Err(error) = marked.and_then(|()| self.journal.say(&Record::Mark, durable)) {
            tracing::warn!(%error, "synced marks were not written");
        } else if durable {
            self.journal.write_end(false);
        }
        if self.journal.needs_tending() {
            self.tending.wake();
        }
    }

    /// Zeroes freed slots and removes empty files; then deleted logs can be forgotten.
    pub(crate) fn reclaim(&self) -> Result<()> {
        let deleted = std::mem::take(&mut *self.deleted.lock());
        let reclaimed = self.blocks.reclaim();
        if matches!(reclaimed, Ok(true)) {
            for log in deleted {
                self.journal.append(&Record::LogForgotten { log })?;
            }
        } else {
            self.deleted.lock().extend(deleted);
        }
        reclaimed.map(drop)
    }

    /// From now on the log is looked at when something of it may go.
    pub(crate) fn retain_in_background(&self, log: &LogState, has_rules: bool, has_age: bool) {
        if has_age {
            self.aged.lock().insert(log.id);
            self.tending.retain_later();
        } else {
            self.aged.lock().remove(&log.id);
        }
        if has_rules {
            log.ask_retain();
        }
    }

    /// Asks for a look at all logs that forget what is old.
    pub(crate) fn retain_aged(&self) {
        let mut aged = self.aged.lock();
        aged.retain(|id| self.log(*id).inspect(|log| log.ask_retain()).is_some());
        if !aged.is_empty() {
            self.tending.retain_later();
        }
    }

    /// For calls that have no error to give: in a forked child they would wait for a lock that is held by a thread that is not
    /// there, or answer with what was true before the fork.
    #[inline]
    #[track_caller]
    pub(crate) fn assert_origin(&self) {
        assert!(self.origin.is_here(), "{}", Error::Forked);
    }

    /// The log of an id.
    pub(crate) fn log(&self, id: LogId) -> Option<Arc<LogState>> {
        self.logs.read().get(&id).cloned()
    }

    /// Each call of a user asks this first, before it takes any lock: in a forked child a lock may be held by a thread that
    /// is not there.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        self.check_origin()?;
        if self.closed.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Refuses in a forked child only: for those that end what was begun before the close.
    #[inline]
    pub(crate) fn check_origin(&self) -> Result<()> {
        if self.origin.is_here() { Ok(()) } else { Err(Error::Forked) }
    }
}

fn poisoned_file(capture: &LogCapture) -> Option<&Arc<str>> {
    capture.blocks.iter().find_map(|(block, _)| block.slots.file.poisoned.get())
}
