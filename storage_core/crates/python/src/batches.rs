//! `decode_batches` and `encode_batch`: Kafka RecordBatch v2 bytes to columns, and records to such bytes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use walrus_log::batch::{BatchBuilder, ProducerRef};

use crate::buffer::Buffer;
use crate::columns::{self, Selection};
use crate::error::Result;
use crate::page::Page;

/// Decoded records, column by column, all with `rows` rows.
#[pyclass(frozen, get_all, module = "walrus_core")]
pub(crate) struct Columns {
    /// Number of records.
    rows: usize,
    /// Offsets of the records, int64.
    offset: Py<Buffer>,
    /// Times of the records, int64, microseconds since the epoch.
    timestamp_us: Py<Buffer>,
    /// Kinds of these times, int32: 0 set by the producer (CreateTime), 1 by the broker (LogAppendTime).
    timestamp_type: Py<Buffer>,
    /// Keys of the records; absent for a record without one.
    key: Py<BinaryColumn>,
    /// Values of the records; absent for a record without one, a tombstone.
    value: Py<BinaryColumn>,
    /// Headers of the records, if they were asked for.
    headers: Option<Py<HeadersColumn>>,
    /// Position in `data` from which to go on.
    position: usize,
    /// The `start` with which to go on.
    next_offset: u64,
}

/// A column of bytes in the layout of Arrow's `binary`.
#[pyclass(frozen, get_all, module = "walrus_core")]
pub(crate) struct BinaryColumn {
    /// Validity: one bit per row, lowest first; `None` when no row is absent.
    validity: Option<Py<Buffer>>,
    /// Number of rows that are absent.
    null_count: usize,
    /// Positions in `data`, int32, one more than rows: row i is `data[offsets[i]:offsets[i + 1]]`.
    offsets: Py<Buffer>,
    /// All values, back to back; less than 2 GiB.
    data: Py<Buffer>,
}

/// A column in the layout of Arrow's `list<struct<key: string, value: binary>>`.
#[pyclass(frozen, get_all, module = "walrus_core")]
pub(crate) struct HeadersColumn {
    /// Number of headers of all rows.
    count: usize,
    /// Places of headers, int32, one more than rows: row i has the headers `offsets[i]` to `offsets[i + 1] - 1`.
    offsets: Py<Buffer>,
    /// Keys of the headers, UTF-8; none is absent.
    key: Py<BinaryColumn>,
    /// Values of the headers; absent for a header without one.
    value: Py<BinaryColumn>,
}

type Header<'py> = (Bound<'py, PyString>, Option<Bound<'py, PyBytes>>);

/// Greatest `bytes_max`, and its default: a column stays below Arrow's 2 GiB.
const BYTES_MAX: usize = i32::MAX as usize;

/// Decodes Kafka RecordBatches v2 that lie back to back into columns that Arrow can take as they are.
///
/// Takes the records `start <= offset < end` from `position` on, checks every checksum, and stops in front of the
/// record that would bring keys, values and headers over `bytes_max` (one record is always taken). To go on, call it
/// again with `position` and `next_offset` of the answer; no rows means that nothing is left. Offsets must grow; what
/// comes a second time (where two answers of a read were joined) is left out.
/// Compressed batches (gzip, snappy, lz4, zstd) are opened, up to 256 MiB each. Raises `CorruptionError`, and
/// `InvalidBatch` where that is not possible.
#[pyfunction]
#[pyo3(signature = (data, *, position=0, start=0, end=None, bytes_max=2_147_483_647, headers=false))]
pub(crate) fn decode_batches(
    py: Python<'_>,
    data: Page,
    position: usize,
    start: u64,
    end: Option<u64>,
    bytes_max: usize,
    headers: bool,
) -> Result<Columns> {
    let data = data.as_ref();
    if position > data.len() {
        let message = format!("position {position} is behind the {} bytes of data", data.len());
        return Err(PyValueError::new_err(message).into());
    }
    let selection =
        Selection { start, end: end.unwrap_or(u64::MAX), bytes_max: bytes_max.min(BYTES_MAX), headers };
    let columns = py.detach(|| columns::decode(data, position, &selection))?;
    Ok(Columns::new(py, columns)?)
}

/// Decodes pages of Kafka RecordBatches v2 into columns, as they come and where they lie: `decode_batches` for more
/// than fits into one piece of memory. Safe to use from many threads.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct BatchDecoder(Mutex<columns::Decoder<Page>>);

#[pymethods]
impl BatchDecoder {
    #[new]
    #[pyo3(signature = (*, start=0, end=None, bytes_max=2_147_483_647, headers=false))]
    fn new(start: u64, end: Option<u64>, bytes_max: usize, headers: bool) -> Self {
        let selection =
            Selection { start, end: end.unwrap_or(u64::MAX), bytes_max: bytes_max.min(BYTES_MAX), headers };
        Self(Mutex::new(columns::Decoder::new(selection)))
    }

