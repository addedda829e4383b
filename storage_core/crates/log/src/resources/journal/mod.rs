//! The journal: small records of what the store promised (logs and their ends, cursors, properties, synced marks).
//! Each has a sequence and a checksum; commits are grouped. A promise is synced whatever the schedule of data is; a
//! record about a log that never syncs is only written. Only a torn last group is cut at open; any other damage
//! refuses the start. Compaction writes the state to a new file. On a full disk, records that free space have room of
//! their own.

mod end;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod header;
mod read;
mod record;
mod salvage;
mod spare;
mod state;

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

pub(crate) use end::{END_NAME, End, EndFile, EndRead};
pub(crate) use files::is_name;
use files::{NEW_NAME, RANGE_BYTES, journal_name, journal_number, list, remove_new};
use header::HEADER_BYTES;
pub(crate) use header::{HeaderBytes, JournalHeader};
pub(crate) use read::OldJournal;
pub(crate) use record::{DIRTY, Record, TableTold};
pub(crate) use salvage::{SalvagedJournal, replace, salvage};
use spare::{Room, Spare};
pub(crate) use state::{Compaction, JournalState, LogEntry, SealedEntry};

use crate::disk::{ChunkPool, ClosedFile, Disk, DiskFile, FileKind};
use crate::error::{Error, Result};
use crate::format::manifest::Manifest;
use crate::options::Options;
use crate::resources::group::Group;
use crate::resources::space::Space;
use crate::resources::tail::Tail;
use crate::seeded;
use crate::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64},
};

pub(crate) struct Journal {
    disk: Arc<dyn Disk>,
    manifest: Manifest,
    pool: Arc<ChunkPool>,
    room: Room,
    bytes_max: u64,
    /// Whether ordinary records may take the reserve too, because the store is being opened or closed.
    is_reserve_open: AtomicBool,
    /// Whether nothing can be written because the disk is full: the journal of a store that is only read.
    is_read_only: AtomicBool,
    spare: Spare,
    writer: Mutex<Writer>,
    group: Group,
    /// Whether somebody waits for a sync, so that the next flush is one.
    is_sync_asked: AtomicBool,
    /// Sequence of the last record that the file has; a killed process keeps it.
    written: AtomicU64,
    /// Sequence of the last durable record.
    durable: AtomicU64,
    poisoned: OnceLock<Arc<str>>,
    pub(crate) syncs: AtomicU64,
    end_file: EndFile,
}

struct Writer {
    state: JournalState,
    number: u64,
    tail: Tail,
    space: Arc<Space>,
    /// Position up to which the file was written.
    flushed: u64,
    /// Whether bytes below `flushed` were not synced.
    is_unsynced: bool,
    next_sequence: u64,
    /// Size after the last compaction.
    compacted_bytes: u64,
    scratch: Vec<u8>,
    /// Whether the record of the close was appended; nothing comes behind it.
    is_closed: bool,
}

/// A whole journal that was just written and synced.
struct NewJournal {
    number: u64,
    tail: Tail,
    space: Arc<Space>,
    end: u64,
    next_sequence: u64,
}

impl NewJournal {
    /// The writer that appends to the journal, whose records give `state`.
    fn goes_on(self, state: JournalState) -> Writer {
        let Self { number, tail, space, end, next_sequence } = self;
        Writer {
            state,
            number,
            tail,
            space,
            flushed: end,
            is_unsynced: false,
            next_sequence,
            compacted_bytes: end,
            scratch: Vec::new(),
            is_closed: false,
        }
    }
}

