//! What must be true of a damaged store: what it serves, what it says that it lost, and how it goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use walrus_log::{Backend, Error, Log, OpenReport, Options, Store, repair};

use super::Outcome;
use super::hits::Hits;
use super::subject::{GROUPED, Promised, Structure, Subject, append, options};
use crate::checks::read_from;
use crate::facts::log_id;
use crate::random::Value;
use crate::rot::Contents;

/// The same on a real directory; where the store refuses to open, it is repaired.
pub(super) fn on_disk(
    subject: &Subject,
    contents: &Contents,
    hits: &Hits,
    backend: Backend,
    what: &str,
) -> Outcome {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, bytes) in contents {
        std::fs::write(directory.path().join(name), bytes).expect("a file");
    }
    let what = format!("{what}, {backend:?}");
    let open = || Store::open(directory.path(), Options { backend, ..options() });
    let outcome = check(subject, &open, hits, &what);
    if outcome == Outcome::Refused {
        check_repair(subject, directory.path(), &what);
    }
    outcome
}

/// A repair ends, and what it leaves serves nothing wrong.
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

/// Opens and reads everything; appends, and opens again.
pub(super) fn check(
    subject: &Subject,
    open: &dyn Fn() -> walrus_log::Result<Store>,
    hits: &Hits,
    what: &str,
) -> Outcome {
    let store = match open() {
        Ok(store) => store,
        Err(Error::Damaged { .. } | Error::UnsupportedFormat { .. } | Error::InvalidOption { .. }) => {
            let may_refuse = hits.structures.contains(&Structure::JournalRecord)
                || hits.structures.contains(&Structure::JournalHeader);
            assert!(may_refuse, "{what}: it does not open");
            return Outcome::Refused;
        }
        Err(error) => panic!("{what}: {error}"),
    };
    let report = store.report().clone();
    // Promises behind a torn end of the journal, and those at the end of a killed store's journal that nothing vouches for.
    let forgets = report.lost_end.is_some()
        || report.journal_cut_bytes > 0
        || (!subject.is_closed && hits.structures.contains(&Structure::JournalRecord));
    let (mut outcome, nothing) = (Outcome::Whole, BTreeSet::new());
    for (id, promised) in &subject.logs {
        match store.log(*id) {
            Some(log) => {
                let hit = hits.offsets.get(id).unwrap_or(&nothing);
                outcome = outcome.max(promised.check(&log, &report, hit, forgets, subject.is_closed, what));
            }
            None => {
                assert!(forgets, "{what}: log {id} is gone, and nothing is said");
                outcome = Outcome::Told;
            }
        }
    }
    if !forgets {
        assert_eq!(store.property("key").as_deref(), Some(&b"value"[..]), "{what}: the property");
    }
    // Life goes on, and what is served stays.
    let mut ends = BTreeMap::new();
    for log in store.logs().iter().filter(|log| !log.is_sealed()) {
        let at = log.end_offset().0;
        assert_eq!(append(log, &[Value { number: 1 << 50, bytes: 100 }]), at, "{what}: where an append went");
        ends.insert(log.id(), at + 1);
    }
    store.close().unwrap_or_else(|error| panic!("{what}: no close: {error}"));
    drop(store);
    let store = open().unwrap_or_else(|error| panic!("{what}: it does not open again: {error}"));
    for (id, end) in ends {
        let log = store.log(id).unwrap_or_else(|| panic!("{what}: log {id} is gone after a close in order"));
        assert_eq!(log.end_offset().0, end, "{what}: end of log {id} after a close in order");
        if let Some(promised) = subject.logs.get(&id) {
            promised.check_values(&log, forgets, what);
        }
    }
    outcome
}

impl Promised {
    fn end(&self) -> u64 {
        self.values.len() as u64
    }

    /// Each record is what was appended there. Which offsets can be read.
    fn check_values(&self, log: &Log, may_be_cut_ones: bool, what: &str) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let (records, fences) = read_from(log, log.start_offset().0);
        for (offset, bytes) in records.iter().filter(|(offset, _)| *offset < self.end()) {
            let known = &self.values[*offset as usize];
            let is_right = match known.last() {
                Some(last) if !may_be_cut_ones => last.is(bytes),
                _ => known.iter().any(|value| value.is(bytes)),
            };
            // Appended by the check, where the log was cut and said so.
            let is_later = Value { number: 1 << 50, bytes: 100 }.is(bytes);
            assert!(is_right || is_later, "{what}: wrong bytes at {offset} of log {}", log.id());
        }
        let read = records.iter().map(|(offset, _)| *offset).collect();
        (read, fences.iter().flat_map(|(start, end)| *start..*end).collect())
    }

    /// Nothing of what was promised is lost without a word.
    fn check(
        &self,
        log: &Log,
        report: &OpenReport,
        hit: &BTreeSet<u64>,
        forgets: bool,
        is_closed: bool,
        what: &str,
    ) -> Outcome {
        let id = log.id();
        let (read, fenced) = self.check_values(log, forgets, what);
        if !forgets {
            assert_eq!(log.start_offset().0, self.start, "{what}: start of log {id}");
            assert_eq!(log.sealed_value().as_deref(), self.seal, "{what}: seal of log {id}");
            let cursor = log.cursors().first().map(|(_, at)| at.0);
            let is_moved = report.moved_cursors.iter().any(|moved| moved.log == id);
            assert!(cursor == self.cursor || is_moved, "{what}: cursor of log {id}: {cursor:?}");
        }
        let missing: Vec<u64> = (self.start..self.end())
            .filter(|offset| !read.contains(offset) && !fenced.contains(offset))
            .collect();
        // Each record was a commit, and proves those in front of it; of a batch group all goes that nothing behind it proves.
        let has_group = id == log_id(GROUPED);
        let costs: Vec<u64> = missing.iter().chain(&fenced).filter(|at| !hit.contains(at)).copied().collect();
        assert!(
            forgets || has_group || costs.is_empty(),
            "{what}: log {id} lost {costs:?}, which are not damaged"
        );
        let Some(&first) = missing.first() else {
            return if fenced.is_empty() { Outcome::Whole } else { Outcome::Told };
        };
        let is_told = report.lost_end.is_some()
            || !report.unknown_blocks.is_empty()
            || report.torn_tails.iter().any(|tail| tail.log == id && tail.offset.0 <= first);
        if is_told {
            return Outcome::Told;
        }
        // Zeros behind the data of a killed store: they may never have been written.
        let is_tail = !is_closed && self.seal.is_none() && missing.iter().copied().eq(first..self.end());
        assert!(is_tail, "{what}: log {id} lost {missing:?} without a word");
        Outcome::Tail
    }
}
