//! `inspect_store`, `verify_store` and `repair_store`: what lies in a store that nobody has open.

use std::path::PathBuf;

use pyo3::prelude::*;
use serde_json::{Value, json};
use walrus_log::{inspect, repair, verify};

use crate::error::Result;
use crate::json::to_python;

/// Tells what a store has that nobody has open: `logs`, what an open would find, `damaged`, and all as a `table`.
///
/// Changes nothing. Raises `Locked`, `CorruptionError` where the store does not open, `OSError`.
#[pyfunction]
pub(crate) fn inspect_store(py: Python<'_>, directory: PathBuf) -> Result<Bound<'_, PyAny>> {
    let seen = py.detach(|| inspect(directory))?;
    report(py, seen.to_json(), &seen.to_table(), seen.lost_something())
}

/// Inspects a store as `inspect_store` does, and reads every batch; `checked` has their number.
#[pyfunction]
pub(crate) fn verify_store(py: Python<'_>, directory: PathBuf) -> Result<Bound<'_, PyAny>> {
    let seen = py.detach(|| verify(directory))?;
    report(py, seen.to_json(), &seen.to_table(), seen.inspection.lost_something())
}

/// Makes a store open again; gives what `inspect_store` then gives, and what was done to the `journal`.
///
/// Moves aside what cannot be read, deletes nothing, makes a lost or damaged journal again from what is left of it and
/// from the headers of blocks. Raises `Locked`, `CorruptionError` if the MANIFEST is damaged, `OSError`.
#[pyfunction]
pub(crate) fn repair_store(py: Python<'_>, directory: PathBuf) -> Result<Bound<'_, PyAny>> {
    let done = py.detach(|| repair(directory))?;
    report(py, done.to_json(), &done.to_table(), done.lost_something())
}

fn report<'py>(py: Python<'py>, mut seen: Value, table: &str, is_damaged: bool) -> Result<Bound<'py, PyAny>> {
    seen["table"] = json!(table);
    seen["damaged"] = json!(is_damaged);
    Ok(to_python(py, &seen)?)
}
