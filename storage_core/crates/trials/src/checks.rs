//! Checks that compare what a store says with what its owner knows. They panic with what is wrong.

use std::sync::Arc;

use walrus_log::batch::Batch;
use walrus_log::{Admission, Error, FsyncSchedule, Log, Offset, Store};

use crate::facts::{Facts, LogFacts};
use crate::owner::cursors_of;

/// Bytes asked for at a time: some reads give many batches, some one.
const READ_BYTES: usize = 10_000;

/// Records as (offset, value).
pub type Records = Vec<(u64, Vec<u8>)>;
/// Damaged ranges as (start, end).
pub type Fences = Vec<(u64, u64)>;

/// All records of a log from `from` on; damaged ranges are skipped and listed.
pub fn read_from(log: &Log, from: u64) -> (Records, Fences) {
    let (mut records, mut fences) = (Vec::new(), Vec::new());
    let mut next = Offset(from);
    loop {
        match log.read(next, READ_BYTES) {
            Ok(slices) if slices.batches.is_empty() => return (records, fences),
            Ok(slices) => {
                for bytes in &slices.batches {
                    let (batch, rest) = Batch::parse(bytes).expect("what is read was checked");
                    assert!(rest.is_empty(), "one batch each");
                    for record in batch.records() {
                        let record = record.expect("records as they were built");
                        if record.offset >= next.0 {
                            records.push((record.offset, record.value.unwrap_or_default().to_vec()));
                        }
                    }
                }
                assert!(slices.next_offset > next, "a read moves on");
                next = slices.next_offset;
            }
            Err(Error::Corrupted { start, end, .. }) => {
                assert!(start <= next && next < end, "damage {start}..{end} at {next}");
                fences.push((next.0, end.0));
                next = end;
            }
            Err(error) => panic!("read at {next}: {error}"),
        }
    }
}

/// Checks a store that was opened after a crash in which a call was under way: each fact is as before the call or as behind
/// it. Facts that were never synced may also be as they were in one of the `lives` before.
pub fn check(store: &Store, before: &Facts, after: &Facts, lives: &[&Facts]) {
    for (id, log) in &after.logs {
        let old = before.logs.get(id);
        match (store.log(*id), old) {
            (Some(found), Some(old)) => {
                let is_loose = old.fsync == FsyncSchedule::NoFsync;
                assert!(!old.is_deleted || is_loose, "log {id} is back, it was deleted");
                check_log(&found, old, log, lives);
            }
            // The log was just being created.
            (Some(found), None) => check_log(&found, log, log, lives),
            (None, Some(old)) => {
                let may_lack = log.is_deleted || old.fsync == FsyncSchedule::NoFsync;
                assert!(may_lack, "log {id} is gone");
            }
            (None, None) => {}
        }
    }
    for found in store.logs() {
        assert!(after.logs.contains_key(&found.id()), "log {} was never created", found.id());
    }
    for key in before.properties.keys().chain(after.properties.keys()) {
        let found = store.property(key);
        let found = found.as_deref();
        let known = [before, after].map(|facts| facts.properties.get(key).map(Vec::as_slice));
        assert!(known.contains(&found), "{key}: {found:?}, not one of {known:?}");
    }
    // A block whose first write was torn in its header is moved out of the way. Where a log never syncs, its creation
    // can be lost while its blocks are not.
    // With damage anywhere, blocks stay where they are, and a log that once never synced may be damaged.
    let is_loose = before.had_unsynced || after.had_unsynced;
    let unknown = &store.report().unknown_blocks;
    assert!(is_loose || unknown.iter().all(|block| block.moved_to.is_some()), "unknown blocks: {unknown:?}");
}

