//! Tests of consumer groups, frame by frame. What the groups themselves decide is tested beside them; here it is what clients are
//! told, in every version, and what becomes of groups when their coordinator moves.

use std::time::Instant;

use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, GroupId, ListGroupsRequest,
    OffsetDeleteRequest, OffsetFetchRequest,
};
use prost::Message as _;
use serde_json::json;
use walrus_broker::proto::peer::{
    GroupAnswer, GroupDescribe, GroupPlace, GroupPlaces, GroupRequest, Kind, group_answer, group_request,
};
use walrus_broker::{NewTopic, TopicPath};
use walrus_model::Replication;

use crate::harness::{Cluster, PATIENCE, wait_until};
use crate::kafka_client::{KafkaClient, options, topic_name};
use crate::kafka_member::{Member, NEWEST, OLDEST, Versions, coordinator, text};
use crate::links::Link;

const REPLICATION: Replication = Replication { factor: 3, write_quorum: 2 };
const NOT_COORDINATOR: i16 = 16;
const REBALANCE_IN_PROGRESS: i16 = 27;
const UNKNOWN_MEMBER_ID: i16 = 25;
const ILLEGAL_GENERATION: i16 = 22;

fn with_topic(cluster: Cluster) -> Cluster {
    create(&cluster, "t");
    cluster
}

fn create(cluster: &Cluster, topic: &str) {
    let path = TopicPath::parse(topic).unwrap();
    let by = *cluster.ids().start();
    cluster.block_on(async { cluster.broker(by).create_topic(&path, 1).await.unwrap() });
}

/// A group of one member that has its share.
fn stable(cluster: &Cluster, group: &str, versions: Versions) -> Member {
    let mut member = Member::new(cluster, group, versions);
    assert_eq!(member.join().error_code, 0);
    let id = member.id.clone();
    assert_eq!(&member.sync(&[(id, "share")]).assignment[..], b"share");
    member
}

/// Asks again while the group is told to be elsewhere, or nowhere.
fn until_told<T>(mut ask: impl FnMut() -> Result<T, i16>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask() {
            Ok(told) => return told,
            Err(14..=16) if Instant::now() < deadline => {}
            Err(code) => panic!("error {code}"),
        }
    }
}

/// The address of the coordinator of the group `g`, once it is another node than before.
fn next_coordinator(cluster: &Cluster, by: u32, before: u32) -> String {
    let mut address = None;
    wait_until("another node coordinates the group", PATIENCE, || {
        let (now, told) = coordinator(cluster, by, "g");
        address = Some(told).filter(|_| now != before);
        address.is_some()
    });
    address.unwrap()
}

#[test]
fn a_group_lives_in_the_oldest_versions_of_every_request_and_in_the_newest() {
    let cluster = with_topic(Cluster::start(1, options()));
    let middle = Versions { join: 4, sync: 3, heartbeat: 3, leave: 3, commit: 7, fetch: 7 };
    let before = Versions { join: 6, sync: 4, heartbeat: 4, leave: 4, commit: 8, fetch: 8 };
    for (number, versions) in [OLDEST, middle, before, NEWEST].into_iter().enumerate() {
        let group = format!("group-{number}");
        let mut member = stable(&cluster, &group, versions);
        assert_eq!((member.heartbeat(), member.generation), (0, 1));
        assert_eq!(member.fetch("t"), Ok((-1, String::new())));
        assert_eq!(member.commit("t", 7, "kept"), 0);
        assert_eq!(member.fetch("t"), Ok((7, "kept".to_owned())));
        assert_eq!(member.fetch("nothing"), Ok((-1, String::new())));
        assert_eq!(member.commit("nothing", 7, ""), 3);
        assert_eq!(member.commit("t", 8, &"x".repeat(4_097)), 12);
        member.generation = 9;
        assert_eq!((member.heartbeat(), member.commit("t", 8, "")), (ILLEGAL_GENERATION, ILLEGAL_GENERATION));
        member.generation = 1;
        assert_eq!((member.leave(), member.heartbeat()), (0, UNKNOWN_MEMBER_ID));
        assert_eq!(member.fetch("t"), Ok((7, "kept".to_owned())));
    }
}

