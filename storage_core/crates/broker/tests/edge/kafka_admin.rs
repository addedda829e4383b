//! Tests of the APIs by which tools and user interfaces look after a cluster, frame by frame and in every version.

use kafka_protocol::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResult;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::incremental_alter_configs_request as incremental;
use kafka_protocol::messages::{
    AlterConfigsRequest, CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest,
    DeleteTopicsRequest, DescribeAclsRequest, DescribeClusterRequest, DescribeConfigsRequest,
    DescribeLogDirsRequest, DescribeProducersRequest, IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
};
use serde_json::json;
use uuid::Uuid;
use walrus_broker::TopicPath;
use walrus_model::Replication;

use crate::harness::Cluster;
use crate::kafka_client::{KafkaClient, batch, options, topic_name};
use crate::kafka_member::text;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

fn wanted(name: &str, partitions: i32, factor: i16, config: &[(&str, &str)]) -> CreatableTopic {
    let setting = |(name, value): &(&str, &str)| {
        CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
    };
    CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(partitions)
        .with_replication_factor(factor)
        .with_configs(config.iter().map(setting).collect())
}

fn create(client: &mut KafkaClient, version: i16, topics: Vec<CreatableTopic>) -> Vec<CreatableTopicResult> {
    let request = CreateTopicsRequest::default().with_topics(topics).with_timeout_ms(5_000);
    client.ask(version, &request).topics
}

fn codes(rows: &[CreatableTopicResult]) -> Vec<i16> {
    rows.iter().map(|row| row.error_code).collect()
}

#[test]
fn topics_are_made_grow_and_are_deleted_in_every_version() {
    let cluster = Cluster::start(1, options());
    let mut client = KafkaClient::connect(&cluster, 1);
    for version in 2..=7 {
        let name = format!("t{version}");
        let rows = create(&mut client, version, vec![wanted(&name, 3, 1, &[("retention.ms", "1000")])]);
        assert_eq!((rows[0].error_code, rows[0].error_message.clone()), (0, None), "version {version}");
        let path = TopicPath::parse(&name).unwrap();
        let made = cluster.broker(1).topic(&path).unwrap();
        assert_eq!(made.partitions, 3);
        if version >= 5 {
            assert_eq!((rows[0].num_partitions, rows[0].replication_factor), (3, 1));
            let configs = rows[0].configs.as_ref().unwrap();
            let retention = configs.iter().find(|config| config.name.as_str() == "retention.ms").unwrap();
            assert_eq!((retention.value.as_deref(), retention.config_source), (Some("1000"), 1));
        }
        if version >= 7 {
            assert_eq!(rows[0].topic_id, made.id.0);
        }
    }
    for version in 0..=3 {
        let grown =
            CreatePartitionsTopic::default().with_name(topic_name("t2")).with_count(4 + i32::from(version));
        let grown = grown.with_assignments(None);
        let request = CreatePartitionsRequest::default().with_topics(vec![grown]).with_timeout_ms(5_000);
        assert_eq!(client.ask(version, &request).results[0].error_code, 0);
        assert_eq!(client.ask(version, &request).results[0].error_code, 37, "it has as many already");
    }
    for version in 1..=5 {
        let names = vec![topic_name(&format!("t{}", version + 1)), topic_name("no")];
        let request = DeleteTopicsRequest::default().with_topic_names(names).with_timeout_ms(5_000);
        let rows = client.ask(version, &request).responses;
        assert_eq!((rows[0].error_code, rows[1].error_code), (0, 3), "version {version}");
    }
    let id = cluster.broker(1).topic(&TopicPath::parse("t7").unwrap()).unwrap().id.0;
    let by_id = |id| DeleteTopicState::default().with_name(None).with_topic_id(id);
    let request = DeleteTopicsRequest::default().with_topics(vec![by_id(id), by_id(Uuid::from_u128(7))]);
    let rows = client.ask(6, &request.with_timeout_ms(5_000)).responses;
    assert_eq!(
        (rows[0].error_code, rows[0].name.clone(), rows[1].error_code),
        (0, Some(topic_name("t7")), 100)
    );
}

