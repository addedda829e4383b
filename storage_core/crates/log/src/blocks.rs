//! Files of blocks, and who has which slot of them. The next block is made ready ahead, so that opening one takes no
//! system call; freed slots are made to read as zeros before they are used again; a file without blocks is removed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::disk::{Disk, DiskFile, FileKind, Prepare};
use crate::error::{Error, Result};
use crate::options::FsyncSchedule;
use crate::space::Space;

const NAME_SUFFIX: &str = ".wal";

/// One file of blocks.
pub(crate) struct BlockFile {
    pub(crate) number: u64,
    pub(crate) file: Arc<dyn DiskFile>,
    /// For messages.
    pub(crate) path: String,
    /// Why it takes no more writes.
    pub(crate) poisoned: OnceLock<Arc<str>>,
}

impl BlockFile {
    pub(crate) fn error(&self, operation: &'static str, source: std::io::Error) -> Error {
        Error::io(operation, &self.path, source)
    }
}

/// Some slots of a file that belong to one block.
#[derive(Clone)]
pub(crate) struct Slots {
    pub(crate) file: Arc<BlockFile>,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// Reads as zeros; nobody's.
    Free,
    /// A block's, or on its way to being one.
    Used,
    /// Must be made to read as zeros first.
    Freed,
    /// Zeroed, but not durably: waits for its file to go.
    Spent,
    /// Holds what this store does not understand; kept as it is.
    Kept,
}

struct FileSlots {
    file: Arc<BlockFile>,
    slots: Vec<SlotState>,
}

pub(crate) struct Blocks {
    disk: Arc<dyn Disk>,
    pub(crate) block_bytes: u64,
    pub(crate) blocks_per_file: u32,
    pub(crate) how: Prepare,
    /// Some log syncs its data: then directory changes and zeroing are synced too.
    sync: AtomicBool,
    files: Mutex<BTreeMap<u64, FileSlots>>,
    /// A single slot whose first pages are prepared.
    ready: Mutex<Option<(Slots, Arc<Space>)>>,
    next_sequence: AtomicU64,
    /// Grows only: a file that is being removed, or could not be, still has its name.
    next_file: AtomicU64,
}

