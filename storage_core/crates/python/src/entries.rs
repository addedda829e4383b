//! Entries on their way in and out: borrowed or copied bytes of Python's, and batches of read entries as one buffer.

use std::ffi::c_int;
use std::ptr;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView};
use walrus_log::Entry;

use crate::buffer::Buffer;
use crate::error::Result;

/// Largest copy, in bytes, that is made with the interpreter lock held: giving the lock up takes longer than such a copy.
pub(crate) const QUICK_BYTES_MAX: usize = 64 << 10;

/// An entry that was read: its offset and its data.
pub(crate) type ReadEntry<'py> = (u64, Bound<'py, PyBytes>);

pub(crate) fn to_python<'py>(py: Python<'py>, entry: &Entry) -> PyResult<ReadEntry<'py>> {
    Ok((entry.offset.0, copied(py, &entry.data)?))
}

/// Bytes that can be read without the interpreter lock: those of a `bytes` as they are, of anything else a copy.
#[expect(unsafe_code, reason = "memory that an object exports is read")]
pub(crate) fn bytes_of(data: &Bound<'_, PyAny>) -> PyResult<PyBackedBytes> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(bytes.clone().into());
    }
    // The copy goes by way of the object's buffer: `bytes(5)` would be five zeros, while a number has no buffer.
    let buffer = PyUntypedBuffer::get(data)?;
    if buffer.is_c_contiguous() {
        // SAFETY: the memory stays as long as `buffer` does.
        let copy = unsafe { copy_of(data.py(), buffer.buf_ptr().cast_const().cast(), buffer.len_bytes()) };
        return Ok(copy?.into());
    }
    let gathered = PyMemoryView::from(data)?.call_method0("tobytes")?;
    Ok(gathered.cast_into::<PyBytes>()?.into())
}

/// Bytes as an object of Python's; many are copied without the interpreter lock.
#[expect(unsafe_code, reason = "an object is filled while other threads run")]
fn copied<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    // SAFETY: the slice stays until this returns.
    unsafe { copy_of(py, bytes.as_ptr(), bytes.len()) }
}

/// A copy of memory, made without the interpreter lock where it takes long.
///
/// # Safety
/// The memory can be read until this returns. Who writes to it meanwhile (a `bytearray` may be written by another thread)
/// decides which of its bytes are in the copy.
#[expect(unsafe_code, reason = "an object is filled while other threads run")]
unsafe fn copy_of<'py>(py: Python<'py>, source: *const u8, length: usize) -> PyResult<Bound<'py, PyBytes>> {
    let size = isize::try_from(length).expect("no memory is longer");
    // SAFETY: a new object with room for so many bytes. Nobody else has it before this returns, so it may be filled.
    let (bytes, target) = unsafe {
        let new = ffi::PyBytes_FromStringAndSize(ptr::null(), size);
        (Bound::from_owned_ptr_or_err(py, new)?, ffi::PyBytes_AsString(new))
    };
    let copying = Copying { source, target: target.cast(), length };
    if length <= QUICK_BYTES_MAX {
        copying.run();
    } else {
        py.detach(|| copying.run());
    }
    Ok(bytes.cast_into::<PyBytes>()?)
}

/// A copy from memory that can be read to memory that is written by this alone.
struct Copying {
    source: *const u8,
    target: *mut u8,
    length: usize,
}

// SAFETY: whoever makes the copy is the only one that uses the pointers.
#[expect(unsafe_code, reason = "pointers go where the interpreter lock is not held")]
unsafe impl Send for Copying {}

impl Copying {
    #[expect(unsafe_code, reason = "memory is copied")]
    fn run(self) {
        if self.length > 0 {
            // SAFETY: what the fields say; a new object overlaps with nothing.
            unsafe { ptr::copy_nonoverlapping(self.source, self.target, self.length) }
        }
    }
}

/// Entries that lie back to back in one buffer.
pub(crate) struct Packed {
    data: PyBackedBytes,
    /// Positions of the entries within the data, rising, one more than entries.
    positions: Vec<usize>,
}

impl Packed {
    /// Makes entries of a buffer and of `positions`, as [`integers`] takes them. Entry i lies from position i to the next.
    pub(crate) fn new(data: &Bound<'_, PyAny>, positions: &Bound<'_, PyAny>) -> Result<Self> {
        let data = bytes_of(data)?;
        match integers(positions)? {
            Some(positions)
                if positions.is_sorted() && positions.last().is_some_and(|&last| last <= data.len()) =>
            {
                Ok(Self { data, positions })
            }
            _ => {
                let message = format!("positions must rise from 0 or more to at most {}", data.len());
                Err(PyValueError::new_err(message).into())
            }
        }
    }

    pub(crate) fn entries(&self) -> Vec<&[u8]> {
        self.positions.windows(2).map(|ends| &self.data[ends[0]..ends[1]]).collect()
    }
}

