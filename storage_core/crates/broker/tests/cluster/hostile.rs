//! Peers that are not peers, and data planes that cannot start.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use prost::Message as _;
use serde_json::json;
use uuid::Uuid;
use walrus_broker::proto::peer::{
    self, CursorHandOver, CursorRequest, ErrorAnswer, Hello, Prepare, ReplicaAccept, ReplicaBallot,
    ReplicaFence, ReplicaRequest, SegmentEnd, cursor_request, replica_request,
};
use walrus_broker::{Config, DataPlane, PartitionRef, StartError};
use walrus_log::{LogId, ProducerTable};
use walrus_metadata::{EPOCH_MAX, SegmentState};
use walrus_model::{Descriptor, Epoch, Offset, ReplicaRef, Replication, SegmentId, TopicId};

use crate::client::{named, put, read_values};
use crate::harness::{Cluster, PATIENCE, wait_until};
use crate::peer::{ANSWER, ERROR, HELLO, Peer, REPLICA, connect_to, frame, hello, read_frame};
use crate::replicated::put_until_taken;

fn bytes(id: Uuid) -> bytes::Bytes {
    id.as_bytes().to_vec().into()
}

/// The open segment of `logs`.
fn open_segment(cluster: &Cluster) -> Descriptor {
    let metadata = cluster.metadata();
    let topic = &metadata.topics[&metadata.names["default"]["logs"]];
    topic.partitions[0].segments.last().unwrap().descriptor.clone()
}

/// One that no metadata ever listed, on the same disks.
fn invented(like: &Descriptor) -> Descriptor {
    Descriptor { id: SegmentId(Uuid::new_v4()), topic: TopicId(Uuid::new_v4()), ..like.clone() }
}

fn to_replica(segment: &Descriptor, node: u32, message: replica_request::Message) -> ReplicaRequest {
    let disk = segment.replicas.iter().find(|replica| replica.node.0 == node).unwrap().disk;
    let segment = bytes(segment.id.0);
    ReplicaRequest { segment, disk: bytes(disk.0), message: Some(message), metadata_version: 0 }
}

/// A descriptor as brokers send it to each other.
fn message_of(descriptor: &Descriptor) -> peer::Descriptor {
    let replica = |replica: &ReplicaRef| peer::Replica { node: replica.node.0, disk: bytes(replica.disk.0) };
    peer::Descriptor {
        segment: bytes(descriptor.id.0),
        topic: bytes(descriptor.topic.0),
        partition: descriptor.partition,
        number: descriptor.number,
        base_offset: descriptor.base_offset.map(|offset| offset.0),
        epoch: descriptor.epoch.0,
        leader_node: descriptor.leader.node.0,
        leader_process: bytes(descriptor.leader.process.0),
        replicas: descriptor.replicas.iter().map(replica).collect(),
        write_quorum: descriptor.write_quorum,
        fsync: None,
    }
}

pub(crate) fn fence(segment: &Descriptor, node: u32, epoch: u32) -> ReplicaRequest {
    let ballot = Some(ReplicaBallot { epoch, attempt: bytes(Uuid::from_u128(7)) });
    let descriptor = Some(message_of(segment));
    to_replica(segment, node, replica_request::Message::Fence(Box::new(ReplicaFence { ballot, descriptor })))
}

fn start_replicated() -> Cluster {
    Cluster::start_replicated(3, json!({}), Replication { factor: 3, write_quorum: 2 })
}

