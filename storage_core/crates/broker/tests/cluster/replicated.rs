//! Tests of segments with three replicas, of which two acknowledge: nodes go for good, and nothing acknowledged goes with them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use walrus_broker::{Error, PartitionRef};
use walrus_log::batch::ProducerRef;
use walrus_model::Replication;

use crate::client::{batch_of, named, put, read_values};
use crate::harness::{Cluster, PATIENCE, sealed_count, wait_for};

fn start(options: serde_json::Value) -> Cluster {
    Cluster::start_replicated(3, options, Replication { factor: 3, write_quorum: 2 })
}

/// Appends a record again and again until it is taken, as clients do; answers its offset.
pub(crate) async fn put_until_taken(
    broker: &walrus_broker::Broker,
    topic: &PartitionRef,
    value: &str,
) -> u64 {
    append_until_taken(broker, topic, batch_of(&[value.to_owned()], None)).await
}

async fn append_until_taken(broker: &walrus_broker::Broker, topic: &PartitionRef, batch: Bytes) -> u64 {
    let until = Instant::now() + PATIENCE;
    loop {
        match broker.append(topic, batch.clone()).await {
            Ok(ack) => return ack.base_offset,
            Err(error) => assert!(Instant::now() < until, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn the_leaders_node_goes_for_good_and_another_goes_on_with_all_that_was_acknowledged() {
    let mut cluster = start(json!({}));
    let topic = PartitionRef::parse("logs", 0).unwrap();
    let leader = cluster.block_on(async {
        for number in 0..20 {
            put(&cluster.broker(1), &topic, &number.to_string()).await.unwrap();
        }
        cluster.broker(1).leadership(&topic).unwrap().node
    });
    cluster.stop_unnoticed(leader);
    let left: Vec<u32> = cluster.ids().filter(|id| *id != leader).collect();
    cluster.block_on(async {
        let offset = put_until_taken(&cluster.broker(left[0]), &topic, "20").await;
        assert!(offset >= 20);
        assert_ne!(cluster.broker(left[0]).leadership(&topic).unwrap().node, leader);
        for id in left {
            let values = read_values(&cluster.broker(id), &topic, 0, 21).await;
            assert!(
                (0..20).zip(&values).all(|(expected, (_, value))| *value == expected.to_string()),
                "{values:?}"
            );
        }
    });
}

#[test]
fn an_idempotent_producer_loses_and_repeats_nothing_when_leaders_go_one_after_another() {
    let mut cluster = start(json!({ "segment_entries_max": 60 }));
    let topic = PartitionRef::parse("logs", 0).unwrap();
    let producer = cluster.block_on(async {
        cluster.broker(1).create_topic(&named("logs"), 1).await.unwrap();
        cluster.broker(1).init_producer()
    });
    let batch = |sequence: i32| {
        let producer = ProducerRef { id: producer.0, epoch: producer.1, base_sequence: sequence };
        batch_of(&[sequence.to_string()], Some(producer))
    };
    let mut sequence = 0;
    for _ in 0..3 {
        let leader = cluster.block_on(async { cluster.broker(1).leadership(&topic).unwrap().node });
        let through = cluster.ids().find(|id| *id != leader).unwrap();
        let append = |cluster: &Cluster, from: i32| {
            cluster.block_on(async {
                for sequence in from..from + 40 {
                    append_until_taken(&cluster.broker(through), &topic, batch(sequence)).await;
                }
            });
        };
        append(&cluster, sequence);
        sequence += 40;
        cluster.stop_unnoticed(leader);
        append(&cluster, sequence);
        sequence += 40;
        cluster.restart(leader);
    }
    cluster.block_on(async {
        for id in cluster.ids() {
            let values = read_values(&cluster.broker(id), &topic, 0, sequence as usize).await;
            let expected: Vec<(u64, String)> = (0..sequence as u64).map(|at| (at, at.to_string())).collect();
            assert_eq!(values, expected);
        }
    });
}

#[test]
fn one_replica_less_is_not_noticed_and_two_less_stop_the_writes_until_one_is_back() {
    let mut cluster = start(json!({ "append_wait_ms": 2_000 }));
    let topic = PartitionRef::parse("logs", 0).unwrap();
    let leader = cluster.block_on(async {
        put(&cluster.broker(1), &topic, "0").await.unwrap();
        cluster.broker(1).leadership(&topic).unwrap().node
    });
    let others: Vec<u32> = cluster.ids().filter(|id| *id != leader).collect();
    cluster.stop_unnoticed(others[0]);
    cluster.block_on(async {
        for number in 1..10 {
            put(&cluster.broker(leader), &topic, &number.to_string()).await.unwrap();
        }
    });
    cluster.stop_unnoticed(others[1]);
    cluster.block_on(async {
        let error = put(&cluster.broker(leader), &topic, "10").await.unwrap_err();
        assert!(matches!(error, Error::OutcomeUnknown { .. } | Error::Unavailable { .. }), "{error:?}");
        // What was acknowledged stays readable.
        assert_eq!(read_values(&cluster.broker(leader), &topic, 0, 10).await.len(), 10);
    });
    cluster.restart(others[0]);
    cluster.block_on(async {
        let offset = put_until_taken(&cluster.broker(leader), &topic, "11").await;
        let count = usize::try_from(offset + 1).unwrap();
        let values = read_values(&cluster.broker(others[0]), &topic, 0, count).await;
        assert_eq!(values.last().unwrap().1, "11");
    });
}

#[test]
fn sealed_segments_are_on_every_replica_in_the_end_also_on_one_that_was_away() {
    let mut cluster = start(json!({ "segment_entries_max": 10 }));
    let topic = PartitionRef::parse("logs", 0).unwrap();
    let leader = cluster.block_on(async {
        for number in 0..15 {
            put(&cluster.broker(1), &topic, &number.to_string()).await.unwrap();
        }
        cluster.broker(1).leadership(&topic).unwrap().node
    });
    let away = cluster.ids().find(|id| *id != leader).unwrap();
    cluster.stop_unnoticed(away);
    let through = cluster.ids().find(|id| *id != away).unwrap();
    cluster.block_on(async {
        for number in 15..45 {
            put_until_taken(&cluster.broker(through), &topic, &number.to_string()).await;
        }
    });
    cluster.restart(away);
    cluster.wait_until_whole();
    assert!(sealed_count(&cluster.metadata(), "logs") >= 4);
    cluster.block_on(async {
        for id in cluster.ids() {
            let values = read_values(&cluster.broker(id), &topic, 0, 45).await;
            let mut seen = BTreeMap::new();
            values.iter().for_each(|(_, value)| *seen.entry(value.clone()).or_insert(0) += 1);
            assert!((0..45).all(|number| seen.contains_key(&number.to_string())), "{values:?}");
        }
    });
}

/// A successor that nobody had asked for yet was taken for one whose leader is gone.
#[test]
fn how_far_a_partition_goes_is_known_right_after_a_roll_and_again_after_its_leader_is_gone() {
    let mut cluster = start(json!({ "segment_entries_max": 10 }));
    let topic = PartitionRef::parse("logs", 0).unwrap();
    cluster.block_on(async {
        for number in 0..10 {
            put(&cluster.broker(1), &topic, &number.to_string()).await.unwrap();
        }
    });
    let high_watermark = |cluster: &Cluster, id: u32| {
        let asked = || match cluster.block_on(cluster.broker(id).segments(&named("logs"))) {
            Ok(partitions) if partitions[0].segments.len() > 1 => Ok(partitions[0].high_watermark),
            answer => Err(answer),
        };
        wait_for("the second segment is open", PATIENCE, asked)
    };
    for id in cluster.ids() {
        assert_eq!(high_watermark(&cluster, id), 10);
    }
    let leader = cluster.block_on(async {
        put(&cluster.broker(1), &topic, "10").await.unwrap();
        cluster.broker(1).leadership(&topic).unwrap().node
    });
    cluster.stop_unnoticed(leader);
    for id in cluster.ids().filter(|id| *id != leader) {
        assert_eq!(high_watermark(&cluster, id), 11);
    }
    cluster.restart(leader);
    assert_eq!(high_watermark(&cluster, leader), 11);
}
