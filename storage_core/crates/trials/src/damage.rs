//! The damage campaign: whatever happens to the bytes of a store behind its back, it never serves wrong ones, never loses a
//! promise without saying so, and never hangs. Damage hits bytes that are used: flips, zeros, garbage, pages and blocks that were
//! moved, swapped or never written, files that are cut, lost, doubled or swapped; of stores that were closed in order and of
//! stores that were killed, on the simulated disk and on each real backend.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, LazyLock, mpsc};
use std::time::Duration;

use walrus_log::batch::{Batch, BatchBuilder};
use walrus_log::{
    Backend, Error, Log, LogId, Offset, OpenReport, Options, SimulatedDisk, Store, TailKind, repair,
};

use crate::checks::read_from;
use crate::facts::{log_id, new_log};
use crate::images::message;
use crate::random::{Random, Value};
use crate::rot::Contents;

const PAGE: usize = 4096;
const SECTOR: usize = 512;
const BLOCK: usize = 16 << 10;
/// A case that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Records of each of the two logs whose batches are alike.
const ALIKE: u64 = 60;
/// The log with the batch group.
const GROUPED: u64 = 5;
/// A value whose batch is a quarter of a page.
const ALIKE_BYTES: usize = 954;

/// What is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Structure {
    /// Who the store is.
    Manifest,
    /// The front of the journal.
    JournalHeader,
    /// Promises.
    JournalRecord,
    /// How far the journal is.
    End,
    /// The first page of a block.
    BlockHeader,
    /// A Kafka batch.
    Batch,
    /// The last pages of a block.
    Footer,
}

/// A life that ended, and what it had promised.
struct Subject {
    name: &'static str,
    kind: TailKind,
    is_closed: bool,
    contents: Contents,
    /// The same store half way through its life.
    earlier: Contents,
    logs: BTreeMap<LogId, Promised>,
    places: Vec<(Structure, String, Range<usize>)>,
    batches: Vec<StoredBatch>,
}

/// Where a batch lies.
struct StoredBatch {
    log: LogId,
    offsets: Range<u64>,
    file: String,
    header: Range<usize>,
    bytes: Range<usize>,
}

/// What a log had promised.
#[derive(Default)]
struct Promised {
    start: u64,
    /// By offset, from 0 on; the last one counts, those before were cut off by a truncation.
    values: Vec<Vec<Value>>,
    seal: Option<&'static [u8]>,
    cursor: Option<u64>,
}

/// What a case damaged.
struct Hits {
    structures: BTreeSet<Structure>,
    /// Offsets whose batches, or the headers in front of them, are not as they were.
    offsets: BTreeMap<LogId, BTreeSet<u64>>,
}

impl Hits {
    fn new(subject: &Subject, contents: &Contents, structures: BTreeSet<Structure>) -> Self {
        let mut offsets: BTreeMap<LogId, BTreeSet<u64>> = BTreeMap::new();
        for StoredBatch { log, offsets: of_batch, file, header, bytes } in &subject.batches {
            let is_same = |range: &Range<usize>| {
                let now = contents.get(file).and_then(|bytes| bytes.get(range.clone()));
                now == Some(&subject.contents[file][range.clone()])
            };
            if !is_same(header) || !is_same(bytes) {
                offsets.entry(*log).or_default().extend(of_batch.clone());
            }
        }
        Self { structures, offsets }
    }
}

/// What became of cases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Cases.
    pub tried: u64,
    /// The store did not open, and said why.
    pub refused: u64,
    /// Records were lost, and it was told.
    pub told: u64,
    /// The last records of a killed store read as if they had never been written: nothing can tell.
    pub tails: u64,
    /// Nothing was lost.
    pub whole: u64,
    /// Hits by structure.
    pub hits: BTreeMap<Structure, u64>,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tried, refused, told, tails, whole, hits } = self;
        write!(
            f,
            "damage: {tried} cases: {whole} lost nothing, {told} told what they lost, {refused} refused to open, \
             {tails} ended before their last records; hit:"
        )?;
        hits.iter().try_for_each(|(structure, count)| write!(f, " {structure:?} {count}"))
    }
}

static SUBJECTS: LazyLock<Vec<Subject>> = LazyLock::new(|| {
    let kinds = [(TailKind::Mapped, "mapped"), (TailKind::Buffered, "buffered")];
    kinds
        .into_iter()
        .flat_map(|(kind, name)| [true, false].map(|is_closed| live(name, kind, is_closed)))
        .collect()
});

