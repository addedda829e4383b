//! The files of blocks, and the owner of each slot in them. Slots are made ready ahead, so that opening a block takes
//! no system call. Freed slots are made to read as zeros before they are used again, and a file without blocks is
//! removed.

mod ahead;
mod classes;
mod file;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use ahead::{Ahead, Kind, Task};
pub(crate) use classes::{Classes, FileName, LastBlock, Size};
use file::FileSlots;
pub(crate) use file::{BlockFile, SlotState, Slots};

use crate::disk::{Disk, FileKind, TailKind};
use crate::error::{Error, Result};
use crate::format::footer::data_max;
use crate::page::PAGE_BYTES;
use crate::resources::space::Space;
use crate::seeded;
use crate::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64},
};
use crate::types::FsyncSchedule;

/// Lists the files of blocks on a disk, in order.
pub(crate) fn list_files(disk: &dyn Disk, classes: &Classes) -> Result<Vec<FileName>> {
    let names = disk.list().map_err(|e| Error::io("list", &disk.path(""), e))?;
    let mut files: Vec<_> = names.iter().filter_map(|name| classes.parse_name(name)).collect();
    files.sort_unstable();
    Ok(files)
}

pub(crate) struct Blocks {
    disk: Arc<dyn Disk>,
    pub(crate) block_bytes: u64,
    pub(crate) classes: Classes,
    /// Whether any log syncs its data: then directory changes and zeroing are synced too.
    sync: AtomicBool,
    /// Whether the store before this open never synced, so that the zeros of the space that it gave back may not be on
    /// the disk.
    doubts_zeros: bool,
    files: Mutex<BTreeMap<u64, FileSlots>>,
    ahead: Ahead,
    next_sequence: AtomicU64,
    /// Number of the next file. It only grows: a file that is being removed, or could not be, still has its name.
    next_file: AtomicU64,
}

