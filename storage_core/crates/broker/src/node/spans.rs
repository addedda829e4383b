//! Spans of what clients have appended and read, for a collector of OpenTelemetry, where one is given.
//!
//! A span is made when what it tells of is over, of its beginning and its end. Without a collector nothing is noted, not even the
//! time. Nobody waits for a collector: spans go into a queue with an end, and what finds no place there is dropped.

use std::time::SystemTime;

use opentelemetry::KeyValue;
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _, TracerProvider as _};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use serde::Deserialize;
use tokio::runtime::Runtime;

use crate::node::error::{Error, Result};
use crate::node::patience;

/// The name of nodes among all that tells spans.
const SERVICE: &str = "walrus-node";

/// Where spans go, and how many.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpanOptions {
    /// `http://host:port` of a collector that takes OTLP over gRPC.
    pub endpoint: String,
    /// Share of the spans that are made, 0 to 1.
    pub share: f64,
}

impl SpanOptions {
    /// Says what cannot be.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        if !(0.0..=1.0).contains(&self.share) {
            return Err(format!("spans: the share {} is not between 0 and 1", self.share));
        }
        if !self.endpoint.starts_with("http://") {
            return Err(format!("spans: the endpoint {:?} is not http://HOST:PORT", self.endpoint));
        }
        Ok(())
    }
}

/// Makes spans, if a collector was given.
pub(crate) struct Spans {
    collector: Option<Collector>,
}

struct Collector {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// The beginning of a span, and what is known of it then; `None` where nobody wants it.
pub(crate) struct Begun<F>(Option<(SystemTime, F)>);

impl Spans {
    /// Makes none.
    pub(crate) fn none() -> Self {
        Self { collector: None }
    }

    /// Connects to a collector when there is something to send, on the threads of `runtime`; says what is wrong with the options.
    pub(crate) fn open(
        options: Option<&SpanOptions>,
        node: u32,
        runtime: &Runtime,
    ) -> std::result::Result<Self, String> {
        let Some(SpanOptions { endpoint, share }) = options else { return Ok(Self::none()) };
        let _threads = runtime.enter();
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build();
        let exporter = exporter.map_err(|problem| format!("spans: {problem}"))?;
        let resource = Resource::builder().with_service_name(SERVICE);
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::TraceIdRatioBased(*share))
            .with_resource(
                resource.with_attribute(KeyValue::new("service.instance.id", node.to_string())).build(),
            )
            .build();
        let tracer = provider.tracer("walrus");
        Ok(Self { collector: Some(Collector { provider, tracer }) })
    }

    /// Notes that something begins, and what `facts` say of it.
    pub(crate) fn begin<F>(&self, facts: impl FnOnce() -> F) -> Begun<F> {
        Begun(self.collector.as_ref().map(|_| (SystemTime::now(), facts())))
    }

    /// Makes the span of what has ended; `attributes` are asked for if it is one of the share that is sent.
    pub(crate) fn end<F, T>(
        &self,
        name: &'static str,
        begun: Begun<F>,
        result: &Result<T>,
        attributes: impl FnOnce(F, Option<&T>) -> Vec<KeyValue>,
    ) {
        let (Some(Collector { tracer, .. }), Some((began, facts))) = (&self.collector, begun.0) else {
            return;
        };
        let mut span =
            tracer.span_builder(name).with_kind(SpanKind::Internal).with_start_time(began).start(tracer);
        if span.is_recording() {
            span.set_attributes(attributes(facts, result.as_ref().ok()));
            if let Err(error) = result {
                span.set_attribute(KeyValue::new("error.type", Error::reason(error).to_owned()));
                span.set_status(Status::error(error.to_string()));
            }
        }
        span.end();
    }

    /// Sends what is queued, and ends. Blocks for a moment at most, while the runtime must run.
    pub(crate) fn close(&self) {
        if let Some(Collector { provider, .. }) = &self.collector
            && let Err(problem) = provider.shutdown_with_timeout(patience::SPANS_SENT)
        {
            tracing::info!(%problem, "the last spans are not sent");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_that_cannot_be_asked_is_refused() {
        let options = |endpoint: &str, share| SpanOptions { endpoint: endpoint.to_owned(), share };
        assert!(options("http://127.0.0.1:4317", 0.01).check().is_ok());
        for wrong in
            [options("127.0.0.1:4317", 1.0), options("https://c:4317", 1.0), options("http://c", 1.5)]
        {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        assert!(options("http://c", f64::NAN).check().is_err());
    }

    #[test]
    fn without_a_collector_nothing_is_noted() {
        let spans = Spans::none();
        let begun = spans.begin(|| panic!("nobody asks what it will be"));
        spans.end("nothing", begun, &Ok(()), |(), _| panic!("nobody asks what it was"));
    }
}
