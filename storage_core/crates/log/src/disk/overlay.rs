//! A real directory that is only read: all changes of a store stay in memory. A store that is opened on it tells what a
//! real open would find and do, and changes nothing; also a store whose disk is full can be read so.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::directory::{LOCK_NAME, boot_id};
use super::process::Lock;
use super::{BackendInUse, Disk, DiskFile, FileKind, MappedRange, Prepare, SyncedWrites, calls};
use crate::page::{PAGE_BYTES, page_down};
use crate::sync::plain::Mutex;

pub(crate) struct Overlay {
    path: PathBuf,
    /// Files that were made or opened here, by name; `None` for a file that was removed here. Other names are those of
    /// the directory.
    names: Mutex<BTreeMap<String, Option<Arc<OverlayFile>>>>,
    /// Whether the real disk is full: then files of blocks get no space here either, and none is made. Other files may
    /// be, since an open writes some anew.
    is_full: bool,
}

impl Overlay {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), names: Mutex::default(), is_full: false }
    }

    /// An overlay of a directory whose disk takes nothing more.
    pub(crate) fn of_full_disk(path: &Path) -> Self {
        Self { is_full: true, ..Self::new(path) }
    }
}

impl Disk for Overlay {
    fn maps(&self) -> bool {
        false
    }

    fn backend(&self) -> BackendInUse {
        BackendInUse { name: "memory", refused: None, synced_writes: SyncedWrites::Direct }
    }

    fn boot(&self) -> Option<Uuid> {
        boot_id()
    }

    fn path(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    /// Takes the lock of the real directory, since the changes of a running store would make no sense here. A directory
    /// without a lock file has no running store, and none is made.
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        let open = || calls::open_regular(&self.path.join(LOCK_NAME), File::options().read(true));
        match Lock::take(open) {
            Ok(lock) => Ok(Box::new(lock)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Box::new(())),
            Err(error) => Err(error),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let changed = self.names.lock();
        let mut names: Vec<String> =
            changed.iter().filter(|(_, file)| file.is_some()).map(|(name, _)| name.clone()).collect();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string().ok().filter(|name| !changed.contains_key(name)));
        }
        Ok(names)
    }

    fn size_bytes(&self, name: &str) -> io::Result<u64> {
        match self.names.lock().get(name) {
            Some(Some(file)) => file.size_bytes(),
            Some(None) => Err(io::ErrorKind::NotFound.into()),
            None => Ok(fs::symlink_metadata(self.path.join(name))?.len()),
        }
    }

    fn create(&self, name: &str, bytes: u64, kind: FileKind) -> io::Result<Arc<dyn DiskFile>> {
        if self.is_full && holds_blocks(kind) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        if self.list()?.iter().any(|known| known == name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Arc::new(OverlayFile::new(None, bytes, false));
        self.names.lock().insert(name.to_owned(), Some(Arc::clone(&file)));
        Ok(file)
    }

    fn open(&self, name: &str, bytes: u64, kind: FileKind) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(name, bytes, self.is_full && holds_blocks(kind))?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let file = self.file(from, 0, false)?;
        let mut names = self.names.lock();
        names.insert(from.to_owned(), None);
        names.insert(to.to_owned(), Some(file));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.file(name, 0, false)?;
        self.names.lock().insert(name.to_owned(), None);
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX) // Nothing is written to the real disk.
    }
}

fn holds_blocks(kind: FileKind) -> bool {
    matches!(kind, FileKind::Blocks | FileKind::Mapped)
}

impl Overlay {
    fn file(&self, name: &str, bytes: u64, is_full: bool) -> io::Result<Arc<OverlayFile>> {
        let mut names = self.names.lock();
        match names.get(name) {
            Some(Some(file)) => Ok(Arc::clone(file)),
            Some(None) => Err(io::ErrorKind::NotFound.into()),
            None => {
                let base = calls::open_regular(&self.path.join(name), File::options().read(true))?;
                let size = base.metadata()?.len().max(bytes);
                let file = Arc::new(OverlayFile::new(Some(base), size, is_full));
                names.insert(name.to_owned(), Some(Arc::clone(&file)));
                Ok(file)
            }
        }
    }
}

