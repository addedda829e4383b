//! `walrus.v1.Log` over real connections: appends, streams, reads, errors.

use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;
use serde_json::json;
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use walrus_broker::proto::v1::log_client::LogClient;
use walrus_broker::proto::v1::{
    AppendRequest, CreateTopicRequest, Error, Format, InitProducerRequest, ListNodesRequest,
    ListOffsetsRequest, ListSegmentsRequest, ListTopicsRequest, OffsetQuestion, Producer, ReadRequest,
    ReadResponse, Record, Records, append_request,
    offset_question::{At, Place},
};
use walrus_log::batch::{Batch, BatchBuilder};

use crate::harness::Cluster;

pub(crate) type Client = LogClient<Channel>;

/// Runs a test against a node, with a client of it.
fn with_client(test: impl AsyncFnOnce(&Cluster, Client)) {
    let cluster = Cluster::start(1, json!({}));
    cluster.block_on(async {
        let client = connect(&cluster, 1).await;
        test(&cluster, client).await;
    });
}

pub(crate) async fn connect(cluster: &Cluster, node: u32) -> Client {
    let address = format!("http://{}", cluster.plane(node).addresses()["grpc"]);
    LogClient::connect(address).await.expect("a listener").max_decoding_message_size(32 << 20)
}

pub(crate) async fn create(client: &mut Client, topic: &str) {
    let request = CreateTopicRequest { topic: topic.to_owned(), partitions: 1, ..Default::default() };
    assert!(client.create_topic(request).await.expect("a topic").into_inner().created);
}

fn record(value: &str) -> Record {
    Record { value: Some(Bytes::copy_from_slice(value.as_bytes())), ..Record::default() }
}

fn append(topic: &str, values: &[&str]) -> AppendRequest {
    let records = Records { records: values.iter().map(|value| record(value)).collect() };
    let payload = Some(append_request::Payload::Records(records));
    AppendRequest { topic: topic.to_owned(), payload, ..AppendRequest::default() }
}

pub(crate) fn ready(topic: &str, batch: impl Into<Bytes>) -> AppendRequest {
    let payload = Some(append_request::Payload::Batch(batch.into()));
    AppendRequest { topic: topic.to_owned(), payload, ..AppendRequest::default() }
}

pub(crate) fn batch(values: &[&str]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(None, Some(value.as_bytes()), 1, &[]);
    }
    let mut bytes = Vec::new();
    builder.build(&mut bytes).expect("a batch");
    bytes
}

pub(crate) async fn read(client: &mut Client, request: ReadRequest) -> Vec<ReadResponse> {
    let stream = client.read(request).await.expect("a topic").into_inner();
    stream.map(|answer| answer.expect("a page")).collect().await
}

pub(crate) fn values(pages: &[ReadResponse]) -> Vec<String> {
    let records = pages.iter().flat_map(|page| &page.records);
    records.map(|record| String::from_utf8(record.value.clone().unwrap().to_vec()).unwrap()).collect()
}

pub(crate) fn all_of(topic: &str) -> ReadRequest {
    ReadRequest { topic: topic.to_owned(), ..ReadRequest::default() }
}

#[test]
fn records_and_ready_batches_come_out_as_they_went_in() {
    with_client(async |_cluster, mut client| {
        create(&mut client, "t").await;
        let first = client.append(append("t", &["a", "b"])).await.unwrap().into_inner();
        assert_eq!((first.base_offset, first.end_offset, first.duplicate), (0, 2, false));
        let ready_batch = batch(&["c", "d", "e"]);
        let second = client.append(ready("t", ready_batch.clone())).await.unwrap().into_inner();
        assert_eq!((second.base_offset, second.end_offset), (2, 5));

        let pages = read(&mut client, all_of("t")).await;
        assert_eq!(values(&pages), ["a", "b", "c", "d", "e"]);
        let offsets: Vec<u64> =
            pages.iter().flat_map(|page| &page.records).map(|record| record.offset).collect();
        assert_eq!(offsets, [0, 1, 2, 3, 4]);
        let last = pages.last().unwrap();
        assert_eq!((last.next_offset, last.high_watermark, last.log_start), (5, 5, 0));

        let raw =
            read(&mut client, ReadRequest { offset: 3, format: Format::Batches.into(), ..all_of("t") }).await;
        let (stored, rest) = Batch::parse(&raw[0].batches).unwrap();
        assert!(rest.is_empty());
        assert_eq!(
            (stored.base_offset(), stored.end_offset()),
            (2, 5),
            "whole, though it begins below the offset"
        );
        assert_eq!(stored.bytes()[21..], ready_batch[21..], "only offset and epoch were patched");
    });
}

