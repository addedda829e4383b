//! Counters of what the connections of one protocol did, on all of its listeners.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::AtomicI64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::node::metrics::Metrics;

/// The counters of one protocol, whose requests have labels `L`.
pub(crate) struct Traffic<L> {
    pub(crate) connections: Gauge<i64, AtomicI64>,
    pub(crate) connections_refused: Counter,
    pub(crate) bad_frames: Counter,
    pub(crate) requests: Family<L, Counter>,
}

impl<L: EncodeLabelSet + Clone + Debug + Eq + Hash + Send + Sync + 'static> Traffic<L> {
    /// Registers the counters of a protocol, once; their names begin with `prefix`, and `requests` says what the labels are.
    pub(crate) fn new(metrics: &Metrics, prefix: &str, requests: &str) -> Self {
        let traffic = Self {
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            bad_frames: Counter::default(),
            requests: Family::default(),
        };
        metrics.register(|registry| {
            let own = registry.sub_registry_with_prefix(prefix);
            own.register("connections", "Open connections", traffic.connections.clone());
            let help = "Connections for which there was no place";
            own.register("connections_refused", help, traffic.connections_refused.clone());
            own.register("bad_frames", "Frames that ended their connection", traffic.bad_frames.clone());
            own.register("requests", requests, traffic.requests.clone());
        });
        traffic
    }
}
