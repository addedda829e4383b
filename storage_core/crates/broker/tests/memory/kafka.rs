//! Tests of what clients of Kafka's protocol can make a node hold.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rustix::process::{Resource, getrlimit};
use serde_json::json;
use walrus_broker::PartitionRef;
use walrus_log::batch::{Batch, BatchBuilder};

use crate::TURN;
use crate::harness::{Cluster, PATIENCE, wait_until};
use crate::unread::{reset_peak, status};

/// Limit on the growth of the process's memory, whatever is claimed.
const GROWTH_BYTES: usize = 64 << 20;
/// Bytes to which a batch opens that is a few KiB long.
const BOMB_BYTES: usize = 200 << 20;
/// More than any batch may open to.
const TOO_MANY_BYTES: usize = (256 << 20) + 1;
/// The budget of a node for what it holds for others.
const BUDGET_BYTES: usize = 64 << 20;
/// Memory that a connection may take which says nothing.
const IDLE_BYTES: usize = 12 << 10;
const NONE: i16 = 0;
const MESSAGE_TOO_LARGE: i16 = 10;

fn start() -> Cluster {
    let listener = json!({ "protocol": "kafka", "name": "kafka", "address": "127.0.0.1:0" });
    let cluster = Cluster::start(1, json!({ "listeners": [listener] }));
    let path = PartitionRef::parse("t", 0).unwrap().topic;
    cluster.block_on(cluster.broker(1).create_topic(&path, 1)).unwrap();
    cluster
}