#[test]
fn offsets_are_listed_by_time_and_a_question_without_sense_fails_the_request() {
    with_client(async |_cluster, mut client| {
        create(&mut client, "t").await;
        client.append(ready("t", batch(&["a", "b"]))).await.unwrap();
        let ask = |partition, at| OffsetQuestion { partition, at };
        let place = |place: Place| Some(At::Place(place.into()));
        let questions = vec![
            ask(0, place(Place::Earliest)),
            ask(0, place(Place::Latest)),
            ask(0, place(Place::MaxTimestamp)),
            ask(0, Some(At::TimestampMs(1))),
            ask(0, Some(At::TimestampMs(2))),
            ask(1, place(Place::Latest)),
        ];
        let request = |questions| ListOffsetsRequest { topic: "t".to_owned(), questions };
        let answers = client.list_offsets(request(questions)).await.unwrap().into_inner().answers;
        let found: Vec<_> = answers.iter().map(|answer| (answer.offset, answer.timestamp_ms)).collect();
        let (one, none) = ((Some(0), Some(1)), (None, None));
        assert_eq!(found, [(Some(0), None), (Some(2), None), one, one, none, none]);
        assert_eq!(answers[5].partition, 1);
        assert_eq!(answers[5].error.as_ref().unwrap().reason, "UnknownPartition");
        assert!(answers[..5].iter().all(|answer| answer.error.is_none()));
        for wrong in [None, Some(At::Place(9)), place(Place::Unspecified)] {
            let refused = client.list_offsets(request(vec![ask(0, wrong)])).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
        }
    });
}

#[test]
fn a_read_ends_at_its_end_offset_and_says_where_the_log_is() {
    with_client(async |_cluster, mut client| {
        create(&mut client, "t").await;
        let empty = read(&mut client, all_of("t")).await;
        assert_eq!(empty.len(), 1, "an empty topic still answers its watermarks");
        assert_eq!((empty[0].next_offset, empty[0].high_watermark), (0, 0));
        for n in 0..20 {
            client.append(append("t", &[&format!("{n}"), "x"])).await.unwrap();
        }
        let pages = read(&mut client, ReadRequest { offset: 5, end_offset: Some(8), ..all_of("t") }).await;
        assert_eq!(values(&pages), ["x", "3", "x"]);
        assert_eq!(pages.last().unwrap().next_offset, 8);
        let small = read(&mut client, ReadRequest { bytes_max: 1, ..all_of("t") }).await;
        assert!(small.len() >= 20, "one batch in each answer: {}", small.len());
        assert_eq!(values(&small).len(), 40);
    });
}

#[test]
fn a_read_that_waits_gets_what_is_appended_meanwhile() {
    with_client(async |_cluster, mut client| {
        create(&mut client, "t").await;
        let request = ReadRequest { wait_ms: 20_000, end_offset: Some(1), ..all_of("t") };
        let mut reader = client.clone();
        let reading = tokio::spawn(async move { read(&mut reader, request).await });
        client.append(append("t", &["late"])).await.unwrap();
        assert_eq!(values(&reading.await.unwrap()), ["late"]);
    });
}

#[test]
fn a_stream_answers_in_order_and_goes_on_after_an_error() {
    with_client(async |_cluster, mut client| {
        create(&mut client, "t").await;
        let requests = (0..300u64).map(|n| {
            let mut request = match n {
                100 => ready("t", &b"no batch"[..]),
                200 => append("nothing/here", &["x"]),
                _ => append("t", &[&format!("{n}")]),
            };
            request.correlation = n;
            request
        });
        let requests: Vec<_> = requests.collect();
        let stream = client.append_stream(tokio_stream::iter(requests)).await.unwrap().into_inner();
        let answers: Vec<_> = stream.map(Result::unwrap).collect().await;
        assert_eq!(
            answers.iter().map(|answer| answer.correlation).collect::<Vec<_>>(),
            (0..300).collect::<Vec<_>>()
        );
        let errors: Vec<_> =
            answers.iter().filter_map(|a| Some((a.correlation, a.error.clone()?.reason))).collect();
        assert_eq!(errors, [(100, "InvalidBatch".to_owned()), (200, "InvalidTopic".to_owned())]);
        let offsets: Vec<u64> = answers.iter().filter(|a| a.error.is_none()).map(|a| a.base_offset).collect();
        assert_eq!(offsets, (0..298).collect::<Vec<_>>());
        let stored = values(&read(&mut client, all_of("t")).await);
        let sent: Vec<String> = (0..300).filter(|n| ![100, 200].contains(n)).map(|n| n.to_string()).collect();
        assert_eq!(stored, sent);
    });
}