/// One frame with epoch 2^32 - 1 made a partition unwritable for ever: no attempt can have a higher one.
#[test]
fn a_fence_that_no_metadata_ordered_ends_no_segment() {
    let mut cluster = start_replicated();
    let topic = PartitionRef::parse("logs", 0).unwrap();
    cluster.block_on(put(&cluster.broker(1), &topic, "0")).unwrap();
    let segment = open_segment(&cluster);
    for node in cluster.ids() {
        let mut peer = Peer::greet(&cluster, node);
        for epoch in [segment.epoch.0 + 1, EPOCH_MAX.0, EPOCH_MAX.0 + 1, u32::MAX] {
            let refusal = peer.refusal_of(REPLICA, &fence(&segment, node, epoch)).unwrap();
            assert!(refusal.contains(&epoch.to_string()), "{refusal}");
        }
        let unknown = invented(&segment);
        peer.refusal_of(REPLICA, &fence(&unknown, node, 1)).unwrap();
    }
    assert_eq!(cluster.block_on(put(&cluster.broker(1), &topic, "1")).unwrap().base_offset, 1);
    // Whoever may fence the segment still can.
    let leader = cluster.broker(1).leadership(&topic).unwrap().node;
    cluster.stop_unnoticed(leader);
    let other = leader % 3 + 1;
    assert!(cluster.block_on(put_until_taken(&cluster.broker(other), &topic, "2")) >= 2);
}

/// What a disk has of a segment that its metadata have lost was enough for an epoch of any height.
#[test]
fn a_replica_whose_metadata_have_lost_a_segment_promises_no_epoch_out_of_reach() {
    let mut cluster = start_replicated();
    let topic = PartitionRef::parse("logs", 0).unwrap();
    cluster.block_on(put(&cluster.broker(1), &topic, "0")).unwrap();
    let segment = open_segment(&cluster);
    let replica = segment.leader.node.0 % 3 + 1;
    wait_until("the replica has it", PATIENCE, || {
        let log = cluster.broker(replica).bucket().log(LogId(segment.id.0));
        log.is_some_and(|log| log.durable_offset().0 == 1)
    });
    let known = cluster.metadata();
    for id in cluster.ids().filter(|id| *id != replica) {
        cluster.fall_behind(id);
    }
    cluster.stop_unnoticed(replica);
    cluster.rewrite(|metadata| {
        metadata.topics.clear();
        metadata.names.clear();
    });
    cluster.restart(replica);
    let mut peer = Peer::greet(&cluster, replica);
    for epoch in [EPOCH_MAX.0, EPOCH_MAX.0 - 1, segment.epoch.0 + (1 << 16) + 1] {
        let refusal = peer.refusal_of(REPLICA, &fence(&segment, replica, epoch)).unwrap();
        assert!(refusal.contains(&epoch.to_string()), "{refusal}");
    }
    // A recoverer that metadata had sent before they lost it is heard.
    peer.refusal_of(REPLICA, &fence(&segment, replica, segment.epoch.0 + 1)).unwrap_err();
    cluster.rewrite(|metadata| (metadata.topics, metadata.names) = (known.topics, known.names));
    for id in cluster.ids() {
        cluster.catch_up(id);
    }
    assert!(cluster.block_on(put_until_taken(&cluster.broker(replica), &topic, "1")) >= 1);
}

/// A value that no metadata would take, once decided, would leave the partition without a next segment.
#[test]
fn a_vote_for_an_impossible_successor_is_refused() {
    let cluster = start_replicated();
    let topic = PartitionRef::parse("logs", 0).unwrap();
    cluster.block_on(put(&cluster.broker(1), &topic, "0")).unwrap();
    let segment = open_segment(&cluster);
    let next = Descriptor {
        id: SegmentId(Uuid::new_v4()),
        number: 1,
        base_offset: Some(Offset(1)),
        epoch: Epoch(segment.epoch.0 + 1),
        ..segment.clone()
    };
    let impossible = [
        Descriptor { number: u64::MAX, ..next.clone() },
        Descriptor { epoch: Epoch(u32::MAX), ..next.clone() },
        Descriptor { base_offset: Some(Offset(9)), ..next.clone() },
        Descriptor { topic: TopicId(Uuid::new_v4()), ..next },
    ];
    let mut peer = Peer::greet(&cluster, 1);
    for successor in impossible {
        let accept = ReplicaAccept {
            ballot: Some(ReplicaBallot { epoch: segment.epoch.0, attempt: bytes(Uuid::from_u128(7)) }),
            value: Some(SegmentEnd {
                end: 1,
                successor: Some(message_of(&successor)),
                ..SegmentEnd::default()
            }),
            batches: vec![],
            offset: 1,
            descriptor: Some(message_of(&segment)),
        };
        let asked = to_replica(&segment, 1, replica_request::Message::Accept(Box::new(accept)));
        peer.refusal_of(REPLICA, &asked).unwrap();
    }
    assert_eq!(cluster.block_on(put(&cluster.broker(1), &topic, "1")).unwrap().base_offset, 1);
}