/// Damages `count` stores, from a seed on; panics with the seed of the first that serves wrong bytes, loses something without
/// a word, or hangs.
pub fn campaign(count: u64, seed: u64) -> Counts {
    let mut counts = Counts::default();
    for seed in seed..seed + count {
        let (send, receive) = mpsc::channel();
        let case = std::thread::spawn(move || {
            let done = std::panic::catch_unwind(|| damage(seed));
            let _ = send.send(done.map_err(|panic| message(&*panic)));
        });
        match receive.recv_timeout(PATIENCE) {
            Ok(Ok(case)) => counts.add(case),
            Ok(Err(said)) => panic!("seed {seed}: {said}"),
            Err(_) => panic!("seed {seed}: it hangs"),
        }
        let _ = case.join();
    }
    counts
}

/// One case.
#[derive(Clone, Debug)]
struct Case {
    outcome: Outcome,
    hits: BTreeSet<Structure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Whole,
    Tail,
    Told,
    Refused,
}

impl Counts {
    fn add(&mut self, case: Case) {
        self.tried += 1;
        *match case.outcome {
            Outcome::Whole => &mut self.whole,
            Outcome::Tail => &mut self.tails,
            Outcome::Told => &mut self.told,
            Outcome::Refused => &mut self.refused,
        } += 1;
        for structure in case.hits {
            *self.hits.entry(structure).or_default() += 1;
        }
    }
}

fn options() -> Options {
    // Only a close marks what is synced.
    let mark_interval = Duration::from_secs(3600);
    Options { block_bytes: BLOCK as u64, blocks_per_file: 4, mark_interval, ..Options::small() }
}

fn append(log: &Log, values: &[Value]) -> u64 {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(None, Some(&value.to_bytes()), 0, &[]);
    }
    let mut bytes = Vec::new();
    let appended = log.append(&builder.build_in(&mut bytes).expect("small")).expect("an append");
    appended.commit.wait().expect("a commit");
    appended.base_offset.0
}

/// A life with two logs of equal batches, a sealed one, one that was trimmed and truncated, and one with a batch group.
fn live(name: &'static str, kind: TailKind, is_closed: bool) -> Subject {
    let disk = SimulatedDisk::new(kind);
    let store = Store::open_on(Arc::new(disk.clone()), options()).expect("a new store");
    let logs = [1, 2, 3, 4, 5]
        .map(|log| store.create_log(new_log(log_id(log), format!("log {log}"))).expect("a new log"));
    let mut promised: BTreeMap<LogId, Promised> =
        logs.iter().map(|log| (log.id(), Promised::default())).collect();
    let mut random = Random(7);
    let mut numbers = 1 << 40..;
    let mut value = |bytes| Value { number: numbers.next().expect("without end"), bytes };
    let mut put = |log: &Log, values: Vec<Value>| {
        let base = append(log, &values) as usize;
        let known = &mut promised.get_mut(&log.id()).expect("known").values;
        for (offset, value) in (base..).zip(values) {
            known.resize_with(known.len().max(offset + 1), Vec::new);
            known[offset].push(value);
        }
    };
    let mut earlier = Contents::new();
    for i in 0..ALIKE {
        for log in &logs[..2] {
            put(log, vec![value(ALIKE_BYTES)]);
        }
        if i % 2 == 0 {
            let count = 1 + random.below(3);
            put(&logs[2], (0..count).map(|_| value(60 + random.below(900) as usize)).collect());
            put(&logs[3], vec![value(300)]);
        }
        match i {
            20 => earlier = disk.contents(),
            30 => logs[3].truncate_to(Offset(10)).expect("a truncation"),
            40 => logs[3].delete_before(Offset(4)).expect("a trim"),
            _ => {}
        }
    }
    put(&logs[4], vec![value(500)]);
    let group = [value(3000), value(3000)];
    let parts = group.map(|value| {
        let mut bytes = Vec::new();
        BatchBuilder::new().push(None, Some(&value.to_bytes()), 0, &[]).build(&mut bytes).expect("small");
        bytes
    });
    let batches = parts.each_ref().map(|bytes| Batch::parse(bytes).expect("just built").0);
    logs[4].append_group(&batches).expect("a group");
    put(&logs[4], Vec::from([value(500)]));
    let known = promised.get_mut(&logs[4].id()).expect("known");
    for (offset, value) in (1..).zip(group) {
        known.values[offset] = vec![value];
    }
    logs[2].seal(b"the end").expect("a seal");
    logs[0].cursor("strict").and_then(|cursor| cursor.batch_read(6000, true)).expect("a read");
    store.put_property("key", b"value").expect("a property");
    for (log, seal) in logs.iter().zip([None, None, Some(&b"the end"[..]), None, None]) {
        let known = promised.get_mut(&log.id()).expect("known");
        (known.start, known.seal) = (log.start_offset().0, seal);
        known.cursor = log.cursors().first().map(|(_, at)| at.0);
    }
    store.settle();
    if is_closed {
        store.close().expect("a close in order");
    }
    let contents: Contents = disk.contents().into_iter().filter(|(name, _)| name != "LOCK").collect();
    let places = places(&contents);
    let batches = stored_batches(&contents, &places);
    Subject { name, kind, is_closed, contents, earlier, logs: promised, places, batches }
}

