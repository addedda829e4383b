//! `DataPlane`: the broker inside this process, as the control plane sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use walrus_broker::{Config, WireVersions};
use walrus_log::{Error, Origin};

use crate::error::Result;
use crate::json;
use crate::metadata::Metadata;

/// Longest time for which a call that waits keeps Python from seeing a signal (Ctrl-C, SIGTERM).
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// How far the open of a broker's store is, for whoever waits for it.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct OpenProgress {
    told: walrus_log::OpenProgress,
}

#[pymethods]
impl OpenProgress {
    #[new]
    fn new() -> Self {
        Self { told: walrus_log::OpenProgress::default() }
    }

    /// How much is done, in percent; `None` before it is known how much there is to do.
    fn percent(&self) -> Option<u64> {
        self.told.percent()
    }
}

/// The broker inside this process: its threads never take the interpreter lock.
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
    /// The versions of the frames between brokers that this version speaks: the oldest and the newest one.
    #[classattr]
    const WIRE_VERSIONS: (u32, u32) = (WireVersions::SPOKEN.oldest, WireVersions::SPOKEN.newest);

    #[new]
    #[pyo3(signature = (config_json, progress=None))]
    fn start(py: Python<'_>, config_json: &str, progress: Option<Bound<'_, OpenProgress>>) -> Result<Self> {
        let nobody = walrus_log::OpenProgress::default();
        let told = progress.as_ref().map_or(&nobody, |progress| &progress.get().told);
        let plane = py.detach(|| walrus_broker::DataPlane::start_told(Config::parse(config_json)?, told))?;
        Ok(Self { plane: Arc::new(plane), origin: Origin::here() })
    }

    /// `host:port` of the listeners `text`, `grpc`, `peer` and further ones by name (`grpc/acme`), as bound.
    ///
    /// Empty for those that the host tells clients of later.
    fn addresses<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(json::to_python(py, &self.get()?.addresses())?)
    }

    /// `cluster_id`, `node_id`, `disk` and `process`.
    fn identity<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(json::to_python(py, &self.get()?.identity())?)
    }

    /// Tells what opening the store found: `backend` in use, why another one was `refused` (or `None`), how what is
    /// synced is written (`synced_writes`: `direct` or `cached`), why it is `cached` (or `None`), `opened`.
    fn store_report<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(json::to_python(py, &self.get()?.store_report())?)
    }

    /// Takes the state as it is now, and wakes the requests that wait for a change.
    fn publish(&self, py: Python<'_>, metadata: &Metadata) -> Result<()> {
        let plane = self.get()?;
        let snapshot = metadata.current();
        py.detach(|| plane.publish(snapshot));
        Ok(())
    }

    /// Sets what Raft says of itself, a JSON object, for `METRICS`.
    fn set_raft_status(&self, py: Python<'_>, status_json: &str) -> Result<()> {
        let plane = self.get()?;
        let status =
            serde_json::from_str(status_json).map_err(|error| PyValueError::new_err(error.to_string()))?;
        py.detach(|| plane.set_raft_status(status));
        Ok(())
    }

    /// Pulls up to `max` requests to the metadata, in order, as (id, JSON); waits up to `timeout_ms` for the first.
    ///
    /// `Metadata.plan` takes them. The interpreter lock is released, and signals are seen, while it waits. Empty at
    /// once after `stop`.
    fn poll_events(&self, py: Python<'_>, max: usize, timeout_ms: u64) -> Result<Vec<(u64, String)>> {
        let plane = self.get()?;
        let until = Instant::now() + Duration::from_millis(timeout_ms);
        loop {
            let slice_end = until.min(Instant::now() + SIGNAL_CHECK);
            let slice = slice_end.saturating_duration_since(Instant::now());
            let events = py.detach(|| plane.poll_events(max, slice));
            // A return before the time without an event means that the broker is stopped.
            if !events.is_empty() || slice_end == until || Instant::now() < slice_end {
                return Ok(events);
            }
            py.check_signals()?;
        }
    }

    /// Answers a request with what `Plan.answer` gave.
    ///
    /// Publish the state that the answer is about first. Raises `ValueError` for an answer that is not understood;
    /// whoever waited for it is refused then.
    fn complete(&self, py: Python<'_>, event_id: u64, answer_json: &str) -> Result<()> {
        let plane = self.get()?;
        Ok(py.detach(|| plane.complete(event_id, answer_json)).map_err(PyValueError::new_err)?)
    }

    /// Changes options while it runs: `segment_{entries,bytes,age_ms}_max`, `monitor_check_ms`.
    fn configure(&self, py: Python<'_>, config_json: &str) -> Result<()> {
        let plane = self.get()?;
        Ok(py.detach(|| plane.configure(config_json))?)
    }

    /// Makes something happen for a test; refused unless the config has `test_controls`.
    ///
    /// `revoke_leases`, `sync_leases`, `fail_reads` or `allow_reads`. Raises `ValueError`.
    fn test_control(&self, py: Python<'_>, control: &str) -> Result<()> {
        let plane = self.get()?;
        Ok(py.detach(|| plane.test_control(control))?)
    }

    /// Counts the copies on this disk that have lacked something for longer than `lacking_ms_max`.
    ///
    /// Copies of open segments count, too.
    fn copies_not_whole(&self) -> Result<u64> {
        Ok(self.get()?.copies_not_whole())
    }

    /// Counts the unsealed segments that this node stores without all that was acknowledged before the call.
    ///
    /// Segments whose end is being decided, or whose leader does not answer in time, count, too. `None` while it stops.
    fn open_behind(&self, py: Python<'_>, timeout_ms: u64) -> Result<Option<u64>> {
        let plane = self.get()?;
        Ok(py.detach(|| plane.open_behind(Duration::from_millis(timeout_ms))))
    }

    /// Has other nodes lead what this one leads, as it is about to stop; takes `limit_ms` at most.
    ///
    /// Tells `handed_over` and `staying`, numbers of segments, and `why` some stay, or `None`. `None` in place of all
    /// that once it is stopped; `stop` ends it. The broker leads nothing new afterwards.
    fn hand_over<'py>(&self, py: Python<'py>, limit_ms: u64) -> Result<Bound<'py, PyAny>> {
        let plane = self.get()?;
        let found = py.detach(|| plane.hand_over(Duration::from_millis(limit_ms)));
        let told = found.map(|found| {
            let why = found.why.map(|why| why.name());
            serde_json::json!({ "handed_over": found.handed_over, "staying": found.staying, "why": why })
        });
        Ok(json::to_python(py, &told)?)
    }

    /// Tells what lies on this disk of topics that the metadata neither name nor call deleted.
    ///
    /// Each has `replica` (`node`, `disk`), `topic`, `facts` (`org`, `name`, `internal`, `partitions`; or None)
    /// and `segments`: what `Metadata.lost_topics` takes of all disks.
    fn remains<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let plane = self.get()?;
        let found = py.detach(|| plane.remains());
        Ok(json::to_python(py, &found)?)
    }

    /// All metrics in Prometheus's text format.
    fn prometheus(&self, py: Python<'_>) -> Result<String> {
        let plane = self.get()?;
        Ok(py.detach(|| plane.prometheus()))
    }

    fn __repr__(&self) -> String {
        self.get().map_or_else(
            |_| "<DataPlane of another process>".to_owned(),
            |plane| {
                let addresses: Vec<_> = plane
                    .addresses()
                    .into_iter()
                    .map(|(name, address)| format!("{name} {address}"))
                    .collect();
                format!("<DataPlane of node {}: {}>", plane.identity()["node_id"], addresses.join(", "))
            },
        )
    }

    /// Lets requests in flight end for at most `grace_ms`, then syncs and closes. A second call does nothing.
    fn stop(&self, py: Python<'_>, grace_ms: u64) -> Result<()> {
        let plane = self.get()?;
        py.detach(|| plane.stop(Duration::from_millis(grace_ms)));
        Ok(())
    }
}
