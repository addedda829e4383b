//! `DataPlane`: the broker inside this process, as the control plane sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use walrus_broker::Config;
use walrus_log::{Error, Origin};

use crate::error::{CorruptionError, Result};
use crate::json;
use crate::metadata::Metadata;

/// Python sees a signal (Ctrl-C, SIGTERM) after at most this long in a call that waits.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// The running broker. Its threads never attach to the interpreter.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct DataPlane {
    plane: Arc<walrus_broker::DataPlane>,
    origin: Origin,
}

impl DataPlane {
    /// The broker, in the process that started it: every call asks for it before it does anything.
    fn get(&self) -> Result<&walrus_broker::DataPlane> {
        if self.origin.is_here() { Ok(&self.plane) } else { Err(Error::Forked.into()) }
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // A forked child has none of the broker's threads, and would wait for their end for ever.
            std::mem::forget(Arc::clone(&self.plane));
        }
    }
}

#[pymethods]
impl DataPlane {
    #[new]
    fn start(py: Python<'_>, config_json: &str) -> Result<Self> {
        let plane = py.detach(|| walrus_broker::DataPlane::start(Config::parse(config_json)?))?;
        Ok(Self { plane: Arc::new(plane), origin: Origin::here() })
    }

    fn addresses<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(json::to_python(py, &self.get()?.addresses())?)
    }

    fn identity<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(json::to_python(py, &self.get()?.identity())?)
    }

    fn store_report<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(json::to_python(py, &self.get()?.store_report())?)
    }

    fn publish(&self, py: Python<'_>, metadata: &Metadata) -> Result<()> {
        let plane = self.get()?;
        let snapshot = metadata.current();
        py.detach(|| plane.publish(snapshot));
        Ok(())
    }

    fn set_raft_status(&self, py: Python<'_>, status_json: &str) -> Result<()> {
        let plane = self.get()?;
        let status =
            serde_json::from_str(status_json).map_err(|error| PyValueError::new_err(error.to_string()))?;
        py.detach(|| plane.set_raft_status(status));
        Ok(())
    }

    fn poll_events(&self, py: Python<'_>, max: usize, timeout_ms: u64) -> Result<Vec<(u64, String)>> {
        let plane = self.get()?;
        let until = Instant::now() + Duration::from_millis(timeout_ms);
        loop {
            let slice_end = until.min(Instant::now() + SIGNAL_CHECK);
            let slice = slice_end.saturating_duration_since(Instant::now());
            let events = py.detach(|| plane.poll_events(max, slice));
            // Back early without an event: stopped.
            if !events.is_empty() || slice_end == until || Instant::now() < slice_end {
                return Ok(events);
            }
            py.check_signals()?;
        }
    }

    fn complete(&self, py: Python<'_>, event_id: u64, answer_json: &str) -> Result<()> {
        let plane = self.get()?;
        Ok(py.detach(|| plane.complete(event_id, answer_json)).map_err(PyValueError::new_err)?)
    }

    fn configure(&self, py: Python<'_>, config_json: &str) -> Result<()> {
        let plane = self.get()?;
        Ok(py.detach(|| plane.configure(config_json))?)
    }

    fn test_control(&self, py: Python<'_>, control: &str) -> Result<()> {
        let plane = self.get()?;
        Ok(py.detach(|| plane.test_control(control))?)
    }

    fn copies_not_whole(&self) -> Result<u64> {
        Ok(self.get()?.copies_not_whole())
    }

    fn open_behind(&self, py: Python<'_>, timeout_ms: u64) -> Result<Option<u64>> {
        let plane = self.get()?;
        Ok(py.detach(|| plane.open_behind(Duration::from_millis(timeout_ms))))
    }

    fn remains<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let plane = self.get()?;
        let found = py
            .detach(|| plane.remains())
            .map_err(|unreadable| CorruptionError::new_err(unreadable.to_string()))?;
        Ok(json::to_python(py, &found)?)
    }

    fn prometheus(&self, py: Python<'_>) -> Result<String> {
        let plane = self.get()?;
        Ok(py.detach(|| plane.prometheus()))
    }

    fn stop(&self, py: Python<'_>, grace_ms: u64) -> Result<()> {
        let plane = self.get()?;
        py.detach(|| plane.stop(Duration::from_millis(grace_ms)));
        Ok(())
    }
}
