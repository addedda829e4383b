//! The salvage of a journal that refuses the start, and the journal that replaces it. Only a repair does either.

use std::sync::Arc;

use super::files::{journal_name, journal_number, list};
use super::read::{Read, front, read_journal, records_behind};
use super::record::StoredRecord;
use super::spare::Room;
use super::{HEADER_BYTES, JournalState, write_journal};
use crate::disk::{ChunkPool, Disk, FileKind, Prepare};
use crate::error::{Error, Result};
use crate::format::manifest::Manifest;

/// The newest journal of a store, as far as it can be read.
pub(crate) struct SalvagedJournal {
    /// State of its records up to the first that cannot be read.
    pub(crate) state: JournalState,
    /// The highest sequence that any of its records names, also behind one that cannot be read; 0 if there is none.
    pub(crate) last_sequence: u64,
    /// Number of the journal; 0 if there is none.
    pub(crate) number: u64,
    /// Reason why the store does not open with it; `None` if it does.
    pub(crate) damage: Option<String>,
    /// All bytes of the journal.
    pub(crate) bytes: Vec<u8>,
}

/// Reads the newest journal of a store. Errors: those of the disk, and `UnsupportedFormat` if a newer program wrote
/// the journal or a record in it.
pub(crate) fn salvage(disk: &dyn Disk, manifest: Manifest) -> Result<SalvagedJournal> {
    let numbers = list(disk)?.into_iter().filter_map(|name| journal_number(&name));
    let Some(number) = numbers.max() else {
        let damage = Some("the store has no journal".to_owned());
        let state = JournalState::default();
        return Ok(SalvagedJournal { state, last_sequence: 0, number: 0, damage, bytes: Vec::new() });
    };
    let name = journal_name(number);
    let damage = match read_journal(disk, number, manifest) {
        Ok(Read { state, next_sequence, .. }) => {
            let last_sequence = next_sequence - 1;
            return Ok(SalvagedJournal { state, last_sequence, number, damage: None, bytes: Vec::new() });
        }
        Err(Error::Damaged { reason, .. }) => Some(reason),
        Err(error) => return Err(error),
    };
    let failed = |e| Error::io("read", &disk.path(&name), e);
    let file = disk.open(&name, 0, FileKind::Pages).map_err(failed)?;
    let mut bytes = Vec::new();
    let size = usize::try_from(file.size_bytes().map_err(failed)?).unwrap_or(usize::MAX);
    file.read(0, size, &mut bytes).map_err(failed)?;
    let mut state = JournalState::default();
    let (mut next_sequence, mut last_sequence) = (1, 0);
    let mut position = HEADER_BYTES.min(bytes.len());
    if let Ok(front) = front(&bytes, number, manifest) {
        (next_sequence, last_sequence) = (front.next_sequence, front.made_sequence);
        while let Some(stored) =
            StoredRecord::decode(&bytes[position..]).filter(|s| s.sequence == next_sequence)
            && stored.record().is_some_and(|record| state.apply(&record))
        {
            next_sequence += 1;
            position += stored.size;
        }
    }
    let behind = records_behind(&bytes[position..], next_sequence).map(|stored| stored.sequence);
    let last_sequence = behind.fold(last_sequence.max(next_sequence - 1), u64::max);
    Ok(SalvagedJournal { state, last_sequence, number, damage, bytes })
}

/// Writes a journal with this state and removes the one of that number, whose bytes must be kept elsewhere.
pub(crate) fn replace(
    disk: &Arc<dyn Disk>,
    manifest: Manifest,
    state: &JournalState,
    number: u64,
    next_sequence: u64,
) -> Result<()> {
    let pool = Arc::new(ChunkPool::default());
    let room = Room { how: Prepare::Reserved, reserve_bytes: 0 };
    write_journal(disk, manifest, &pool, room, state, number + 1, next_sequence)?;
    if number > 0 {
        let old = journal_name(number);
        disk.remove(&old).map_err(|e| Error::io("remove", &disk.path(&old), e))?;
        disk.sync_directory().map_err(|e| Error::io("sync", &disk.path(""), e))?;
    }
    Ok(())
}
