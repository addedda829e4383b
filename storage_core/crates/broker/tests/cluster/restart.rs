//! Processes end and come back.

use serde_json::json;
use walrus_broker::{Error, PartitionRef};
use walrus_log::batch::ProducerRef;
use walrus_model::Replication;

use crate::client::{batch_of, named, put, read_values};
use crate::harness::{Cluster, PATIENCE, sealed_count};
use crate::replicated::put_until_taken;

#[test]
fn a_restarted_leader_seals_its_segment_and_opens_the_next_at_the_first_append() {
    let mut cluster = Cluster::start(3, json!({}));
    let topic = PartitionRef::parse("logs", 0).unwrap();
    let leader = cluster.block_on(async {
        for number in 0..5 {
            put(&cluster.broker(2), &topic, &number.to_string()).await.unwrap();
        }
        cluster.broker(1).leadership(&topic).unwrap().node
    });
    cluster.stop(leader);
    cluster.restart(leader);
    cluster.block_on(async {
        // Reading needs no new segment.
        for id in cluster.ids() {
            assert_eq!(read_values(&cluster.broker(id), &topic, 0, 5).await.len(), 5);
        }
        assert_eq!(sealed_count(&cluster.metadata(), "logs"), 0);
        let other = cluster.ids().find(|id| *id != leader).unwrap();
        let ack = put(&cluster.broker(other), &topic, "5").await.unwrap();
        assert_eq!(ack.base_offset, 5);
        assert_eq!(sealed_count(&cluster.metadata(), "logs"), 1);
        let values = read_values(&cluster.broker(leader), &topic, 0, 6).await;
        assert!((0..).zip(&values).all(|(expected, (_, value))| *value == expected.to_string()));
    });
}

#[test]
fn a_leader_that_dies_before_anything_was_appended_is_replaced_by_its_next_process() {
    let mut cluster = Cluster::start(1, json!({}));
    let topic = PartitionRef::parse("empty", 0).unwrap();
    cluster.block_on(async { cluster.broker(1).create_topic(&named("empty"), 1).await.unwrap() });
    cluster.stop(1);
    cluster.restart(1);
    cluster.block_on(async {
        let ack = put(&cluster.broker(1), &topic, "first").await.unwrap();
        assert_eq!(ack.base_offset, 0);
        assert_eq!(read_values(&cluster.broker(1), &topic, 0, 1).await, [(0, "first".to_owned())]);
    });
}

#[test]
fn an_idempotent_producer_goes_on_through_the_death_of_the_leader() {
    let mut cluster = Cluster::start(3, json!({}));
    let topic = PartitionRef::parse("logs", 0).unwrap();
    let (id, epoch) = cluster.block_on(async { cluster.broker(1).init_producer() });
    let batch = move |sequence: i32| {
        batch_of(&[sequence.to_string()], Some(ProducerRef { id, epoch, base_sequence: sequence }))
    };
    let leader = cluster.block_on(async {
        cluster.broker(1).append(&topic, batch(0)).await.unwrap();
        cluster.broker(1).leadership(&topic).unwrap().node
    });
    let other = cluster.ids().find(|id| *id != leader).unwrap();
    let broker = cluster.broker(other);

    let producing = std::thread::spawn({
        let topic = topic.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut offsets = Vec::new();
                for sequence in 1..400 {
                    let mut result = broker.append(&topic, batch(sequence)).await;
                    while let Err(error) = result {
                        assert!(error.retryable(), "{error:?}");
                        result = broker.append(&topic, batch(sequence)).await;
                    }
                    offsets.push(result.unwrap().base_offset);
                }
                offsets
            })
        }
    });
    cluster.stop(leader);
    cluster.restart(leader);
    let offsets = producing.join().unwrap();
    assert!((1..).zip(&offsets).all(|(expected, offset)| expected == *offset), "{offsets:?}");
    cluster.block_on(async {
        let values = read_values(&cluster.broker(leader), &topic, 0, 400).await;
        assert!((0..).zip(&values).all(|(expected, (_, value))| *value == expected.to_string()));
    });
}

