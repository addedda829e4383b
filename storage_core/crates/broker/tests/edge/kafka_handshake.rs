//! Tests of how clients of Kafka find out what a broker knows, and of what is not Kafka's protocol at all. Many of them tell what
//! went wrong with other brokers.

use std::time::{Duration, Instant};

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, FetchRequest, InitProducerIdRequest, MetadataRequest,
    MetadataResponse, TransactionalId,
};
use kafka_protocol::protocol::{Decodable as _, StrBytes};
use serde_json::json;
use walrus_broker::PartitionRef;
use walrus_metadata::{Command, OrganisationLimits};

use crate::harness::Cluster;
use crate::kafka_client::{KafkaClient, batch, options, topic_name};

fn metadata(client: &mut KafkaClient, version: i16, topic: &str, may_create: bool) -> MetadataResponse {
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name(topic)));
    let request =
        MetadataRequest::default().with_topics(Some(vec![topic])).with_allow_auto_topic_creation(may_create);
    client.ask(version, &request)
}

#[test]
fn every_version_of_api_versions_is_answered_with_what_is_there() {
    let cluster = Cluster::start(1, options());
    let mut client = KafkaClient::connect(&cluster, 1);
    for version in 0..=4 {
        let response = client.ask(version, &ApiVersionsRequest::default());
        let rows: Vec<_> =
            response.api_keys.iter().map(|row| (row.api_key, row.min_version, row.max_version)).collect();
        let records = [(0, 0, 10), (1, 4, 12), (2, 1, 7), (3, 0, 11), (18, 0, 4), (22, 0, 5), (23, 2, 4)];
        let members = [(8, 2, 9), (9, 1, 9), (10, 0, 4), (11, 0, 9), (12, 0, 4), (13, 0, 5), (14, 0, 5)];
        let groups = [(15, 0, 5), (16, 0, 5), (42, 0, 2), (47, 0, 0)];
        let topics = [(19, 2, 7), (20, 1, 6), (21, 0, 2), (37, 0, 3), (32, 1, 4), (33, 0, 2), (44, 0, 1)];
        let shown = [(60, 0, 1), (35, 1, 4), (29, 1, 3), (46, 0, 0), (61, 0, 0)];
        let mut expected = [&records[..], &members, &groups, &topics, &shown].concat();
        expected.sort_unstable();
        assert_eq!((response.error_code, rows), (0, expected));
    }
}

/// Consumers built on librdkafka lost records in their own queue where they asked for the end of an epoch while metadata came.
#[test]
fn clients_that_lose_records_over_the_end_of_an_epoch_are_not_told_that_they_can_ask_for_it() {
    let cluster = Cluster::start(1, options());
    let told = |name: &'static str, version: &'static str| {
        let mut client = KafkaClient::connect(&cluster, 1);
        let request =
            ApiVersionsRequest::default().with_client_software_name(StrBytes::from_static_str(name));
        let answer = client.ask(3, &request.with_client_software_version(StrBytes::from_static_str(version)));
        answer.api_keys.iter().map(|row| row.api_key).collect::<Vec<_>>()
    };
    let others = told("apache-kafka-java", "4.1.0");
    assert!(others.contains(&23));
    let all_but_that: Vec<_> = others.into_iter().filter(|key| *key != 23).collect();
    assert_eq!(told("librdkafka", "2.16.0"), all_but_that);
    assert_eq!(told("karafka", "v2.5.0-librdkafka-v2.8.0"), all_but_that);
}

/// kafka-python opens with a version of its own. A broker that answered it in the form of that version, or with an empty list, was
/// asked again until the client gave up.
#[test]
fn an_unknown_version_of_api_versions_is_told_the_known_one_in_the_oldest_form() {
    let cluster = Cluster::start(1, options());
    let mut client = KafkaClient::connect(&cluster, 1);
    client.send_frame(&[0, 18, 0, 99, 0, 0, 0, 7, 0xff, 0xff, 0]);
    let mut answer = client.frame().unwrap();
    assert_eq!(answer[..4], [0, 0, 0, 7]);
    let response = ApiVersionsResponse::decode(&mut answer.split_off(4), 0).unwrap();
    let row = &response.api_keys[0];
    assert_eq!(response.error_code, 35);
    assert_eq!((row.api_key, row.min_version, row.max_version, response.api_keys.len()), (18, 0, 4, 1));
    client.ask(4, &ApiVersionsRequest::default()); // the connection goes on
}

