//! A client of Kafka's protocol that speaks frame by frame, and can also misbehave.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{ProduceRequest, RequestHeader, ResponseHeader, TopicName};
use kafka_protocol::protocol::{Decodable as _, Encodable as _, HeaderVersion as _, Request, StrBytes};
use serde_json::{Value, json};
use walrus_log::batch::{BatchBuilder, ProducerRef};

use crate::harness::Cluster;

/// Options of nodes with one listener of Kafka's protocol, of the name `kafka`.
pub(crate) fn options() -> Value {
    json!({ "listeners": [{ "protocol": "kafka", "name": "kafka", "address": "127.0.0.1:0" }] })
}

/// A client with one connection.
pub(crate) struct KafkaClient {
    stream: TcpStream,
    correlation: i32,
}

impl KafkaClient {
    pub(crate) fn connect(cluster: &Cluster, node: u32) -> Self {
        Self::connect_to(&cluster.plane(node).addresses()["kafka/kafka"])
    }

    pub(crate) fn connect_to(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { stream, correlation: 0 }
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.send(version, request);
        self.answer::<R>(version)
    }

    pub(crate) fn send<R: Request>(&mut self, version: i16, request: &R) {
        self.correlation += 1;
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(StrBytes::from_static_str("test")));
        let mut frame = BytesMut::new();
        header.encode(&mut frame, R::header_version(version)).unwrap();
        request.encode(&mut frame, version).unwrap();
        self.send_frame(&frame);
    }

    /// The answer to the oldest request that has none yet.
    pub(crate) fn answer<R: Request>(&mut self, version: i16) -> R::Response {
        let mut bytes = self.frame().expect("an answer");
        ResponseHeader::decode(&mut bytes, R::Response::header_version(version)).unwrap();
        let response = R::Response::decode(&mut bytes, version).unwrap();
        assert!(bytes.is_empty(), "bytes are left behind the answer");
        response
    }

    pub(crate) fn send_frame(&mut self, frame: &[u8]) {
        let length = i32::try_from(frame.len()).unwrap();
        self.send_raw(&[&length.to_be_bytes(), frame].concat());
    }

    /// Sends bytes, which a connection that was closed takes no more.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        drop(self.stream.write_all(bytes));
    }

    /// The next frame; `None` when the node closed the connection.
    pub(crate) fn frame(&mut self) -> Option<Bytes> {
        let mut length = [0; 4];
        match self.stream.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) => {
                assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "neither an answer nor the end");
                return None;
            }
        }
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
        self.stream.read_exact(&mut frame).ok()?;
        Some(frame.into())
    }

    /// Appends a batch to partition 0 of a topic.
    pub(crate) fn produce(&mut self, topic: &str, batch: impl Into<Bytes>) -> PartitionProduceResponse {
        let mut response = self.ask(8, &produce_request(topic, batch, -1));
        response.responses.remove(0).partition_responses.remove(0)
    }
}

pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

pub(crate) fn produce_request(topic: &str, batch: impl Into<Bytes>, acks: i16) -> ProduceRequest {
    let data = PartitionProduceData::default().with_index(0).with_records(Some(batch.into()));
    let topic = TopicProduceData::default().with_name(topic_name(topic)).with_partition_data(vec![data]);
    ProduceRequest::default().with_acks(acks).with_timeout_ms(10_000).with_topic_data(vec![topic])
}

/// A batch of records with these values and without keys, made at the times 1, 2 and so on.
pub(crate) fn batch(values: &[&str], producer: Option<ProducerRef>) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    if let Some(producer) = producer {
        builder.producer(producer);
    }
    for (time, value) in (1..).zip(values) {
        builder.push(None, Some(value.as_bytes()), time, &[]);
    }
    let mut bytes = Vec::new();
    builder.build(&mut bytes).unwrap();
    bytes
}

/// The batch with other bytes at a place, and the checksum that they have then.
pub(crate) fn changed(batch: &[u8], place: usize, to: &[u8]) -> Vec<u8> {
    let mut batch = batch.to_vec();
    batch[place..place + to.len()].copy_from_slice(to);
    let crc = crc_fast::crc32_iscsi(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}
