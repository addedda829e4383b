//! Peers that are not peers, and data planes that cannot start.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use prost::Message as _;
use serde_json::json;
use walrus_broker::proto::peer::{ErrorAnswer, Hello};
use walrus_broker::{Config, DataPlane, PartitionRef, StartError};

use crate::client::put;
use crate::harness::Cluster;

const HELLO: u8 = 1;
const ANSWER: u8 = 2;
const ERROR: u8 = 3;

fn connect(cluster: &Cluster) -> TcpStream {
    let stream = TcpStream::connect(&cluster.plane(1).addresses()["peer"]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

fn frame(kind: u8, id: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len() + 9).unwrap().to_le_bytes().to_vec();
    bytes.push(kind);
    bytes.extend(id.to_le_bytes());
    bytes.extend(payload);
    bytes
}

fn read_frame(stream: &mut TcpStream) -> (u8, u64, Vec<u8>) {
    let mut head = [0; 13];
    stream.read_exact(&mut head).unwrap();
    let length = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
    let mut payload = vec![0; length - 9];
    stream.read_exact(&mut payload).unwrap();
    (head[4], u64::from_le_bytes(head[5..].try_into().unwrap()), payload)
}

fn hello(cluster: &Cluster) -> Hello {
    Hello {
        wire_version: 1,
        cluster_id: cluster.cluster_id().as_bytes().to_vec().into(),
        node: 9,
        disk: vec![0; 16].into(),
        process: vec![0; 16].into(),
        oldest_wire_version: 0,
        is_replica_lane: true,
    }
}

#[test]
fn strangers_are_refused_with_a_reason_or_cut_off() {
    let cluster = Cluster::start(1, json!({}));
    let other_cluster = Hello { cluster_id: vec![1; 16].into(), ..hello(&cluster) };
    let newer = Hello { wire_version: 7, ..hello(&cluster) };
    for (greeting, problem) in
        [(other_cluster, "another cluster"), (newer, "it speaks wire versions 7 to 7, this node 1 to 1")]
    {
        let mut stream = connect(&cluster);
        stream.write_all(&frame(HELLO, 0, &greeting.encode_to_vec())).unwrap();
        let (kind, _, payload) = read_frame(&mut stream);
        let answer = ErrorAnswer::decode(payload.as_slice()).unwrap();
        assert_eq!(kind, ERROR);
        assert!(answer.message.contains(problem), "{}", answer.message);
    }
    // Too long before the greeting, too short, not a greeting, not a frame at all.
    let too_long = [u32::MAX.to_le_bytes().as_slice(), &[0; 64]].concat();
    for bytes in [too_long, vec![0; 64], frame(HELLO, 0, &[0xff; 40]), b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
        let mut stream = connect(&cluster);
        stream.write_all(&bytes).unwrap();
        drop(stream.shutdown(std::net::Shutdown::Write));
        let mut rest = Vec::new();
        drop(stream.read_to_end(&mut rest)); // an answer or a reset, and then the end
    }
    cluster.block_on(async {
        put(&cluster.broker(1), &PartitionRef::parse("logs", 0).unwrap(), "still here").await.unwrap();
    });
}

#[test]
fn a_greeted_peer_gets_an_error_for_each_request_without_sense_and_stays_connected() {
    let cluster = Cluster::start(1, json!({}));
    let mut stream = connect(&cluster);
    stream.write_all(&frame(HELLO, 0, &hello(&cluster).encode_to_vec())).unwrap();
    assert_eq!(read_frame(&mut stream).0, ANSWER);
    for kind in [0, 2, 3, 4, 5, 6, 7, 99, 255] {
        stream.write_all(&frame(kind, 5, &[0xff; 33])).unwrap();
        let (answered, id, payload) = read_frame(&mut stream);
        assert_eq!((answered, id), (ERROR, 5), "kind {kind}");
        assert!(!ErrorAnswer::decode(payload.as_slice()).unwrap().message.is_empty());
    }
    // A frame above the cap ends the connection, and only this one.
    stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
    let mut rest = Vec::new();
    assert_eq!(stream.read_to_end(&mut rest).unwrap_or(0), 0);
    connect(&cluster);
}

/// A thread each, up to some: whoever greets so often must not get them without end, and is served all the same.
#[test]
fn every_connection_of_leaders_is_served_however_many_there_are() {
    const PING: u8 = 9;
    let cluster = Cluster::start(1, json!({}));
    let mut streams: Vec<TcpStream> = (0..100).map(|_| connect(&cluster)).collect();
    for stream in &mut streams {
        stream.write_all(&frame(HELLO, 0, &hello(&cluster).encode_to_vec())).unwrap();
        assert_eq!(read_frame(stream).0, ANSWER);
    }
    for (id, stream) in (1..).zip(&mut streams) {
        // Two at once: the second comes behind the first in one read.
        stream.write_all(&[frame(PING, id, &[]), frame(PING, id + 1, &[])].concat()).unwrap();
        let mut answered = [read_frame(stream), read_frame(stream)].map(|(kind, id, _)| (kind, id));
        answered.sort_unstable();
        assert_eq!(answered, [(ANSWER, id), (ANSWER, id + 1)]);
    }
    // It stops while they are connected.
    let stopped = Instant::now();
    drop(cluster);
    assert!(stopped.elapsed() < Duration::from_secs(5), "{:?}", stopped.elapsed());
    for stream in &mut streams {
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    }
}

#[test]
fn a_port_in_use_and_a_locked_store_are_told_apart() {
    let cluster = Cluster::start(1, json!({}));
    let taken = cluster.plane(1).addresses()["text"].clone();
    let config = |data_dir: std::path::PathBuf, text: &str| {
        let config = json!({
            "data_dir": data_dir, "cluster_id": cluster.cluster_id(), "node_id": 2, "text_address": text,
            "disk": uuid::Uuid::new_v4(), "process": uuid::Uuid::new_v4(),
        });
        Config::parse(&config.to_string()).unwrap()
    };
    let elsewhere = tempfile::tempdir().unwrap();
    let started = DataPlane::start(config(elsewhere.path().to_owned(), &taken));
    assert!(matches!(started.err().unwrap(), StartError::AddressInUse { listener: "text", .. }));
    let started = DataPlane::start(config(cluster.data_dir(1), "127.0.0.1:0"));
    assert!(matches!(started.err().unwrap(), StartError::Store(walrus_log::Error::Locked { .. })));
}
