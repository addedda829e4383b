//! `walrus_core._native`: the engine, the data plane, the metadata and the batch codec, for Python.
//!
//! Thin: conversions and the error table. Whatever waits or works for long does so without the interpreter lock.

mod batches;
mod buffer;
mod columns;
mod data_plane;
mod engine;
mod error;
mod json;
mod logging;
mod metadata;

use pyo3::prelude::*;

/// The compiled half of `walrus_core`; import from there.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::batches::{BinaryColumn, Columns, HeadersColumn, decode_batches, encode_batch};
    #[pymodule_export]
    use crate::buffer::Buffer;
    #[pymodule_export]
    use crate::data_plane::DataPlane;
    #[pymodule_export]
    use crate::engine::{Cursor, Walrus};
    #[pymodule_export]
    use crate::logging::{init_logging, set_log_filter};
    #[pymodule_export]
    use crate::metadata::Metadata;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::error::register(module)
    }
}
