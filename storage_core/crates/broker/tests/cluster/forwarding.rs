//! Tests that any node takes any request.

use std::time::Duration;

use serde_json::json;
use walrus_broker::{Error, PartitionRef};

use crate::client::{batch_of, named, options, put, read_values};
use crate::harness::Cluster;

#[test]
fn every_node_appends_and_reads_wherever_the_leader_is() {
    let cluster = Cluster::start(3, json!({}));
    cluster.block_on(async {
        let topic = PartitionRef::parse("logs", 0).unwrap();
        let (info, created) = cluster.broker(1).create_topic(&named("logs"), 3).await.unwrap();
        assert!(created);
        assert_eq!(info.partitions, 3);
        for round in 0..4_u64 {
            for id in cluster.ids() {
                let ack = put(&cluster.broker(id), &topic, &format!("{round}-{id}")).await.unwrap();
                assert_eq!(ack.base_offset, round * 3 + u64::from(id) - 1);
                assert_eq!(ack.end_offset, ack.base_offset + 1);
            }
        }
        for id in cluster.ids() {
            let values = read_values(&cluster.broker(id), &topic, 0, 12).await;
            assert_eq!(values[4], (4, "1-2".to_owned()));
            assert_eq!(values.len(), 12);
        }
    });
}

/// There are many partitions, for two drivers of one handed its queue over at once where a roll began as the first was done.
#[test]
fn appends_of_one_stream_keep_their_order_through_forwards_and_rolls() {
    let cluster = Cluster::start(3, json!({ "segment_entries_max": 15 }));
    cluster.block_on(async {
        for stream in 0..24 {
            let topic = PartitionRef::parse(&format!("stream-{stream}"), 0).unwrap();
            let broker = cluster.broker(1 + stream % 3);
            // The topic is created by the first of them.
            let appends = (0..200).map(|number| put_owned(&broker, &topic, number));
            let acks = futures_util::future::join_all(appends).await;
            for (expected, ack) in (0..).zip(acks) {
                assert_eq!(ack.unwrap().base_offset, expected);
            }
            let values = read_values(&cluster.broker(1), &topic, 0, 200).await;
            assert!((0..).zip(&values).all(|(expected, (_, value))| *value == format!("{expected}")));
        }
    });
}

async fn put_owned(
    broker: &walrus_broker::Broker,
    topic: &PartitionRef,
    number: u32,
) -> walrus_broker::Result<walrus_broker::AppendAck> {
    put(broker, topic, &number.to_string()).await
}

/// The reader's node heard of the roll first, asked the new leader, and told its client "unknown segment".
#[test]
fn a_leader_that_has_not_heard_of_its_segment_yet_is_waited_for() {
    let cluster = Cluster::start(3, json!({}));
    cluster.block_on(async {
        cluster.fall_behind(2);
        cluster.broker(1).create_topic(&named("logs"), 3).await.unwrap();
        let partitions = (0..3).map(|partition| PartitionRef::parse("logs", partition).unwrap());
        let led_by_2 = |partition: &PartitionRef| cluster.broker(1).leadership(partition).unwrap().node == 2;
        let partition = partitions.into_iter().find(led_by_2).unwrap();
        let broker = cluster.broker(1);
        let hearing = async { cluster.catch_up(2) };
        let (page, ()) = tokio::join!(broker.read(&partition, 0, options(Duration::ZERO)), hearing);
        let page = page.unwrap();
        assert_eq!((page.batches().count(), page.next_offset), (0, 0));
        put(&cluster.broker(1), &partition, "first").await.unwrap();
        assert_eq!(read_values(&cluster.broker(1), &partition, 0, 1).await, [(0, "first".to_owned())]);
    });
}

#[test]
fn a_leader_that_is_down_makes_appends_and_reads_fail_as_unavailable() {
    let mut cluster = Cluster::start(3, json!({ "append_wait_ms": 700 }));
    let topic = PartitionRef::parse("logs", 0).unwrap();
    let leader = cluster.block_on(async {
        put(&cluster.broker(1), &topic, "before").await.unwrap();
        cluster.broker(1).leadership(&topic).unwrap().node
    });
    cluster.stop(leader);
    let other = cluster.ids().find(|id| *id != leader).unwrap();
    cluster.block_on(async {
        let broker = cluster.broker(other);
        let error = put(&broker, &topic, "lost").await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }) && error.retryable(), "{error:?}");
        let error =
            broker.read(&topic, 0, crate::client::options(std::time::Duration::ZERO)).await.unwrap_err();
        assert!(error.retryable(), "{error:?}");
    });
}

/// The segment's base was told as its end: a reader "to the end" took what was sealed for everything.
#[test]
fn how_far_a_partition_goes_is_not_guessed_while_its_leader_is_down() {
    let mut cluster = Cluster::start(3, json!({}));
    let topic = PartitionRef::parse("logs", 0).unwrap();
    let leader = cluster.block_on(async {
        put(&cluster.broker(1), &topic, "before").await.unwrap();
        cluster.broker(1).leadership(&topic).unwrap().node
    });
    cluster.stop(leader);
    let other = cluster.ids().find(|id| *id != leader).unwrap();
    let error = cluster.block_on(cluster.broker(other).segments(&named("logs"))).unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }) && error.retryable(), "{error:?}");
    cluster.restart(leader);
    let partitions = cluster.block_on(async {
        let broker = cluster.broker(other);
        loop {
            match broker.segments(&named("logs")).await {
                Err(error) if error.retryable() => tokio::task::yield_now().await, // not connected again yet
                answer => break answer.unwrap(),
            }
        }
    });
    assert_eq!(partitions[0].high_watermark, 1);
}

#[test]
fn what_is_wrong_with_a_request_is_said_by_every_node_alike() {
    let cluster = Cluster::start(3, json!({ "auto_create_topics": false }));
    cluster.block_on(async {
        let unknown = PartitionRef::parse("nobody", 0).unwrap();
        let (topic, beyond) =
            (PartitionRef::parse("logs", 0).unwrap(), PartitionRef::parse("logs", 7).unwrap());
        cluster.broker(1).create_topic(&named("logs"), 1).await.unwrap();
        for id in cluster.ids() {
            let broker = cluster.broker(id);
            assert_eq!(put(&broker, &unknown, "x").await.unwrap_err().reason(), "UnknownTopic");
            assert_eq!(put(&broker, &beyond, "x").await.unwrap_err().reason(), "UnknownPartition");
            let mut damaged = batch_of(&["x".to_owned()], None).to_vec();
            damaged[60] ^= 1;
            assert_eq!(broker.append(&topic, damaged.into()).await.unwrap_err().reason(), "InvalidBatch");
            let options = crate::client::options(std::time::Duration::ZERO);
            let error = broker.read(&topic, 5, options).await.unwrap_err();
            assert_eq!(error, Error::OffsetOutOfRange { requested: 5, start: 0, end: 0 });
        }
    });
}