fn connect(cluster: &Cluster) -> TcpStream {
    let stream = TcpStream::connect(&cluster.plane(1).addresses()["kafka/kafka"]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A Produce of version 7 for partition 0 of topic `t`.
fn produce(batch: &[u8]) -> Vec<u8> {
    let mut frame = vec![0, 0, 0, 7, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    frame.extend_from_slice(&[0, 0, 0x27, 0x10, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0]);
    frame.extend_from_slice(&i32::try_from(batch.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(batch);
    [&i32::try_from(frame.len()).unwrap().to_be_bytes()[..], &frame].concat()
}

/// The error of an answer to [`produce`].
fn error(stream: &mut TcpStream) -> i16 {
    let mut answer = [0; 4 + 4 + 4 + 3 + 4 + 4 + 2];
    stream.read_exact(&mut answer).unwrap();
    i16::from_be_bytes(*answer.last_chunk().unwrap())
}

#[test]
fn what_frames_claim_and_do_not_send_takes_no_memory() {
    let _turn = TURN.lock();
    let cluster = start();
    let before = reset_peak();
    let claiming: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = connect(&cluster);
            stream.write_all(&(100_i32 << 20).to_be_bytes()).unwrap();
            stream.write_all(&[0, 0, 0, 7, 0, 0, 0, 1]).unwrap();
            stream
        })
        .collect();
    let mut batch = Vec::new();
    BatchBuilder::new().push(None, Some(b"x"), 1, &[]).build(&mut batch).unwrap();
    let mut other = connect(&cluster);
    other.write_all(&produce(&batch)).unwrap();
    assert_eq!(error(&mut other), NONE, "others go on");
    let grown = status("VmHWM").saturating_sub(before);
    assert!(grown < GROWTH_BYTES, "{grown} bytes for {} claims", claiming.len());
}

/// A batch of one record that opens to so many bytes, compressed.
fn bomb(bytes: usize, codec: u8) -> Vec<u8> {
    let mut plain = Vec::new();
    BatchBuilder::new().push(None, Some(&vec![0; bytes]), 1, &[]).build(&mut plain).unwrap();
    Batch::parse(&plain).unwrap().0.compressed(codec).unwrap()
}

#[test]
fn a_batch_that_opens_to_much_is_looked_through_in_little_memory() {
    let _turn = TURN.lock();
    let cluster = start();
    // Snappy is opened block by block, and this one is one block; the others are streams, up to a limit.
    for (codec, bytes, expected) in [
        (1, BOMB_BYTES, NONE),
        (3, BOMB_BYTES, NONE),
        (4, BOMB_BYTES, NONE),
        (2, BOMB_BYTES, MESSAGE_TOO_LARGE),
        (1, TOO_MANY_BYTES, MESSAGE_TOO_LARGE),
        (4, TOO_MANY_BYTES, MESSAGE_TOO_LARGE),
    ] {
        let bomb = bomb(bytes, codec);
        let before = reset_peak();
        let mut stream = connect(&cluster);
        stream.write_all(&produce(&bomb)).unwrap();
        assert_eq!(error(&mut stream), expected, "codec {codec}, {bytes} bytes");
        let grown = status("VmHWM").saturating_sub(before);
        assert!(grown < GROWTH_BYTES, "{grown} bytes for a batch of {} bytes, codec {codec}", bomb.len());
    }
}

/// A Fetch of version 4 for everything in partition 0 of topic `t`, which waits for nothing.
fn fetch() -> Vec<u8> {
    let mut frame = vec![0, 1, 0, 4, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    frame.extend_from_slice(&[0; 8]); // no wait, no bytes at least
    frame.extend_from_slice(&(50_i32 << 20).to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0]);
    frame.extend_from_slice(&[0; 8]); // from the first record on
    frame.extend_from_slice(&(50_i32 << 20).to_be_bytes());
    [&i32::try_from(frame.len()).unwrap().to_be_bytes()[..], &frame].concat()
}

#[test]
fn clients_that_fetch_and_do_not_read_are_held_for_within_the_budget() {
    let _turn = TURN.lock();
    let listener = json!({ "protocol": "kafka", "name": "kafka", "address": "127.0.0.1:0" });
    let cluster = Cluster::start(1, json!({ "listeners": [listener], "memory_budget_bytes": BUDGET_BYTES }));
    let place = PartitionRef::parse("t", 0).unwrap();
    cluster.block_on(async {
        for _ in 0..4 {
            let value = vec![7; 3 << 20];
            let mut batch = Vec::new();
            BatchBuilder::new().push(None, Some(&value), 1, &[]).build(&mut batch).unwrap();
            cluster.broker(1).append(&place, batch.into()).await.unwrap();
        }
    });
    let before = reset_peak();
    let deaf: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = connect(&cluster);
            (0..5).for_each(|_| stream.write_all(&fetch()).unwrap());
            stream
        })
        .collect();
    let asked = || {
        let text = cluster.plane(1).prometheus();
        let line = text.lines().find_map(|line| {
            line.strip_prefix("walrus_kafka_requests_total{api=\"Fetch\",version=\"4\"} ").map(str::to_owned)
        });
        line.map_or(0, |count| count.parse::<usize>().unwrap())
    };
    wait_until("all have asked", PATIENCE, || asked() >= deaf.len());
    let mut other = connect(&cluster);
    let mut batch = Vec::new();
    BatchBuilder::new().push(None, Some(b"x"), 1, &[]).build(&mut batch).unwrap();
    other.write_all(&produce(&batch)).unwrap();
    assert_eq!(error(&mut other), NONE, "others go on");
    let grown = status("VmHWM").saturating_sub(before);
    assert!(grown < 2 * BUDGET_BYTES, "{grown} bytes for {} clients that do not read", deaf.len());
}

/// An idle connection keeps no buffer, and little else: a cluster has as many of them as its clients have threads.
#[test]
fn idle_connections_take_little_memory_each() {
    let _turn = TURN.lock();
    let cluster = start();
    let descriptors = usize::try_from(getrlimit(Resource::Nofile).current.unwrap()).unwrap();
    // Both ends of each are in this process.
    let count = (descriptors.saturating_sub(4_000) / 2).min(10_000);
    let ask = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff]; // ApiVersions
    let open = || {
        let mut stream = connect(&cluster);
        stream.write_all(&ask).unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
        stream.read_exact(&mut answer).unwrap();
        stream
    };
    let warm: Vec<TcpStream> = (0..100).map(|_| open()).collect();
    let before = status("VmRSS");
    let idle: Vec<TcpStream> = (0..count).map(|_| open()).collect();
    let each = status("VmRSS").saturating_sub(before) / count;
    println!("{each} bytes of memory for each of {count} idle connections");
    assert!(each <= IDLE_BYTES, "{each} bytes each, of {count}");
    drop((warm, idle));
}
