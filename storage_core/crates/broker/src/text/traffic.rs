//! Counters of the text protocol.

use prometheus_client::encoding::EncodeLabelSet;

use super::command::Command;
use crate::edge;
use crate::node::metrics::Metrics;

/// Counters of what the connections of all listeners of the protocol did.
pub(crate) type Traffic = edge::Traffic<RequestLabels>;

/// The labels of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    command: &'static str,
}

/// Registers the counters, once.
pub(crate) fn traffic(metrics: &Metrics) -> Traffic {
    Traffic::new(metrics, "walrus_text", "Requests by command")
}

impl Traffic {
    /// Counts one request; `None` if it was not understood.
    pub(super) fn count(&self, command: Option<&Command<'_>>) {
        let command = command.map_or("unknown", Command::word);
        self.requests.get_or_create(&RequestLabels { command }).inc();
    }
}
