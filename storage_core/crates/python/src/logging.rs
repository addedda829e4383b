//! Where Rust's log lines go.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tracing_subscriber::EnvFilter;

/// See the stub.
#[pyfunction]
pub(crate) fn init_logging(directives: &str) -> PyResult<bool> {
    let filter = EnvFilter::try_new(directives).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    // The only way to fail is a subscriber that is there already.
    Ok(subscriber.try_init().is_ok())
}
