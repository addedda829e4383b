//! Shared cursors of topics.

use bytes::Bytes;

use crate::broker::WeakBroker;
use crate::error::{Error, Result};
use crate::metrics::Metrics;

/// Shared cursors of topics.
pub struct CursorService {
    _broker: WeakBroker,
}

impl CursorService {
    /// Made while the broker is made: `broker` upgrades only later. Spawns nothing before the first call.
    #[must_use]
    pub fn new(broker: WeakBroker, _metrics: &Metrics) -> Self {
        Self { _broker: broker }
    }

    /// Answers a [`crate::peer::Request::Cursor`] of another node.
    pub async fn answer_peer(&self, _from: u32, _request: Bytes) -> Result<Bytes> {
        Err(Error::Unavailable { what: "not wired yet".to_owned() })
    }
}
