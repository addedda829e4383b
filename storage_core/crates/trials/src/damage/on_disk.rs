//! The campaign in real directories: stores of each backend, damaged while nobody has them open, where what `verify` says is held
//! against what an open does, and while their process goes on.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use tempfile::TempDir;
use walrus_log::{Backend, Error, Options, Store, repair, verify};

use super::Outcome;
use super::hits::Hits;
use super::strike::strike;
use super::subject::{Structure, Subject, append, options};
use super::verdict::{LATER, check, check_refusal};
use crate::random::Random;
use crate::rot::Contents;

/// Damages a store that nobody has open, verifies it, and opens it; where it refuses to open, it is repaired.
pub(super) fn closed(subject: &Subject, hit: &(Contents, Hits), backend: Backend, what: &str) -> Outcome {
    let (contents, hits) = hit;
    let directory = laid_out(contents);
    let path = directory.path();
    let open = || Store::open(path, Options { backend, ..options() });
    let verified = verify(path);
    assert!(read(path) == *contents, "{what}: a verification changed something");
    let outcome = check(subject, &open, hits, what);
    match (&verified, outcome) {
        (Err(error), Outcome::Refused) => check_refusal(error, hits, what),
        (Err(error), _) => panic!("{what}: it opens, and cannot be verified: {error}"),
        (Ok(_), Outcome::Refused) => panic!("{what}: it can be verified, and does not open"),
        (Ok(verified), Outcome::Told) => {
            assert!(verified.inspection.lost_something(), "{what}: a verification does not see what is lost");
        }
        (Ok(_), Outcome::Whole | Outcome::Tail) => {}
    }
    if outcome == Outcome::Refused {
        check_repair(subject, path, what);
    }
    outcome
}

/// Checks that a repair ends, and that the store it leaves serves nothing wrong.
fn check_repair(subject: &Subject, directory: &Path, what: &str) {
    match repair(directory) {
        Ok(_) => {}
        Err(Error::Damaged { .. } | Error::UnsupportedFormat { .. }) => return,
        Err(error) => panic!("{what}: no repair: {error}"),
    }
    let store = Store::open(directory, options()).unwrap_or_else(|error| panic!("{what}: repaired: {error}"));
    for log in store.logs() {
        if let Some(promised) = subject.logs.get(&log.id()) {
            promised.check_values(&log, true, what);
        }
    }
}

/// Damages a store under the hands of its process, which reads all of it, appends and closes it; then it is opened again.
pub(super) fn open(subject: &Subject, random: &mut Random, backend: Backend, what: &str) -> (Outcome, Hits) {
    let directory = laid_out(&subject.contents);
    let path = directory.path();
    let open = || Store::open(path, Options { backend, ..options() });
    let store = open().unwrap_or_else(|error| panic!("{what}: undamaged: {error}"));
    store.drain();
    let subject = subject.opened(read(path));
    let (contents, did) = strike(&subject, random);
    let what = format!("{what}, open, {did}");
    overwrite(path, &contents);
    let mut hits = Hits::new(&subject, &contents);
    read_on(&subject, &store, &hits, &what);
    let is_shorter =
        |(name, bytes): (&String, &Vec<u8>)| contents.get(name).is_none_or(|now| now.len() < bytes.len());
    let is_cut = subject.contents.iter().any(is_shorter);
    let is_closed = match go_on(&store) {
        Ok(()) => true,
        Err(error) if is_cut => {
            assert!(matches!(error, Error::Io { .. } | Error::Poisoned { .. }), "{what}: {error}");
            false
        }
        Err(error) => panic!("{what}: it does not go on: {error}"),
    };
    drop(store);
    // The records that the process wrote to its journal since stand behind damaged ones.
    hits.may_forget |= !is_closed && hits.structures.contains(&Structure::JournalRecord);
    let subject = Subject { is_closed, ..subject };
    (check(&subject, &open, &hits, &what), hits)
}

/// Checks what the process reads: each record as it was appended, or a refusal.
fn read_on(subject: &Subject, store: &Store, hits: &Hits, what: &str) {
    for (id, promised) in &subject.logs {
        let log =
            store.log(*id).unwrap_or_else(|| panic!("{what}: log {id} is gone while the store is open"));
        let (read, refused) = promised.check_values(&log, false, what);
        let is_hit = |at: &u64| hits.offsets.get(id).is_some_and(|hit| hit.contains_key(at));
        for at in promised.start..promised.end() {
            assert!(read.contains(&at) || refused.contains(&at), "{what}: {at} of log {id} is skipped");
            assert!(
                read.contains(&at) || is_hit(&at),
                "{what}: {at} of log {id} is refused, it is not damaged"
            );
        }
    }
}

/// Appends to each log and closes the store.
fn go_on(store: &Store) -> walrus_log::Result<()> {
    for log in store.logs().iter().filter(|log| !log.is_sealed()) {
        append(log, &[LATER])?;
    }
    store.close()
}

fn laid_out(contents: &Contents) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, bytes) in contents {
        fs::write(directory.path().join(name), bytes).expect("a file");
    }
    directory
}

/// The files of a directory, without the lock.
fn read(directory: &Path) -> Contents {
    let files = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry"));
    let name = |file: &fs::DirEntry| file.file_name().into_string().expect("names that we gave");
    files
        .filter(|file| file.file_name() != "LOCK")
        .map(|file| (name(&file), fs::read(file.path()).expect("a file")))
        .collect()
}

/// Makes a directory's files what they are to be, in their places: who has them open sees it.
fn overwrite(directory: &Path, contents: &Contents) {
    for name in read(directory).keys().filter(|name| !contents.contains_key(*name)) {
        fs::remove_file(directory.join(name)).expect("a file");
    }
    for (name, bytes) in contents {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(directory.join(name));
        let file = file.expect("a file");
        file.set_len(bytes.len() as u64).expect("a length");
        file.write_all_at(bytes, 0).expect("bytes");
    }
}