#[test]
fn changes_of_a_request_are_made_together_and_only_within_its_time() {
    let cluster = Cluster::start(1, options());
    let mut client = KafkaClient::connect(&cluster, 1);
    let topics = |prefix: &str| -> Vec<CreatableTopic> {
        (0..200).map(|number| wanted(&format!("{prefix}{number}"), 1, 1, &[])).collect()
    };
    // More than are carried out at once: each row is that of its topic. No time at all is no limit.
    let request = CreateTopicsRequest::default().with_topics(topics("all")).with_timeout_ms(0);
    let rows = client.ask(7, &request).topics;
    for (number, row) in rows.iter().enumerate() {
        let name = format!("all{number}");
        let made = cluster.broker(1).topic(&TopicPath::parse(&name).unwrap()).unwrap();
        assert_eq!((row.name.as_str(), row.error_code, row.topic_id), (name.as_str(), 0, made.id.0));
    }
    // One millisecond is over before the last of them is begun, and what was not begun is not made.
    let request = CreateTopicsRequest::default().with_topics(topics("late")).with_timeout_ms(1);
    let rows = client.ask(7, &request).topics;
    let last = rows.last().unwrap();
    assert_eq!(last.error_code, 7);
    assert_eq!(last.error_message.as_deref(), Some("it was not begun within the 1 ms of the request"));
    assert!(cluster.broker(1).topic(&TopicPath::parse("late199").unwrap()).is_none());
    let names = (0..200).map(|number| topic_name(&format!("all{number}"))).collect();
    let request = DeleteTopicsRequest::default().with_topic_names(names).with_timeout_ms(60_000);
    let rows = client.ask(5, &request).responses;
    assert!(rows.iter().all(|row| row.error_code == 0), "{rows:?}");
    let order: Vec<_> = rows.iter().map(|row| row.name.clone().unwrap()).collect();
    assert_eq!(order, (0..200).map(|number| topic_name(&format!("all{number}"))).collect::<Vec<_>>());
}

#[test]
fn topics_of_a_request_wait_for_their_turn_where_the_cluster_makes_few_in_a_second() {
    let cluster = Cluster::start(1, options());
    cluster.set_config(&[("topics.creations_per_second_max", 20)]);
    let mut client = KafkaClient::connect(&cluster, 1);
    let topics = (0..50).map(|number| wanted(&format!("t{number}"), 1, 1, &[])).collect();
    let request = CreateTopicsRequest::default().with_topics(topics).with_timeout_ms(60_000);
    assert_eq!(codes(&client.ask(7, &request).topics), [0; 50]);
}

#[test]
fn what_cannot_be_made_is_refused_with_its_reason_and_the_rest_is_made() {
    let cluster = Cluster::start(1, options());
    let mut client = KafkaClient::connect(&cluster, 1);
    let assignment = CreatableReplicaAssignment::default().with_partition_index(0);
    let rows = create(
        &mut client,
        7,
        vec![
            wanted("good", -1, -1, &[]),
            wanted("no partitions", 0, 1, &[]),
            wanted("none", 0, 1, &[]),
            wanted("copies", 1, 2, &[]),
            wanted("setting", 1, 1, &[("retention.ms", "soon")]),
            wanted("unknown", 1, 1, &[("retention.mss", "1")]),
            wanted("placed", -1, -1, &[]).with_assignments(vec![assignment]),
            wanted("twice", 1, 1, &[]),
            wanted("twice", 1, 1, &[]),
        ],
    );
    assert_eq!(codes(&rows), [0, 17, 37, 38, 40, 40, 39, 42, 42]);
    assert!(rows[5].error_message.as_ref().unwrap().contains("retention.ms"), "the nearest name is told");
    assert_eq!(codes(&create(&mut client, 7, vec![wanted("good", -1, -1, &[])])), [36]);
    let check = CreateTopicsRequest::default().with_validate_only(true).with_timeout_ms(5_000);
    let topics = vec![
        wanted("maybe", 5, 1, &[]),
        wanted("good", 1, 1, &[]),
        wanted("bad", 1, 1, &[("segment.bytes", "x")]),
    ];
    assert_eq!(codes(&client.ask(7, &check.with_topics(topics)).topics), [0, 36, 40]);
    assert!(cluster.broker(1).topic(&TopicPath::parse("maybe").unwrap()).is_none());
    let placed = CreatePartitionsTopic::default().with_name(topic_name("good")).with_count(3);
    let placed = placed.with_assignments(Some(vec![CreatePartitionsAssignment::default()]));
    let request = CreatePartitionsRequest::default().with_topics(vec![placed]);
    assert_eq!(client.ask(3, &request).results[0].error_code, 39);
}

