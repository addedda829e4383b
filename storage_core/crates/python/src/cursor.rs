//! `Cursor`: a named place in a topic.

use std::time::Duration;

use pyo3::prelude::*;
use walrus_log::Offset;

use crate::entries::{EntryBatch, ReadEntry, to_python};
use crate::error::Result;

/// A named, durable place in a topic. Handles of one name share it.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct Cursor {
    pub(crate) walrus: walrus_log::Walrus,
    pub(crate) topic: String,
    pub(crate) cursor: walrus_log::Cursor,
}

impl Cursor {
    /// The place, where the engine answers: every call asks for it before it does anything.
    fn get(&self) -> Result<&walrus_log::Cursor> {
        self.walrus.store().check_open()?;
        Ok(&self.cursor)
    }
}

#[pymethods]
impl Cursor {
    /// Name of the cursor, as it was asked for.
    #[getter]
    fn name(&self) -> &str {
        self.cursor.name()
    }

    /// Offset of the next entry.
    #[getter]
    fn position(&self, py: Python<'_>) -> Result<u64> {
        let cursor = self.get()?;
        Ok(py.detach(|| cursor.position()).0)
    }

    /// Number of entries from there on.
    #[getter]
    fn unread(&self, py: Python<'_>) -> Result<u64> {
        let cursor = self.get()?;
        Ok(py.detach(|| cursor.unread()))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let (name, topic) = (self.cursor.name(), &self.topic);
        match self.get() {
            Ok(cursor) => format!("<Cursor {name:?} of {topic:?} at {}>", py.detach(|| cursor.position())),
            Err(_) => format!("<Cursor {name:?} of {topic:?}, which cannot be used here any more>"),
        }
    }

    /// Reads offset and data of the next entry; `None` at the end.
    ///
    /// With `checkpoint` the cursor moves behind it, durably, before it is returned: two readers never get the same
    /// entry. Without, it stays.
    #[pyo3(signature = (*, checkpoint=true))]
    fn read_next<'py>(&self, py: Python<'py>, checkpoint: bool) -> Result<Option<ReadEntry<'py>>> {
        let cursor = self.get()?;
        let entry = py.detach(|| cursor.read_next(checkpoint))?;
        Ok(entry.map(|entry| to_python(py, &entry)).transpose()?)
    }

    /// Reads the next entries, about `bytes_max` bytes of them: at least one, if there is one, at most 2,000.
    #[pyo3(signature = (bytes_max=1_048_576, *, checkpoint=true))]
    fn read_batch(&self, py: Python<'_>, bytes_max: usize, checkpoint: bool) -> Result<EntryBatch> {
        let cursor = self.get()?;
        py.detach(|| Ok(cursor.batch_read(bytes_max, checkpoint)?.into()))
    }

    /// Moves the cursor, durably. Raises `OffsetOutOfRange`.
    fn seek(&self, py: Python<'_>, offset: u64) -> Result<()> {
        let cursor = self.get()?;
        Ok(py.detach(|| cursor.seek(Offset(offset)))?)
    }

    /// Makes the place durable now, where `persist_every` would wait.
    fn persist(&self, py: Python<'_>) -> Result<()> {
        let cursor = self.get()?;
        Ok(py.detach(|| cursor.persist())?)
    }

    /// Waits up to `timeout` seconds for an entry to read; signals are seen meanwhile.
    ///
    /// False: none came, or none will. Raises `RejectedError` when the topic is deleted or the store closed.
    fn wait(&self, py: Python<'_>, timeout: f64) -> Result<bool> {
        let cursor = self.get()?;
        let until = Wait::new(timeout)?;
        until.run(py, |time| cursor.wait(time))
    }
}

/// A wait that signals interrupt: it is done in pieces.
pub(crate) struct Wait {
    left: Duration,
}

const PIECE: Duration = Duration::from_millis(200);

impl Wait {
    pub(crate) fn new(seconds: f64) -> PyResult<Self> {
        let invalid = |_| pyo3::exceptions::PyValueError::new_err(format!("{seconds} is no time to wait"));
        Ok(Self { left: Duration::try_from_secs_f64(seconds).map_err(invalid)? })
    }

    pub(crate) fn run(
        self,
        py: Python<'_>,
        wait: impl Fn(Duration) -> walrus_log::Result<bool> + Sync,
    ) -> Result<bool> {
        let Self { mut left } = self;
        loop {
            let piece = left.min(PIECE);
            left -= piece;
            let has_come = py.detach(|| wait(piece))?;
            py.check_signals()?;
            if has_come || left.is_zero() {
                return Ok(has_come);
            }
        }
    }
}
