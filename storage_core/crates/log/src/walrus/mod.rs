//! Topics by name, with entries of bytes: the engine as embedders use it.

mod builder;
mod namespace;
mod topic_arrival;

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::batch::{Batch, BatchBuilder, HEADER_BYTES, ProducerRef};
use crate::clock::now_ms;
use crate::error::{Error, Result};
use crate::handle::cursors::{Cursor, ENTRIES_MAX, read_entries};
use crate::handle::group::{PartSize, check_sizes};
use crate::handle::{AppendReceipt, CompactionReport, Log};
use crate::log::Entry;
use crate::log::floor::{Floor, Retention};
use crate::log::spec::LogSpec;
use crate::options::{Options, ReadConsistency};
use crate::producers::ProducerTable;
use crate::recovery::OpenReport;
use crate::resources::blocks::Blocks;
use crate::store::Store;
use crate::sync::{Mutex, RwLock};
use crate::types::{Epoch, LogId, Offset};
pub use builder::WalrusBuilder;
pub use topic_arrival::TopicArrival;

/// Name of the cursor of calls that name none.
const DEFAULT_CURSOR: &str = "default";

/// A store whose logs are topics. Clones share it.
#[derive(Clone)]
pub struct Walrus {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    /// Consistency of the topics' default cursors over a crash.
    consistency: ReadConsistency,
    /// Retention that topics get when they are made or found at open.
    retention: Retention,
    topics: RwLock<HashMap<String, Topic>>,
    /// Lets one topic be made at a time.
    making: Mutex<()>,
}

/// A topic; keep it to save the look-up by name.
#[derive(Clone)]
pub struct Topic {
    inner: Arc<TopicInner>,
}

struct TopicInner {
    log: Log,
    cursor: Cursor,
}

thread_local! {
    /// Memory in which the thread builds batches, so that none is allocated per entry.
    static BUILDING: RefCell<(BatchBuilder, Vec<u8>)> = RefCell::default();
}

