//! Values of the model as Python's dicts, lists and strings, by way of their JSON.

use pyo3::prelude::*;
use serde::Serialize;

/// Converts a value to what `json.loads` makes of its JSON.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(value).expect("the model has only keys that are strings in JSON");
    py.import("json")?.call_method1("loads", (text,))
}
