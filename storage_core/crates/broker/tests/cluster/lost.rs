//! Tests with topics whose creation the metadata have lost: their records lay on the disks, and nobody could reach them.

use std::collections::BTreeSet;

use serde_json::json;
use uuid::Uuid;
use walrus_broker::PartitionRef;
use walrus_metadata::{
    Command, LEVEL, LostTopic, Remains, TopicFacts, Unrecoverable, lost_topics, recover_topic,
};
use walrus_model::{Offset, Replication, SegmentId, TopicId};

use crate::client::{named, put, read_values};
use crate::harness::Cluster;
use crate::metadata::everybody;
use crate::replicated::put_until_taken;

fn start() -> Cluster {
    let replication = Replication { factor: 3, write_quorum: 2 };
    let cluster = Cluster::start_replicated(3, json!({"segment_entries_max": 4}), replication);
    cluster.command(Command::RaiseLevel { level: LEVEL });
    cluster
}

fn partition(topic: &str, partition: u32) -> PartitionRef {
    PartitionRef::parse(topic, partition).unwrap()
}

/// Sets the metadata back to where they did not name the topic yet.
fn lose(cluster: &Cluster, topic: &str) {
    cluster.rewrite(|metadata| {
        let id = metadata.names.get_mut("default").unwrap().remove(topic).unwrap();
        metadata.topics.remove(&id);
    });
}

/// The topics of which the disks have something and that the metadata have lost.
fn lost(cluster: &Cluster) -> Vec<LostTopic> {
    let metadata = cluster.metadata();
    let found: Vec<Remains> = cluster.ids().flat_map(|id| cluster.broker(id).remains()).collect();
    lost_topics(&metadata, &found)
}

#[test]
fn a_topic_that_a_rollback_of_the_metadata_forgot_comes_back_with_all_its_records() {
    let cluster = start();
    cluster.block_on(async {
        let broker = cluster.broker(1);
        broker.create_topic(&named("weather"), 3).await.unwrap();
        for number in 0..10 {
            put(&broker, &partition("weather", 0), &number.to_string()).await.unwrap();
        }
        put(&broker, &partition("weather", 1), "one").await.unwrap();
    });
    assert_eq!(lost(&cluster), [], "nothing is lost that the metadata name");
    lose(&cluster, "weather");

    let found = lost(&cluster);
    assert_eq!(found.len(), 1);
    let facts =
        TopicFacts { org: "default".to_owned(), name: "weather".to_owned(), internal: false, partitions: 3 };
    assert_eq!(found[0].facts, Some(facts), "disks know the topic's name");
    let ends: Vec<Offset> = found[0].partitions.iter().map(|partition| partition.ends).collect();
    assert_eq!(ends, [Offset(10), Offset(1), Offset(0)]);

    let metadata = cluster.metadata();
    let recover =
        |name| recover_topic(&metadata, &found[0], name, || SegmentId(Uuid::new_v4()), &everybody(&metadata));
    cluster.command(recover(None).unwrap());
    cluster.block_on(async {
        for id in cluster.ids() {
            let values = read_values(&cluster.broker(id), &partition("weather", 0), 0, 10).await;
            let expected: Vec<(u64, String)> = (0..10).map(|number| (number, number.to_string())).collect();
            assert_eq!(values, expected, "node {id}");
        }
        assert_eq!(put_until_taken(&cluster.broker(2), &partition("weather", 0), "10").await, 10);
        assert_eq!(put_until_taken(&cluster.broker(3), &partition("weather", 1), "two").await, 1);
        assert_eq!(put_until_taken(&cluster.broker(1), &partition("weather", 2), "first").await, 0);
        let values = read_values(&cluster.broker(1), &partition("weather", 1), 0, 2).await;
        assert_eq!(values, [(0, "one".to_owned()), (1, "two".to_owned())]);
    });
    assert_eq!(lost(&cluster), []);
}

