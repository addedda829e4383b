//! Counters of the text protocol.

use std::sync::atomic::AtomicI64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::command::Command;
use crate::node::metrics::Metrics;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    command: &'static str,
}

/// Counters of what the connections of all listeners of the protocol did.
#[derive(Default)]
pub(crate) struct Traffic {
    pub(super) connections: Gauge<i64, AtomicI64>,
    pub(super) connections_refused: Counter,
    pub(super) bad_frames: Counter,
    requests: Family<RequestLabels, Counter>,
}

impl Traffic {
    /// Registers the counters, once.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let traffic = Self::default();
        metrics.register(|registry| {
            let text = registry.sub_registry_with_prefix("walrus_text");
            text.register("connections", "Open connections", traffic.connections.clone());
            text.register(
                "connections_refused",
                "Connections for which there was no place",
                traffic.connections_refused.clone(),
            );
            text.register("bad_frames", "Frames that ended their connection", traffic.bad_frames.clone());
            text.register("requests", "Requests by command", traffic.requests.clone());
        });
        traffic
    }

    /// Counts one request; `None` if it was not understood.
    pub(super) fn count(&self, command: Option<&Command<'_>>) {
        let command = command.map_or("unknown", Command::word);
        self.requests.get_or_create(&RequestLabels { command }).inc();
    }
}
