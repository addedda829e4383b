//! Organisations are namespaces with limits, and a deleted topic is forgotten once no disk has anything of it.

use std::collections::BTreeMap;

use uuid::Uuid;
use walrus_metadata::{
    Command, CommandRejection, DEFAULT_ORG, Envelope, INTERNAL_ORG, LEVEL, Listener, Metadata, Organisation,
    OrganisationLimits, Protocol, apply, first_descriptor,
};
use walrus_model::{DiskId, NodeId, ReplicaRef, SegmentId, TopicId};

use crate::cluster::{NOW_MS, cluster_of, create, envelope, everybody, register, run};

/// A cluster at the newest level.
fn new_cluster(nodes: u128) -> Metadata {
    let mut metadata = cluster_of(nodes);
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    metadata
}

fn create_in(
    metadata: &mut Metadata,
    org: &str,
    name: &str,
    partitions: u32,
    internal: bool,
) -> Result<TopicId, CommandRejection> {
    let (topic, present) = (TopicId(Uuid::new_v4()), everybody(metadata));
    let first = |p| {
        first_descriptor(metadata, &Default::default(), (topic, p, SegmentId(Uuid::new_v4())), &present)
            .expect("nodes")
    };
    let first = (0..partitions).map(first).collect();
    run(
        metadata,
        Command::CreateTopic {
            topic,
            org: org.into(),
            name: name.into(),
            internal,
            config: BTreeMap::new(),
            first,
        },
    )
    .map(|_| topic)
}

fn set(metadata: &mut Metadata, name: &str, limits: OrganisationLimits) -> Result<(), CommandRejection> {
    run(metadata, Command::SetOrganisation { name: name.to_owned(), limits }).map(drop)
}

#[test]
fn a_name_means_another_topic_in_each_organisation_and_none_in_one_that_nobody_made() {
    let mut metadata = new_cluster(1);
    let unknown = Err(CommandRejection::UnknownOrganisation { name: "acme".to_owned() });
    assert_eq!(create_in(&mut metadata, "acme", "t", 1, false), unknown);
    set(&mut metadata, "acme", OrganisationLimits::default()).expect("a name");
    let theirs = create_in(&mut metadata, "acme", "t", 1, false).expect("a topic");
    let ours = create(&mut metadata, "t", 1).expect("another topic");
    assert_eq!(metadata.names["acme"]["t"], theirs);
    assert_eq!(metadata.names[DEFAULT_ORG]["t"], ours);
    assert_eq!(metadata.check(), Ok(()));
    let restored = Metadata::from_snapshot(&metadata.to_snapshot()).expect("a snapshot");
    assert_eq!(restored, metadata);
}

#[test]
fn walruss_own_topics_have_a_place_where_no_client_can_have_a_topic() {
    let mut metadata = new_cluster(1);
    let own = create_in(&mut metadata, DEFAULT_ORG, "__cursors", 1, true).expect("a topic");
    assert_eq!(metadata.topics[&own].org, INTERNAL_ORG);
    let theirs = create(&mut metadata, "__cursors", 1).expect("the name is free");
    assert_ne!(own, theirs);
    let refused = set(&mut metadata, INTERNAL_ORG, OrganisationLimits::default());
    assert_eq!(refused, Err(CommandRejection::InvalidOrganisationName { name: INTERNAL_ORG.to_owned() }));
    let refused = create_in(&mut metadata, INTERNAL_ORG, "t", 1, false);
    assert_eq!(refused, Err(CommandRejection::UnknownOrganisation { name: INTERNAL_ORG.to_owned() }));
}

/// Clusters of before level 4 had Walrus's own topics among those of the organisation `default`.
#[test]
fn the_level_lists_the_organisations_and_gives_walruss_own_topics_their_place() {
    let mut metadata = cluster_of(1);
    let own = create_in(&mut metadata, DEFAULT_ORG, "__cursors", 2, true).expect("a topic");
    let theirs = create(&mut metadata, "t", 1).expect("a topic");
    assert_eq!((metadata.topics[&own].org.as_str(), metadata.organisations.len()), (DEFAULT_ORG, 0));
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    assert_eq!(metadata.check(), Ok(()));
    assert_eq!(metadata.organisations.keys().collect::<Vec<_>>(), [DEFAULT_ORG]);
    assert_eq!(metadata.names[INTERNAL_ORG]["__cursors"], own);
    assert_eq!(metadata.names[DEFAULT_ORG].values().collect::<Vec<_>>(), [&theirs]);
    assert_eq!(metadata.topics[&own].partitions.len(), 2);
    let again = metadata.clone();
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("harmless");
    assert_eq!((&metadata.organisations, &metadata.names), (&again.organisations, &again.names));
}