/// Where everything lies.
fn places(contents: &Contents) -> Vec<(Structure, String, Range<usize>)> {
    let mut places = Vec::new();
    for (name, bytes) in contents {
        let mut add = |structure, range| places.push((structure, name.clone(), range));
        match name.as_str() {
            "MANIFEST" => add(Structure::Manifest, 0..bytes.len()),
            "END" => {
                let pages = (0..bytes.len()).step_by(PAGE).filter(|at| bytes[*at] != 0);
                pages.for_each(|at| add(Structure::End, at..at + 60));
            }
            name if name.starts_with("journal-") => {
                add(Structure::JournalHeader, 0..96);
                let mut at = 96;
                while let Some(length) = number(bytes, at + 4).filter(|_| number(bytes, at + 8) != Some(0)) {
                    let size = (32 + length as usize).next_multiple_of(8);
                    add(Structure::JournalRecord, at..at + size);
                    at += size;
                }
            }
            _ => {
                for block in
                    (0..bytes.len()).step_by(BLOCK).filter(|at| bytes[*at..].starts_with(b"WALRUSBK"))
                {
                    add(Structure::BlockHeader, block..block + 200);
                    let mut at = block + PAGE;
                    while bytes[at + 16] == 2 {
                        let field = bytes[at + 8..at + 12].try_into().expect("four bytes");
                        let size = 12 + u32::from_be_bytes(field) as usize;
                        add(Structure::Batch, at..at + size);
                        at += size;
                    }
                    let trailer = block + BLOCK - 96;
                    if bytes[trailer..].starts_with(b"WALRUSFT") {
                        add(Structure::Footer, trailer..trailer + 96);
                    }
                }
            }
        }
    }
    places
}

