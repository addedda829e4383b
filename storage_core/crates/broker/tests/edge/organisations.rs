//! Tests of organisations: whoever connects to a listener sees the topics of its organisation, and no others.

use serde_json::json;
use tonic::Code;
use walrus_broker::proto::v1::log_client::LogClient;
use walrus_broker::proto::v1::{
    AddPartitionsRequest, AlterTopicRequest, AppendRequest, CreateTopicRequest, DeleteRecordsRequest,
    DeleteTopicRequest, Header, ListNodesRequest, ListSegmentsRequest, ListTopicsRequest, ReadRequest,
    Record, Records, append_request,
};
use walrus_broker::{OrgName, TopicName, TopicPath};
use walrus_metadata::{Command, OrganisationLimits};

use crate::grpc_log::reason;
use crate::harness::Cluster;
use crate::text_client::TextClient;

/// Two nodes with listeners for the organisation `acme` beside those of `default`.
fn two_organisations() -> Cluster {
    let listener = |protocol: &str| json!({ "protocol": protocol, "name": "acme", "org": "acme", "address": "127.0.0.1:0" });
    let cluster = Cluster::start(2, json!({ "listeners": [listener("text"), listener("grpc")] }));
    let (name, limits) = ("acme".to_owned(), OrganisationLimits::default());
    cluster.command(Command::SetOrganisation { name, limits });
    cluster
}

fn text(cluster: &Cluster, node: u32, listener: &str) -> TextClient {
    TextClient::connect(&cluster.plane(node).addresses()[listener])
}

async fn grpc(cluster: &Cluster, node: u32, listener: &str) -> LogClient<tonic::transport::Channel> {
    let address = cluster.plane(node).addresses()[listener].clone();
    LogClient::connect(format!("http://{address}")).await.expect("a listener")
}

#[test]
fn the_same_name_is_another_topic_with_another_cursor_in_each_organisation() {
    let cluster = two_organisations();
    let (mut ours, mut theirs) = (text(&cluster, 1, "text"), text(&cluster, 2, "text/acme"));
    assert_eq!(ours.ask("PUT t ours"), "OK");
    assert_eq!(theirs.ask("STATE t"), "ERR unknown topic acme/t");
    assert_eq!(theirs.ask("TOPICS"), "[]");
    assert_eq!(theirs.ask("PUT t theirs"), "OK");
    assert_eq!(theirs.ask("PUT u only"), "OK");
    assert_eq!(ours.ask("GETAT t 1"), "EMPTY", "offsets begin at 0 in each");
    assert_eq!((ours.ask("GET t"), theirs.ask("GET t")), ("OK ours".to_owned(), "OK theirs".to_owned()));
    assert_eq!((ours.ask("GET t"), theirs.ask("GET t")), ("EMPTY".to_owned(), "EMPTY".to_owned()));
    assert_eq!(ours.ask("GET u"), "ERR unknown topic u");
    assert_eq!(theirs.ask("DELETE t"), "OK");
    assert_eq!(ours.ask("GETAT t 0"), "OK ours");
    let path = TopicPath {
        org: OrgName::parse("acme").expect("a name"),
        name: TopicName::parse("u").expect("a name"),
    };
    assert_eq!(cluster.broker(1).topic(&path).expect("a topic").partitions, 1);
}

#[test]
fn clients_of_an_organisation_are_told_only_of_its_topics_and_listeners() {
    let cluster = two_organisations();
    cluster.block_on(async {
        let mut ours = grpc(&cluster, 1, "grpc").await;
        let mut theirs = grpc(&cluster, 2, "grpc/acme").await;
        let create =
            |topic: &str| CreateTopicRequest { topic: topic.to_owned(), partitions: 2, ..Default::default() };
        assert!(ours.create_topic(create("t")).await.expect("a topic").into_inner().created);
        let record =
            Record { value: Some("x".into()), headers: vec![Header::default()], ..Record::default() };
        let append = AppendRequest {
            topic: "t".to_owned(),
            payload: Some(append_request::Payload::Records(Records { records: vec![record] })),
            ..AppendRequest::default()
        };
        ours.append(append.clone()).await.expect("an append");
        let read = ReadRequest { topic: "t".to_owned(), ..ReadRequest::default() };
        let missing = theirs.read(read).await.expect("a stream").into_inner().message().await.unwrap_err();
        assert_eq!((missing.code(), reason(&missing).as_str()), (Code::NotFound, "UnknownTopic"));
        let segments = ListSegmentsRequest { topic: "t".to_owned() };
        let missing = theirs.list_segments(segments).await.unwrap_err();
        assert_eq!((missing.code(), reason(&missing).as_str()), (Code::NotFound, "UnknownTopic"));
        assert!(theirs.create_topic(create("t")).await.expect("another topic").into_inner().created);
        assert_eq!(theirs.append(append).await.expect("an append").into_inner().base_offset, 0);
        for (client, listener) in [(&mut ours, "grpc"), (&mut theirs, "grpc/acme")] {
            let topics = client.list_topics(ListTopicsRequest::default()).await.expect("topics").into_inner();
            assert_eq!(topics.topics.len(), 1);
            let nodes = client.list_nodes(ListNodesRequest {}).await.expect("nodes").into_inner().nodes;
            let addresses: Vec<String> = nodes.into_iter().map(|node| node.grpc_address).collect();
            let listening: Vec<String> =
                cluster.ids().map(|node| cluster.plane(node).addresses()[listener].clone()).collect();
            assert_eq!(addresses, listening);
        }
    });
}

