//! Tests of topics, trims and waiting readers.

use std::time::{Duration, Instant};

use serde_json::json;
use walrus_broker::{Error, PartitionRef};

use crate::client::{options, put, read_values};
use crate::harness::{Cluster, PATIENCE, wait_until};

#[test]
fn creating_a_topic_twice_answers_the_first_one() {
    let cluster = Cluster::start(2, json!({}));
    cluster.block_on(async {
        let (first, created) = cluster.broker(1).create_topic("logs", 2, false).await.unwrap();
        assert!(created);
        let (again, created) = cluster.broker(2).create_topic("logs", 0, false).await.unwrap();
        assert!(!created);
        assert_eq!(first, again);
        let error = cluster.broker(2).create_topic("logs", 3, false).await.unwrap_err();
        assert_eq!(error, Error::TopicExists { topic: "logs".to_owned(), partitions: 2, wanted: 3 });
        assert_eq!(
            cluster.broker(1).create_topic("a/b", 1, false).await.unwrap_err().reason(),
            "InvalidTopic"
        );
        assert_eq!(cluster.broker(2).topics(false), [first]);
    });
}

#[test]
fn internal_topics_are_hidden_and_refused_to_clients() {
    let cluster = Cluster::start(2, json!({}));
    cluster.block_on(async {
        let topic = PartitionRef::parse("__cursors", 0).unwrap();
        cluster.broker(1).create_topic("__cursors", 1, true).await.unwrap();
        for id in cluster.ids() {
            let broker = cluster.broker(id);
            assert_eq!(broker.topics(false), []);
            assert_eq!(broker.topics(true).len(), 1);
            assert_eq!(put(&broker, &topic, "x").await.unwrap_err().reason(), "InvalidTopic");
            let batch = crate::client::batch_of(&["ours".to_owned()], None);
            broker.append_internal(&topic, batch).await.unwrap();
            assert_eq!(broker.delete_topic("__cursors").await.unwrap_err().reason(), "InvalidTopic");
        }
    });
}

#[test]
fn a_waiting_reader_wakes_when_something_is_appended() {
    let cluster = Cluster::start(3, json!({}));
    cluster.block_on(async {
        let topic = PartitionRef::parse("logs", 0).unwrap();
        cluster.broker(1).create_topic("logs", 1, false).await.unwrap();
        for (offset, id) in (0..).zip(cluster.ids()) {
            let started = Instant::now();
            let broker = cluster.broker(id);
            let reading = broker.read(&topic, offset, options(PATIENCE));
            let appending = async {
                tokio::time::sleep(Duration::from_millis(50)).await; // let the reader wait
                put(&cluster.broker(1), &topic, "new").await.unwrap()
            };
            let (page, _) = tokio::join!(reading, appending);
            assert_eq!(page.unwrap().next_offset, offset + 1);
            assert!(started.elapsed() < PATIENCE / 2);
            let empty = broker.read(&topic, offset + 1, options(Duration::from_millis(20))).await.unwrap();
            assert!(empty.pieces.is_empty());
            assert_eq!(empty.high_watermark, offset + 1);
        }
    });
}

#[test]
fn trimmed_segments_and_deleted_topics_leave_the_disks_and_nothing_else_does() {
    let cluster = Cluster::start(2, json!({ "segment_entries_max": 2 }));
    let (topic, gone) = (PartitionRef::parse("logs", 0).unwrap(), PartitionRef::parse("gone", 0).unwrap());
    cluster.block_on(async {
        for number in 0..7 {
            put(&cluster.broker(1), &topic, &number.to_string()).await.unwrap();
            put(&cluster.broker(1), &gone, &number.to_string()).await.unwrap();
        }
        cluster.broker(2).trim(&topic, 2).await.unwrap();
        let error = cluster.broker(2).read(&topic, 0, options(Duration::ZERO)).await.unwrap_err();
        assert!(matches!(error, Error::OffsetOutOfRange { requested: 0, start: 4, .. }), "{error:?}");
        assert_eq!(read_values(&cluster.broker(1), &topic, 4, 3).await.len(), 3);

        cluster.broker(1).delete_topic("gone").await.unwrap();
        let error = cluster.broker(2).read(&gone, 0, options(Duration::ZERO)).await.unwrap_err();
        assert_eq!(error.reason(), "UnknownTopic");
    });
    let logs = || cluster.ids().map(|id| cluster.broker(id).bucket().store().logs().len()).sum::<usize>();
    wait_until("two logs are left", PATIENCE, || logs() <= 2);
    cluster.block_on(async {
        assert_eq!(read_values(&cluster.broker(2), &topic, 4, 3).await.len(), 3);
    });
}
