//! Counters of the data plane, in Prometheus's text format. Names are `walrus_*`, units last.

use prometheus_client::registry::Registry;

/// All counters, and the registry that writes them. Others add theirs through [`Metrics::register`].
pub struct Metrics {
    registry: parking_lot::Mutex<Registry>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self { registry: parking_lot::Mutex::new(Registry::default()) }
    }

    /// Adds metrics of a listener or service, once, when it is made.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.lock());
    }

    /// Prometheus text.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry.lock())
            .expect("a String takes any text");
        text
    }
}
