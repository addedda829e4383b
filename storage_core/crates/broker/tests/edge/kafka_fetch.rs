//! Tests of Fetch, ListOffsets and OffsetForLeaderEpoch.

use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_offsets_response::ListOffsetsPartitionResponse;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{
    BrokerId, FetchRequest, ListOffsetsRequest, MetadataRequest, OffsetForLeaderEpochRequest,
};
use walrus_broker::PartitionRef;
use walrus_log::batch::Batch;

use crate::harness::{Cluster, PATIENCE, wait_until};
use crate::kafka_client::{KafkaClient, batch, options, topic_name};

/// What is asked of partition 0 of topic `t`.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) version: i16,
    pub(crate) offset: i64,
    pub(crate) epoch: i32,
    pub(crate) bytes_max: i32,
    pub(crate) partition_bytes_max: i32,
    pub(crate) bytes_min: i32,
    pub(crate) wait_ms: i32,
}

pub(crate) const ASK: Ask = Ask {
    version: 12,
    offset: 0,
    epoch: -1,
    bytes_max: 1 << 20,
    partition_bytes_max: 1 << 20,
    bytes_min: 1,
    wait_ms: 0,
};

fn request(ask: Ask) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition(0)
        .with_fetch_offset(ask.offset)
        .with_current_leader_epoch(if ask.version >= 9 { ask.epoch } else { -1 })
        .with_partition_max_bytes(ask.partition_bytes_max);
    let topic = FetchTopic::default().with_topic(topic_name("t")).with_partitions(vec![partition]);
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_bytes(ask.bytes_max)
        .with_min_bytes(ask.bytes_min)
        .with_max_wait_ms(ask.wait_ms)
        .with_topics(vec![topic])
}

/// The highest version in which a node answers with the newest records: who does not lead says so from version 12 on.
fn served_by(cluster: &Cluster, node: u32) -> i16 {
    let leader = cluster.broker(1).leadership(&PartitionRef::parse("t", 0).unwrap()).unwrap().node;
    if leader == node { 12 } else { 11 }
}

/// Waits until a node has begun to answer so many fetches of a version.
fn await_fetches(cluster: &Cluster, node: u32, version: i16, count: usize) {
    let counted = format!("walrus_kafka_requests_total{{api=\"Fetch\",version=\"{version}\"}} {count}");
    let until = Instant::now() + PATIENCE;
    while !cluster.plane(node).prometheus().lines().any(|line| line == counted) {
        assert!(Instant::now() < until, "no {count} fetches");
        std::thread::yield_now();
    }
}

pub(crate) fn fetch(client: &mut KafkaClient, ask: Ask) -> PartitionData {
    let mut response = client.ask(ask.version, &request(ask));
    assert_eq!((response.error_code, response.session_id), (0, 0));
    response.responses.remove(0).partitions.remove(0)
}

/// First offset and number of records of each batch.
pub(crate) fn batches(records: &Bytes) -> Vec<(u64, u32)> {
    let (mut found, mut rest) = (Vec::new(), &records[..]);
    while !rest.is_empty() {
        let (batch, behind) = Batch::parse(rest).unwrap();
        found.push((batch.base_offset(), batch.record_count()));
        rest = behind;
    }
    found
}

/// Topic `t` with batches of three records each.
fn with_batches(nodes: u32, count: usize) -> Cluster {
    let cluster = Cluster::start(nodes, options());
    let path = PartitionRef::parse("t", 0).unwrap().topic;
    cluster.block_on(cluster.broker(1).create_topic(&path, 1)).unwrap();
    let mut client = KafkaClient::connect(&cluster, 1);
    for _ in 0..count {
        assert_eq!(client.produce("t", batch(&["a", "b", "c"], None)).error_code, 0);
    }
    cluster
}

/// A broker that answered from the asked offset on, or dropped the batch around it, left consumers waiting for ever.
#[test]
fn an_offset_inside_of_a_batch_gives_the_whole_batch_in_every_version() {
    let cluster = with_batches(1, 3);
    let mut client = KafkaClient::connect(&cluster, 1);
    for version in 4..=12 {
        let found = fetch(&mut client, Ask { version, offset: 4, ..ASK });
        assert_eq!((found.error_code, found.high_watermark, found.last_stable_offset), (0, 9, 9));
        assert_eq!(batches(&found.records.unwrap()), [(3, 3), (6, 3)]);
        assert!(version < 5 || found.log_start_offset == 0);
    }
}

#[test]
fn the_first_batch_comes_however_small_the_limits_are_and_no_other_exceeds_them() {
    let cluster = with_batches(1, 3);
    let mut client = KafkaClient::connect(&cluster, 1);
    let size = i32::try_from(batch(&["a", "b", "c"], None).len()).unwrap();
    for (bytes_max, partition_bytes_max, count) in [
        (0, 0, 1),
        (1, 1 << 20, 1),
        (1 << 20, 1, 1),
        (2 * size, 1 << 20, 2),
        (1 << 20, 2 * size + 1, 2),
        (9 * size, 9 * size, 3),
    ] {
        let found = fetch(&mut client, Ask { bytes_max, partition_bytes_max, ..ASK });
        assert_eq!(batches(&found.records.unwrap()).len(), count, "{bytes_max} {partition_bytes_max}");
    }
}

