//! Settings of topics act while records flow, whichever node is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::json;
use walrus_broker::{ConfigChange, Error, NewTopic, PartitionRef};
use walrus_log::FsyncSchedule;
use walrus_metadata::{Metadata, Segment};
use walrus_model::Replication;

use crate::client::{named, put};
use crate::harness::{Cluster, PATIENCE, wait_until};

const REPLICATED: Replication = Replication { factor: 3, write_quorum: 2 };

fn settings(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn set(entries: &[(&str, &str)]) -> ConfigChange {
    ConfigChange { set: settings(entries), ..ConfigChange::default() }
}

fn segments(metadata: &Metadata, topic: &str) -> Vec<Segment> {
    metadata.topics[&metadata.names["default"][topic]].partitions[0].segments.clone()
}

#[test]
fn a_topic_is_made_with_settings_and_another_with_its_name_and_other_ones_is_refused() {
    let cluster = Cluster::start(2, json!({}));
    cluster.block_on(async {
        let new = |entries: &[(&str, &str)]| NewTopic { partitions: 1, config: settings(entries) };
        let (broker, other) = (cluster.broker(1), cluster.broker(2));
        let refused = broker.create_topic(&named("t"), new(&[("segment.byts", "1")])).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "setting segment.byts: there is no such setting; the nearest name is segment.bytes"
        );
        assert!(broker.topic(&named("t")).is_none());
        let (made, created) =
            broker.create_topic(&named("t"), new(&[("segment.ms", "60000")])).await.unwrap();
        assert!(created);
        let again = other.create_topic(&named("t"), new(&[("segment.ms", " 60000")])).await;
        assert_eq!(again.unwrap(), (made.clone(), false));
        assert_eq!(
            other.create_topic(&named("t"), 1).await.unwrap(),
            (made, false),
            "who names none takes any"
        );
        let differs = other.create_topic(&named("t"), new(&[("segment.ms", "1")])).await.unwrap_err();
        assert_eq!(differs, Error::TopicDiffers { topic: "t".to_owned() });
    });
}

#[test]
fn a_change_is_in_force_at_the_next_append_through_any_node_and_a_wrong_one_changes_nothing() {
    let cluster = Cluster::start(3, json!({}));
    let topic = PartitionRef::parse("t", 0).unwrap();
    let large = "x".repeat(2_000);
    cluster.block_on(async {
        for id in cluster.ids() {
            put(&cluster.broker(id), &topic, &large).await.unwrap();
        }
        let described =
            cluster.broker(1).alter_topic(&topic.topic, set(&[("max.message.bytes", "1000")])).await;
        let version = described.unwrap().version;
        for id in cluster.ids() {
            let broker = cluster.broker(id);
            assert_eq!(broker.describe_topic(&topic.topic).await.unwrap().version, version);
            let refused = put(&broker, &topic, &large).await.unwrap_err();
            assert!(matches!(refused, Error::TooLarge { bytes_max: 1_000, .. }), "{refused:?}");
            put(&broker, &topic, "small").await.unwrap();
        }
        let wrong = [("segment.bytes", "9"), ("max.message.bytes", "none")];
        let refused = cluster.broker(2).alter_topic(&topic.topic, set(&wrong)).await.unwrap_err();
        assert!(
            matches!(&refused, Error::InvalidConfig { key, .. } if key == "max.message.bytes"),
            "{refused:?}"
        );
        let stale = ConfigChange { expect: Some(0), ..set(&[("max.message.bytes", "1")]) };
        let refused = cluster.broker(2).alter_topic(&topic.topic, stale).await.unwrap_err();
        assert_eq!(refused, Error::VersionMismatch { expected: 0, current: version });
        let missing = cluster.broker(2).alter_topic(&named("missing"), ConfigChange::default()).await;
        assert_eq!(missing.unwrap_err().reason(), "UnknownTopic");

        let unset = BTreeSet::from(["max.message.bytes".to_owned()]);
        let back = ConfigChange { unset, expect: Some(version), ..ConfigChange::default() };
        cluster.broker(3).alter_topic(&topic.topic, back).await.unwrap();
        cluster.broker(3).describe_topic(&topic.topic).await.unwrap();
        put(&cluster.broker(3), &topic, &large).await.unwrap();
    });
}

