//! Tests of leaders that move: who is told of it and when, what is forwarded, and which epochs are told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bytes::BytesMut;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{MetadataRequest, ProduceRequest, ProduceResponse, RequestHeader};
use kafka_protocol::protocol::{Encodable as _, HeaderVersion as _, Request as _};
use uuid::Uuid;
use walrus_broker::{NewTopic, PartitionRef};
use walrus_log::batch::ProducerRef;
use walrus_model::Replication;

use crate::harness::{Cluster, PATIENCE, wait_until};
use crate::kafka_client::{KafkaClient, batch, options, produce_request, topic_name};
use crate::kafka_fetch::{ASK, Ask, batches, fetch};
use crate::load::Load;

const REPLICATED: Replication = Replication { factor: 3, write_quorum: 2 };
const NOT_LEADER: i16 = 6;
/// Appends that a busy producer has under way.
const AHEAD: i32 = 5;

fn partition() -> PartitionRef {
    PartitionRef::parse("t", 0).unwrap()
}

/// A cluster with topic `t` of one partition.
fn with_topic(nodes: u32, replication: Replication, settings: &[(&str, &str)]) -> Cluster {
    let cluster = Cluster::start_replicated(nodes, options(), replication);
    let config = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let path = partition().topic;
    cluster.block_on(cluster.broker(1).create_topic(&path, NewTopic { partitions: 1, config })).unwrap();
    for node in cluster.ids() {
        wait_until("all nodes know the topic", PATIENCE, || {
            cluster.broker(node).leadership(&partition()).is_ok()
        });
    }
    cluster
}

/// The node that leads, as all nodes know, and one that does not.
fn leader_and_other(cluster: &Cluster) -> (u32, u32) {
    let known =
        |node| cluster.broker(node).leadership(&partition()).ok().map(|known| (known.node, known.epoch));
    wait_until("all nodes know the same leader", PATIENCE, || {
        known(1).is_some() && cluster.ids().all(|node| known(node) == known(1))
    });
    let (leader, _) = known(1).unwrap();
    (leader, cluster.ids().find(|node| *node != leader).unwrap())
}

/// The node that leads after so many rolls, as all nodes know.
fn leader_after(cluster: &Cluster, rolls: i32) -> u32 {
    let epoch = || cluster.broker(1).leadership(&partition()).map(|known| known.epoch);
    wait_until("the rolls are over", PATIENCE, || epoch().is_ok_and(|epoch| epoch.cast_signed() > rolls));
    leader_and_other(cluster).0
}

fn row(mut response: ProduceResponse) -> PartitionProduceResponse {
    response.responses.remove(0).partition_responses.remove(0)
}

fn produce(client: &mut KafkaClient, version: i16, value: &str) -> PartitionProduceResponse {
    row(client.ask(version, &produce_request("t", batch(&[value], None), -1)))
}

/// Sends appends of single records in one write, so that they are all there when the first one is begun.
fn send_at_once(client: &mut KafkaClient, values: std::ops::Range<i32>, producer: Option<i64>) {
    let mut frames = BytesMut::new();
    for number in values {
        let producer = producer.map(|id| ProducerRef { id, epoch: 0, base_sequence: number });
        let request = produce_request("t", batch(&[&number.to_string()], producer), -1);
        let header = RequestHeader::default()
            .with_request_api_key(ProduceRequest::KEY)
            .with_request_api_version(10)
            .with_correlation_id(number);
        let mut frame = BytesMut::new();
        header.encode(&mut frame, ProduceRequest::header_version(10)).unwrap();
        request.encode(&mut frame, 10).unwrap();
        frames.extend_from_slice(&i32::try_from(frame.len()).unwrap().to_be_bytes());
        frames.extend_from_slice(&frame);
    }
    client.send_raw(&frames);
}

#[test]
fn a_producer_that_can_be_told_of_the_leader_is_told_and_others_are_forwarded() {
    let cluster = with_topic(2, Replication::single(), &[("walrus.leaders", "sticky")]);
    let (leader, other) = leader_and_other(&cluster);
    let epoch = cluster.broker(1).leadership(&partition()).unwrap().epoch;
    let mut client = KafkaClient::connect(&cluster, other);
    for version in 3..=9 {
        assert_eq!(produce(&mut client, version, "forwarded").error_code, 0, "{version}");
    }
    let response = client.ask(10, &produce_request("t", batch(&["told"], None), -1));
    let address = cluster.plane(leader).addresses()["kafka/kafka"].clone();
    let told: Vec<_> = response
        .node_endpoints
        .iter()
        .map(|node| (node.node_id.0, format!("{}:{}", &*node.host, node.port)))
        .collect();
    assert_eq!(told, [(leader.cast_signed(), address)]);
    let refused = row(response);
    assert_eq!((refused.error_code, refused.base_offset), (NOT_LEADER, -1));
    let told = (refused.current_leader.leader_id.0, refused.current_leader.leader_epoch);
    assert_eq!(told, (leader.cast_signed(), epoch.cast_signed()));
    // Nobody could tell this one, and the one behind it shows that the connection goes on.
    client.send(10, &produce_request("t", batch(&["silent"], None), 0));
    assert_eq!(produce(&mut client, 9, "last").base_offset, 8);
    let mut client = KafkaClient::connect(&cluster, leader);
    let response = client.ask(10, &produce_request("t", batch(&["there"], None), -1));
    assert!(response.node_endpoints.is_empty());
    let taken = row(response);
    assert_eq!((taken.error_code, taken.base_offset, taken.current_leader.leader_id.0), (0, 9, -1));
}