impl Journal {
    /// Goes on in a new file with `state`, and with records from a sequence on; the old journal is not needed any
    /// more. The file is always a new one: what a killed process wrote may not be synced, and a cut tail must not come
    /// back.
    pub(crate) fn go_on(
        disk: Arc<dyn Disk>,
        manifest: Manifest,
        pool: &Arc<ChunkPool>,
        options: &Options,
        old: OldJournal,
        (state, first_sequence): (JournalState, u64),
        end_file: EndFile,
    ) -> Result<Self> {
        let OldJournal { number, older, read } = old;
        let room = Room::new(options);
        let number_new = number + 1;
        let write = || write_journal(&disk, manifest, pool, room, &state, number_new, first_sequence);
        let is_full = |error: &Error| matches!(error, Error::NoSpace { .. });
        let mut written = write();
        if written.as_ref().is_err_and(is_full) {
            remove_new(&*disk)?;
            if let Some(file) = spare::take(&*disk)? {
                written =
                    write_journal_in(file, &disk, manifest, pool, room, &state, number_new, first_sequence);
            }
        }
        if number > 0 && written.as_ref().is_err_and(is_full) {
            // The old file has space ahead that it does not need any more.
            read.give_back_ahead(&*disk, &journal_name(number))?;
            written = write();
        }
        if written.as_ref().is_err_and(is_full) {
            // The store is opened for reading only, if at all, and the disk stays as it was.
            remove_new(&*disk)?;
        }
        let writer = written?.goes_on(state);
        for old in older.into_iter().chain((number > 0).then_some(number)) {
            disk.remove(&journal_name(old))
                .map_err(|e| Error::io("remove", &disk.path(&journal_name(old)), e))?;
        }
        let last = writer.next_sequence - 1;
        Ok(Self {
            disk,
            manifest,
            pool: Arc::clone(pool),
            room,
            bytes_max: options.journal_bytes_max,
            is_reserve_open: AtomicBool::new(true),
            is_read_only: AtomicBool::new(false),
            spare: Spare::default(),
            writer: Mutex::new(writer),
            group: Group::default(),
            is_sync_asked: AtomicBool::new(false),
            written: AtomicU64::new(last),
            durable: AtomicU64::new(last),
            poisoned: OnceLock::new(),
            syncs: AtomicU64::new(0),
            end_file,
        })
    }

    /// Keeps the last of the space for records that free some, from now on.
    pub(crate) fn keep_reserve(&self) {
        self.is_reserve_open.store(false, Ordering::Release);
    }

    /// Lets all records take the reserve, because the store closes.
    pub(crate) fn open_reserve(&self) {
        self.is_reserve_open.store(true, Ordering::Release);
    }

    /// Refuses records from now on, because the disk has no room for them.
    pub(crate) fn make_read_only(&self) {
        self.is_read_only.store(true, Ordering::Release);
    }

