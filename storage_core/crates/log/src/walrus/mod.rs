//! Topics by name, entries of bytes: the engine as embedders use it.

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
use crate::handle::{Appended, Compacted, Log};
use crate::log::Entry;
use crate::log::floor::{Floor, Retention};
use crate::log::producers::ProducerTable;
use crate::log::spec::LogSpec;
use crate::options::{Options, ReadConsistency};
use crate::recovery::OpenReport;
use crate::resources::blocks::Blocks;
use crate::store::Store;
use crate::sync::{Mutex, RwLock};
use crate::types::{Epoch, LogId, Offset};
pub use builder::WalrusBuilder;
pub use topic_arrival::TopicArrival;

/// The cursor of the calls that name none.
const DEFAULT_CURSOR: &str = "default";

/// A store whose logs are topics. Clones share it.
#[derive(Clone)]
pub struct Walrus {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    /// What the cursors of this Walrus promise over a crash.
    consistency: ReadConsistency,
    /// Retention of the topics that are made or found at open.
    retention: Retention,
    topics: RwLock<HashMap<String, Topic>>,
    /// Topics are made one at a time.
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
    /// Memory for building batches: none is allocated per entry.
    static BUILDING: RefCell<(BatchBuilder, Vec<u8>)> = RefCell::default();
}