impl Blocks {
    /// The files of a store with the schedule `fsync`, none of them opened yet; `synced_before` tells whether the store synced before
    /// this open.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        block_bytes: u64,
        blocks_per_file: u32,
        fsync: FsyncSchedule,
        synced_before: bool,
    ) -> Self {
        let blocks = Self {
            disk,
            block_bytes,
            classes: Classes::new(block_bytes, blocks_per_file),
            sync: AtomicBool::new(fsync.syncs()),
            doubts_zeros: !synced_before,
            files: Mutex::default(),
            ahead: Ahead::default(),
            next_sequence: AtomicU64::new(1),
            next_file: AtomicU64::new(1),
        };
        blocks.expect(fsync);
        blocks
    }

    /// Has a block made ready for the first log with this schedule.
    pub(crate) fn expect(&self, fsync: FsyncSchedule) {
        self.ahead.expect(Kind { class: 0, tails: self.tails(fsync), synced: fsync.syncs(), bulk: false });
    }

    /// Lists the files that are there, in order.
    pub(crate) fn list(&self) -> Result<Vec<FileName>> {
        list_files(&*self.disk, &self.classes)
    }

    /// The way in which the appends of logs with this schedule reach their files. Logs that sync each append go the same
    /// way with every backend: their bytes are written by the commit, past the page cache where the file system can. A
    /// mapping serves the others, of which a killed process then loses nothing.
    pub(crate) fn tails(&self, fsync: FsyncSchedule) -> TailKind {
        if self.disk.maps() && fsync != FsyncSchedule::SyncEach {
            TailKind::Mapped
        } else {
            TailKind::Buffered
        }
    }

    /// Opens a file that is there.
    pub(crate) fn open(&self, name: FileName) -> Result<Arc<BlockFile>> {
        let kind = FileKind::of_tails(name.tails);
        let file = self.with_file(name, "open", |name, bytes| self.disk.open(name, bytes, kind))?;
        *file.has_doubtful_zeros.lock() = self.doubts_zeros;
        Ok(file)
    }

    fn with_file(
        &self,
        name: FileName,
        operation: &'static str,
        open: impl FnOnce(&str, u64) -> std::io::Result<Arc<dyn crate::disk::DiskFile>>,
    ) -> Result<Arc<BlockFile>> {
        let (slot_bytes, text) = (self.classes.slot_bytes(name.class), self.classes.write_name(name));
        let path = self.disk.path(&text);
        let file = open(&text, self.classes.file_bytes()).map_err(|e| Error::io(operation, &path, e))?;
        let (poisoned, has_doubtful_zeros) = (OnceLock::new(), Mutex::new(false));
        Ok(Arc::new(BlockFile { name, slot_bytes, file, path, poisoned, has_doubtful_zeros }))
    }

    /// Adds a file with the slot states that recovery found.
    pub(crate) fn adopt(&self, file: Arc<BlockFile>, slots: Vec<SlotState>) {
        assert_eq!(slots.len(), self.classes.slots(file.name.class) as usize);
        self.next_file.fetch_max(file.name.number + 1, Ordering::Relaxed);
        self.files.lock().insert(file.name.number, FileSlots::new(file, slots));
    }

    /// Sets the sequence from which new blocks are counted.
    pub(crate) fn start_sequences_at(&self, sequence: u64) {
        self.next_sequence.fetch_max(sequence, Ordering::Relaxed);
    }

    /// The least sequence that the next block may get.
    pub(crate) fn peek_sequence(&self) -> u64 {
        self.next_sequence.load(Ordering::Relaxed)
    }

    pub(crate) fn take_sequence(&self) -> u64 {
        self.next_sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Begins to sync, for the first log that does; directory changes that were not synced before are synced now.
    pub(crate) fn start_syncs(&self) -> Result<()> {
        if !self.syncs() {
            self.disk.sync_directory().map_err(|e| Error::io("sync", &self.disk.path(""), e))?;
            self.sync.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Makes the zeros of all files durable that may not be.
    pub(crate) fn sync_zeros(&self) -> Result<()> {
        let files: Vec<_> = self.files.lock().values().map(|slots| Arc::clone(&slots.file)).collect();
        files.iter().try_for_each(|file| file.sync_zeros().map_err(|e| file.error("sync", e)))
    }

    fn syncs(&self) -> bool {
        self.sync.load(Ordering::Acquire)
    }

    /// Bytes that a block of the largest class holds.
    pub(crate) fn room_of_block(&self) -> u64 {
        data_max(self.block_bytes) - PAGE_BYTES
    }

    /// Limit on the bytes of one batch.
    pub(crate) fn batch_bytes_max(&self) -> u64 {
        self.classes.batch_bytes_max().min(i32::MAX as u64)
    }

    /// Allocates slots for a block of a log, with all of their space, so that a full disk shows here or never. They
    /// are ready as a rule; a log that was faster than the thread prepares its own.
    pub(crate) fn allocate(&self, size: Size, fsync: FsyncSchedule) -> Result<(Slots, Arc<Space>)> {
        let synced = fsync.syncs();
        let kind = Kind { class: size.class, tails: self.tails(fsync), synced, bulk: synced && size.bulk };
        let ready = if size.slots == 1 { self.ahead.take(kind, &self.classes) } else { None };
        let slots = match ready {
            Some(slots) => slots,
            None => self.prepare(kind, size.slots as usize, size.slots as usize)?,
        };
        let range = slots.range();
        let prepared = range.end - range.start;
        let space = Space::new(Arc::clone(&slots.file.file), range, prepared, kind.how());
        Ok((slots, Arc::new(space)))
    }

    /// Takes free neighbouring slots and gives them their space.
    fn prepare(&self, kind: Kind, count: usize, count_max: usize) -> Result<Slots> {
        let slots = self.take_free(kind, count, count_max)?;
        let prepared =
            slots.file.sync_zeros().and_then(|()| slots.file.file.prepare(slots.range(), kind.how()));
        if let Err(error) = prepared {
            self.set(&slots, SlotState::Freed);
            return Err(slots.file.error("grow", error));
        }
        Ok(slots)
    }

    fn take_free(&self, kind: Kind, count: usize, count_max: usize) -> Result<Slots> {
        let mut files = self.files.lock();
        let mut fitting = files.values_mut().filter(|slots| {
            let FileName { class, tails, .. } = slots.file.name;
            let is_mistaken = seeded!(DirectIntoMapped) && kind.tails == TailKind::Buffered;
            let is_written_so = tails == kind.tails || is_mistaken;
            let is_synced_so = slots.synced.is_none_or(|synced| synced == kind.synced);
            class == kind.class && is_written_so && is_synced_so
        });
        let found =
            fitting.find_map(|file| file.take(count, count_max).inspect(|_| file.synced = Some(kind.synced)));
        if let Some(slots) = found {
            return Ok(slots);
        }
        let number = self.next_file.fetch_add(1, Ordering::Relaxed);
        let file = self.create(FileName { number, class: kind.class, tails: kind.tails })?;
        let states = vec![SlotState::Free; self.classes.slots(kind.class) as usize];
        let mut slots = FileSlots::new(file, states);
        slots.synced = Some(kind.synced);
        let taken = slots.take(count, count_max).expect("a new file has room for the largest block");
        files.insert(number, slots);
        Ok(taken)
    }

    fn create(&self, name: FileName) -> Result<Arc<BlockFile>> {
        let kind = FileKind::of_tails(name.tails);
        let file = self.with_file(name, "create", |name, bytes| self.disk.create(name, bytes, kind))?;
        if self.syncs() {
            let synced = file
                .file
                .sync()
                .and_then(|()| if seeded!(NoDirectorySync) { Ok(()) } else { self.disk.sync_directory() });
            synced.map_err(|e| file.error("sync", e))?;
        }
        Ok(file)
    }

    /// Runs the thread that makes blocks ready.
    pub(crate) fn run_ahead(&self) {
        self.ahead.run(&self.classes, |Task { kind, slots }| {
            match self.prepare(kind, 1, slots) {
                Ok(Slots { file, first, count }) => {
                    for first in first..first + count {
                        self.ahead.put(kind, Slots { file: Arc::clone(&file), first, count: 1 });
                    }
                    true
                }
                // Each writer that needs space on a full disk gets that error itself.
                Err(Error::NoSpace { .. }) => false,
                Err(error) => {
                    tracing::warn!(%error, "no block could be made ready");
                    false
                }
            }
        });
    }

    /// Tells that thread to end.
    pub(crate) fn stop_ahead(&self) {
        self.ahead.stop();
    }

    /// Closes all files; the store is closed, and its threads have ended.
    pub(crate) fn let_go(&self) {
        self.ahead.let_go();
        self.files.lock().clear();
    }

    /// Blocks until all blocks that should be ready are ready.
    pub(crate) fn await_ready(&self) {
        self.ahead.await_idle();
    }

    /// Gives slots back; [`Blocks::reclaim`] zeroes their bytes.
    pub(crate) fn free(&self, slots: &Slots) {
        self.set(slots, SlotState::Freed);
    }

    /// Leaves slots as they are: they hold bytes that could not be moved aside.
    pub(crate) fn keep(&self, slots: &Slots) {
        self.set(slots, SlotState::Kept);
    }

    fn set(&self, slots: &Slots, state: SlotState) {
        if let Some(file) = self.files.lock().get_mut(&slots.file.name.number) {
            file.set(slots, state);
        }
    }

    /// Removes files without blocks, and zeroes the freed slots of the others; returns whether no freed slot is left.
    /// The background thread calls this.
    pub(crate) fn reclaim(&self) -> Result<bool> {
        let mut removed = Vec::new();
        let mut freed: Vec<Slots> = Vec::new();
        self.files.lock().retain(|_, slots| {
            if slots.is_empty_again() {
                removed.push(Arc::clone(&slots.file));
                return false;
            }
            if slots.has_freed() && slots.file.poisoned.get().is_none() {
                freed.extend(slots.freed_runs());
            }
            true
        });
        for file in &removed {
            let name = self.classes.write_name(file.name);
            self.disk.remove(&name).map_err(|e| file.error("remove", e))?;
        }
        if !removed.is_empty() && self.syncs() {
            self.disk.sync_directory().map_err(|e| Error::io("sync", &self.disk.path(""), e))?;
        }
        for of_file in freed.chunk_by(|a, b| a.file.name == b.file.name) {
            let file = &of_file[0].file;
            for slots in of_file {
                if !seeded!(SpaceReusedDirty) {
                    file.file.discard(slots.range()).map_err(|e| file.error("discard", e))?;
                }
            }
            let syncs = self.syncs();
            if syncs {
                file.file.sync().map_err(|e| file.error("sync", e))?;
            }
            for slots in of_file {
                self.set(slots, if syncs { SlotState::Free } else { SlotState::Spent });
            }
        }
        Ok(!self.files.lock().values().any(FileSlots::has_freed))
    }

    /// Number of files.
    pub(crate) fn file_count(&self) -> usize {
        self.files.lock().len()
    }
}
