//! Memory that Rust filled and Python reads in place, through the buffer protocol.

use std::ffi::c_int;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

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

impl Buffer {
    fn start(&self) -> *const u8 {
        match &self.0 {
            Values::U8(values) => values.as_ptr(),
            Values::I32(values) => values.as_ptr().cast(),
            Values::I64(values) => values.as_ptr().cast(),
        }
    }

    fn size_bytes(&self) -> usize {
        match &self.0 {
            Values::U8(values) => size_of_val(values.as_slice()),
            Values::I32(values) => size_of_val(values.as_slice()),
            Values::I64(values) => size_of_val(values.as_slice()),
        }
    }
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.size_bytes()
    }

    // SAFETY: CPython calls it with a `view` that it may fill, and only through the type's buffer slot.
    #[expect(unsafe_code, reason = "the buffer protocol hands out raw memory")]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        let size_bytes = isize::try_from(this.size_bytes()).map_err(PyBufferError::new_err)?;
        // SAFETY: the memory is a `Vec`'s, initialised over `size_bytes`. It neither moves nor changes while the
        // object lives: the class is frozen and `Values` has no interior mutability. `view` holds a reference to the
        // object until it is released. It is marked read-only; `PyBuffer_FillInfo` refuses a request to write.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), this.start().cast_mut().cast(), size_bytes, 1, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