impl Walrus {
    /// Opens the store of a directory; its logs are the topics. Cursors are strict. Errors: those of [`Store::open`].
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::on(Store::open(directory, options)?)
    }

    /// Serves an open store. Of several logs with the same name, the one with the lowest id is the topic.
    pub fn on(store: Store) -> Result<Self> {
        Self::with(store, ReadConsistency::default(), Retention::default())
    }

    fn with(store: Store, consistency: ReadConsistency, retention: Retention) -> Result<Self> {
        let logs = store.logs();
        let (topics, making) = (RwLock::default(), Mutex::default());
        let walrus = Self { inner: Arc::new(Inner { store, consistency, retention, topics, making }) };
        let mut topics = HashMap::new();
        for log in logs {
            let name = log.name().to_owned();
            let topic = walrus.serve(log)?;
            topics.entry(name).or_insert(topic);
        }
        *walrus.inner.topics.write() = topics;
        Ok(walrus)
    }

    fn serve(&self, log: Log) -> Result<Topic> {
        if self.inner.retention != Retention::default() {
            log.set_retention(self.inner.retention.clone());
        }
        let cursor = log.cursor_with(DEFAULT_CURSOR, self.inner.consistency)?;
        Ok(Topic { inner: Arc::new(TopicInner { log, cursor }) })
    }

    /// The store with the topics' logs.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The report of the open: what it found, cut, fenced, moved aside, moved back or made again.
    pub fn recovery(&self) -> &OpenReport {
        self.inner.store.report()
    }

    /// Gives the topic of a name, which is made if it does not exist: 1 to 255 bytes without NUL.
    pub fn topic(&self, name: &str) -> Result<Topic> {
        self.inner.store.check_open()?;
        if let Some(topic) = self.find(name) {
            return Ok(topic);
        }
        let making = self.inner.making.lock();
        if let Some(topic) = self.find(name) {
            return Ok(topic);
        }
        let spec = LogSpec {
            id: LogId(Uuid::new_v4()),
            name: name.to_owned(),
            base_offset: Offset(0),
            epoch: Epoch(0),
            producers: ProducerTable::new(),
            after: None,
            fsync: None,
        };
        let topic = self.serve(self.inner.store.create_log(spec)?)?;
        self.inner.topics.write().insert(name.to_owned(), topic.clone());
        drop(making);
        self.inner.store.topics_made().announce();
        Ok(topic)
    }

    /// Gives the topic for an append. A topic that does not exist is made, unless `check` refuses the append whatever
    /// the topic holds.
    fn topic_for(&self, name: &str, check: impl FnOnce(&Blocks) -> Result<()>) -> Result<Topic> {
        let resources = self.inner.store.resources();
        resources.check_open()?;
        if let Some(topic) = self.find(name) {
            return Ok(topic);
        }
        check(&resources.blocks)?;
        self.topic(name)
    }

    /// Gives the topic of a call that only an existing topic can answer; fails with `UnknownTopic`.
    fn known_topic(&self, name: &str) -> Result<Topic> {
        self.inner.store.check_open()?;
        self.find(name).ok_or_else(|| Error::UnknownTopic { name: name.to_owned() })
    }

    /// The topic of a name, if it exists.
    pub fn find(&self, name: &str) -> Option<Topic> {
        self.inner.store.resources().assert_origin();
        self.inner.topics.read().get(name).cloned()
    }

    /// Names of the topics, sorted.
    pub fn topics(&self) -> Vec<String> {
        self.inner.store.resources().assert_origin();
        let mut names: Vec<_> = self.inner.topics.read().keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// Deletes a topic and its cursors; durable on return, unless its log never syncs. False if there was none.
    pub fn delete_topic(&self, name: &str) -> Result<bool> {
        self.inner.store.check_open()?;
        let _making = self.inner.making.lock();
        let Some(topic) = self.find(name) else { return Ok(false) };
        self.inner.store.delete_log(topic.inner.log.id())?;
        self.inner.topics.write().remove(name);
        Ok(true)
    }

    /// Appends an entry, durably as the schedule says, and gives its offset. Makes the topic if it does not exist; a
    /// refused entry makes none.
    pub fn append_for_topic(&self, topic: &str, data: &[u8]) -> Result<Offset> {
        self.topic_for(topic, |blocks| check_entries(&[data], blocks))?.append(data)
    }

    /// Appends up to 2,000 entries of 10 GB in all as one: all of them are there or none, to every reader and after a
    /// crash at any point. Gives their offsets. Entries that one batch cannot hold are stored as several, one after
    /// the other; other appends to the topic wait meanwhile.
    pub fn batch_append_for_topic(&self, topic: &str, entries: &[&[u8]]) -> Result<Range<Offset>> {
        self.inner.store.check_open()?;
        if entries.is_empty() && self.find(topic).is_none() {
            return Ok(Offset(0)..Offset(0));
        }
        self.topic_for(topic, |blocks| check_entries(entries, blocks))?.batch_append(entries)
    }

    /// Appends as [`Walrus::batch_append_for_topic`] does, but does not wait; see [`Topic::submit`].
    pub fn submit_for_topic(&self, topic: &str, entries: &[&[u8]]) -> Result<AppendReceipt> {
        self.topic_for(topic, |blocks| check_entries(entries, blocks))?.submit(entries)
    }

    /// Appends as [`Walrus::submit_for_topic`] does, for a producer that may send its entries again when it cannot
    /// know whether they were stored. A repetition of one of its last five calls, with the same sequence and as many
    /// entries, is not stored but gives the offsets of the first time ([`AppendReceipt::duplicate`]), also after a restart.
    /// Entries that one batch cannot hold are refused.
    ///
    /// The producer's sequence counts its entries in this topic, from 0 in each of its epochs; a higher epoch locks
    /// out the lower ones. Errors: `OutOfOrderSequence` for a gap or an older repetition, `ProducerFenced`,
    /// `TooManyProducers`.
    pub fn submit_once_for_topic(
        &self,
        topic: &str,
        producer: ProducerRef,
        entries: &[&[u8]],
    ) -> Result<AppendReceipt> {
        check_count(entries)?;
        in_one_batch(entries, Some(producer), |batch| {
            let check = |blocks: &Blocks| check_fits(batch.bytes().len() as u64, blocks);
            self.topic_for(topic, check)?.inner.log.append(batch)
        })
    }

    /// Appends an entry with a key, of which a compaction keeps the last; durability and topic are as with
    /// [`Walrus::append_for_topic`]. Without data the entry is a tombstone: the key is gone.
    pub fn append_keyed_for_topic(&self, topic: &str, key: &[u8], data: Option<&[u8]>) -> Result<Offset> {
        let mut bytes = Vec::new();
        let batch = keyed_batch(key, data, &mut bytes)?;
        let check = |blocks: &Blocks| check_fits(batch.bytes().len() as u64, blocks);
        self.topic_for(topic, check)?.append_built(&batch)
    }

    /// Keeps the last entry of each key; see [`Log::compact`]. `None` if there is no such topic.
    pub fn compact(&self, topic: &str, tombstone_delay: Duration) -> Result<Option<CompactionReport>> {
        self.inner.store.check_open()?;
        self.find(topic).map(|topic| topic.inner.log.compact(tombstone_delay)).transpose()
    }

    /// Reads the next entry of the topic's default cursor; see [`Cursor::read_next`]. `None` also if there is no such
    /// topic.
    pub fn read_next(&self, topic: &str, checkpoint: bool) -> Result<Option<Entry>> {
        self.inner.store.check_open()?;
        self.find(topic).map_or(Ok(None), |topic| topic.inner.cursor.read_next(checkpoint))
    }

    /// Reads entries of about `bytes_max` bytes: from the default cursor, or from `start_offset`, which moves no
    /// cursor whatever `checkpoint` says. At most 2,000, at least one if there is one.
    pub fn batch_read_for_topic(
        &self,
        topic: &str,
        bytes_max: usize,
        checkpoint: bool,
        start_offset: Option<Offset>,
    ) -> Result<Vec<Entry>> {
        self.inner.store.check_open()?;
        let Some(topic) = self.find(topic) else { return Ok(Vec::new()) };
        match start_offset {
            None => topic.inner.cursor.batch_read(bytes_max, checkpoint),
            Some(start) => topic.read_at(start, bytes_max),
        }
    }

    /// Gives a cursor of a topic, by name. Fails with `UnknownTopic` if there is no such topic.
    pub fn cursor(&self, topic: &str, name: &str) -> Result<Cursor> {
        self.known_topic(topic)?.inner.log.cursor_with(name, self.inner.consistency)
    }

    /// Number of offsets that the default cursor has not passed; 0 if there is no such topic. See [`Cursor::unread`].
    pub fn get_topic_entry_count(&self, topic: &str) -> u64 {
        self.find(topic).map_or(0, |topic| topic.inner.cursor.unread())
    }

    /// [`Walrus::get_topic_entry_count`] of each topic, by name.
    pub fn get_topic_entry_counts(&self) -> HashMap<String, u64> {
        self.inner.store.resources().assert_origin();
        let count = |(name, topic): (&String, &Topic)| (name.clone(), topic.inner.cursor.unread());
        self.inner.topics.read().iter().map(count).collect()
    }

    /// Bytes of the topic's batches, consumed or not; 0 if there is no such topic.
    pub fn get_topic_size(&self, topic: &str) -> u64 {
        self.find(topic).map_or(0, |topic| topic.inner.log.size_bytes())
    }

    /// Calls the topic clean until its next append; see [`Log::mark_clean`]. Errors: `UnknownTopic`.
    pub fn mark_topic_clean(&self, topic: &str) -> Result<()> {
        self.known_topic(topic)?.inner.log.mark_clean()
    }

    /// Calls the topic dirty until it is called clean. Errors: `UnknownTopic`.
    pub fn mark_topic_dirty(&self, topic: &str) -> Result<()> {
        self.known_topic(topic)?.inner.log.mark_dirty()
    }

    /// Whether nothing was appended since the topic was called clean. A topic that does not exist is clean.
    pub fn topic_is_clean(&self, topic: &str) -> bool {
        self.find(topic).is_none_or(|topic| topic.inner.log.is_clean())
    }

    /// Forgets entries below an offset, as far as nobody holds them; see [`Log::trim`]. `None` if there is no such
    /// topic.
    pub fn trim(&self, topic: &str, before: Offset) -> Result<Option<Floor>> {
        self.inner.store.check_open()?;
        self.find(topic).map(|topic| topic.inner.log.trim(before)).transpose()
    }

    /// Sets the rules by which the topic forgets entries in the background, until the store is closed. Errors:
    /// `UnknownTopic`.
    pub fn set_topic_retention(&self, topic: &str, retention: Retention) -> Result<()> {
        self.known_topic(topic)?.inner.log.set_retention(retention);
        Ok(())
    }

    /// Closes the store; see [`Store::close`].
    pub fn close(&self) -> Result<()> {
        self.inner.store.close()
    }
}

