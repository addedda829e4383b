//! Files of a store that somebody else touches, and names that are no regular files: they are told, never waited for, and
//! nothing is left behind.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use support::*;
use walrus_log::{Backend, Error, FsyncSchedule, Offset, Options, Store, inspect};

/// Variable of a child process that may open few files: the directory of its store.
const CHILD: &str = "WALRUS_TEST_FEW_DESCRIPTORS";
/// Variable of a child process whose file is cut: the directory of its store, whether that syncs, and the size to which
/// the file is cut.
const CUT_CHILD: &str = "WALRUS_TEST_CUT_FILE";
/// Variable of a child process that gets a signal: the directory of its store.
const BUS_CHILD: &str = "WALRUS_TEST_BUS_ERROR";

fn names(directory: &Path, end: &str) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(end)).collect()
}

/// Paths of this process's open descriptors of files in a directory.
fn descriptors(directory: &Path) -> Vec<String> {
    let links =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let inside = links.filter(|path| path.starts_with(directory));
    inside.map(|path| path.display().to_string()).collect()
}

/// A reader once asked for the missing bytes again and again.
#[test]
fn of_a_file_that_was_cut_off_the_rest_is_damaged_and_no_read_hangs() {
    const COUNT: u64 = 400;
    for backend in BACKENDS {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), &Options { backend, ..Options::small() });
        let log = store.create_log(spec(1, "t")).unwrap();
        // The last closed block may still be in memory; these fill several.
        for i in 0..COUNT {
            append(&log, &numbered(i, 1000)).unwrap();
        }
        store.drain();
        let file = File::options().write(true).open(directory.path().join("00000001.wal")).unwrap();
        file.set_len(20_000).unwrap();
        let (records, fences) = read_from(&log, Offset(0), 10_000);
        assert!(!records.is_empty() && !fences.is_empty(), "{backend:?}");
        assert!(records.iter().all(|(i, value)| *value == numbered(*i, 1000)), "{backend:?}");
        let missing: u64 = fences.iter().map(|(start, end)| end - start).sum();
        assert_eq!(records.len() as u64 + missing, COUNT, "{backend:?}: {fences:?}");
    }
}

/// An append into a mapping whose file was cut once ended the process with SIGBUS. One that was written made the file
/// longer again, which hid the cut until the next open.
#[test]
fn an_append_to_a_file_that_somebody_cut_is_refused_and_the_process_lives() {
    if let Ok(child) = std::env::var(CUT_CHILD) {
        let [directory, backend, syncs, bytes] = child.split(' ').collect::<Vec<_>>()[..] else {
            unreachable!()
        };
        return append_to_what_is_cut(Path::new(directory), backend.parse().unwrap(), syncs == "true", bytes);
    }
    for (backend, syncs) in [("mmap", false), ("mmap", true), ("direct", true), ("io_uring", true)] {
        // A cut to 0 leaves nothing; one to 20000 ends within a page, whose rest takes stores; one to 100000 leaves all
        // blocks in use.
        for bytes in ["0", "20000", "100000"] {
            let directory = tempfile::tempdir().unwrap();
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "an_append_to_a_file_that_somebody_cut_is_refused_and_the_process_lives"])
                .env(CUT_CHILD, format!("{} {backend} {syncs} {bytes}", directory.path().display()))
                .output()
                .unwrap();
            let what = format!("{backend}, synced: {syncs}, cut to {bytes} bytes");
            let said = String::from_utf8_lossy(&child.stdout).into_owned();
            assert!(child.status.success(), "{what}: {}: {said}", child.status);
            // Records that are left are served as they were appended.
            let again = open(directory.path(), &Options { backend: Backend::Mmap, ..Options::small() });
            for log in again.logs() {
                let (records, _) = read_from(&log, Offset(0), 10_000);
                assert!(records.iter().all(|(i, value)| *value == numbered(*i, 1000)), "{what}");
            }
        }
    }
}

fn append_to_what_is_cut(directory: &Path, backend: Backend, syncs: bool, bytes: &str) {
    let fsync = if syncs { FsyncSchedule::SyncEach } else { FsyncSchedule::NoFsync };
    let store = open(directory, &Options { backend, fsync, ..Options::small() });
    let [log, other] = [1, 2].map(|id| store.create_log(spec(id, "t")).unwrap());
    for i in 0..20 {
        append(&log, &numbered(i, 1000)).unwrap();
        append(&other, &numbered(i, 1000)).unwrap();
    }
    store.drain();
    let is_mapped = backend == Backend::Mmap && !syncs;
    let name = if is_mapped { "00000001-mapped.wal" } else { "00000001.wal" };
    let file = directory.join(name);
    assert!(fs::metadata(&file).unwrap().len() > 100_000);
    assert!(Command::new("truncate").arg("-s").arg(bytes).arg(&file).status().unwrap().success());
    let refused = (20..1000).find_map(|i| append(&log, &numbered(i, 1000)).err());
    let Some(refused) = refused else {
        assert_eq!(bytes, "100000", "blocks that are not used yet are passed over");
        return;
    };
    assert!(matches!(refused, Error::Io { .. } | Error::Poisoned { .. }), "{refused:?}");
    assert!(refused.to_string().contains("somebody cut the file"), "{refused}");
    assert!(refused.to_string().contains(name), "{refused}");
    // The log takes nothing more, and is still read.
    assert!(matches!(append(&log, b"x"), Err(Error::Poisoned { .. })));
    let (records, _) = read_from(&log, Offset(0), 10_000);
    assert!(records.iter().all(|(i, value)| *value == numbered(*i, 1000)));
    drop((log, other));
    let _ = store.close();
}

