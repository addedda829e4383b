//! File systems of our own for trials: made, mounted in a namespace that nobody else sees, gone with the process.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Directory in memory in which images lie, where there is one.
const MEMORY: &str = "/dev/shm";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Why this machine or this user cannot mount file systems of their own; `None` if they can.
pub fn cannot_mount() -> Option<String> {
    let uid = fs::metadata("/proc/self").map(|process| process.uid());
    if !matches!(uid, Ok(0)) {
        return Some("needs root".to_owned());
    }
    if let Err(error) = File::options().read(true).write(true).open("/dev/loop-control") {
        return Some(format!("/dev/loop-control: {error}"));
    }
    [
        &mut private(Path::new("true")),
        Command::new("losetup").arg("--find"),
        Command::new("mkfs.ext4").arg("-V"),
    ]
    .into_iter()
    .find_map(|command| run(command).err().map(|error| error.to_string()))
}

/// Why this machine or this user cannot mount a disk that a process serves; `None` if they can.
pub fn cannot_serve() -> Option<String> {
    let fuse = File::options().read(true).write(true).open("/dev/fuse");
    cannot_mount().or_else(|| fuse.err().map(|error| format!("/dev/fuse: {error}")))
}

/// Finds a way to start programs in a mount namespace of their own where they may mount a tmpfs: with the rights of this
/// user, or as the root of a user namespace.
///
/// # Errors
/// Both ways fail; the text says which rights are missing.
pub fn private_memory() -> Result<impl Fn(&Path) -> Command, String> {
    let own_root = |program: &Path| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--propagation", "private", "--"]).arg(program);
        command
    };
    let ways: [fn(&Path) -> Command; 2] = [private, own_root];
    let [rights, namespace] = ways.map(|start| {
        let mounts = ["-t", "tmpfs", "-o", "size=64k", "tmpfs", "/tmp"];
        run(start(Path::new("mount")).args(mounts)).map(|()| start)
    });
    rights.or_else(|rights| {
        namespace.map_err(|namespace| {
            format!("needs CAP_SYS_ADMIN ({rights}) or the right to make user namespaces ({namespace})")
        })
    })
}

/// A program in a mount namespace of its own.
pub fn private(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]).arg(program);
    command
}

/// A directory for images.
pub fn image_directory() -> io::Result<TempDir> {
    tempfile::tempdir_in(MEMORY).or_else(|_| tempfile::tempdir())
}

/// Makes a file that holds an empty ext4.
pub fn make_ext4(path: &Path, bytes: u64) -> io::Result<()> {
    File::create(path)?.set_len(bytes)?;
    // With these nothing is left to be done later, at a time of the kernel's choice.
    let options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
    run(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096", "-J", "size=4", "-E", options]).arg(path))
}

/// Another boot of this machine, as every process of this namespace sees it until this is dropped.
pub struct OtherBoot {
    file: PathBuf,
}

impl OtherBoot {
    /// Pretends another boot: a crash that is played ends no boot, and a store that is opened behind it must not see that.
    pub fn new(directory: &Path) -> io::Result<Self> {
        let file = directory.join("boot_id");
        fs::write(&file, format!("{}\n", uuid::Uuid::new_v4()))?;
        run(Command::new("mount").args(["--bind"]).arg(&file).arg(BOOT_ID))?;
        Ok(Self { file })
    }
}

impl Drop for OtherBoot {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg(BOOT_ID));
        let _ = fs::remove_file(&self.file);
    }
}

/// A mounted file system, which is unmounted when this is dropped.
pub struct Mounted {
    at: PathBuf,
}

impl Mounted {
    /// Mounts the ext4 in a file, over a loop device.
    pub fn ext4(image: &Path, at: &Path) -> io::Result<Self> {
        fs::create_dir_all(at)?;
        run(Command::new("mount").args(["-t", "ext4", "-o", "loop,noatime"]).arg(image).arg(at))?;
        Ok(Self { at: at.to_owned() })
    }

    /// Mounts an empty tmpfs of that size.
    pub fn tmpfs(bytes: u64, at: &Path) -> io::Result<Self> {
        fs::create_dir_all(at)?;
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(at))?;
        Ok(Self { at: at.to_owned() })
    }

    /// The place where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A trial that failed may still have files open here.
        let unmounted = run(Command::new("umount").arg(&self.at));
        if unmounted.is_err() {
            let _ = run(Command::new("umount").arg("--lazy").arg(&self.at));
        }
    }
}

/// Runs a program to its end.
pub fn run(command: &mut Command) -> io::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program}: {}", said.trim())))
}