/// A broker that took what a client had sent behind an append that it refused changed the order of its records.
#[test]
fn what_was_sent_behind_an_append_that_was_told_is_told_too() {
    let cluster = with_topic(2, Replication::single(), &[("walrus.leaders", "sticky")]);
    let (leader, other) = leader_and_other(&cluster);
    let mut client = KafkaClient::connect(&cluster, other);
    send_at_once(&mut client, 0..5, Some(7));
    for _ in 0..5 {
        assert_eq!(row(client.answer::<ProduceRequest>(10)).error_code, NOT_LEADER);
    }
    let mut client = KafkaClient::connect(&cluster, leader);
    send_at_once(&mut client, 0..5, Some(7));
    for number in 0..5 {
        let taken = row(client.answer::<ProduceRequest>(10));
        assert_eq!((taken.error_code, taken.base_offset), (0, number));
    }
}

/// librdkafka's idempotent producer turned fatal where a broker refused an append in the middle of others, and sarama dropped
/// what was refused three times.
#[test]
fn appends_under_way_while_the_leader_moves_at_each_roll_are_forwarded_in_order() {
    let cluster = with_topic(3, REPLICATED, &[("walrus.segment.entries", "3")]);
    let (mut appended, mut was_told) = (0, 0);
    for _ in 0..10 {
        // The last segment is left with one record, for a full one moves on while a client looks who leads it.
        let count = if appended == 0 { 40 } else { 39 };
        let leader = leader_after(&cluster, appended / 3);
        let mut client = KafkaClient::connect(&cluster, leader);
        send_at_once(&mut client, appended..appended + count, Some(7));
        for number in appended..appended + count {
            let taken = row(client.answer::<ProduceRequest>(10));
            assert_eq!(
                (taken.error_code, taken.base_offset),
                (0, i64::from(number)),
                "{:?}",
                taken.error_message
            );
        }
        appended += count;
        // Nothing is under way any more: from now on the client is told, if another node leads.
        let now = leader_after(&cluster, appended / 3);
        if now != leader {
            let refused = produce(&mut client, 10, "late");
            assert_eq!(
                (refused.error_code, refused.current_leader.leader_id.0),
                (NOT_LEADER, now.cast_signed())
            );
            was_told += 1;
        }
    }
    assert!(was_told > 0, "the leader never moved");
}

#[test]
fn who_was_told_is_taken_again_when_the_leader_is_back() {
    let cluster = with_topic(2, Replication::single(), &[("walrus.segment.entries", "1")]);
    let (leader, other) = leader_and_other(&cluster);
    let mut told = KafkaClient::connect(&cluster, other);
    assert_eq!(produce(&mut told, 10, "told").error_code, NOT_LEADER);
    assert_eq!(
        produce(&mut KafkaClient::connect(&cluster, leader), 10, "the last of its segment").error_code,
        0
    );
    wait_until("the other node leads", PATIENCE, || leader_and_other(&cluster).0 == other);
    wait_until("it is taken", PATIENCE, || match produce(&mut told, 10, "again").error_code {
        0 => true,
        code => {
            assert_eq!(code, NOT_LEADER);
            false
        }
    });
}

#[test]
fn a_node_that_stops_forwards_what_is_under_way_and_then_tells_who_leads() {
    let cluster = with_topic(3, REPLICATED, &[("walrus.leaders", "sticky")]);
    let (leader, _) = leader_and_other(&cluster);
    let (plane, is_over) = (cluster.plane(leader), AtomicBool::new(false));
    let (mut old, mut new) = (KafkaClient::connect(&cluster, leader), KafkaClient::connect(&cluster, leader));
    let came = thread::scope(|scope| {
        let under_way = scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) || count < 10 {
                assert_eq!(produce(&mut old, 9, "forwarded").error_code, 0);
                count += 1;
            }
        });
        let came = plane.hand_over(PATIENCE);
        is_over.store(true, Ordering::Relaxed);
        under_way.join().unwrap();
        came.unwrap()
    });
    assert_eq!((came.staying, came.why), (0, None));
    let (now, _) = leader_and_other(&cluster);
    assert_ne!(now, leader);
    let refused = produce(&mut new, 10, "late");
    assert_eq!((refused.error_code, refused.current_leader.leader_id.0), (NOT_LEADER, now.cast_signed()));
}

