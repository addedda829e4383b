//! Whose time records have: a topic bounds the producers' times by its leader's clock, or gives all records the leader's.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::json;
use walrus_broker::{ConfigChange, Error, OffsetAt, PartitionRef};
use walrus_log::LogId;
use walrus_log::batch::{Batch, BatchBuilder, ProducerRef};
use walrus_metadata::Metadata;
use walrus_model::Replication;

use crate::client::options;
use crate::harness::{Cluster, PATIENCE, wait_until};

const REPLICATED: Replication = Replication { factor: 3, write_quorum: 2 };
const HOUR_MS: i64 = 3_600_000;

fn set(entries: &[(&str, &str)]) -> ConfigChange {
    let set: BTreeMap<_, _> =
        entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    ConfigChange { set, ..ConfigChange::default() }
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap()
}

/// A batch of records at these times, compressed with a codec of Kafka's numbers.
fn batch_at(times: &[i64], codec: u8, producer: Option<ProducerRef>) -> Bytes {
    let mut builder = BatchBuilder::new();
    if let Some(producer) = producer {
        builder.producer(producer);
    }
    for time in times {
        builder.push(None, Some(b"x"), *time, &[]);
    }
    let mut bytes = Vec::new();
    let built: Batch<'_> = builder.build_in(&mut bytes).unwrap();
    built.compressed(codec).unwrap().into()
}

/// The batches of a partition with the times of their records, as a node reads them; each is `LogAppendTime` or none.
async fn times_of(cluster: &Cluster, id: u32, from: &PartitionRef, end: u64) -> Vec<(bool, Vec<i64>)> {
    let (mut offset, mut found) = (0, Vec::new());
    while offset < end {
        let page = cluster.broker(id).read(from, offset, options(Duration::from_secs(2))).await.unwrap();
        for bytes in page.batches() {
            let bytes = bytes.unwrap();
            let (batch, _) = Batch::parse(&bytes).unwrap();
            let opened = batch.open().unwrap();
            let times = batch.header().records_in(&opened).map(|record| record.unwrap().timestamp_ms);
            found.push((batch.header().is_log_append_time(), times.collect()));
        }
        offset = page.next_offset;
    }
    found
}

fn leader_of(metadata: &Metadata) -> u32 {
    let partition = &metadata.topics.values().next().unwrap().partitions[0];
    partition.segments.last().unwrap().descriptor.leader.node.0
}

#[test]
fn a_record_too_far_from_the_leaders_clock_is_refused_with_all_of_its_batch_through_every_node() {
    let cluster = Cluster::start_replicated(3, json!({}), REPLICATED);
    let topic = PartitionRef::parse("t", 0).unwrap();
    cluster.block_on(async {
        let bounds =
            [("message.timestamp.before.max.ms", "7200000"), ("message.timestamp.after.max.ms", "3600000")];
        cluster.broker(1).create_topic(&topic.topic, 1).await.unwrap();
        cluster.broker(1).append(&topic, batch_at(&[0], 0, None)).await.unwrap();
        cluster.broker(1).alter_topic(&topic.topic, set(&bounds)).await.unwrap();
        let mut stored = 1;
        for id in cluster.ids() {
            let broker = cluster.broker(id);
            broker.describe_topic(&topic.topic).await.unwrap(); // this node knows the bounds then
            for codec in 0..5 {
                let now = now_ms();
                for wrong in [now - 3 * HOUR_MS, now + 2 * HOUR_MS, 0, i64::MIN, i64::MAX] {
                    let batch = batch_at(&[now, wrong, now], codec, None);
                    let refused = broker.append(&topic, batch).await.unwrap_err();
                    let Error::InvalidTimestamp { timestamp_ms, oldest_ms, newest_ms } = refused else {
                        panic!("node {id}, codec {codec}, {wrong}: {refused:?}");
                    };
                    assert_eq!(timestamp_ms, wrong);
                    assert!(!refused.retryable());
                    assert!((now - 2 * HOUR_MS..=now_ms() - 2 * HOUR_MS).contains(&oldest_ms));
                    assert!((now + HOUR_MS..=now_ms() + HOUR_MS).contains(&newest_ms));
                }
                let fine = batch_at(&[now - HOUR_MS, -1, now + HOUR_MS / 2], codec, None);
                let appended = broker.append(&topic, fine).await.unwrap();
                assert_eq!(appended.base_offset, stored, "nothing of what was refused is stored");
                stored = appended.end_offset;
            }
        }
        // What is there already is told to be, however old it is by now.
        let producer = ProducerRef { id: 7, epoch: 0, base_sequence: 0 };
        let (now, broker) = (now_ms(), cluster.broker(leader_of(&cluster.metadata())));
        let first = broker.append(&topic, batch_at(&[now], 0, Some(producer))).await.unwrap();
        let none = set(&[("message.timestamp.before.max.ms", "0")]);
        broker.alter_topic(&topic.topic, none).await.unwrap();
        let again = broker.append(&topic, batch_at(&[now], 0, Some(producer))).await.unwrap();
        assert_eq!((again.base_offset, again.duplicate), (first.base_offset, true));
    });
}