#[test]
fn a_batch_without_producer_id_is_of_unknown_outcome_when_its_leader_dies() {
    let mut cluster = Cluster::start(2, json!({ "append_wait_ms": 3_000 }));
    let topic = PartitionRef::parse("logs", 0).unwrap();
    let leader = cluster.block_on(async {
        put(&cluster.broker(1), &topic, "0").await.unwrap();
        cluster.broker(1).leadership(&topic).unwrap().node
    });
    let broker = cluster.broker(3 - leader);
    let (acknowledged, acknowledgements) = std::sync::mpsc::channel();
    let producing = std::thread::spawn({
        let topic = topic.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let appends = async {
                for number in 1.. {
                    if let Err(error) = put(&broker, &topic, &number.to_string()).await {
                        return (number, error);
                    }
                    acknowledged.send(number).ok(); // nobody listens once the leader is down
                }
                unreachable!()
            };
            runtime.block_on(appends)
        }
    });
    for _ in 0..5 {
        acknowledgements.recv_timeout(PATIENCE).expect("appends are under way");
    }
    cluster.stop(leader);
    let (number, error) = producing.join().unwrap();
    // Sent and not answered, or not even sent: never retryable in the first case.
    match error {
        Error::OutcomeUnknown { .. } | Error::Unavailable { .. } => {}
        other => panic!("{other:?}"),
    }
    cluster.restart(leader);
    cluster.block_on(async {
        let values = read_values(&cluster.broker(leader), &topic, 0, number).await;
        assert!((0..).zip(&values).all(|(expected, (_, value))| *value == expected.to_string()));
    });
}

#[test]
fn a_successor_whose_node_is_down_is_passed_over() {
    let mut cluster = Cluster::start(3, json!({ "segment_entries_max": 10 }));
    let topic = PartitionRef::parse("logs", 0).unwrap();
    let leader = cluster.block_on(async {
        put(&cluster.broker(1), &topic, "0").await.unwrap();
        cluster.broker(1).leadership(&topic).unwrap().node
    });
    let next = leader % 3 + 1;
    cluster.stop_unnoticed(next);
    cluster.block_on(async {
        for number in 1..15 {
            put(&cluster.broker(leader), &topic, &number.to_string()).await.unwrap();
        }
        assert_eq!(cluster.broker(leader).leadership(&topic).unwrap().node, next % 3 + 1);
        let values = read_values(&cluster.broker(leader), &topic, 0, 15).await;
        assert!((0..).zip(&values).all(|(expected, (_, value))| *value == expected.to_string()));
    });
}

#[test]
fn nodes_are_restarted_one_by_one_with_a_newer_wire_version_and_appends_go_on() {
    let mut cluster = Cluster::start_replicated(3, json!({}), Replication { factor: 3, write_quorum: 2 });
    let topic = PartitionRef::parse("upgraded", 0).unwrap();
    cluster.set_option("wire_versions", json!({"oldest": 3, "newest": 4}));
    for id in cluster.ids() {
        cluster.stop(id);
        let other = id % 3 + 1;
        cluster.block_on(put_until_taken(&cluster.broker(other), &topic, &format!("without {id}")));
        cluster.restart(id);
        cluster.block_on(put_until_taken(&cluster.broker(id), &topic, &format!("with {id}")));
    }
    let expected = ["without 1", "with 1", "without 2", "with 2", "without 3", "with 3"];
    for id in cluster.ids() {
        assert_eq!(distinct(&cluster, id, &topic, &expected), expected);
    }
}

#[test]
fn a_node_whose_wire_versions_nobody_speaks_is_refused_and_the_others_go_on() {
    let mut cluster = Cluster::start_replicated(3, json!({}), Replication { factor: 3, write_quorum: 2 });
    let topic = PartitionRef::parse("strange", 0).unwrap();
    let leader = cluster.block_on(async {
        put(&cluster.broker(1), &topic, "0").await.unwrap();
        cluster.broker(1).leadership(&topic).unwrap().node
    });
    let stranger = leader % 3 + 1;
    cluster.stop(stranger);
    cluster.set_option("wire_versions", json!({"oldest": 8, "newest": 9}));
    cluster.restart(stranger);
    let expected = ["0", "1", "2", "3"];
    for value in &expected[1..] {
        cluster.block_on(put_until_taken(&cluster.broker(leader), &topic, value));
    }
    assert_eq!(distinct(&cluster, leader, &topic, &expected), expected);
}

/// What is in the topic, once it is all there; a value that was sent again because nobody answered counts once.
fn distinct(cluster: &Cluster, node: u32, topic: &PartitionRef, expected: &[&str]) -> Vec<String> {
    let mut count = expected.len();
    loop {
        let read = cluster.block_on(read_values(&cluster.broker(node), topic, 0, count));
        let mut values: Vec<String> = read.into_iter().map(|(_, value)| value).collect();
        values.dedup();
        if values.len() >= expected.len() {
            return values;
        }
        count += 1;
    }
}