#[test]
fn every_version_of_find_coordinator_names_the_node_by_this_listener() {
    let cluster = with_topic(Cluster::start(1, options()));
    let mut client = KafkaClient::connect(&cluster, 1);
    let address = cluster.plane(1).addresses()["kafka/kafka"].clone();
    for version in 0..=4 {
        let request = FindCoordinatorRequest::default();
        if version < 4 {
            let found = client.ask(version, &request.with_key(text("g")));
            assert_eq!((found.error_code, found.node_id.0), (0, 1));
            assert_eq!(format!("{}:{}", found.host, found.port), address);
            continue;
        }
        let found = client.ask(version, &request.with_coordinator_keys(vec![text("g"), text("h"), text("")]));
        let codes: Vec<i16> = found.coordinators.iter().map(|row| row.error_code).collect();
        assert_eq!(codes, [0, 0, 24]);
        assert_eq!(format!("{}:{}", found.coordinators[1].host, found.coordinators[1].port), address);
    }
    let transactional = FindCoordinatorRequest::default().with_key(text("tx")).with_key_type(1);
    let refused = client.ask(3, &transactional);
    assert_eq!((refused.error_code, refused.error_message.is_some()), (53, true));
}

/// kafka-go sends an early version and was stuck where a broker asked it to join again with an id.
#[test]
fn a_member_of_an_early_version_joins_at_once() {
    let cluster = with_topic(Cluster::start(1, options()));
    for version in 0..=3 {
        let mut member = Member::new(&cluster, &format!("g{version}"), Versions { join: version, ..OLDEST });
        member.send_join();
        let joined = member.joined();
        assert_eq!((joined.error_code, joined.generation_id, joined.members.len()), (0, 1, 1));
        assert_eq!(joined.protocol_name, Some(text("range")));
    }
    let mut later = Member::new(&cluster, "later", Versions { join: 4, ..OLDEST });
    later.send_join();
    assert_eq!(later.joined().error_code, 79);
    assert!(later.id.starts_with("test-"), "the id begins with what the client calls itself");
}

#[test]
fn a_second_member_shares_the_work_and_a_static_one_comes_back_to_its_share() {
    let cluster = with_topic(Cluster::start(1, options()));
    let mut first = stable(&cluster, "g", NEWEST);
    let mut second = Member::new(&cluster, "g", NEWEST);
    second.instance = Some(text("static"));
    second.send_join();
    wait_until("the first hears of the second", PATIENCE, || first.heartbeat() == REBALANCE_IN_PROGRESS);
    let joined = first.join();
    assert_eq!((joined.error_code, joined.members.len(), &joined.leader), (0, 2, &first.id));
    assert_eq!((second.joined().error_code, second.generation), (0, 2));
    let ids = (first.id.clone(), second.id.clone());
    first.sync(&[(ids.0, "one"), (ids.1, "two")]);
    assert_eq!(&second.sync(&[]).assignment[..], b"two");
    let mut restarted = Member::new(&cluster, "g", NEWEST);
    restarted.instance = Some(text("static"));
    let joined = restarted.join();
    assert_eq!((joined.error_code, joined.generation_id), (0, 2), "the group does not notice");
    assert_eq!(&restarted.sync(&[]).assignment[..], b"two");
    assert_eq!((second.heartbeat(), first.heartbeat()), (82, 0), "the former self is fenced");
}