    /// Adds a page, which begins with a whole batch. It is kept, not copied, until it is decoded.
    fn add(&self, py: Python<'_>, page: Page) {
        py.detach(|| self.decoder().add(page));
    }

    /// The bytes of pages that are not decoded yet.
    #[getter]
    fn waiting(&self, py: Python<'_>) -> usize {
        py.detach(|| self.decoder().waiting())
    }

    /// Decodes what is there, up to `bytes_max`; no rows where nothing is left. `position` says nothing.
    ///
    /// Raises what `decode_batches` raises, and is of no use from then on.
    fn take(&self, py: Python<'_>) -> Result<Columns> {
        let columns = py.detach(|| self.decoder().take())?;
        Ok(Columns::new(py, columns)?)
    }
}

impl BatchDecoder {
    /// Locks the decoder. It is called without the interpreter lock, for whoever decodes holds this one for long.
    fn decoder(&self) -> MutexGuard<'_, columns::Decoder<Page>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Columns {
    fn new(py: Python<'_>, columns: columns::Columns) -> PyResult<Self> {
        Ok(Self {
            rows: columns.offset.len(),
            offset: Py::new(py, Buffer::from(columns.offset))?,
            timestamp_us: Py::new(py, Buffer::from(columns.timestamp_us))?,
            timestamp_type: Py::new(py, Buffer::from(columns.timestamp_type))?,
            key: BinaryColumn::new(py, columns.key)?,
            value: BinaryColumn::new(py, columns.value)?,
            headers: columns.headers.map(|headers| HeadersColumn::new(py, headers)).transpose()?,
            position: columns.position,
            next_offset: columns.next_offset,
        })
    }
}

impl BinaryColumn {
    fn new(py: Python<'_>, column: columns::BinaryColumn) -> PyResult<Py<Self>> {
        let validity =
            (column.null_count > 0).then(|| Py::new(py, Buffer::from(column.validity))).transpose()?;
        let offsets = Py::new(py, Buffer::from(column.offsets))?;
        let data = Py::new(py, Buffer::from(column.data))?;
        Py::new(py, Self { validity, null_count: column.null_count, offsets, data })
    }
}

impl HeadersColumn {
    fn new(py: Python<'_>, column: columns::HeadersColumn) -> PyResult<Py<Self>> {
        let count = column.key.offsets.len() - 1;
        let offsets = Py::new(py, Buffer::from(column.offsets))?;
        let key = BinaryColumn::new(py, column.key)?;
        let value = BinaryColumn::new(py, column.value)?;
        Py::new(py, Self { count, offsets, key, value })
    }
}

/// Builds an uncompressed Kafka RecordBatch v2 with base offset 0.
///
/// All sequences are of one length, at least 1. Raises `InvalidBatch` where the records do not fit into one batch.
#[pyfunction]
#[pyo3(signature = (
    values, *, timestamps_ms, keys=None, headers=None, producer_id=None, producer_epoch=0, base_sequence=0
))]
#[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
pub(crate) fn encode_batch<'py>(
    py: Python<'py>,
    values: Vec<Option<Bound<'py, PyBytes>>>,
    timestamps_ms: Vec<i64>,
    keys: Option<Vec<Option<Bound<'py, PyBytes>>>>,
    headers: Option<Vec<Vec<Header<'py>>>>,
    producer_id: Option<i64>,
    producer_epoch: i16,
    base_sequence: i32,
) -> Result<Bound<'py, PyBytes>> {
    let rows = values.len();
    let lengths =
        [timestamps_ms.len(), keys.as_ref().map_or(rows, Vec::len), headers.as_ref().map_or(rows, Vec::len)];
    if lengths.iter().any(|&length| length != rows) {
        return Err(PyValueError::new_err("values, timestamps_ms, keys and headers differ in length").into());
    }
    let mut builder = BatchBuilder::new();
    let mut of_record = Vec::new();
    for (row, (value, timestamp_ms)) in values.iter().zip(timestamps_ms).enumerate() {
        let key = keys.as_ref().and_then(|keys| keys[row].as_ref());
        of_record.clear();
        for (name, value) in headers.iter().flat_map(|headers| &headers[row]) {
            of_record.push((name.to_str()?, value.as_ref().map(|value| value.as_bytes())));
        }
        builder.push(
            key.map(|key| key.as_bytes()),
            value.as_ref().map(|value| value.as_bytes()),
            timestamp_ms,
            &of_record,
        );
    }
    if let Some(id) = producer_id {
        builder.producer(ProducerRef { id, epoch: producer_epoch, base_sequence });
    }
    let mut batch = Vec::new();
    builder.build(&mut batch)?;
    Ok(PyBytes::new(py, &batch))
}
