//! Tests of segments that roll under load, which nobody notices but the metadata.

use std::pin::pin;
use std::time::Duration;

use futures_util::poll;
use serde_json::json;
use walrus_broker::{Error, PartitionRef};
use walrus_log::batch::ProducerRef;
use walrus_model::Replication;

use crate::client::{batch_of, named, put, read_values};
use crate::harness::{Cluster, PATIENCE, sealed_count};

#[test]
fn sixteen_producers_and_three_readers_lose_repeat_and_reorder_nothing_across_rolls() {
    const PRODUCERS: usize = 16;
    const EACH: usize = 60;
    let cluster = Cluster::start(3, json!({ "segment_entries_max": 50 }));
    cluster.block_on(async {
        let topic = PartitionRef::parse("rolling", 0).unwrap();
        cluster.broker(1).create_topic(&named("rolling"), 1).await.unwrap();
        let produce = |producer: usize| {
            let (broker, topic) = (cluster.broker(1 + u32::try_from(producer % 3).unwrap()), topic.clone());
            async move {
                let mut offsets = Vec::new();
                for number in 0..EACH {
                    offsets.push(
                        put(&broker, &topic, &format!("{producer}:{number}")).await.unwrap().base_offset,
                    );
                }
                offsets
            }
        };
        let reading = cluster.ids().map(|id| {
            let (broker, topic) = (cluster.broker(id), topic.clone());
            async move { read_values(&broker, &topic, 0, PRODUCERS * EACH).await }
        });
        let producing = futures_util::future::join_all((0..PRODUCERS).map(produce));
        let (offsets, seen) = tokio::join!(producing, futures_util::future::join_all(reading));

        for values in &seen {
            assert_eq!(values, &seen[0]);
            assert!(
                (0..).zip(values).all(|(expected, (offset, _))| expected == *offset),
                "offsets are dense"
            );
        }
        for (producer, offsets) in offsets.iter().enumerate() {
            assert!(offsets.is_sorted(), "producer {producer}: {offsets:?}");
            for (number, offset) in offsets.iter().enumerate() {
                let place = usize::try_from(*offset).unwrap();
                assert_eq!(seen[0][place].1, format!("{producer}:{number}"));
            }
        }
        // Every batch is one record, so each segment ends exactly at its limit.
        let metadata = cluster.metadata();
        assert_eq!(sealed_count(&metadata, "rolling"), PRODUCERS * EACH / 50);
        let state = cluster.broker(2).topic_state(&named("rolling")).await.unwrap();
        assert!(state.sealed_segments.values().all(|count| *count == 50), "{state:?}");
        let leaders: std::collections::BTreeSet<u32> = state.segment_leaders.values().copied().collect();
        assert_eq!(leaders.len(), 3, "leadership rotates");
    });
}

/// By the time that the task goes on the append is acknowledged, its segment has ended, and the segment's leader is closed.
#[test]
fn an_append_whose_task_is_held_up_until_its_segment_is_sealed_is_acknowledged() {
    let cluster = Cluster::start(1, json!({ "segment_entries_max": 3 }));
    cluster.block_on(async {
        let (broker, topic) = (cluster.broker(1), PartitionRef::parse("held", 0).unwrap());
        for segment in 0..20 {
            put(&broker, &topic, "first").await.unwrap();
            let mut held = pin!(put(&broker, &topic, "held"));
            assert!(poll!(&mut held).is_pending());
            put(&broker, &topic, "last").await.unwrap();
            let mut version = broker.watch_metadata();
            while broker.leadership(&topic).unwrap().number == segment {
                version.changed().await.unwrap();
            }
            assert_eq!(held.await.unwrap().base_offset, segment * 3 + 1);
        }
    });
}