#[test]
fn with_append_time_all_read_the_leaders_time_and_a_repetition_keeps_the_first() {
    let cluster = Cluster::start_replicated(
        3,
        json!({ "monitor_check_ms": 20, "segment_entries_max": 20 }),
        REPLICATED,
    );
    let topic = PartitionRef::parse("t", 0).unwrap();
    cluster.block_on(async {
        let new = walrus_broker::NewTopic {
            partitions: 1,
            config: set(&[
                ("message.timestamp.type", "LogAppendTime"),
                ("message.timestamp.before.max.ms", "0"),
                ("message.timestamp.after.max.ms", "0"),
            ])
            .set,
        };
        cluster.broker(1).create_topic(&topic.topic, new).await.unwrap();
        let before = now_ms();
        for number in 0..15_u8 {
            let broker = cluster.broker(1 + u32::from(number % 3));
            let producer = ProducerRef { id: 7, epoch: 0, base_sequence: i32::from(number) * 2 };
            let batch = batch_at(&[5, -1], number % 5, Some(producer));
            let appended = broker.append(&topic, batch.clone()).await.unwrap();
            assert_eq!((appended.base_offset, appended.duplicate), (u64::from(number) * 2, false));
            let again = broker.append(&topic, batch).await.unwrap();
            assert_eq!((again.base_offset, again.duplicate), (u64::from(number) * 2, true));
        }
        let after = now_ms();
        let mut all = Vec::new();
        for id in cluster.ids() {
            let batches = times_of(&cluster, id, &topic, 30).await;
            assert_eq!(batches.len(), 15);
            assert!(batches.iter().all(|(is_leaders, times)| *is_leaders && times[0] == times[1]));
            let times: Vec<i64> = batches.iter().map(|(_, times)| times[0]).collect();
            assert!(times.is_sorted(), "{times:?}");
            assert!(
                times.iter().all(|time| (before..=after).contains(time)),
                "{times:?} from {before} to {after}"
            );
            let first = [(0, OffsetAt::NotBefore(times[7]))];
            let found =
                cluster.broker(id).list_offsets(&topic.topic, &first).await.unwrap().remove(0).unwrap();
            let at = times.iter().position(|time| *time == times[7]).unwrap() as u64 * 2;
            assert_eq!((found.offset, found.timestamp_ms), (Some(at), Some(times[7])));
            all.push(times);
        }
        assert!(all.iter().all(|times| *times == all[0]));
        let create_time = set(&[
            ("message.timestamp.type", "CreateTime"),
            ("message.timestamp.before.max.ms", "9223372036854775807"),
        ]);
        cluster.broker(2).alter_topic(&topic.topic, create_time).await.unwrap();
        cluster.broker(2).append(&topic, batch_at(&[5, 6], 0, None)).await.unwrap();
        let last = times_of(&cluster, 2, &topic, 32).await.pop();
        assert_eq!(last, Some((false, vec![5, 6])), "the setting acts at the next append");
    });
    // Copies of sealed segments are alike, byte for byte: their digests say so.
    wait_until("the first segment is sealed", PATIENCE, || {
        cluster.metadata().topics.values().next().unwrap().partitions[0].segments.len() > 1
    });
    cluster.wait_until_whole();
    let metadata = cluster.metadata();
    let sealed = metadata.topics.values().next().unwrap().partitions[0].segments[0].descriptor.id;
    let newest = |id: u32| cluster.broker(id).bucket().log(LogId(sealed.0)).unwrap().newest_timestamp();
    assert!(cluster.ids().all(|id| newest(id) == newest(1) && newest(1).is_some()));
}
