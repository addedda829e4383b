//! Lives of a store on a simulated disk: random calls of one owner, who writes down what each promised and when.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use walrus_log::batch::{Batch, BatchBuilder, ProducerRef};
use walrus_log::{
    CommitTicket, Error, FsyncSchedule, Log, LogId, LogSpec, Offset, Options, SimulatedDisk, Store, TailKind,
};

use crate::facts::{Facts, LogFacts, Moment, log_id, new_log};
use crate::random::{Random, Value};

/// A schedule longer than any trial, with which only appends for which a sync is asked are synced.
pub(crate) const LATER: FsyncSchedule =
    FsyncSchedule::Milliseconds(NonZeroU64::new(3_600_000).expect("not zero"));
/// Limit on the logs that are there at a time.
const LOGS_MAX: usize = 4;
const CURSORS: [&str; 2] = ["first", "second"];

/// Schedules that a store may be opened with.
const SCHEDULES: [FsyncSchedule; 3] = [FsyncSchedule::SyncEach, LATER, FsyncSchedule::NoFsync];

/// The plan of a life.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How the appended bytes of logs that do not sync each append reach the disk.
    pub tail_kind: TailKind,
    /// Whether the store may be opened again with the other kind of tails, as another backend has them, and with another
    /// schedule.
    pub changes_ways: bool,
    /// Schedule of the store, at first.
    pub fsync: FsyncSchedule,
    /// Whether logs have schedules of their own.
    pub is_mixed: bool,
    /// Whether all values have one size, so that what lay in a place before looks just like what belongs there.
    pub is_even: bool,
    /// Whether the background catches up after each call, so that the calls of the disk come in one order.
    pub catches_up: bool,
    /// Whether synced marks are written at once; else they are never written.
    pub marks: bool,
    /// Number of calls.
    pub steps: u64,
    /// Seed of everything random in the life.
    pub seed: u64,
}

impl Plan {
    /// A plan for each seed: all kinds of lives in turn.
    pub fn of(seed: u64, steps: u64) -> Self {
        let mut random = Random(seed ^ 0x706c_616e);
        let fsync = [FsyncSchedule::SyncEach, FsyncSchedule::SyncEach, LATER, FsyncSchedule::NoFsync];
        let fsync = fsync[seed as usize / 2 % 4];
        Self {
            tail_kind: if seed.is_multiple_of(2) { TailKind::Mapped } else { TailKind::Buffered },
            changes_ways: seed % 5 >= 3,
            fsync,
            is_mixed: fsync != FsyncSchedule::SyncEach || random.one_in(4),
            is_even: random.one_in(3),
            catches_up: random.one_in(2),
            marks: random.one_in(2),
            steps,
            seed,
        }
    }

    /// Options of the first open, with small blocks, files and journals, so that everything happens often.
    pub fn options(&self) -> Options {
        Options {
            fsync: self.fsync,
            block_bytes: 16 << 10,
            blocks_per_file: 3,
            journal_bytes_max: 8 << 10,
            mark_interval: if self.marks { Duration::ZERO } else { Duration::from_secs(3600) },
            ..Options::default()
        }
    }
}

/// The home of a store, with a clock that tells in which order its disk was told things.
pub trait Home {
    /// The time of that clock, which grows with everything that the disk is told.
    fn moment(&self) -> usize;
    /// Opens the store, with such tails for logs that do not sync each append.
    fn open(&self, options: Options, tails: TailKind) -> Result<Store, Error>;
}

impl Home for SimulatedDisk {
    fn moment(&self) -> usize {
        self.changes()
    }

    fn open(&self, options: Options, tails: TailKind) -> Result<Store, Error> {
        Store::open_on(Arc::new(self.with_tails(tails)), options)
    }
}

/// The owner of a store: it lives a plan, and knows what the store must hold.
pub struct Owner {
    home: Box<dyn Home>,
    /// The calls that were made, in order.
    pub moments: Vec<Moment>,
    /// The facts if the call that failed last did nothing.
    pub facts: Facts,
    plan: Plan,
    /// Schedule and tails of the open store.
    ways: (FsyncSchedule, TailKind),
    random: Random,
    store: Option<Store>,
    /// Appends for which nobody has waited yet: log, end, ticket.
    pending: Vec<(LogId, u64, CommitTicket)>,
    next_number: u64,
    next_log: u64,
}

