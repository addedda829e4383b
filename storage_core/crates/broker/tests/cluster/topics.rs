//! Tests of topics, trims and waiting readers.

use std::time::{Duration, Instant};

use serde_json::json;
use walrus_broker::{Error, OrgName, PartitionRef, TopicPath};
use walrus_model::Replication;

use crate::client::{named, options, put, read_values};
use crate::harness::{Cluster, PATIENCE, wait_until};

#[test]
fn creating_a_topic_twice_answers_the_first_one() {
    let cluster = Cluster::start(2, json!({}));
    cluster.block_on(async {
        let (first, created) = cluster.broker(1).create_topic(&named("logs"), 2).await.unwrap();
        assert!(created);
        let (again, created) = cluster.broker(2).create_topic(&named("logs"), 0).await.unwrap();
        assert!(!created);
        assert_eq!(first, again);
        let error = cluster.broker(2).create_topic(&named("logs"), 3).await.unwrap_err();
        assert_eq!(error, Error::TopicExists { topic: "logs".to_owned(), partitions: 2, wanted: 3 });
        assert_eq!(TopicPath::parse("a/b").unwrap_err().reason(), "InvalidTopic");
        assert_eq!(cluster.broker(2).topics(&OrgName::default()), [first]);
    });
}

#[test]
fn walruss_own_topics_are_in_a_place_that_no_organisation_sees() {
    let cluster = Cluster::start(2, json!({}));
    cluster.block_on(async {
        let own = PartitionRef { topic: TopicPath::internal("__cursors").unwrap(), partition: 0 };
        cluster.broker(1).create_topic(&own.topic, 1).await.unwrap();
        let theirs = PartitionRef::parse("__cursors", 0).unwrap();
        for (before, id) in (0..).zip(cluster.ids()) {
            let broker = cluster.broker(id);
            let batch = crate::client::batch_of(&["ours".to_owned()], None);
            assert_eq!(broker.append(&own, batch).await.unwrap().base_offset, before);
            assert_eq!(put(&broker, &theirs, "theirs").await.unwrap().base_offset, before);
            let listed = broker.list_topics(&OrgName::default(), false).await.unwrap();
            assert_eq!(listed.iter().map(|topic| topic.internal).collect::<Vec<_>>(), [false]);
            let all = broker.list_topics(&OrgName::default(), true).await.unwrap();
            assert_eq!(all.iter().map(|topic| topic.internal).collect::<Vec<_>>(), [false, true]);
        }
        cluster.broker(1).delete_topic(&theirs.topic, None).await.unwrap();
        assert!(cluster.broker(2).topic(&own.topic).is_some());
    });
}

/// That list once grew for ever.
#[test]
fn a_deleted_topic_is_forgotten_once_its_space_is_free_on_every_node_also_on_one_that_was_away() {
    let replication = Replication { factor: 3, write_quorum: 2 };
    let mut cluster = Cluster::start_replicated(3, json!({}), replication);
    let gone = PartitionRef::parse("gone", 0).unwrap();
    cluster.block_on(put(&cluster.broker(1), &gone, "x")).unwrap();
    let id = cluster.metadata().names["default"]["gone"];
    let logs = |cluster: &Cluster, node| {
        let logs = cluster.broker(node).bucket().store().logs();
        logs.iter().filter(|log| log.name().starts_with(&id.to_string())).count()
    };
    wait_until("all nodes have a log", PATIENCE, || cluster.ids().all(|node| logs(&cluster, node) == 1));
    cluster.stop(3);
    cluster.block_on(cluster.broker(1).delete_topic(&gone.topic, None)).unwrap();
    cluster.block_on(put(&cluster.broker(1), &gone, "another")).unwrap();
    assert_ne!(cluster.metadata().names["default"]["gone"], id);
    wait_until("two nodes report that they have nothing of it", PATIENCE, || {
        cluster.metadata().emptied.get(&id).is_some_and(|disks| disks.len() == 2)
    });
    assert!(cluster.metadata().deleted.contains(&id), "the third may have all of it");
    cluster.restart(3);
    wait_until("it is forgotten", PATIENCE, || cluster.metadata().deleted.is_empty());
    assert!(cluster.ids().all(|node| logs(&cluster, node) == 0));
    assert!(cluster.ids().all(|node| cluster.broker(node).remains().is_empty()));
    assert!(cluster.metadata().emptied.is_empty());
}

#[test]
fn a_waiting_reader_wakes_when_something_is_appended() {
    let cluster = Cluster::start(3, json!({}));
    cluster.block_on(async {
        let topic = PartitionRef::parse("logs", 0).unwrap();
        cluster.broker(1).create_topic(&named("logs"), 1).await.unwrap();
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

        cluster.broker(1).delete_topic(&named("gone"), None).await.unwrap();
        let error = cluster.broker(2).read(&gone, 0, options(Duration::ZERO)).await.unwrap_err();
        assert_eq!(error.reason(), "UnknownTopic");
    });
    let logs = || cluster.ids().map(|id| cluster.broker(id).bucket().store().logs().len()).sum::<usize>();
    wait_until("two logs are left", PATIENCE, || logs() <= 2);
    cluster.block_on(async {
        assert_eq!(read_values(&cluster.broker(2), &topic, 4, 3).await.len(), 3);
    });
}
