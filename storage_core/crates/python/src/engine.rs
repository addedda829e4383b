//! `Walrus`: the storage engine inside this process, by topic names.
//!
//! Entries are borrowed from the caller's `bytes` (other buffers are copied) while the interpreter lock is released, where
//! there is anything to wait for.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyDict, PyRange};
use walrus_log::batch::ProducerRef;
use walrus_log::{
    AppendReceipt, Error, Floor, FloorReason, FsyncSchedule, Offset, Options, ReadConsistency, Retention,
    SyncedWrites, Topic,
};

use crate::completions::Completions;
use crate::cursor::{Cursor, Wait};
use crate::entries::{EntryBatch, Packed, QUICK_BYTES_MAX, ReadEntry, bytes_of, to_python};
use crate::error::Result;

/// The storage engine inside this process: a store whose logs are topics. Threads share it.
///
/// A topic is made by its first append, or by `make_topic`; offsets count its entries from 0. What can only be said of
/// one that is there raises `RejectedError` with the reason `UnknownTopic`.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct Walrus {
    walrus: walrus_log::Walrus,
    /// How it was opened, for people.
    opened: String,
}

#[pymethods]
impl Walrus {
    /// Opens the store of a directory, which is made if it is not there; with `key` that of a namespace below it.
    ///
    /// `backend` is auto, mmap, direct or io_uring. `fsync` is each (an append that returned is durable), never, or
    /// `<n>ms`. With `persist_every` the place where a read begins is stored once in so many entries, and the end at
    /// close: at most that many, or those of the last read, come again after a crash; that holds for one reader of a
    /// cursor at a time, since each read says that all that was given before is done. Without, each is given once. The
    /// sizes are those of a new store (10 MiB, 100). Raises `Locked`, `UnsupportedFormat`, `CorruptionError`,
    /// `RejectedError` for wrong options, `OSError`.
    #[staticmethod]
    #[pyo3(signature = (
        directory, *, key=None, backend="auto", fsync="each", persist_every=None, block_bytes=None, blocks_per_file=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn open(
        py: Python<'_>,
        directory: PathBuf,
        key: Option<String>,
        backend: &str,
        fsync: &str,
        persist_every: Option<u32>,
        block_bytes: Option<u64>,
        blocks_per_file: Option<u32>,
    ) -> Result<Self> {
        let defaults = Options::default();
        let options = Options {
            backend: backend.parse()?,
            fsync: fsync.parse::<FsyncSchedule>().map_err(Error::from)?,
            block_bytes: block_bytes.unwrap_or(defaults.block_bytes),
            blocks_per_file: blocks_per_file.unwrap_or(defaults.blocks_per_file),
            ..defaults
        };
        let consistency = persist_every.map_or(ReadConsistency::StrictlyAtOnce, |persist_every| {
            ReadConsistency::AtLeastOnce { persist_every }
        });
        let builder = walrus_log::Walrus::builder().options(options).consistency(consistency);
        let opened = match &key {
            Some(key) => format!("{directory:?}, key {key:?}"),
            None => format!("{directory:?}"),
        };
        let builder = match key {
            Some(key) => builder.data_dir(directory).key(key),
            None => builder.directory(directory),
        };
        let walrus = py.detach(|| builder.build())?;
        Ok(Self { walrus, opened })
    }

    /// The backend in use, and why another one that was asked for is not.
    #[getter]
    fn backend(&self) -> Result<(&'static str, Option<String>)> {
        let backend = self.get()?.store().backend();
        Ok((backend.name, backend.refused))
    }

    /// How commits write what they sync, `direct` or `cached`, and why not `direct`.
    #[getter]
    fn synced_writes(&self) -> Result<(&'static str, Option<String>)> {
        let ways = self.get()?.store().backend().synced_writes;
        let name = ways.name();
        Ok(match ways {
            SyncedWrites::Direct => (name, None),
            SyncedWrites::Cached { reason } => (name, Some(reason)),
        })
    }

    /// Appends an entry, as durably as `fsync` says, and gives its offset.
    fn append(&self, py: Python<'_>, topic: &str, data: &Bound<'_, PyAny>) -> Result<u64> {
        let walrus = self.get()?;
        let data = bytes_of(data)?;
        if data.len() <= QUICK_BYTES_MAX
            && let Some(topic) = walrus.find(topic)
            && topic.log().appends_at_once()
        {
            return Ok(topic.append(&data)?.0);
        }
        Ok(py.detach(|| walrus.append_for_topic(topic, &data))?.0)
    }

