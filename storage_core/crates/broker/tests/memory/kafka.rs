//! Tests of what clients of Kafka's protocol can make a node hold.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;
use walrus_broker::PartitionRef;
use walrus_log::batch::{Batch, BatchBuilder};

use crate::TURN;
use crate::harness::{Cluster, PATIENCE};
use crate::unread::{reset_peak, status};

/// Limit on the growth of the process's memory, whatever is claimed.
const GROWTH_BYTES: usize = 64 << 20;
/// Bytes to which a batch opens that is a few KiB long.
const BOMB_BYTES: usize = 200 << 20;

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
    assert_eq!(error(&mut other), 0, "others go on");
    let grown = status("VmHWM").saturating_sub(before);
    assert!(grown < GROWTH_BYTES, "{grown} bytes for {} claims", claiming.len());
}

#[test]
fn a_batch_that_opens_to_much_is_looked_through_in_little_memory() {
    let _turn = TURN.lock();
    let cluster = start();
    let bombs: Vec<Vec<u8>> = {
        let mut plain = Vec::new();
        BatchBuilder::new().push(None, Some(&vec![0; BOMB_BYTES]), 1, &[]).build(&mut plain).unwrap();
        let (batch, _) = Batch::parse(&plain).unwrap();
        [1, 3, 4].iter().map(|codec| batch.compressed(*codec).unwrap()).collect()
    };
    let mut stream = connect(&cluster);
    for bomb in bombs {
        let before = reset_peak();
        stream.write_all(&produce(&bomb)).unwrap();
        assert_eq!(error(&mut stream), 0, "it is sound");
        let grown = status("VmHWM").saturating_sub(before);
        assert!(grown < GROWTH_BYTES, "{grown} bytes for a batch of {} bytes", bomb.len());
    }
}