#[test]
fn topics_that_name_no_number_have_the_clusters() {
    let cluster = Cluster::start(1, options());
    let mut client = KafkaClient::connect(&cluster, 1);
    cluster.set_config(&[("topics.partitions_default", 4)]);
    assert_eq!(codes(&create(&mut client, 7, vec![wanted("t", -1, -1, &[])])), [0]);
    assert_eq!(cluster.broker(1).topic(&TopicPath::parse("t").unwrap()).unwrap().partitions, 4);
}

/// Java's AdminClient makes a topic and asks another node for it at once; a broker that answered too early was taken for one without.
#[test]
fn a_topic_that_was_made_is_known_everywhere_when_that_is_answered() {
    let cluster = Cluster::start_replicated(3, options(), Replication { factor: 3, write_quorum: 2 });
    for number in 0..20 {
        let mut client = KafkaClient::connect(&cluster, 1 + number % 3);
        let name = format!("t{number}");
        assert_eq!(codes(&create(&mut client, 7, vec![wanted(&name, 1, 3, &[])])), [0]);
        for node in cluster.ids() {
            assert!(cluster.broker(node).topic(&TopicPath::parse(&name).unwrap()).is_some(), "node {node}");
        }
    }
}

fn describe(client: &mut KafkaClient, version: i16, kind: i8, name: &str) -> DescribeConfigsResult {
    let resource = DescribeConfigsResource::default().with_resource_type(kind).with_resource_name(text(name));
    let resource = resource.with_configuration_keys(None);
    let request =
        DescribeConfigsRequest::default().with_resources(vec![resource]).with_include_synonyms(true);
    client.ask(version, &request.with_include_documentation(version >= 3)).results.remove(0)
}