/// A producer that is never idle heard of a leader's stop only by the end of its connection. franz-go then waits up to five
/// seconds before it asks who leads.
#[test]
fn a_node_that_stops_tells_producers_that_are_never_idle_behind_what_is_under_way() {
    let cluster = with_topic(3, REPLICATED, &[("walrus.leaders", "sticky")]);
    let (leader, _) = leader_and_other(&cluster);
    let (plane, mut client) = (cluster.plane(leader), KafkaClient::connect(&cluster, leader));
    thread::scope(|scope| {
        let busy = scope.spawn(move || {
            send_at_once(&mut client, 0..AHEAD, Some(7));
            for number in 0.. {
                let taken = row(client.answer::<ProduceRequest>(10));
                if taken.error_code == NOT_LEADER {
                    assert_ne!(taken.current_leader.leader_id.0, leader.cast_signed());
                    return (client, number, number + AHEAD);
                }
                assert_eq!((taken.error_code, taken.base_offset), (0, i64::from(number)));
                send_at_once(&mut client, number + AHEAD..number + AHEAD + 1, Some(7));
            }
            unreachable!("it is told in the end")
        });
        plane.hand_over(PATIENCE).unwrap();
        let (mut client, told, sent) = busy.join().unwrap();
        for _ in told + 1..sent {
            assert_eq!(
                row(client.answer::<ProduceRequest>(10)).error_code,
                NOT_LEADER,
                "all behind it are told"
            );
        }
        let (now, _) = leader_and_other(&cluster);
        let mut client = KafkaClient::connect(&cluster, now);
        send_at_once(&mut client, told..sent, Some(7));
        for number in told..sent {
            let taken = row(client.answer::<ProduceRequest>(10));
            assert_eq!((taken.error_code, taken.base_offset), (0, i64::from(number)));
        }
    });
}

#[test]
fn a_reader_is_told_of_the_leader_and_reads_what_is_sealed_where_it_is() {
    let cluster = with_topic(3, REPLICATED, &[("walrus.segment.entries", "3"), ("walrus.leaders", "sticky")]);
    let (leader, _) = leader_and_other(&cluster);
    let mut writer = KafkaClient::connect(&cluster, leader);
    assert_eq!(produce(&mut writer, 10, "a").error_code, 0);
    assert_eq!(produce(&mut writer, 10, "b").error_code, 0);
    let (leader, other) = leader_and_other(&cluster);
    let epoch = cluster.broker(1).leadership(&partition()).unwrap().epoch.cast_signed();
    let mut reader = KafkaClient::connect(&cluster, other);
    let refused = fetch(&mut reader, ASK);
    assert_eq!(refused.error_code, NOT_LEADER);
    let told = (refused.current_leader.leader_id.0, refused.current_leader.leader_epoch);
    assert_eq!(told, (leader.cast_signed(), epoch));
    let through_the_leader = fetch(&mut reader, Ask { version: 11, ..ASK });
    assert_eq!(batches(&through_the_leader.records.unwrap()), [(0, 1), (1, 1)]);
    assert_eq!(
        fetch(&mut reader, Ask { offset: -1, ..ASK }).error_code,
        1,
        "that is out of range everywhere"
    );
    assert_eq!(produce(&mut writer, 10, "c").error_code, 0);
    // Its segment is full: as soon as this node's copy of it is whole it is read from there.
    wait_until("the sealed segment is read from its copy", PATIENCE, || {
        let found = fetch(&mut reader, ASK);
        match found.error_code {
            0 => batches(&found.records.unwrap()) == [(0, 1), (1, 1), (2, 1)],
            code => {
                assert_eq!(code, NOT_LEADER);
                false
            }
        }
    });
    assert_eq!(fetch(&mut reader, Ask { offset: 3, ..ASK }).error_code, NOT_LEADER, "the open one is not");
    assert_eq!(fetch(&mut reader, Ask { offset: 3, version: 11, ..ASK }).error_code, 0);
}

