//! Offsets by time: whichever node is asked finds the record that a look at all of them finds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use walrus_broker::{Broker, Error, FoundOffset, OffsetAt, PartitionRef};
use walrus_log::batch::{Batch, BatchBuilder};
use walrus_model::Replication;

use crate::client::{named, put};
use crate::harness::{Cluster, PATIENCE};

const REPLICATED: Replication = Replication { factor: 3, write_quorum: 2 };
/// Timestamps of the records of a partition: they neither rise nor fall, and the greatest one is there twice.
const TIMES: [i64; 18] = [50, 10, 30, 30, 70, 20, 90, 90, 15, 40, 5, 60, 80, 25, 35, 45, 55, 65];

fn batch_at(times: &[i64], codec: u8) -> Bytes {
    let mut builder = BatchBuilder::new();
    for time in times {
        builder.push(None, Some(&[7; 20]), *time, &[]);
    }
    let mut bytes = Vec::new();
    let built: Batch<'_> = builder.build_in(&mut bytes).unwrap();
    built.compressed(codec).unwrap().into()
}

/// Answers for good: a node may be unsure for a moment where a partition ends.
async fn ask(broker: &Broker, topic: &str, questions: &[(u32, OffsetAt)]) -> Vec<FoundOffset> {
    let until = Instant::now() + PATIENCE;
    loop {
        let answers = broker.list_offsets(&named(topic), questions).await;
        match answers.and_then(|answers| answers.into_iter().collect()) {
            Ok(found) => return found,
            Err(error) if error.retryable() && Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn found(offset: Option<usize>, timestamp_ms: Option<i64>) -> FoundOffset {
    FoundOffset { offset: offset.map(|offset| offset as u64), timestamp_ms }
}

/// What a look at all records from `start` on finds.
fn expected(at: OffsetAt, start: usize) -> FoundOffset {
    let record = |place: Option<usize>| found(place, place.map(|place| TIMES[place]));
    let mut kept = start..TIMES.len();
    match at {
        OffsetAt::Earliest => found(Some(start), None),
        OffsetAt::Latest => found(Some(TIMES.len()), None),
        OffsetAt::Newest => record(kept.max_by_key(|&place| (TIMES[place], std::cmp::Reverse(place)))),
        OffsetAt::NotBefore(ms) => record(kept.find(|&place| TIMES[place] >= ms)),
    }
}

async fn check_all_nodes(cluster: &Cluster, ids: impl IntoIterator<Item = u32>, start: usize) {
    let times = (-5..100).step_by(5).map(OffsetAt::NotBefore);
    let places = [OffsetAt::Earliest, OffsetAt::Latest, OffsetAt::Newest];
    let questions: Vec<(u32, OffsetAt)> = places.into_iter().chain(times).map(|at| (0, at)).collect();
    let wanted: Vec<FoundOffset> = questions.iter().map(|(_, at)| expected(*at, start)).collect();
    for id in ids {
        assert_eq!(ask(&cluster.broker(id), "t", &questions).await, wanted, "node {id}, start {start}");
    }
}

#[test]
fn every_node_finds_offsets_by_time_over_all_segments_from_the_start_on_and_while_one_is_away() {
    let options = json!({ "monitor_check_ms": 20, "segment_entries_max": 4 });
    let mut cluster = Cluster::start_replicated(3, options, REPLICATED);
    let topic = PartitionRef::parse("t", 0).unwrap();
    cluster.block_on(async {
        for (number, times) in (0..).zip(TIMES.chunks(3)) {
            let broker = cluster.broker(1 + number % 3);
            let codec = u8::try_from(number % 5).unwrap();
            broker.append(&topic, batch_at(times, codec)).await.unwrap();
        }
        check_all_nodes(&cluster, cluster.ids(), 0).await;
    });
    assert!(cluster.metadata().topics.values().next().unwrap().partitions[0].segments.len() > 2);
    cluster.wait_until_whole();
    cluster.block_on(async {
        // In the middle of a batch and of a segment: what was deleted is no answer any more.
        cluster.broker(2).delete_records(&topic.topic, BTreeMap::from([(0, Some(7))])).await.unwrap();
        check_all_nodes(&cluster, cluster.ids(), 7).await;
    });
    let leader = {
        let metadata = cluster.metadata();
        let partition = &metadata.topics.values().next().unwrap().partitions[0];
        partition.segments.last().unwrap().descriptor.leader.node.0
    };
    let away = cluster.ids().find(|id| *id != leader).unwrap();
    let there: Vec<u32> = cluster.ids().filter(|id| *id != away).collect();
    cluster.stop(away);
    cluster.block_on(check_all_nodes(&cluster, there, 7));
}

#[test]
fn each_question_has_its_own_answer_and_an_empty_partition_has_no_record() {
    let cluster = Cluster::start(2, json!({}));
    cluster.block_on(async {
        cluster.broker(1).create_topic(&named("t"), 2).await.unwrap();
        put(&cluster.broker(1), &PartitionRef::parse("t", 1).unwrap(), "a").await.unwrap();
        let (broker, time) = (cluster.broker(2), 1_700_000_000_000);
        let questions = [(0, OffsetAt::Newest), (0, OffsetAt::NotBefore(0)), (0, OffsetAt::Latest)];
        let empty = [found(None, None), found(None, None), found(Some(0), None)];
        assert_eq!(ask(&broker, "t", &questions).await, empty);
        let questions = [(1, OffsetAt::Latest), (7, OffsetAt::Latest), (1, OffsetAt::NotBefore(time))];
        let answers = broker.list_offsets(&named("t"), &questions).await.unwrap();
        assert_eq!(answers[0], Ok(found(Some(1), None)));
        assert!(matches!(answers[1], Err(Error::UnknownPartition { partition: 7, partitions: 2, .. })));
        assert_eq!(answers[2], Ok(found(Some(0), Some(time))));
        let missing = broker.list_offsets(&named("missing"), &questions).await.unwrap_err();
        assert_eq!(missing.reason(), "UnknownTopic");
        let many = vec![(0, OffsetAt::Earliest); 10_001];
        let refused = broker.list_offsets(&named("t"), &many).await.unwrap_err();
        assert_eq!(refused.to_string(), "invalid request: 10001 questions are more than 10000");
    });
}
