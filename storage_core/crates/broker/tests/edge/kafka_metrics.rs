//! Tests of what `/metrics` says of Kafka's protocol.

use kafka_protocol::messages::{ApiVersionsRequest, DeleteGroupsRequest, GroupId, MetadataRequest};
use walrus_broker::{NewTopic, TopicPath};
use walrus_model::Replication;

use crate::harness::{Cluster, PATIENCE, wait_for, wait_until};
use crate::kafka_client::{KafkaClient, batch, options};
use crate::kafka_member::{Member, NEWEST, coordinator, text};

/// The value of a metric; `None` if it is not shown.
fn metric(cluster: &Cluster, node: u32, line: &str) -> Option<f64> {
    let text = cluster.plane(node).prometheus();
    let value = text.lines().find_map(|shown| shown.strip_prefix(line)?.strip_prefix(' '))?;
    Some(value.parse().unwrap())
}

fn create(cluster: &Cluster, topic: &str) {
    let path = TopicPath::parse(topic).unwrap();
    cluster.block_on(async { cluster.broker(1).create_topic(&path, 1).await.unwrap() });
}

#[test]
fn requests_are_counted_and_timed_by_api_and_version() {
    let cluster = Cluster::start(1, options());
    let mut client = KafkaClient::connect(&cluster, 1);
    for version in [1, 11, 11] {
        client.ask(version, &MetadataRequest::default());
    }
    client.send_frame(&[0, 18, 0, 99, 0, 0, 0, 7, 0xff, 0xff, 0]); // a version that nobody knows
    assert!(client.frame().is_some());
    for (labels, count) in [
        (r#"{api="Metadata",version="1"}"#, 1.0),
        (r#"{api="Metadata",version="11"}"#, 2.0),
        (r#"{api="unsupported",version="-1"}"#, 1.0),
    ] {
        for name in ["requests_total", "request_seconds_count"] {
            assert_eq!(
                metric(&cluster, 1, &format!("walrus_kafka_{name}{labels}")),
                Some(count),
                "{name}{labels}"
            );
        }
    }
    assert_eq!(metric(&cluster, 1, r#"walrus_kafka_requests_total{api="Produce",version="7"}"#), None);
}

#[test]
fn what_a_store_does_with_its_disk_is_counted() {
    let cluster = Cluster::start(1, options());
    let path = TopicPath::parse("t").unwrap();
    let config = [("walrus.fsync".to_owned(), "each".to_owned())].into();
    cluster.block_on(cluster.broker(1).create_topic(&path, NewTopic { partitions: 1, config })).unwrap();
    let counted = || {
        ["commits_total", "syncs_total", "written_bytes_total"]
            .map(|name| metric(&cluster, 1, &format!("walrus_store_{name}")).expect(name))
    };
    let before = counted();
    let mut client = KafkaClient::connect(&cluster, 1);
    assert_eq!(client.produce("t", batch(&["a"], None)).error_code, 0);
    for (now, before) in counted().into_iter().zip(before) {
        assert!(now > before, "{now} after {before}");
    }
}

#[test]
fn connections_are_counted_by_their_clients_software_until_they_end() {
    let cluster = Cluster::start(1, options());
    let says = |name: &str, version: &str| {
        let mut client = KafkaClient::connect(&cluster, 1);
        let request = ApiVersionsRequest::default().with_client_software_name(text(name));
        client.ask(3, &request.with_client_software_version(text(version)));
        client
    };
    let open =
        [says("librdkafka", "2.3.0"), says("librdkafka", "2.3.0"), says("a \"name\"", "1"), says("", "")];
    let mut twice = says("sarama", "1.0");
    let changed = ApiVersionsRequest::default().with_client_software_name(text("librdkafka"));
    twice.ask(4, &changed.with_client_software_version(text("2.3.0")));
    let shown = |software: &str| metric(&cluster, 1, &format!("walrus_kafka_clients{software}"));
    let (librdkafka, other) = (r#"{name="librdkafka",version="2.3.0"}"#, r#"{name="other",version="other"}"#);
    assert_eq!((shown(librdkafka), shown(other)), (Some(3.0), Some(2.0)));
    assert_eq!(shown(r#"{name="sarama",version="1.0"}"#), None, "a connection is counted once");
    drop((open, twice));
    wait_until("nobody is counted", PATIENCE, || shown(librdkafka).is_none() && shown(other).is_none());
}

#[test]
fn the_lag_of_a_group_is_told_by_its_coordinator_alone_and_goes_with_the_group() {
    let replication = Replication { factor: 3, write_quorum: 2 };
    let cluster = Cluster::start_replicated(3, options(), replication);
    create(&cluster, "t");
    let mut producer = KafkaClient::connect(&cluster, 1);
    assert_eq!(producer.produce("t", batch(&["a", "b", "c", "d", "e"], None)).error_code, 0);
    let mut member = Member::new(&cluster, "g", NEWEST);
    assert_eq!(member.commit("t", 2, ""), 0);

    let line = r#"walrus_group_lag{org="default",group="g",topic="t",partition="0"}"#;
    let by_node = || [1, 2, 3].map(|node| metric(&cluster, node, line));
    let (owner, _) = coordinator(&cluster, 1, "g");
    let told = |lag: f64| [1, 2, 3].map(|node| (node == owner).then_some(lag));
    let is_told = |lag: f64| if by_node() == told(lag) { Ok(()) } else { Err(by_node()) };
    wait_for("three records are left", PATIENCE, || is_told(3.0));
    assert_eq!(producer.produce("t", batch(&["f", "g"], None)).error_code, 0);
    wait_for("two more are left", PATIENCE, || is_told(5.0));
    assert_eq!(member.commit("t", 7, ""), 0);
    wait_for("nothing is left", PATIENCE, || is_told(0.0));

    let names = vec![GroupId(text("g"))];
    let deleted = member.client.ask(2, &DeleteGroupsRequest::default().with_groups_names(names));
    assert_eq!(deleted.results[0].error_code, 0);
    wait_for("it is gone", PATIENCE, || if by_node() == [None; 3] { Ok(()) } else { Err(by_node()) });
}
