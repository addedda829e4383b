//! `Present`: who is there at a moment.

use pyo3::prelude::*;
use walrus_model::NodeId;

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
