//! Counters of Kafka's protocol.

use prometheus_client::encoding::EncodeLabelSet;

use super::apis;
use super::frame::Header;
use crate::edge;
use crate::node::metrics::Metrics;

/// Counters of what the connections of all listeners of the protocol did.
pub(crate) type Traffic = edge::Traffic<RequestLabels>;

/// The labels of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    api: &'static str,
    version: i16,
}

/// Registers the counters, once.
pub(crate) fn traffic(metrics: &Metrics) -> Traffic {
    Traffic::new(metrics, "walrus_kafka", "Requests by API and version")
}

impl Traffic {
    /// Counts one request. What is not served has one name and one version, whatever a client makes up.
    pub(super) fn count(&self, header: Header) {
        let offer = apis::find(header.api).filter(|offer| offer.serves(header.version));
        let (api, version) = offer.map_or(("unsupported", -1), |offer| (offer.name, header.version));
        self.requests.get_or_create(&RequestLabels { api, version }).inc();
    }
}
