//! The store: one directory of logs, opened by one process. Everything of the crate is wired together here.

pub(crate) mod inspection;
mod rendering;
pub(crate) mod repair;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use uuid::Uuid;

use crate::commit::committer::{Committer, Stats};
use crate::disk::{BackendInUse, ChunkPool, Directory, Disk, Overlay, SyncedWrites};
use crate::error::{Error, Result};
use crate::format::manifest::{MANIFEST_NAME, Manifest};
use crate::handle::Log;
use crate::handle::life::Life;
use crate::log::spec::LogSpec;
use crate::log::state::LogState;
use crate::names::check_name;
use crate::options::Options;
use crate::producers::ProducerChanges;
use crate::recovery::{
    FileFronts, LostEnd, MovedCursor, OpenManifest, OpenProgress, OpenReport, adopt, open_manifest,
    read_fronts, recover,
};
use crate::resources::Resources;
use crate::resources::arrivals::Arrivals;
use crate::resources::blocks::Blocks;
use crate::resources::journal::{
    END_NAME, End, EndFile, EndRead, Journal, JournalState, OldJournal, Record, TableTold,
};
use crate::seeded;
use crate::types::{FsyncSchedule, LogId, Offset};

/// Limit on the bytes of a property.
const PROPERTY_BYTES_MAX: usize = 1 << 20;

/// An open store. Clones share it; it closes by [`Store::close`], or when the last clone and the last handle of its
/// logs are dropped.
#[derive(Clone)]
pub struct Store {
    life: Arc<Life>,
    report: Arc<OpenReport>,
}

