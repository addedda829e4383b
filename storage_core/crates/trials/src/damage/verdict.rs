//! The verdict on a damaged store: what it serves, what it says that it lost, and how it goes on.

use std::collections::{BTreeMap, BTreeSet};

use walrus_log::{Error, Log, OpenReport, Store};

use super::Outcome;
use super::hits::{Hit, Hits};
use super::subject::{GROUPED, GROUPED_OFFSETS, Promised, Structure, Subject, append};
use crate::checks::{Fences, Records, read_from};
use crate::facts::log_id;
use crate::random::Value;

/// The value that is appended behind the damage, for life goes on.
pub(super) const LATER: Value = Value { number: 1 << 50, bytes: 100 };

/// Opens and reads everything; appends, and opens again.
pub(super) fn check(
    subject: &Subject,
    open: &dyn Fn() -> walrus_log::Result<Store>,
    hits: &Hits,
    what: &str,
) -> Outcome {
    let store = match open() {
        Ok(store) => store,
        Err(error) => {
            check_refusal(&error, hits, what);
            return Outcome::Refused;
        }
    };
    let report = store.report().clone();
    let forgets = report.lost_end.is_some() || report.journal_cut_bytes > 0 || hits.may_forget;
    let (mut outcome, nothing) = (Outcome::Whole, BTreeMap::new());
    for (id, promised) in &subject.logs {
        let hit = hits.offsets.get(id).unwrap_or(&nothing);
        let Some(log) = store.log(*id) else {
            assert!(forgets, "{what}: log {id} is gone, and nothing is said");
            let is_kept = |at| hit.get(&at).is_none();
            let kept: Vec<u64> = (promised.start..promised.end()).filter(|at| is_kept(*at)).collect();
            assert!(kept.is_empty(), "{what}: log {id} is gone, and {kept:?} of it were not hit");
            outcome = Outcome::Told;
            continue;
        };
        let case =
            Case { promised, log: &log, report: &report, hit, forgets, is_closed: subject.is_closed, what };
        outcome = outcome.max(case.check());
    }
    if !forgets {
        assert_eq!(store.property("key").as_deref(), Some(&b"value"[..]), "{what}: the property");
    }
    if outcome == Outcome::Told {
        let is_fenced = store.logs().iter().any(|log| !read_from(log, log.start_offset().0).1.is_empty());
        assert!(
            report.lost_something() || is_fenced,
            "{what}: it lost something, and its report says nothing"
        );
    }
    go_on(subject, store, open, forgets, what);
    outcome
}

/// Checks a refusal to open: only promises that cannot be read keep a store closed.
pub(super) fn check_refusal(error: &Error, hits: &Hits, what: &str) {
    let is_clear = matches!(
        error,
        Error::Damaged { .. } | Error::UnsupportedFormat { .. } | Error::InvalidOption { .. }
    );
    assert!(is_clear, "{what}: {error}");
    let of_journal = [Structure::JournalRecord, Structure::JournalHeader];
    let may_refuse = of_journal.iter().any(|structure| hits.structures.contains(structure));
    assert!(may_refuse, "{what}: it does not open: {error}");
}

/// Checks that records that are served stay, also behind a close in order, and that appends are taken.
fn go_on(
    subject: &Subject,
    store: Store,
    open: &dyn Fn() -> walrus_log::Result<Store>,
    forgets: bool,
    what: &str,
) {
    let mut ends = BTreeMap::new();
    for log in store.logs().iter().filter(|log| !log.is_sealed()) {
        let at = log.end_offset().0;
        let appended = append(log, &[LATER]).unwrap_or_else(|error| panic!("{what}: no append: {error}"));
        assert_eq!(appended, at, "{what}: where an append went");
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
}

impl Promised {
    pub(super) fn end(&self) -> u64 {
        self.values.len() as u64
    }

    /// Each record is what was appended there. What can be read, and what is refused as damaged.
    pub(super) fn check_values(
        &self,
        log: &Log,
        may_be_cut_ones: bool,
        what: &str,
    ) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let (records, fences): (Records, Fences) = read_from(log, log.start_offset().0);
        for (offset, bytes) in records.iter().filter(|(offset, _)| *offset < self.end()) {
            let known = &self.values[*offset as usize];
            let is_right = match known.last() {
                Some(last) if !may_be_cut_ones => last.is(bytes),
                _ => known.iter().any(|value| value.is(bytes)),
            };
            // The check appends this value where the log was cut and said so.
            let is_right = is_right || LATER.is(bytes);
            assert!(is_right, "{what}: wrong bytes at {offset} of log {}", log.id());
        }
        let read = records.iter().map(|(offset, _)| *offset).collect();
        // Values that were appended behind the promises have their own checks.
        let fenced = fences.iter().flat_map(|(start, end)| *start..(*end).min(self.end()));
        (read, fenced.collect())
    }
}

