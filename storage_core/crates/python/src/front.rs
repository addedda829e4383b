//! `Front`: the ports of servers in Python, accepted for them with the limits of `walrus_broker::edge`.

use std::sync::Arc;

use pyo3::prelude::*;
use walrus_log::{Error, Origin};

use crate::error::Result;
use crate::json;

/// The ports of servers of this process that know no limits: accepts for them and passes on over UNIX sockets.
///
/// Each connection has to send its header in time, and one more than the caps allow is refused. A port of `http1`
/// answers a few of those all the same, briefly: whether the process lives can always be asked.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct Front {
    front: Arc<walrus_broker::edge::Front>,
    origin: Origin,
}

impl Front {
    /// The ports, in the process that opened them.
    fn get(&self) -> Result<&walrus_broker::edge::Front> {
        if self.origin.is_here() { Ok(&self.front) } else { Err(Error::Forked.into()) }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // A forked child has none of the threads that would have to end.
            std::mem::forget(Arc::clone(&self.front));
        }
    }
}

#[pymethods]
impl Front {
    #[new]
    fn start(py: Python<'_>, config_json: &str) -> Result<Self> {
        let front = py.detach(|| walrus_broker::edge::Front::start(config_json))?;
        Ok(Self { front: Arc::new(front), origin: Origin::here() })
    }

    /// `host:port` of each port, as bound.
    fn addresses<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(json::to_python(py, &self.get()?.addresses())?)
    }

    /// Closes the ports and all their connections. A second call does nothing.
    fn stop(&self, py: Python<'_>) -> Result<()> {
        let front = self.get()?;
        py.detach(|| front.stop());
        Ok(())
    }
}