#[test]
fn a_reader_with_an_epoch_since_which_another_node_led_is_told_the_present_one() {
    let cluster = with_topic(2, Replication::single(), &[("walrus.segment.entries", "1")]);
    let (first, _) = leader_and_other(&cluster);
    let old = cluster.broker(1).leadership(&partition()).unwrap().epoch.cast_signed();
    assert_eq!(produce(&mut KafkaClient::connect(&cluster, first), 10, "a").error_code, 0);
    wait_until("another node leads", PATIENCE, || leader_and_other(&cluster).0 != first);
    let (leader, _) = leader_and_other(&cluster);
    let epoch = cluster.broker(1).leadership(&partition()).unwrap().epoch.cast_signed();
    for node in [leader, first] {
        let fenced = fetch(&mut KafkaClient::connect(&cluster, node), Ask { epoch: old, ..ASK });
        let told = (fenced.current_leader.leader_id.0, fenced.current_leader.leader_epoch);
        assert_eq!((fenced.error_code, told), (74, (leader.cast_signed(), epoch)));
    }
}

/// What a node tells of the partition: the topic's id, the leader and its epoch.
fn told(client: &mut KafkaClient) -> Option<(Uuid, i32, i32)> {
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name("t")));
    let request = MetadataRequest::default().with_topics(Some(vec![topic]));
    let row = client.ask(11, &request).topics.remove(0);
    let partition = row.partitions.first()?;
    Some((row.topic_id, partition.leader_id.0, partition.leader_epoch))
}

#[test]
fn nobody_is_sent_to_a_leader_that_does_not_answer() {
    let mut cluster = with_topic(2, Replication::single(), &[]);
    let (leader, other) = leader_and_other(&cluster);
    let mut client = KafkaClient::connect(&cluster, other);
    assert_eq!(produce(&mut client, 10, "told").error_code, NOT_LEADER);
    cluster.stop_unnoticed(leader);
    wait_until("the append waits for the next leader", PATIENCE, || {
        let request = produce_request("t", batch(&["x"], None), -1).with_timeout_ms(100);
        row(client.ask(10, &request)).error_code != NOT_LEADER
    });
}

/// Consumers hung where the epoch that they were told went back, or where two leaders had one.
#[test]
fn no_epoch_has_two_leaders_or_goes_back_while_leaders_move_and_fail() {
    let mut cluster = with_topic(3, REPLICATED, &[("walrus.segment.entries", "20")]);
    let load = Load::start(&cluster, &partition(), 3);
    let mut leaders: BTreeMap<i32, i32> = BTreeMap::new();
    let mut watch = |cluster: &Cluster, nodes: &[u32], appends: usize| {
        let mut clients: Vec<_> =
            nodes.iter().map(|node| (KafkaClient::connect(cluster, *node), 0)).collect();
        let until = load.acked() + appends;
        while load.acked() < until {
            for (client, last) in &mut clients {
                let (_, leader, epoch) = told(client).expect("the topic is there");
                assert!(epoch > 0 && epoch >= *last, "{epoch} behind {last}");
                *last = epoch;
                if leader >= 0 {
                    assert_eq!(*leaders.entry(epoch).or_insert(leader), leader, "epoch {epoch}");
                }
            }
        }
    };
    watch(&cluster, &[1, 2, 3], 300);
    cluster.plane(2).hand_over(PATIENCE).unwrap();
    watch(&cluster, &[1, 2, 3], 100);
    cluster.stop(2);
    watch(&cluster, &[1, 3], 100);
    cluster.restart(2);
    watch(&cluster, &[1, 2, 3], 200);
    cluster.stop_unnoticed(3);
    watch(&cluster, &[1, 2], 200);
    assert!(leaders.len() > 10, "{leaders:?}");
    load.finish(&cluster, 1..=2);
}

#[test]
fn a_topic_that_is_made_again_has_another_id_and_takes_its_producers() {
    let cluster = with_topic(2, Replication::single(), &[]);
    let (leader, _) = leader_and_other(&cluster);
    let mut client = KafkaClient::connect(&cluster, leader);
    let sequenced = |number| {
        let producer = ProducerRef { id: 7, epoch: 0, base_sequence: number };
        produce_request("t", batch(&["x"], Some(producer)), -1)
    };
    assert_eq!(row(client.ask(9, &sequenced(0))).base_offset, 0);
    let (first, ..) = told(&mut client).unwrap();
    let path = partition().topic;
    cluster.block_on(cluster.broker(1).delete_topic(&path, None)).unwrap();
    wait_until("the topic is gone", PATIENCE, || {
        cluster.ids().all(|node| cluster.broker(node).topic(&path).is_none())
    });
    assert_eq!(row(client.ask(9, &sequenced(1))).error_code, 3);
    cluster.block_on(cluster.broker(1).create_topic(&path, 1)).unwrap();
    let mut client = KafkaClient::connect(&cluster, leader_and_other(&cluster).0);
    let (second, _, epoch) = told(&mut client).unwrap();
    assert!(first != second && !second.is_nil() && epoch > 0);
    let taken = row(client.ask(9, &sequenced(1)));
    assert_eq!((taken.error_code, taken.base_offset), (0, 0), "nothing is known of its producer there");
}