impl Store {
    /// Opens the store of a directory, or makes one there. Blocks until everything is readable: tails that may be torn
    /// are scanned, other data is not read. If a full disk has no room for what an open writes, the store opens for
    /// reading only ([`Store::is_read_only`]).
    ///
    /// Errors: `Locked` if another process or handle has it open; `UnsupportedFormat` if a program of another format
    /// wrote it; `Damaged` if manifest or journal are damaged.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_told(directory, options, &OpenProgress::default())
    }

    /// Opens as [`Store::open`] does, and tells meanwhile how far it is.
    pub fn open_told(directory: impl AsRef<Path>, options: Options, progress: &OpenProgress) -> Result<Self> {
        options.check()?;
        let path = directory.as_ref();
        let disk = Directory::open(path, options.backend)
            .map_err(|e| Error::io("open", &path.display().to_string(), e))?;
        match Self::open_on_told(Arc::new(disk), options.clone(), progress) {
            Err(error @ Error::NoSpace { .. }) => Self::open_full(path, options, progress).map_err(|_| error),
            opened => opened,
        }
    }

    /// Opens a store whose disk takes nothing more: changes of the open stay in memory, and later ones are refused.
    fn open_full(path: &Path, options: Options, progress: &OpenProgress) -> Result<Self> {
        let store = Self::open_on_told(Arc::new(Overlay::of_full_disk(path)), options, progress)?;
        store.resources().journal.make_read_only();
        tracing::error!(path = %path.display(), "the disk is full: the store is open for reading only");
        Ok(store)
    }

    /// Opens the store of any disk, for example of a simulated one in tests.
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Self> {
        Self::open_on_told(disk, options, &OpenProgress::default())
    }

    fn open_on_told(disk: Arc<dyn Disk>, options: Options, progress: &OpenProgress) -> Result<Self> {
        options.check()?;
        let lock = disk.lock().map_err(|e| match e.kind() {
            std::io::ErrorKind::WouldBlock => Error::Locked { path: disk.path("") },
            _ => Error::io("lock", &disk.path(""), e),
        })?;
        let OpenManifest { manifest, is_new, is_made_again } = open_manifest(&*disk, &options)?;
        let pool = Arc::new(ChunkPool::default());
        let old = OldJournal::read(&*disk, manifest, is_new)?;
        let EndRead { end, file: end_file } = EndFile::read(&disk, manifest.store)?;
        let Manifest { block_bytes, blocks_per_file, .. } = manifest;
        let synced_before = old.state().fsync.is_none_or(FsyncSchedule::syncs);
        let blocks =
            Blocks::new(Arc::clone(&disk), block_bytes, blocks_per_file, options.fsync, synced_before);
        progress.expect(blocks.list()?.len() + old.state().logs.len());
        let fronts = read_fronts(&blocks, manifest, &*disk, progress)?;

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
            // The store was not closed in order, whatever its last record says.
            report.clean = false;
            // Sequences go on above all that were given: the record of the loss must not have a lower one than the
            // journal had.
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
        let resources = Resources::new(disk, manifest, options.fsync, blocks, journal, pool);
        let backend = &resources.backend;
        if let Some(refused) = &backend.refused {
            tracing::warn!(backend = backend.name, refused, "using another backend");
        } else if let SyncedWrites::Cached { reason } = &backend.synced_writes {
            tracing::warn!(
                backend = backend.name,
                reason,
                "what is synced is written through the page cache"
            );
        }
        let committer = Arc::new(Committer::new(resources, &options));
        recover(&committer, &state, fronts, &mut report, progress)?;
        move_cursors(&committer, &state, &mut report)?;
        let journal = &committer.resources.journal;
        if state.fsync.unwrap_or_default() != options.fsync {
            // From the record on, opens believe the zeros of free space: they must be on the disk before it.
            if options.fsync.syncs() {
                committer.resources.blocks.sync_zeros()?;
            }
            // A later open must know the schedule to say which logs lost something.
            journal.append(&Record::Schedule { fsync: options.fsync })?;
        }
        journal.promise(&Record::Mark)?;
        journal.write_end(false);
        journal.keep_reserve();
        let life = Arc::new(Life::start(committer, lock)?);
        Ok(Self { life, report: Arc::new(report) })
    }

    /// Makes a log; durable on return, unless the log never syncs. The same spec again gives the same log.
    ///
    /// Errors: `InvalidName`; `LogExists` if another spec has the id; `UnknownLog` if a deleted log had it; `NoSpace`.
    pub fn create_log(&self, spec: LogSpec) -> Result<Log> {
        let Committer { resources, queues, registry, .. } = &*self.life.committer;
        resources.check_open()?;
        check_name(&spec.name)?;
        let _changing = self.life.changing.lock();
        if let Some(log) = registry.get(spec.id) {
            let differs = [
                (log.name != spec.name, "name"),
                (log.base_offset != spec.base_offset.0, "base offset"),
                (log.epoch != spec.epoch, "epoch"),
                (log.first_producers.as_ref() != Some(&spec.producers), "producer table"),
                (log.own_fsync != spec.fsync, "fsync schedule"),
            ];
            if let Some((_, field)) = differs.into_iter().find(|(differs, _)| *differs) {
                return Err(Error::LogExists { log: spec.id, field });
            }
            return Ok(self.wrap(log));
        }
        if resources.journal.with_state(|state| state.logs.contains_key(&spec.id)) {
            // The log was deleted, and ids are never used twice.
            return Err(Error::UnknownLog { log: spec.id });
        }
        let LogSpec { id, ref name, base_offset: Offset(base_offset), epoch, fsync, .. } = spec;
        let syncs = fsync.unwrap_or(resources.fsync).syncs();
        if syncs {
            resources.blocks.start_syncs()?;
        }
        if let Some(fsync) = fsync {
            resources.blocks.expect(fsync);
        }
        // A log is deleted under the same lock, so the journal does not forget this one before it has the record.
        let before = spec.after.and_then(|after| registry.get(after));
        let known = before.and_then(|before| Some((before.id, before.first_producers.clone()?)));
        let (after, since) = known.map_or_else(Default::default, |(after, since)| (Some(after), since));
        let producers = TableTold::Changes(ProducerChanges { since, now: spec.producers.clone() });
        let created = Record::LogCreated { log: id, base_offset, epoch, name, after, producers, fsync };
        resources.journal.say(&created, syncs)?;
        let first = Some(spec.producers.clone());
        let log = Arc::new(LogState::new(Arc::clone(resources), Arc::clone(queues), spec, first));
        registry.insert(Arc::clone(&log));
        Ok(self.wrap(log))
    }

    /// The log of an id; `None` if there is none.
    pub fn log(&self, id: LogId) -> Option<Log> {
        self.resources().assert_origin();
        self.life.committer.registry.get(id).map(|log| self.wrap(log))
    }

    /// All logs, in order of id.
    pub fn logs(&self) -> Vec<Log> {
        self.resources().assert_origin();
        let logs = self.life.committer.registry.all();
        let mut logs: Vec<_> = logs.into_iter().map(|log| self.wrap(log)).collect();
        logs.sort_unstable_by_key(Log::id);
        logs
    }

    /// Deletes a log and its cursors; durable on return, unless the log never syncs. Its handles answer `UnknownLog`
    /// from then on. Space is given back in the background.
    pub fn delete_log(&self, id: LogId) -> Result<()> {
        let Committer { resources, queues, registry, .. } = &*self.life.committer;
        resources.check_open()?;
        let _changing = self.life.changing.lock();
        let Some(log) = registry.get(id) else {
            return Err(Error::UnknownLog { log: id });
        };
        let _log_changing = log.changing.lock();
        log.say_or_stop(&Record::LogDeleted { log: id })?;
        log.deleted.store(true, Ordering::Release);
        registry.remove(id);
        self.life.committer.between_commits(|| log.apply_delete());
        log.arrivals.announce();
        registry.note_deleted(id);
        queues.chores.ask_upkeep();
        Ok(())
    }

    /// Stores a property under a key; durable on return, whatever the schedule of data is. An empty value removes it.
    pub fn put_property(&self, key: &str, value: &[u8]) -> Result<()> {
        self.resources().check_open()?;
        check_name(key)?;
        if value.len() > PROPERTY_BYTES_MAX {
            return Err(Error::TooLarge { bytes: value.len() as u64, bytes_max: PROPERTY_BYTES_MAX as u64 });
        }
        self.resources().journal.promise(&Record::Property { key, value })
    }

    /// Removes a property. The removal becomes durable with the next thing that does; after a crash before that, the
    /// property may be there again.
    pub fn remove_property(&self, key: &str) -> Result<()> {
        self.resources().check_open()?;
        self.resources().journal.append(&Record::Property { key, value: b"" }).map(drop)
    }

    /// The property under a key, if there is one.
    pub fn property(&self, key: &str) -> Option<Bytes> {
        self.resources().assert_origin();
        self.resources().journal.with_state(|state| state.properties.get(key).cloned())
    }

    /// All properties, in order of key.
    pub fn properties(&self) -> Vec<(String, Bytes)> {
        self.resources().assert_origin();
        let pairs = |(key, value): (&String, &Bytes)| (key.clone(), value.clone());
        self.resources().journal.with_state(|state| state.properties.iter().map(pairs).collect())
    }

    /// Fails with `Closed` after the store's close, and with `Forked` in a child of the process that opened it. Calls
    /// that return no error (names, places, counts) panic in such a child with the same words.
    pub fn check_open(&self) -> Result<()> {
        self.resources().check_open()
    }

    /// Whether this open or an earlier one found that the journal had lost its end. Promises are forgotten for good
    /// then, as if another disk had been put in.
    pub fn has_lost_promises(&self) -> bool {
        self.resources().assert_origin();
        self.resources().journal.with_state(|state| state.end_lost.is_some())
    }

    /// Whether a full disk had no room for what an open writes. Writes fail with `NoSpace` until the store is opened
    /// again with room.
    pub fn is_read_only(&self) -> bool {
        self.resources().journal.is_read_only()
    }

    /// The report of this open.
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// The backend in use, and why no other one is.
    pub fn backend(&self) -> BackendInUse {
        self.resources().backend.clone()
    }

    /// Bytes that the store could still take on its disk.
    pub fn free_bytes(&self) -> Result<u64> {
        let disk = &self.resources().disk;
        disk.free_bytes().map_err(|error| Error::io("statvfs", &disk.path(""), error))
    }

    /// Identity of the store.
    pub fn uuid(&self) -> Uuid {
        self.resources().manifest.store
    }

    /// Size of the store's largest blocks, in bytes.
    pub fn block_bytes(&self) -> u64 {
        self.resources().blocks.block_bytes
    }

    /// Counters since the store was opened.
    pub fn stats(&self) -> Stats {
        self.resources().assert_origin();
        self.life.committer.stats()
    }

    /// Closes the store: syncs everything but logs that never sync, notes that the store was closed in order, and lets
    /// go of the directory. Appends fail with `Closed` from now on.
    pub fn close(&self) -> Result<()> {
        self.resources().check_origin()?;
        self.life.close()
    }

    /// Writes everything that waits in memory and blocks until the background threads have nothing to do. For tests
    /// and measurements.
    pub fn drain(&self) {
        self.resources().assert_origin();
        self.life.committer.commit_all();
        self.life.committer.queues.chores.await_idle();
        self.resources().blocks.await_ready();
        self.resources().pages.await_idle();
    }

    pub(crate) fn resources(&self) -> &Resources {
        &self.life.committer.resources
    }

    /// Tasks and threads that wait for a topic which does not exist yet.
    pub(crate) fn topics_made(&self) -> &Arrivals {
        &self.life.topics_made
    }

    fn wrap(&self, log: Arc<LogState>) -> Log {
        Log::new(log, Arc::clone(&self.life))
    }
}

/// Finds out whether the journal ends before a record that was durable, as its own header, END or a block says.
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

/// Sets each cursor beyond the end of its log to that end: the data there was never synced, or was cut.
fn move_cursors(committer: &Committer, state: &JournalState, report: &mut OpenReport) -> Result<()> {
    for log in committer.registry.all() {
        let end = log.end.load(Ordering::Acquire);
        if seeded!(CursorPastEnd) {
            continue;
        }
        // The state is the one before this open: the journal has moved cursors already where a tail was cut.
        for (name, &from) in state.logs[&log.id].cursors.iter().filter(|(_, at)| **at > end) {
            committer.resources.journal.append(&Record::Cursor { log: log.id, name, offset: end })?;
            let name = name.clone();
            report.moved_cursors.push(MovedCursor { log: log.id, name, from: Offset(from), to: Offset(end) });
        }
    }
    Ok(())
}
