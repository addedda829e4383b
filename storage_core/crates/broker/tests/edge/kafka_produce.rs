//! Tests of Produce: what is taken, what is refused and in which words, and in which order.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kafka_protocol::messages::{ApiVersionsRequest, ProduceRequest, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use walrus_broker::{NewTopic, PartitionRef};
use walrus_log::batch::{Batch, BatchBuilder, ProducerRef};
use walrus_model::Replication;

use crate::harness::Cluster;
use crate::kafka_client::{KafkaClient, batch, changed, options, produce_request};

fn with_topic(nodes: u32, settings: &[(&str, &str)]) -> Cluster {
    let cluster = Cluster::start(nodes, options());
    let config = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let path = PartitionRef::parse("t", 0).unwrap().topic;
    cluster.block_on(cluster.broker(1).create_topic(&path, NewTopic { partitions: 1, config })).unwrap();
    cluster
}

#[test]
fn every_version_appends_and_answers_the_offset() {
    let cluster = with_topic(1, &[]);
    let mut client = KafkaClient::connect(&cluster, 1);
    for (base, version) in (0..).step_by(2).zip(3..=10) {
        for acks in [-1, 1] {
            let response = client.ask(version, &produce_request("t", batch(&["a"], None), acks));
            let answer = &response.responses[0].partition_responses[0];
            let offset = base + i64::from(acks == 1);
            assert_eq!((answer.error_code, answer.base_offset, answer.log_append_time_ms), (0, offset, -1));
            assert!(version < 5 || answer.log_start_offset == 0);
        }
    }
}

#[test]
fn requests_that_are_sent_ahead_are_carried_out_and_answered_in_order() {
    let cluster = with_topic(2, &[]);
    for node in 1..=2 {
        let mut client = KafkaClient::connect(&cluster, node);
        let base = client.produce("t", batch(&["first"], None)).base_offset;
        for _ in 0..200 {
            client.send(9, &produce_request("t", batch(&["a", "b"], None), -1));
        }
        client.send(9, &produce_request("t", batch(&["silent"], None), 0));
        client.send(3, &ApiVersionsRequest::default());
        for number in 0..200 {
            let response = client.answer::<ProduceRequest>(9);
            let answer = &response.responses[0].partition_responses[0];
            assert_eq!((answer.error_code, answer.base_offset), (0, base + 1 + 2 * number));
        }
        let apis = client.answer::<ApiVersionsRequest>(3);
        assert_eq!(apis.error_code, 0, "acks=0 has no answer");
        assert_eq!(client.produce("t", batch(&["last"], None)).base_offset, base + 402);
    }
}

#[test]
fn what_cannot_be_stored_is_refused_in_kafkas_words_and_the_connection_goes_on() {
    let cluster = with_topic(1, &[("max.message.bytes", "1000")]);
    let mut client = KafkaClient::connect(&cluster, 1);
    let good = batch(&["a", "b"], None);
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for (what, bytes, code) in [
        ("a wrong checksum", flipped, 2),
        ("a cut off batch", good[..70].to_vec(), 2),
        ("magic 1", changed(&good, 16, &[1]), 87),
        ("two batches", [&good[..], &good].concat(), 87),
        ("a control batch", changed(&good, 22, &[32]), 87),
        ("a transaction", changed(&good, 22, &[16]), 87),
        ("2^31 - 1 records", changed(&good, 57, &i32::MAX.to_be_bytes()), 87),
        ("more than the topic takes", batch(&["x".repeat(1_000).as_str()], None), 10),
        ("nothing", Vec::new(), 87),
    ] {
        let answer = client.produce("t", bytes);
        assert_eq!((answer.error_code, answer.base_offset), (code, -1), "{what}");
        assert!(answer.error_message.is_some(), "{what}");
    }
    assert_eq!(client.produce("unknown", good.clone()).error_code, 3, "nothing is made by an append");
    assert_eq!(client.produce("a b", good.clone()).error_code, 17);
    let id = Some(TransactionalId(StrBytes::from_static_str("mine")));
    for (request, code) in [
        (produce_request("t", good.clone(), 2), 21),
        (produce_request("t", good.clone(), -1).with_transactional_id(id), 53),
    ] {
        let response = client.ask(8, &request);
        assert_eq!(response.responses[0].partition_responses[0].error_code, code);
    }
    assert_eq!(client.produce("t", good.clone()).base_offset, 0, "nothing of all that was stored");
    client.send(8, &produce_request("t", changed(&good, 16, &[1]), 0));
    assert_eq!(client.frame(), None, "without an answer the end of the connection is all that tells");
}

#[test]
fn a_record_that_is_to_blame_is_named_in_compressed_batches_too() {
    let cluster = with_topic(1, &[("cleanup.policy", "compact")]);
    let mut client = KafkaClient::connect(&cluster, 1);
    let sent = batch(&["a", "b"], None);
    for codec in 0..=4 {
        let sent = Batch::parse(&sent).unwrap().0.compressed(codec).unwrap();
        let answer = client.produce("t", sent);
        assert_eq!((answer.error_code, answer.record_errors[0].batch_index), (87, 0), "it has no key");
    }
}