#[test]
fn what_is_not_served_is_told_where_its_answer_can_say_so_and_else_closes() {
    let cluster = Cluster::start(1, options());
    let mut client = KafkaClient::connect(&cluster, 1);
    assert_eq!(client.ask(13, &FetchRequest::default()).error_code, 35);
    client.ask(3, &ApiVersionsRequest::default());
    for (api, version) in [(999, 0), (0, 2), (0, 11), (3, 12), (2, 8), (-1, 0), (18, -1)] {
        let mut client = KafkaClient::connect(&cluster, 1);
        let header = [i16::to_be_bytes(api), i16::to_be_bytes(version)].concat();
        client.send_frame(&[&header[..], &[0, 0, 0, 7, 0xff, 0xff]].concat());
        let is_told = client.frame().is_some();
        assert_eq!(is_told, api == 18, "API {api}, version {version}");
    }
}

#[test]
fn bytes_that_are_no_requests_end_their_connection_and_no_other() {
    let cluster = Cluster::start(1, options());
    let mut other = KafkaClient::connect(&cluster, 1);
    let count = |count: i32| [&[0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff][..], &count.to_be_bytes()].concat();
    let framed = |frame: &[u8]| [&i32::try_from(frame.len()).unwrap().to_be_bytes()[..], frame].concat();
    let many_tags = [&[0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff][..], &[0xff, 0xff, 0xff, 0xff, 0x0f]].concat();
    for (what, bytes) in [
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: walrus\r\n\r\n".to_vec()),
        ("no length", framed(b"")),
        ("a negative length", i32::to_be_bytes(-7).to_vec()),
        ("a length of 100 MiB and more", i32::to_be_bytes((100 << 20) + 1).to_vec()),
        ("2^31 - 1 topics", framed(&count(i32::MAX))),
        ("-2 topics", framed(&count(-2))),
        ("2^28 tagged fields", framed(&many_tags)),
        ("a cut off request", framed(&[0, 3, 0, 1, 0, 0, 0, 1, 0, 9, b'x'])),
    ] {
        let mut client = KafkaClient::connect(&cluster, 1);
        client.send_raw(&bytes);
        assert_eq!(client.frame(), None, "{what}");
        other.ask(3, &ApiVersionsRequest::default());
    }
}

#[test]
fn whoever_says_nothing_or_half_a_frame_is_cut_off() {
    let patience = json!({ "first_byte_ms": 100, "header_ms": 100, "idle_ms": 400, "text_idle_ms": 100 });
    let mut options = options();
    options["patience"] = patience;
    let cluster = Cluster::start(1, options);
    for sent in [&b""[..], b"\0\0"] {
        let mut client = KafkaClient::connect(&cluster, 1);
        client.send_raw(sent);
        assert_eq!(client.frame(), None);
    }
    let mut client = KafkaClient::connect(&cluster, 1);
    client.ask(0, &ApiVersionsRequest::default());
    let asked = Instant::now();
    assert_eq!(client.frame(), None);
    assert!(asked.elapsed() >= Duration::from_millis(300), "whoever has asked once has more time");
}

#[test]
fn every_version_of_metadata_has_the_brokers_and_the_topics_with_their_leaders() {
    let cluster = Cluster::start(2, options());
    cluster.block_on(cluster.broker(1).create_topic(&PartitionRef::parse("t", 0).unwrap().topic, 3)).unwrap();
    let id = cluster.metadata().topics.values().next().unwrap().id;
    for (node, version) in (1..=2).flat_map(|node| (0..=11).map(move |version| (node, version))) {
        let mut client = KafkaClient::connect(&cluster, node);
        let answer = metadata(&mut client, version, "t", version < 4); // earlier versions have no such field
        let addresses: Vec<String> =
            answer.brokers.iter().map(|broker| format!("{}:{}", broker.host.as_str(), broker.port)).collect();
        let listening: Vec<String> =
            cluster.ids().map(|node| cluster.plane(node).addresses()["kafka/kafka"].clone()).collect();
        assert_eq!(addresses, listening);
        if version >= 1 {
            assert_eq!(answer.controller_id.0, i32::try_from(node).unwrap(), "it is the node that answers");
        }
        if version >= 2 {
            assert_eq!(answer.cluster_id.unwrap().as_str(), cluster.cluster_id().to_string());
        }
        let topic = &answer.topics[0];
        assert_eq!((topic.error_code, topic.partitions.len()), (0, 3));
        assert_eq!(topic.topic_id, if version >= 10 { id.0 } else { uuid::Uuid::nil() });
        for partition in &topic.partitions {
            assert!((1..=2).contains(&partition.leader_id.0) && partition.error_code == 0);
            assert!(!partition.isr_nodes.is_empty() && !partition.replica_nodes.is_empty());
            assert!(version < 7 || partition.leader_epoch >= 1);
        }
    }
}

