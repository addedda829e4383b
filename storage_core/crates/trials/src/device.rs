//! A disk whose every write and flush is written down: one file of a FUSE file system, to lie below a loop device. It is
//! served by a process of its own, because who waits for a disk must not be who answers for it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::device_log::LogWriter;

/// The word that the process that serves says once the file is there.
const READY: &str = "ready";
/// Time for which the kernel may keep what it knows of the file: only the loop device uses it, and it never changes by itself.
const KEPT: Duration = Duration::from_secs(3600);

/// A disk that is being served; it is gone when this is dropped.
pub struct Device {
    process: Child,
    file: PathBuf,
}

impl Device {
    /// Serves `image`, changing it, as the file `at`, and writes what happens to `log`.
    pub fn start(image: &Path, log: &Path, at: &Path) -> io::Result<Self> {
        File::create(at)?;
        let mut process = Command::new(std::env::current_exe()?)
            .arg("device")
            .args([image, log, at])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut said)?;
        }
        let device = Self { process, file: at.to_owned() };
        if said.trim() == READY { Ok(device) } else { Err(io::Error::other("the device does not start")) }
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Serves the disk until the standard input ends; the life of the process that serves.
pub fn serve(image: &Path, log: &Path, at: &Path) -> io::Result<()> {
    let image = File::options().read(true).write(true).open(image)?;
    let disk = Disk { bytes: image.metadata()?.len(), image, log: Mutex::new(LogWriter::create(log)?) };
    let session = fuser::spawn_mount(disk, fs::canonicalize(at)?, &Config::default())?;
    println!("{READY}");
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    session.umount_and_join()
}

struct Disk {
    image: File,
    bytes: u64,
    log: Mutex<LogWriter>,
}

impl Disk {
    fn attributes(&self) -> FileAttr {
        let epoch = SystemTime::UNIX_EPOCH;
        FileAttr {
            ino: INodeNo::ROOT,
            size: self.bytes,
            blocks: self.bytes / 512,
            atime: epoch,
            mtime: epoch,
            ctime: epoch,
            crtime: epoch,
            kind: FileType::RegularFile,
            perm: 0o600,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Logs an event before it takes effect, so that everything that can be read was written down.
    fn logged(&self, log: impl FnOnce(&mut LogWriter) -> io::Result<()>) -> io::Result<()> {
        let mut guard = self.log.lock().map_err(|_| io::Error::other("the log broke"))?;
        log(&mut guard)
    }
}

/// The mount point is a file, so the root is the file.
impl Filesystem for Disk {
    fn getattr(&self, _: &Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&KEPT, &self.attributes());
    }

    fn setattr(
        &self,
        _: &Request,
        _: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.attr(&KEPT, &self.attributes());
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; u64::from(size).min(self.bytes.saturating_sub(offset)) as usize];
        match self.image.read_exact_at(&mut bytes, offset) {
            Ok(()) => reply.data(&bytes),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let logged = self.logged(|log| log.write(offset, data));
        match logged.and_then(|()| self.image.write_all_at(data, offset)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.logged(LogWriter::flush) {
            Ok(()) => reply.ok(),
            Err(_) => reply.error(Errno::EIO),
        }
    }
}