#[test]
fn partitions_that_were_added_are_recovered_although_a_disk_never_heard_of_them() {
    let cluster = Cluster::start_replicated(3, json!({}), Replication::single());
    cluster.command(Command::RaiseLevel { level: LEVEL });
    cluster.block_on(async {
        put(&cluster.broker(1), &partition("weather", 0), "first").await.unwrap();
        assert_eq!(cluster.broker(1).add_partitions(&named("weather"), 4).await.unwrap().partitions, 4);
        put(&cluster.broker(1), &partition("weather", 1), "second").await.unwrap();
    });
    lose(&cluster, "weather");
    let metadata = cluster.metadata();
    let mut found: Vec<Remains> = cluster.ids().flat_map(|id| cluster.broker(id).remains()).collect();
    let noted: BTreeSet<u32> =
        found.iter().flat_map(|remains| &remains.facts).map(|facts| facts.partitions).collect();
    assert_eq!(noted, BTreeSet::from([1, 4]));
    for _ in 0..2 {
        assert_eq!(lost_topics(&metadata, &found)[0].partitions.len(), 4, "whichever disk answers first");
        found.reverse();
    }
}

#[test]
fn a_topic_that_was_made_again_meanwhile_keeps_its_name_and_the_lost_one_gets_another() {
    let cluster = start();
    cluster.block_on(async {
        put(&cluster.broker(1), &partition("weather", 0), "old").await.unwrap();
    });
    lose(&cluster, "weather");
    cluster.block_on(async {
        put_until_taken(&cluster.broker(2), &partition("weather", 0), "new").await;
    });
    let found = lost(&cluster);
    let metadata = cluster.metadata();
    let recover =
        |name| recover_topic(&metadata, &found[0], name, || SegmentId(Uuid::new_v4()), &everybody(&metadata));
    cluster.command(recover(Some("weather-of-before")).unwrap());
    cluster.block_on(async {
        let values = read_values(&cluster.broker(3), &partition("weather-of-before", 0), 0, 1).await;
        assert_eq!(values, [(0, "old".to_owned())]);
        let values = read_values(&cluster.broker(3), &partition("weather", 0), 0, 1).await;
        assert_eq!(values, [(0, "new".to_owned())]);
    });
}

#[test]
fn a_topic_whose_segments_are_sealed_and_verified_comes_back_from_their_logs_alone() {
    // Sealed copies forget their votes: their logs, and the values in them, are all that is left of the chain.
    let cluster = start();
    cluster.block_on(async {
        for number in 0..9 {
            put(&cluster.broker(1), &partition("weather", 0), &number.to_string()).await.unwrap();
        }
    });
    cluster.wait_until_whole();
    lose(&cluster, "weather");
    let mut found = lost(&cluster);
    let first = found[0].partitions[0].first.as_mut().unwrap();
    assert_eq!(first.replicas.len(), 3);
    let metadata = cluster.metadata();
    let recovered =
        recover_topic(&metadata, &found[0], None, || SegmentId(Uuid::new_v4()), &everybody(&metadata));
    cluster.command(recovered.unwrap());
    cluster.block_on(async {
        for id in cluster.ids() {
            assert_eq!(read_values(&cluster.broker(id), &partition("weather", 0), 0, 9).await.len(), 9);
        }
    });
    cluster.wait_until_whole();
}

#[test]
fn a_deleted_topic_is_not_lost() {
    let cluster = start();
    cluster.block_on(async {
        put(&cluster.broker(1), &partition("weather", 0), "x").await.unwrap();
        cluster.broker(1).delete_topic(&named("weather"), None).await.unwrap();
    });
    assert_eq!(lost(&cluster), []);
}

#[test]
fn a_lost_topic_whose_name_no_disk_knows_needs_one() {
    let topic = TopicId::from_u128(7);
    let nameless = LostTopic { topic, facts: None, partitions: vec![] };
    let metadata = walrus_metadata::Metadata::default();
    let refused =
        recover_topic(&metadata, &nameless, None, || SegmentId(Uuid::new_v4()), &everybody(&metadata));
    assert_eq!(refused, Err(Unrecoverable::NameUnknown { topic }));
}