#[test]
fn groups_are_listed_described_and_deleted() {
    let cluster = with_topic(Cluster::start(1, options()));
    let mut member = stable(&cluster, "busy", NEWEST);
    assert_eq!(member.commit("t", 7, ""), 0);
    assert_eq!(Member::new(&cluster, "idle", NEWEST).commit("t", 3, ""), 0);
    let client = &mut member.client;
    for version in 0..=5 {
        let groups = client.ask(version, &ListGroupsRequest::default()).groups;
        let mut names: Vec<_> =
            groups.iter().map(|row| (row.group_id.to_string(), row.group_state.to_string())).collect();
        names.sort();
        let state = |state: &str| if version < 4 { String::new() } else { state.to_owned() };
        assert_eq!(names, [("busy".to_owned(), state("Stable")), ("idle".to_owned(), state("Empty"))]);
    }
    let filter = |states: &str, types: &str| {
        let request = ListGroupsRequest::default().with_states_filter(vec![text(states)]);
        request.with_types_filter(vec![text(types)])
    };
    assert_eq!(client.ask(5, &filter("empty", "classic")).groups[0].group_id.to_string(), "idle");
    assert_eq!(client.ask(5, &filter("Stable", "consumer")).groups, []);
    for version in 0..=5 {
        let request =
            DescribeGroupsRequest::default().with_groups(vec![GroupId(text("busy")), GroupId(text("no"))]);
        let rows = client.ask(version, &request).groups;
        assert_eq!((rows[0].group_state.as_str(), rows[0].members.len()), ("Stable", 1));
        assert_eq!(&rows[0].members[0].member_assignment[..], b"share");
        assert_eq!(
            (rows[0].members[0].client_id.as_str(), rows[0].members[0].client_host.as_str()),
            ("test", "/127.0.0.1")
        );
        assert_eq!((rows[1].error_code, rows[1].group_state.as_str()), (0, "Dead"));
    }
    let topic = |name: &str| {
        let partition = OffsetDeleteRequestPartition::default().with_partition_index(0);
        OffsetDeleteRequestTopic::default().with_name(topic_name(name)).with_partitions(vec![partition])
    };
    create(&cluster, "other");
    let request = OffsetDeleteRequest::default().with_topics(vec![topic("t"), topic("other"), topic("no")]);
    let response = client.ask(0, &request.clone().with_group_id(GroupId(text("busy"))));
    let codes: Vec<i16> = response.topics.iter().map(|topic| topic.partitions[0].error_code).collect();
    assert_eq!((response.error_code, codes), (0, vec![86, 0, 3]), "its members read t");
    let response = client.ask(0, &request.clone().with_group_id(GroupId(text("idle"))));
    assert_eq!(response.topics[0].partitions[0].error_code, 0);
    assert_eq!(client.ask(0, &request.with_group_id(GroupId(text("no")))).error_code, 69);
    for version in 0..=2 {
        let names = vec![GroupId(text("busy")), GroupId(text("no"))];
        let rows = client.ask(version, &DeleteGroupsRequest::default().with_groups_names(names)).results;
        assert_eq!(
            rows.iter().map(|row: &DeletableGroupResult| row.error_code).collect::<Vec<_>>(),
            [68, 69]
        );
    }
    assert_eq!(member.leave(), 0);
    let request = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(text("busy"))]);
    assert_eq!(member.client.ask(2, &request).results[0].error_code, 0);
    assert_eq!(member.fetch("t"), Ok((-1, String::new())));
}

#[test]
fn somebody_who_is_no_member_commits_for_an_empty_group_only() {
    let cluster = with_topic(Cluster::start(1, options()));
    let mut alone = Member::new(&cluster, "g", NEWEST);
    assert_eq!((alone.commit("t", 3, ""), alone.fetch("t")), (0, Ok((3, String::new()))));
    let mut member = stable(&cluster, "g", NEWEST);
    assert_eq!(alone.commit("t", 4, ""), UNKNOWN_MEMBER_ID);
    assert_eq!(member.fetch("t"), Ok((3, String::new())));
    let everything = OffsetFetchRequest::default().with_group_id(GroupId(text("g"))).with_topics(None);
    let response = member.client.ask(7, &everything);
    assert_eq!((response.topics.len(), response.topics[0].partitions[0].committed_offset), (1, 3));
    assert_eq!(member.leave(), 0);
}

