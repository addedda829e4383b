//! A store: one directory of logs, opened by one process. Wires everything of the crate together.

pub(crate) mod inspection;
mod rendering;
pub(crate) mod repair;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use uuid::Uuid;

use crate::commit::engine::{Engine, Stats};
use crate::disk::{BackendInUse, ChunkPool, Directory, Disk, Overlay};
use crate::error::{Error, Result};
use crate::format::manifest::{MANIFEST_NAME, Manifest};
use crate::handle::Log;
use crate::log::spec::LogSpec;
use crate::log::state::LogState;
use crate::names::check_name;
use crate::options::{FsyncSchedule, Options};
use crate::recovery::{
    FileFronts, LostEnd, MovedCursor, OpenReport, Opened, adopt, open_manifest, read_fronts, recover,
};
use crate::resources::blocks::Blocks;
use crate::resources::journal::{END_NAME, End, EndFile, EndRead, Journal, JournalState, OldJournal, Record};
use crate::seeded;
use crate::sync::Mutex;
use crate::sync::thread::{self, JoinHandle};
use crate::types::{LogId, Offset};

/// An open store. Clones share it; it closes when the last of them and of its logs is dropped, or by
/// [`Store::close`].
#[derive(Clone)]
pub struct Store {
    handle: Arc<StoreHandle>,
}

/// Ends the threads when the last user is gone.
pub(crate) struct StoreHandle {
    pub(crate) engine: Arc<Engine>,
    report: OpenReport,
    backend: BackendInUse,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Creations and deletions come one at a time.
    changing: Mutex<()>,
    /// Held until the store is closed.
    lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

impl Store {
    /// Opens the store of a directory, or makes one there. Blocks until everything is readable: tails that may be torn
    /// are scanned, the rest is not read. Where a full disk has no room for what an open writes, the store opens for reading
    /// only ([`Store::is_read_only`]).
    ///
    /// Errors: `Locked` if another process (or handle) has it open, `UnsupportedFormat` if a newer program wrote it,
    /// `Damaged` if manifest or journal are.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        options.check()?;
        let path = directory.as_ref();
        let disk = Directory::open(path, options.backend)
            .map_err(|e| Error::io("open", &path.display().to_string(), e))?;
        match Self::open_on(Arc::new(disk), options.clone()) {
            Err(error @ Error::NoSpace { .. }) => Self::open_full(path, options).map_err(|_| error),
            opened => opened,
        }
    }

    /// Opens a store whose disk takes nothing more: what an open changes stays in memory, and nothing else is taken.
    fn open_full(path: &Path, options: Options) -> Result<Self> {
        let store = Self::open_on(Arc::new(Overlay::of_full_disk(path)), options)?;
        store.handle.engine.journal.make_read_only();
        tracing::error!(path = %path.display(), "the disk is full: the store is open for reading only");
        Ok(store)
    }

