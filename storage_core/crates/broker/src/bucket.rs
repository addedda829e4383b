//! The bucket: the storage component of a node. A key is the log of a segment. Writes to a key need a lease and come
//! one after another, writes to different keys side by side; reads need no lease.
//!
//! The lease is checked under the key's writer lock, so that no write lands after the seal or the loss of the lease.
//! A lease carries the epoch of its segment; it is what metadata says, not a matter of time.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use imbl::OrdMap;
use walrus_log::batch::Batch;
use walrus_log::{AppendReceipt, Log, LogId, LogSpec, Slices, Store, TimeSearch};
use walrus_model::{Epoch, Offset};

use crate::node::differences::differences;
use crate::node::error::{Error, Result};
use crate::node::locks::{HELD, LEASES, Lock, SharedLock};
use crate::node::metrics::Metrics;

/// Limit on the leases that the log line of a rejected write shows.
const LEASES_SHOWN: usize = 16;

/// The leases that metadata gives this process: the open segments that it leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leases {
    /// The epoch of each leased log, and its name in log lines and errors.
    pub by_key: OrdMap<LogId, (Epoch, Arc<str>)>,
}

/// What an update of the leases changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseChanges {
    /// Leases taken.
    pub added: usize,
    /// Leases given up.
    pub removed: usize,
}

/// A node's logs, behind writer locks that check the lease of whoever writes.
pub struct Bucket {
    store: Store,
    node: u32,
    metrics: Arc<Metrics>,
    held: SharedLock<HashMap<LogId, Arc<HeldLease>>, HELD>,
    /// The leases of the last update, which are those that are held; the same ones again change nothing.
    last_update: Lock<Arc<Leases>, LEASES>,
    controls: Controls,
}

/// Faults for tests; only reachable where the config opens them.
#[derive(Default)]
struct Controls {
    leases_revoked: AtomicBool,
    reads_fail: AtomicBool,
}

/// The log of a segment, and the right under which it is written.
#[derive(Clone)]
pub struct Key {
    /// The log that stores it.
    pub log: Log,
    /// Its name in log lines and errors.
    pub label: Arc<str>,
    /// Epoch of its segment.
    pub epoch: Epoch,
}

/// A key whose lease this process holds, or is just losing.
struct HeldLease {
    label: Arc<str>,
    writer: Lock<Writer>,
}

/// The right to write to a key. Its lock makes a write and the loss of the right exclude each other.
struct Writer {
    lease: Option<Epoch>,
    /// Whether the segment's end is being decided: the lease is there, and nothing may be written.
    frozen: bool,
}

impl Bucket {
    pub(crate) fn new(store: Store, node: u32, metrics: Arc<Metrics>) -> Self {
        Self {
            store,
            node,
            metrics,
            held: SharedLock::default(),
            last_update: Lock::default(),
            controls: Controls::default(),
        }
    }

    /// Appends a batch to a key that this process holds under the key's epoch. It is durable when the answer's ticket
    /// says so. `NotLeader` if there is no lease, or another epoch's, or the key is frozen or sealed.
    pub fn append_by_key(&self, key: &Key, batch: &Batch<'_>) -> Result<AppendReceipt> {
        let started = Instant::now();
        let appended = self.with_lease(key, || key.log.append(batch))?;
        self.metrics.bucket_append_seconds.observe(started.elapsed().as_secs_f64());
        appended.map_err(|error| match error {
            walrus_log::Error::Sealed { .. } => self.reject(key),
            other => self.error(&key.label, other),
        })
    }

    /// Runs a write under the key's writer lock after checking the lease.
    fn with_lease<T>(&self, key: &Key, write: impl FnOnce() -> T) -> Result<T> {
        let held = self.held.read().get(&key.log.id()).cloned();
        if let Some(held) = held {
            let writer = held.writer.lock();
            if may_write(&writer, key.epoch) {
                return Ok(write());
            }
        }
        Err(self.reject(key))
    }