/// The 64 or 32 bit integers of any buffer; plain bytes stand for 64 bit ones. `None` if one is below 0. Items of another
/// kind are refused, for their bytes could pass for positions.
fn integers(values: &Bound<'_, PyAny>) -> PyResult<Option<Vec<usize>>> {
    let buffer = PyUntypedBuffer::get(values)?;
    let bytes = bytes_of(values)?;
    let words = || bytes.as_chunks::<8>().0.iter().copied();
    let half_words = || bytes.as_chunks::<4>().0.iter().copied();
    let format = buffer.format().to_bytes();
    // Both prefixes say that the bytes are in the machine's order.
    let item = format.strip_prefix(b"@").or(format.strip_prefix(b"=")).unwrap_or(format);
    Ok(match (item, buffer.item_size()) {
        (b"q" | b"l", 8) => unsigned(words().map(i64::from_ne_bytes)),
        (b"Q" | b"L", 8) => unsigned(words().map(u64::from_ne_bytes)),
        (b"i" | b"l", 4) => unsigned(half_words().map(i32::from_ne_bytes)),
        (b"I" | b"L", 4) => unsigned(half_words().map(u32::from_ne_bytes)),
        (b"B" | b"b" | b"c", 1) if bytes.len().is_multiple_of(8) => unsigned(words().map(i64::from_ne_bytes)),
        (b"B" | b"b" | b"c", 1) => return Err(PyValueError::new_err("positions are no 64 bit integers")),
        _ => {
            let message = format!(
                "positions have items of the format {:?}: they must be 64 or 32 bit integers, or the bytes of 64 bit ones",
                buffer.format().to_string_lossy(),
            );
            return Err(PyTypeError::new_err(message));
        }
    })
}

fn unsigned<T>(values: impl Iterator<Item = T>) -> Option<Vec<usize>>
where
    usize: TryFrom<T>,
{
    values.map(|value| usize::try_from(value).ok()).collect()
}

/// Entries that were read, in one buffer: `memoryview(batch)` has their data back to back and copies nothing.
///
/// `batch[i]` and iteration give offset and data as `read_next` does, copied.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct EntryBatch {
    offsets: Vec<i64>,
    timestamps_ms: Vec<i64>,
    /// Keys of the entries; empty where no entry has one.
    keys: Vec<Option<Vec<u8>>>,
    /// Positions of the entries in the data, one more than entries.
    positions: Vec<i64>,
    data: Vec<u8>,
}

impl From<Vec<Entry>> for EntryBatch {
    fn from(entries: Vec<Entry>) -> Self {
        let mut data = Vec::with_capacity(entries.iter().map(|entry| entry.data.len()).sum());
        let mut positions = Vec::with_capacity(entries.len() + 1);
        positions.push(0);
        for entry in &entries {
            data.extend_from_slice(&entry.data);
            positions.push(data.len().cast_signed() as i64);
        }
        let offsets = entries.iter().map(|entry| entry.offset.0.cast_signed()).collect();
        let timestamps_ms = entries.iter().map(|entry| entry.timestamp_ms).collect();
        let has_keys = entries.iter().any(|entry| entry.key.is_some());
        let keys = entries.into_iter().filter(|_| has_keys).map(|entry| entry.key.map(Vec::from)).collect();
        Self { offsets, timestamps_ms, keys, positions, data }
    }
}

#[pymethods]
impl EntryBatch {
    /// Offsets of the entries, int64.
    #[getter]
    fn offsets(&self) -> Buffer {
        self.offsets.clone().into()
    }

    /// Times at which the entries were appended, int64, since the epoch.
    #[getter]
    fn timestamps_ms(&self) -> Buffer {
        self.timestamps_ms.clone().into()
    }

    /// Keys of the entries, copied; `None` for an entry without one.
    #[getter]
    fn entry_keys<'py>(&self, py: Python<'py>) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let key_of = |place: usize| self.keys.get(place)?.as_ref().map(|key| copied(py, key));
        (0..self.offsets.len()).map(|place| key_of(place).transpose()).collect()
    }

    /// Positions, int64, one more than entries: entry i is `memoryview(batch)[positions[i]:positions[i + 1]]`.
    #[getter]
    fn positions(&self) -> Buffer {
        self.positions.clone().into()
    }

    /// Offset behind the last entry; `None` for an empty batch.
    #[getter]
    fn next_offset(&self) -> Option<i64> {
        self.offsets.last().map(|last| last + 1)
    }

    fn __len__(&self) -> usize {
        self.offsets.len()
    }

    fn __repr__(&self) -> String {
        let (count, size_bytes) = (self.offsets.len(), self.data.len());
        match (self.offsets.first(), self.offsets.last()) {
            (Some(first), Some(last)) => {
                format!("<EntryBatch of {count} entries, offsets {first} to {last}, {size_bytes} bytes>")
            }
            _ => "<EntryBatch of 0 entries>".to_owned(),
        }
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<(i64, Bound<'py, PyBytes>)> {
        let from_start = if index < 0 { index + self.offsets.len().cast_signed() } else { index };
        let place = usize::try_from(from_start).ok().filter(|place| *place < self.offsets.len());
        let place = place.ok_or_else(|| {
            PyIndexError::new_err(format!("entry {index} of a batch of {}", self.offsets.len()))
        })?;
        let at = |place: usize| {
            usize::try_from(self.positions[place]).expect("positions lie in the data, rising from 0")
        };
        Ok((self.offsets[place], copied(py, &self.data[at(place)..at(place + 1)])?))
    }

    /// Iterates by asking for one entry after the other, so that entries that are not reached are not copied.
    #[expect(unsafe_code, reason = "the iterator of the interpreter over whatever has an index")]
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: a new reference, or null and an exception.
        unsafe { Bound::from_owned_ptr_or_err(slf.py(), ffi::PySeqIter_New(slf.as_ptr())) }
    }

    // SAFETY: CPython calls it with a `view` that it may fill, and only through the type's buffer slot.
    #[expect(unsafe_code, reason = "the buffer protocol hands out raw memory")]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: as above; the class is frozen and `data` never changes.
        unsafe { crate::buffer::fill_view(slf.as_any(), &slf.get().data, view, flags) }
    }
}