    /// Opens the store of any disk: the simulated one, in tests.
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Self> {
        options.check()?;
        let lock = disk.lock().map_err(|e| match e.kind() {
            std::io::ErrorKind::WouldBlock => Error::Locked { path: disk.path("") },
            _ => Error::io("lock", &disk.path(""), e),
        })?;
        let Opened { manifest, is_new, is_made_again } = open_manifest(&*disk, &options)?;
        let pool = Arc::new(ChunkPool::default());
        let old = OldJournal::read(&*disk, manifest, is_new)?;
        let EndRead { end, file: end_file } = EndFile::read(&disk, manifest.store)?;
        let Manifest { block_bytes, blocks_per_file, .. } = manifest;
        let synced_before = old.state().fsync.is_none_or(FsyncSchedule::syncs);
        let blocks =
            Blocks::new(Arc::clone(&disk), block_bytes, blocks_per_file, options.fsync, synced_before);
        let fronts = read_fronts(&blocks, manifest, &*disk)?;

        let made_again = is_made_again.then(|| MANIFEST_NAME.to_owned());
        let lacks_end = !is_new && old.made_sequence() > 0 && end.is_none();
        let mut report = OpenReport {
            clean: is_new || old.state().closed,
            journal_cut_bytes: old.cut_bytes(),
            made_again: made_again
                .into_iter()
                .chain(old.without_header())
                .chain(lacks_end.then(|| END_NAME.to_owned()))
                .collect(),
            ..OpenReport::default()
        };
        let mut state = old.state().clone();
        let mut next_sequence = old.last_sequence() + 1;
        report.lost_end = find_lost_end(&old, end, &fronts);
        if let Some(lost) = &mut report.lost_end {
            // Whatever its last record says.
            report.clean = false;
            // Numbers go on above all that were given: what tells of the loss must not look like less than the journal has.
            next_sequence = lost.durable_sequence + 1;
            lost.logs_found = adopt(&mut state, fronts.iter().flat_map(FileFronts::headers));
            state.apply(&Record::EndLost { durable: lost.durable_sequence });
            tracing::error!(?lost, "the journal has lost its end");
        }
        if state.logs.values().any(|log| log.fsync.is_some_and(FsyncSchedule::syncs)) {
            blocks.start_syncs()?;
        }
        let mut fresh = state.clone();
        (fresh.closed, fresh.left_unsynced) = (false, None);
        let next = (fresh, next_sequence);
        let journal = Journal::go_on(Arc::clone(&disk), manifest, &pool, &options, old, next, end_file)?;
        let backend = disk.backend();
        if let Some(refused) = &backend.refused {
            tracing::warn!(backend = backend.name, refused, "using another backend");
        }
        let engine = Arc::new(Engine::new(disk, manifest, &options, blocks, journal, pool));
        let recovered = recover(&engine, &state, fronts, &mut report)
            .and_then(|()| move_cursors(&engine, &state, &mut report))
            .and_then(|()| note_schedule(&engine, state.fsync))
            .and_then(|()| engine.journal.promise(&Record::Mark));
        if let Err(error) = recovered {
            engine.logs.write().clear();
            return Err(error);
        }
        engine.journal.write_end(false);
        engine.journal.keep_reserve();
        let mut threads = Vec::new();
        let runs = [
            ("walrus-tend", (|engine| engine.tending.run(&engine)) as fn(Arc<Engine>)),
            ("walrus-commit", |engine| engine.committing.run(&engine)),
            ("walrus-ahead", |engine| engine.blocks.run_ahead()),
            ("walrus-memory", |engine| engine.pool.run_ahead()),
        ];
        for (name, run) in runs {
            let engine = Arc::clone(&engine);
            let thread = thread::Builder::new().name(name.to_owned()).spawn(move || run(engine));
            threads.push(thread.map_err(|e| Error::io("start a thread for", backend.name, e))?);
        }
        engine.tending.wake();
        let handle = StoreHandle {
            engine,
            report,
            backend,
            threads: Mutex::new(threads),
            changing: Mutex::new(()),
            lock: Mutex::new(Some(lock)),
        };
        Ok(Self { handle: Arc::new(handle) })
    }

    /// Makes a log; durable on return, but where the log never syncs. The same spec again gives the same log.
    ///
    /// Errors: `InvalidName`, `LogExists` if the id is taken by another spec, `NoSpace`.
    pub fn create_log(&self, spec: LogSpec) -> Result<Log> {
        let engine = &self.handle.engine;
        engine.check_open()?;
        check_name(&spec.name)?;
        let producers = spec.producers.encode();
        let _changing = self.handle.changing.lock();
        if let Some(log) = engine.log(spec.id) {
            let differs = [
                (log.name != spec.name, "name"),
                (log.base_offset != spec.base_offset.0, "base offset"),
                (log.epoch != spec.epoch, "epoch"),
                (log.first_producers != producers, "producer table"),
                (log.own_fsync != spec.fsync, "fsync schedule"),
            ];
            if let Some((_, field)) = differs.into_iter().find(|(differs, _)| *differs) {
                return Err(Error::LogExists { log: spec.id, field });
            }
            return Ok(self.wrap(log));
        }
        if engine.journal.with_state(|state| state.logs.contains_key(&spec.id)) {
            // Deleted, and ids are never used twice.
            return Err(Error::UnknownLog { log: spec.id });
        }
        let LogSpec { id, ref name, base_offset: Offset(base_offset), epoch, fsync, .. } = spec;
        let syncs = fsync.unwrap_or(engine.fsync).syncs();
        if syncs {
            engine.blocks.start_syncs()?;
        }
        let producers_bytes = &producers[..];
        let created =
            Record::LogCreated { log: id, base_offset, epoch, name, producers: producers_bytes, fsync };
        engine.journal.say(&created, syncs)?;
        let log = Arc::new(LogState::new(Arc::clone(engine), spec, producers));
        engine.logs.write().insert(id, Arc::clone(&log));
        Ok(self.wrap(log))
    }

    /// The log of an id.
    pub fn log(&self, id: LogId) -> Option<Log> {
        self.handle.engine.assert_origin();
        self.handle.engine.log(id).map(|log| self.wrap(log))
    }