    fn reject(&self, key: &Key) -> Error {
        let held = self.held.read();
        let leases: Vec<&str> = held.values().take(LEASES_SHOWN).map(|held| held.label.as_ref()).collect();
        tracing::warn!("write rejected for {} (leases: {})", key.label, leases.join(", "));
        self.metrics.bucket_rejects.inc();
        Error::NotLeader { key: key.label.to_string(), hint: None }
    }

    /// Takes up and gives up leases until they are the wanted ones. Returns when no write under a lost lease is left.
    /// Costs a pointer comparison when it is given what it was given last.
    pub fn update_leases(&self, wanted: &Arc<Leases>) -> LeaseChanges {
        let started = Instant::now();
        if self.controls.leases_revoked.load(Ordering::Relaxed) {
            return LeaseChanges::default();
        }
        let mut last = self.last_update.lock();
        if Arc::ptr_eq(&last, wanted) {
            self.metrics.bucket_lease_updates_unchanged.inc();
            return LeaseChanges::default();
        }
        let changes = self.replace_leases(&last, wanted);
        *last = wanted.clone();
        drop(last);
        self.metrics.bucket_lease_update_seconds.observe(started.elapsed().as_secs_f64());
        if changes != LeaseChanges::default() {
            let LeaseChanges { added, removed } = changes;
            tracing::debug!(added, removed, held = wanted.by_key.len(), "leases follow the metadata");
        }
        changes
    }

    fn replace_leases(&self, last: &Leases, wanted: &Leases) -> LeaseChanges {
        let mut held = self.held.write();
        let (mut added, mut lost) = (0, Vec::new());
        for (id, lease) in differences(&last.by_key, &wanted.by_key) {
            lost.extend(held.remove(id));
            if let Some((epoch, label)) = lease {
                added += 1;
                let writer = Lock::new(Writer { lease: Some(*epoch), frozen: false });
                held.insert(*id, Arc::new(HeldLease { label: label.clone(), writer }));
            }
        }
        self.metrics.bucket_leases.set(i64::try_from(held.len()).unwrap_or(i64::MAX));
        drop(held);
        for lost in &lost {
            lost.writer.lock().lease = None; // waits for the write that is under way
        }
        LeaseChanges { added, removed: lost.len() }
    }

    /// Stops writes to a key without giving its lease up. When it returns no write is under way.
    pub(crate) fn freeze(&self, id: LogId) {
        self.set_frozen(id, true);
    }

    /// Takes a freeze back, for a segment whose end was not decided after all.
    pub(crate) fn thaw(&self, id: LogId) {
        self.set_frozen(id, false);
    }

    fn set_frozen(&self, id: LogId, frozen: bool) {
        let held = self.held.read().get(&id).cloned();
        if let Some(held) = held {
            held.writer.lock().frozen = frozen;
        }
    }

    /// Creates the log of a segment, or answers the one that is there. Durable on return.
    pub(crate) fn create(&self, spec: LogSpec) -> Result<Log> {
        let name = spec.name.clone();
        self.store.create_log(spec).map_err(|error| self.error(&name, error))
    }

    /// The log of a key, if this disk has it.
    #[must_use]
    pub fn log(&self, id: LogId) -> Option<Log> {
        self.store.log(id)
    }

    /// The batch that holds an offset.
    pub fn read_one(&self, log: &Log, offset: u64) -> Result<Slices> {
        self.read_by_key(log, offset, 1)
    }

    /// Whole batches from the one that holds `offset`, about `bytes_max` bytes, at least one; none at the end.
    pub fn read_by_key(&self, log: &Log, offset: u64, bytes_max: usize) -> Result<Slices> {
        self.check_reads()?;
        let slices = log.read(Offset(offset), bytes_max).map_err(|error| self.error(log.name(), error))?;
        let bytes: usize = slices.batches.iter().map(bytes::Bytes::len).sum();
        self.metrics.read_bytes.inc_by(bytes as u64);
        Ok(slices)
    }

    /// The first record of a log, among some offsets, that is not older than `ms`; without `ms` the newest one.
    pub(crate) fn find_time(&self, log: &Log, ms: Option<i64>, within: Range<Offset>) -> Result<TimeSearch> {
        self.check_reads()?;
        let searched = match ms {
            Some(ms) => log.find_by_timestamp(ms, within),
            None => log.find_newest(within),
        };
        searched.map_err(|error| self.error(log.name(), error))
    }

