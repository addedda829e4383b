//! Tests of the spans that a collector of OpenTelemetry gets.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value as Told;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tonic::{Request, Response, Status};
use walrus_broker::{PartitionRef, TopicPath};

use crate::harness::{Cluster, PATIENCE, wait_for};
use crate::kafka_client::{KafkaClient, batch, options, produce_request, topic_name};

/// A collector on this machine.
struct Collector {
    address: SocketAddr,
    spans: Arc<Mutex<Vec<Span>>>,
    _runtime: Runtime,
}

struct Receiver(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans;
        let scopes = resources.into_iter().flat_map(|resource| resource.scope_spans);
        self.0.lock().extend(scopes.flat_map(|scope| scope.spans));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let spans = Arc::<Mutex<Vec<Span>>>::default();
        let service = TraceServiceServer::new(Receiver(spans.clone()));
        let (listener, address) = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            (tokio_stream::wrappers::TcpListenerStream::new(listener), address)
        });
        runtime.spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(listener));
        Self { address, spans, _runtime: runtime }
    }

    /// The attributes of the spans of a name that came so far, but for those of topics of Walrus's own.
    fn told(&self, name: &str) -> Vec<BTreeMap<String, Value>> {
        let spans = self.spans.lock();
        let of_name = spans.iter().filter(|span| span.name == name);
        of_name.map(attributes).collect()
    }
}

fn attributes(span: &Span) -> BTreeMap<String, Value> {
    assert!(span.start_time_unix_nano > 0 && span.start_time_unix_nano <= span.end_time_unix_nano);
    let value = |told: &Told| match told {
        Told::IntValue(number) => json!(number),
        Told::StringValue(text) => json!(text),
        other => panic!("{other:?}"),
    };
    let pair = |pair: &opentelemetry_proto::tonic::common::v1::KeyValue| {
        (pair.key.clone(), value(pair.value.as_ref().unwrap().value.as_ref().unwrap()))
    };
    span.attributes.iter().map(pair).collect()
}

fn start(endpoint: &str, share: f64) -> Cluster {
    let mut options = options();
    options["spans"] = json!({ "endpoint": endpoint, "share": share });
    let cluster = Cluster::start(1, options);
    let path = TopicPath::parse("t").unwrap();
    cluster.block_on(async { cluster.broker(1).create_topic(&path, 1).await.unwrap() });
    cluster
}

fn fetch(client: &mut KafkaClient, offset: i64) {
    let partition = FetchPartition::default().with_fetch_offset(offset).with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(topic_name("t")).with_partitions(vec![partition]);
    let request = FetchRequest::default().with_max_bytes(1 << 20).with_topics(vec![topic]);
    let answer = client.ask(4, &request);
    assert_eq!(answer.responses[0].partitions[0].error_code, 0);
}

#[test]
fn a_collector_gets_a_span_of_each_append_and_each_read() {
    let collector = Collector::start();
    let cluster = start(&format!("http://{}", collector.address), 1.0);
    let mut client = KafkaClient::connect(&cluster, 1);
    let sent = batch(&["a", "b", "c"], None);
    let bytes = sent.len();
    assert_eq!(client.produce("t", sent.clone()).error_code, 0);
    assert_eq!(client.produce("t", sent).base_offset, 3);
    fetch(&mut client, 3);
    let unknown = client.ask(8, &produce_request("absent", batch(&["x"], None), -1));
    assert_ne!(unknown.responses[0].partition_responses[0].error_code, 0);

    let place = |topic: &str| json!({ "organisation": "default", "topic": topic, "partition": 0 });
    let all = |topic: &str, more: Value| -> BTreeMap<String, Value> {
        let (mut all, more) = (place(topic), more);
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    };
    let stored = |base: u64| all("t", json!({ "record_count": 3, "base_offset": base, "bytes": bytes }));
    let refused = |more: &BTreeMap<String, Value>| {
        more["topic"] == "absent" && more["error.type"] == "UnknownTopic" && !more.contains_key("base_offset")
    };
    let read =
        all("t", json!({ "fetch_offset": 3, "returned_count": 3, "high_watermark": 6, "bytes": bytes }));
    wait_for("the spans have come", PATIENCE, || {
        let (appends, reads) =
            (collector.told("walrus.broker.produce.store"), collector.told("walrus.broker.fetch.read"));
        let has_all = [stored(0), stored(3)].iter().all(|span| appends.contains(span))
            && appends.iter().any(refused)
            && reads.contains(&read);
        if has_all { Ok(()) } else { Err((appends, reads)) }
    });
}

/// A node that stops sends what it has: a test, or a cluster that is about to be rolled, loses no spans.
#[test]
fn a_node_that_stops_sends_the_last_spans_and_one_without_a_share_none() {
    let collector = Collector::start();
    for (share, expected) in [(1.0, 1), (0.0, 0)] {
        collector.spans.lock().clear();
        let cluster = start(&format!("http://{}", collector.address), share);
        assert_eq!(KafkaClient::connect(&cluster, 1).produce("t", batch(&["a"], None)).error_code, 0);
        drop(cluster);
        assert_eq!(collector.told("walrus.broker.produce.store").len(), expected);
    }
}

/// The record path waits for no collector: this one takes connections and never answers, and far more spans are made than its
/// queue has places.
#[test]
fn a_collector_that_never_answers_delays_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let cluster = start(&format!("http://{}", silent.local_addr().unwrap()), 1.0);
    let to = PartitionRef::parse("t", 0).unwrap();
    let sent = batch(&["a"], None);
    let began = Instant::now();
    cluster.block_on(async {
        let broker = cluster.broker(1);
        let appends = (0..5_000).map(|_| broker.append(&to, sent.clone().into()));
        for append in futures_util::future::join_all(appends).await {
            append.unwrap();
        }
    });
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    let began = Instant::now();
    drop(cluster);
    assert!(began.elapsed() < Duration::from_secs(10), "it stops after {:?}", began.elapsed());
}