    /// All logs, in order of id.
    pub fn logs(&self) -> Vec<Log> {
        self.handle.engine.assert_origin();
        let mut logs: Vec<_> =
            self.handle.engine.logs.read().values().map(|log| self.wrap(Arc::clone(log))).collect();
        logs.sort_unstable_by_key(Log::id);
        logs
    }

    /// Deletes a log and its cursors; durable on return, but where the log never syncs. Space is given back in the background. Handles of it answer
    /// `UnknownLog`.
    pub fn delete_log(&self, id: LogId) -> Result<()> {
        let engine = &self.handle.engine;
        engine.check_open()?;
        let _changing = self.handle.changing.lock();
        let Some(log) = engine.log(id) else {
            return Err(Error::UnknownLog { log: id });
        };
        let _log_changing = log.changing.lock();
        log.say_or_stop(&Record::LogDeleted { log: id })?;
        log.deleted.store(true, Ordering::Release);
        engine.logs.write().remove(&id);
        engine.group.exclusive(|| log.apply_delete());
        engine.waiters.wake_answered();
        log.arrivals.announce();
        engine.deleted.lock().push(id);
        engine.tending.wake();
        Ok(())
    }

    /// Stores a small fact under a key; durable on return, whatever the schedule of data is. Of an empty one nothing is left.
    pub fn put_property(&self, key: &str, value: &[u8]) -> Result<()> {
        self.handle.engine.check_open()?;
        check_name(key)?;
        if value.len() > PROPERTY_BYTES_MAX {
            return Err(Error::TooLarge { bytes: value.len() as u64, bytes_max: PROPERTY_BYTES_MAX as u64 });
        }
        self.handle.engine.journal.promise(&Record::Property { key, value })
    }

    /// Forgets a fact. Durable with whatever is made durable next: after a crash it may be there again.
    pub fn remove_property(&self, key: &str) -> Result<()> {
        self.handle.engine.check_open()?;
        self.handle.engine.journal.append(&Record::Property { key, value: b"" }).map(drop)
    }

    /// The fact under a key.
    pub fn property(&self, key: &str) -> Option<Bytes> {
        self.handle.engine.assert_origin();
        self.handle.engine.journal.with_state(|state| state.properties.get(key).cloned())
    }

    /// All facts, in order of key.
    pub fn properties(&self) -> Vec<(String, Bytes)> {
        self.handle.engine.assert_origin();
        let pairs = |(key, value): (&String, &Bytes)| (key.clone(), value.clone());
        self.handle.engine.journal.with_state(|state| state.properties.iter().map(pairs).collect())
    }

    /// Whether the store answers: `Closed` after its close, `Forked` in a child of the process that opened it. What has no
    /// error to give (names, places, counts) panics in a child, at once and with the same words.
    pub fn check_open(&self) -> Result<()> {
        self.handle.engine.check_open()
    }

    /// Whether this open or an earlier one found that the journal had lost its end: promises are forgotten for good, as by
    /// another disk.
    pub fn has_lost_promises(&self) -> bool {
        self.handle.engine.assert_origin();
        self.handle.engine.journal.with_state(|state| state.end_lost.is_some())
    }

    /// Whether a full disk had no room for what an open writes: nothing is taken (`NoSpace`) until the store is opened again
    /// with room.
    pub fn is_read_only(&self) -> bool {
        self.handle.engine.journal.is_read_only()
    }

    /// What opening found.
    pub fn report(&self) -> &OpenReport {
        &self.handle.report
    }

    /// The backend in use, and why not another.
    pub fn backend(&self) -> BackendInUse {
        self.handle.backend.clone()
    }

    /// Bytes that the store could still take on its disk.
    pub fn free_bytes(&self) -> Result<u64> {
        let disk = &self.handle.engine.disk;
        disk.free_bytes().map_err(|error| Error::io("statvfs", &disk.path(""), error))
    }

    /// Who the store is.
    pub fn uuid(&self) -> Uuid {
        self.handle.engine.manifest.store
    }

    /// Size of its blocks.
    pub fn block_bytes(&self) -> u64 {
        self.handle.engine.blocks.block_bytes
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.handle.engine.assert_origin();
        self.handle.engine.stats()
    }

    /// Syncs everything (but logs that never sync), notes that the store was closed in order and lets go of the directory.
    /// Appends answer `Closed` from now on.
    pub fn close(&self) -> Result<()> {
        self.handle.engine.check_origin()?;
        self.handle.close()
    }