    /// Appends an entry with a key: a compaction keeps the last of each. Data `None` says that the key is gone.
    fn append_keyed(
        &self,
        py: Python<'_>,
        topic: &str,
        key: &Bound<'_, PyAny>,
        data: Option<&Bound<'_, PyAny>>,
    ) -> Result<u64> {
        let walrus = self.get()?;
        let (key, data) = (bytes_of(key)?, data.map(bytes_of).transpose()?);
        let append = || walrus.append_keyed_for_topic(topic, &key, data.as_deref());
        Ok(py.detach(append)?.0)
    }

    /// Keeps the last entry of each key, in blocks that are filled; offsets stay, appends and reads go on meanwhile.
    ///
    /// Entries without a key stay. One that says that its key is gone goes when it is so old, unless damage or a batch
    /// that cannot be read lies in front of it, where an older entry of the key may be. Compressed batches are opened,
    /// and stay compressed. Gives how many entries went and how many bytes of the disk with them. Raises
    /// `RetryableError` where a disk is full: what was done so far stays.
    #[pyo3(signature = (topic, *, tombstone_delay_s = 86400.0))]
    fn compact(&self, py: Python<'_>, topic: &str, tombstone_delay_s: f64) -> Result<(u64, u64)> {
        let walrus = self.get()?;
        let delay = Duration::try_from_secs_f64(tombstone_delay_s)
            .map_err(|error| PyValueError::new_err(format!("tombstone_delay_s: {error}")))?;
        let compacted = py.detach(|| walrus.compact(topic, delay))?.unwrap_or_default();
        Ok((compacted.records, compacted.bytes))
    }

    /// Appends up to 2,000 entries: all of them are there, or none. Gives their offsets.
    fn append_many<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        entries: Vec<Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyRange>> {
        let walrus = self.get()?;
        let entries = all_bytes_of(&entries)?;
        let offsets = py.detach(|| {
            let entries: Vec<&[u8]> = entries.iter().map(AsRef::as_ref).collect();
            walrus.batch_append_for_topic(topic, &entries)
        })?;
        Ok(to_range(py, offsets.start, offsets.end)?)
    }

    /// Appends entries of one buffer as `append_many` does: entry i from `positions[i]` to `positions[i + 1]`.
    ///
    /// `positions` are integers of 64 or 32 bits, one more than entries, as Arrow's offsets are: of an
    /// `array.array("q")`, a NumPy array; plain bytes, as those of a `pyarrow.Buffer`, are int64. Items of another kind
    /// raise `TypeError`. `bytes` are not copied before they are in the batch.
    fn append_packed<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        data: &Bound<'py, PyAny>,
        positions: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyRange>> {
        let walrus = self.get()?;
        let packed = Packed::new(data, positions)?;
        let offsets = py.detach(|| walrus.batch_append_for_topic(topic, &packed.entries()))?;
        Ok(to_range(py, offsets.start, offsets.end)?)
    }