#[test]
fn an_organisation_has_no_more_than_its_limits_and_takes_nothing_from_others() {
    let mut metadata = new_cluster(1);
    let limits = |topics, partitions, per_second| OrganisationLimits {
        topics_max: topics,
        partitions_max: partitions,
        creations_per_second_max: per_second,
    };
    set(&mut metadata, "acme", limits(Some(2), Some(5), None)).expect("a name");
    let full = |what: &str, would_be, max| {
        let (name, what) = ("acme".to_owned(), what.to_owned());
        Err(CommandRejection::OrganisationFull { name, what, would_be, max })
    };
    assert_eq!(create_in(&mut metadata, "acme", "a", 6, false), full("partitions", 6, 5));
    create_in(&mut metadata, "acme", "a", 2, false).expect("room");
    assert_eq!(create_in(&mut metadata, "acme", "b", 4, false), full("partitions", 6, 5));
    let second = create_in(&mut metadata, "acme", "b", 3, false).expect("room");
    assert_eq!(create_in(&mut metadata, "acme", "c", 1, false), full("topics", 3, 2));
    create(&mut metadata, "a", 9).expect("another organisation");
    run(&mut metadata, Command::DeleteTopic { topic: second }).expect("there");
    create_in(&mut metadata, "acme", "c", 3, false).expect("room again");

    set(&mut metadata, "acme", limits(None, None, Some(4))).expect("a name");
    create_in(&mut metadata, "acme", "d", 1, false).expect("the fourth in this second");
    let too_fast = Err(CommandRejection::OrganisationTooFast { name: "acme".to_owned(), max: 4 });
    assert_eq!(create_in(&mut metadata, "acme", "e", 1, false), too_fast);
    create(&mut metadata, "e", 1).expect("another organisation");
}

#[test]
fn an_organisation_is_removed_only_when_it_has_no_topic_and_changed_only_as_it_was_seen() {
    let mut metadata = new_cluster(1);
    set(&mut metadata, "acme", OrganisationLimits::default()).expect("a name");
    let topic = create_in(&mut metadata, "acme", "t", 1, false).expect("a topic");
    let remove = || Command::RemoveOrganisation { name: "acme".to_owned() };
    let refused = run(&mut metadata, remove());
    assert_eq!(refused, Err(CommandRejection::OrganisationHasTopics { name: "acme".to_owned(), topics: 1 }));
    run(&mut metadata, Command::DeleteTopic { topic }).expect("there");

    let seen = metadata.organisations["acme"].version;
    let limits = OrganisationLimits { topics_max: Some(1), ..OrganisationLimits::default() };
    let change = Command::SetOrganisation { name: "acme".to_owned(), limits };
    let change = |id, expect| Envelope { expect: Some(expect), ..envelope(id, change.clone()) };
    apply(&mut metadata, &change(1, seen)).expect("as it was seen");
    let current = metadata.organisations["acme"].version;
    assert_ne!(seen, current);
    let stale = apply(&mut metadata, &change(2, seen));
    assert_eq!(stale, Err(CommandRejection::VersionMismatch { expected: seen, current }));
    apply(&mut metadata, &change(3, current)).expect("the same again");
    let Organisation { limits: set_limits, version, .. } = metadata.organisations["acme"];
    assert_eq!((set_limits, version), (limits, current));

    run(&mut metadata, remove()).expect("empty");
    run(&mut metadata, remove()).expect("harmless");
    assert!(!metadata.organisations.contains_key("acme"));
    let refused = set(&mut metadata, "a/b", limits);
    assert_eq!(refused, Err(CommandRejection::InvalidOrganisationName { name: "a/b".to_owned() }));
}

