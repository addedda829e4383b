//! A store: one directory of logs, opened by one process. Wires everything of the crate together.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use uuid::Uuid;

use crate::blocks::Blocks;
use crate::disk::{BackendInUse, ChunkPool, Directory, Disk, FileKind, Prepare, write_all};
use crate::engine::{Engine, Stats};
use crate::error::{Error, Result};
use crate::format::manifest::{MANIFEST_NAME, Manifest};
use crate::journal::{Journal, Record};
use crate::log::state::LogState;
use crate::log::{Log, LogSpec};
use crate::options::{FsyncSchedule, Options};
use crate::recovery::{MovedCursor, OpenReport, recover};
use crate::seeded;
use crate::sync::Mutex;
use crate::sync::thread::{self, JoinHandle};
use crate::types::{LogId, Offset};

const NAME_BYTES_MAX: usize = 255;
const NEW_MANIFEST_NAME: &str = "MANIFEST.tmp";

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
    /// are scanned, the rest is not read.
    ///
    /// Errors: `Locked` if another process (or handle) has it open, `UnsupportedFormat` if a newer program wrote it,
    /// `Damaged` if manifest or journal are.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        options.check()?;
        let path = directory.as_ref();
        let disk = Directory::open(path, options.backend)
            .map_err(|e| Error::io("open", &path.display().to_string(), e))?;
        Self::open_on(Arc::new(disk), options)
    }

    /// Opens the store of any disk: the simulated one, in tests.
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Self> {
        options.check()?;
        let lock = disk.lock().map_err(|e| match e.kind() {
            std::io::ErrorKind::WouldBlock => Error::Locked { path: disk.path("") },
            _ => Error::io("lock", &disk.path(""), e),
        })?;
        let (manifest, is_new) = open_manifest(&*disk, &options)?;
        let pool = Arc::new(ChunkPool::default());
        let (journal, replayed) = Journal::open(
            Arc::clone(&disk),
            manifest.store,
            &pool,
            Prepare::fitting(options.fsync),
            options.journal_bytes_max,
            is_new,
        )?;
        let Manifest { store, block_bytes, blocks_per_file } = manifest;
        let synced_before = replayed.state.fsync.is_none_or(FsyncSchedule::syncs);
        let blocks =
            Blocks::new(Arc::clone(&disk), block_bytes, blocks_per_file, options.fsync, synced_before);
        if replayed.state.logs.values().any(|log| log.fsync.is_some_and(FsyncSchedule::syncs)) {
            blocks.start_syncs()?;
        }
        let backend = disk.backend();
        if let Some(refused) = &backend.refused {
            tracing::warn!(backend = backend.name, refused, "using another backend");
        }
        let engine = Arc::new(Engine::new(disk, store, &options, blocks, journal, pool));
        let mut report = OpenReport {
            clean: is_new || replayed.state.closed,
            journal_cut_bytes: replayed.cut_bytes,
            ..OpenReport::default()
        };
        let recovered = recover(&engine, &replayed.state, &mut report)
            .and_then(|()| move_cursors(&engine, &mut report))
            .and_then(|()| note_schedule(&engine, replayed.state.fsync))
            .and_then(|()| engine.journal.promise(&Record::Mark));
        if let Err(error) = recovered {
            engine.logs.write().clear();
            return Err(error);
        }
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
        self.handle.engine.log(id).map(|log| self.wrap(log))
    }

    /// All logs, in order of id.
    pub fn logs(&self) -> Vec<Log> {
        let mut logs: Vec<_> =
            self.handle.engine.logs.read().values().map(|log| self.wrap(Arc::clone(log))).collect();
        logs.sort_unstable_by_key(Log::id);
        logs
    }

    /// Deletes a log and its cursors; durable on return, but where the log never syncs. Space is given back in the background. Handles of it answer
    /// `UnknownLog`.
    pub fn delete_log(&self, id: LogId) -> Result<()> {
        let engine = &self.handle.engine;
        let _changing = self.handle.changing.lock();
        let Some(log) = engine.log(id) else {
            return Err(Error::UnknownLog { log: id });
        };
        let _log_changing = log.changing.lock();
        log.say_or_stop(&Record::LogDeleted { log: id })?;
        engine.logs.write().remove(&id);
        engine.group.exclusive(|| log.apply_delete());
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
        self.handle.engine.journal.with_state(|state| state.properties.get(key).cloned())
    }

    /// All facts, in order of key.
    pub fn properties(&self) -> Vec<(String, Bytes)> {
        let pairs = |(key, value): (&String, &Bytes)| (key.clone(), value.clone());
        self.handle.engine.journal.with_state(|state| state.properties.iter().map(pairs).collect())
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
        self.handle.engine.store
    }

    /// Size of its blocks.
    pub fn block_bytes(&self) -> u64 {
        self.handle.engine.blocks.block_bytes
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.handle.engine.stats()
    }

    /// Syncs everything (but logs that never sync), notes that the store was closed in order and lets go of the directory.
    /// Appends answer `Closed` from now on.
    pub fn close(&self) -> Result<()> {
        self.handle.close()
    }

    /// Writes what waits in memory and returns when the background has nothing left to do: for tests and for
    /// measurements.
    pub fn settle(&self) {
        self.handle.engine.commit_all();
        self.handle.engine.tending.settle();
        self.handle.engine.blocks.settle();
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
        let saved = logs.iter().try_for_each(|log| log.clean_tail().and_then(|()| log.save_cursors()));
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
        // Logs and engine hold each other.
        engine.logs.write().clear();
        *self.lock.lock() = None;
        closed
    }
}