    fn check_reads(&self) -> Result<()> {
        if self.controls.reads_fail.load(Ordering::Relaxed) {
            let message = "reads fail on demand of a test".to_owned();
            return Err(Error::Storage { node: self.node, message });
        }
        Ok(())
    }

    /// Bytes of a key's batches.
    #[must_use]
    pub fn size_bytes(&self, id: LogId) -> Option<u64> {
        self.store.log(id).map(|log| log.size_bytes())
    }

    /// The store of the engine below.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Gives all leases up until [`Bucket::restore_leases`].
    pub(crate) fn revoke_leases(&self) {
        self.controls.leases_revoked.store(true, Ordering::Relaxed);
        let none = Arc::<Leases>::default();
        let mut last = self.last_update.lock();
        self.replace_leases(&last, &none);
        *last = none;
    }

    /// Ends [`Bucket::revoke_leases`]; the next update takes them up again.
    pub(crate) fn restore_leases(&self) {
        self.controls.leases_revoked.store(false, Ordering::Relaxed);
    }

    pub(crate) fn fail_reads(&self, fail: bool) {
        self.controls.reads_fail.store(fail, Ordering::Relaxed);
    }

    /// Turns an error of the engine into one of the broker; the one place that does.
    pub(crate) fn error(&self, key: &str, error: walrus_log::Error) -> Error {
        use walrus_log::Error as Engine;
        let node = self.node;
        match error {
            Engine::OutOfOrderSequence { producer, expected, got } => {
                Error::OutOfOrderSequence { producer_id: producer, expected, got }
            }
            Engine::ProducerFenced { producer, current, attempted } => {
                Error::ProducerFenced { producer_id: producer, current, got: attempted }
            }
            Engine::TooManyProducers { producers_max } => Error::TooManyProducers { producers_max },
            Engine::OffsetOutOfRange { requested, start, end } => {
                Error::OffsetOutOfRange { requested: requested.0, start: start.0, end: end.0 }
            }
            Engine::Corrupted { start, end, .. } => {
                Error::Corrupted { node, key: key.to_owned(), start: start.0, end: end.0 }
            }
            Engine::NoSpace { .. } => Error::NoSpace { node },
            Engine::TooLarge { bytes, bytes_max } => {
                Error::TooLarge { what: "the batch".to_owned(), bytes, bytes_max }
            }
            Engine::Sealed { .. } => Error::NotLeader { key: key.to_owned(), hint: None },
            Engine::Batch(problem) => Error::InvalidBatch { problem: problem.to_string() },
            exhausted @ Engine::OffsetsExhausted { .. } => {
                Error::InvalidBatch { problem: exhausted.to_string() }
            }
            other => Error::Storage { node, message: format!("{key}: {other}") },
        }
    }
}