#[test]
fn nobody_makes_logs_for_segments_that_no_metadata_list() {
    const PREPARE: u8 = 6;
    let cluster = Cluster::start(1, json!({}));
    let topic = PartitionRef::parse("logs", 0).unwrap();
    cluster.block_on(put(&cluster.broker(1), &topic, "0")).unwrap();
    let segment = open_segment(&cluster);
    let unknown = [
        invented(&segment),
        Descriptor { id: SegmentId(Uuid::new_v4()), ..segment.clone() },
        Descriptor { id: SegmentId(Uuid::new_v4()), number: u64::MAX, ..segment },
    ];
    let mut peer = Peer::greet(&cluster, 1);
    for descriptor in unknown {
        let prepare = Prepare {
            descriptor: Some(message_of(&descriptor)),
            producers: ProducerTable::new().encode().into(),
            metadata_version: 1,
            producers_digest: Default::default(),
        };
        let refusal = peer.refusal_of(PREPARE, &prepare).unwrap();
        assert!(refusal.contains(&descriptor.id.to_string()), "{refusal}");
        assert!(cluster.broker(1).bucket().log(LogId(descriptor.id.0)).is_none());
    }
}

/// One with number 2^64 - 1 kept the receiver from serving `GET` for good.
#[test]
fn a_hand_over_to_a_segment_that_is_not_there_stops_no_cursor() {
    const CURSOR: u8 = 8;
    let cluster = Cluster::start(1, json!({}));
    let topic = PartitionRef::parse("logs", 0).unwrap();
    cluster.block_on(put(&cluster.broker(1), &topic, "first")).unwrap();
    let name = named("logs");
    let mut peer = Peer::greet(&cluster, 1);
    let mut hand_over = |number| {
        for partition in 0..8 {
            let request = CursorHandOver { partition, number, metadata_version: 0 };
            let request = CursorRequest { request: Some(cursor_request::Request::HandOver(request)) };
            peer.refusal_of(CURSOR, &request).unwrap();
        }
    };
    hand_over(0); // the topic of the cursors is not there yet
    let mut consumer = cluster.broker(1).consumer();
    assert_eq!(cluster.block_on(consumer.next(&name, 1)).unwrap().as_deref(), Some(&b"first"[..]));
    hand_over(1);
    hand_over(u64::MAX);
    cluster.block_on(put(&cluster.broker(1), &topic, "second")).unwrap();
    assert_eq!(cluster.block_on(consumer.next(&name, 2)).unwrap().as_deref(), Some(&b"second"[..]));
}