impl Drop for StoreHandle {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!(%error, "the store was not closed in order");
        }
    }
}

/// Says that the store was closed in order, and where what was never synced is.
fn close_journal(engine: &Engine, logs: &[Arc<LogState>]) -> Result<()> {
    if let (true, Some(boot)) = (logs.iter().any(|log| !log.syncs()), engine.disk.boot()) {
        engine.journal.append(&Record::LeftUnsynced { boot })?;
    }
    let syncs = engine.fsync.syncs() || logs.iter().any(|log| log.syncs());
    engine.journal.close(syncs)
}

pub(crate) fn check_name(name: &str) -> Result<()> {
    let reason = match name.len() {
        0 => "is empty",
        1..=NAME_BYTES_MAX if !name.contains('\0') => return Ok(()),
        1..=NAME_BYTES_MAX => "contains NUL",
        _ => "is longer than 255 bytes",
    };
    Err(Error::InvalidName { name: name.to_owned(), reason })
}

/// The manifest, written now if the directory is new.
fn open_manifest(disk: &dyn Disk, options: &Options) -> Result<(Manifest, bool)> {
    let path = disk.path(MANIFEST_NAME);
    let failed = |operation| move |e| Error::io(operation, &disk.path(MANIFEST_NAME), e);
    let names = disk.list().map_err(failed("list"))?;
    if names.iter().any(|name| name == MANIFEST_NAME) {
        let file = disk.open(MANIFEST_NAME, 0, FileKind::Plain).map_err(failed("open"))?;
        let mut bytes = Vec::new();
        file.read(0, PAGE, &mut bytes).map_err(failed("read"))?;
        // A crash in the middle of making the store: nothing was promised yet.
        let has_journal =
            names.iter().any(|name| name.starts_with("journal-0") || name.starts_with("journal-1"));
        return Ok((
            Manifest::decode(&bytes)?,
            !has_journal && !names.iter().any(|name| name.ends_with(".wal")),
        ));
    }
    if let Some(stray) = names.iter().find(|name| name.starts_with("journal-") || name.ends_with(".wal")) {
        return Err(Error::damaged(&path, format!("it is missing, but {stray} is there")));
    }
    if names.iter().any(|name| name == NEW_MANIFEST_NAME) {
        disk.remove(NEW_MANIFEST_NAME).map_err(failed("remove"))?;
    }
    let &Options { block_bytes, blocks_per_file, .. } = options;
    let manifest = Manifest { store: Uuid::new_v4(), block_bytes, blocks_per_file };
    let file = disk.create(NEW_MANIFEST_NAME, 0, FileKind::Plain).map_err(failed("create"))?;
    write_all(&*file, 0, &[&manifest.encode()], false).map_err(failed("write"))?;
    file.sync().map_err(failed("sync"))?;
    disk.rename(NEW_MANIFEST_NAME, MANIFEST_NAME).map_err(failed("rename"))?;
    disk.sync_directory().map_err(failed("sync"))?;
    Ok((manifest, true))
}

/// More than any manifest has.
const PAGE: usize = 4096;

/// What a later open must know to say which logs lost something.
fn note_schedule(engine: &Engine, known: Option<FsyncSchedule>) -> Result<()> {
    if known.unwrap_or_default() != engine.fsync {
        engine.journal.append(&Record::Schedule { fsync: engine.fsync })?;
    }
    Ok(())
}

/// A cursor beyond the end of its log (its data was never synced, or cut) is set to the end.
fn move_cursors(engine: &Engine, report: &mut OpenReport) -> Result<()> {
    let logs: Vec<_> = engine.logs.read().values().cloned().collect();
    for log in logs {
        let end = log.end.load(Ordering::Acquire);
        if seeded!(CursorPastEnd) {
            continue;
        }
        let beyond: Vec<(String, u64)> = engine.journal.with_state(|state| {
            let cursors = state.logs.get(&log.id).map(|entry| &entry.cursors);
            cursors
                .into_iter()
                .flatten()
                .filter(|(_, at)| **at > end)
                .map(|(name, at)| (name.clone(), *at))
                .collect()
        });
        for (name, from) in beyond {
            engine.journal.append(&Record::Cursor { log: log.id, name: &name, offset: end })?;
            report.moved_cursors.push(MovedCursor { log: log.id, name, from: Offset(from), to: Offset(end) });
        }
    }
    Ok(())
}
