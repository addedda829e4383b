//! Files of a store that somebody else touches, or that are none: told, never waited for, and nothing is left behind.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use support::*;
use walrus_log::{Backend, Error, Offset, Options, Store, inspect};

/// The directory of a store whose process may open few files.
const CHILD: &str = "WALRUS_TEST_FEW_DESCRIPTORS";

fn names(directory: &Path, end: &str) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(end)).collect()
}

/// Open descriptors of files in a directory.
fn descriptors(directory: &Path) -> Vec<String> {
    let links =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let inside = links.filter(|path| path.starts_with(directory));
    inside.map(|path| path.display().to_string()).collect()
}

/// A reader asked for the missing bytes again and again.
#[test]
fn of_a_file_that_was_cut_off_the_rest_is_damaged_and_no_read_hangs() {
    for backend in BACKENDS {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), &Options { backend, ..Options::small() });
        let log = store.create_log(spec(1, "t")).unwrap();
        for i in 0..100 {
            append(&log, &numbered(i, 1000)).unwrap();
        }
        store.settle();
        let file = File::options().write(true).open(directory.path().join("00000001.wal")).unwrap();
        file.set_len(20_000).unwrap();
        let (records, fences) = read_from(&log, Offset(0), 10_000);
        assert!(!records.is_empty() && !fences.is_empty(), "{backend:?}");
        assert!(records.iter().all(|(i, value)| *value == numbered(*i, 1000)), "{backend:?}");
        let missing: u64 = fences.iter().map(|(start, end)| end - start).sum();
        assert_eq!(records.len() as u64 + missing, 100, "{backend:?}: {fences:?}");
    }
}

/// Who held a log, or a topic, kept all files of a closed store open.
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

/// `inspect` waited for ever for somebody to write to a pipe.
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

/// Each refused append left an empty file.
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
    store.settle();
    let mut taken: Vec<File> = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    // For the file itself, and not for the second descriptor that it needs.
    drop(taken.pop());
    let refused = (0..2000).filter(|_| append(&log, &[7; 1000]).is_err()).count();
    assert!(refused > 100, "{refused}");
    drop(taken);
    store.settle();
    assert_eq!(names(directory, ".wal").len() as u64, store.stats().files);
}
