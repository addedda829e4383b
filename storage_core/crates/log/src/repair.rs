//! Makes a store open again. What cannot be read is moved aside, never deleted; a journal that is lost or damaged is made
//! again from what can be read of it and from the headers of the blocks.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::blocks::{Classes, list_files};
use crate::disk::{Directory, Disk, FileKind};
use crate::error::{Error, Result};
use crate::format::PAGE_BYTES;
use crate::format::block_header::{BlockHeader, HeaderPage};
use crate::format::manifest::{MANIFEST_NAME, Manifest};
use crate::inspection::{Inspection, view};
use crate::journal::{JournalState, Record, Salvaged, replace, salvage};
use crate::options::{Backend, FsyncSchedule, Options};
use crate::recovery::write_lost;
use crate::store::Store;
use crate::types::LogId;

/// What a repair did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The journal was made again.
    pub journal: Option<RebuiltJournal>,
    /// The store as it is now; its report says what else was moved aside.
    pub inspection: Inspection,
}

/// What is known of a journal that was made again, and what is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuiltJournal {
    /// What was wrong with the old one.
    pub reason: String,
    /// Where the old one is now, in the store's directory; `None`: there was none.
    pub moved_to: Option<String>,
    /// Logs that could still be read of it.
    pub logs_known: usize,
    /// Logs that it did not know any more, found by their blocks. Cursors, seals and trims of theirs are lost, and a
    /// deleted log whose blocks were not zeroed yet is here again.
    pub logs_found: Vec<LogId>,
}

/// Repairs a store that nobody has open. One that opens is opened, and so gets what an open does: torn tails and blocks
/// that nobody can read are moved aside. A journal that refuses the start is made again; then all logs are suspect.
///
/// Errors: `Locked`; `Damaged` if the MANIFEST is: restore it from a copy; `UnsupportedFormat`.
pub fn repair(directory: impl AsRef<Path>) -> Result<Repaired> {
    let path = directory.as_ref();
    let (journal, fsync) = match path.join(MANIFEST_NAME).try_exists() {
        Ok(true) => {
            let failed = |e| Error::io("open", &path.display().to_string(), e);
            let disk: Arc<dyn Disk> = Arc::new(Directory::open(path, Backend::Mmap).map_err(failed)?);
            let _lock = disk.lock().map_err(|e| match e.kind() {
                std::io::ErrorKind::WouldBlock => Error::Locked { path: disk.path("") },
                _ => Error::io("lock", &disk.path(""), e),
            })?;
            repair_journal(&disk)?
        }
        Ok(false) => {
            let reason = "it has no MANIFEST: this is no directory of a store";
            return Err(Error::damaged(&path.display().to_string(), reason));
        }
        Err(error) => return Err(Error::io("read", &path.display().to_string(), error)),
    };
    let store = Store::open(path, Options { fsync, ..Options::default() })?;
    store.settle();
    let inspection = view(&store);
    store.close()?;
    Ok(Repaired { journal, inspection })
}

/// Makes the journal again where it does not let the store open. Gives the store's schedule, too.
fn repair_journal(disk: &Arc<dyn Disk>) -> Result<(Option<RebuiltJournal>, FsyncSchedule)> {
    let failed = |e| Error::io("read", &disk.path(MANIFEST_NAME), e);
    let mut bytes = Vec::new();
    let file = disk.open(MANIFEST_NAME, 0, FileKind::Plain).map_err(failed)?;
    file.read(0, PAGE_BYTES as usize, &mut bytes).map_err(failed)?;
    let manifest = Manifest::decode(&bytes)?;
    let Salvaged { mut state, next_sequence, number, damage, bytes } = salvage(&**disk, manifest.store)?;
    let fsync = state.fsync.unwrap_or_default();
    let Some(reason) = damage else { return Ok((None, fsync)) };
    let headers = read_headers(&**disk, &manifest)?;
    if number == 0 && headers.is_empty() {
        // Made, and nothing was ever promised: an open makes its first journal.
        return Ok((None, fsync));
    }
    let logs_known = state.logs.len();
    let logs_found = add_logs(&mut state, &headers);
    let moved_to = if number > 0 { Some(write_lost(&**disk, "journal", &bytes)?) } else { None };
    replace(disk, manifest.store, &state, number, next_sequence)?;
    tracing::warn!(reason, ?moved_to, "the journal was made again");
    Ok((Some(RebuiltJournal { reason, moved_to, logs_known, logs_found }), fsync))
}

/// The headers of all blocks.
fn read_headers(disk: &dyn Disk, manifest: &Manifest) -> Result<Vec<BlockHeader>> {
    let mut headers = Vec::new();
    let classes = Classes::new(manifest.block_bytes, manifest.blocks_per_file);
    for (number, class) in list_files(disk, &classes)? {
        let name = classes.file_name(number, class);
        let failed = |e| Error::io("read", &disk.path(&name), e);
        let file = disk.open(&name, classes.file_bytes(), FileKind::Blocks).map_err(failed)?;
        for slot in 0..classes.slots(class) {
            let mut page = Vec::new();
            file.read(u64::from(slot) * classes.slot_bytes(class), PAGE_BYTES as usize, &mut page)
                .map_err(failed)?;
            if let HeaderPage::Header(header) = BlockHeader::decode(&page)
                && header.store == manifest.store
            {
                headers.push(header);
            }
        }
    }
    Ok(headers)
}

/// Takes logs in that only their blocks know, and suspects all. Where a known log has no block for its first offsets, a trim
/// was forgotten or a block is lost: either way what follows was there, and is not what a crash left over.
fn add_logs(state: &mut JournalState, headers: &[BlockHeader]) -> Vec<LogId> {
    let mut found = Vec::new();
    let mut firsts: BTreeMap<LogId, &BlockHeader> = BTreeMap::new();
    for header in headers {
        let first = firsts.entry(header.log).or_insert(header);
        if header.base_offset < first.base_offset {
            *first = header;
        }
    }
    for (log, header) in firsts {
        let &BlockHeader { base_offset, epoch, ref name, .. } = header;
        let created = Record::LogCreated { log, base_offset, epoch, name, producers: &[], fsync: None };
        if state.logs.contains_key(&log) {
            state.apply(&Record::Synced { log, end: base_offset });
        } else if state.apply(&created) {
            found.push(log);
        }
    }
    // A compacted block counts where what it stands for is gone: else nobody knows whether it was written to its end.
    for header in headers.iter().filter(|header| header.replaces_to > 0) {
        let &BlockHeader { log, sequence, base_offset: start, replaces_to: end, .. } = header;
        let is_older = |other: &&BlockHeader| {
            other.log == log && other.sequence < sequence && (start..end).contains(&other.base_offset)
        };
        if headers.iter().find(is_older).is_none() {
            state.apply(&Record::LogCompacted { log, start, end, sequence });
        }
    }
    let logs: Vec<_> = state.logs.iter().map(|(log, entry)| (*log, entry.synced)).collect();
    for (log, end) in logs {
        state.apply(&Record::Suspect { log, end });
    }
    found
}

impl RebuiltJournal {
    /// For people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Self { reason, moved_to, logs_known, logs_found } = self;
        let mut lines = vec![format!("journal: made again, for {reason}")];
        lines.extend(
            moved_to
                .as_ref()
                .map(|name| format!("  the old one is {name}; {logs_known} of its logs are known")),
        );
        lines.extend(logs_found.iter().map(|log| format!("  found by its blocks: log {log}")));
        lines
    }
}