    /// Writes what waits in memory and returns when the background has nothing left to do: for tests and for
    /// measurements.
    pub fn settle(&self) {
        self.handle.engine.assert_origin();
        self.handle.engine.commit_all();
        self.handle.engine.tending.settle();
        self.handle.engine.blocks.settle();
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    fn wrap(&self, log: Arc<LogState>) -> Log {
        Log::new(log, Arc::clone(&self.handle))
    }
}

const PROPERTY_BYTES_MAX: usize = 1 << 20;

impl StoreHandle {
    fn close(&self) -> Result<()> {
        let _changing = self.changing.lock();
        let engine = &self.engine;
        if engine.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let logs: Vec<_> = engine.logs.read().values().cloned().collect();
        for log in &logs {
            log.refuse_appends();
        }
        engine.commit_all();
        engine.journal.open_reserve();
        let takes_places = !engine.journal.is_read_only();
        let saved = logs.iter().filter(|_| takes_places).try_for_each(|log| log.save_cursors());
        engine.write_marks();
        engine.tending.stop();
        engine.committing.stop();
        engine.blocks.stop_ahead();
        engine.pool.stop_ahead();
        for thread in self.threads.lock().drain(..) {
            // The last handle may be dropped by a waker, on one of these threads.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
        let poisoned = logs.iter().find_map(|log| log.check_poisoned().err());
        let closed = match poisoned {
            Some(error) => Err(error),
            None => saved.and_then(|()| close_journal(engine, &logs)),
        };
        logs.iter().for_each(|log| log.arrivals.announce());
        engine.topics_made.announce();
        // Whoever still holds a log, or the store, holds no file of it.
        logs.iter().for_each(|log| log.let_go());
        engine.blocks.let_go();
        engine.journal.let_go();
        // Logs and engine hold each other.
        engine.logs.write().clear();
        *self.lock.lock() = None;
        closed
    }
}

impl Drop for StoreHandle {
    fn drop(&mut self) {
        if self.engine.check_origin().is_err() {
            // A forked child drops its copy: it must write nothing, and must not wait for locks or threads of its parent.
            std::mem::forget(Arc::clone(&self.engine));
            std::mem::forget(std::mem::take(self.threads.get_mut()));
            return;
        }
        if let Err(error) = self.close() {
            tracing::warn!(%error, "the store was not closed in order");
        }
    }
}

/// Says that the store was closed in order, and where what was never synced is.
fn close_journal(engine: &Engine, logs: &[Arc<LogState>]) -> Result<()> {
    if engine.journal.is_read_only() {
        return Ok(());
    }
    if let (true, Some(boot)) = (logs.iter().any(|log| !log.syncs()), engine.disk.boot()) {
        engine.journal.append(&Record::LeftUnsynced { boot })?;
    }
    let syncs = engine.fsync.syncs() || logs.iter().any(|log| log.syncs());
    engine.journal.close(syncs)
}

/// Whether the journal ends before a record that was durable, as its own header, END or a block says.
fn find_lost_end(old: &OldJournal, end: Option<End>, fronts: &[FileFronts]) -> Option<LostEnd> {
    let of_blocks = fronts.iter().flat_map(FileFronts::headers).map(|header| header.journal_sequence);
    let of_file = end.map(|end| end.sequence);
    let durable_sequence = of_blocks.chain(of_file).fold(old.made_sequence(), u64::max);
    let last_sequence = old.last_sequence();
    (last_sequence < durable_sequence && !seeded!(JournalEndBelieved)).then(|| LostEnd {
        last_sequence,
        durable_sequence,
        logs_found: Vec::new(),
    })
}

/// What a later open must know to say which logs lost something.
fn note_schedule(engine: &Engine, known: Option<FsyncSchedule>) -> Result<()> {
    if known.unwrap_or_default() != engine.fsync {
        engine.journal.append(&Record::Schedule { fsync: engine.fsync })?;
    }
    Ok(())
}

/// A cursor beyond the end of its log (its data was never synced, or cut) is set to the end.
fn move_cursors(engine: &Engine, state: &JournalState, report: &mut OpenReport) -> Result<()> {
    let logs: Vec<_> = engine.logs.read().values().cloned().collect();
    for log in logs {
        let end = log.end.load(Ordering::Acquire);
        if seeded!(CursorPastEnd) {
            continue;
        }
        // As it was before this open: where a tail was cut, the journal has moved them already.
        for (name, &from) in state.logs[&log.id].cursors.iter().filter(|(_, at)| **at > end) {
            engine.journal.append(&Record::Cursor { log: log.id, name, offset: end })?;
            let name = name.clone();
            report.moved_cursors.push(MovedCursor { log: log.id, name, from: Offset(from), to: Offset(end) });
        }
    }
    Ok(())
}
