//! Processes end and come back.

use serde_json::json;
use walrus_broker::{Error, PartitionRef};
use walrus_log::batch::ProducerRef;

use crate::harness::{Cluster, PATIENCE, batch_of, put, read_values, sealed_count};

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
    cluster.block_on(async { cluster.broker(1).create_topic("empty", 1, false).await.unwrap() });
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
    let (id, epoch) = cluster.block_on(async { cluster.broker(1).init_producer().await.unwrap() });
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
