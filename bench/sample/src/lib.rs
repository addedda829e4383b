//! What the benchmark programs share: one run of a program is one sample, printed as one JSON line.
//! The harness starts a program anew for every sample, so that systems can be interleaved and none keeps warm state.

mod latencies;
mod payload;
mod system;

pub use latencies::{Burst, Latencies, burst, closed_loop};
pub use payload::Payload;
pub use system::{Durability, System, Writer};

use serde_json::{Map, Value, json};

/// One measured figure and the facts beside it.
#[derive(Debug)]
pub struct Sample {
    value: f64,
    unit: &'static str,
    facts: Map<String, Value>,
    observations: Vec<f64>,
}

impl Sample {
    /// A sample of `value`, in `unit`.
    #[must_use]
    pub fn new(value: f64, unit: &'static str) -> Self {
        Self { value, unit, facts: Map::new(), observations: Vec::new() }
    }

    /// The sample with one more fact; units come last in its name (`p99_us`).
    #[must_use]
    pub fn with(mut self, fact: &str, value: impl Into<Value>) -> Self {
        self.facts.insert(fact.to_owned(), value.into());
        self
    }

    /// The sample with the percentiles of `latencies`.
    #[must_use]
    pub fn with_latencies(self, latencies: &Latencies) -> Self {
        self.with("p50_us", latencies.quantile_us(500))
            .with("p99_us", latencies.quantile_us(990))
            .with("p999_us", latencies.quantile_us(999))
    }

    /// The sample with the single figures that it was made of, of which there are few: the harness takes quantiles of
    /// those of all rounds together.
    #[must_use]
    pub fn with_observations(mut self, observations: Vec<f64>) -> Self {
        self.observations = observations;
        self
    }

    /// Writes the line the harness reads: `{"value", "unit", "facts", "observations"}`.
    pub fn print(&self) {
        let Self { value, unit, facts, observations } = self;
        println!("{}", json!({"value": value, "unit": unit, "facts": facts, "observations": observations}));
    }
}
