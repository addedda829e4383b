//! A file of blocks: slots of one size, and the state of each.

use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::classes::FileName;
use crate::disk::DiskFile;
use crate::error::Error;
use crate::format::block_header::BlockPlace;
use crate::sync::Mutex;

/// One file of blocks.
pub(crate) struct BlockFile {
    pub(crate) name: FileName,
    pub(crate) slot_bytes: u64,
    pub(crate) file: Arc<dyn DiskFile>,
    /// Path of the file, for messages.
    pub(crate) path: String,
    /// Reason why the file takes no more writes.
    pub(crate) poisoned: OnceLock<Arc<str>>,
    /// Whether bytes that read as zeros may be others on the disk, because a store that never synced has given their
    /// space back.
    pub(super) has_doubtful_zeros: Mutex<bool>,
}

impl BlockFile {
    pub(crate) fn error(&self, operation: &'static str, source: std::io::Error) -> Error {
        Error::io(operation, &self.path, source)
    }

    /// Refuses writes to the file from now on, and returns the error.
    pub(crate) fn poison(&self, operation: &'static str, error: io::Error) -> Error {
        // `Error::io` would turn a full disk into `NoSpace`, which promises that nothing was accepted; here space had
        // been set aside already.
        let source = Arc::new(error);
        let error = Error::Io { operation, path: self.path.clone(), source };
        tracing::error!(%error, "the file takes no more writes");
        let _ = self.poisoned.set(error.to_string().into());
        error
    }

    /// Makes zeros durable that may not be. Called before a slot that reads as zeros is used: its old bytes must not
    /// come back under a new block.
    pub(super) fn sync_zeros(&self) -> io::Result<()> {
        let mut has_doubtful_zeros = self.has_doubtful_zeros.lock();
        if *has_doubtful_zeros {
            self.file.sync()?;
            *has_doubtful_zeros = false;
        }
        Ok(())
    }
}

/// Neighbouring slots of a file that belong to one block.
#[derive(Clone)]
pub(crate) struct Slots {
    pub(crate) file: Arc<BlockFile>,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Slots {
    /// Range of the slots in the file.
    pub(crate) fn range(&self) -> Range<u64> {
        let start = u64::from(self.first) * self.file.slot_bytes;
        start..start + u64::from(self.count) * self.file.slot_bytes
    }

    /// The place as the header of the block names it.
    pub(crate) fn place(&self) -> BlockPlace {
        let slot_bytes = u32::try_from(self.file.slot_bytes).expect("files are below 4 GiB");
        BlockPlace { file: self.file.name.number, slot: self.first, slots: self.count, slot_bytes }
    }

    fn indexes(&self) -> Range<usize> {
        self.first as usize..(self.first + self.count) as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// The slot reads as zeros, has no space and belongs to nobody.
    Free,
    /// The slot belongs to a block, or is about to.
    Used,
    /// The slot must be made to read as zeros first.
    Freed,
    /// The slot was zeroed, but not durably, and waits for its file to be removed.
    Spent,
    /// The slot holds bytes that this store does not understand, and is kept as it is.
    Kept,
}

/// The slots of a file.
pub(super) struct FileSlots {
    pub(super) file: Arc<BlockFile>,
    /// Whether their space is prepared for logs that sync; `None` until a first log takes one.
    pub(super) synced: Option<bool>,
    states: Vec<SlotState>,
    /// Index before which no slot is free.
    free_from: usize,
    freed: usize,
    /// Number of slots that are used or kept.
    taken: usize,
}

impl FileSlots {
    pub(super) fn new(file: Arc<BlockFile>, states: Vec<SlotState>) -> Self {
        let count = |wanted: &[SlotState]| states.iter().filter(|state| wanted.contains(state)).count();
        let (freed, taken) = (count(&[SlotState::Freed]), count(&[SlotState::Used, SlotState::Kept]));
        Self { file, synced: None, states, free_from: 0, freed, taken }
    }

    pub(super) fn set(&mut self, slots: &Slots, state: SlotState) {
        for index in slots.indexes() {
            let before = std::mem::replace(&mut self.states[index], state);
            for (which, change) in [(before, -1), (state, 1)] {
                match which {
                    SlotState::Freed => self.freed = self.freed.wrapping_add_signed(change),
                    SlotState::Used | SlotState::Kept => self.taken = self.taken.wrapping_add_signed(change),
                    SlotState::Free | SlotState::Spent => {}
                }
            }
        }
        if state == SlotState::Free {
            self.free_from = self.free_from.min(slots.first as usize);
        }
    }

    /// Takes free neighbouring slots: at least `count`, up to `count_max` if there are so many.
    pub(super) fn take(&mut self, count: usize, count_max: usize) -> Option<Slots> {
        if self.file.poisoned.get().is_some() {
            return None;
        }
        let is_free = |state: &SlotState| *state == SlotState::Free;
        let skipped = self.states[self.free_from..].iter().position(is_free);
        self.free_from = skipped.map_or(self.states.len(), |skipped| self.free_from + skipped);
        let mut at = self.free_from;
        while at + count <= self.states.len() {
            let run = self.states[at..].iter().take(count_max).take_while(|state| is_free(state)).count();
            if run >= count {
                let slots = Slots { file: Arc::clone(&self.file), first: at as u32, count: run as u32 };
                self.set(&slots, SlotState::Used);
                return Some(slots);
            }
            at += run + 1;
        }
        None
    }

    /// Whether no slot is used any more, and some was.
    pub(super) fn is_empty_again(&self) -> bool {
        self.taken == 0 && self.states.iter().any(|state| *state != SlotState::Free)
    }

    pub(super) fn has_freed(&self) -> bool {
        self.freed > 0
    }

    /// Freed slots, neighbours together.
    pub(super) fn freed_runs(&self) -> Vec<Slots> {
        let mut runs: Vec<Slots> = Vec::new();
        for (first, _) in (0..).zip(&self.states).filter(|(_, state)| **state == SlotState::Freed) {
            match runs.last_mut() {
                Some(run) if run.first + run.count == first => run.count += 1,
                _ => runs.push(Slots { file: Arc::clone(&self.file), first, count: 1 }),
            }
        }
        runs
    }
}