/// A committed offset belongs to the topic and not to its name: a topic that was made again would be read from the middle.
#[test]
fn a_topic_that_is_made_again_has_no_committed_offsets() {
    let cluster = with_topic(Cluster::start(1, options()));
    let mut alone = Member::new(&cluster, "g", NEWEST);
    assert_eq!(alone.commit("t", 3, ""), 0);
    let path = TopicPath::parse("t").unwrap();
    cluster.block_on(async { cluster.broker(1).delete_topic(&path, None).await.unwrap() });
    create(&cluster, "t");
    assert_eq!(alone.fetch("t"), Ok((-1, String::new())));
}

#[test]
fn a_node_that_does_not_coordinate_a_group_says_so() {
    let cluster = with_topic(Cluster::start(3, options()));
    let (node, _) = coordinator(&cluster, 1, "g");
    let other = cluster.ids().find(|id| *id != node).unwrap();
    let address = cluster.plane(other).addresses()["kafka/kafka"].clone();
    let mut member = Member::at(&address, "g", NEWEST);
    member.send_join();
    assert_eq!(member.joined().error_code, NOT_COORDINATOR);
    assert_eq!((member.heartbeat(), member.commit("t", 1, "")), (NOT_COORDINATOR, NOT_COORDINATOR));
}

/// librdkafka tells its application when a coordinator that has just moved refuses it the committed offsets.
#[test]
fn any_node_tells_what_a_group_has_committed() {
    let cluster = with_topic(Cluster::start(3, options()));
    assert_eq!(Member::new(&cluster, "g", NEWEST).commit("t", 7, "kept"), 0);
    for node in cluster.ids() {
        let address = cluster.plane(node).addresses()["kafka/kafka"].clone();
        let mut member = Member::at(&address, "g", NEWEST);
        for version in 1..=9 {
            member.versions.fetch = version;
            assert_eq!(member.fetch("t"), Ok((7, "kept".to_owned())), "node {node}, version {version}");
        }
        assert_eq!(Member::at(&address, "nobody", NEWEST).fetch("t"), Ok((-1, String::new())));
    }
}

