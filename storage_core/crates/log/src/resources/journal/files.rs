//! The files of a journal: their names, how far they may grow, which of them exist.

use crate::disk::Disk;
use crate::error::{Error, Result};

/// Name of a journal while it is written; a crash may leave the file behind.
pub(super) const NEW_NAME: &str = "journal.tmp";
/// Limit on the bytes of a journal, which a file never gets near.
pub(super) const RANGE_BYTES: u64 = 1 << 40;
const NAME_PREFIX: &str = "journal-";

/// Name of the journal of a number.
pub(super) fn journal_name(number: u64) -> String {
    format!("{NAME_PREFIX}{number:08}")
}

/// Number of the journal of a file name; `None` for other files.
pub(super) fn journal_number(name: &str) -> Option<u64> {
    name.strip_prefix(NAME_PREFIX)?.parse().ok()
}

/// Whether a file of that name is a journal.
pub(crate) fn is_name(name: &str) -> bool {
    journal_number(name).is_some()
}

/// Lists all files of the store, by name.
pub(super) fn list(disk: &dyn Disk) -> Result<Vec<String>> {
    disk.list().map_err(|e| Error::io("list", &disk.path(""), e))
}

/// Removes the file that a crash left of a journal that was being written.
pub(super) fn remove_new(disk: &dyn Disk) -> Result<()> {
    if list(disk)?.iter().any(|name| name == NEW_NAME) {
        disk.remove(NEW_NAME).map_err(|e| Error::io("remove", &disk.path(NEW_NAME), e))?;
    }
    Ok(())
}