/// Checks one log. `old` and `new` are the facts without and with the call that was under way.
fn check_log(found: &Log, old: &LogFacts, new: &LogFacts, lives: &[&Facts]) {
    let id = found.id();
    assert_eq!(found.name(), old.name, "name of log {id}");
    let start = found.start_offset().0;
    let is_loose = old.fsync == FsyncSchedule::NoFsync;
    if is_loose {
        assert!(start <= new.start, "log {id} starts at {start}, behind {}", new.start);
    } else {
        assert!([old.start, new.start].contains(&start), "log {id} starts at {start}");
    }
    let (records, fences) = read_from(found, start);
    let end = found.durable_offset().0;
    // Batches that were never synced may be gone with all that follows them: that is a torn tail, and no damage. Those
    // that were synced, under another schedule, may have been trimmed since, and the trim is forgotten: then they are
    // damaged, up to the next batch that is there. The same goes for a deletion.
    let may_be_gone = is_loose && (old.is_deleted || new.is_deleted);
    let was_trimmed = |&(fence, fence_end): &(u64, u64)| {
        fence_end <= old.lost_to.max(new.lost_to) || (is_loose && fence < new.start)
    };
    if !may_be_gone && (!is_loose || found.sealed().is_none()) {
        assert!(
            fences.iter().all(was_trimmed),
            "fences of log {id}: {fences:?}, it started at {}",
            new.start
        );
    }
    if !is_loose {
        let promised = old.promised.min(new.promised);
        assert!(end >= promised, "log {id} ends at {end}, {promised} was acknowledged");
        let lost: u64 = fences.iter().map(|(start, end)| end - start).sum();
        assert_eq!(records.len() as u64 + lost, end - start, "log {id} has gaps in {start}..{end}");
        let cut = new.groups.iter().find(|(group, group_end)| *group < end && end < *group_end);
        assert_eq!(cut, None, "log {id} ends at {end}, in a batch group");
    }
    let earlier = lives.iter().filter(|_| is_loose).filter_map(|facts| facts.logs.get(&id));
    let known: Vec<&LogFacts> = [new, old].into_iter().chain(earlier.map(|log| &**log)).collect();
    let holds_any = |record| known.iter().any(|known| holds(known, std::slice::from_ref(record)));
    let is_right =
        holds(new, &records) || holds(old, &records) || (is_loose && records.iter().all(holds_any));
    if !is_right {
        let is_wrong = |record: &&(u64, Vec<u8>)| !holds(new, std::slice::from_ref(record));
        let (at, number) = records.iter().find(is_wrong).map_or((0, None), |(offset, bytes)| {
            (*offset, bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)))
        });
        panic!("log {id}: offset {at} holds value {number:?} (ends at {end}, {} are known)", new.end());
    }
    check_seal(found, old, new, end);
    let cursors = cursors_of(found);
    assert!(
        cursors.values().all(|at| *at <= end),
        "cursors of log {id} are behind its end {end}: {cursors:?}"
    );
    if is_loose {
        return;
    }
    let within = |known: &LogFacts| known.cursors.iter().map(|(name, at)| (name.clone(), *at)).collect();
    assert!(
        cursors == within(old) || cursors == within(new) || (new.is_deleted && cursors.is_empty()),
        "cursors of log {id} are {cursors:?}, not {:?} or {:?}",
        old.cursors,
        new.cursors
    );
    let known = if holds(new, &records) { new } else { old };
    let is_there = |(_, records, base): &&_| base + u64::from(*records) <= end;
    if let Some((producer, records, base)) = known.produced.iter().rev().find(is_there) {
        let expected = Admission::Duplicate { base_offset: *base, end_offset: base + u64::from(*records) };
        let answer = found.producers().check(*producer, *records);
        assert!(
            matches!(&answer, Ok(answer) if *answer == expected),
            "log {id}: {producer:?} again is {answer:?}, not {expected:?}"
        );
    }
}

fn check_seal(found: &Log, old: &LogFacts, new: &LogFacts, end: u64) {
    let id = found.id();
    let sealed = found.sealed_value();
    let sealed = sealed.as_deref();
    let known = [&old.sealed, &new.sealed].map(|sealed| sealed.as_deref());
    if old.fsync == FsyncSchedule::NoFsync {
        assert!(sealed.is_none() || known.contains(&sealed), "seal of log {id} is {sealed:?}");
        return;
    }
    assert!(known.contains(&sealed), "seal of log {id} is {sealed:?}, not one of {known:?}");
    if sealed.is_some() {
        assert_eq!(end, new.end(), "log {id} is sealed and does not end where it did");
    }
}

/// The facts that a store shows that was just opened and checked: from now on they must stay.
pub fn seen(store: &Store, before: &Facts, after: &Facts) -> Facts {
    let mut facts = after.clone();
    for (id, log) in &mut facts.logs {
        let Some(found) = store.log(*id) else {
            Arc::make_mut(log).is_deleted = true;
            continue;
        };
        let (records, fences) = read_from(&found, found.start_offset().0);
        if !holds(log, &records)
            && let Some(old) = before.logs.get(id)
        {
            *log = Arc::clone(old);
        }
        let log = Arc::make_mut(log);
        let is_loose = |log: &LogFacts| log.fsync == FsyncSchedule::NoFsync;
        if is_loose(log) || before.logs.get(id).is_some_and(|old| is_loose(old)) {
            // What was trimmed and never synced is lost with its producers.
            let producers = found.producers();
            let is_known = |answer| matches!(answer, Ok(Admission::Duplicate { .. }));
            log.produced.retain(|(producer, records, _)| is_known(producers.check(*producer, *records)));
        }
        log.fsync = found.fsync();
        log.lost_to = fences.last().map_or(0, |(_, end)| *end);
        // The log may be there though its deletion was under way.
        log.is_deleted = false;
        let end = found.durable_offset().0;
        if log.end() > end {
            log.truncate(end);
        }
        log.start = found.start_offset().0;
        log.sealed = found.sealed_value().map(|value| value.to_vec());
        log.cursors = cursors_of(&found);
        log.promised = if log.is_synced() { log.end() } else { log.promised.min(log.end()) };
    }
    facts.properties = store.properties().into_iter().map(|(key, value)| (key, value.to_vec())).collect();
    facts
}

/// Whether all of these records are the log's values.
fn holds(log: &LogFacts, records: &[(u64, Vec<u8>)]) -> bool {
    let is = |(offset, bytes): &(u64, Vec<u8>)| {
        log.values.get(*offset as usize).is_some_and(|(value, _)| value.is(bytes))
    };
    records.iter().all(is)
}
