//! Tests that a node that was cut off, replaced or just started claims nothing that it cannot know: no end of a log, no gap,
//! no range, no missing topic. It answers `Unavailable`, and clients go elsewhere.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use walrus_broker::{Broker, Error, OffsetAt, OrgName, PartitionRef, TopicPath};
use walrus_log::batch::ProducerRef;
use walrus_model::Replication;

use crate::client::{batch_of, named, options, put, read_values};
use crate::harness::{Cluster, PATIENCE, wait_until};
use crate::hostile::fence;
use crate::links::Link;
use crate::peer::{Peer, REPLICA};

const REPLICATION: Replication = Replication { factor: 3, write_quorum: 2 };
/// Milliseconds that are longer than a test may take.
const FOR_EVER_MS: u64 = 300_000;

fn topic() -> PartitionRef {
    PartitionRef::parse("logs", 0).unwrap()
}

fn linked(options: serde_json::Value) -> Cluster {
    let cluster = Cluster::start_linked(3, options, REPLICATION);
    cluster.block_on(async { cluster.broker(1).create_topic(&named("logs"), 1).await.unwrap() });
    cluster
}

fn others(cluster: &Cluster, than: u32) -> Vec<u32> {
    cluster.ids().filter(|id| *id != than).collect()
}

/// The node that leads the partition, by the metadata themselves.
fn leader(cluster: &Cluster) -> u32 {
    let metadata = cluster.metadata();
    let topic = metadata.names["default"]["logs"];
    metadata.topics[&topic].partitions[0].segments.last().unwrap().descriptor.leader.node.0
}

fn set_links(cluster: &Cluster, of: u32, link: Link) {
    others(cluster, of).into_iter().for_each(|other| cluster.links().set(of, other, link));
}

struct Producer {
    id: (i64, i16),
}

impl Producer {
    fn new(cluster: &Cluster) -> Self {
        Self { id: cluster.block_on(async { cluster.broker(1).init_producer() }) }
    }

    async fn send(&self, broker: &Broker, sequence: i32) -> Result<u64, Error> {
        let producer = ProducerRef { id: self.id.0, epoch: self.id.1, base_sequence: sequence };
        let batch = batch_of(&[sequence.to_string()], Some(producer));
        broker.append(&topic(), batch).await.map(|ack| ack.base_offset)
    }