/// A node that does not coordinate a group was sent all of its offsets, however few a client had asked for.
#[test]
fn a_node_that_asks_another_one_for_offsets_is_sent_no_others() {
    let cluster = with_topic(Cluster::start(2, options()));
    create(&cluster, "u");
    let mut member = Member::new(&cluster, "g", NEWEST);
    let long = "x".repeat(4_000);
    assert_eq!((member.commit("t", 7, ""), member.commit("u", 8, &long)), (0, 0));
    let (owner, _) = coordinator(&cluster, 1, "g");
    let describe = |of| {
        let (org, name) = ("default".to_owned(), "g".to_owned());
        let asked = group_request::Request::Describe(GroupDescribe { org, name, of });
        let mut peer = crate::peer::Peer::greet(&cluster, owner);
        let answer = peer.refusal_of(Kind::Group as u8, &GroupRequest { request: Some(asked) }).unwrap_err();
        match GroupAnswer::decode(&answer[..]).unwrap().answer {
            Some(group_answer::Answer::Describe(described)) => described.group.unwrap().offsets,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(describe(None).len(), 2);
    let topic = cluster.metadata().names["default"]["t"];
    let places = vec![GroupPlace { topic: topic.0.as_bytes().to_vec().into(), partition: 0 }];
    let offsets: Vec<i64> = describe(Some(GroupPlaces { places })).iter().map(|row| row.offset).collect();
    assert_eq!(offsets, [7]);
}

#[test]
fn a_group_goes_on_at_another_node_when_its_coordinator_is_killed() {
    let options = json!({ "listeners": options()["listeners"], "lease_ms": 1_000 });
    let mut cluster = with_topic(Cluster::start_replicated(3, options, REPLICATION));
    let mut member = stable(&cluster, "g", NEWEST);
    assert_eq!(member.commit("t", 7, "before"), 0);
    let (node, _) = coordinator(&cluster, 1, "g");
    cluster.stop(node);
    let by = cluster.ids().find(|id| *id != node).unwrap();
    let address = next_coordinator(&cluster, by, node);
    let mut moved = Member { client: KafkaClient::connect_to(&address), ..member };
    let told = until_told(|| moved.fetch("t"));
    assert_eq!(told, (7, "before".to_owned()));
    assert_eq!(moved.heartbeat(), 0, "its session goes on, in the same generation");
    assert_eq!(moved.commit("t", 8, ""), 0);
    cluster.restart(node);
    assert_eq!(moved.fetch("t"), Ok((8, String::new())));
}

#[test]
fn a_group_goes_on_while_the_segments_of_its_coordinator_roll_and_old_ones_go() {
    let options = json!({ "listeners": options()["listeners"], "segment_entries_max": 50 });
    let cluster = with_topic(Cluster::start_replicated(3, options, REPLICATION));
    let mut member = stable(&cluster, "g", NEWEST);
    for offset in 0..1_500 {
        assert_eq!(member.commit("t", offset, ""), 0, "commit {offset}");
    }
    assert_eq!((member.heartbeat(), member.generation), (0, 1));
    assert_eq!(member.fetch("t"), Ok((1_499, String::new())));
    wait_until("older segments are gone", PATIENCE, || {
        let metadata = cluster.metadata();
        let groups = metadata.topics.values().find(|topic| topic.name == "__groups").unwrap();
        groups.partitions.iter().any(|partition| partition.segments[0].descriptor.number > 10)
    });
    let (node, _) = coordinator(&cluster, 1, "g");
    cluster.let_lapse(node);
    assert_eq!(member.fetch("t"), Ok((1_499, String::new())));
}

/// A coordinator that was cut off and replaced does not know it. What it wrote late would undo what its successor has acknowledged.
#[test]
fn a_coordinator_that_was_replaced_writes_nothing_and_is_believed_nothing() {
    let options = json!({ "listeners": options()["listeners"] });
    let cluster = with_topic(Cluster::start_linked(3, options, REPLICATION));
    let mut member = stable(&cluster, "g", NEWEST);
    assert_eq!(member.commit("t", 7, ""), 0);
    let (node, _) = coordinator(&cluster, 1, "g");
    let others: Vec<u32> = cluster.ids().filter(|id| *id != node).collect();
    others.iter().for_each(|other| cluster.links().set(node, *other, Link::Cut));
    cluster.isolate(node);
    let id = member.id.clone();
    member.send_commit("t", 100, "late");
    cluster.let_lapse(node);
    let address = next_coordinator(&cluster, others[0], node);
    let mut moved = Member { client: KafkaClient::connect_to(&address), ..Member::at(&address, "g", NEWEST) };
    (moved.id, moved.generation) = (id, 1);
    until_told(|| match moved.commit("t", 8, "") {
        0 => Ok(()),
        code => Err(code),
    });
    others.iter().for_each(|other| cluster.links().set(node, *other, Link::Open));
    cluster.rejoin(node);
    assert_ne!(member.committed(), 0, "nobody can have stored it");
    assert_eq!(moved.fetch("t"), Ok((8, String::new())));
    wait_until("the old coordinator knows", PATIENCE, || member.heartbeat() == NOT_COORDINATOR);
    assert_eq!(member.fetch("t"), Ok((8, String::new())), "it asks its successor");
    assert_eq!(moved.fetch("t"), Ok((8, String::new())));
}

#[test]
fn the_metadata_hear_how_far_a_group_has_read_that_a_topics_retention_waits_for() {
    let cluster = Cluster::start(3, options());
    let path = TopicPath::parse("t").unwrap();
    let config = [("walrus.retention.pinned".to_owned(), "group:g".to_owned())].into();
    let new = NewTopic { partitions: 1, config };
    cluster.block_on(async { cluster.broker(1).create_topic(&path, new).await.unwrap() });
    let mut alone = Member::new(&cluster, "g", NEWEST);
    for offset in [7, 3] {
        assert_eq!(alone.commit("t", offset, ""), 0);
        wait_until("it is told", PATIENCE, || {
            let metadata = cluster.metadata();
            let topic = metadata.topics.values().find(|topic| topic.name == "t").unwrap();
            topic.read.of("group:g", 0).0 == u64::try_from(offset).unwrap()
        });
    }
}