/// A call that failed, and the facts if it took effect nevertheless.
#[derive(Debug)]
pub struct Failed {
    /// The error that the store gave.
    pub error: Error,
    /// The facts as if the call had worked, without any new promise.
    pub facts: Facts,
    /// The call, for messages.
    pub call: String,
}

impl Owner {
    /// Opens a new store.
    pub fn new(plan: Plan, home: impl Home + 'static) -> Result<Self, Box<Failed>> {
        let mut owner = Self {
            home: Box::new(home),
            moments: Vec::new(),
            facts: Facts::default(),
            random: Random(plan.seed),
            ways: (plan.fsync, plan.tail_kind),
            plan,
            store: None,
            pending: Vec::new(),
            next_number: 1,
            next_log: 1,
        };
        owner.open()?;
        Ok(owner)
    }

    /// Opens the store with the ways of the moment. What it shows of a log that syncs is on the disk from then on.
    fn open(&mut self) -> Result<(), Box<Failed>> {
        let mut facts = self.facts.clone();
        let (fsync, tails) = self.ways;
        for log in facts.logs.values_mut() {
            let log = Arc::make_mut(log);
            log.fsync = log.own_fsync.unwrap_or(fsync);
            if log.fsync != FsyncSchedule::NoFsync {
                log.promised = log.end();
            }
        }
        facts.note_unsynced();
        let options = Options { fsync, ..self.plan.options() };
        self.call(format!("open with {fsync:?} and {tails:?} tails"), facts, |owner| {
            owner.store = Some(owner.home.open(options, tails)?);
            Ok(())
        })
    }

    /// Lives the whole life.
    pub fn live(&mut self) -> Result<(), Box<Failed>> {
        for _ in 0..self.plan.steps {
            self.step()?;
        }
        Ok(())
    }