    async fn send_until_taken(&self, broker: &Broker, sequence: i32) -> u64 {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.send(broker, sequence).await {
                Ok(offset) => return offset,
                Err(error) => assert!(Instant::now() < until, "{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Waits until a node lists the segments, and checks the high watermark: a leader that its replicas obey knows where its log ends.
async fn until_listed(broker: &Broker, high_watermark: u64) {
    let until = Instant::now() + PATIENCE;
    loop {
        match broker.segments(&named("logs")).await {
            Ok(partitions) => return assert_eq!(partitions[0].high_watermark, high_watermark),
            Err(error) => assert!(error.retryable() && Instant::now() < until, "{error:?}"),
        }
    }
}

fn is_unavailable<T: std::fmt::Debug>(what: &str, answer: Result<T, Error>) {
    assert!(matches!(answer, Err(Error::Unavailable { .. })), "{what}: {answer:?}");
}

/// Checks that a node claims none of what it could say about what is not there.
async fn claims_nothing(broker: &Broker, producer: &Producer, end: u64, next_sequence: i32) {
    let (topic, now) = (topic(), options(Duration::ZERO));
    let (at_end, behind_it, listed, gap) = tokio::join!(
        broker.read(&topic, end, now),
        broker.read(&topic, end + 3, now),
        broker.segments(&topic.topic),
        producer.send(broker, next_sequence),
    );
    is_unavailable("the end", at_end);
    is_unavailable("a range", behind_it);
    is_unavailable("the segments", listed);
    is_unavailable("a gap", gap);
}

#[test]
fn a_leader_that_was_replaced_without_knowing_claims_no_end_no_range_and_no_gap() {
    let cluster = linked(json!({ "append_wait_ms": 1_000 }));
    let producer = Producer::new(&cluster);
    let zombie = leader(&cluster);
    cluster.block_on(async {
        for sequence in 0..3 {
            producer.send_until_taken(&cluster.broker(zombie), sequence).await;
        }
        until_listed(&cluster.broker(zombie), 3).await;
    });
    cluster.isolate(zombie);
    set_links(&cluster, zombie, Link::Cut);
    wait_until("another leader", PATIENCE * 2, || leader(&cluster) != zombie);
    let other = others(&cluster, zombie)[0];
    cluster.block_on(async {
        for sequence in 3..6 {
            producer.send_until_taken(&cluster.broker(other), sequence).await;
        }
        claims_nothing(&cluster.broker(zombie), &producer, 3, 6).await;
        // What it has it shows.
        assert_eq!(read_values(&cluster.broker(zombie), &topic(), 0, 3).await.len(), 3);
    });
    // It hears the others again, and nothing from the metadata yet.
    set_links(&cluster, zombie, Link::Open);
    cluster.block_on(claims_nothing(&cluster.broker(zombie), &producer, 3, 6));
    cluster.rejoin(zombie);
    cluster.block_on(async {
        assert_eq!(producer.send_until_taken(&cluster.broker(zombie), 6).await, 6);
        assert_eq!(read_values(&cluster.broker(zombie), &topic(), 0, 7).await.len(), 7);
    });
}

#[test]
fn appends_do_not_wait_long_at_a_node_that_is_cut_off() {
    let cluster = linked(json!({ "append_wait_ms": FOR_EVER_MS }));
    let producer = Producer::new(&cluster);
    let alone = leader(&cluster);
    let apart = others(&cluster, alone)[0];
    cluster.block_on(producer.send_until_taken(&cluster.broker(alone), 0));
    for id in [alone, apart] {
        cluster.isolate(id);
        set_links(&cluster, id, Link::Held);
    }
    cluster.block_on(async {
        let (leading, forwarding) = (cluster.broker(alone), cluster.broker(apart));
        let (first, second) = tokio::join!(producer.send(&leading, 1), producer.send(&forwarding, 1));
        assert!(matches!(first, Err(Error::OutcomeUnknown { .. } | Error::Unavailable { .. })), "{first:?}");
        is_unavailable("a forwarded append", second);
        is_unavailable("the next append", producer.send(&leading, 2).await);
        // Nor do readers that wait for more.
        is_unavailable("a long poll", leading.read(&topic(), 1, options(PATIENCE * 100)).await);
    });
    for id in [alone, apart] {
        set_links(&cluster, id, Link::Open);
        cluster.rejoin(id);
    }
    cluster.block_on(async {
        for sequence in [1, 2] {
            producer.send_until_taken(&cluster.broker(apart), sequence).await;
        }
        let values = read_values(&cluster.broker(alone), &topic(), 0, 3).await;
        assert_eq!(values, [(0, "0".to_owned()), (1, "1".to_owned()), (2, "2".to_owned())]);
    });
}

/// A copy that is sealed said that offsets of the next segment are out of range, and that its end is the end of the log.
#[test]
fn a_node_that_has_not_heard_of_a_roll_takes_no_sealed_segment_for_the_end() {
    let cluster = linked(json!({ "segment_entries_max": 10 }));
    let ahead = leader(&cluster);
    let behind = (ahead + 1) % 3 + 1; // not the one that leads next
    cluster.block_on(put(&cluster.broker(ahead), &topic(), "0")).unwrap();
    cluster.fall_behind(behind);
    cluster.block_on(async {
        for number in 1..15 {
            put(&cluster.broker(ahead), &topic(), &number.to_string()).await.unwrap();
        }
        let (broker, now) = (cluster.broker(behind), options(Duration::ZERO));
        let topic = topic();
        let (at_end, behind_it, listed) = tokio::join!(
            broker.read(&topic, 10, now),
            broker.read(&topic, 13, now),
            broker.segments(&topic.topic)
        );
        is_unavailable("the end", at_end);
        is_unavailable("a range", behind_it);
        is_unavailable("the segments", listed);
    });
    cluster.catch_up(behind);
    cluster.block_on(async {
        assert_eq!(read_values(&cluster.broker(behind), &topic(), 0, 15).await.len(), 15);
    });
}

#[test]
fn a_node_that_has_just_started_does_not_know_which_topics_there_are() {
    let mut cluster = linked(json!({ "auto_create_topics": false }));
    let id = others(&cluster, leader(&cluster))[0];
    cluster.block_on(put(&cluster.broker(id), &topic(), "0")).unwrap();
    cluster.stop(id);
    cluster.fall_behind(id);
    cluster.restart(id);
    let broker = cluster.broker(id);
    cluster.block_on(async {
        is_unavailable("an append", put(&broker, &topic(), "1").await);
        is_unavailable("a read", broker.read(&topic(), 0, options(Duration::ZERO)).await);
        is_unavailable("the segments", broker.segments(&named("logs")).await);
        is_unavailable("the state", broker.topic_state(&named("logs")).await);
        is_unavailable("the topics", broker.list_topics(&OrgName::default(), false).await);
        is_unavailable("offsets", broker.list_offsets(&named("logs"), &[(0, OffsetAt::Earliest)]).await);
        is_unavailable("a deletion", broker.delete_topic(&named("logs"), None).await);
    });
    cluster.catch_up(id);
    cluster.block_on(async {
        assert_eq!(broker.list_topics(&OrgName::default(), false).await.unwrap().len(), 1);
        let unknown = PartitionRef::parse("other", 0).unwrap();
        let error = put(&broker, &unknown, "1").await.unwrap_err();
        assert!(matches!(error, Error::UnknownTopic { .. }), "{error:?}");
    });
}

/// It held its lease, and had missed what was committed a moment ago: for seconds it called new topics unknown, and those that
/// were dropped were there for it.
#[test]
fn a_node_that_has_missed_the_latest_metadata_hears_them_before_it_calls_anything_unknown() {
    let cluster = linked(json!({ "auto_create_topics": false, "segment_entries_max": 10 }));
    let first = leader(&cluster);
    let (ahead, late) = (cluster.broker(first), others(&cluster, first)[0]);
    let broker = cluster.broker(late);
    cluster.be_late(late);
    let new = async |name: &str| {
        ahead.create_topic(&named(name), 1).await.unwrap();
        PartitionRef::parse(name, 0).unwrap()
    };
    cluster.block_on(async {
        assert_eq!(put(&broker, &new("appended").await, "0").await.unwrap().base_offset, 0);
        let page = broker.read(&new("read").await, 0, options(Duration::ZERO)).await.unwrap();
        assert_eq!((page.high_watermark, page.batches().count()), (0, 0));
        assert_eq!(broker.segments(&new("listed").await.topic).await.unwrap().len(), 1);
        assert_eq!(broker.topic_state(&new("described").await.topic).await.unwrap().current_segment, 0);
        let shared = new("shared").await.topic;
        assert!(broker.consumer().next(&shared, 0).await.unwrap().is_none());
        new("named").await;
        assert!(
            broker
                .list_topics(&OrgName::default(), false)
                .await
                .unwrap()
                .iter()
                .any(|topic| topic.name == "named")
        );
        broker.delete_topic(&new("dropped").await.topic, None).await.unwrap();
        ahead.delete_topic(&named("named"), None).await.unwrap();
        assert!(broker.create_topic(&named("named"), 1).await.unwrap().1, "it is made anew");
        for number in 0..15 {
            put(&ahead, &topic(), &number.to_string()).await.unwrap();
        }
        assert_eq!(broker.topic_state(&named("logs")).await.unwrap().current_segment, 1);
    });
}

/// A node that held its lease and heard nothing when it asked called topics unknown, too.
#[test]
fn a_node_that_cannot_hear_the_latest_metadata_calls_nothing_unknown_though_it_holds_its_lease() {
    let cluster = linked(json!({ "auto_create_topics": false }));
    let first = leader(&cluster);
    let (ahead, behind) = (cluster.broker(first), others(&cluster, first)[0]);
    let broker = cluster.broker(behind);
    cluster.fall_behind(behind);
    cluster.block_on(async {
        ahead.create_topic(&named("new"), 1).await.unwrap();
        ahead.delete_topic(&named("logs"), None).await.unwrap();
        let new = PartitionRef::parse("new", 0).unwrap();
        is_unavailable("an append", put(&broker, &new, "0").await);
        is_unavailable("a read", broker.read(&new, 0, options(Duration::ZERO)).await);
        is_unavailable("the segments", broker.segments(&named("new")).await);
        is_unavailable("the state", broker.topic_state(&named("new")).await);
        is_unavailable("the state of a topic that is gone", broker.topic_state(&named("logs")).await);
        is_unavailable("the topics", broker.list_topics(&OrgName::default(), false).await);
        is_unavailable("a deletion", broker.delete_topic(&named("new"), None).await);
        is_unavailable("a topic that is there already", broker.create_topic(&named("logs"), 1).await);
        is_unavailable("the next entry", broker.consumer().next(&new.topic, 0).await);
    });
}

/// The end in the answer was where the last segment begins.
#[test]
fn an_offset_below_the_first_record_is_out_of_the_range_that_there_is() {
    let cluster = linked(json!({ "segment_entries_max": 10 }));
    cluster.block_on(async {
        let broker = cluster.broker(leader(&cluster));
        for number in 0..15 {
            put(&broker, &topic(), &number.to_string()).await.unwrap();
        }
        broker.trim(&topic(), 1).await.unwrap();
        let read = broker.read(&topic(), 3, options(Duration::ZERO)).await;
        let Err(Error::OffsetOutOfRange { requested: 3, start: 10, end: 15 }) = read else {
            panic!("{read:?}")
        };
    });
}

/// A commit waited for its record to be durable long after appends were told that they cannot be.
#[test]
fn a_commit_does_not_wait_longer_than_appends_where_the_owner_of_the_cursor_is_cut_off() {
    const A_LITTLE: Duration = Duration::from_millis(1_500);
    let cluster = linked(json!({ "append_wait_ms": FOR_EVER_MS }));
    let producer = Producer::new(&cluster);
    let append = |broker, sequence| producer.send_until_taken(broker, sequence);
    let first = cluster.broker(1);
    cluster.block_on(append(&first, 0));
    let logs = topic().topic;
    cluster.block_on(async { first.consumer().next(&logs, 0).await.unwrap().unwrap() });
    let id = cluster.metadata().names["default"]["logs"].0.as_u128();
    let partition = u32::try_from(id % 8).unwrap();
    let place = PartitionRef { topic: TopicPath::internal("__cursors").unwrap(), partition };
    let alone = first.leadership(&place).unwrap().node;
    let owner = cluster.broker(alone);
    cluster.block_on(append(&owner, 1));
    cluster.block_on(async {
        let mut consumer = owner.consumer();
        consumer.next(&logs, 0).await.unwrap().unwrap();
        cluster.isolate(alone);
        set_links(&cluster, alone, Link::Held);
        let appends_are_told = async {
            producer.send(&owner, 2).await.unwrap_err();
            tokio::time::sleep(A_LITTLE).await;
        };
        tokio::select! {
            commit = consumer.commit() => is_unavailable("a commit", commit),
            () = appends_are_told => panic!("the commit still waits"),
        }
    });
}

/// A new topic whose leader has not heard of it: the leader's id, a node that has, and the topic.
fn led_by_one_that_is_behind(cluster: &Cluster) -> (u32, Broker, PartitionRef) {
    let behind = leader(cluster);
    cluster.fall_behind(behind);
    let ahead = cluster.broker(others(cluster, behind)[0]);
    // Topics spread over the nodes: one of these is led by the node that is behind.
    let led_there = cluster.block_on(async {
        for number in 0.. {
            let topic = PartitionRef::parse(&format!("new-{number}"), 0).unwrap();
            ahead.create_topic(&topic.topic, 1).await.unwrap();
            if ahead.leadership(&topic).unwrap().node == behind {
                return topic;
            }
        }
        unreachable!("numbers do not end")
    });
    (behind, ahead, led_there)
}

/// Whoever made a topic listed it at once, and was told now and then that its end is not known.
#[test]
fn who_lists_segments_waits_for_a_leader_that_is_about_to_hear_of_them() {
    let cluster = linked(json!({}));
    let (behind, ahead, led_there) = led_by_one_that_is_behind(&cluster);
    cluster.block_on(async {
        let mut listed = std::pin::pin!(ahead.segments(&led_there.topic));
        let at_once = tokio::time::timeout(Duration::from_millis(100), &mut listed).await;
        assert!(at_once.is_err(), "{at_once:?}");
        cluster.catch_up(behind);
        assert_eq!(listed.await.unwrap().len(), 1);
    });
}

/// The leader had not heard of its segment, and a reader that had named none was told that it is unknown.
#[test]
fn a_segment_that_its_leader_has_not_heard_of_is_neither_unknown_nor_empty() {
    let cluster = linked(json!({}));
    let (behind, ahead, led_there) = led_by_one_that_is_behind(&cluster);
    cluster.block_on(async {
        is_unavailable("a read", ahead.read(&led_there, 0, options(Duration::ZERO)).await);
        is_unavailable("the segments", ahead.segments(&led_there.topic).await);
    });
    cluster.catch_up(behind);
    cluster.block_on(async {
        let until = Instant::now() + PATIENCE;
        loop {
            match ahead.read(&led_there, 0, options(Duration::ZERO)).await {
                Ok(page) => break assert_eq!((page.high_watermark, page.batches().count()), (0, 0)),
                Err(error) => assert!(Instant::now() < until, "{error:?}"),
            }
        }
        put(&ahead, &led_there, "0").await.unwrap();
    });
}

/// Its node answered pings, and nobody took its segments over: appends to them waited until it heard of the metadata.
#[test]
fn a_leader_that_never_hears_that_it_leads_is_replaced() {
    let cluster = linked(json!({ "lease_ms": 1_000 }));
    let hearing = others(&cluster, leader(&cluster));
    let everybody = cluster.keep_renewing(cluster.ids().collect());
    let (behind, ahead, led_there) = led_by_one_that_is_behind(&cluster);
    drop(everybody);
    cluster.let_lapse(behind);
    let _renewing = cluster.keep_renewing(hearing);
    // What was sent to that node has no known outcome.
    wait_until("appends go on", PATIENCE, || cluster.block_on(put(&ahead, &led_there, "0")).is_ok());
    assert_ne!(ahead.leadership(&led_there).unwrap().node, behind);
}

/// Its node answered pings, as another process than the one that led, of which the metadata had not heard: all nodes had been
/// killed, and one came back that could not reach the metadata.
#[test]
fn a_leader_whose_node_is_back_as_another_process_is_replaced_also_where_the_metadata_do_not_know() {
    let mut cluster = linked(json!({}));
    let victim = leader(&cluster);
    cluster.block_on(put(&cluster.broker(victim), &topic(), "0")).unwrap();
    for id in cluster.ids() {
        cluster.stop_unnoticed(id);
    }
    for id in others(&cluster, victim) {
        cluster.restart(id);
    }
    cluster.restart_unheard(victim); // last: it knows where the others are, and pings them
    cluster.let_lapse(victim);
    let _renewing = cluster.keep_renewing(others(&cluster, victim));
    let broker = cluster.broker(others(&cluster, victim)[0]);
    cluster.block_on(async {
        let first = read_values(&broker, &topic(), 0, 1).await;
        assert_eq!(first, [(0, "0".to_owned())]);
    });
    wait_until("appends go on", PATIENCE, || cluster.block_on(put(&broker, &topic(), "1")).is_ok());
    assert_ne!(broker.leadership(&topic()).unwrap().node, victim);
}

/// The open segment of the partition.
fn last_segment(cluster: &Cluster) -> walrus_metadata::Segment {
    let metadata = cluster.metadata();
    metadata.topics[&metadata.names["default"]["logs"]].partitions[0].segments.last().unwrap().clone()
}

/// It slept, or was cut off, for so long that the others had forgotten their votes: their copies are verified. Then they were
/// taken for ones that had promised nothing.
#[test]
fn a_leader_that_wakes_up_when_the_votes_are_forgotten_claims_nothing_either() {
    let cluster = linked(json!({ "append_wait_ms": 1_000 }));
    let producer = Producer::new(&cluster);
    let sleeper = leader(&cluster);
    let segment = last_segment(&cluster).descriptor.id;
    cluster.block_on(async {
        for sequence in 0..3 {
            producer.send_until_taken(&cluster.broker(sleeper), sequence).await;
        }
        until_listed(&cluster.broker(sleeper), 3).await;
    });
    cluster.isolate(sleeper);
    set_links(&cluster, sleeper, Link::Cut);
    wait_until("another leader", PATIENCE * 2, || leader(&cluster) != sleeper);
    let other = others(&cluster, sleeper)[0];
    cluster.block_on(async {
        for sequence in 3..6 {
            producer.send_until_taken(&cluster.broker(other), sequence).await;
        }
    });
    wait_until("the votes are forgotten", PATIENCE * 2, || {
        cluster.keep_copies();
        others(&cluster, sleeper).into_iter().all(|id| {
            let store = cluster.broker(id).bucket().store().clone();
            store.property(&format!("replica/{segment}")).is_none()
        })
    });
    // It hears the others again, and nothing from the metadata yet.
    set_links(&cluster, sleeper, Link::Open);
    cluster.block_on(claims_nothing(&cluster.broker(sleeper), &producer, 3, 6));
    cluster.rejoin(sleeper);
    cluster.block_on(async {
        assert_eq!(producer.send_until_taken(&cluster.broker(sleeper), 6).await, 6);
    });
}

/// Metadata were set back to when the segment was open; its leader's process is there, and may not lead what is sealed. Who
/// listed the segments was told for minutes that the leader is not sure, until somebody appended.
#[test]
fn a_reader_that_waits_brings_a_segment_forward_whose_leader_is_there_and_cannot_lead_it() {
    let cluster = linked(json!({ "segment_entries_max": 10 }));
    cluster.block_on(put(&cluster.broker(1), &topic(), "0")).unwrap();
    let before = cluster.metadata();
    cluster.block_on(async {
        for number in 1..15 {
            put(&cluster.broker(1), &topic(), &number.to_string()).await.unwrap();
        }
    });
    cluster.rewrite(|metadata| metadata.topics = before.topics);
    cluster.block_on(async {
        until_listed(&cluster.broker(1), 15).await;
        assert_eq!(read_values(&cluster.broker(2), &topic(), 0, 15).await.len(), 15);
    });
}

/// Metadata forgot the recovery for which its followers had promised to take no more of its appends. It stayed there, idle, and
/// nobody could say how far the segment goes, until somebody appended.
#[test]
fn a_leader_whose_followers_promised_to_another_is_found_out_by_readers_that_wait() {
    let cluster = linked(json!({}));
    let idle = leader(&cluster);
    cluster.block_on(put(&cluster.broker(idle), &topic(), "0")).unwrap();
    let segment = last_segment(&cluster);
    cluster.rewrite(|metadata| {
        let topic = metadata.topics.get_mut(&segment.descriptor.topic).unwrap();
        Arc::make_mut(&mut Arc::make_mut(topic).partitions[0]).next_epoch.0 += 1;
    });
    for id in others(&cluster, idle) {
        let fence = fence(&segment.descriptor, id, segment.descriptor.epoch.0 + 1);
        Peer::greet(&cluster, id).refusal_of(REPLICA, &fence).unwrap_err();
    }
    cluster.block_on(async {
        until_listed(&cluster.broker(idle), 1).await;
        assert_eq!(read_values(&cluster.broker(idle), &topic(), 0, 1).await.len(), 1);
    });
    assert_ne!(last_segment(&cluster).descriptor.id, segment.descriptor.id);
}

/// The error said "its leader is gone or not sure of it", whatever the reason was.
#[test]
fn who_is_not_told_how_far_a_segment_goes_is_told_why() {
    let mut cluster = Cluster::start(2, json!({}));
    cluster.block_on(async { cluster.broker(1).create_topic(&named("logs"), 1).await.unwrap() });
    let node = leader(&cluster);
    cluster.block_on(put(&cluster.broker(node), &topic(), "0")).unwrap();
    let other = others(&cluster, node)[0];
    cluster.stop_unnoticed(node);
    cluster.block_on(async {
        let error = cluster.broker(other).segments(&named("logs")).await.unwrap_err().to_string();
        assert!(error.contains(&format!("its leader, node {node}, does not answer")), "{error}");
    });
}