#[test]
fn every_node_takes_a_stream_and_keeps_its_order() {
    let cluster = Cluster::start(3, json!({"segment_entries_max": 50}));
    cluster.block_on(async {
        let mut client = connect(&cluster, 1).await;
        create(&mut client, "t").await;
        for node in 1..=3 {
            let mut client = connect(&cluster, node).await;
            let requests: Vec<_> = (0..100).map(|n| append("t", &[&format!("{node}-{n}")])).collect();
            let stream = client.append_stream(tokio_stream::iter(requests)).await.unwrap().into_inner();
            let answers: Vec<_> = stream.map(Result::unwrap).collect().await;
            let errors: Vec<_> = answers.into_iter().filter_map(|answer| answer.error).collect();
            assert_eq!(errors, []);
        }
        let mut reader = connect(&cluster, 2).await;
        let sent: Vec<String> =
            (1..=3).flat_map(|node| (0..100).map(move |n| format!("{node}-{n}"))).collect();
        assert_eq!(values(&read(&mut reader, all_of("t")).await), sent);
    });
}

#[test]
fn a_batch_that_is_sent_again_is_stored_once() {
    with_client(async |_cluster, mut client| {
        create(&mut client, "t").await;
        let producer = client.init_producer(InitProducerRequest {}).await.unwrap().into_inner();
        let other = client.init_producer(InitProducerRequest {}).await.unwrap().into_inner();
        assert_ne!(producer.producer_id, other.producer_id);
        let of = |base_sequence| {
            let producer =
                Producer { id: producer.producer_id, epoch: producer.producer_epoch, base_sequence };
            AppendRequest { producer: Some(producer), ..append("t", &["a", "b"]) }
        };
        let first = client.append(of(0)).await.unwrap().into_inner();
        let again = client.append(of(0)).await.unwrap().into_inner();
        assert_eq!(
            (again.base_offset, again.end_offset, again.duplicate),
            (first.base_offset, first.end_offset, true)
        );
        let gap = client.append(of(7)).await.unwrap_err();
        assert_eq!((gap.code(), reason(&gap).as_str()), (Code::FailedPrecondition, "OutOfOrderSequence"));
        assert_eq!(values(&read(&mut client, all_of("t")).await).len(), 2);
    });
}