#[test]
fn nobody_makes_an_organisation_by_naming_it_and_its_limits_are_told() {
    let cluster = two_organisations();
    let mut theirs = text(&cluster, 1, "text/acme");
    let limits = OrganisationLimits { topics_max: Some(1), ..OrganisationLimits::default() };
    cluster.command(Command::SetOrganisation { name: "acme".to_owned(), limits });
    assert_eq!(theirs.ask("REGISTER a"), "OK");
    let refused = theirs.ask("REGISTER b");
    assert!(refused.starts_with("ERR ") && refused.contains("its limit is 1"), "{refused}");
    assert_eq!(theirs.ask("DELETE a"), "OK");
    cluster.command(Command::RemoveOrganisation { name: "acme".to_owned() });
    let refused = theirs.ask("PUT a x");
    assert!(refused.contains("there is no organisation \"acme\""), "{refused}");
}

/// Two nodes with listeners of `default`, beside those that each has, whose clients change no topics.
fn two_ways_in() -> Cluster {
    let closed = |protocol: &str| json!({ "protocol": protocol, "name": "closed", "address": "127.0.0.1:0", "admin": false });
    Cluster::start(2, json!({ "listeners": [closed("text"), closed("grpc")] }))
}

#[test]
fn clients_of_a_listener_are_told_the_addresses_of_its_name() {
    let cluster = two_ways_in();
    cluster.block_on(async {
        for listener in ["grpc", "grpc/closed"] {
            let mut client = grpc(&cluster, 1, listener).await;
            let nodes = client.list_nodes(ListNodesRequest {}).await.expect("nodes").into_inner().nodes;
            let told: Vec<String> = nodes.into_iter().map(|node| node.grpc_address).collect();
            let bound: Vec<String> =
                cluster.ids().map(|node| cluster.plane(node).addresses()[listener].clone()).collect();
            assert_eq!(told, bound);
        }
    });
}

#[test]
fn a_listener_without_admin_reads_and_writes_and_changes_no_topic() {
    let cluster = two_ways_in();
    let (mut open, mut closed) = (text(&cluster, 1, "text"), text(&cluster, 2, "text/closed"));
    for refused in ["REGISTER t", "DELETE t"] {
        let answer = closed.ask(refused);
        assert!(answer.starts_with("ERR ") && answer.contains("is not allowed here"), "{answer}");
    }
    assert_eq!(closed.ask("PUT t x"), "ERR unknown topic t", "none is made by naming it");
    assert_eq!(open.ask("PUT t a"), "OK");
    assert_eq!(closed.ask("PUT t b"), "OK");
    assert_eq!(closed.ask("GETAT t 1"), "OK b");
    let (topic, topics) = (|| "t".to_owned(), |uuid| DeleteTopicRequest { topic: "t".to_owned(), uuid });
    cluster.block_on(async {
        let mut closed = grpc(&cluster, 2, "grpc/closed").await;
        let partitions = AddPartitionsRequest { topic: topic(), partitions: 9 };
        let refusals = [
            closed.create_topic(CreateTopicRequest { topic: topic(), ..Default::default() }).await.err(),
            closed.add_partitions(partitions).await.err(),
            closed.alter_topic(AlterTopicRequest { topic: topic(), ..Default::default() }).await.err(),
            closed.delete_records(DeleteRecordsRequest { topic: topic(), starts: Vec::new() }).await.err(),
            closed.delete_topic(topics(None)).await.err(),
        ];
        for refused in refusals {
            let refused = refused.expect("a refusal");
            assert_eq!((refused.code(), reason(&refused).as_str()), (Code::PermissionDenied, "NotAllowed"));
        }
        let records = || Records { records: vec![Record { value: Some("c".into()), ..Record::default() }] };
        let append = |topic: &str| AppendRequest {
            topic: topic.to_owned(),
            payload: Some(append_request::Payload::Records(records())),
            ..AppendRequest::default()
        };
        assert_eq!(closed.append(append("t")).await.expect("an append").into_inner().base_offset, 2);
        let unknown = closed.append(append("u")).await.unwrap_err();
        assert_eq!((unknown.code(), reason(&unknown).as_str()), (Code::NotFound, "UnknownTopic"));
    });
    assert_eq!(open.ask("DELETE t"), "OK");
}