#[test]
fn settings_are_described_with_their_sources_and_changed_in_every_version() {
    let cluster = Cluster::start(1, options());
    let mut client = KafkaClient::connect(&cluster, 1);
    create(&mut client, 7, vec![wanted("t", 1, 1, &[])]);
    let value = |result: &DescribeConfigsResult, name: &str| {
        let config = result.configs.iter().find(|config| config.name.as_str() == name).unwrap();
        (config.value.as_ref().unwrap().to_string(), config.config_source)
    };
    for version in 1..=4 {
        let topic = describe(&mut client, version, TOPIC, "t");
        assert_eq!((topic.error_code, value(&topic, "retention.ms")), (0, ("604800000".to_owned(), 1)));
        assert_eq!(value(&topic, "cleanup.policy"), ("delete".to_owned(), 5));
        assert!(topic.configs.iter().all(|config| config.synonyms.len() == 1));
        assert!(topic.configs.iter().all(|config| config.documentation.is_some()));
        let broker = describe(&mut client, version, BROKER, "1");
        assert_eq!((broker.error_code, value(&broker, "num.partitions").0), (0, "1".to_owned()));
        assert!(broker.configs.iter().all(|config| config.read_only));
    }
    assert_eq!(describe(&mut client, 4, TOPIC, "no").error_code, 3);
    assert_eq!(describe(&mut client, 4, BROKER, "2").error_code, 42);
    assert_eq!(describe(&mut client, 4, 16, "metrics").error_code, 42);
    for version in 0..=1 {
        let step = |name: &str, operation: i8, value: Option<&str>| {
            let config = incremental::AlterableConfig::default().with_name(text(name));
            config.with_config_operation(operation).with_value(value.map(text))
        };
        let mut alter = |steps: Vec<incremental::AlterableConfig>| {
            let resource = incremental::AlterConfigsResource::default().with_resource_type(TOPIC);
            let resource = resource.with_resource_name(text("t")).with_configs(steps);
            let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
            client.ask(version, &request).responses[0].error_code
        };
        assert_eq!(
            alter(vec![step("cleanup.policy", 2, Some("compact")), step("retention.ms", 0, Some("7000"))]),
            0
        );
        assert_eq!(alter(vec![step("retention.ms", 2, Some("1"))]), 40);
        assert_eq!(alter(vec![step("retention.ms", 0, Some("later"))]), 40);
        let topic = describe(&mut client, 4, TOPIC, "t");
        assert_eq!(value(&topic, "cleanup.policy").0, "compact,delete");
        assert_eq!(value(&topic, "retention.ms").0, "7000");
    }
    for version in 0..=2 {
        let config = AlterableConfig::default().with_name(text("segment.ms")).with_value(Some(text("9000")));
        let resource = |kind: i8, name: &str| {
            let resource =
                AlterConfigsResource::default().with_resource_type(kind).with_resource_name(text(name));
            resource.with_configs(vec![config.clone()])
        };
        let check = AlterConfigsRequest::default().with_validate_only(true);
        let request =
            check.with_resources(vec![resource(TOPIC, "t"), resource(TOPIC, "no"), resource(BROKER, "1")]);
        let codes = |request: &AlterConfigsRequest, client: &mut KafkaClient| -> Vec<i16> {
            client.ask(version, request).responses.iter().map(|row| row.error_code).collect()
        };
        assert_eq!(codes(&request, &mut client), [0, 3, 42]);
        let before = value(&describe(&mut client, 4, TOPIC, "t"), "segment.ms").0;
        assert_eq!(before == "9000", version > 0, "a check changes nothing");
        assert_eq!(codes(&request.with_validate_only(false), &mut client), [0, 3, 42]);
        let topic = describe(&mut client, 4, TOPIC, "t");
        assert_eq!(value(&topic, "segment.ms"), ("9000".to_owned(), 1));
        assert_ne!(value(&topic, "retention.ms").1, 1, "what is not named goes");
    }
}

#[test]
fn records_are_deleted_up_to_an_offset_or_the_end_in_every_version() {
    let cluster = Cluster::start(1, options());
    let mut client = KafkaClient::connect(&cluster, 1);
    create(&mut client, 7, vec![wanted("t", 1, 1, &[])]);
    for _ in 0..10 {
        assert_eq!(client.produce("t", batch(&["a"], None)).error_code, 0);
    }
    let mut producer = KafkaClient::connect(&cluster, 1);
    let mut delete = |version: i16, offset: i64| {
        let partition =
            |index| DeleteRecordsPartition::default().with_partition_index(index).with_offset(offset);
        let topic = |name: &str, index| {
            DeleteRecordsTopic::default().with_name(topic_name(name)).with_partitions(vec![partition(index)])
        };
        let request =
            DeleteRecordsRequest::default().with_topics(vec![topic("t", 0), topic("t", 9), topic("no", 0)]);
        let response = client.ask(version, &request.with_timeout_ms(5_000));
        let row = |place: usize| &response.topics[place].partitions[0];
        assert_eq!((row(1).error_code, row(2).error_code), (3, 3));
        (row(0).error_code, row(0).low_watermark)
    };
    assert_eq!((delete(0, 3), delete(1, 5), delete(2, 11)), ((0, 3), (0, 5), (1, -1)));
    assert_eq!((delete(2, -1), delete(2, 4)), ((0, 10), (0, 10)));
    // A partition whose records are all deleted goes on in another segment: who deletes meanwhile waits for that.
    for end in 11..30 {
        assert_eq!(producer.produce("t", batch(&["a"], None)).error_code, 0);
        assert_eq!((delete(2, -1), delete(2, end - 1), delete(2, -1)), ((0, end), (0, end), (0, end)));
    }
}