#[test]
fn sealed_segments_are_readable_by_themselves_from_every_node() {
    let cluster = Cluster::start(3, json!({ "segment_entries_max": 5 }));
    cluster.block_on(async {
        let topic = PartitionRef::parse("logs", 0).unwrap();
        for number in 0..17 {
            put(&cluster.broker(1), &topic, &number.to_string()).await.unwrap();
        }
        for id in cluster.ids() {
            let broker = cluster.broker(id);
            let partitions = broker.segments(&named("logs")).await.unwrap();
            let segments = &partitions[0].segments;
            assert_eq!(segments.len(), 4);
            assert_eq!(partitions[0].high_watermark, 17);
            assert!(segments.iter().all(|segment| segment.bytes > 0));
            for segment in &segments[..3] {
                assert_eq!(segment.end_offset, segment.base_offset + 5);
                let options = walrus_broker::ReadOptions {
                    bytes_max: 1 << 20,
                    wait: Duration::ZERO,
                    segment: Some(segment.uuid),
                    unconfirmed: false,
                };
                let page = broker.read(&topic, segment.base_offset, options).await.unwrap();
                assert_eq!((page.batches().count(), page.next_offset), (5, segment.end_offset));
                let end = broker.read(&topic, segment.end_offset, options).await.unwrap();
                assert!(end.pieces.is_empty());
            }
        }
    });
}

#[test]
fn a_repeated_batch_gets_its_first_offsets_also_after_a_roll() {
    let cluster = Cluster::start(3, json!({ "segment_entries_max": 4 }));
    cluster.block_on(async {
        let topic = PartitionRef::parse("idempotent", 0).unwrap();
        let broker = cluster.broker(2);
        let (id, epoch) = broker.init_producer();
        assert_ne!(broker.init_producer().0, id);
        assert_ne!(cluster.broker(1).init_producer().0, id);
        let batch = |sequence: i32| {
            let producer = ProducerRef { id, epoch, base_sequence: sequence };
            batch_of(&[format!("{sequence}"), format!("{}", sequence + 1)], Some(producer))
        };
        for sequence in [0, 2, 4, 6] {
            let ack = broker.append(&topic, batch(sequence)).await.unwrap();
            assert_eq!((ack.base_offset, ack.duplicate), (u64::try_from(sequence).unwrap(), false));
        }
        // By now two segments are sealed. The same batches go through another node.
        for sequence in [6, 0, 4] {
            let ack = cluster.broker(3).append(&topic, batch(sequence)).await.unwrap();
            assert_eq!((ack.base_offset, ack.duplicate), (u64::try_from(sequence).unwrap(), true));
            assert_eq!(ack.end_offset, ack.base_offset + 2);
        }
        let error = cluster.broker(1).append(&topic, batch(20)).await.unwrap_err();
        assert_eq!(error, Error::OutOfOrderSequence { producer_id: id, expected: 8, got: 20 });
        assert_eq!(read_values(&broker, &topic, 0, 8).await.len(), 8);
    });
}

/// Each copy of the next segment's log was sent the whole table: appends waited for a roll the longer, the more producers there
/// were.
#[test]
fn a_roll_sends_no_producers_to_nodes_that_have_the_segment_before() {
    const PRODUCERS: i64 = 20_000;
    let all = Replication { factor: 3, write_quorum: 3 };
    let cluster = Cluster::start_linked(3, json!({}), all);
    cluster.block_on_long(async {
        let topic = PartitionRef::parse("many", 0).unwrap();
        cluster.broker(1).create_topic(&named("many"), 1).await.unwrap();
        let append = |id: i64, base_sequence: i32| {
            let batch = batch_of(&["x".to_owned()], Some(ProducerRef { id, epoch: 0, base_sequence }));
            let (broker, topic) = (cluster.broker(1), topic.clone());
            async move { broker.append(&topic, batch).await.unwrap() }
        };
        for from in (0..PRODUCERS).step_by(200) {
            futures_util::future::join_all((from..from + 200).map(|id| append(id, 0))).await;
        }
        let before = cluster.links().carried();
        let roll = json!({ "segment_entries_max": 1 }).to_string();
        cluster.ids().for_each(|id| cluster.plane(id).configure(&roll).unwrap());
        for sequence in 1..6 {
            assert!(!append(7, sequence).await.duplicate);
        }
        let carried = cluster.links().carried() - before;
        assert!(carried < 100_000, "{carried} bytes for five rolls");
        // Who wrote in the first segment only is known in the sixth.
        assert!(append(PRODUCERS - 1, 0).await.duplicate);
        assert_eq!(sealed_count(&cluster.metadata(), "many"), 5);
    });
}

