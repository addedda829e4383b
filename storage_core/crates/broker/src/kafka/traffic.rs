//! Counters of Kafka's protocol.

use std::sync::atomic::AtomicI64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::apis;
use super::frame::Header;
use crate::node::metrics::Metrics;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    api: &'static str,
    version: i16,
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
            let kafka = registry.sub_registry_with_prefix("walrus_kafka");
            kafka.register("connections", "Open connections", traffic.connections.clone());
            kafka.register(
                "connections_refused",
                "Connections for which there was no place",
                traffic.connections_refused.clone(),
            );
            kafka.register("bad_frames", "Frames that ended their connection", traffic.bad_frames.clone());
            kafka.register("requests", "Requests by API and version", traffic.requests.clone());
        });
        traffic
    }

    /// Counts one request. What is not served has one name and one version, whatever a client makes up.
    pub(super) fn count(&self, header: Header) {
        let offer = apis::find(header.api).filter(|offer| offer.serves(header.version));
        let (api, version) = offer.map_or(("unsupported", -1), |offer| (offer.name, header.version));
        self.requests.get_or_create(&RequestLabels { api, version }).inc();
    }
}