fn may_write(writer: &Writer, epoch: Epoch) -> bool {
    writer.lease == Some(epoch) && !writer.frozen
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use uuid::Uuid;
    use walrus_log::batch::BatchBuilder;
    use walrus_log::{Options, ProducerTable};

    use super::*;

    struct Fixture {
        bucket: Bucket,
        _directory: tempfile::TempDir,
    }

    fn fixture() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), Options::small()).unwrap();
        let bucket = Bucket::new(store, 1, Arc::new(Metrics::new()));
        Fixture { bucket, _directory: directory }
    }

    fn key(bucket: &Bucket, name: &str, epoch: u32) -> Key {
        let id = LogId(Uuid::new_v4());
        let spec = LogSpec {
            id,
            name: name.to_owned(),
            base_offset: Offset(0),
            epoch: Epoch(epoch),
            producers: ProducerTable::new(),
            after: None,
            fsync: None,
        };
        Key { log: bucket.create(spec).unwrap(), label: name.into(), epoch: Epoch(epoch) }
    }

    fn leases<'a>(keys: impl IntoIterator<Item = &'a Key>) -> Arc<Leases> {
        let lease = |key: &Key| (key.log.id(), (key.epoch, key.label.clone()));
        Arc::new(Leases { by_key: keys.into_iter().map(lease).collect() })
    }

    fn batch(value: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        BatchBuilder::new().push(None, Some(value.as_bytes()), 1, &[]).build(&mut bytes).unwrap();
        bytes
    }

    fn append(bucket: &Bucket, key: &Key, value: &str) -> Result<u64> {
        let bytes = batch(value);
        let appended = bucket.append_by_key(key, &Batch::parse(&bytes).unwrap().0)?;
        appended.commit.wait().unwrap();
        Ok(appended.base_offset.0)
    }

    #[test]
    fn leases_are_added_removed_and_left_alone() {
        let Fixture { bucket, _directory } = fixture();
        let (a, b) = (key(&bucket, "a", 1), key(&bucket, "b", 1));
        let both = leases([&a, &b]);
        assert_eq!(bucket.update_leases(&both), LeaseChanges { added: 2, removed: 0 });
        assert_eq!(bucket.update_leases(&both), LeaseChanges::default());
        assert_eq!(bucket.metrics.bucket_lease_updates_unchanged.get(), 1);
        assert_eq!(bucket.update_leases(&leases([&b])), LeaseChanges { added: 0, removed: 1 });
        assert_eq!(bucket.metrics.bucket_leases.get(), 1);

        let error = append(&bucket, &a, "x").unwrap_err();
        assert_eq!(error.to_string(), "NotLeaderForPartition: a");
        assert_eq!(append(&bucket, &b, "x").unwrap(), 0);
        assert_eq!(bucket.metrics.bucket_rejects.get(), 1);
    }

    #[test]
    fn a_lease_is_good_for_its_epoch_only() {
        let Fixture { bucket, _directory } = fixture();
        let now = key(&bucket, "a", 5);
        let later = Key { epoch: Epoch(6), ..now.clone() };
        bucket.update_leases(&leases([&later]));
        assert!(append(&bucket, &now, "x").is_err());
        assert_eq!(bucket.update_leases(&leases([&now])), LeaseChanges { added: 1, removed: 1 });
        assert!(append(&bucket, &now, "x").is_ok());
        assert!(append(&bucket, &later, "x").is_err());
    }

    #[test]
    fn reads_need_no_lease() {
        let Fixture { bucket, _directory } = fixture();
        let a = key(&bucket, "a", 1);
        bucket.update_leases(&leases([&a]));
        for number in 0..3 {
            append(&bucket, &a, &number.to_string()).unwrap();
        }
        bucket.update_leases(&leases([]));
        let one = bucket.read_one(&a.log, 1).unwrap();
        assert_eq!((one.batches.len(), one.next_offset), (1, Offset(2)));
        assert_eq!(bucket.read_by_key(&a.log, 0, 1 << 20).unwrap().next_offset, Offset(3));
        assert!(bucket.size_bytes(a.log.id()).unwrap() > 0);
        assert_eq!(bucket.size_bytes(LogId(Uuid::nil())), None);
    }

    #[test]
    fn no_write_lands_after_the_seal_and_writes_of_a_key_have_one_order() {
        let Fixture { bucket, _directory } = fixture();
        let a = key(&bucket, "a", 1);
        bucket.update_leases(&leases([&a]));
        let written = AtomicU64::new(0);
        let end = std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut last = None;
                    while let Ok(offset) = append(&bucket, &a, "x") {
                        assert!(last < Some(offset));
                        last = Some(offset);
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while written.load(Ordering::Relaxed) < 20 {
                std::thread::yield_now();
            }
            bucket.freeze(a.log.id());
            let end = a.log.end_offset();
            assert_eq!(a.log.seal(b"value").unwrap().end, end);
            end
        });
        assert_eq!(written.load(Ordering::Relaxed), end.0);
        bucket.thaw(a.log.id());
        assert_eq!(append(&bucket, &a, "x").unwrap_err().reason(), "NotLeader");
        assert_eq!(a.log.end_offset(), end);
    }
}