    /// The store, while it is open.
    pub fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// Makes a call and writes down what it promised.
    fn call(
        &mut self,
        what: String,
        facts: Facts,
        run: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Box<Failed>> {
        let began = self.home.moment();
        let result = run(self);
        let call = format!("call {} ({what})", self.moments.len());
        match result {
            Ok(()) => {
                self.facts = facts.clone();
                self.moments.push(Moment { began, ended: self.home.moment(), facts, call });
            }
            Err(error) => return Err(Box::new(Failed { error, facts, call })),
        }
        if self.plan.catches_up
            && let Some(store) = &self.store
        {
            store.drain();
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Box<Failed>> {
        let live: Vec<LogId> =
            self.facts.logs.iter().filter(|(_, log)| !log.is_deleted).map(|(id, _)| *id).collect();
        let roll = self.random.below(100);
        if live.is_empty() || (roll < 5 && live.len() < LOGS_MAX) {
            return self.create();
        }
        let id = *self.random.choose(&live);
        let is_sealed = self.facts.logs[&id].sealed.is_some();
        match roll {
            5..=16 => self.consume(id),
            17..=19 => self.seek(id),
            20..=24 => self.trim(id),
            25..=28 if !is_sealed => self.truncate(id),
            29..=30 if !is_sealed => self.seal(id),
            31..=33 if live.len() > 2 || is_sealed => self.delete(id),
            34..=37 => self.put_property(),
            38..=40 => self.reopen(),
            41..=52 => self.append_to_several(&live),
            53..=60 => self.wait_for_all(),
            _ if is_sealed => Ok(()),
            61..=64 => self.append_group(id),
            _ => self.append(id),
        }
    }

    fn log(&self, id: LogId) -> Log {
        let store = self.store.as_ref().expect("open while the owner lives");
        store.log(id).unwrap_or_else(|| panic!("seed {}: log {id} is gone", self.plan.seed))
    }

    fn create(&mut self) -> Result<(), Box<Failed>> {
        let id = log_id(self.next_log);
        self.next_log += 1;
        // Names are used again, a deleted log's, too.
        let name = format!("log {}", self.next_log % 2);
        let schedules = [None, Some(FsyncSchedule::SyncEach), Some(LATER), Some(FsyncSchedule::NoFsync)];
        let fsync = if self.plan.is_mixed { *self.random.choose(&schedules) } else { None };
        let mut facts = self.facts.clone();
        facts.logs.insert(id, Arc::new(LogFacts::new(&name, fsync, self.ways.0)));
        facts.note_unsynced();
        let spec = LogSpec { fsync, ..new_log(id, name) };
        self.call(format!("create {} {fsync:?}", short(id)), facts, |owner| {
            owner.store.as_ref().expect("open").create_log(spec).map(drop)
        })
    }

    /// Makes a batch of new values for a log, and notes in `facts` what holds once it is appended.
    fn batch_for(&mut self, id: LogId, facts: &mut Facts) -> Vec<u8> {
        let count = 1 + self.random.below(3);
        let size = match self.random.below(12) {
            _ if self.plan.is_even => 900,
            0 => 9000,
            1 => 30_000 / count,
            _ => 8 + self.random.below(1200),
        };
        let count = if self.plan.is_even { 1 } else { count };
        let log = facts.log(id);
        let base = log.end();
        let mut builder = BatchBuilder::new();
        let is_producer = short(id).is_multiple_of(2);
        if is_producer {
            let next = log
                .produced
                .last()
                .map_or(0, |(last, records, _)| last.base_sequence + i32::try_from(*records).expect("small"));
            let producer = ProducerRef { id: 7, epoch: 0, base_sequence: next };
            builder.producer(producer);
            log.produced.push((producer, count as u32, base));
        }
        for _ in 0..count {
            let value = Value { number: self.next_number, bytes: size as usize };
            self.next_number += 1;
            builder.push(None, Some(&value.to_bytes()), base as i64, &[]);
            log.values.push((value, base));
        }
        let mut bytes = Vec::new();
        builder.build(&mut bytes).expect("small");
        bytes
    }

    fn append(&mut self, id: LogId) -> Result<(), Box<Failed>> {
        let mut facts = self.facts.clone();
        let bytes = self.batch_for(id, &mut facts);
        let log = facts.log(id);
        if log.is_synced() {
            log.promised = log.end();
        }
        let base = self.facts.logs[&id].end();
        let (end, bytes_count) = (facts.logs[&id].end(), bytes.len());
        let number = self.next_number - 1;
        self.call(
            format!("append {bytes_count} bytes to {} up to {end}, value {number}", short(id)),
            facts,
            |owner| {
                let (batch, _) = Batch::parse(&bytes).expect("just built");
                let appended = owner.log(id).append(&batch)?;
                assert_eq!(
                    (appended.base_offset.0, appended.duplicate),
                    (base, false),
                    "where the append went"
                );
                appended.commit.wait()
            },
        )
    }

    /// Appends several batches, all or none.
    fn append_group(&mut self, id: LogId) -> Result<(), Box<Failed>> {
        let mut facts = self.facts.clone();
        let count = 2 + self.random.below(3);
        let parts: Vec<_> = (0..count).map(|_| self.batch_for(id, &mut facts)).collect();
        let base = self.facts.logs[&id].end();
        let log = facts.log(id);
        let end = log.end();
        log.groups.push((base, end));
        if log.fsync != FsyncSchedule::NoFsync {
            log.promised = end;
        }
        self.call(format!("append a group of {count} to {} up to {end}", short(id)), facts, |owner| {
            let batches: Vec<_> =
                parts.iter().map(|bytes| Batch::parse(bytes).expect("just built").0).collect();
            let appended = owner.log(id).append_group(&batches)?;
            assert_eq!(appended, Offset(base)..Offset(end), "where the group went");
            Ok(())
        })
    }

    /// Appends to several logs, and waits for all together, or later.
    fn append_to_several(&mut self, live: &[LogId]) -> Result<(), Box<Failed>> {
        for &id in live {
            if self.facts.logs[&id].sealed.is_some() {
                continue;
            }
            let mut facts = self.facts.clone();
            let bytes = self.batch_for(id, &mut facts);
            let end = facts.logs[&id].end();
            let what = format!(
                "append {} bytes to {} up to {end}, not waited for, value {}",
                bytes.len(),
                short(id),
                self.next_number - 1
            );
            self.call(what, facts, |owner| {
                let (batch, _) = Batch::parse(&bytes).expect("just built");
                let appended = owner.log(id).append(&batch)?;
                assert_eq!(appended.end_offset.0, end, "where the append went");
                owner.pending.push((id, end, appended.commit));
                Ok(())
            })?;
        }
        Ok(())
    }

    fn wait_for_all(&mut self) -> Result<(), Box<Failed>> {
        for (id, end, ticket) in std::mem::take(&mut self.pending) {
            let mut facts = self.facts.clone();
            let log = facts.log(id);
            if log.is_synced() && !log.is_deleted {
                log.promised = log.promised.max(end);
            }
            self.call(format!("wait for {} up to {end}", short(id)), facts, |_| ticket.wait())?;
        }
        Ok(())
    }

    fn consume(&mut self, id: LogId) -> Result<(), Box<Failed>> {
        let name = *self.random.choose(&CURSORS);
        let many = self.random.one_in(3);
        let cursor = match self.log(id).cursor(name) {
            Ok(cursor) => cursor,
            Err(error) => panic!("cursor: {error}"),
        };
        let known = &self.facts.logs[&id];
        let from = known.cursors.get(name).copied().unwrap_or(0).max(known.start);
        let readable = self.log(id).durable_offset().0;
        let mut facts = self.facts.clone();
        // How many a batch read gives is the store's choice: what holds afterwards is filled in below.
        let mut moved = from;
        if !many && from < readable {
            moved = from + 1;
            note_cursor(facts.log(id), name, moved);
        }
        if !many {
            return self.call(format!("read_next of {} {name} from {from}", short(id)), facts, |owner| {
                let entry = cursor.read_next(true)?;
                let expected = owner.facts.logs[&id].values.get(from as usize).filter(|_| moved > from);
                assert_eq!(entry.as_ref().map(|entry| entry.offset.0), expected.map(|_| from), "{name}");
                if let (Some(entry), Some((value, _))) = (entry, expected) {
                    assert!(value.is(&entry.data), "{name}: entry {from}");
                }
                Ok(())
            });
        }
        let peeked = match cursor.batch_read(3000, false) {
            Ok(peeked) => peeked,
            Err(error) => return Err(Box::new(Failed { error, facts, call: "a batch read".to_owned() })),
        };
        if let Some(last) = peeked.last() {
            note_cursor(facts.log(id), name, last.offset.0 + 1);
        }
        self.call(format!("batch_read of {} {name} from {from}", short(id)), facts, |_| {
            let taken = cursor.batch_read(3000, true)?;
            assert_eq!(taken, peeked, "what a read without a checkpoint gave");
            Ok(())
        })
    }

    fn seek(&mut self, id: LogId) -> Result<(), Box<Failed>> {
        let name = *self.random.choose(&CURSORS);
        let (start, end) = (self.facts.logs[&id].start, self.log(id).durable_offset().0);
        let to = start + self.random.below(end - start + 1);
        let mut facts = self.facts.clone();
        note_cursor(facts.log(id), name, to);
        self.call(format!("seek {} {name} to {to}", short(id)), facts, |owner| {
            owner.log(id).cursor(name)?.seek(Offset(to))
        })
    }

    fn trim(&mut self, id: LogId) -> Result<(), Box<Failed>> {
        let (start, end) = (self.facts.logs[&id].start, self.log(id).durable_offset().0);
        let to = start + self.random.below(end - start + 1);
        let mut facts = self.facts.clone();
        facts.log(id).start = to;
        self.call(format!("trim {} to {to}", short(id)), facts, |owner| {
            owner.log(id).delete_before(Offset(to))
        })
    }

    fn truncate(&mut self, id: LogId) -> Result<(), Box<Failed>> {
        let known = &self.facts.logs[&id];
        if known.fsync == FsyncSchedule::NoFsync {
            return Ok(());
        }
        let to = known.start + self.random.below(known.end() - known.start + 1);
        let to = known.values.get(to as usize).map_or(known.end(), |(_, base)| *base);
        if to < known.start {
            return Ok(());
        }
        let mut facts = self.facts.clone();
        let log = facts.log(id);
        let cut = to < log.end();
        log.truncate(to);
        self.pending.retain(|(of, end, _)| *of != id || *end <= to);
        if cut || log.is_synced() {
            // A truncation commits what stays; one that cuts nothing does, too.
            log.promised = to;
        }
        self.call(format!("truncate {} to {to}", short(id)), facts, |owner| {
            owner.log(id).truncate_to(Offset(to))
        })
    }

    fn seal(&mut self, id: LogId) -> Result<(), Box<Failed>> {
        let mut facts = self.facts.clone();
        let log = facts.log(id);
        log.sealed = Some(b"the end".to_vec());
        if log.fsync != FsyncSchedule::NoFsync {
            log.promised = log.end();
        }
        self.call(format!("seal {}", short(id)), facts, |owner| owner.log(id).seal(b"the end").map(drop))
    }

    fn delete(&mut self, id: LogId) -> Result<(), Box<Failed>> {
        let mut facts = self.facts.clone();
        facts.log(id).is_deleted = true;
        self.pending.retain(|(of, ..)| *of != id);
        self.call(format!("delete {}", short(id)), facts, |owner| {
            owner.store.as_ref().expect("open").delete_log(id)
        })
    }

    fn put_property(&mut self) -> Result<(), Box<Failed>> {
        let key = format!("key {}", self.random.below(3));
        let value = self.random.number().to_le_bytes().to_vec();
        let mut facts = self.facts.clone();
        facts.properties.insert(key.clone(), value.clone());
        self.call(format!("put {key}"), facts, |owner| {
            owner.store.as_ref().expect("open").put_property(&key, &value)
        })
    }

    fn reopen(&mut self) -> Result<(), Box<Failed>> {
        let mut facts = self.facts.clone();
        for (_, log) in facts.logs.iter_mut().filter(|(_, log)| log.fsync != FsyncSchedule::NoFsync) {
            let log = Arc::make_mut(log);
            log.promised = log.end();
        }
        self.pending.clear();
        self.call("close".to_owned(), facts, |owner| owner.store.take().expect("open").close())?;
        if self.plan.changes_ways {
            let tails = *self.random.choose(&[TailKind::Mapped, TailKind::Buffered]);
            self.ways = (*self.random.choose(&SCHEDULES), tails);
        }
        self.open()
    }

    /// Appends once more to a log after a call failed, for what is promised now counts, too. `facts` are those that hold if
    /// the failed call took effect.
    pub fn append_after_failure(&mut self, id: LogId, facts: &mut Facts) -> Result<(), Error> {
        let Some(log) = self.store.as_ref().and_then(|store| store.log(id)) else { return Ok(()) };
        let value = Value { number: self.next_number, bytes: 700 };
        self.next_number += 1;
        let mut builder = BatchBuilder::new();
        builder.push(None, Some(&value.to_bytes()), 0, &[]);
        let mut bytes = Vec::new();
        builder.build(&mut bytes).expect("small");
        let (batch, _) = Batch::parse(&bytes).expect("just built");
        let appended = log.append(&batch)?;
        let base = appended.base_offset.0;
        let waited = appended.commit.wait();
        // The place where this append goes shows whether the failed call took effect.
        match [self.facts.logs.get(&id), facts.logs.get(&id)] {
            [Some(without), Some(with)] if with.end() < base => {
                facts.logs.insert(id, Arc::clone(without));
            }
            [Some(without), Some(with)] if without.end() < base => {
                self.facts.logs.insert(id, Arc::clone(with));
            }
            _ => {}
        }
        for facts in [&mut self.facts, facts] {
            let Some(log) = facts.logs.get_mut(&id) else { continue };
            let log = Arc::make_mut(log);
            assert!(log.end() >= base, "an append went to {base}, behind the end");
            log.values.truncate(base as usize);
            log.groups.retain(|(_, end)| *end <= base);
            log.produced.retain(|(_, records, at)| at + u64::from(*records) <= base);
            log.values.push((value, base));
            if waited.is_ok() && log.is_synced() {
                log.promised = log.end();
            }
        }
        waited
    }
}

/// The number of a log.
fn short(id: LogId) -> u128 {
    id.0.as_u128()
}

/// Notes the commit of a cursor, which syncs what lies below it.
fn note_cursor(log: &mut LogFacts, name: &str, to: u64) {
    log.cursors.insert(name.to_owned(), to);
    if log.fsync != FsyncSchedule::NoFsync {
        log.promised = log.promised.max(to);
    }
}

/// The cursors of a log that have moved.
pub fn cursors_of(log: &Log) -> BTreeMap<String, u64> {
    log.cursors().into_iter().map(|(name, at)| (name, at.0)).collect()
}
