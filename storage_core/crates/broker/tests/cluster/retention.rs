//! What topics do not keep, and what somebody deletes, goes from every disk; what producers have written stays known.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use walrus_broker::{ConfigChange, Error, PartitionRef};
use walrus_log::batch::ProducerRef;
use walrus_log::{LogId, SimulatedDisk, TailKind};
use walrus_metadata::{Kept, Metadata, Partition, Segment};
use walrus_model::{Offset, Replication};

use crate::client::{batch_of, named, options, put, read_values};
use crate::harness::{Cluster, PATIENCE, wait_until};

const REPLICATED: Replication = Replication { factor: 3, write_quorum: 2 };

fn set(entries: &[(&str, &str)]) -> ConfigChange {
    let set = entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    ConfigChange { set, ..ConfigChange::default() }
}

fn partition(metadata: &Metadata, topic: &str) -> Partition {
    Partition::clone(&metadata.topics[&metadata.names["default"][topic]].partitions[0])
}

/// Records whose values are their offsets.
fn numbered(offsets: std::ops::Range<u64>) -> Vec<(u64, String)> {
    offsets.map(|offset| (offset, offset.to_string())).collect()
}

/// What a node answers for good. It may be unsure for a moment where a partition ends.
async fn until_sure<T, F: Future<Output = Result<T, Error>>>(ask: impl Fn() -> F) -> Result<T, Error> {
    let until = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Err(error) if error.retryable() && Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answer => return answer,
        }
    }
}

/// Why a node gives no record of this offset.
async fn refusal_of(cluster: &Cluster, id: u32, from: &PartitionRef, offset: u64) -> Error {
    let broker = cluster.broker(id);
    until_sure(|| broker.read(from, offset, options(Duration::ZERO))).await.unwrap_err()
}

/// Whether no node has the log of any of these segments.
fn are_gone(cluster: &Cluster, segments: &[Segment]) -> bool {
    let has = |id: u32, segment: &Segment| cluster.broker(id).bucket().log(LogId(segment.descriptor.id.0));
    cluster.ids().all(|id| segments.iter().all(|segment| has(id, segment).is_none()))
}

/// One record of a producer, the `sequence`th that it sends.
async fn send(cluster: &Cluster, to: &PartitionRef, sequence: i32) -> (u64, bool) {
    let producer = ProducerRef { id: 7, epoch: 0, base_sequence: sequence };
    let ack = cluster.broker(1).append(to, batch_of(&[sequence.to_string()], Some(producer))).await.unwrap();
    (ack.base_offset, ack.duplicate)
}

/// The records of the open segment go too: it ends first. What its producer sends again is still known as sent before.
#[test]
fn a_topic_is_emptied_by_a_short_retention_on_every_disk_and_its_producers_stay_known() {
    let options_of_nodes = json!({ "monitor_check_ms": 20, "segment_entries_max": 4 });
    let cluster = Cluster::start_replicated(3, options_of_nodes, REPLICATED);
    let topic = PartitionRef::parse("t", 0).unwrap();
    cluster.block_on(async {
        for sequence in 0..10 {
            assert_eq!(send(&cluster, &topic, sequence).await, (sequence.cast_unsigned().into(), false));
        }
        cluster.broker(2).alter_topic(&topic.topic, set(&[("retention.ms", "1")])).await.unwrap();
    });
    let before = partition(&cluster.metadata(), "t").segments;
    cluster.let_go_until("everything goes", |metadata| {
        let left = partition(metadata, "t");
        left.log_start() == Offset(10) && left.segments.len() == 1 && are_gone(&cluster, &before)
    });
    cluster.block_on(async {
        assert_eq!(send(&cluster, &topic, 9).await, (9, true), "sent again");
        assert_eq!(send(&cluster, &topic, 10).await, (10, false));
        let refused = refusal_of(&cluster, 3, &topic, 9).await;
        assert!(matches!(refused, Error::OffsetOutOfRange { requested: 9, start: 10, .. }), "{refused:?}");
        let described = cluster.broker(1).describe_topic(&topic.topic).await.unwrap();
        assert_eq!(described.kept[0].log_start, 10);
    });
}

/// Nobody appends to the topic after its only node has started again, so nobody needs its open segment to end.
#[test]
fn what_an_earlier_process_of_the_only_copy_wrote_goes_though_nobody_appends() {
    let mut cluster = Cluster::start(1, json!({ "monitor_check_ms": 20 }));
    let topic = PartitionRef::parse("t", 0).unwrap();
    cluster.block_on(async { put(&cluster.broker(1), &topic, "a").await.unwrap() });
    cluster.stop(1);
    cluster.restart(1);
    cluster.block_on(async {
        cluster.broker(1).alter_topic(&topic.topic, set(&[("retention.ms", "1")])).await.unwrap();
    });
    cluster.let_go_until("the record goes", |metadata| partition(metadata, "t").log_start() == Offset(1));
}