/// Whose the batches are. The header of their block lies in front of them.
fn stored_batches(contents: &Contents, places: &[(Structure, String, Range<usize>)]) -> Vec<StoredBatch> {
    let of_kind = places.iter().filter(|(structure, ..)| *structure == Structure::Batch);
    let batch = |(_, file, range): &(Structure, String, Range<usize>)| {
        let bytes = &contents[file];
        let block = range.start / BLOCK * BLOCK;
        let log = uuid::Uuid::from_slice(&bytes[block + 32..block + 48]).expect("sixteen bytes");
        let (batch, _) = Batch::parse(&bytes[range.clone()]).expect("undamaged");
        let offsets = batch.base_offset()..batch.end_offset();
        StoredBatch {
            log: LogId(log),
            offsets,
            file: file.clone(),
            header: block..block + PAGE,
            bytes: range.clone(),
        }
    };
    of_kind.map(batch).collect()
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Damages a store as the seed says, and checks what comes of it.
fn damage(seed: u64) -> Case {
    let mut random = Random(seed ^ 0x6461_6d61);
    let subject = random.choose(&SUBJECTS);
    let mut contents = subject.contents.clone();
    let structures: BTreeSet<Structure> = subject.places.iter().map(|(structure, ..)| *structure).collect();
    let structures: Vec<Structure> = structures.into_iter().collect();
    let pick = |random: &mut Random| {
        // Most bytes are batches.
        let wanted = if random.one_in(2) { Structure::Batch } else { *random.choose(&structures) };
        let of_kind: Vec<_> = subject.places.iter().filter(|(structure, ..)| *structure == wanted).collect();
        (*random.choose(&of_kind)).clone()
    };
    let (_, file, range) = pick(&mut random);
    let at = range.start + random.below(range.len() as u64) as usize;
    let page = at / PAGE * PAGE..(at / PAGE * PAGE + PAGE).min(contents[&file].len());
    let what = match random.below(14) {
        0..3 => {
            contents.get_mut(&file).expect("there")[at] ^= 1 << random.below(8);
            format!("{file}: bit flipped at {at}")
        }
        3 => {
            let flips: Vec<_> = (0..3)
                .map(|_| {
                    let (_, file, range) = pick(&mut random);
                    let at = range.start + random.below(range.len() as u64) as usize;
                    contents.get_mut(&file).expect("there")[at] ^= 1 << random.below(8);
                    (file, at)
                })
                .collect();
            format!("bits flipped at {flips:?}")
        }
        4 => {
            contents.get_mut(&file).expect("there")[page.clone()].fill(0);
            format!("{file}: zeros at {page:?}")
        }
        5 => {
            let sector = at / SECTOR * SECTOR..(at / SECTOR * SECTOR + SECTOR).min(contents[&file].len());
            let bytes = contents.get_mut(&file).expect("there");
            bytes[sector.clone()].iter_mut().for_each(|byte| *byte = random.number() as u8);
            format!("{file}: garbage at {sector:?}")
        }
        6 | 7 => {
            let (_, from, place) = pick(&mut random);
            let other =
                place.start / PAGE * PAGE..(place.start / PAGE * PAGE + PAGE).min(contents[&from].len());
            let moved = contents[&from][other.clone()].to_vec();
            let replaced = contents[&file][page.clone()].to_vec();
            put(&mut contents, &file, page.start, &moved);
            let swaps = random.one_in(2);
            if swaps {
                put(&mut contents, &from, other.start, &replaced);
            }
            format!("{from} {other:?} at {file} {page:?}, swapped: {swaps}")
        }
        8 => {
            let blocks: Vec<_> = subject
                .places
                .iter()
                .filter(|(structure, ..)| *structure == Structure::BlockHeader)
                .collect();
            let [a, b] = [(); 2].map(|()| *random.choose(&blocks));
            let [of_a, of_b] =
                [a, b].map(|(_, file, at)| subject.contents[file][at.start..at.start + BLOCK].to_vec());
            put(&mut contents, &a.1, a.2.start, &of_b);
            if random.one_in(2) {
                put(&mut contents, &b.1, b.2.start, &of_a);
            }
            format!("block {} {} and block {} {}", a.1, a.2.start, b.1, b.2.start)
        }
        9 => {
            contents.get_mut(&file).expect("there").truncate(at);
            format!("{file}: cut to {at} bytes")
        }
        10 => {
            contents.remove(&file);
            format!("{file}: lost")
        }
        11 => {
            let number = 50 + random.below(9);
            contents.insert(format!("{number:08}.wal"), contents[&file].clone());
            format!("{file}: doubled")
        }
        12 => {
            let (_, other, _) = pick(&mut random);
            let [a, b] = [&file, &other].map(|name| subject.contents[name].clone());
            contents.insert(file.clone(), b);
            contents.insert(other.clone(), a);
            format!("{file} and {other}: swapped")
        }
        _ => {
            let old = subject.earlier.get(&file).map_or(&[][..], Vec::as_slice);
            let old = old.get(page.clone()).map_or_else(|| vec![0; page.len()], <[u8]>::to_vec);
            put(&mut contents, &file, page.start, &old);
            format!("{file}: not written since half of its life at {page:?}")
        }
    };
    let is_hit = |(structure, file, range): &(Structure, String, Range<usize>)| {
        let now = contents.get(file).and_then(|bytes| bytes.get(range.clone()));
        (now != Some(&subject.contents[file][range.clone()])).then_some(*structure)
    };
    let hits: BTreeSet<Structure> = subject.places.iter().filter_map(is_hit).collect();
    let hits = Hits::new(subject, &contents, hits);
    let what = format!("{} {}, {what}", subject.name, if subject.is_closed { "closed" } else { "killed" });
    let outcome = match random.below(12) {
        0 => on_disk(subject, &contents, &hits, Backend::Mmap, &what),
        1 => on_disk(subject, &contents, &hits, Backend::Direct, &what),
        2 => on_disk(subject, &contents, &hits, Backend::IoUring, &what),
        _ => {
            let disk = SimulatedDisk::from_contents(subject.kind, &contents);
            let open = || Store::open_on(Arc::new(disk.clone()), options());
            check(subject, &open, &hits, &what)
        }
    };
    Case { outcome, hits: hits.structures }
}

fn put(contents: &mut Contents, file: &str, at: usize, bytes: &[u8]) {
    let file = contents.get_mut(file).expect("there");
    let end = (at + bytes.len()).min(file.len());
    file[at..end].copy_from_slice(&bytes[..end - at]);
}

/// The same on a real directory; where the store refuses to open, it is repaired.
fn on_disk(subject: &Subject, contents: &Contents, hits: &Hits, backend: Backend, what: &str) -> Outcome {
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
fn check(
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
