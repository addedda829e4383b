//! The reserve that no ordinary record may take, so that a store on a full disk can still free space and start again.
//! It is the end of the journal's own file, and a second file in which the next journal is written.

use std::sync::Arc;

use super::files::{NEW_NAME, RANGE_BYTES, list};
use crate::disk::{Disk, DiskFile, FileKind, Prepare, TailKind};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::resources::space::Space;
use crate::sync::Mutex;

const SPARE_NAME: &str = "journal.spare";
/// Bytes of the reserve at the end of the journal's file; less if journals are to be smaller.
const RESERVE_BYTES_MAX: u64 = 256 << 10;

/// How the file of a journal gets its space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// How it is prepared.
    pub(super) how: Prepare,
    /// Bytes that are kept for records that free space.
    pub(super) reserve_bytes: u64,
}

impl Room {
    pub(super) fn new(options: &Options) -> Self {
        let reserve_bytes = options.journal_bytes_max.min(RESERVE_BYTES_MAX);
        Self { how: Prepare::fitting(TailKind::Buffered, options.fsync.syncs()), reserve_bytes }
    }
}

/// The file of the next journal: zeros with all of their space.
#[derive(Default)]
pub(super) struct Spare {
    /// Space of the file; `None` if it was not looked at yet.
    space: Mutex<Option<Arc<Space>>>,
}

impl Spare {
    /// Whether the file is too small for a journal of that size.
    pub(super) fn is_short(&self, journal_bytes: u64) -> bool {
        self.space.lock().as_ref().is_none_or(|space| space.is_short(journal_bytes))
    }

    /// Makes the file as large as a journal of that size, and somewhat larger.
    pub(super) fn make(&self, disk: &dyn Disk, journal_bytes: u64) -> Result<()> {
        let failed = |operation| move |e| Error::io(operation, &disk.path(SPARE_NAME), e);
        let known = self.space.lock().clone();
        let space = match known {
            Some(space) => space,
            None => {
                let file = if is_there(disk)? {
                    disk.open(SPARE_NAME, 0, FileKind::Pages).map_err(failed("open"))?
                } else {
                    let file = disk.create(SPARE_NAME, 0, FileKind::Pages).map_err(failed("create"))?;
                    disk.sync_directory().map_err(failed("sync"))?;
                    file
                };
                Arc::new(Space::new(file, 0..RANGE_BYTES, 0, Prepare::Reserved))
            }
        };
        space.prepare_ahead(journal_bytes).map_err(failed("grow"))?;
        *self.space.lock() = Some(space);
        Ok(())
    }

    /// Closes the file.
    pub(super) fn let_go(&self) {
        *self.space.lock() = None;
    }
}

fn is_there(disk: &dyn Disk) -> Result<bool> {
    Ok(list(disk)?.iter().any(|name| name == SPARE_NAME))
}

/// Turns the spare file into the one in which a journal is written; gives the file and the bytes that have their
/// space. `None` if there is no spare file.
pub(super) fn take(disk: &dyn Disk) -> Result<Option<(Arc<dyn DiskFile>, u64)>> {
    if !is_there(disk)? {
        return Ok(None);
    }
    let failed = |operation| move |e| Error::io(operation, &disk.path(SPARE_NAME), e);
    disk.rename(SPARE_NAME, NEW_NAME).map_err(failed("rename"))?;
    let file = disk.open(NEW_NAME, 0, FileKind::Pages).map_err(failed("open"))?;
    let bytes = file.size_bytes().map_err(failed("measure"))?;
    Ok(Some((file, bytes)))
}
