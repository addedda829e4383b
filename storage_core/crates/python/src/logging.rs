//! Where Rust's log lines go, and which of them.

use std::sync::OnceLock;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt};

static FILTER: OnceLock<Handle<EnvFilter, Registry>> = OnceLock::new();

/// See the stub.
#[pyfunction]
pub(crate) fn init_logging(directives: &str) -> PyResult<bool> {
    let (filter, handle) = reload::Layer::new(parse(directives)?);
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    // The only way to fail is a subscriber that is there already.
    let set_up = tracing_subscriber::registry().with(filter).with(lines).try_init().is_ok();
    if set_up {
        FILTER.get_or_init(|| handle);
    }
    Ok(set_up)
}

/// See the stub.
#[pyfunction]
pub(crate) fn set_log_filter(directives: &str) -> PyResult<bool> {
    let filter = parse(directives)?;
    Ok(FILTER.get().is_some_and(|handle| handle.reload(filter).is_ok()))
}

fn parse(directives: &str) -> PyResult<EnvFilter> {
    EnvFilter::try_new(directives).map_err(|error| PyValueError::new_err(error.to_string()))
}