impl Topic {
    /// The log with the topic's entries.
    pub fn log(&self) -> &Log {
        &self.inner.log
    }

    /// The default cursor.
    pub fn cursor(&self) -> &Cursor {
        &self.inner.cursor
    }

    /// Appends an entry; see [`Walrus::append_for_topic`].
    pub fn append(&self, data: &[u8]) -> Result<Offset> {
        self.append_batch(&[data]).map(|offsets| offsets.start)
    }

    /// Appends an entry with a key; see [`Walrus::append_keyed_for_topic`].
    pub fn append_keyed(&self, key: &[u8], data: Option<&[u8]>) -> Result<Offset> {
        let mut bytes = Vec::new();
        self.append_built(&keyed_batch(key, data, &mut bytes)?)
    }

    fn append_built(&self, batch: &Batch<'_>) -> Result<Offset> {
        let appended = self.inner.log.append(batch)?;
        appended.commit.wait()?;
        Ok(appended.base_offset)
    }

    /// Appends entries as [`Topic::batch_append`] does, but does not wait: they are durable when the ticket resolves,
    /// which can be awaited. Refuses an empty batch.
    pub fn submit(&self, entries: &[&[u8]]) -> Result<AppendReceipt> {
        check_count(entries)?;
        self.submit_batch(entries)
    }

