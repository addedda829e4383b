//! A real directory. Its open chooses between mapped and O_DIRECT files, with or without io_uring, by what the file
//! system takes and the kernel allows.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::aio::Aio;
use super::memory::AlignedPage;
use super::pieces::Piece;
use super::process::Lock;
use super::real_file::{RealFile, Writer};
use super::ring::Ring;
use super::several::Several;
use super::{BackendInUse, Disk, DiskFile, FileKind, SyncedWrites, calls};
use crate::options::Backend;

pub(super) const LOCK_NAME: &str = "LOCK";
/// File with an id that the kernel makes at each boot (`random(4)`).
const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";
const PROBE_NAME: &str = "probe.tmp";
/// Number of reads that keep even a slow disk busy: a cold read of a network volume takes tens of milliseconds.
const READS_AT_ONCE: usize = 64;

pub(crate) struct Directory {
    path: PathBuf,
    backend: BackendInUse,
    maps: bool,
    /// For several direct writes at a time; `None` where the file system takes none, or the kernel only one by one.
    several: Option<Arc<Several>>,
}

impl Directory {
    /// Opens the directory, makes it if it is not there, and finds out what its file system can do.
    pub(crate) fn open(path: &Path, backend: Backend) -> io::Result<Self> {
        make_directory(path)?;
        let synced_writes = match probe_direct(path) {
            Ok(()) => SyncedWrites::Direct,
            Err(error) => SyncedWrites::Cached { reason: format!("direct: {error}") },
        };
        let (name, refused, several) = match (backend, &synced_writes) {
            (Backend::Mmap, SyncedWrites::Cached { .. }) => ("mmap", None, None),
            (_, SyncedWrites::Cached { reason }) => ("mmap", Some(reason.clone()), None),
            (Backend::Mmap, SyncedWrites::Direct) => ("mmap", None, without_ring()),
            (Backend::Direct, SyncedWrites::Direct) => ("direct", None, without_ring()),
            (Backend::Auto | Backend::IoUring, SyncedWrites::Direct) => match probe_ring(path) {
                Ok(ring) => ("io_uring", None, Some(Several::Ring(Box::new(ring)))),
                Err(error) => ("direct", Some(format!("io_uring: {error}")), without_ring()),
            },
        };
        Ok(Self {
            path: path.to_owned(),
            maps: name == "mmap",
            backend: BackendInUse { name, refused, synced_writes },
            several: several.map(Arc::new),
        })
    }

    fn open_file(
        &self,
        name: &str,
        bytes: u64,
        kind: FileKind,
        create: bool,
    ) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.path.join(name);
        let file = calls::open_regular(&path, OpenOptions::new().read(true).write(true).create_new(create))?;
        let opened = self.finish_open(file, &path, bytes, kind);
        if create && opened.is_err() {
            // The process may be out of descriptors, say. A file that stayed would keep its name from the next try.
            let _ = fs::remove_file(&path);
        }
        opened
    }

    fn finish_open(
        &self,
        file: File,
        path: &Path,
        bytes: u64,
        kind: FileKind,
    ) -> io::Result<Arc<dyn DiskFile>> {
        if file.metadata()?.len() < bytes {
            file.set_len(bytes)?;
        }
        let is_direct = self.backend.synced_writes == SyncedWrites::Direct;
        let writer = match (kind, &self.several) {
            (FileKind::Mapped, _) if self.maps => Writer::mapped(&file)?,
            (FileKind::Plain | FileKind::Mapped, _) => Writer::Buffered,
            (FileKind::Blocks, Some(several)) => Writer::Several(open_direct(path)?, Arc::clone(several)),
            (FileKind::Blocks | FileKind::Pages, _) if is_direct => Writer::Direct(open_direct(path)?),
            (FileKind::Blocks | FileKind::Pages, _) => Writer::Buffered,
        };
        Ok(Arc::new(RealFile::new(file, writer, bytes)))
    }
}

impl Disk for Directory {
    fn maps(&self) -> bool {
        self.maps
    }

    fn backend(&self) -> BackendInUse {
        self.backend.clone()
    }

    fn reads_at_once(&self) -> usize {
        READS_AT_ONCE
    }

    fn boot(&self) -> Option<Uuid> {
        boot_id()
    }

    fn path(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        let path = self.path.join(LOCK_NAME);
        let open = || calls::open_regular(&path, OpenOptions::new().create(true).truncate(false).write(true));
        Ok(Box::new(Lock::take(open)?))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn size_bytes(&self, name: &str) -> io::Result<u64> {
        Ok(fs::symlink_metadata(self.path.join(name))?.len())
    }

    fn create(&self, name: &str, bytes: u64, kind: FileKind) -> io::Result<Arc<dyn DiskFile>> {
        self.open_file(name, bytes, kind, true)
    }

    fn open(&self, name: &str, bytes: u64, kind: FileKind) -> io::Result<Arc<dyn DiskFile>> {
        self.open_file(name, bytes, kind, false)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        calls::free_bytes(&File::open(&self.path)?)
    }
}

/// The way to have several direct writes under way without io_uring, where it is allowed.
fn without_ring() -> Option<Several> {
    Aio::open().ok().map(Several::Aio)
}

/// Makes a directory and those above it, durable on return.
fn make_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = path.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
    make_directory(above)?;
    match fs::create_dir(path) {
        // Somebody else was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    File::open(above)?.sync_all()
}

pub(super) fn boot_id() -> Option<Uuid> {
    fs::read_to_string(BOOT_ID_PATH).ok()?.trim().parse().ok()
}

fn open_direct(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path)
}

/// Does a direct write as a commit does: some file systems refuse at open (tmpfs of old kernels), others only at the
/// write.
fn probe_direct(directory: &Path) -> io::Result<()> {
    probe(directory, |file, page| calls::write(file, 0, &[page], true))
}

/// Opens the ring and does one write through it: kernels and seccomp filters refuse at different steps.
fn probe_ring(directory: &Path) -> io::Result<Ring> {
    let ring = Ring::open()?;
    probe(directory, |file, page| {
        let pieces = [Piece { position: 0, parts: vec![page] }];
        ring.write(file, &pieces).into_iter().sum()
    })?;
    Ok(ring)
}

fn probe(directory: &Path, write: impl FnOnce(&File, &[u8]) -> io::Result<usize>) -> io::Result<()> {
    let path = directory.join(PROBE_NAME);
    File::create(&path)?;
    let page = AlignedPage::padded(&[]);
    let written = open_direct(&path).and_then(|file| write(&file, &page));
    fs::remove_file(&path)?;
    match written {
        Ok(written) if written < page.len() => Err(io::ErrorKind::WriteZero.into()),
        // A full disk has no place for the page, but it took the request.
        Err(error) if error.kind() != io::ErrorKind::StorageFull => Err(error),
        _ => Ok(()),
    }
}