impl Walrus {
    /// Opens the store of a directory; its logs are the topics. Cursors are strict. Errors as [`Store::open`].
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::on(Store::open(directory, options)?)
    }

    /// Serves an open store. Of logs with the same name the one with the lowest id is the topic.
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

    /// The store below.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// What the open found, and what it cut, fenced, moved aside, moved back or made again.
    pub fn recovery(&self) -> &OpenReport {
        self.inner.store.report()
    }

    /// The topic of a name, made now if it is not there: 1 to 255 bytes without NUL.
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
            fsync: None,
        };
        let topic = self.serve(self.inner.store.create_log(spec)?)?;
        self.inner.topics.write().insert(name.to_owned(), topic.clone());
        drop(making);
        self.inner.store.topics_made().announce();
        Ok(topic)
    }

    /// The topic that is appended to. One that is not there is made, unless the append would be refused whatever the topic
    /// holds.
    fn topic_for(&self, name: &str, check: impl FnOnce(&Blocks) -> Result<()>) -> Result<Topic> {
        let resources = self.inner.store.resources();
        resources.check_open()?;
        if let Some(topic) = self.find(name) {
            return Ok(topic);
        }
        check(&resources.blocks)?;
        self.topic(name)
    }

    /// The topic of a call that only a topic that is there can answer.
    fn known_topic(&self, name: &str) -> Result<Topic> {
        self.inner.store.check_open()?;
        self.find(name).ok_or_else(|| Error::UnknownTopic { name: name.to_owned() })
    }

    /// The topic of a name, if it is there.
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

    /// Deletes a topic and its cursors; durable on return. False: there was none.
    pub fn delete_topic(&self, name: &str) -> Result<bool> {
        self.inner.store.check_open()?;
        let _making = self.inner.making.lock();
        let Some(topic) = self.find(name) else { return Ok(false) };
        self.inner.store.delete_log(topic.inner.log.id())?;
        self.inner.topics.write().remove(name);
        Ok(true)
    }

    /// Appends an entry, durably as the schedule says, and gives its offset. Makes the topic if it is not there; one that is
    /// refused makes none.
    pub fn append_for_topic(&self, topic: &str, data: &[u8]) -> Result<Offset> {
        self.topic_for(topic, |blocks| check_entries(&[data], blocks))?.append(data)
    }

    /// Appends up to 2,000 entries of 10 GB in all as one: all of them are there, or none, after a crash at any point and
    /// to every reader. Gives their offsets. What one batch cannot hold is stored as several, one after the other; other
    /// appends to the topic wait meanwhile.
    pub fn batch_append_for_topic(&self, topic: &str, entries: &[&[u8]]) -> Result<Range<Offset>> {
        self.inner.store.check_open()?;
        if entries.is_empty() && self.find(topic).is_none() {
            return Ok(Offset(0)..Offset(0));
        }
        self.topic_for(topic, |blocks| check_entries(entries, blocks))?.batch_append(entries)
    }

    /// As [`Walrus::batch_append_for_topic`], but does not wait; see [`Topic::submit`].
    pub fn submit_for_topic(&self, topic: &str, entries: &[&[u8]]) -> Result<Appended> {
        self.topic_for(topic, |blocks| check_entries(entries, blocks))?.submit(entries)
    }

    /// As [`Walrus::submit_for_topic`], of entries that a producer may send again, whenever it cannot know whether they were
    /// stored: a repetition of one of its last five calls, with the same sequence and as many entries, is not stored but gives
    /// the offsets of the first time ([`Appended::duplicate`]), also after a restart. What one batch cannot hold is refused.
    ///
    /// The producer's sequence counts its entries in this topic, from 0 in each of its epochs; a higher epoch locks out the
    /// lower ones. Errors: `OutOfOrderSequence` for a gap or an older repetition, `ProducerFenced`, `TooManyProducers`.
    pub fn submit_once_for_topic(
        &self,
        topic: &str,
        producer: ProducerRef,
        entries: &[&[u8]],
    ) -> Result<Appended> {
        check_count(entries)?;
        in_one_batch(entries, Some(producer), |batch| {
            let check = |blocks: &Blocks| check_fits(batch.bytes().len() as u64, blocks);
            self.topic_for(topic, check)?.inner.log.append(batch)
        })
    }

    /// As [`Walrus::append_for_topic`], of an entry with a key: a compaction keeps the last of each. Without data it is a
    /// tombstone: the key is gone.
    pub fn append_keyed_for_topic(&self, topic: &str, key: &[u8], data: Option<&[u8]>) -> Result<Offset> {
        let mut bytes = Vec::new();
        let batch = keyed_batch(key, data, &mut bytes)?;
        let check = |blocks: &Blocks| check_fits(batch.bytes().len() as u64, blocks);
        self.topic_for(topic, check)?.append_built(&batch)
    }

    /// Keeps the last entry of each key; see [`Log::compact`]. `None`: there is no topic.
    pub fn compact(&self, topic: &str, tombstone_delay: Duration) -> Result<Option<Compacted>> {
        self.inner.store.check_open()?;
        self.find(topic).map(|topic| topic.inner.log.compact(tombstone_delay)).transpose()
    }

    /// The next entry of the topic's default cursor; see [`Cursor::read_next`]. `None` also where there is no topic.
    pub fn read_next(&self, topic: &str, checkpoint: bool) -> Result<Option<Entry>> {
        self.inner.store.check_open()?;
        self.find(topic).map_or(Ok(None), |topic| topic.inner.cursor.read_next(checkpoint))
    }

    /// Entries of about `bytes_max` bytes: from the default cursor, or from `start_offset`, which moves no cursor
    /// whatever `checkpoint` says. At most 2,000, at least one if there is one.
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

    /// A cursor of a topic, by name. `UnknownTopic`: there is none to stand in.
    pub fn cursor(&self, topic: &str, name: &str) -> Result<Cursor> {
        self.known_topic(topic)?.inner.log.cursor_with(name, self.inner.consistency)
    }

    /// Entries that the default cursor has not consumed; 0 where there is no topic. See [`Cursor::unread`].
    pub fn get_topic_entry_count(&self, topic: &str) -> u64 {
        self.find(topic).map_or(0, |topic| topic.inner.cursor.unread())
    }

    /// The same of all topics.
    pub fn get_topic_entry_counts(&self) -> HashMap<String, u64> {
        self.inner.store.resources().assert_origin();
        let count = |(name, topic): (&String, &Topic)| (name.clone(), topic.inner.cursor.unread());
        self.inner.topics.read().iter().map(count).collect()
    }

    /// Bytes of the topic's batches on the disk, consumed or not; 0 where there is no topic.
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

    /// Whether nothing was appended since the topic was called clean. A topic that is not there is clean.
    pub fn topic_is_clean(&self, topic: &str) -> bool {
        self.find(topic).is_none_or(|topic| topic.inner.log.is_clean())
    }

    /// Forgets entries below an offset, as far as nobody holds them; see [`Log::trim`]. `None`: there is no topic.
    pub fn trim(&self, topic: &str, before: Offset) -> Result<Option<Floor>> {
        self.inner.store.check_open()?;
        self.find(topic).map(|topic| topic.inner.log.trim(before)).transpose()
    }

    /// Says what the topic forgets in the background, until the store is closed. Errors: `UnknownTopic`.
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
    /// The log below.
    pub fn log(&self) -> &Log {
        &self.inner.log
    }

    /// The default cursor.
    pub fn cursor(&self) -> &Cursor {
        &self.inner.cursor
    }

    /// See [`Walrus::append_for_topic`].
    pub fn append(&self, data: &[u8]) -> Result<Offset> {
        self.append_batch(&[data]).map(|offsets| offsets.start)
    }

    /// See [`Walrus::append_keyed_for_topic`].
    pub fn append_keyed(&self, key: &[u8], data: Option<&[u8]>) -> Result<Offset> {
        let mut bytes = Vec::new();
        self.append_built(&keyed_batch(key, data, &mut bytes)?)
    }

    fn append_built(&self, batch: &Batch<'_>) -> Result<Offset> {
        let appended = self.inner.log.append(batch)?;
        appended.commit.wait()?;
        Ok(appended.base_offset)
    }

    /// As [`Walrus::batch_append_for_topic`], but does not wait: the entries are durable when the ticket resolves, which
    /// can be awaited. Refuses an empty batch.
    pub fn submit(&self, entries: &[&[u8]]) -> Result<Appended> {
        check_count(entries)?;
        self.submit_batch(entries)
    }

    /// See [`Walrus::batch_append_for_topic`].
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

    fn submit_batch(&self, entries: &[&[u8]]) -> Result<Appended> {
        let bytes_max = self.inner.log.resources().blocks.batch_bytes_max();
        if batch_bytes(entries) > bytes_max {
            return self.append_group(entries, bytes_max);
        }
        in_one_batch(entries, None, |batch| self.inner.log.append(batch))
    }

    /// Entries that one batch cannot hold: durable on return.
    fn append_group(&self, entries: &[&[u8]], batch_bytes_max: u64) -> Result<Appended> {
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

    /// Entries from an offset on; moves no cursor.
    pub fn read_at(&self, start: Offset, bytes_max: usize) -> Result<Vec<Entry>> {
        read_entries(&self.inner.log, start, bytes_max)
    }
}

