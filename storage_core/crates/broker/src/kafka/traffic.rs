//! Counters of Kafka's protocol.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Unit;

use super::apis;
use super::clients::Clients;
use super::frame::Header;
use crate::edge;
use crate::node::metrics::Metrics;

/// Counters of what the connections of all listeners of the protocol did.
pub(crate) struct Traffic {
    pub(super) connections: edge::Traffic<RequestLabels>,
    pub(super) clients: Clients,
    seconds: Family<RequestLabels, Histogram, fn() -> Histogram>,
}

/// The labels of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    api: &'static str,
    version: i16,
}

/// Registers the counters, once.
pub(crate) fn traffic(metrics: &Metrics) -> Traffic {
    let traffic = Traffic {
        connections: edge::Traffic::new(metrics, "walrus_kafka", "Requests by API and version"),
        clients: Clients::new(metrics),
        seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_1, 4.0, 10))), // 100 us .. 26 s
    };
    metrics.register(|registry| {
        let help = "From a request's last byte to its answer, with what the client wanted to wait";
        registry.register_with_unit("walrus_kafka_request", help, Unit::Seconds, traffic.seconds.clone());
    });
    traffic
}

impl Traffic {
    /// The meter of one API in one version. What is not served has one name and one version, whatever a client makes up.
    pub(super) fn meter(&self, header: Header) -> Meter {
        let offer = apis::find(header.api).filter(|offer| offer.serves(header.version));
        let (api, version) = offer.map_or(("unsupported", -1), |offer| (offer.name, header.version));
        let labels = RequestLabels { api, version };
        Meter {
            of: (header.api, header.version),
            requests: self.connections.requests.get_or_create_owned(&labels),
            seconds: self.seconds.get_or_create_owned(&labels),
        }
    }
}

/// Counts the requests of one API in one version. A connection keeps the one that it used last: most send the same all the time, and
/// looking one up takes a lock that all connections share.
pub(super) struct Meter {
    /// API and version.
    of: (i16, i16),
    requests: Counter,
    seconds: Histogram,
}

impl Meter {
    /// Whether it counts requests with this header.
    pub(super) fn is_of(&self, header: Header) -> bool {
        self.of == (header.api, header.version)
    }

    /// Counts a request that came.
    pub(super) fn count(&self) {
        self.requests.inc();
    }

    /// Counts how long a request took.
    pub(super) fn observe(&self, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
    }
}