    /// Whether the journal takes no records, for want of room.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Acquire)
    }

    /// Appends a record and gives its sequence; [`Journal::commit`] of that sequence or a later one makes it a
    /// promise.
    pub(crate) fn append(&self, record: &Record<'_>) -> Result<u64> {
        self.check()?;
        if self.is_read_only() {
            return Err(Error::NoSpace { path: self.disk.path("") });
        }
        let takes_all = record.frees_space() || self.is_reserve_open.load(Ordering::Acquire);
        let kept = if takes_all { 0 } else { self.room.reserve_bytes };
        let mut guard = self.writer.lock();
        let writer = &mut *guard;
        if writer.is_closed {
            return Err(Error::Closed);
        }
        let sequence = writer.next_sequence;
        let proven = self.durable.load(Ordering::Acquire);
        writer.scratch.clear();
        record.encode(sequence, proven, &mut writer.scratch);
        let end = writer.tail.written() + writer.scratch.len() as u64;
        writer.space.reach(end + kept).map_err(|e| Error::io("grow", &self.path(writer.number), e))?;
        if let (false, Some(log)) = (writer.state.apply(record), record.log()) {
            return Err(Error::UnknownLog { log });
        }
        let appended = writer.tail.append(&writer.scratch);
        appended.map_err(|e| Error::io("write", &self.path(writer.number), e))?;
        writer.next_sequence += 1;
        Ok(sequence)
    }

    /// Makes everything up to a sequence durable, or only written if `durable` is false; callers share the write.
    pub(crate) fn commit(&self, sequence: u64, durable: bool) -> Result<()> {
        let done = if durable { &self.durable } else { &self.written };
        if durable {
            // The flag is set after the append, so a flush that sees it has the record too.
            self.is_sync_asked.store(true, Ordering::Release);
        }
        let reached = || done.load(Ordering::Acquire) >= sequence || self.poisoned.get().is_some();
        self.group.wait(reached, || self.flush(durable));
        if done.load(Ordering::Acquire) >= sequence { Ok(()) } else { self.check() }
    }

    /// Appends a record and commits it durably.
    pub(crate) fn promise(&self, record: &Record<'_>) -> Result<()> {
        self.say(record, true)
    }

    /// Appends a record and commits it, durably if `durable`.
    pub(crate) fn say(&self, record: &Record<'_>, durable: bool) -> Result<()> {
        let sequence = self.append(record)?;
        self.commit(sequence, durable)
    }

    /// Notes that the store was closed in order; nothing can be appended any more.
    pub(crate) fn close(&self, durable: bool) -> Result<()> {
        // A second record proves the first one and everything before it.
        self.say(&Record::Closed, durable)?;
        let sequence = self.append(&Record::Closed)?;
        self.writer.lock().is_closed = true;
        self.commit(sequence, durable)?;
        if durable {
            self.write_end(true);
        } else if let boot @ Some(_) = self.disk.boot() {
            self.end_file.write(|| {
                let number = self.writer.lock().number;
                End { number, sequence: self.written.load(Ordering::Acquire), is_closed: true, boot }
            });
        }
        Ok(())
    }

    /// Closes the files, so that handles which outlive the store keep none open.
    pub(crate) fn let_go(&self) {
        let mut writer = self.writer.lock();
        writer.is_closed = true;
        writer.tail.let_go();
        writer.space = Arc::new(Space::new(Arc::new(ClosedFile), 0..RANGE_BYTES, RANGE_BYTES, self.room.how));
        drop(writer);
        self.spare.let_go();
        self.end_file.let_go();
    }

    /// Sequence of the last record that is on the disk.
    pub(crate) fn durable_sequence(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Writes into END how far the journal is on the disk.
    pub(crate) fn write_end(&self, is_closed: bool) {
        self.end_file.write(|| {
            let number = self.writer.lock().number;
            End { number, sequence: self.durable_sequence(), is_closed, boot: None }
        });
    }

    /// Runs `read` on the state.
    pub(crate) fn with_state<T>(&self, read: impl FnOnce(&JournalState) -> T) -> T {
        read(&self.writer.lock().state)
    }

    /// Prepares space ahead, and compacts the journal if that is due. The background thread calls this.
    pub(crate) fn tend(&self) -> Result<()> {
        self.check()?;
        let (space, written, number, is_large) = {
            let writer = self.writer.lock();
            let written = writer.tail.written();
            let is_large = self.is_large(&writer);
            (Arc::clone(&writer.space), written, writer.number, is_large)
        };
        if is_large {
            return self.group.exclusive(|| self.compact());
        }
        let wanted = written + self.room.reserve_bytes;
        if space.is_short(wanted) {
            space.prepare_ahead(wanted).map_err(|e| Error::io("grow", &self.path(number), e))?;
        }
        if self.spare.is_short(wanted) {
            self.spare.make(&*self.disk, wanted)?;
        }
        Ok(())
    }

    fn is_large(&self, writer: &Writer) -> bool {
        let written = writer.tail.written();
        written > self.bytes_max && written > 4 * writer.compacted_bytes
    }

    /// Whether the background thread should call [`Journal::tend`].
    pub(crate) fn needs_tending(&self) -> bool {
        let writer = self.writer.lock();
        let wanted = writer.tail.written() + self.room.reserve_bytes;
        writer.space.is_short(wanted) || self.spare.is_short(wanted) || self.is_large(&writer)
    }

    fn compact(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        let number = writer.number;
        let next = write_journal(
            &self.disk,
            self.manifest,
            &self.pool,
            self.room,
            &writer.state,
            number + 1,
            writer.next_sequence,
        )
        .inspect_err(|error| {
            // A full disk leaves the old file as it was; after any other error nobody knows which file counts.
            if !matches!(error, Error::NoSpace { .. }) {
                self.poison(&error.to_string());
            }
        })?;
        *writer = next.goes_on(std::mem::take(&mut writer.state));
        self.durable.store(writer.next_sequence - 1, Ordering::Release);
        self.written.store(writer.next_sequence - 1, Ordering::Release);
        drop(writer);
        self.write_end(false);
        let old = journal_name(number);
        self.disk.remove(&old).map_err(|e| Error::io("remove", &self.disk.path(&old), e))
    }

    fn flush(&self, durable: bool) {
        // The flag is taken before the capture: whoever sets it afterwards waits for the next flush.
        let durable = self.is_sync_asked.swap(false, Ordering::AcqRel) || durable;
        let (captured, sequence, number, was_unsynced) = {
            let writer = self.writer.lock();
            let captured = writer.tail.capture(writer.flushed);
            (captured, writer.next_sequence - 1, writer.number, writer.is_unsynced)
        };
        // A durable write does not sync what was written before it.
        let written = captured.write(durable && !was_unsynced);
        let synced = written.and_then(|_| if durable && was_unsynced { captured.sync() } else { Ok(()) });
        if let Err(error) = synced {
            self.poison(&Error::io("write", &self.path(number), error).to_string());
            return;
        }
        self.syncs.fetch_add(u64::from(durable), Ordering::Relaxed);
        let mut writer = self.writer.lock();
        writer.flushed = captured.end;
        writer.is_unsynced = !durable;
        if let Some(recent) = writer.tail.recent() {
            recent.release(captured.end);
        }
        if durable {
            self.durable.store(sequence, Ordering::Release);
        }
        self.written.store(sequence, Ordering::Release);
    }

    fn poison(&self, reason: &str) {
        tracing::error!(reason, "the journal takes no more records");
        let _ = self.poisoned.set(reason.into());
    }

    fn check(&self) -> Result<()> {
        match self.poisoned.get() {
            Some(reason) => Err(Error::Poisoned { reason: Arc::clone(reason) }),
            None => Ok(()),
        }
    }

    fn path(&self, number: u64) -> String {
        self.disk.path(&journal_name(number))
    }
}

