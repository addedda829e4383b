//! Bytes that no log has any more. They are moved aside, never thrown away; on a full disk they stay where they are.

use crate::disk::{Disk, FileKind, write_all};
use crate::error::{Error, Result};

/// Does what [`write_lost`] does; `None` if the disk has no room for the bytes.
pub(super) fn write_lost_if_room(disk: &dyn Disk, what: &str, bytes: &[u8]) -> Result<Option<String>> {
    match write_lost(disk, what, bytes) {
        Err(Error::NoSpace { path }) => {
            tracing::warn!(path, "the disk is full: bytes that no log has any more stay in their place");
            Ok(None)
        }
        written => written.map(Some),
    }
}

/// Writes bytes that were cut to a file of their own, durably; gives its name.
pub(crate) fn write_lost(disk: &dyn Disk, what: &str, bytes: &[u8]) -> Result<String> {
    let names = disk.list().map_err(|e| Error::io("list", &disk.path(""), e))?;
    let name = (0..)
        .map(|n: u32| format!("lost-{what}-{n}"))
        .find(|name| !names.contains(name))
        .expect("numbers do not end");
    let failed = |e| Error::io("write", &disk.path(&name), e);
    let file = disk.create(&name, 0, FileKind::Plain).map_err(failed)?;
    let written = write_all(&*file, 0, &[bytes], false).and_then(|()| file.sync());
    if let Err(error) = written {
        // Half of the bytes help nobody, and a full disk needs the space that they take.
        let _ = disk.remove(&name);
        return Err(failed(error));
    }
    disk.sync_directory().map_err(failed)?;
    Ok(name)
}