    /// Appends entries as one; see [`Walrus::batch_append_for_topic`].
    pub fn batch_append(&self, entries: &[&[u8]]) -> Result<Range<Offset>> {
        check_count(entries)?;
        if entries.is_empty() {
            let end = self.inner.log.end_offset();
            return Ok(end..end);
        }
        self.append_batch(entries)
    }

    fn append_batch(&self, entries: &[&[u8]]) -> Result<Range<Offset>> {
        let appended = self.submit_batch(entries)?;
        appended.commit.wait()?;
        Ok(appended.base_offset..appended.end_offset)
    }

    fn submit_batch(&self, entries: &[&[u8]]) -> Result<AppendReceipt> {
        let bytes_max = self.inner.log.resources().blocks.batch_bytes_max();
        if batch_bytes(entries) > bytes_max {
            return self.append_group(entries, bytes_max);
        }
        in_one_batch(entries, None, |batch| self.inner.log.append(batch))
    }

    /// Appends entries that one batch cannot hold, as a batch group; durable on return, as the schedule promises.
    fn append_group(&self, entries: &[&[u8]], batch_bytes_max: u64) -> Result<AppendReceipt> {
        let parts = group_parts(entries, batch_bytes_max.min(PART_BYTES));
        let sizes = part_sizes(entries, &parts);
        let (mut builder, mut bytes, now) = (BatchBuilder::new(), Vec::new(), now_ms());
        self.inner.log.append_parts(&sizes, &mut |part, write| {
            for data in &entries[parts[part].clone()] {
                builder.push(None, Some(data), now, &[]);
            }
            write(&builder.build_in(&mut bytes)?)
        })
    }

