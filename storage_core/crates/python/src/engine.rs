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
    Appended, Error, Floor, FloorReason, FsyncSchedule, Offset, Options, ReadConsistency, Retention, Topic,
};

use crate::completions::Completions;
use crate::cursor::{Cursor, Wait};
use crate::entries::{EntryBatch, Packed, QUICK_BYTES_MAX, ReadEntry, bytes_of, to_python};
use crate::error::Result;

/// A store whose logs are topics.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct Walrus {
    walrus: walrus_log::Walrus,
}

#[pymethods]
impl Walrus {
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
            fsync: fsync.parse::<FsyncSchedule>()?,
            block_bytes: block_bytes.unwrap_or(defaults.block_bytes),
            blocks_per_file: blocks_per_file.unwrap_or(defaults.blocks_per_file),
            ..defaults
        };
        let consistency = persist_every.map_or(ReadConsistency::StrictlyAtOnce, |persist_every| {
            ReadConsistency::AtLeastOnce { persist_every }
        });
        let builder = walrus_log::Walrus::builder().options(options).consistency(consistency);
        let builder = match key {
            Some(key) => builder.data_dir(directory).key(key),
            None => builder.directory(directory),
        };
        let walrus = py.detach(|| builder.build())?;
        Ok(Self { walrus })
    }

    #[getter]
    fn backend(&self) -> Result<(&'static str, Option<String>)> {
        let backend = self.get()?.store().backend();
        Ok((backend.name, backend.refused))
    }

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

    #[pyo3(signature = (topic, *, tombstone_delay_s = 86400.0))]
    fn compact(&self, py: Python<'_>, topic: &str, tombstone_delay_s: f64) -> Result<(u64, u64)> {
        let walrus = self.get()?;
        let delay = Duration::try_from_secs_f64(tombstone_delay_s)
            .map_err(|error| PyValueError::new_err(format!("tombstone_delay_s: {error}")))?;
        let compacted = py.detach(|| walrus.compact(topic, delay))?.unwrap_or_default();
        Ok((compacted.records, compacted.bytes))
    }

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

    #[pyo3(signature = (topic, entries, *, producer, epoch=0, sequence))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
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
        let Appended { base_offset, end_offset, duplicate, commit } =
            self.send_once(py, topic, &entries, producer)?;
        py.detach(|| commit.wait())?;
        Ok((to_range(py, base_offset, end_offset)?, duplicate))
    }

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

    fn expect(&self, topic: &str, offset: Option<u64>, completions: &Completions) -> Result<Option<u64>> {
        completions.add_arrival(self.get()?.arrival(topic, offset.map(Offset)))
    }

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

    fn wait(&self, py: Python<'_>, topic: &str, timeout: f64) -> Result<bool> {
        let walrus = self.get()?;
        let until = Wait::new(timeout)?;
        until.run(py, |time| walrus.wait_for_data(topic, time))
    }

    fn cursor(&self, py: Python<'_>, topic: &str, name: &str) -> Result<Cursor> {
        let walrus = self.get()?;
        let cursor = py.detach(|| walrus.cursor(topic, name))?;
        Ok(Cursor { walrus: walrus.clone(), cursor })
    }

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

    fn delete_cursor(&self, py: Python<'_>, topic: &str, name: &str) -> Result<()> {
        let walrus = self.get()?;
        let Some(topic) = find(py, walrus, topic) else { return Ok(()) };
        Ok(py.detach(|| topic.log().delete_cursor(name))?)
    }

    fn topics(&self) -> Result<Vec<String>> {
        Ok(self.get()?.topics())
    }

    fn make_topic(&self, py: Python<'_>, topic: &str) -> Result<()> {
        let walrus = self.get()?;
        Ok(py.detach(|| walrus.topic(topic)).map(drop)?)
    }

    fn delete_topic(&self, py: Python<'_>, topic: &str) -> Result<bool> {
        let walrus = self.get()?;
        Ok(py.detach(|| walrus.delete_topic(topic))?)
    }

    fn offsets<'py>(&self, py: Python<'py>, topic: &str) -> Result<Bound<'py, PyRange>> {
        let walrus = self.get()?;
        let log = find(py, walrus, topic).map(|topic| topic.log().clone());
        let nothing = (Offset(0), Offset(0));
        let (start, end) = log.map_or(nothing, |log| (log.start_offset(), log.durable_offset()));
        Ok(to_range(py, start, end)?)
    }

    fn unread(&self, py: Python<'_>, topic: &str) -> Result<u64> {
        let walrus = self.get()?;
        Ok(py.detach(|| walrus.get_topic_entry_count(topic)))
    }

    fn size_bytes(&self, topic: &str) -> Result<u64> {
        Ok(self.get()?.get_topic_size(topic))
    }

    fn mark_clean(&self, py: Python<'_>, topic: &str) -> Result<()> {
        let walrus = self.get()?;
        Ok(py.detach(|| walrus.mark_topic_clean(topic))?)
    }

    fn mark_dirty(&self, py: Python<'_>, topic: &str) -> Result<()> {
        let walrus = self.get()?;
        Ok(py.detach(|| walrus.mark_topic_dirty(topic))?)
    }

    fn recovery<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(crate::json::to_python(py, &self.get()?.recovery().to_json())?)
    }

    fn is_clean(&self, topic: &str) -> Result<bool> {
        Ok(self.get()?.topic_is_clean(topic))
    }

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

    fn trim(&self, py: Python<'_>, topic: &str, before: u64) -> Result<(u64, String)> {
        let walrus = self.get()?;
        let floor = py.detach(|| walrus.trim(topic, Offset(before)))?;
        Ok(floor
            .map_or((0, "nothing".to_owned()), |Floor { offset, reason }| (offset.0, reason_text(&reason))))
    }

    fn close(&self, py: Python<'_>) -> Result<()> {
        Ok(py.detach(|| self.walrus.close())?)
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
    ) -> Result<Appended> {
        let walrus = self.get()?;
        let entries = all_bytes_of(entries)?;
        Ok(py.detach(|| {
            let entries: Vec<&[u8]> = entries.iter().map(AsRef::as_ref).collect();
            walrus.submit_once_for_topic(topic, producer, &entries)
        })?)
    }
}

/// The topic, where it is there.
fn find(py: Python<'_>, walrus: &walrus_log::Walrus, name: &str) -> Option<Topic> {
    py.detach(|| walrus.find(name))
}

fn all_bytes_of(entries: &[Bound<'_, PyAny>]) -> PyResult<Vec<PyBackedBytes>> {
    entries.iter().map(bytes_of).collect()
}

/// Offsets of what was appended, and what to wait for.
fn submitted<'py>(
    py: Python<'py>,
    appended: Appended,
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