#[test]
fn segments_roll_by_bytes_and_by_age_and_empty_ones_do_not_age() {
    let cluster = Cluster::start(2, json!({ "segment_bytes_max": 1_000, "segment_age_ms_max": 0 }));
    cluster.block_on(async {
        let topic = PartitionRef::parse("aging", 0).unwrap();
        put(&cluster.broker(1), &topic, &"x".repeat(1_000)).await.unwrap();
        put(&cluster.broker(1), &topic, "small").await.unwrap();
        assert_eq!(sealed_count(&cluster.metadata(), "aging"), 1);

        for id in cluster.ids() {
            cluster.plane(id).configure(r#"{"segment_age_ms_max": 30, "monitor_check_ms": 10}"#).unwrap();
        }
        let mut version = cluster.broker(1).watch_metadata();
        let sealed = async {
            while sealed_count(&cluster.metadata(), "aging") < 2 {
                version.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, sealed).await.expect("the old segment is sealed");
        tokio::time::sleep(Duration::from_millis(200)).await; // many monitor periods: an empty segment stays
        assert_eq!(sealed_count(&cluster.metadata(), "aging"), 2);
    });
}

#[test]
fn a_young_segment_goes_on_beyond_its_limits_and_rolls_once_it_is_old_enough() {
    let hour = json!({ "segment_entries_max": 2, "segment_age_ms_min": 3_600_000, "monitor_check_ms": 10 });
    let cluster = Cluster::start(2, hour);
    cluster.block_on(async {
        let topic = PartitionRef::parse("young", 0).unwrap();
        for number in 0..50 {
            put(&cluster.broker(1), &topic, &number.to_string()).await.unwrap();
        }
        assert_eq!(sealed_count(&cluster.metadata(), "young"), 0);
        let mut version = cluster.broker(1).watch_metadata();
        for id in cluster.ids() {
            cluster.plane(id).configure(r#"{"segment_age_ms_min": 0}"#).unwrap();
        }
        let sealed = async {
            while sealed_count(&cluster.metadata(), "young") < 1 {
                version.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, sealed).await.expect("a look finds it");
        put(&cluster.broker(2), &topic, "50").await.unwrap();
        assert_eq!(read_values(&cluster.broker(2), &topic, 0, 51).await.len(), 51);
    });
}

#[test]
fn a_cluster_rolls_as_many_segments_a_second_as_it_may_and_appends_go_on_meanwhile() {
    const TOPICS: usize = 4;
    let cluster = Cluster::start(1, json!({ "segment_entries_max": 1, "monitor_check_ms": 10 }));
    cluster.set_config(&[("segments.rolls_per_second_max", 1)]);
    cluster.block_on(async {
        let broker = cluster.broker(1);
        let began = std::time::Instant::now();
        let names: Vec<String> = (0..TOPICS).map(|number| format!("busy-{number}")).collect();
        let topics: Vec<_> = names.iter().map(|name| PartitionRef::parse(name, 0).unwrap()).collect();
        for round in 0..10 {
            for topic in &topics {
                put(&broker, topic, &round.to_string()).await.unwrap();
            }
        }
        let rolled = || names.iter().filter(|name| sealed_count(&cluster.metadata(), name) > 0).count();
        let mut version = broker.watch_metadata();
        let all = async {
            while rolled() < TOPICS {
                version.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, all).await.expect("all have their turn");
        let sealed: usize = names.iter().map(|name| sealed_count(&cluster.metadata(), name)).sum();
        let seconds = usize::try_from(began.elapsed().as_secs()).unwrap() + 2; // those that began
        assert!((TOPICS..=seconds).contains(&sealed), "{sealed} rolls in {seconds} seconds");
        for topic in &topics {
            assert_eq!(read_values(&broker, topic, 0, 10).await.len(), 10);
        }
    });
}

#[test]
fn without_metadata_a_full_segment_goes_on_up_to_four_times_its_size() {
    let cluster = Cluster::start(2, json!({ "segment_entries_max": 10, "append_wait_ms": 1_500 }));
    cluster.block_on(async {
        let topic = PartitionRef::parse("alone", 0).unwrap();
        put(&cluster.broker(1), &topic, "first").await.unwrap();
        cluster.set_metadata_away(true);
        for number in 1..40 {
            put(&cluster.broker(1), &topic, &number.to_string()).await.unwrap();
        }
        let error = put(&cluster.broker(1), &topic, "too much").await.unwrap_err();
        assert!(error.retryable(), "{error:?}");
        cluster.set_metadata_away(false);
        let ack = put(&cluster.broker(1), &topic, "again").await.unwrap();
        assert_eq!(ack.base_offset, 40);
        assert_eq!(sealed_count(&cluster.metadata(), "alone"), 1);
    });
}