    /// Appends as `append_many` does, without waiting: `completions` tells the id when done; `None` if it is.
    fn submit<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        entries: Vec<Bound<'py, PyAny>>,
        completions: &Completions,
    ) -> Result<(Bound<'py, PyRange>, Option<u64>)> {
        let walrus = self.get()?;
        let entries = all_bytes_of(&entries)?;
        let appended = py.detach(|| {
            let entries: Vec<&[u8]> = entries.iter().map(AsRef::as_ref).collect();
            walrus.submit_for_topic(topic, &entries)
        })?;
        submitted(py, appended, completions)
    }

    /// Appends as `append_packed` does, without waiting; see `submit`.
    fn submit_packed<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        data: &Bound<'py, PyAny>,
        positions: &Bound<'py, PyAny>,
        completions: &Completions,
    ) -> Result<(Bound<'py, PyRange>, Option<u64>)> {
        let walrus = self.get()?;
        let packed = Packed::new(data, positions)?;
        let appended = py.detach(|| walrus.submit_for_topic(topic, &packed.entries()))?;
        submitted(py, appended, completions)
    }

    /// Appends entries that a producer may send again when it does not know whether they were stored.
    ///
    /// What it sends again with the same `sequence`, as one of its last five calls, is not stored again: the offsets
    /// are those of the first time, and True says so; also after a restart. `producer` is its number in this topic, and
    /// `sequence` how many entries of this `epoch` it has sent there before. A higher epoch begins at 0, and locks out
    /// the lower ones. Raises `RejectedError` with the reason `OutOfOrderSequence` (the fact `expected` says what comes
    /// next), `ProducerFenced`, or `TooLarge` for more than one batch holds; `RetryableError` (`TooManyProducers`).
    #[pyo3(signature = (topic, entries, *, producer, epoch=0, sequence))]
    fn append_once<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        entries: Vec<Bound<'py, PyAny>>,
        producer: i64,
        epoch: i16,
        sequence: i32,
    ) -> Result<(Bound<'py, PyRange>, bool)> {
        let producer = ProducerRef { id: producer, epoch, base_sequence: sequence };
        let AppendReceipt { base_offset, end_offset, duplicate, commit } =
            self.send_once(py, topic, &entries, producer)?;
        py.detach(|| commit.wait())?;
        Ok((to_range(py, base_offset, end_offset)?, duplicate))
    }

    /// Appends as `append_once` does, without waiting; see `submit`.
    #[pyo3(signature = (topic, entries, completions, *, producer, epoch=0, sequence))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn submit_once<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        entries: Vec<Bound<'py, PyAny>>,
        completions: &Completions,
        producer: i64,
        epoch: i16,
        sequence: i32,
    ) -> Result<(Bound<'py, PyRange>, bool, Option<u64>)> {
        let producer = ProducerRef { id: producer, epoch, base_sequence: sequence };
        let appended = self.send_once(py, topic, &entries, producer)?;
        let duplicate = appended.duplicate;
        let (offsets, wait) = submitted(py, appended, completions)?;
        Ok((offsets, duplicate, wait))
    }

    /// Has `completions` say when the topic has an entry at an offset, or for its default cursor (`None`).
    ///
    /// A topic that is not there is waited for, and not made. See `submit`.
    fn expect(
        &self,
        py: Python<'_>,
        topic: &str,
        offset: Option<u64>,
        completions: &Completions,
    ) -> Result<Option<u64>> {
        let walrus = self.get()?;
        // A read may be moving the cursor; it is waited for without the interpreter lock.
        let at_cursor = || Some(walrus.find(topic)?.cursor().position());
        let offset = offset.map(Offset).or_else(|| py.detach(at_cursor));
        completions.add_arrival(walrus.arrival(topic, offset))
    }

    /// Reads offset and data of the next entry of the topic's default cursor; see `Cursor.read_next`.
    #[pyo3(signature = (topic, *, checkpoint=true))]
    fn read_next<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        checkpoint: bool,
    ) -> Result<Option<ReadEntry<'py>>> {
        let walrus = self.get()?;
        let entry = py.detach(|| walrus.read_next(topic, checkpoint))?;
        Ok(entry.map(|entry| to_python(py, &entry)).transpose()?)
    }

    /// Reads the next entries of the default cursor, about `bytes_max` bytes; see `Cursor.read_batch`.
    ///
    /// With `start_offset` it reads from there on, and no cursor moves. Raises `OffsetOutOfRange`, `CorruptionError`.
    #[pyo3(signature = (topic, bytes_max=1_048_576, *, checkpoint=true, start_offset=None))]
    fn read_batch(
        &self,
        py: Python<'_>,
        topic: &str,
        bytes_max: usize,
        checkpoint: bool,
        start_offset: Option<u64>,
    ) -> Result<EntryBatch> {
        let walrus = self.get()?;
        let start = start_offset.map(Offset);
        py.detach(|| Ok(walrus.batch_read_for_topic(topic, bytes_max, checkpoint, start)?.into()))
    }

    /// Waits up to `timeout` seconds until the default cursor has an entry to read; see `Cursor.wait`.
    ///
    /// A topic that is not there is waited for, too, and not made.
    fn wait(&self, py: Python<'_>, topic: &str, timeout: f64) -> Result<bool> {
        let walrus = self.get()?;
        let until = Wait::new(timeout)?;
        until.run(py, |time| walrus.wait_for_data(topic, time))
    }

    /// A cursor of a topic that exists. A new one stands at the topic's start.
    fn cursor(&self, py: Python<'_>, topic: &str, name: &str) -> Result<Cursor> {
        let walrus = self.get()?;
        let cursor = py.detach(|| walrus.cursor(topic, name))?;
        Ok(Cursor { walrus: walrus.clone(), topic: topic.to_owned(), cursor })
    }

    /// Names and places of the cursors that were stored.
    fn cursors<'py>(&self, py: Python<'py>, topic: &str) -> Result<Bound<'py, PyDict>> {
        let walrus = self.get()?;
        let cursors = PyDict::new(py);
        if let Some(topic) = find(py, walrus, topic) {
            for (name, at) in topic.log().cursors() {
                cursors.set_item(name, at.0)?;
            }
        }
        Ok(cursors)
    }

    /// Forgets a cursor, durably.
    fn delete_cursor(&self, py: Python<'_>, topic: &str, name: &str) -> Result<()> {
        let walrus = self.get()?;
        let Some(topic) = find(py, walrus, topic) else { return Ok(()) };
        Ok(py.detach(|| topic.log().delete_cursor(name))?)
    }

    /// Names of the topics, sorted.
    fn topics(&self) -> Result<Vec<String>> {
        Ok(self.get()?.topics())
    }

    /// Makes a topic, durably, as its first append would; nothing changes if it is there.
    fn make_topic(&self, py: Python<'_>, topic: &str) -> Result<()> {
        let walrus = self.get()?;
        Ok(py.detach(|| walrus.topic(topic)).map(drop)?)
    }

    /// Deletes a topic and its cursors, durably. False means that there was none.
    fn delete_topic(&self, py: Python<'_>, topic: &str) -> Result<bool> {
        let walrus = self.get()?;
        Ok(py.detach(|| walrus.delete_topic(topic))?)
    }

    /// Offsets that can be read; empty where there is no topic.
    fn offsets<'py>(&self, py: Python<'py>, topic: &str) -> Result<Bound<'py, PyRange>> {
        let walrus = self.get()?;
        let log = find(py, walrus, topic).map(|topic| topic.log().clone());
        let nothing = (Offset(0), Offset(0));
        let (start, end) = log.map_or(nothing, |log| (log.start_offset(), log.durable_offset()));
        Ok(to_range(py, start, end)?)
    }

    /// Number of entries that the default cursor has not consumed.
    fn unread(&self, py: Python<'_>, topic: &str) -> Result<u64> {
        let walrus = self.get()?;
        Ok(py.detach(|| walrus.get_topic_entry_count(topic)))
    }

    /// Bytes of the topic's batches on the disk.
    fn size_bytes(&self, topic: &str) -> Result<u64> {
        Ok(self.get()?.get_topic_size(topic))
    }

    /// Calls the topic clean until its next append, durably.
    fn mark_clean(&self, py: Python<'_>, topic: &str) -> Result<()> {
        let walrus = self.get()?;
        Ok(py.detach(|| walrus.mark_topic_clean(topic))?)
    }

    /// Calls the topic dirty until it is called clean, durably.
    fn mark_dirty(&self, py: Python<'_>, topic: &str) -> Result<()> {
        let walrus = self.get()?;
        Ok(py.detach(|| walrus.mark_topic_dirty(topic))?)
    }

    /// Tells what the open found, and what it cut, fenced, moved aside, moved back or made again.
    ///
    /// `clean`: the store was closed in order. `lost_something`: something below may have been promised. `torn_tails`:
    /// bytes cut from the end of logs, and the file that they are in now. `damaged`: ranges of offsets that cannot be
    /// read. `lost_end`: the journal ended before what it had promised (else `None`); `logs_found` are those that only
    /// their blocks knew, seals, trims, deletions and moves of cursors may be forgotten, and a cursor that must not
    /// give an entry twice raises `CorruptionError` with the reason `DoubtedCursor` until it is sought.
    /// `unknown_blocks`, `cut_files`, `unsynced_logs`, `moved_cursors`, `made_again`, `journal_cut_bytes`: as
    /// `walrus log inspect` has them in JSON.
    fn recovery<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(crate::json::to_python(py, &self.get()?.recovery().to_json())?)
    }

    /// Whether nothing was appended since the topic was called clean. One that is not there is clean.
    fn is_clean(&self, topic: &str) -> Result<bool> {
        Ok(self.get()?.topic_is_clean(topic))
    }

    /// Says what the topic forgets in the background, until the store is closed.
    ///
    /// Whole blocks go: those older than `age_s` seconds, the oldest while `bytes` stay, those that all cursors of
    /// `consumed_by` have passed; but nothing that a cursor of `pinned_by` has not passed.
    #[pyo3(signature = (topic, *, age_s=None, bytes=None, consumed_by=None, pinned_by=None))]
    fn set_retention(
        &self,
        py: Python<'_>,
        topic: &str,
        age_s: Option<u64>,
        bytes: Option<u64>,
        consumed_by: Option<Vec<String>>,
        pinned_by: Option<Vec<String>>,
    ) -> Result<()> {
        let walrus = self.get()?;
        let (consumed_by, pinned_by) = (consumed_by.unwrap_or_default(), pinned_by.unwrap_or_default());
        let retention = Retention { age: age_s.map(Duration::from_secs), bytes, consumed_by, pinned_by };
        Ok(py.detach(|| walrus.set_topic_retention(topic, retention))?)
    }

    /// Forgets entries below an offset, durably. Gives where the topic begins now, and why there.
    ///
    /// The reason is trim, nothing (it began there), or `held by` and the name of a cursor that is pinned.
    fn trim(&self, py: Python<'_>, topic: &str, before: u64) -> Result<(u64, String)> {
        let walrus = self.get()?;
        let floor = py.detach(|| walrus.trim(topic, Offset(before)))?;
        Ok(floor
            .map_or((0, "nothing".to_owned()), |Floor { offset, reason }| (offset.0, reason_text(&reason))))
    }

    /// Syncs and closes; what comes later is refused. A second call does nothing.
    fn close(&self, py: Python<'_>) -> Result<()> {
        Ok(py.detach(|| self.walrus.close())?)
    }

    fn __repr__(&self) -> String {
        let Self { walrus, opened } = self;
        match walrus.store().check_open() {
            Ok(()) => format!(
                "<Walrus {opened}: {} topics, {}>",
                walrus.topics().len(),
                walrus.store().backend().name
            ),
            Err(error) => format!("<Walrus {opened}: {error}>"),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> Result<()> {
        match py.detach(|| self.walrus.close()) {
            // A forked child leaves the block of its parent: there is nothing of its own to close.
            Err(Error::Forked) => Ok(()),
            closed => Ok(closed?),
        }
    }
}

impl Walrus {
    /// The engine, where it answers: every call asks for it before it does anything.
    fn get(&self) -> Result<&walrus_log::Walrus> {
        self.walrus.store().check_open()?;
        Ok(&self.walrus)
    }

    fn send_once(
        &self,
        py: Python<'_>,
        topic: &str,
        entries: &[Bound<'_, PyAny>],
        producer: ProducerRef,
    ) -> Result<AppendReceipt> {
        let walrus = self.get()?;
        let entries = all_bytes_of(entries)?;
        Ok(py.detach(|| {
            let entries: Vec<&[u8]> = entries.iter().map(AsRef::as_ref).collect();
            walrus.submit_once_for_topic(topic, producer, &entries)
        })?)
    }
}

/// The topic of this name, if there is one.
fn find(py: Python<'_>, walrus: &walrus_log::Walrus, name: &str) -> Option<Topic> {
    py.detach(|| walrus.find(name))
}

fn all_bytes_of(entries: &[Bound<'_, PyAny>]) -> PyResult<Vec<PyBackedBytes>> {
    entries.iter().map(bytes_of).collect()
}

/// The offsets of the entries that were appended, and the id to wait for.
fn submitted<'py>(
    py: Python<'py>,
    appended: AppendReceipt,
    completions: &Completions,
) -> Result<(Bound<'py, PyRange>, Option<u64>)> {
    let offsets = to_range(py, appended.base_offset, appended.end_offset)?;
    Ok((offsets, completions.add_commit(appended.commit)?))
}

fn to_range(py: Python<'_>, start: Offset, end: Offset) -> PyResult<Bound<'_, PyRange>> {
    let signed = |offset: Offset| isize::try_from(offset.0).expect("offsets are below 2^63");
    PyRange::new(py, signed(start), signed(end))
}

fn reason_text(reason: &FloorReason) -> String {
    match reason {
        FloorReason::Nothing => "nothing".to_owned(),
        FloorReason::Trim => "trim".to_owned(),
        FloorReason::Age => "age".to_owned(),
        FloorReason::Bytes => "bytes".to_owned(),
        FloorReason::Consumed => "consumed".to_owned(),
        FloorReason::Held { by } => format!("held by {by}"),
    }
}