#[test]
fn deleted_records_are_refused_by_all_nodes_and_their_space_is_freed_also_where_a_node_was_away() {
    let options_of_nodes = json!({ "monitor_check_ms": 20, "segment_entries_max": 4 });
    let mut cluster = Cluster::start_replicated(3, options_of_nodes, REPLICATED);
    let topic = PartitionRef::parse("t", 0).unwrap();
    cluster.block_on(async {
        for number in 0..10 {
            put(&cluster.broker(1), &topic, &number.to_string()).await.unwrap();
        }
    });
    let before = partition(&cluster.metadata(), "t").segments;
    let leader = before.last().expect("one is open").descriptor.leader.node.0;
    let away = cluster.ids().find(|id| *id != leader).expect("there are three");
    let there: Vec<u32> = cluster.ids().filter(|id| *id != away).collect();
    cluster.stop(away);
    let delete = |cluster: &Cluster, offset: Option<u64>| {
        let (broker, before) = (cluster.broker(there[0]), BTreeMap::from([(0, offset)]));
        cluster.block_on(until_sure(|| broker.delete_records(&topic.topic, before.clone())))
    };
    let behind = delete(&cluster, Some(11)).unwrap_err();
    assert_eq!(behind, Error::OffsetOutOfRange { requested: 11, start: 0, end: 10 });
    assert_eq!(delete(&cluster, Some(6)).unwrap(), BTreeMap::from([(0, 6)]));
    cluster.block_on(async {
        for id in &there {
            let broker = cluster.broker(*id);
            broker.describe_topic(&topic.topic).await.unwrap(); // it has heard of it then
            let refused = refusal_of(&cluster, *id, &topic, 5).await;
            assert_eq!(refused, Error::OffsetOutOfRange { requested: 5, start: 6, end: 10 });
            assert_eq!(read_values(&broker, &topic, 6, 4).await, numbered(6..10));
        }
    });
    cluster.let_go_until("the first segment goes", |metadata| partition(metadata, "t").trimmed_below == 1);
    assert_eq!(delete(&cluster, None).unwrap(), BTreeMap::from([(0, 10)]));
    assert_eq!(delete(&cluster, Some(3)).unwrap(), BTreeMap::from([(0, 10)]), "a start never moves back");
    cluster.restart(away);
    cluster.let_go_until("all goes", |metadata| {
        let left = partition(metadata, "t");
        left.segments.len() == 1 && are_gone(&cluster, &before)
    });
    cluster.block_on(async {
        assert_eq!(put(&cluster.broker(away), &topic, "10").await.unwrap().base_offset, 10);
        assert_eq!(read_values(&cluster.broker(there[0]), &topic, 10, 1).await, numbered(10..11));
    });
}

/// No log can be made on a full disk, so the last sealed segment stays: the open one has begun on its leader's disk only.
#[test]
fn full_disks_get_room_from_what_topics_do_not_keep() {
    let disks: Vec<SimulatedDisk> = (0..3).map(|_| SimulatedDisk::new(TailKind::Mapped)).collect();
    let small = json!({ "log_block_bytes": 64 << 10, "log_blocks_per_file": 4, "segment_entries_max": 4 });
    let cluster = Cluster::start_linked_on(disks.clone(), small, REPLICATED);
    let topic = PartitionRef::parse("t", 0).unwrap();
    cluster.block_on(async {
        for number in 0..20 {
            put(&cluster.broker(1), &topic, &number.to_string()).await.unwrap();
        }
    });
    let are_reported = |metadata: &Metadata| {
        let sealed = partition(metadata, "t").segments;
        sealed.len() == 6 && sealed[..5].iter().all(|segment| segment.contents.is_some())
    };
    cluster.keep_copies_until("all sealed segments are reported", are_reported);
    let before = partition(&cluster.metadata(), "t").segments;
    disks.iter().for_each(|disk| disk.set_full(true));
    cluster.block_on(async {
        cluster.broker(1).alter_topic(&topic.topic, set(&[("retention.ms", "1")])).await.unwrap();
    });
    cluster.let_go_until("what is not kept goes", |_| are_gone(&cluster, &before[..4]));
    disks.iter().for_each(|disk| disk.set_full(false));
    cluster.let_go_until("the rest goes", |metadata| partition(metadata, "t").log_start() == Offset(20));
    let put_again = cluster.block_on(until_sure(|| {
        let (broker, topic) = (cluster.broker(2), topic.clone());
        async move { put(&broker, &topic, "20").await }
    }));
    assert_eq!(put_again.unwrap().base_offset, 20);
}