#[test]
fn user_interfaces_are_told_of_the_cluster_its_disks_and_what_there_is_not() {
    let cluster = Cluster::start(1, options());
    let mut client = KafkaClient::connect(&cluster, 1);
    create(&mut client, 7, vec![wanted("t", 2, 1, &[])]);
    assert_eq!(client.produce("t", batch(&["value"], None)).error_code, 0);
    for version in 0..=1 {
        let response = client.ask(version, &DescribeClusterRequest::default().with_endpoint_type(1));
        assert_eq!((response.error_code, response.brokers.len(), response.controller_id.0), (0, 1, 1));
        assert_eq!(response.cluster_id.as_str(), cluster.cluster_id().to_string());
    }
    assert_eq!(client.ask(1, &DescribeClusterRequest::default().with_endpoint_type(2)).error_code, 115);
    for version in 1..=4 {
        let response = client.ask(version, &DescribeLogDirsRequest::default().with_topics(None));
        let found = &response.results[0];
        let sizes: Vec<i64> = found.topics[0].partitions.iter().map(|row| row.partition_size).collect();
        assert!(sizes.len() == 2 && sizes[0] > 60 && sizes[1] == 0, "{sizes:?}");
        assert_eq!(found.total_bytes > 0 && found.usable_bytes > 0, version >= 4);
    }
    for version in 1..=3 {
        let request = DescribeAclsRequest::default().with_resource_type_filter(1).with_operation(1);
        assert_eq!(
            client.ask(version, &request.with_permission_type(1).with_pattern_type_filter(1)).error_code,
            54
        );
    }
    let response = client.ask(0, &ListPartitionReassignmentsRequest::default().with_topics(None));
    assert_eq!((response.error_code, response.topics.len()), (0, 0));
    let asked = TopicRequest::default().with_name(topic_name("t")).with_partition_indexes(vec![0, 9]);
    let response = client.ask(0, &DescribeProducersRequest::default().with_topics(vec![asked]));
    let codes: Vec<i16> = response.topics[0].partitions.iter().map(|row| row.error_code).collect();
    assert_eq!(codes, [0, 3]);
}

#[test]
fn a_listener_of_strangers_changes_nothing() {
    let listener = json!({ "protocol": "kafka", "name": "kafka", "address": "127.0.0.1:0", "admin": false });
    let cluster = Cluster::start(1, json!({ "listeners": [listener] }));
    let mut client = KafkaClient::connect(&cluster, 1);
    assert_eq!(codes(&create(&mut client, 7, vec![wanted("t", 1, 1, &[])])), [31]);
    let path = TopicPath::parse("t").unwrap();
    cluster.block_on(async { cluster.broker(1).create_topic(&path, 1).await.unwrap() });
    let request = DeleteTopicsRequest::default().with_topic_names(vec![topic_name("t")]);
    assert_eq!(client.ask(5, &request).responses[0].error_code, 31);
    let grown =
        CreatePartitionsTopic::default().with_name(topic_name("t")).with_count(3).with_assignments(None);
    let request = CreatePartitionsRequest::default().with_topics(vec![grown]);
    assert_eq!(client.ask(3, &request).results[0].error_code, 31);
    let resource = AlterConfigsResource::default().with_resource_type(TOPIC).with_resource_name(text("t"));
    let request = AlterConfigsRequest::default().with_resources(vec![resource]);
    assert_eq!(client.ask(2, &request).responses[0].error_code, 31);
    let partition = DeleteRecordsPartition::default().with_partition_index(0).with_offset(-1);
    let topic = DeleteRecordsTopic::default().with_name(topic_name("t")).with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default().with_topics(vec![topic]);
    assert_eq!(client.ask(2, &request).topics[0].partitions[0].error_code, 31);
    assert_eq!(describe(&mut client, 4, TOPIC, "t").error_code, 0, "looking is free");
    assert!(cluster.broker(1).topic(&path).is_some());
}