/// Builds a batch of the entries, in memory that the thread keeps, and appends it.
fn in_one_batch(
    entries: &[&[u8]],
    producer: Option<ProducerRef>,
    append: impl FnOnce(&Batch<'_>) -> Result<Appended>,
) -> Result<Appended> {
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
        return Err(Error::TooLarge { bytes: entries.len() as u64, bytes_max: ENTRIES_MAX as u64 });
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

/// A batch of one entry with a key, in memory that is given.
fn keyed_batch<'a>(key: &[u8], data: Option<&[u8]>, bytes: &'a mut Vec<u8>) -> Result<Batch<'a>> {
    Ok(BatchBuilder::new().push(Some(key), data, now_ms(), &[]).build_in(bytes)?)
}

/// What a batch of entries takes at most.
fn batch_bytes(entries: &[&[u8]]) -> u64 {
    let entry_bytes = |data: &&[u8]| data.len() as u64 + ENTRY_EXTRA_BYTES_MAX;
    HEADER_BYTES as u64 + entries.iter().map(entry_bytes).sum::<u64>()
}

/// Entries one after the other in as few parts as take no more than so many bytes each; a larger entry is one alone.
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

/// What an entry takes besides its bytes at most: lengths, deltas, no key, no headers.
const ENTRY_EXTRA_BYTES_MAX: u64 = 32;
/// So much of a group is in memory at a time, where its entries are not larger.
const PART_BYTES: u64 = 64 << 20;

/// A thread that once built a larger batch gives the memory back.
const BUILDING_BYTES_KEPT: usize = 8 << 20;