/// Writes a whole journal to a new file.
fn write_journal(
    disk: &Arc<dyn Disk>,
    manifest: Manifest,
    pool: &Arc<ChunkPool>,
    room: Room,
    state: &JournalState,
    number: u64,
    first_sequence: u64,
) -> Result<NewJournal> {
    remove_new(&**disk)?;
    let failed = |e| Error::io("create", &disk.path(NEW_NAME), e);
    let file = disk.create(NEW_NAME, 0, FileKind::Pages).map_err(failed)?;
    write_journal_in((file, 0), disk, manifest, pool, room, state, number, first_sequence)
}

/// Writes a whole journal to a file under another name, of which some bytes have their space already, and then renames
/// the file: the journal is there entirely or not at all.
#[allow(clippy::too_many_arguments, reason = "what a journal is made of, and where")]
fn write_journal_in(
    (file, prepared): (Arc<dyn DiskFile>, u64),
    disk: &Arc<dyn Disk>,
    manifest: Manifest,
    pool: &Arc<ChunkPool>,
    room: Room,
    state: &JournalState,
    number: u64,
    first_sequence: u64,
) -> Result<NewJournal> {
    let path = disk.path(&journal_name(number));
    let path = path.as_str();
    let failed = |operation| move |source| Error::io(operation, path, source);
    let mut bytes = vec![0; HEADER_BYTES];
    let mut sequence = first_sequence;
    state.for_each_record(|record| {
        record.encode(sequence, 0, &mut bytes);
        sequence += 1;
    });
    // A last record proves all records before it, so that damage to them can be told from a torn end.
    let mut proof = Vec::new();
    Record::Mark.encode(sequence, sequence - 1, &mut proof);
    let (made_sequence, made_bytes) = (sequence, (bytes.len() + proof.len()) as u64);
    let header = JournalHeader { manifest, number, first_sequence, made_sequence, made_bytes };
    bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
    let space = Arc::new(Space::new(Arc::clone(&file), 0..RANGE_BYTES, prepared, room.how));
    let end = bytes.len() as u64;
    match space.prepare_ahead(end + room.reserve_bytes) {
        // The disk has no room for the reserve, so the journal takes only as much as it needs.
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => space.reach(end),
        prepared => prepared,
    }
    .map_err(failed("grow"))?;
    let mut tail = Tail::buffered(file, &(0..RANGE_BYTES), 0, pool).map_err(failed("open"))?;
    tail.append(&bytes).map_err(failed("write"))?;
    let snapshot = tail.capture(0);
    snapshot.write(true).map_err(failed("write"))?;
    space.reach(made_bytes).map_err(failed("grow"))?;
    tail.append(&proof).map_err(failed("write"))?;
    let mark = tail.capture(snapshot.end);
    mark.write(true).map_err(failed("write"))?;
    disk.rename(NEW_NAME, &journal_name(number)).map_err(failed("rename"))?;
    if !seeded!(NoDirectorySync) {
        disk.sync_directory().map_err(failed("sync the directory"))?;
    }
    Ok(NewJournal { number, tail, space, end: mark.end, next_sequence: sequence + 1 })
}

/// Reads the manifest from the headers of all journals on a disk.
pub(crate) fn manifests(disk: &dyn Disk) -> Result<Vec<Manifest>> {
    let mut found = Vec::new();
    for name in list(disk)? {
        let Some(number) = journal_number(&name) else { continue };
        let failed = |e| Error::io("read", &disk.path(&name), e);
        let mut bytes = Vec::new();
        let file = disk.open(&name, 0, FileKind::Pages).map_err(failed)?;
        file.read(0, HEADER_BYTES, &mut bytes).map_err(failed)?;
        if let HeaderBytes::Header(header) = JournalHeader::decode(&bytes)
            && header.number == number
        {
            found.push(header.manifest);
        }
    }
    Ok(found)
}
