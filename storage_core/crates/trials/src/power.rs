//! Power failures of real backends: a life on an ext4 whose disk writes down what it is told, and then that disk as it
//! may be after a failure at any moment: the kernel replays the file system's journal, the engine opens the store.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use walrus_log::{Backend, Error, FsyncSchedule, Options, Store, TailKind, verify};

use crate::checks::{check, seen};
use crate::device::Device;
use crate::device_log::{DeviceReplay, Loss, write_sparse};
use crate::images::{Now, append, told};
use crate::mounts::{Mounted, OtherBoot, image_directory, make_ext4};
use crate::owner::{Home, Owner, Plan};
use crate::random::Random;

/// The backends that are tried.
pub const BACKENDS: [&str; 3] = ["mmap", "direct", "io_uring"];
const DISK_BYTES: u64 = 48 << 20;
/// Calls of a life.
const STEPS: u64 = 60;
/// The engine's directory on the file system.
const STORE: &str = "store";

/// A store on the recorded disk.
struct RecordedHome {
    directory: PathBuf,
    log: PathBuf,
    /// The backend for tails that are not mapped, or the one with mapped tails.
    backend: Backend,
}

impl Home for RecordedHome {
    /// The length of the disk's log, which is a clock: each thing that the disk is told is in the log before it answers.
    fn moment(&self) -> usize {
        fs::metadata(&self.log).expect("the log of the disk").len() as usize
    }

    fn open(&self, options: Options, tails: TailKind) -> Result<Store, Error> {
        let backend = match tails {
            TailKind::Mapped => Backend::Mmap,
            TailKind::Buffered if self.backend == Backend::Mmap => Backend::Direct,
            TailKind::Buffered => self.backend,
        };
        open(&self.directory, options, backend)
    }
}

/// Opens a store, with this backend and no other.
pub(crate) fn open(directory: &Path, options: Options, backend: Backend) -> Result<Store, Error> {
    let store = Store::open(directory, Options { backend, ..options })?;
    let in_use = store.backend();
    assert_eq!(in_use.name.parse().ok(), Some(backend), "the backend in use: {in_use:?}");
    Ok(store)
}

/// Lives the life of a seed on a real disk, and cuts the power at so many moments of it. Answers how many images were
/// opened. Needs a mount namespace of its own.
pub fn cut_power(backend: Backend, seed: u64, images: u64) -> io::Result<u64> {
    let tail_kind = if backend == Backend::Mmap { TailKind::Mapped } else { TailKind::Buffered };
    let plan = Plan { tail_kind, ..Plan::of(seed, STEPS) };
    let what = format!("{backend:?} on a real disk, {plan:?}");
    let work = image_directory()?;
    let [image, log, served] = ["image", "log", "disk"].map(|name| work.path().join(name));
    make_ext4(&image, DISK_BYTES)?;
    let empty = fs::read(&image)?;
    let device = Device::start(&image, &log, &served)?;
    let mounted = Mounted::ext4(device.file(), &work.path().join("live"))?;
    File::open(mounted.path())?.sync_all()?;
    let home = RecordedHome { directory: mounted.path().join(STORE), log: log.clone(), backend };
    let began = home.moment();
    let mut owner = Owner::new(plan.clone(), home).unwrap_or_else(|failed| panic!("{what}: {failed:?}"));
    owner.live().unwrap_or_else(|failed| panic!("{what}: {}: {}", failed.call, failed.error));
    let moments = std::mem::take(&mut owner.moments);
    drop(owner);
    drop(mounted);
    drop(device);

    let log = fs::read(&log)?;
    let ends = DeviceReplay::ends(&log);
    let first = ends.partition_point(|end| *end < began);
    let mut random = Random(seed ^ 0x706f_7765);
    let mut cuts: Vec<usize> =
        (0..images).map(|_| ends[first + random.below((ends.len() - first) as u64) as usize]).collect();
    cuts.sort_unstable();
    let _boot = OtherBoot::new(work.path())?;
    let mut replay = DeviceReplay::new(empty, &log);
    let mut now = Now::default();
    for cut in cuts {
        replay.advance(cut);
        now.advance(&moments, cut);
        let loss = Loss::any(&mut random);
        write_sparse(&image, &replay.image(loss))?;
        let mounted = Mounted::ext4(&image, &work.path().join("left"))?;
        let (before, after, call) = now.facts(&moments, cut);
        let what = format!(
            "{what}\nat byte {cut} of {} of the disk's log, {loss:?}, in or before {call}",
            log.len()
        );
        told(&what, || {
            let directory = mounted.path().join(STORE);
            if moments.first().is_none_or(|first| first.ended > cut) && !directory.exists() {
                return;
            }
            let store = open(&directory, plan.options(), backend)
                .unwrap_or_else(|error| panic!("it does not open: {error}"));
            check(&store, before, after, &[]);
            // Life goes on, and what it shows from now on stays.
            let found = seen(&store, before, after);
            let mut appended = found;
            for log in store.logs().iter().filter(|log| !log.is_sealed()) {
                append(log, random.number(), appended.log(log.id()));
            }
            store.close().unwrap_or_else(|error| panic!("it does not close: {error}"));
            let store = open(&directory, plan.options(), backend)
                .unwrap_or_else(|error| panic!("it does not open again: {error}"));
            check(&store, &appended, &appended, &[before, after]);
            store.close().unwrap_or_else(|error| panic!("it does not close again: {error}"));
            drop(store);
            let loses = appended.logs.values().any(|log| log.fsync == FsyncSchedule::NoFsync);
            let verified =
                verify(&directory).unwrap_or_else(|error| panic!("it cannot be verified: {error}"));
            let damaged = verified.inspection.logs.iter().filter(|log| !log.damaged.is_empty()).count();
            assert!(loses || damaged == 0, "{damaged} logs are damaged");
        });
    }
    Ok(images)
}
