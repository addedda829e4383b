//! Bytes that Python lends: all of a `bytes`, or the part of one that a memoryview shows.

use std::ops::Range;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView};

/// Bytes that nobody can change while they are read without the interpreter lock: views are taken of `bytes` only.
pub(crate) struct Page {
    bytes: PyBackedBytes,
    part: Range<usize>,
}

impl<'py> FromPyObject<'_, 'py> for Page {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let Ok(view) = object.cast::<PyMemoryView>() else {
            let bytes: PyBackedBytes = object.extract()?;
            let part = 0..bytes.len();
            return Ok(Self { bytes, part });
        };
        let below = view.getattr("obj")?;
        let bytes = below.cast::<PyBytes>().map_err(|_| {
            PyTypeError::new_err(format!("expected a memoryview of bytes, not of {}", below.get_type()))
        })?;
        let bytes = PyBackedBytes::from(bytes.clone());
        let shown = PyBuffer::<u8>::get(&view)?;
        let start = (shown.buf_ptr() as usize).checked_sub(bytes.as_ptr() as usize);
        let part = start.map(|start| start..start + shown.len_bytes());
        match part.filter(|part| shown.is_c_contiguous() && part.end <= bytes.len()) {
            Some(part) => Ok(Self { bytes, part }),
            None => Err(PyValueError::new_err("expected a memoryview of bytes that leaves none of them out")),
        }
    }
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.part.clone()]
    }
}