#[test]
fn a_listener_of_kafka_is_told_once_all_members_know_such_and_is_found_by_its_name() {
    let listener = |name: &str, org: &str, address: &str| Listener {
        protocol: Protocol::Kafka,
        name: name.to_owned(),
        org: org.to_owned(),
        address: address.to_owned(),
    };
    let mut command = register(1);
    let Command::RegisterNode { listeners, .. } = &mut command else { unreachable!("it registers") };
    *listeners =
        vec![listener("kafka", "default", "h:9092"), listener("outside", "acme", "b.example.org:31092")];
    assert_eq!(command.level(), 7);
    let mut metadata = new_cluster(1);
    run(&mut metadata, command.clone()).expect("listeners");
    let node = &metadata.nodes[&NodeId(1)];
    assert_eq!(node.address_of(Protocol::Kafka, "kafka", "default"), Some("h:9092"));
    assert_eq!(node.address_of(Protocol::Kafka, "outside", "acme"), Some("b.example.org:31092"));
    assert_eq!(
        node.address_of(Protocol::Kafka, "outside", "default"),
        None,
        "a name means nothing in another organisation"
    );
    let Command::RegisterNode { listeners, .. } = &mut command else { unreachable!("it registers") };
    listeners[0].name = "a b".to_owned();
    let refused = run(&mut metadata, command);
    assert_eq!(refused, Err(CommandRejection::InvalidListenerName { name: "a b".to_owned() }));
}

fn disk(metadata: &Metadata, node: u32) -> ReplicaRef {
    ReplicaRef { node: NodeId(node), disk: metadata.nodes[&NodeId(node)].disk }
}

fn report(metadata: &mut Metadata, replica: ReplicaRef, topic: TopicId) -> Result<(), CommandRejection> {
    run(metadata, Command::ReportEmptied { replica, topics: vec![topic] }).map(drop)
}

/// The list of deleted topics once grew for ever.
#[test]
fn a_deleted_topic_is_forgotten_when_no_members_disk_has_anything_of_it() {
    let mut metadata = new_cluster(3);
    let topic = create(&mut metadata, "t", 1).expect("a topic");
    let [one, two, three] = [1, 2, 3].map(|node| disk(&metadata, node));
    report(&mut metadata, one, topic).expect("passed over: it is listed");
    run(&mut metadata, Command::DeleteTopic { topic }).expect("there");
    for replica in [one, two] {
        report(&mut metadata, replica, topic).expect("a member");
        report(&mut metadata, replica, topic).expect("harmless");
        assert!(metadata.deleted.contains(&topic));
    }
    let other = ReplicaRef { node: NodeId(3), disk: DiskId::from_u128(7) };
    assert_eq!(report(&mut metadata, other, topic), Err(CommandRejection::DiskGone { disk: other.disk }));
    assert!(metadata.deleted.contains(&topic), "node 3 was away and may have all of it");
    report(&mut metadata, three, topic).expect("a member");
    assert!(metadata.deleted.is_empty() && metadata.emptied.is_empty());
    report(&mut metadata, three, topic).expect("passed over: it is forgotten");
    assert!(metadata.emptied.is_empty());
    assert!(metadata.clone() == Metadata::from_snapshot(&metadata.to_snapshot()).expect("a snapshot"));
}

#[test]
fn a_disk_that_is_taken_out_is_not_waited_for() {
    let mut metadata = new_cluster(2);
    let topic = create(&mut metadata, "t", 1).expect("a topic");
    run(&mut metadata, Command::DeleteTopic { topic }).expect("there");
    let (one, two) = (disk(&metadata, 1), disk(&metadata, 2));
    report(&mut metadata, one, topic).expect("a member");
    let remove = Command::RemoveNode { node: two.node, disk: two.disk, lost: true, replaced_by: None };
    run(&mut metadata, remove).expect("a member");
    assert!(metadata.deleted.is_empty() && metadata.emptied.is_empty());
}

#[test]
fn creations_are_counted_in_the_latest_second() {
    let mut metadata = new_cluster(1);
    let limits = OrganisationLimits { creations_per_second_max: Some(1), ..OrganisationLimits::default() };
    set(&mut metadata, DEFAULT_ORG, limits).expect("a name");
    create(&mut metadata, "a", 1).expect("the first");
    assert!(create(&mut metadata, "b", 1).is_err());
    let topic = TopicId(Uuid::new_v4());
    let first = first_descriptor(
        &metadata,
        &Default::default(),
        (topic, 0, SegmentId(Uuid::new_v4())),
        &everybody(&metadata),
    );
    let (org, name) = (DEFAULT_ORG.to_owned(), "b".to_owned());
    let create = Command::CreateTopic {
        topic,
        org,
        name,
        internal: false,
        config: BTreeMap::new(),
        first: first.into_iter().collect(),
    };
    apply(&mut metadata, &Envelope { at_ms: NOW_MS + 1_000, ..envelope(9, create) })
        .expect("the next second");
}