/// One log of a store that was hit, beside its promises.
struct Case<'a> {
    promised: &'a Promised,
    log: &'a Log,
    report: &'a OpenReport,
    hit: &'a BTreeMap<u64, Hit>,
    /// Whether promises of the journal may be lost, and that was said or nothing can tell.
    forgets: bool,
    is_closed: bool,
    what: &'a str,
}

impl Case<'_> {
    /// Checks that no promised record is lost without a word, and that none that was not hit is lost at all.
    fn check(&self) -> Outcome {
        let &Self { promised, log, forgets, what, .. } = self;
        let id = log.id();
        let (read, fenced) = promised.check_values(log, forgets, what);
        if !forgets {
            self.check_promises();
        }
        let is_missing = |offset: &u64| !read.contains(offset) && !fenced.contains(offset);
        let missing: Vec<u64> = (promised.start..promised.end()).filter(is_missing).collect();
        let costs: Vec<u64> =
            missing.iter().chain(&fenced).filter(|at| !self.may_cost(**at)).copied().collect();
        assert!(costs.is_empty(), "{what}: log {id} lost {costs:?}, which are not damaged");
        let silent: Vec<u64> = missing.iter().filter(|at| !self.is_told(**at)).copied().collect();
        if silent.is_empty() {
            return if missing.is_empty() && fenced.is_empty() { Outcome::Whole } else { Outcome::Told };
        }
        // A crash may leave the last records of a killed store unwritten; who sees that cannot know that they were acknowledged.
        let looks_unwritten = |at: &u64| self.hit.get(at).is_some_and(|hit| hit.is_unwritten);
        let is_tail = !self.is_closed
            && promised.seal.is_none()
            && missing.iter().copied().eq(missing[0]..promised.end());
        assert!(
            is_tail && silent.iter().all(looks_unwritten),
            "{what}: log {id} lost {silent:?} without a word"
        );
        Outcome::Tail
    }

    fn check_promises(&self) {
        let &Self { promised, log, report, what, .. } = self;
        let id = log.id();
        assert_eq!(log.start_offset().0, promised.start, "{what}: start of log {id}");
        assert_eq!(log.sealed_value().as_deref(), promised.seal, "{what}: seal of log {id}");
        let cursor = log.cursors().first().map(|(_, at)| at.0);
        let is_moved = report.moved_cursors.iter().any(|moved| moved.log == id);
        assert!(cursor == promised.cursor || is_moved, "{what}: cursor of log {id}: {cursor:?}");
    }

    /// Whether the hits may cost a record. Each record was a commit, and proves those in front of it, so only one that was hit may
    /// be lost; the parts of a batch group are there together or not at all.
    fn may_cost(&self, at: u64) -> bool {
        let is_part = |at: u64| self.log.id() == log_id(GROUPED) && GROUPED_OFFSETS.contains(&at);
        self.hit.contains_key(&at) || (is_part(at) && self.hit.keys().any(|hit| is_part(*hit)))
    }

    /// Whether the report says that a missing record is gone: by its offset, or by the place where its block was.
    fn is_told(&self, at: u64) -> bool {
        let &Self { report, log, hit, .. } = self;
        let is_cut = report.torn_tails.iter().any(|tail| tail.log == log.id() && tail.offset.0 <= at);
        let is_at_its_place = hit.get(&at).is_some_and(|Hit { file, slot, .. }| {
            let is_its = |path: &str| path.ends_with(file.as_str());
            report.unknown_blocks.iter().any(|block| is_its(&block.path) && block.slot == *slot)
                || report.cut_files.iter().any(|cut| is_its(&cut.path))
        });
        is_cut || is_at_its_place
    }
}
