//! `walrus_core._native`: the engine, the data plane, the metadata and the batch codec, for Python.
//!
//! This crate is thin: conversions and the error table. Every call that waits or works for long does so without the
//! interpreter lock, and nothing here holds a lock of its own where the interpreter may run other threads.

mod batches;
mod buffer;
mod columns;
mod completions;
mod cursor;
mod data_plane;
mod engine;
mod entries;
mod error;
mod front;
mod inspection;
mod json;
mod logging;
mod metadata;
mod page;
mod presence;
mod present;
mod spare;

use pyo3::prelude::*;

/// The compiled half of `walrus_core`; import from there.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::batches::{BatchDecoder, BinaryColumn, Columns, HeadersColumn, decode_batches, encode_batch};
    #[pymodule_export]
    use crate::buffer::Buffer;
    #[pymodule_export]
    use crate::completions::Completions;
    #[pymodule_export]
    use crate::cursor::Cursor;
    #[pymodule_export]
    use crate::data_plane::{DataPlane, OpenProgress};
    #[pymodule_export]
    use crate::engine::Walrus;
    #[pymodule_export]
    use crate::entries::EntryBatch;
    #[pymodule_export]
    use crate::front::Front;
    #[pymodule_export]
    use crate::inspection::{inspect_store, repair_store, verify_store};
    #[pymodule_export]
    use crate::logging::{init_logging, set_log_filter};
    #[pymodule_export]
    use crate::metadata::{Metadata, Plan};
    #[pymodule_export]
    use crate::presence::Presence;
    #[pymodule_export]
    use crate::present::Present;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Errors carry their facts by way of `json`. It is imported now: an import that another thread had under way when a
        // process forked would never end in the child, which could not even say why it refuses.
        module.py().import("json")?;
        crate::error::register(module)
    }
}
