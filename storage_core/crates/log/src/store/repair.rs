//! The repair that makes a store open again. Bytes that cannot be read are moved aside, never deleted; a lost or
//! damaged journal is made again from what can be read of it and from the headers of the blocks.

use std::path::Path;
use std::sync::Arc;

use crate::disk::{Directory, Disk, FileKind};
use crate::error::{Error, Result};
use crate::format::block_header::{BlockHeader, HeaderPage};
use crate::format::manifest::Manifest;
use crate::options::{Backend, Options};
use crate::page::PAGE_BYTES;
use crate::recovery::{adopt, check_store, open_manifest, write_lost};
use crate::resources::blocks::{Classes, FileName, list_files};
use crate::resources::journal::{EndFile, Record, SalvagedJournal, replace, salvage};
use crate::store::Store;
use crate::store::inspection::{Inspection, view};
use crate::types::{FsyncSchedule, LogId};

/// Result of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairReport {
    /// The journal that was made again; `None` if the old one was good.
    pub journal: Option<RebuiltJournal>,
    /// The store as it is now; its report says what else was moved aside.
    pub inspection: Inspection,
}

/// A journal that was made again: why, and what the old one and the blocks told of the logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuiltJournal {
    /// Reason why the store did not open with the old one.
    pub reason: String,
    /// Name of the file with the old one, in the store's directory; `None` if there was none.
    pub moved_to: Option<String>,
    /// Number of logs that the old one still names.
    pub logs_known: usize,
    /// Logs that the old one does not name any more, found by their blocks. Their cursors, seals and trims are lost,
    /// and a deleted log whose blocks were not zeroed yet is here again.
    pub logs_found: Vec<LogId>,
}

/// Repairs a store that nobody has open. A store that opens is just opened, so that torn tails and blocks that nobody
/// can read are moved aside. A journal that refuses the start is made again, as one that lost its end: all logs are
/// suspect, and promises are forgotten.
///
/// Errors: `Locked`; `Damaged` if nothing says what the MANIFEST held; `UnsupportedFormat`.
pub fn repair(directory: impl AsRef<Path>) -> Result<RepairReport> {
    let path = directory.as_ref();
    check_store(path)?;
    let (journal, fsync) = {
        let failed = |e| Error::io("open", &path.display().to_string(), e);
        let disk: Arc<dyn Disk> = Arc::new(Directory::open(path, Backend::Mmap).map_err(failed)?);
        let _lock = disk.lock().map_err(|e| match e.kind() {
            std::io::ErrorKind::WouldBlock => Error::Locked { path: disk.path("") },
            _ => Error::io("lock", &disk.path(""), e),
        })?;
        repair_journal(&disk)?
    };
    let store = Store::open(path, Options { fsync, ..Options::default() })?;
    store.drain();
    let inspection = view(&store);
    store.close()?;
    Ok(RepairReport { journal, inspection })
}

/// Makes the journal again if the store does not open with it; returns the store's schedule, too.
fn repair_journal(disk: &Arc<dyn Disk>) -> Result<(Option<RebuiltJournal>, FsyncSchedule)> {
    let manifest = open_manifest(&**disk, &Options::default())?.manifest;
    let SalvagedJournal { mut state, last_sequence, number, damage, bytes } = salvage(&**disk, manifest)?;
    let fsync = state.fsync.unwrap_or_default();
    let Some(reason) = damage else { return Ok((None, fsync)) };
    let headers = read_headers(&**disk, &manifest)?;
    if number == 0 && headers.is_empty() {
        // The store was made and nothing was ever promised, so an open makes its first journal.
        return Ok((None, fsync));
    }
    let logs_known = state.logs.len();
    let logs_found = adopt(&mut state, headers.iter());
    // Records that cannot be read are forgotten, as those of a lost end. Sequences go on above all that were given;
    // otherwise END and blocks would name an end that the new journal does not have.
    let of_blocks = headers.iter().map(|header| header.journal_sequence);
    let of_file = EndFile::read(disk, manifest.store)?.end.map(|end| end.sequence);
    let durable = of_blocks.chain(of_file).fold(last_sequence, u64::max);
    state.apply(&Record::EndLost { durable });
    let moved_to = if number > 0 { Some(write_lost(&**disk, "journal", &bytes)?) } else { None };
    replace(disk, manifest, &state, number, durable + 1)?;
    tracing::warn!(reason, ?moved_to, "the journal was made again");
    Ok((Some(RebuiltJournal { reason, moved_to, logs_known, logs_found }), fsync))
}

/// Reads the headers of all blocks.
fn read_headers(disk: &dyn Disk, manifest: &Manifest) -> Result<Vec<BlockHeader>> {
    let mut headers = Vec::new();
    let classes = Classes::new(manifest.block_bytes, manifest.blocks_per_file);
    for FileName { number, class, tails } in list_files(disk, &classes)? {
        let name = classes.write_name(FileName { number, class, tails });
        let failed = |e| Error::io("read", &disk.path(&name), e);
        let file = disk.open(&name, classes.file_bytes(), FileKind::of_tails(tails)).map_err(failed)?;
        for slot in 0..classes.slots(class) {
            let mut page = Vec::new();
            file.read(u64::from(slot) * classes.slot_bytes(class), PAGE_BYTES as usize, &mut page)
                .map_err(failed)?;
            if let HeaderPage::Header(header) = BlockHeader::decode(&page)
                && header.manifest == *manifest
                && header.place.is_at(number, slot)
            {
                headers.push(*header);
            }
        }
    }
    Ok(headers)
}

impl RebuiltJournal {
    /// Gives lines for people.
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
