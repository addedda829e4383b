//! `Walrus` and `Cursor`: the storage engine inside this process, by topic names.
//!
//! Entries are borrowed from the caller's `bytes` (a `bytearray` is copied) while the interpreter lock is released.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyRange};
use walrus_log::{Entry, Offset, Options};

use crate::error::Result;

/// A store whose logs are topics.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct Walrus {
    walrus: walrus_log::Walrus,
}

/// A named, durable place in a topic.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct Cursor {
    cursor: walrus_log::Cursor,
}

#[pymethods]
impl Walrus {
    #[staticmethod]
    #[pyo3(signature = (directory, *, backend="auto", fsync="each", block_bytes=None, blocks_per_file=None))]
    fn open(
        py: Python<'_>,
        directory: PathBuf,
        backend: &str,
        fsync: &str,
        block_bytes: Option<u64>,
        blocks_per_file: Option<u32>,
    ) -> Result<Self> {
        let defaults = Options::default();
        let options = Options {
            backend: backend.parse()?,
            fsync: fsync.parse()?,
            block_bytes: block_bytes.unwrap_or(defaults.block_bytes),
            blocks_per_file: blocks_per_file.unwrap_or(defaults.blocks_per_file),
            ..defaults
        };
        let walrus = py.detach(|| walrus_log::Walrus::open(directory, options))?;
        Ok(Self { walrus })
    }

    fn append_for_topic(&self, py: Python<'_>, topic: &str, data: PyBackedBytes) -> Result<u64> {
        Ok(py.detach(|| self.walrus.append_for_topic(topic, &data))?.0)
    }

    fn batch_append_for_topic<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        entries: Vec<PyBackedBytes>,
    ) -> Result<Bound<'py, PyRange>> {
        let offsets = py.detach(|| {
            let entries: Vec<&[u8]> = entries.iter().map(AsRef::as_ref).collect();
            self.walrus.batch_append_for_topic(topic, &entries)
        })?;
        let signed = |offset: Offset| isize::try_from(offset.0).expect("offsets are below 2^63");
        Ok(PyRange::new(py, signed(offsets.start), signed(offsets.end))?)
    }

    #[pyo3(signature = (topic, *, checkpoint=true))]
    fn read_next<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        checkpoint: bool,
    ) -> Result<Option<ReadEntry<'py>>> {
        let entry = py.detach(|| self.walrus.read_next(topic, checkpoint))?;
        Ok(entry.map(|entry| to_python(py, &entry)))
    }

    #[pyo3(signature = (topic, bytes_max, *, checkpoint=true, start_offset=None))]
    fn batch_read_for_topic<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        bytes_max: usize,
        checkpoint: bool,
        start_offset: Option<u64>,
    ) -> Result<Vec<ReadEntry<'py>>> {
        let start = start_offset.map(Offset);
        let entries = py.detach(|| self.walrus.batch_read_for_topic(topic, bytes_max, checkpoint, start))?;
        Ok(entries.iter().map(|entry| to_python(py, entry)).collect())
    }

    fn cursor(&self, py: Python<'_>, topic: &str, name: &str) -> Result<Cursor> {
        Ok(Cursor { cursor: py.detach(|| self.walrus.cursor(topic, name))? })
    }

    fn topics(&self) -> Vec<String> {
        self.walrus.topics()
    }

    fn delete_topic(&self, py: Python<'_>, topic: &str) -> Result<bool> {
        Ok(py.detach(|| self.walrus.delete_topic(topic))?)
    }

    fn close(&self, py: Python<'_>) -> Result<()> {
        Ok(py.detach(|| self.walrus.close())?)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> Result<()> {
        self.close(py)
    }
}

#[pymethods]
impl Cursor {
    #[getter]
    fn name(&self) -> &str {
        self.cursor.name()
    }

    #[getter]
    fn position(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.cursor.position()).0
    }

    #[pyo3(signature = (*, checkpoint=true))]
    fn read_next<'py>(&self, py: Python<'py>, checkpoint: bool) -> Result<Option<ReadEntry<'py>>> {
        let entry = py.detach(|| self.cursor.read_next(checkpoint))?;
        Ok(entry.map(|entry| to_python(py, &entry)))
    }

    #[pyo3(signature = (bytes_max, *, checkpoint=true))]
    fn batch_read<'py>(
        &self,
        py: Python<'py>,
        bytes_max: usize,
        checkpoint: bool,
    ) -> Result<Vec<ReadEntry<'py>>> {
        let entries = py.detach(|| self.cursor.batch_read(bytes_max, checkpoint))?;
        Ok(entries.iter().map(|entry| to_python(py, entry)).collect())
    }

    fn seek(&self, py: Python<'_>, offset: u64) -> Result<()> {
        Ok(py.detach(|| self.cursor.seek(Offset(offset)))?)
    }
}

/// Offset and data.
type ReadEntry<'py> = (u64, Bound<'py, PyBytes>);

fn to_python<'py>(py: Python<'py>, entry: &Entry) -> ReadEntry<'py> {
    (entry.offset.0, PyBytes::new(py, &entry.data))
}
