//! Topics by name, entries of bytes: the engine as embedders use it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use uuid::Uuid;

use crate::batch::BatchBuilder;
use crate::cursors::{Cursor, ENTRIES_MAX, Entry, read_entries};
use crate::error::{Error, Result};
use crate::log::{Log, LogSpec};
use crate::options::Options;
use crate::producers::ProducerTable;
use crate::store::Store;
use crate::types::{Epoch, LogId, Offset};

/// The cursor of the calls that name none.
const DEFAULT_CURSOR: &str = "default";

/// A store whose logs are topics. Clones share it.
#[derive(Clone)]
pub struct Walrus {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
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
    /// Opens the store of a directory; its logs are the topics. Errors as [`Store::open`].
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::new(Store::open(directory, options)?)
    }

    /// Serves an open store. Of logs with the same name the one with the lowest id is the topic.
    pub fn new(store: Store) -> Result<Self> {
        let mut topics = HashMap::new();
        for log in store.logs() {
            let name = log.name().to_owned();
            let topic = Topic::new(log)?;
            topics.entry(name).or_insert(topic);
        }
        Ok(Self { inner: Arc::new(Inner { store, topics: RwLock::new(topics), making: Mutex::new(()) }) })
    }

    /// The store below.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The topic of a name, made now if it is not there: 1 to 255 bytes without NUL.
    pub fn topic(&self, name: &str) -> Result<Topic> {
        if let Some(topic) = self.find(name) {
            return Ok(topic);
        }
        let _making = self.inner.making.lock();
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
        let topic = Topic::new(self.inner.store.create_log(spec)?)?;
        self.inner.topics.write().insert(name.to_owned(), topic.clone());
        Ok(topic)
    }

    fn find(&self, name: &str) -> Option<Topic> {
        self.inner.topics.read().get(name).cloned()
    }

    /// Names of the topics, sorted.
    pub fn topics(&self) -> Vec<String> {
        let mut names: Vec<_> = self.inner.topics.read().keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// Deletes a topic and its cursors; durable on return. False: there was none.
    pub fn delete_topic(&self, name: &str) -> Result<bool> {
        let _making = self.inner.making.lock();
        let Some(topic) = self.find(name) else { return Ok(false) };
        self.inner.store.delete_log(topic.inner.log.id())?;
        self.inner.topics.write().remove(name);
        Ok(true)
    }

    /// Appends an entry, durably as the schedule says, and gives its offset. Makes the topic if it is not there.
    pub fn append_for_topic(&self, topic: &str, data: &[u8]) -> Result<Offset> {
        self.topic(topic)?.append(data)
    }

    /// Appends up to 2,000 entries as one batch: all of them are there, or none. Gives their offsets.
    pub fn batch_append_for_topic(&self, topic: &str, entries: &[&[u8]]) -> Result<Range<Offset>> {
        self.topic(topic)?.batch_append(entries)
    }

    /// The next entry of the topic's default cursor; see [`Cursor::read_next`]. `None` also where there is no topic.
    pub fn read_next(&self, topic: &str, checkpoint: bool) -> Result<Option<Entry>> {
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
        let Some(topic) = self.find(topic) else { return Ok(Vec::new()) };
        match start_offset {
            None => topic.inner.cursor.batch_read(bytes_max, checkpoint),
            Some(start) => topic.read_at(start, bytes_max),
        }
    }

    /// A cursor of a topic, by name.
    pub fn cursor(&self, topic: &str, name: &str) -> Result<Cursor> {
        self.topic(topic)?.inner.log.cursor(name)
    }

    /// Closes the store; see [`Store::close`].
    pub fn close(&self) -> Result<()> {
        self.inner.store.close()
    }
}

impl Topic {
    fn new(log: Log) -> Result<Self> {
        let cursor = log.cursor(DEFAULT_CURSOR)?;
        Ok(Self { inner: Arc::new(TopicInner { log, cursor }) })
    }

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

    /// See [`Walrus::batch_append_for_topic`].
    pub fn batch_append(&self, entries: &[&[u8]]) -> Result<Range<Offset>> {
        if entries.len() > ENTRIES_MAX {
            return Err(Error::TooLarge { bytes: entries.len() as u64, bytes_max: ENTRIES_MAX as u64 });
        }
        if entries.is_empty() {
            let end = self.inner.log.end_offset();
            return Ok(end..end);
        }
        self.append_batch(entries)
    }

    fn append_batch(&self, entries: &[&[u8]]) -> Result<Range<Offset>> {
        let appended = BUILDING.with_borrow_mut(|(builder, bytes)| {
            let now = now_ms();
            for data in entries {
                builder.push(None, Some(data), now, &[]);
            }
            let batch = builder.build_in(bytes)?;
            let appended = self.inner.log.append(&batch);
            if bytes.capacity() > BUILDING_BYTES_KEPT {
                (*builder, *bytes) = Default::default();
            }
            appended
        })?;
        appended.commit.wait()?;
        Ok(appended.base_offset..appended.end_offset)
    }

    /// Entries from an offset on; moves no cursor.
    pub fn read_at(&self, start: Offset, bytes_max: usize) -> Result<Vec<Entry>> {
        read_entries(&self.inner.log, start, bytes_max)
    }
}

/// A thread that once built a larger batch gives the memory back.
const BUILDING_BYTES_KEPT: usize = 8 << 20;

fn now_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}