#[test]
fn a_topic_is_made_when_it_is_named_and_may_be_and_never_under_a_wrong_name() {
    let mut options = options();
    let closed = json!({ "protocol": "kafka", "name": "closed", "address": "127.0.0.1:0", "admin": false });
    options["listeners"].as_array_mut().unwrap().push(closed);
    let cluster = Cluster::start(1, options);
    let mut client = KafkaClient::connect(&cluster, 1);
    let mut closed = KafkaClient::connect_to(&cluster.plane(1).addresses()["kafka/closed"]);
    let code = |answer: MetadataResponse| answer.topics[0].error_code;
    for name in ["a b", "..", ""] {
        assert_eq!(code(metadata(&mut client, 8, name, true)), 17, "{name:?}");
    }
    assert_eq!(code(metadata(&mut client, 8, "t", false)), 3);
    assert_eq!(code(metadata(&mut closed, 8, "t", true)), 3, "no topic is made at a listener with admin=off");
    assert_eq!(code(metadata(&mut client, 8, "t", true)), 0);
    assert_eq!(code(metadata(&mut closed, 8, "t", true)), 0);
    let path = PartitionRef::parse("t", 0).unwrap().topic;
    let described = cluster.block_on(cluster.broker(1).describe_topic(&path)).unwrap();
    let setting = |name: &str| {
        let found = described.settings.iter().find(|setting| setting.definition.name == name);
        found.unwrap().value.clone()
    };
    assert_eq!(setting("retention.ms"), "604800000");
    assert_eq!(setting("max.message.bytes"), "1048588");
    assert_eq!(setting("walrus.leaders"), "sticky");
    let all = client.ask(5, &MetadataRequest::default().with_topics(None));
    assert_eq!(all.topics.len(), 1);
    let none = client.ask(5, &MetadataRequest::default().with_topics(Some(Vec::new())));
    assert!(none.topics.is_empty());
}

#[test]
fn a_listener_shows_the_topics_of_its_organisation_and_the_addresses_of_its_name() {
    let mut options = options();
    let acme = json!({
        "protocol": "kafka", "name": "acme", "org": "acme", "address": "127.0.0.1:0", "advertise": "walrus-0.acme:31092",
    });
    options["listeners"].as_array_mut().unwrap().push(acme);
    let cluster = Cluster::start(1, options.clone());
    let command = Command::SetOrganisation { name: "acme".to_owned(), limits: OrganisationLimits::default() };
    cluster.command(command);
    let mut ours = KafkaClient::connect(&cluster, 1);
    assert_eq!(metadata(&mut ours, 4, "t", true).topics[0].error_code, 0);
    assert_eq!(ours.produce("t", batch(&["a"], None)).error_code, 0);
    assert_eq!(
        cluster.plane(1).addresses()["kafka/acme"],
        "walrus-0.acme:31092",
        "it is what clients are told"
    );
}

#[test]
fn producer_ids_are_given_and_transactions_are_refused_for_good() {
    let cluster = Cluster::start(1, options());
    let mut client = KafkaClient::connect(&cluster, 1);
    let mut seen = std::collections::HashSet::new();
    for version in 0..=5 {
        let given = client.ask(version, &InitProducerIdRequest::default().with_transactional_id(None));
        assert_eq!((given.error_code, given.producer_epoch), (0, 0));
        assert!(given.producer_id.0 >= 0 && seen.insert(given.producer_id.0));
        let id = Some(TransactionalId(StrBytes::from_static_str("mine")));
        let refused = client.ask(version, &InitProducerIdRequest::default().with_transactional_id(id));
        assert_eq!((refused.error_code, refused.producer_id.0), (53, -1));
    }
}
