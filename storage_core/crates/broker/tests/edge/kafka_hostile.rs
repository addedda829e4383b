//! Tests of what strangers send to the port of Kafka's protocol: each is answered with an error, or its connection is closed, and nobody
//! else notices.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Encodable as _, Request};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use walrus_log::batch::Batch;

use crate::harness::{Cluster, PATIENCE, wait_until};
use crate::kafka_client::{KafkaClient, batch, changed, options, produce_request};

/// Longest body that is made up.
const BODY_BYTES_MAX: usize = 300;
/// Number of requests that are made up.
const MADE_UP: u32 = 1_500;

/// A request of an API in a version, as a client sends it: the frame without its length.
fn frame<R: Request + Default>(version: i16) -> Bytes {
    let header = RequestHeader::default().with_request_api_key(R::KEY).with_request_api_version(version);
    let mut frame = BytesMut::new();
    header.encode(&mut frame, R::header_version(version)).unwrap();
    R::default().encode(&mut frame, version).unwrap();
    frame.freeze()
}

type Frame = fn(i16) -> Bytes;

macro_rules! frames {
    ($($request:ty),* $(,)?) => { [$((<$request as Request>::KEY, frame::<$request> as Frame)),*] };
}

/// Each API that is offered, which is proved by what a node says it offers.
const APIS: [(i16, Frame); 30] = frames![
    ProduceRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteRecordsRequest,
    InitProducerIdRequest,
    OffsetForLeaderEpochRequest,
    DescribeAclsRequest,
    DescribeConfigsRequest,
    AlterConfigsRequest,
    DescribeLogDirsRequest,
    CreatePartitionsRequest,
    DeleteGroupsRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
    OffsetDeleteRequest,
    DescribeClusterRequest,
    DescribeProducersRequest,
];

/// A request in each version that the node says it serves.
fn offered(client: &mut KafkaClient) -> Vec<(i16, i16, Bytes)> {
    let rows = client.ask(3, &ApiVersionsRequest::default()).api_keys;
    assert_eq!(rows.len(), APIS.len());
    let of_row = |row: &api_versions_response::ApiVersion| {
        let (key, frame) = *APIS.iter().find(|(key, _)| *key == row.api_key).unwrap();
        let served_from = if key == ProduceRequest::KEY { 3 } else { row.min_version };
        (served_from..=row.max_version).map(move |version| (key, version, frame(version))).collect::<Vec<_>>()
    };
    rows.iter().flat_map(of_row).collect()
}

struct Node {
    cluster: Cluster,
    other: KafkaClient,
}

impl Node {
    fn start() -> Self {
        let cluster = Cluster::start(1, options());
        let other = KafkaClient::connect(&cluster, 1);
        Self { cluster, other }
    }

    /// Sends bytes on a connection of their own, and waits until the node has closed it.
    fn send(&mut self, what: &str, bytes: &[u8]) {
        let address = &self.cluster.plane(1).addresses()["kafka/kafka"];
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        drop(stream.write_all(bytes)); // it may be closed before all is taken
        drop(stream.shutdown(Shutdown::Write));
        if let Err(error) = stream.read_to_end(&mut Vec::new()) {
            assert_ne!(
                error.kind(),
                ErrorKind::WouldBlock,
                "{what}: neither an answer nor the end: {bytes:?}"
            );
        }
    }

    fn send_frame(&mut self, what: &str, frame: &[u8]) {
        let length = i32::try_from(frame.len()).unwrap().to_be_bytes();
        self.send(what, &[&length, frame].concat());
    }

    /// Proves that nobody else has noticed anything.
    fn check(mut self) {
        self.other.ask(3, &ApiVersionsRequest::default());
        let text = self.cluster.plane(1).prometheus();
        assert!(text.lines().any(|line| line == "walrus_panics_total 0"));
        wait_until("only the other connection is left", PATIENCE, || {
            self.cluster.plane(1).prometheus().lines().any(|line| line == "walrus_kafka_connections 1")
        });
    }
}

#[test]
fn requests_of_every_version_that_are_cut_off_anywhere_end_their_connection_alone() {
    let mut node = Node::start();
    for (key, version, frame) in offered(&mut node.other) {
        let what = format!("API {key}, version {version}");
        node.send_frame(&what, &frame);
        for end in [9, frame.len() / 2, frame.len() - 1] {
            node.send_frame(&what, &frame[..end.min(frame.len())]);
        }
        node.send(&what, &[&i32::MAX.to_be_bytes()[..], &frame].concat());
    }
    node.check();
}