/// Twelve records in segments of four, of which the shared cursor reads nine: the first eight go, and the others stay.
fn only_what_was_read_goes(settings: &[(&str, &str)]) {
    let options_of_nodes = json!({ "monitor_check_ms": 20, "segment_entries_max": 4 });
    let cluster = Cluster::start_replicated(3, options_of_nodes, REPLICATED);
    let topic = PartitionRef::parse("t", 0).unwrap();
    cluster.block_on(async {
        for number in 0..12 {
            put(&cluster.broker(1), &topic, &number.to_string()).await.unwrap();
        }
        cluster.broker(1).alter_topic(&topic.topic, set(settings)).await.unwrap();
    });
    let kept = || cluster.block_on(cluster.broker(2).describe_topic(&topic.topic)).unwrap().kept[0].clone();
    let waits = || kept().kept == Kept::Reader { name: "GET".to_owned() };
    cluster.let_go_until("all is sealed, and stays", |_| kept().sealed_segments == 3 && waits());
    let before = partition(&cluster.metadata(), "t").segments;
    cluster.block_on(async {
        let mut consumer = cluster.broker(3).consumer();
        for number in 0..9_u64 {
            let value = consumer.next(&topic.topic, number).await.unwrap().unwrap();
            assert_eq!(&value[..], number.to_string().as_bytes());
        }
        consumer.commit().await.unwrap();
    });
    cluster.let_go_until("what was read goes", |metadata| {
        partition(metadata, "t").log_start() == Offset(8) && are_gone(&cluster, &before[..2])
    });
    assert!(waits(), "{:?}", kept());
    let left = cluster.block_on(read_values(&cluster.broker(1), &topic, 8, 4));
    assert_eq!(left, numbered(8..12));
}

#[test]
fn what_the_shared_cursor_has_used_up_goes_from_every_disk() {
    only_what_was_read_goes(&[("walrus.retention.consumed", "GET")]);
}

#[test]
fn what_the_shared_cursor_has_not_read_stays_though_it_is_old() {
    only_what_was_read_goes(&[("walrus.retention.pinned", "GET"), ("retention.ms", "1")]);
}

#[test]
fn metadata_that_forget_a_deletion_are_told() {
    let cluster = Cluster::start_replicated(3, json!({}), REPLICATED);
    let topic = PartitionRef::parse("t", 0).unwrap();
    cluster.block_on(async {
        for number in 0..5 {
            put(&cluster.broker(1), &topic, &number.to_string()).await.unwrap();
        }
        cluster.broker(1).delete_records(&topic.topic, BTreeMap::from([(0, Some(3))])).await.unwrap();
    });
    let remembers = |id: u32| {
        let properties = cluster.broker(id).bucket().store().properties();
        properties.iter().any(|(key, _)| key.starts_with("start/"))
    };
    wait_until("all disks remember it", PATIENCE, || cluster.ids().all(remembers));
    cluster.rewrite(|metadata| {
        let id = metadata.names["default"]["t"];
        let mut topic = (*metadata.topics[&id]).clone();
        Arc::make_mut(&mut topic.partitions[0]).start = Offset(0);
        metadata.topics.insert(id, topic.into());
    });
    wait_until("it is deleted again", PATIENCE, || {
        partition(&cluster.metadata(), "t").log_start() == Offset(3)
    });
}

#[test]
fn records_of_unknown_topics_and_partitions_are_not_deleted_and_the_answer_says_which() {
    let cluster = Cluster::start(1, json!({}));
    let topic = PartitionRef::parse("t", 0).unwrap();
    cluster.block_on(async {
        put(&cluster.broker(1), &topic, "a").await.unwrap();
        let before = BTreeMap::from([(0, None), (4, None)]);
        let refused = cluster.broker(1).delete_records(&topic.topic, before.clone()).await.unwrap_err();
        assert!(matches!(refused, Error::UnknownPartition { partition: 4, .. }), "{refused:?}");
        let refused = cluster.broker(1).delete_records(&named("missing"), before).await.unwrap_err();
        assert_eq!(refused, Error::UnknownTopic { topic: "missing".to_owned() });
        assert_eq!(read_values(&cluster.broker(1), &topic, 0, 1).await, [(0, "a".to_owned())]);
    });
}
