//! `Presence`: who is alive, by the renewals that this process has seen.

use std::sync::Mutex;
use std::time::Duration;

use pyo3::prelude::*;

use crate::metadata::Metadata;
use crate::present::Present;

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
