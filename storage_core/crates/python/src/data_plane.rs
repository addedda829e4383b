//! `DataPlane`: the broker inside this process, as the control plane sees it.

use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use walrus_broker::Config;

use crate::error::Result;
use crate::json;
use crate::metadata::Metadata;

/// Python sees a signal (Ctrl-C, SIGTERM) after at most this long in a call that waits.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// The running broker. Its threads never attach to the interpreter.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct DataPlane {
    plane: walrus_broker::DataPlane,
}

#[pymethods]
impl DataPlane {
    #[new]
    fn start(py: Python<'_>, config_json: &str) -> Result<Self> {
        let plane = py.detach(|| walrus_broker::DataPlane::start(Config::parse(config_json)?))?;
        Ok(Self { plane })
    }

    fn addresses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.plane.addresses())
    }

    fn identity<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.plane.identity())
    }

    fn store_report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.plane.store_report())
    }

    fn publish(&self, py: Python<'_>, metadata: &Metadata) {
        let snapshot = metadata.current();
        py.detach(|| self.plane.publish(snapshot));
    }

    fn set_raft_status(&self, py: Python<'_>, status_json: &str) -> Result<()> {
        let status =
            serde_json::from_str(status_json).map_err(|error| PyValueError::new_err(error.to_string()))?;
        py.detach(|| self.plane.set_raft_status(status));
        Ok(())
    }

    fn poll_events(&self, py: Python<'_>, max: usize, timeout_ms: u64) -> PyResult<Vec<(u64, String)>> {
        let until = Instant::now() + Duration::from_millis(timeout_ms);
        loop {
            let slice_end = until.min(Instant::now() + SIGNAL_CHECK);
            let slice = slice_end.saturating_duration_since(Instant::now());
            let events = py.detach(|| self.plane.poll_events(max, slice));
            // Back early without an event: stopped.
            if !events.is_empty() || slice_end == until || Instant::now() < slice_end {
                return Ok(events);
            }
            py.check_signals()?;
        }
    }

    fn complete(&self, py: Python<'_>, event_id: u64, answer_json: &str) -> PyResult<()> {
        py.detach(|| self.plane.complete(event_id, answer_json)).map_err(PyValueError::new_err)
    }

    fn configure(&self, py: Python<'_>, config_json: &str) -> Result<()> {
        Ok(py.detach(|| self.plane.configure(config_json))?)
    }

    fn test_control(&self, py: Python<'_>, control: &str) -> Result<()> {
        Ok(py.detach(|| self.plane.test_control(control))?)
    }

    fn open_behind(&self, py: Python<'_>, timeout_ms: u64) -> Option<u64> {
        py.detach(|| self.plane.open_behind(Duration::from_millis(timeout_ms)))
    }

    fn prometheus(&self, py: Python<'_>) -> String {
        py.detach(|| self.plane.prometheus())
    }

    fn stop(&self, py: Python<'_>, grace_ms: u64) {
        py.detach(|| self.plane.stop(Duration::from_millis(grace_ms)));
    }
}
