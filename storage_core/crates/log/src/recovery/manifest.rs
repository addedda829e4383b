//! The manifest of a directory: read, written for a new store, or made again from the copies in journal and blocks.

use std::ops::Range;
use std::path::Path;

use uuid::Uuid;

use super::lost::write_lost;
use crate::disk::{Disk, DiskFile, FileKind, write_all};
use crate::error::{Error, Result};
use crate::format::block_header::{BlockHeader, HeaderPage};
use crate::format::manifest::{MANIFEST_NAME, Manifest};
use crate::options::Options;
use crate::page::PAGE_BYTES;
use crate::resources::journal;

const NEW_MANIFEST_NAME: &str = "MANIFEST.tmp";

/// The manifest of an opened directory.
pub(crate) struct OpenManifest {
    pub(crate) manifest: Manifest,
    /// Whether the store is new, so that nothing was ever promised in it.
    pub(crate) is_new: bool,
    /// Whether the manifest was damaged or missing, and was made again.
    pub(crate) is_made_again: bool,
}

/// Fails unless a directory holds the files of a store.
pub(crate) fn check_store(directory: &Path) -> Result<()> {
    let path = directory.display().to_string();
    let failed = |e| Error::io("read", &path, e);
    let names: Vec<String> = std::fs::read_dir(directory)
        .and_then(|entries| {
            entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<Vec<_>, _>>()
        })
        .map_err(failed)?
        .into_iter()
        .filter_map(|name| name.into_string().ok())
        .collect();
    if names.iter().any(|name| name == MANIFEST_NAME) || holds_something(&names) {
        return Ok(());
    }
    Err(Error::damaged(&path, "it has no MANIFEST, journal or blocks: this is no directory of a store"))
}

fn holds_something(names: &[String]) -> bool {
    names.iter().any(|name| journal::is_name(name) || name.ends_with(".wal"))
}

/// Reads the manifest. Writes it if the directory is new, or if it is damaged and journal or blocks tell what it held.
///
/// Errors: `Damaged` if they do not tell it, or contradict each other; `UnsupportedFormat`.
pub(crate) fn open_manifest(disk: &dyn Disk, options: &Options) -> Result<OpenManifest> {
    let failed = |operation| move |e| Error::io(operation, &disk.path(MANIFEST_NAME), e);
    let names = disk.list().map_err(failed("list"))?;
    let has_manifest = names.iter().any(|name| name == MANIFEST_NAME);
    if !has_manifest && !holds_something(&names) {
        let &Options { block_bytes, blocks_per_file, .. } = options;
        let manifest = Manifest { store: Uuid::new_v4(), block_bytes, blocks_per_file };
        write(disk, &names, manifest)?;
        return Ok(OpenManifest { manifest, is_new: true, is_made_again: false });
    }
    let mut bytes = Vec::new();
    if has_manifest {
        let file = disk.open(MANIFEST_NAME, 0, FileKind::Plain).map_err(failed("open"))?;
        // A page is more than any manifest has.
        file.read(0, PAGE_BYTES as usize, &mut bytes).map_err(failed("read"))?;
    }
    let damage = match Manifest::decode(&bytes) {
        // A crash while the store was made leaves a manifest alone.
        Ok(manifest) => {
            return Ok(OpenManifest { manifest, is_new: !holds_something(&names), is_made_again: false });
        }
        Err(error @ Error::UnsupportedFormat { .. }) => return Err(error),
        Err(error) => error,
    };
    let manifest = said_elsewhere(disk, &names)?.ok_or(damage)?;
    if has_manifest {
        write_lost(disk, MANIFEST_NAME, &bytes)?;
    }
    write(disk, &names, manifest)?;
    tracing::warn!(path = disk.path(MANIFEST_NAME), "the manifest was damaged, and was made again");
    Ok(OpenManifest { manifest, is_new: false, is_made_again: true })
}

fn write(disk: &dyn Disk, names: &[String], manifest: Manifest) -> Result<()> {
    let failed = |operation| move |e| Error::io(operation, &disk.path(MANIFEST_NAME), e);
    if names.iter().any(|name| name == NEW_MANIFEST_NAME) {
        disk.remove(NEW_MANIFEST_NAME).map_err(failed("remove"))?;
    }
    let file = disk.create(NEW_MANIFEST_NAME, 0, FileKind::Plain).map_err(failed("create"))?;
    write_all(&*file, 0, &[&manifest.encode()], false).map_err(failed("write"))?;
    file.sync().map_err(failed("sync"))?;
    disk.rename(NEW_MANIFEST_NAME, MANIFEST_NAME).map_err(failed("rename"))?;
    disk.sync_directory().map_err(failed("sync"))
}

/// Finds the manifest in journals and in the first readable block of each file; `None` if none of them has it.
fn said_elsewhere(disk: &dyn Disk, names: &[String]) -> Result<Option<Manifest>> {
    let mut said = journal::manifests(disk)?;
    for name in names.iter().filter(|name| name.ends_with(".wal")) {
        let failed = |e| Error::io("read", &disk.path(name), e);
        let file = disk.open(name, 0, FileKind::Plain).map_err(failed)?;
        said.extend(first_block(&*file, name).map_err(failed)?);
    }
    let Some(&manifest) = said.first() else { return Ok(None) };
    if let Some(other) = said.iter().find(|other| **other != manifest) {
        let reason = format!(
            "it cannot be read, and the rest of the directory is of two stores: {} with blocks of {} bytes, \
             {} with blocks of {} bytes",
            manifest.store, manifest.block_bytes, other.store, other.block_bytes
        );
        return Err(Error::damaged(&disk.path(MANIFEST_NAME), reason));
    }
    manifest.check()?;
    Ok(Some(manifest))
}

/// Reads the manifest from the first readable block header of a file, of which the block size is not known yet.
fn first_block(file: &dyn DiskFile, name: &str) -> std::io::Result<Option<Manifest>> {
    let number = name.split(['-', '.']).next().and_then(|number| number.parse::<u64>().ok());
    let ranges = file.data_ranges(0..file.size_bytes()?)?;
    let pages = ranges
        .iter()
        .flat_map(|Range { start, end }| (start - start % PAGE_BYTES..*end).step_by(PAGE_BYTES as usize));
    let mut page = Vec::new();
    for position in pages {
        page.clear();
        file.read(position, PAGE_BYTES as usize, &mut page)?;
        if let HeaderPage::Header(header) = BlockHeader::decode(&page)
            && Some(header.place.file) == number
            && u64::from(header.place.slot) * u64::from(header.place.slot_bytes) == position
        {
            return Ok(Some(header.manifest));
        }
    }
    Ok(None)
}
