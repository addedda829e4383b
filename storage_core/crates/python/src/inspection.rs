//! `inspect_store`, `verify_store` and `repair_store`: what lies in a store that nobody has open.

use std::path::PathBuf;

use pyo3::prelude::*;
use serde_json::{Value, json};
use walrus_log::{inspect, repair, verify};

use crate::error::Result;
use crate::json::to_python;

#[pyfunction]
pub(crate) fn inspect_store(py: Python<'_>, directory: PathBuf) -> Result<Bound<'_, PyAny>> {
    let seen = py.detach(|| inspect(directory))?;
    report(py, seen.to_json(), &seen.to_table(), seen.lost_something())
}

#[pyfunction]
pub(crate) fn verify_store(py: Python<'_>, directory: PathBuf) -> Result<Bound<'_, PyAny>> {
    let seen = py.detach(|| verify(directory))?;
    report(py, seen.to_json(), &seen.to_table(), seen.inspection.lost_something())
}

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
