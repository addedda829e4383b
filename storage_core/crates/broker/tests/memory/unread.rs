//! Tests with clients that ask and do not read.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::StreamBody;
use prost::Message as _;
use serde_json::json;
use tokio_stream::StreamExt as _;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::Request;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::ServiceExt as _;
use walrus_broker::PartitionRef;
use walrus_broker::proto::peer::Fetch;
use walrus_broker::proto::v1::log_client::LogClient;
use walrus_broker::proto::v1::{Format, ListTopicsRequest, ReadRequest};

use crate::TURN;
use crate::client::{batch_of, put};
use crate::harness::{Cluster, PATIENCE, wait_until};
use crate::peer::{Peer, frame};

/// The node's budget for what it holds for others.
const BUDGET_BYTES: usize = 64 << 20;
/// Limit on the growth of the process's memory meanwhile: the budget, and what is being read and encoded just then.
const GROWTH_BYTES: usize = 2 * BUDGET_BYTES;
/// Size of each of the batches that are asked for.
const BATCH_BYTES: usize = 8 << 20;

/// A node with two large batches in a topic.
fn start() -> (Cluster, PartitionRef) {
    let cluster = Cluster::start(
        1,
        json!({ "memory_budget_bytes": BUDGET_BYTES, "log_block_bytes": 10 << 20, "log_blocks_per_file": 4 }),
    );
    let topic = PartitionRef::parse("logs", 0).unwrap();
    cluster.block_on(async {
        for _ in 0..2 {
            cluster.broker(1).append(&topic, batch_of(&["x".repeat(BATCH_BYTES)], None)).await.unwrap();
        }
    });
    (cluster, topic)
}

/// A line of `/proc/self/status`, in bytes.
pub(crate) fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<usize>().unwrap() << 10
}

/// Resets the peak of the process's memory, and answers how much it has now.
pub(crate) fn reset_peak() -> usize {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    status("VmRSS")
}

/// Bytes of pages for readers that the node holds.
fn held(cluster: &Cluster) -> usize {
    held_of(cluster, "reads")
}

