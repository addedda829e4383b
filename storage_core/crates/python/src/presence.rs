//! `Presence`: who is alive, by the renewals that this process has seen; `Present`: who is there at a moment.

use std::sync::Mutex;
use std::time::Duration;

use pyo3::prelude::*;
use walrus_model::NodeId;

use crate::metadata::Metadata;

/// The renewals of leases that this process has seen, on its CLOCK_BOOTTIME: they tell who is alive. Thread-safe.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct Presence {
    seen: Mutex<walrus_metadata::Presence>,
}

#[pymethods]
impl Presence {
    #[new]
    fn new(lease_ms: u64) -> Self {
        Self { seen: Mutex::new(walrus_metadata::Presence::new(Duration::from_millis(lease_ms))) }
    }

    /// Takes in a newer state. A node that was never seen before counts as seen now.
    fn observe(&self, metadata: &Metadata, now_ns: u64) {
        let mut seen = self.seen.lock().expect("nothing panics while it is held");
        seen.observe(&metadata.current(), Duration::from_nanos(now_ns));
    }

    /// Tells who is there; `now_ns` must not be before the last `observe`.
    fn look(&self, metadata: &Metadata, now_ns: u64) -> Present {
        let seen = self.seen.lock().expect("nothing panics while it is held");
        Present { of: seen.look(&metadata.current(), Duration::from_nanos(now_ns)) }
    }
}

/// The nodes that were there at one moment, for those methods of `Metadata` that choose nodes.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct Present {
    pub(crate) of: walrus_metadata::Present,
}

#[pymethods]
impl Present {
    /// Ids, in order, of the nodes whose lease had not lapsed.
    #[getter]
    fn alive(&self) -> Vec<u32> {
        self.of.alive.iter().map(|NodeId(id)| *id).collect()
    }

    /// Ids of these nodes and of those that had not been silent for longer than a lease and `copies.grace_ms`.
    #[getter]
    fn staying(&self) -> Vec<u32> {
        self.of.staying.iter().map(|NodeId(id)| *id).collect()
    }
}