/// librdkafka takes an answer without records for a broken one in version 12 if these are absent and not empty.
#[test]
fn at_the_end_there_is_nothing_and_beyond_it_is_out_of_range() {
    let cluster = with_batches(2, 2);
    for node in 1..=2 {
        let mut client = KafkaClient::connect(&cluster, node);
        let last = served_by(&cluster, node);
        for version in 4..=last {
            let found = fetch(&mut client, Ask { version, offset: 6, ..ASK });
            assert_eq!((found.error_code, found.high_watermark), (0, 6));
            assert_eq!(found.records.expect("they are there").len(), 0);
        }
        for offset in [7, i64::MAX, -1] {
            assert_eq!(fetch(&mut client, Ask { version: last, offset, ..ASK }).error_code, 1, "{offset}");
        }
    }
}

#[test]
fn a_wait_ends_with_the_records_and_else_exactly_with_its_time() {
    let cluster = with_batches(2, 1);
    for node in 1..=2 {
        let mut client = KafkaClient::connect(&cluster, node);
        let version = served_by(&cluster, node);
        let end = fetch(&mut client, Ask { version, offset: 0, ..ASK }).high_watermark;
        let asked = Instant::now();
        let found = fetch(&mut client, Ask { version, offset: end, wait_ms: 300, ..ASK });
        let waited = asked.elapsed();
        assert_eq!(found.records.unwrap().len(), 0);
        assert!((Duration::from_millis(300)..Duration::from_secs(10)).contains(&waited), "{waited:?}");

        client.send(version, &request(Ask { version, offset: end, wait_ms: 20_000, ..ASK }));
        let asked = Instant::now();
        await_fetches(&cluster, node, version, 3);
        assert_eq!(KafkaClient::connect(&cluster, 1).produce("t", batch(&["new"], None)).base_offset, end);
        let mut response = client.answer::<FetchRequest>(version);
        let found = response.responses.remove(0).partitions.remove(0);
        assert_eq!(batches(&found.records.unwrap()), [(end.cast_unsigned(), 1)]);
        assert!(asked.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn whoever_wants_more_bytes_waits_for_more_batches() {
    let cluster = with_batches(1, 1);
    let mut client = KafkaClient::connect(&cluster, 1);
    let size = i32::try_from(batch(&["a", "b", "c"], None).len()).unwrap();
    client.send(12, &request(Ask { bytes_min: 3 * size, wait_ms: 20_000, ..ASK }));
    let mut writer = KafkaClient::connect(&cluster, 1);
    await_fetches(&cluster, 1, 12, 1);
    for _ in 0..2 {
        writer.produce("t", batch(&["a", "b", "c"], None));
    }
    let mut response = client.answer::<FetchRequest>(12);
    let found = response.responses.remove(0).partitions.remove(0);
    assert_eq!(batches(&found.records.unwrap()), [(0, 3), (3, 3), (6, 3)]);
    let asked = Instant::now();
    let found = fetch(&mut client, Ask { bytes_min: 100 * size, wait_ms: 200, ..ASK });
    assert_eq!(batches(&found.records.unwrap()).len(), 3, "what there is when the time is over");
    assert!(asked.elapsed() >= Duration::from_millis(200));
}

#[test]
fn an_unknown_session_topic_or_partition_is_told() {
    let cluster = with_batches(1, 1);
    let mut client = KafkaClient::connect(&cluster, 1);
    assert_eq!(client.ask(12, &request(ASK).with_session_id(7)).error_code, 70);
    let mut unknown = request(ASK);
    unknown.topics[0].topic = topic_name("unknown");
    assert_eq!(client.ask(12, &unknown).responses[0].partitions[0].error_code, 3);
    for partition in [1, -1, i32::MAX] {
        let mut unknown = request(ASK);
        unknown.topics[0].partitions[0].partition = partition;
        assert_eq!(client.ask(12, &unknown).responses[0].partitions[0].error_code, 3);
    }
    let replica = request(Ask { offset: 3, ..ASK }).with_replica_id(BrokerId(1));
    let answer = client.ask(11, &replica);
    assert_eq!(
        answer.responses[0].partitions[0].records.as_ref().unwrap().len(),
        0,
        "a replica reads as a client"
    );
}

/// An epoch that the node has yet to hear of is waited for: a client that was told of it by another node would be sent back and
/// forth.
#[test]
fn an_epoch_that_is_not_known_is_waited_for_a_second() {
    let cluster = with_batches(1, 1);
    let mut client = KafkaClient::connect(&cluster, 1);
    assert_eq!(fetch(&mut client, Ask { epoch: 1, ..ASK }).error_code, 0);
    let asked = Instant::now();
    assert_eq!(fetch(&mut client, Ask { epoch: 9, ..ASK }).error_code, 75);
    assert!((Duration::from_millis(900)..Duration::from_secs(10)).contains(&asked.elapsed()));
    assert_eq!(list(&mut client, 7, -1, 9).error_code, 75);
}

fn list(client: &mut KafkaClient, version: i16, timestamp: i64, epoch: i32) -> ListOffsetsPartitionResponse {
    let partition = ListOffsetsPartition::default()
        .with_partition_index(0)
        .with_current_leader_epoch(if version >= 4 { epoch } else { -1 })
        .with_timestamp(timestamp);
    let topic = ListOffsetsTopic::default().with_name(topic_name("t")).with_partitions(vec![partition]);
    let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
    client.ask(version, &request).topics.remove(0).partitions.remove(0)
}

#[test]
fn offsets_are_found_by_time_and_at_both_ends_on_any_node() {
    let cluster = with_batches(2, 2);
    for node in 1..=2 {
        let mut client = KafkaClient::connect(&cluster, node);
        for version in 1..=7 {
            for (timestamp, offset, found) in [(-1, 6, -1), (-2, 0, -1), (2, 1, 2), (3, 2, 3), (4, -1, -1)] {
                let answer = list(&mut client, version, timestamp, -1);
                assert_eq!(
                    (answer.error_code, answer.offset, answer.timestamp),
                    (0, offset, found),
                    "{timestamp}"
                );
                assert_eq!(answer.leader_epoch, if version >= 4 && offset >= 0 { 1 } else { -1 });
            }
        }
        let newest = list(&mut client, 7, -3, -1);
        assert_eq!((newest.offset, newest.timestamp), (2, 3));
        assert_eq!(list(&mut client, 6, -3, -1).error_code, 35, "the newest is asked for from version 7 on");
        assert_eq!(list(&mut client, 7, -9, -1).error_code, 35);
    }
}

#[test]
fn an_epoch_ends_where_the_next_one_begins_or_the_partition_does() {
    let cluster = Cluster::start(1, {
        let mut options = options();
        options["segment_entries_max"] = 3.into();
        options
    });
    let path = PartitionRef::parse("t", 0).unwrap().topic;
    cluster.block_on(cluster.broker(1).create_topic(&path, 1)).unwrap();
    let mut client = KafkaClient::connect(&cluster, 1);
    for number in 0..3 {
        assert_eq!(client.produce("t", batch(&["a", "b", "c"], None)).base_offset, 3 * number);
    }
    let mut end = |version: i16, epoch: i32, current: i32| {
        let partition = OffsetForLeaderPartition::default()
            .with_partition(0)
            .with_current_leader_epoch(current)
            .with_leader_epoch(epoch);
        let topic =
            OffsetForLeaderTopic::default().with_topic(topic_name("t")).with_partitions(vec![partition]);
        let mut request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
        request.replica_id = BrokerId(if version >= 3 { -1 } else { -2 });
        let row = client.ask(version, &request).topics.remove(0).partitions.remove(0);
        (row.error_code, row.leader_epoch, row.end_offset)
    };
    for version in 2..=4 {
        assert_eq!(end(version, 1, -1), (0, 1, 3));
        assert_eq!(end(version, 2, 1), (0, 2, 6), "a leader that goes on with a new segment fences nobody");
        assert_eq!(end(version, 99, -1), (0, -1, -1));
        assert_eq!(end(version, 0, -1), (0, 0, 0), "below the oldest: itself, and where that begins");
    }
    let mut reader = KafkaClient::connect(&cluster, 1);
    let whole = fetch(&mut reader, ASK);
    assert_eq!(batches(&whole.records.unwrap()), [(0, 3)], "one segment at a time");
    assert!(whole.high_watermark >= 9, "the high watermark is that of the partition");
}

/// A consumer that died in the middle of a long poll kept its connection, and with it a task and memory, until the poll was over.
#[test]
fn a_client_that_leaves_in_the_middle_of_a_long_poll_is_noticed_at_once() {
    let cluster = with_batches(1, 0);
    let ask = Ask { offset: 0, wait_ms: 60_000, ..ASK };
    let mut alone = KafkaClient::connect(&cluster, 1);
    alone.send(ask.version, &request(ask));
    let mut with_more = KafkaClient::connect(&cluster, 1);
    with_more.send(ask.version, &request(ask));
    with_more.send(11, &MetadataRequest::default());
    let open = || {
        let text = cluster.plane(1).prometheus();
        let shown = text.lines().find_map(|line| line.strip_prefix("walrus_kafka_connections "));
        shown.unwrap().parse::<u64>().unwrap()
    };
    await_fetches(&cluster, 1, 12, 2);
    assert_eq!(open(), 2);
    drop((alone, with_more));
    wait_until("both are gone", PATIENCE, || open() == 0);
}