    /// Reads entries from an offset on; moves no cursor.
    pub fn read_at(&self, start: Offset, bytes_max: usize) -> Result<Vec<Entry>> {
        read_entries(&self.inner.log, start, bytes_max)
    }
}

/// Builds a batch of the entries, in memory that the thread keeps, and appends it.
fn in_one_batch(
    entries: &[&[u8]],
    producer: Option<ProducerRef>,
    append: impl FnOnce(&Batch<'_>) -> Result<AppendReceipt>,
) -> Result<AppendReceipt> {
    BUILDING.with_borrow_mut(|(builder, bytes)| {
        let now = now_ms();
        for data in entries {
            builder.push(None, Some(data), now, &[]);
        }
        if let Some(producer) = producer {
            builder.producer(producer);
        }
        let appended = append(&builder.build_in(bytes)?);
        if bytes.capacity() > BUILDING_BYTES_KEPT {
            (*builder, *bytes) = Default::default();
        }
        appended
    })
}

fn check_count(entries: &[&[u8]]) -> Result<()> {
    if entries.len() > ENTRIES_MAX {
        let entries = entries.len() as u64;
        return Err(Error::TooManyEntries { entries, entries_max: ENTRIES_MAX as u64 });
    }
    Ok(())
}

/// Refuses entries that no topic takes, whatever it holds.
fn check_entries(entries: &[&[u8]], blocks: &Blocks) -> Result<()> {
    check_count(entries)?;
    if entries.is_empty() {
        return Ok(BatchBuilder::new().build(&mut Vec::new())?);
    }
    let bytes_max = blocks.batch_bytes_max();
    if batch_bytes(entries) <= bytes_max {
        return Ok(());
    }
    let sizes = part_sizes(entries, &group_parts(entries, bytes_max.min(PART_BYTES)));
    check_sizes(&sizes, 0)?;
    sizes.iter().try_for_each(|part| check_fits(part.bytes, blocks))
}

/// Refuses a batch that fits into no block.
fn check_fits(batch_bytes: u64, blocks: &Blocks) -> Result<()> {
    let bytes_max = blocks.batch_bytes_max();
    if batch_bytes > bytes_max { Err(Error::TooLarge { bytes: batch_bytes, bytes_max }) } else { Ok(()) }
}

/// Builds a batch of one entry with a key, in the memory `bytes`.
fn keyed_batch<'a>(key: &[u8], data: Option<&[u8]>, bytes: &'a mut Vec<u8>) -> Result<Batch<'a>> {
    Ok(BatchBuilder::new().push(Some(key), data, now_ms(), &[]).build_in(bytes)?)
}

/// Upper limit on the bytes of a batch with these entries.
fn batch_bytes(entries: &[&[u8]]) -> u64 {
    let entry_bytes = |data: &&[u8]| data.len() as u64 + ENTRY_EXTRA_BYTES_MAX;
    HEADER_BYTES as u64 + entries.iter().map(entry_bytes).sum::<u64>()
}

/// Splits entries, in their order, into few parts of at most `part_bytes_max` bytes each; a larger entry is a part
/// alone.
fn group_parts(entries: &[&[u8]], part_bytes_max: u64) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    for index in 0..entries.len() {
        match parts.last_mut() {
            Some(part) if batch_bytes(&entries[part.start..=index]) <= part_bytes_max => part.end = index + 1,
            _ => parts.push(index..index + 1),
        }
    }
    parts
}

fn part_sizes(entries: &[&[u8]], parts: &[Range<usize>]) -> Vec<PartSize> {
    let size = |part: &Range<usize>| PartSize {
        bytes: batch_bytes(&entries[part.clone()]),
        records: part.len() as u32,
    };
    parts.iter().map(size).collect()
}

/// Upper limit on the bytes of an entry besides its data: lengths and deltas, without key and headers.
const ENTRY_EXTRA_BYTES_MAX: u64 = 32;
/// Bytes of a group that are in memory at a time, unless one entry is larger.
const PART_BYTES: u64 = 64 << 20;

/// Most bytes that a thread keeps for its next batch after a larger one.
const BUILDING_BYTES_KEPT: usize = 8 << 20;