#[test]
fn topics_and_segments_are_listed() {
    with_client(async |_cluster, mut client| {
        create(&mut client, "b").await;
        create(&mut client, "a").await;
        let again = client
            .create_topic(CreateTopicRequest { topic: "a".to_owned(), partitions: 1, ..Default::default() })
            .await;
        assert!(!again.unwrap().into_inner().created);
        let topics =
            client.list_topics(ListTopicsRequest { internal: false }).await.unwrap().into_inner().topics;
        assert_eq!(topics.iter().map(|topic| topic.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        client.append(append("a", &["x"])).await.unwrap();
        let listed =
            client.list_segments(ListSegmentsRequest { topic: "a".to_owned() }).await.unwrap().into_inner();
        let segment = &listed.partitions[0].segments[0];
        assert_eq!((segment.base_offset, segment.end_offset, listed.partitions[0].high_watermark), (0, 1, 1));
        assert!(segment.leader.as_ref().is_some_and(|leader| leader.id == 1 && leader.alive));
        let leader = segment.leader.clone().unwrap();
        let nodes = client.list_nodes(ListNodesRequest {}).await.unwrap().into_inner();
        assert_eq!(nodes.nodes, [leader], "the nodes of the cluster, where clients reach them");
        assert_eq!(nodes.cluster_id.len(), 36);
        let read = ReadRequest { segment: Some(segment.uuid.clone()), ..all_of("a") };
        assert_eq!(values(&self::read(&mut client, read).await), ["x"]);
    });
}

/// The reason of a failure, which the status says in two ways.
pub(crate) fn reason(status: &Status) -> String {
    let details = status.get_error_details();
    let info = details.error_info().expect("ErrorInfo").clone();
    let trailer =
        status.metadata().get_bin("walrus-error-bin").expect("a trailer").to_bytes().expect("bytes");
    let error = Error::decode(trailer).expect("walrus.v1.Error");
    assert_eq!(error.reason, info.reason);
    assert_eq!(error.message, status.message());
    info.reason
}

#[test]
fn errors_have_standard_codes_reasons_and_words() {
    with_client(async |_cluster, mut client| {
        create(&mut client, "t").await;
        client.append(append("t", &["x"])).await.unwrap();
        let mut flipped = batch(&["abc"]);
        *flipped.last_mut().unwrap() ^= 1;
        let mut compressed = batch(&["abc"]);
        compressed[22] |= 1;
        for (request, code, expected) in [
            (append("t", &[]), Code::InvalidArgument, "InvalidRequest"),
            (AppendRequest::default(), Code::InvalidArgument, "InvalidTopic"),
            (append("a b", &["x"]), Code::InvalidArgument, "InvalidTopic"),
            (append("_walrus/__cursors", &["x"]), Code::InvalidArgument, "InvalidTopic"),
            (ready("t", flipped), Code::InvalidArgument, "InvalidBatch"),
            (ready("t", compressed), Code::InvalidArgument, "InvalidBatch"),
            (AppendRequest { partition: 7, ..append("t", &["x"]) }, Code::NotFound, "UnknownPartition"),
        ] {
            let status = client.append(request).await.unwrap_err();
            assert_eq!((status.code(), reason(&status).as_str()), (code, expected), "{status:?}");
        }
        for (request, code, expected) in [
            (all_of("nothing-here"), Code::NotFound, "UnknownTopic"),
            (ReadRequest { partition: 3, ..all_of("t") }, Code::NotFound, "UnknownPartition"),
            (ReadRequest { offset: 9, ..all_of("t") }, Code::OutOfRange, "OffsetOutOfRange"),
            (ReadRequest { format: 9, ..all_of("t") }, Code::InvalidArgument, "InvalidRequest"),
            (
                ReadRequest { segment: Some("x".to_owned()), ..all_of("t") },
                Code::InvalidArgument,
                "InvalidRequest",
            ),
            (
                ReadRequest { offset: 1, end_offset: Some(0), ..all_of("t") },
                Code::InvalidArgument,
                "InvalidRequest",
            ),
        ] {
            let status = match client.read(request).await {
                Err(status) => status,
                Ok(stream) => stream.into_inner().next().await.expect("an answer").unwrap_err(),
            };
            assert_eq!((status.code(), reason(&status).as_str()), (code, expected), "{status:?}");
        }
        let status = client
            .create_topic(CreateTopicRequest { topic: "t".to_owned(), partitions: 2, ..Default::default() })
            .await
            .unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::AlreadyExists, "TopicExists"));
        let status = client.list_segments(ListSegmentsRequest { topic: "u".to_owned() }).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "UnknownTopic"));
        let huge = append("t", &[&"x".repeat(17 << 20)]);
        let status = client.append(huge).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "gRPC's own limit: {status:?}");
        assert_eq!(values(&read(&mut client, all_of("t")).await), ["x"], "nothing refused was stored");
    });
}

#[test]
fn a_stopping_node_ends_streams_that_clients_hold_open() {
    let cluster = Cluster::start(1, json!({}));
    cluster.block_on(async {
        let mut client = connect(&cluster, 1).await;
        create(&mut client, "t").await;
        let mut held = client.append_stream(tokio_stream::pending()).await.unwrap().into_inner();
        let waiting = ReadRequest { wait_ms: 60_000, offset: 0, end_offset: Some(5), ..all_of("t") };
        let mut read = client.read(waiting).await.unwrap().into_inner();
        let began = Instant::now();
        let plane = cluster.plane(1);
        let stopping = std::thread::spawn(move || plane.stop(Duration::from_secs(5)));
        assert!(held.next().await.is_none_or(|answer| answer.is_err()));
        assert!(read.next().await.is_none_or(|answer| answer.is_err()));
        stopping.join().unwrap();
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    });
}

#[test]
fn health_and_reflection_answer() {
    with_client(async |cluster, _client| {
        let address = format!("http://{}", cluster.plane(1).addresses()["grpc"]);
        let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
        let mut health = tonic_health::pb::health_client::HealthClient::new(channel.clone());
        let request = tonic_health::pb::HealthCheckRequest { service: "walrus.v1.Log".to_owned() };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status(), tonic_health::pb::health_check_response::ServingStatus::Serving);

        use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
        use tonic_reflection::pb::v1::{ServerReflectionRequest, ServiceResponse};
        let request = ServerReflectionRequest {
            message_request: Some(MessageRequest::ListServices(String::new())),
            ..ServerReflectionRequest::default()
        };
        let mut reflection = ServerReflectionClient::new(channel);
        let answers = reflection.server_reflection_info(tokio_stream::iter([request])).await.unwrap();
        let answer = answers.into_inner().next().await.unwrap().unwrap().message_response;
        let Some(MessageResponse::ListServicesResponse(services)) = answer else { panic!("{answer:?}") };
        let names: Vec<_> = services.service.into_iter().map(|ServiceResponse { name }| name).collect();
        assert!(names.contains(&"walrus.v1.Log".to_owned()), "{names:?}");
    });
}