/// The handler that guards mappings must not take any other fault.
#[test]
#[expect(unsafe_code, reason = "only a mapping has such faults")]
fn a_bus_error_of_somebody_else_still_ends_the_process() {
    if let Ok(directory) = std::env::var(BUS_CHILD) {
        let store = open(Path::new(&directory), &Options { backend: Backend::Mmap, ..Options::small() });
        append(&store.create_log(spec(1, "t")).unwrap(), b"x").unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        // SAFETY: the mapping outlives the file's bytes on purpose: the fault of the store is what is tested.
        let mut map = unsafe { memmap2::MmapMut::map_mut(&file) }.unwrap();
        file.set_len(0).unwrap();
        map[0] = 1;
        panic!("it lives");
    }
    let directory = tempfile::tempdir().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_bus_error_of_somebody_else_still_ends_the_process"])
        .env(BUS_CHILD, directory.path())
        .output()
        .unwrap();
    assert_eq!(child.status.signal(), Some(7), "{}", String::from_utf8_lossy(&child.stdout));
}

/// A handle of a log or topic once kept all files of a closed store open.
#[test]
fn a_closed_store_has_no_file_open_whoever_still_holds_its_logs() {
    for backend in BACKENDS {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), &Options { backend, ..Options::small() });
        let log = store.create_log(spec(1, "t")).unwrap();
        for i in 0..100 {
            append(&log, &numbered(i, 1000)).unwrap();
        }
        let cursor = log.cursor("c").unwrap();
        cursor.read_next(true).unwrap().unwrap();
        assert!(descriptors(directory.path()).len() > 3);
        store.close().unwrap();
        assert_eq!(descriptors(directory.path()), [""; 0], "{backend:?}");
        assert!(matches!(log.read(Offset(0), 100), Err(Error::Closed)));
        assert!(matches!(cursor.read_next(true), Err(Error::Closed)));
        assert_eq!(log.end_offset(), Offset(100));
        let again = open(directory.path(), &Options { backend, ..Options::small() });
        assert_eq!(values(&again.logs()[0]).len(), 100);
    }
}

/// `inspect` once waited for ever for somebody to write to a pipe.
#[test]
fn what_is_no_regular_file_is_refused_by_name() {
    for name in ["00000001.wal", "MANIFEST", "END", "journal-00000009", "LOCK"] {
        for kind in ["link", "pipe", "folder"] {
            let directory = tempfile::tempdir().unwrap();
            let store = open(directory.path(), &Options::small());
            append(&store.create_log(spec(1, "t")).unwrap(), b"x").unwrap();
            store.close().unwrap();
            let path = directory.path().join(name);
            let aside = directory.path().join("aside");
            let _ = fs::rename(&path, &aside);
            match kind {
                "link" => symlink(&aside, &path).unwrap(),
                "pipe" => assert!(Command::new("mkfifo").arg(&path).status().unwrap().success()),
                _ => fs::create_dir(&path).unwrap(),
            }
            for opened in [
                inspect(directory.path()).map(drop),
                Store::open(directory.path(), Options::small()).map(drop),
            ] {
                let error = opened.expect_err(&format!("{name} is a {kind}")).to_string();
                assert!(error.contains(name) || name == "LOCK", "{name}, a {kind}: {error}");
                assert!(error.contains("no regular file"), "{name}, a {kind}: {error}");
            }
        }
    }
}

/// Each refused append once left an empty file.
#[test]
fn appends_without_descriptors_leave_no_files() {
    if let Ok(directory) = std::env::var(CHILD) {
        return append_without_descriptors(Path::new(&directory));
    }
    let directory = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let command = format!(
        "ulimit -n 200; exec {} --exact appends_without_descriptors_leave_no_files",
        program.display()
    );
    let child = Command::new("sh").args(["-c", &command]).env(CHILD, directory.path()).output().unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

fn append_without_descriptors(directory: &Path) {
    let options = Options { backend: Backend::Direct, ..Options::small() };
    let store = open(directory, &options);
    let log = store.create_log(spec(1, "t")).unwrap();
    append(&log, b"x").unwrap();
    store.drain();
    let mut taken: Vec<File> = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    // One descriptor is free: for the file itself, and not for the second one that it needs.
    drop(taken.pop());
    let refused = (0..2000).filter(|_| append(&log, &[7; 1000]).is_err()).count();
    assert!(refused > 100, "{refused}");
    drop(taken);
    store.drain();
    assert_eq!(names(directory, ".wal").len() as u64, store.stats().files);
}