/// An array that says to have 2^31 - 1 entries made a broker allocate for them. Every four bytes of a request, and every byte of the newest
/// version of it, say so here: those of its counts are among them.
#[test]
fn counts_of_2_to_the_31_anywhere_in_a_request_take_no_memory() {
    let mut node = Node::start();
    let frames = offered(&mut node.other);
    for (index, (key, version, frame)) in frames.iter().enumerate() {
        let is_oldest = index == 0 || frames[index - 1].0 != *key;
        let is_newest = frames.get(index + 1).is_none_or(|next| next.0 != *key);
        let what = format!("API {key}, version {version}");
        let places = 8..frame.len();
        if is_oldest {
            for place in places.clone().filter(|place| place + 4 <= frame.len()) {
                let mut changed = frame.to_vec();
                changed[place..place + 4].copy_from_slice(&i32::MAX.to_be_bytes());
                node.send_frame(&what, &changed);
            }
        }
        if is_newest {
            for place in places {
                let (before, behind) = frame.split_at(place);
                let changed = [before, &[0xff, 0xff, 0xff, 0xff, 0x07], &behind[1..]].concat();
                node.send_frame(&what, &changed);
            }
        }
    }
    node.check();
}

#[test]
fn bodies_that_are_made_up_are_refused_or_answered() {
    let mut node = Node::start();
    let frames = offered(&mut node.other);
    let body = (0..frames.len(), proptest::collection::vec(any::<u8>(), 0..BODY_BYTES_MAX), any::<bool>());
    let mut runner =
        TestRunner::new(Config { cases: MADE_UP, failure_persistence: None, ..Config::default() });
    let node_cell = std::cell::RefCell::new(&mut node);
    runner
        .run(&body, |(index, body, keeps_header)| {
            let (key, version, frame) = &frames[index];
            let header = if keeps_header { frame.len().min(11) } else { 8 };
            let made_up = [&frame[..header], &body].concat();
            node_cell.borrow_mut().send_frame(&format!("API {key}, version {version}"), &made_up);
            Ok(())
        })
        .unwrap();
    node.check();
}

#[test]
fn tls_and_http_are_told_apart_from_frames_and_closed() {
    let mut node = Node::start();
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 512]].concat();
    for bytes in
        [&hello[..], b"GET / HTTP/1.1\r\nHost: walrus\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[0; 64]]
    {
        node.send("another protocol", bytes);
    }
    node.check();
}

/// What a batch may be wrong in, with the error that its client gets; the next batch on the connection is stored.
#[test]
fn batches_that_are_no_batches_are_refused_and_the_next_one_is_stored() {
    let mut node = Node::start();
    let good = batch(&["value"], None);
    let mut client = KafkaClient::connect(&node.cluster, 1);
    node.cluster.block_on(async {
        let path = walrus_broker::TopicPath::parse("t").unwrap();
        node.cluster.broker(1).create_topic(&path, 1).await.unwrap();
    });
    let mut wrong_crc = good.clone();
    wrong_crc[17] ^= 1;
    let truncated: Vec<Vec<u8>> = (0..good.len()).step_by(7).map(|end| good[..end].to_vec()).collect();
    let opened: Vec<Vec<u8>> = (1..=4)
        .map(|codec| {
            // The records of a compressed batch, which are no stream of their codec.
            let mut bytes = Batch::parse(&good).unwrap().0.compressed(codec).unwrap();
            let length = bytes.len();
            bytes[length - 8..].fill(0xff);
            changed(&bytes, 22, &[codec])
        })
        .collect();
    let fixed = [wrong_crc, changed(&good, 16, &[0]), changed(&good, 16, &[1]), changed(&good, 16, &[3])];
    for wrong in fixed.into_iter().chain(truncated).chain(opened) {
        let answer = client.ask(8, &produce_request("t", wrong, -1));
        let code = answer.responses[0].partition_responses[0].error_code;
        assert!([2, 87].contains(&code), "error {code}");
    }
    assert_eq!(client.produce("t", good).base_offset, 0);
    drop(client);
    node.other.ask(3, &ApiVersionsRequest::default());
    node.check();
}
