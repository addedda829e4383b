//! Bytes that no log has any more are moved aside, never thrown away.

use crate::disk::{Disk, FileKind, write_all};
use crate::error::{Error, Result};

/// Writes bytes that were cut to a file of their own, durably; gives its name.
pub(crate) fn write_lost(disk: &dyn Disk, what: &str, bytes: &[u8]) -> Result<String> {
    let names = disk.list().map_err(|e| Error::io("list", &disk.path(""), e))?;
    let name = (0..)
        .map(|n: u32| format!("lost-{what}-{n}"))
        .find(|name| !names.contains(name))
        .expect("numbers do not end");
    let failed = |e| Error::io("write", &disk.path(&name), e);
    let file = disk.create(&name, 0, FileKind::Plain).map_err(failed)?;
    write_all(&*file, 0, &[bytes], false).map_err(failed)?;
    file.sync().and_then(|()| disk.sync_directory()).map_err(failed)?;
    Ok(name)
}