struct OverlayFile {
    /// The real file; `None` for a file that was made here.
    base: Option<File>,
    /// Whether the file gets no more space.
    is_full: bool,
    changes: Mutex<Changes>,
}

struct Changes {
    size: u64,
    /// Whole pages that differ from the real file, by number; `None` for a page of zeros.
    pages: BTreeMap<u64, Option<Vec<u8>>>,
}

impl OverlayFile {
    fn new(base: Option<File>, size: u64, is_full: bool) -> Self {
        Self { base, is_full, changes: Mutex::new(Changes { size, pages: BTreeMap::new() }) }
    }

    /// Fills `out` from the real file, and with zeros behind its end.
    fn read_base(&self, position: u64, out: &mut [u8]) -> io::Result<()> {
        out.fill(0);
        let Some(base) = &self.base else { return Ok(()) };
        let mut done = 0;
        while done < out.len() {
            match base.read_at(&mut out[done..], position + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Numbers of the pages that a range touches.
fn pages(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES)
}

impl DiskFile for OverlayFile {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.changes.lock().size)
    }

    fn read(&self, position: u64, bytes: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let changes = self.changes.lock();
        let end = position.saturating_add(bytes as u64).min(changes.size);
        if position >= end {
            return Ok(());
        }
        let start = out.len();
        out.resize(start + (end - position) as usize, 0);
        let target = &mut out[start..];
        self.read_base(position, target)?;
        for (&number, page) in changes.pages.range(pages(&(position..end))) {
            let page_start = number * PAGE_BYTES;
            let (from, to) = (page_start.max(position), (page_start + PAGE_BYTES).min(end));
            let part = &mut target[(from - position) as usize..(to - position) as usize];
            match page {
                Some(page) => {
                    part.copy_from_slice(&page[(from - page_start) as usize..(to - page_start) as usize]);
                }
                None => part.fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, position: u64, parts: &[&[u8]], _: bool) -> io::Result<usize> {
        let bytes = parts.concat();
        let mut at = 0;
        while at < bytes.len() {
            let place = position + at as u64;
            let (page_start, in_page) = (page_down(place), (place - page_down(place)) as usize);
            let count = (PAGE_BYTES as usize - in_page).min(bytes.len() - at);
            let mut page = vec![0; PAGE_BYTES as usize];
            let known = self.changes.lock().pages.get(&(page_start / PAGE_BYTES)).cloned();
            match known {
                Some(known) => page = known.unwrap_or(page),
                None => self.read_base(page_start, &mut page)?,
            }
            page[in_page..in_page + count].copy_from_slice(&bytes[at..at + count]);
            let mut changes = self.changes.lock();
            changes.pages.insert(page_start / PAGE_BYTES, Some(page));
            changes.size = changes.size.max(place + count as u64);
            at += count;
        }
        Ok(bytes.len())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn prepare(&self, range: Range<u64>, _: Prepare) -> io::Result<()> {
        if self.is_full {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let mut changes = self.changes.lock();
        changes.size = changes.size.max(range.end);
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> io::Result<()> {
        self.changes.lock().pages.extend(pages(&range).map(|number| (number, None)));
        Ok(())
    }

    fn data_ranges(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let mut ranges = match &self.base {
            Some(base) => calls::data_ranges(base, &range)?,
            None => Vec::new(),
        };
        let changes = self.changes.lock();
        let written = changes.pages.range(pages(&range)).filter(|(_, page)| page.is_some());
        ranges.extend(written.map(|(number, _)| {
            (number * PAGE_BYTES).max(range.start)..((number + 1) * PAGE_BYTES).min(range.end)
        }));
        ranges.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Ok(merged)
    }

    fn claim(self: Arc<Self>, _: Range<u64>) -> Box<dyn MappedRange> {
        panic!("only mapped files have ranges to claim")
    }
}