impl Blocks {
    /// For logs that sync as `fsync` says, where they say nothing else.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        block_bytes: u64,
        blocks_per_file: u32,
        fsync: FsyncSchedule,
    ) -> Self {
        let (how, sync) = (Prepare::fitting(fsync), AtomicBool::new(fsync.syncs()));
        Self {
            disk,
            block_bytes,
            blocks_per_file,
            how,
            sync,
            files: Mutex::default(),
            ready: Mutex::default(),
            next_sequence: AtomicU64::new(1),
            next_file: AtomicU64::new(1),
        }
    }

    /// Numbers of the files that are there.
    pub(crate) fn list(disk: &dyn Disk) -> Result<Vec<u64>> {
        let names = disk.list().map_err(|e| Error::io("list", &disk.path(""), e))?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| file_number(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Opens a file that is there.
    pub(crate) fn open(&self, number: u64) -> Result<Arc<BlockFile>> {
        let name = file_name(number);
        let path = self.disk.path(&name);
        let file = self
            .disk
            .open(&name, self.file_bytes(), FileKind::Blocks)
            .map_err(|e| Error::io("open", &path, e))?;
        Ok(Arc::new(BlockFile { number, file, path, poisoned: OnceLock::new() }))
    }

    /// Takes a file in, with the states that recovery found.
    pub(crate) fn adopt(&self, file: Arc<BlockFile>, slots: Vec<SlotState>) {
        assert_eq!(slots.len(), self.blocks_per_file as usize);
        self.next_file.fetch_max(file.number + 1, Ordering::Relaxed);
        self.files.lock().insert(file.number, FileSlots { file, slots });
    }

    /// Block sequences from here on are new.
    pub(crate) fn start_sequences_at(&self, sequence: u64) {
        self.next_sequence.fetch_max(sequence, Ordering::Relaxed);
    }

    /// The sequence that the next block gets, at least.
    pub(crate) fn peek_sequence(&self) -> u64 {
        self.next_sequence.load(Ordering::Relaxed)
    }

    pub(crate) fn take_sequence(&self) -> u64 {
        self.next_sequence.fetch_add(1, Ordering::Relaxed)
    }

    fn file_bytes(&self) -> u64 {
        self.block_bytes * u64::from(self.blocks_per_file)
    }

    /// A log that syncs is there: what was done before it without syncs is synced now.
    pub(crate) fn start_syncs(&self) -> Result<()> {
        if !self.sync.swap(true, Ordering::AcqRel) {
            self.disk.sync_directory().map_err(|e| Error::io("sync", &self.disk.path(""), e))?;
        }
        Ok(())
    }

    fn syncs(&self) -> bool {
        self.sync.load(Ordering::Acquire)
    }

    /// Slots for a block of a log. One slot is ready as a rule; else a file may have to be made.
    pub(crate) fn allocate(&self, count: u32, fsync: FsyncSchedule) -> Result<(Slots, Arc<Space>)> {
        let ready = if count == 1 { self.ready.lock().take() } else { None };
        let (slots, space) = match ready.filter(|(slots, _)| slots.file.poisoned.get().is_none()) {
            Some(ready) => ready,
            None => {
                let slots = self.take_free(count)?;
                let space = self.space(&slots);
                (slots, space)
            }
        };
        space.go_on(Prepare::fitting(fsync));
        Ok((slots, space))
    }

    fn space(&self, slots: &Slots) -> Arc<Space> {
        let start = u64::from(slots.first) * self.block_bytes;
        let end = start + u64::from(slots.count) * self.block_bytes;
        Arc::new(Space::new(Arc::clone(&slots.file.file), start..end, 0, self.how))
    }

    fn take_free(&self, count: u32) -> Result<Slots> {
        let mut files = self.files.lock();
        if let Some(slots) = find_free(&mut files, count) {
            return Ok(slots);
        }
        let number = self.next_file.fetch_add(1, Ordering::Relaxed);
        let file = self.create(number)?;
        files.insert(number, FileSlots { file, slots: vec![SlotState::Free; self.blocks_per_file as usize] });
        Ok(find_free(&mut files, count).expect("a new file has room for the largest block"))
    }

    fn create(&self, number: u64) -> Result<Arc<BlockFile>> {
        let name = file_name(number);
        let path = self.disk.path(&name);
        let file = self
            .disk
            .create(&name, self.file_bytes(), FileKind::Blocks)
            .map_err(|e| Error::io("create", &path, e))?;
        if self.syncs() {
            let synced = file.sync().and_then(|()| self.disk.sync_directory());
            synced.map_err(|e| Error::io("sync", &path, e))?;
        }
        Ok(Arc::new(BlockFile { number, file, path, poisoned: OnceLock::new() }))
    }

    /// Whether the background thread has something to make ready.
    pub(crate) fn needs_ready(&self) -> bool {
        self.ready.lock().is_none()
    }

    /// Makes the next block ready: the background thread's part.
    pub(crate) fn make_ready(&self) -> Result<()> {
        if !self.needs_ready() {
            return Ok(());
        }
        let slots = self.take_free(1)?;
        let space = self.space(&slots);
        if let Err(error) = space.prepare_ahead(0) {
            self.set(&slots, SlotState::Freed);
            return Err(slots.file.error("grow", error));
        }
        *self.ready.lock() = Some((slots, space));
        Ok(())
    }

    /// Gives slots back; their bytes are zeroed by [`Blocks::reclaim`].
    pub(crate) fn free(&self, slots: &Slots) {
        self.set(slots, SlotState::Freed);
    }

    fn set(&self, slots: &Slots, state: SlotState) {
        let mut files = self.files.lock();
        if let Some(file) = files.get_mut(&slots.file.number) {
            file.slots[slots.first as usize..(slots.first + slots.count) as usize].fill(state);
        }
    }

    /// Removes files that hold nothing, and zeroes freed slots of the others: the background thread's part. Says
    /// whether no freed slot is left.
    pub(crate) fn reclaim(&self) -> Result<bool> {
        let mut removed = Vec::new();
        let mut freed: Vec<(Arc<BlockFile>, Vec<u32>)> = Vec::new();
        self.files.lock().retain(|_, file| {
            let is_empty = file
                .slots
                .iter()
                .all(|slot| matches!(slot, SlotState::Free | SlotState::Freed | SlotState::Spent));
            if is_empty && file.slots.iter().any(|slot| *slot != SlotState::Free) {
                removed.push(Arc::clone(&file.file));
                return false;
            }
            let slots: Vec<u32> = (0..)
                .zip(&file.slots)
                .filter(|(_, state)| **state == SlotState::Freed)
                .map(|(slot, _)| slot)
                .collect();
            if !slots.is_empty() && file.file.poisoned.get().is_none() {
                freed.push((Arc::clone(&file.file), slots));
            }
            true
        });
        for file in &removed {
            self.disk.remove(&file_name(file.number)).map_err(|e| Error::io("remove", &file.path, e))?;
        }
        if !removed.is_empty() && self.syncs() {
            self.disk.sync_directory().map_err(|e| Error::io("sync", &self.disk.path(""), e))?;
        }
        for (file, slots) in freed {
            for &slot in &slots {
                let start = u64::from(slot) * self.block_bytes;
                file.file.discard(start..start + self.block_bytes).map_err(|e| file.error("discard", e))?;
            }
            let syncs = self.syncs();
            if syncs {
                file.file.sync().map_err(|e| file.error("sync", e))?;
            }
            for first in slots {
                let state = if syncs { SlotState::Free } else { SlotState::Spent };
                self.set(&Slots { file: Arc::clone(&file), first, count: 1 }, state);
            }
        }
        Ok(self.files.lock().values().all(|file| !file.slots.contains(&SlotState::Freed)))
    }

    /// Number of files.
    pub(crate) fn file_count(&self) -> usize {
        self.files.lock().len()
    }
}

fn find_free(files: &mut BTreeMap<u64, FileSlots>, count: u32) -> Option<Slots> {
    let count = count as usize;
    for FileSlots { file, slots } in files.values_mut().filter(|file| file.file.poisoned.get().is_none()) {
        let first = slots.windows(count).position(|run| run.iter().all(|slot| *slot == SlotState::Free));
        if let Some(first) = first {
            slots[first..first + count].fill(SlotState::Used);
            return Some(Slots { file: Arc::clone(file), first: first as u32, count: count as u32 });
        }
    }
    None
}

pub(crate) fn file_name(number: u64) -> String {
    format!("{number:08}{NAME_SUFFIX}")
}

fn file_number(name: &str) -> Option<u64> {
    name.strip_suffix(NAME_SUFFIX)?.parse().ok()
}