/// A replica takes no log for what its metadata do not list, so its leader must come again: after it lagged, and after
/// metadata were rolled back and caught up with.
#[test]
fn a_replica_that_knew_nothing_of_a_segment_is_prepared_once_it_does() {
    let mut cluster = start_replicated();
    let topic = PartitionRef::parse("logs", 0).unwrap();
    let is_empty = |cluster: &Cluster, id: u32, segment: SegmentId| {
        cluster.broker(id).bucket().log(LogId(segment.0)).is_none_or(|log| log.durable_offset().0 == 0)
    };
    cluster.fall_behind(3);
    cluster.fall_behind(2);
    cluster.block_on(cluster.broker(1).create_topic(&named("logs"), 1)).unwrap();
    let segment = open_segment(&cluster);
    let leader = segment.leader.node.0;
    let (near, late) = if leader == 1 { (2, 3) } else { (1, if leader == 2 { 3 } else { 2 }) };
    for id in [leader, near] {
        cluster.catch_up(id);
    }
    cluster.block_on(put(&cluster.broker(leader), &topic, "0")).unwrap();
    assert!(is_empty(&cluster, late, segment.id));
    // It comes back under metadata that have lost the topic.
    cluster.stop_unnoticed(late);
    cluster.catch_up(late);
    let known = cluster.metadata();
    cluster.fall_behind(leader);
    cluster.fall_behind(near);
    cluster.rewrite(|metadata| {
        metadata.topics.clear();
        metadata.names.clear();
    });
    cluster.restart(late);
    cluster.block_on(put(&cluster.broker(leader), &topic, "1")).unwrap();
    assert!(is_empty(&cluster, late, segment.id));
    cluster.rewrite(|metadata| (metadata.topics, metadata.names) = (known.topics, known.names));
    for id in [leader, near] {
        cluster.catch_up(id);
    }
    wait_until("the leader has prepared its replica again", PATIENCE, || {
        let log = cluster.broker(late).bucket().log(LogId(segment.id.0));
        log.is_some_and(|log| log.durable_offset().0 == 2)
    });
    let metadata = cluster.metadata();
    let listed = &metadata.topics[&segment.topic].partitions[0].segments;
    assert!(matches!(listed[..], [ref open] if open.state == SegmentState::Open), "by the same leader");
    let values = cluster.block_on(read_values(&cluster.broker(late), &topic, 0, 2));
    assert_eq!(values, [(0, "0".to_owned()), (1, "1".to_owned())]);
}

#[test]
fn strangers_are_refused_with_a_reason_or_cut_off() {
    let cluster = Cluster::start(1, json!({}));
    let other_cluster = Hello { cluster_id: vec![1; 16].into(), ..hello(&cluster) };
    let newer = Hello { wire_version: 7, ..hello(&cluster) };
    let without_nonce = Hello { nonce: vec![].into(), ..hello(&cluster) };
    for (greeting, problem) in [
        (other_cluster, "another cluster"),
        (newer, "it speaks wire versions 7 to 7, this node 3 to 3"),
        (without_nonce, "without a nonce"),
    ] {
        let refusal = Peer::greet_as(&cluster, 1, &greeting, b"").err().unwrap();
        assert!(refusal.contains(problem), "{refusal}");
    }
    // Too long before the greeting, too short, not a greeting, not a frame at all.
    let too_long = [u32::MAX.to_le_bytes().as_slice(), &[0; 64]].concat();
    for bytes in [too_long, vec![0; 64], frame(HELLO, 0, &[0xff; 40]), b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
        let mut stream = connect_to(&cluster, 1);
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
    let Peer { mut stream } = Peer::greet(&cluster, 1);
    for kind in [0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 99, 255] {
        stream.write_all(&frame(kind, 5, &[0xff; 33])).unwrap();
        let (answered, id, payload) = read_frame(&mut stream);
        assert_eq!((answered, id), (ERROR, 5), "kind {kind}");
        assert!(!ErrorAnswer::decode(payload.as_slice()).unwrap().message.is_empty());
    }
    // A frame above the cap ends the connection, and only this one.
    stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
    let mut rest = Vec::new();
    assert_eq!(stream.read_to_end(&mut rest).unwrap_or(0), 0);
    Peer::greet(&cluster, 1);
}

/// A thread each, up to some: whoever greets so often must not get them without end, and is served all the same.
#[test]
fn every_connection_of_leaders_is_served_however_many_there_are() {
    const PING: u8 = 9;
    let cluster = Cluster::start(1, json!({}));
    let mut streams: Vec<TcpStream> = (0..100).map(|_| Peer::greet(&cluster, 1).stream).collect();
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