#[test]
fn a_repetition_is_answered_with_its_first_offset_and_a_gap_is_refused() {
    let cluster = with_topic(2, &[]);
    let of = |epoch, base_sequence| Some(ProducerRef { id: 77, epoch, base_sequence });
    for (node, base) in [(1, 0), (2, 0)] {
        let mut client = KafkaClient::connect(&cluster, node);
        for (epoch, sequence, expected) in
            [(1, 0, (0, base)), (1, 2, (0, base + 2)), (1, 0, (0, base)), (1, 7, (45, -1)), (0, 4, (47, -1))]
        {
            let answer = client.produce("t", batch(&["a", "b"], of(epoch, sequence)));
            assert_eq!((answer.error_code, answer.base_offset), expected, "{epoch} {sequence}");
        }
    }
    let mut client = KafkaClient::connect(&cluster, 1);
    let unknown = Some(ProducerRef { id: 78, epoch: 3, base_sequence: 40 });
    assert_eq!(
        client.produce("t", batch(&["a"], unknown)).error_code,
        0,
        "an id that is not known begins anywhere"
    );
}

/// Waits until the clock, which all nodes of a test share, says another time.
fn await_later_than(time_ms: i64) {
    let time = UNIX_EPOCH + Duration::from_millis(time_ms.unsigned_abs());
    while SystemTime::now() < time + Duration::from_millis(1) {
        std::thread::yield_now();
    }
}

#[test]
fn the_leaders_time_is_told_where_the_topic_wants_it_and_a_repetition_has_the_first_one() {
    let cluster = with_topic(2, &[("message.timestamp.type", "LogAppendTime")]);
    let sent = batch(&["a"], Some(ProducerRef { id: 5, epoch: 0, base_sequence: 0 }));
    let mut times = Vec::new();
    for node in [1, 2, 1] {
        let answer = KafkaClient::connect(&cluster, node).produce("t", sent.clone());
        assert_eq!((answer.error_code, answer.base_offset), (0, 0));
        times.push(answer.log_append_time_ms);
        await_later_than(answer.log_append_time_ms);
    }
    assert!(times[0] > 1_000_000 && times.iter().all(|time| *time == times[0]), "{times:?}");
}

/// A client was told that its batch is too old or too new, and not which records: Java's producer fails those alone, and says of the
/// others that they shared their batch.
#[test]
fn records_with_timestamps_that_are_refused_are_named() {
    let cluster = with_topic(1, &[("message.timestamp.before.max.ms", "600000")]);
    let now_ms = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let mut plain = Vec::new();
    let mut builder = BatchBuilder::new();
    for time in [now_ms, 1, now_ms, 2] {
        builder.push(None, Some(b"value"), time, &[]);
    }
    builder.build(&mut plain).unwrap();
    let mut client = KafkaClient::connect(&cluster, 1);
    for codec in [0, 3] {
        let sent = Batch::parse(&plain).unwrap().0.compressed(codec).unwrap();
        let refused = client.produce("t", sent);
        let places: Vec<i32> = refused.record_errors.iter().map(|error| error.batch_index).collect();
        assert_eq!((refused.error_code, places, refused.base_offset), (32, vec![1, 3], -1));
        let message = refused.error_message.unwrap();
        assert!(message.contains("timestamp 1"), "{message}");
    }
}

/// A timeout of 0 leaves a batch no time to wait for anything. Whatever becomes of it, the answer says so: only an unknown outcome may be
/// stored and not acknowledged, and a repetition is stored once.
#[test]
fn a_produce_with_a_timeout_of_0_is_answered_at_once_and_truly() {
    let cluster = Cluster::start_replicated(3, options(), Replication { factor: 3, write_quorum: 2 });
    let path = PartitionRef::parse("t", 0).unwrap().topic;
    cluster.block_on(cluster.broker(1).create_topic(&path, 1)).unwrap();
    let mut acknowledged = 0;
    for (sequence, node) in (0..30).zip([1, 2, 3].into_iter().cycle()) {
        let mut client = KafkaClient::connect(&cluster, node);
        let producer = ProducerRef { id: 7, epoch: 0, base_sequence: sequence };
        let sent = batch(&["value"], Some(producer));
        let request = produce_request("t", sent.clone(), -1).with_timeout_ms(0);
        let began = Instant::now();
        let answer = client.ask(8, &request);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let code = answer.responses[0].partition_responses[0].error_code;
        assert!([0, 7, 19, 20].contains(&code), "error {code}");
        acknowledged += u32::from(code == 0);
        let again = client.produce("t", sent);
        assert_eq!((again.error_code, again.base_offset), (0, i64::from(sequence)), "after error {code}");
    }
    println!("{acknowledged} of 30 were acknowledged in no time");
}
