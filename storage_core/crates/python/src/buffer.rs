//! Memory that Rust filled and Python reads in place, through the buffer protocol.

use std::ffi::c_int;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::spare;

/// Read-only bytes; `memoryview(buffer)` and `pyarrow.py_buffer(buffer)` copy nothing and keep it alive.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct Buffer(Values);

/// One Arrow buffer in its element type, so that it is aligned as Arrow wants it.
enum Values {
    U8(Vec<u8>),
    I32(Vec<i32>),
    I64(Vec<i64>),
}

impl From<Vec<u8>> for Buffer {
    fn from(values: Vec<u8>) -> Self {
        Self(Values::U8(values))
    }
}

impl From<Vec<i32>> for Buffer {
    fn from(values: Vec<i32>) -> Self {
        Self(Values::I32(values))
    }
}

impl From<Vec<i64>> for Buffer {
    fn from(values: Vec<i64>) -> Self {
        Self(Values::I64(values))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Values::U8(values) = &mut self.0 {
            spare::give(std::mem::take(values));
        }
    }
}

impl Buffer {
    fn bytes(&self) -> &[u8] {
        match &self.0 {
            Values::U8(values) => values,
            Values::I32(values) => bytes_of(values),
            Values::I64(values) => bytes_of(values),
        }
    }
}

/// The memory of integers.
#[expect(unsafe_code, reason = "numbers are seen as bytes")]
fn bytes_of<T: Copy + Into<i64>>(values: &[T]) -> &[u8] {
    // SAFETY: integers (only they are `Into<i64>` here) have no padding, and any byte is a valid `u8`.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Lets CPython read memory of an object in place.
///
/// # Safety
/// `view` may be filled. `bytes` belong to `owner`, and neither move nor change while it lives.
#[expect(unsafe_code, reason = "the buffer protocol hands out raw memory")]
pub(crate) unsafe fn fill_view(
    owner: &Bound<'_, PyAny>,
    bytes: &[u8],
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let size_bytes = isize::try_from(bytes.len()).map_err(PyBufferError::new_err)?;
    // SAFETY: what the caller promises; `view` holds a reference to the owner until it is released. It is marked
    // read-only; `PyBuffer_FillInfo` refuses a request to write.
    let filled = unsafe {
        ffi::PyBuffer_FillInfo(view, owner.as_ptr(), bytes.as_ptr().cast_mut().cast(), size_bytes, 1, flags)
    };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py())) }
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.bytes().len()
    }

    // SAFETY: CPython calls it with a `view` that it may fill, and only through the type's buffer slot.
    #[expect(unsafe_code, reason = "the buffer protocol hands out raw memory")]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: as above. The memory is a `Vec`'s; the class is frozen and `Values` has no interior mutability.
        unsafe { fill_view(slf.as_any(), slf.get().bytes(), view, flags) }
    }
}