fn held_of(cluster: &Cluster, share: &str) -> usize {
    let (metrics, name) = (cluster.plane(1).prometheus(), format!("walrus_held_bytes{{share=\"{share}\"}} "));
    metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

fn wait_until_full(cluster: &Cluster) {
    // Less than half of the share, and one page more does not fit any more.
    wait_until("pages wait for their reader", PATIENCE, || held(cluster) > BATCH_BYTES);
}

/// Reads a frame and forgets its payload; says its kind.
fn skip_frame(stream: &mut TcpStream) -> u8 {
    let mut head = [0; 13];
    stream.read_exact(&mut head).unwrap();
    let mut left = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize - 9;
    let mut buffer = vec![0; 64 << 10];
    while left > 0 {
        let here = left.min(buffer.len());
        stream.read_exact(&mut buffer[..here]).unwrap();
        left -= here;
    }
    head[4]
}

/// A peer's 2.4 KB of requests cost the node 602 MiB of memory.
#[test]
fn sixty_pages_that_a_peer_does_not_read_stay_within_the_budget_and_stop_no_append() {
    const FETCH: u8 = 5;
    const COUNT: u64 = 60;
    let _turn = TURN.lock();
    let (cluster, topic) = start();
    let Peer { mut stream } = Peer::greet(&cluster, 1);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let segment = cluster.broker(1).leadership(&topic).unwrap().segment.as_bytes().to_vec();
    let fetch = Fetch { segment: segment.into(), bytes_max: 10 << 20, ..Fetch::default() }.encode_to_vec();

    let before = reset_peak();
    for id in 1..=COUNT {
        stream.write_all(&frame(FETCH, id, &fetch)).unwrap();
    }
    wait_until_full(&cluster);
    assert_eq!(cluster.block_on(put(&cluster.broker(1), &topic, "small")).unwrap().base_offset, 2);
    for _ in 1..=COUNT {
        skip_frame(&mut stream); // a page, or that there was no room for it in time
    }
    let growth = status("VmHWM").saturating_sub(before);
    assert!(growth < GROWTH_BYTES, "{} MiB", growth >> 20);
    wait_until("nothing is held any more", PATIENCE, || held(&cluster) == 0);
}

/// Pages that were not read took the room of batches between replicas, whose connections ended then.
#[test]
fn pages_for_repairs_that_a_peer_does_not_read_leave_room_for_batches_between_replicas() {
    const FETCH: u8 = 5;
    let _turn = TURN.lock();
    let (cluster, topic) = start();
    let Peer { mut stream } = Peer::greet(&cluster, 1);
    let segment = cluster.broker(1).leadership(&topic).unwrap().segment.as_bytes().to_vec();
    let fetch = Fetch { segment: segment.into(), bytes_max: 10 << 20, durable: true, ..Fetch::default() };
    for id in 1..=20 {
        stream.write_all(&frame(FETCH, id, &fetch.encode_to_vec())).unwrap();
    }
    wait_until("pages wait for their reader", PATIENCE, || held_of(&cluster, "repairs") > BATCH_BYTES);
    assert_eq!(held_of(&cluster, "replication"), 0);
}

/// Sends half of a message, and no more.
async fn append_half(address: String) {
    let size: u32 = 16 << 20;
    let prefix = [&[0], size.to_be_bytes().as_slice()].concat();
    let half = (0..9).map(|_| Bytes::from(vec![0; 1 << 20]));
    let pieces = std::iter::once(Bytes::from(prefix))
        .chain(half)
        .map(|piece| Ok::<_, Status>(http_body::Frame::data(piece)));
    let body = Body::new(StreamBody::new(tokio_stream::iter(pieces).chain(tokio_stream::pending())));
    let request = Request::post("/walrus.v1.Log/Append").header("content-type", "application/grpc");
    let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
    drop(channel.oneshot(request.body(body).unwrap()).await);
}

/// All requests took the room of appends: who read, or asked for the health, waited for ten seconds and failed.
#[test]
fn appends_that_never_come_in_whole_stop_neither_readers_nor_questions_about_the_health() {
    let _turn = TURN.lock();
    let (cluster, _) = start();
    let address = format!("http://{}", cluster.plane(1).addresses()["grpc"]);
    cluster.block_on(async {
        let senders: Vec<_> = (0..3).map(|_| tokio::spawn(append_half(address.clone()))).collect();
        while held_of(&cluster, "appends") < BUDGET_BYTES / 4 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
        let (mut log, mut health) = (LogClient::new(channel.clone()), HealthClient::new(channel));
        let asked = async {
            log.list_topics(ListTopicsRequest::default()).await.unwrap();
            health.check(HealthCheckRequest::default()).await.unwrap();
        };
        tokio::time::timeout(Duration::from_secs(5), asked).await.expect("answers at once");
        senders.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

/// Thirty such reads cost the node 750 MiB of memory.
#[test]
fn thirty_reads_that_a_client_does_not_read_stay_within_the_budget_and_stop_no_append() {
    let _turn = TURN.lock();
    let (cluster, topic) = start();
    cluster.block_on(async {
        let address = format!("http://{}", cluster.plane(1).addresses()["grpc"]);
        let client = LogClient::connect(address).await.unwrap().max_decoding_message_size(64 << 20);
        let before = reset_peak();
        let mut unread = Vec::new();
        for _ in 0..30 {
            let request = ReadRequest {
                topic: "logs".to_owned(),
                bytes_max: 16 << 20,
                format: Format::Batches.into(),
                ..ReadRequest::default()
            };
            let mut client = client.clone();
            unread.push(tokio::spawn(async move { client.read(request).await }));
        }
        while held(&cluster) <= BATCH_BYTES {
            tokio::task::yield_now().await;
        }
        assert_eq!(put(&cluster.broker(1), &topic, "small").await.unwrap().base_offset, 2);
        // One is read to its end as soon as the others are gone.
        let first = unread.remove(0).await.unwrap();
        for stream in unread {
            drop(stream.await.unwrap());
        }
        let growth = status("VmHWM").saturating_sub(before);
        assert!(growth < GROWTH_BYTES, "{} MiB", growth >> 20);
        let mut pages = first.unwrap().into_inner();
        let page = tokio::time::timeout(Duration::from_secs(20), pages.next()).await.unwrap();
        assert!(page.unwrap().is_ok_and(|page| page.batches.len() > BATCH_BYTES));
    });
    wait_until("nothing is held any more", PATIENCE, || held(&cluster) == 0);
}