#[test]
fn the_open_segment_ends_at_the_topics_limits_once_they_are_set_and_other_topics_keep_the_nodes() {
    let cluster = Cluster::start(3, json!({ "monitor_check_ms": 20 }));
    let (topic, other) = (PartitionRef::parse("t", 0).unwrap(), PartitionRef::parse("other", 0).unwrap());
    cluster.block_on(async {
        for number in 0..7 {
            put(&cluster.broker(1), &topic, &number.to_string()).await.unwrap();
            put(&cluster.broker(1), &other, &number.to_string()).await.unwrap();
        }
        let five = set(&[("walrus.segment.entries", "5")]);
        cluster.broker(2).alter_topic(&topic.topic, five).await.unwrap();
    });
    // It has more records than it may already, and nobody appends.
    wait_until("the full segment ends", PATIENCE, || segments(&cluster.metadata(), "t").len() == 2);
    cluster.block_on(async {
        for number in 7..17 {
            put(&cluster.broker(1), &topic, &number.to_string()).await.unwrap();
        }
    });
    wait_until("two more end", PATIENCE, || segments(&cluster.metadata(), "t").len() == 4);
    let bases = |name| {
        let segments = segments(&cluster.metadata(), name);
        segments.iter().map(|segment| segment.descriptor.base_offset.unwrap().0).collect::<Vec<_>>()
    };
    assert_eq!(bases("t"), [0, 7, 12, 17]);
    assert_eq!(bases("other"), [0]);

    let young = set(&[("segment.ms", "1")]);
    cluster.block_on(async {
        cluster.broker(3).alter_topic(&topic.topic, young).await.unwrap();
        put(&cluster.broker(1), &topic, "it ages").await.unwrap();
    });
    wait_until("a segment ends for its age", PATIENCE, || bases("t").last() == Some(&18));
}

#[test]
fn raising_a_topics_quorum_ends_its_segment_at_once_and_the_next_one_waits_for_so_many_disks() {
    let mut cluster = Cluster::start_replicated(3, json!({ "append_wait_ms": 1_000 }), REPLICATED);
    let topic = PartitionRef::parse("t", 0).unwrap();
    let open = |cluster: &Cluster| segments(&cluster.metadata(), "t").pop().unwrap().descriptor;
    cluster.block_on(async {
        put(&cluster.broker(1), &topic, "before").await.unwrap();
        let all = set(&[("min.insync.replicas", "3")]);
        cluster.broker(2).alter_topic(&topic.topic, all).await.unwrap();
    });
    wait_until("it is rolled to a segment of three", PATIENCE, || open(&cluster).write_quorum == 3);
    cluster.block_on(put(&cluster.broker(1), &topic, "all are there")).unwrap();

    let victim = cluster.ids().find(|id| *id != open(&cluster).leader.node.0).unwrap();
    cluster.stop(victim);
    let survivor = open(&cluster).leader.node.0;
    let late = cluster.block_on(put(&cluster.broker(survivor), &topic, "two are there"));
    let error = late.unwrap_err();
    assert!(error.retryable() || matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    cluster.restart(victim);
    let again = || cluster.block_on(put(&cluster.broker(survivor), &topic, "all are back")).is_ok();
    wait_until("appends go on", PATIENCE, again);
    assert_eq!(open(&cluster).write_quorum, 3);

    // Lowering it needs no roll: it is the next segment's.
    cluster.block_on(async {
        let set = set(&[("min.insync.replicas", "1"), ("walrus.segment.entries", "1")]);
        cluster.broker(1).alter_topic(&topic.topic, set).await.unwrap();
        put(&cluster.broker(1), &topic, "the last of three").await.unwrap();
    });
    wait_until("the next segment has a majority", PATIENCE + Duration::from_secs(5), || {
        open(&cluster).write_quorum == 2
    });
}

#[test]
fn every_copy_of_a_segment_is_synced_as_its_topic_said_when_it_was_made() {
    let mut cluster = Cluster::start_replicated(3, json!({ "fsync": "each" }), REPLICATED);
    let (topic, other) = (PartitionRef::parse("t", 0).unwrap(), PartitionRef::parse("other", 0).unwrap());
    let schedules = |cluster: &Cluster, name: &str, number: usize| {
        let id = segments(&cluster.metadata(), name)[number].descriptor.id;
        let log = |node| cluster.broker(node).bucket().log(walrus_log::LogId(id.0)).map(|log| log.fsync());
        cluster.ids().map(log).collect::<Vec<_>>()
    };
    let never = [Some(FsyncSchedule::NoFsync); 3];
    let five = [Some("5ms".parse().unwrap()); 3];
    cluster.block_on(async {
        let config = settings(&[("walrus.fsync", "never"), ("walrus.segment.entries", "2")]);
        cluster.broker(1).create_topic(&topic.topic, NewTopic { partitions: 1, config }).await.unwrap();
        for number in 0..3 {
            put(&cluster.broker(1), &topic, &number.to_string()).await.unwrap();
            put(&cluster.broker(1), &other, &number.to_string()).await.unwrap();
        }
    });
    for number in 0..2 {
        wait_until("all have it", PATIENCE, || schedules(&cluster, "t", number) == never);
    }
    wait_until("all have it", PATIENCE, || {
        schedules(&cluster, "other", 0) == [Some(FsyncSchedule::SyncEach); 3]
    });
    cluster.stop(3);
    cluster.block_on(async {
        cluster.broker(2).alter_topic(&topic.topic, set(&[("walrus.fsync", "5ms")])).await.unwrap();
        for number in 3..9 {
            put(&cluster.broker(1), &topic, &number.to_string()).await.unwrap();
        }
    });
    cluster.restart(3);
    // The one that was away makes its copies later, of segments that are sealed by then.
    wait_until("all have the last full one", PATIENCE, || schedules(&cluster, "t", 3) == five);
    assert_eq!(schedules(&cluster, "t", 0), never);
}
