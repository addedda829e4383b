//! Names of topics, their limits, their ends.

use std::collections::BTreeMap;

use uuid::Uuid;
use walrus_metadata::{Command, CommandRejection, Envelope, LEVEL, apply, first_descriptor};
use walrus_model::{SegmentId, TopicId};

use crate::cluster::{NOW_MS, cluster_of, create, envelope, everybody, run};

/// Without limits four requests made 40,000 partitions.
#[test]
fn topics_and_partitions_have_limits() {
    let mut metadata = cluster_of(1);
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    let limits = [("topics.partitions_max", 10), ("topics.creations_per_second_max", 3)];
    let set = limits.map(|(key, value)| (key.to_owned(), value)).into();
    run(&mut metadata, Command::SetConfig { set, unset: Default::default() }).expect("settings");
    create(&mut metadata, "a", 4).expect("room");
    let state = metadata.topics.clone();
    assert_eq!(
        create(&mut metadata, "b", 7),
        Err(CommandRejection::TooManyPartitions { would_be: 11, max: 10 })
    );
    assert_eq!(metadata.topics, state);
    create(&mut metadata, "b", 4).expect("room");
    create(&mut metadata, "c", 1).expect("room");
    assert_eq!(create(&mut metadata, "d", 1), Err(CommandRejection::TooManyCreations { max: 3 }));
    let topic = TopicId(Uuid::new_v4());
    let first = first_descriptor(
        &metadata,
        &Default::default(),
        (topic, 0, SegmentId(Uuid::new_v4())),
        &everybody(&metadata),
    )
    .expect("a node");
    let create = |name: &str, internal| Command::CreateTopic {
        topic,
        org: "default".into(),
        name: name.into(),
        internal,
        config: BTreeMap::new(),
        first: vec![first.clone()],
    };
    let later = Envelope { at_ms: NOW_MS + 1_000, ..envelope(80, create("d", false)) };
    apply(&mut metadata.clone(), &later).expect("another second");
    run(&mut metadata, create("__own", true)).expect("Walrus's own are never refused");
}

/// Requests that went in turn to two nodes whose clocks were a second apart were once not limited at all.
#[test]
fn clocks_that_differ_share_one_limit_of_creations_and_one_that_is_far_ahead_holds_up_nobody() {
    let mut metadata = cluster_of(1);
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    let set = [("topics.creations_per_second_max".to_owned(), 3)].into();
    run(&mut metadata, Command::SetConfig { set, unset: Default::default() }).expect("settings");
    let mut create_at = |name: &str, at_ms: u64| {
        let topic = TopicId(Uuid::new_v4());
        let first = first_descriptor(
            &metadata,
            &Default::default(),
            (topic, 0, SegmentId(Uuid::new_v4())),
            &everybody(&metadata),
        );
        let (org, name) = ("default".to_owned(), name.to_owned());
        let command = Command::CreateTopic {
            topic,
            org,
            name,
            internal: false,
            config: BTreeMap::new(),
            first: first.into_iter().collect(),
        };
        apply(&mut metadata, &Envelope { at_ms, ..envelope(Uuid::new_v4().as_u128(), command) }).map(drop)
    };
    let refused = Err(CommandRejection::TooManyCreations { max: 3 });
    for (name, ms) in [("a", 0), ("b", 1_000), ("c", 0)] {
        create_at(name, NOW_MS + ms).expect("room");
    }
    create_at("d", NOW_MS + 1_000).expect("the third in that second");
    for ms in [0, 1_000] {
        assert_eq!(create_at("e", NOW_MS + ms), refused);
    }
    create_at("e", NOW_MS + 2_000).expect("the next");
    create_at("f", NOW_MS + 3_600_000).expect("a clock that is an hour ahead");
    for name in ["g", "h", "i"] {
        create_at(name, NOW_MS + 3_000).expect("it is not waited for");
    }
    assert_eq!(create_at("j", NOW_MS + 3_000), refused);
}

#[test]
fn topic_names_follow_kafkas_rule_and_are_unique() {
    let mut metadata = cluster_of(1);
    for name in ["", ".", "..", "a b", "a/b", "ü", &"x".repeat(250)] {
        let refused = create(&mut metadata, name, 1);
        assert_eq!(refused, Err(CommandRejection::InvalidTopicName { name: name.to_owned() }));
    }
    let topic = create(&mut metadata, &"x".repeat(249), 3).expect("the longest name");
    let again = create(&mut metadata, &"x".repeat(249), 3);
    assert_eq!(again, Err(CommandRejection::TopicExists { name: "x".repeat(249), topic }));
}

#[test]
fn a_deleted_topic_leaves_a_mark_and_its_name_can_be_used_for_another_topic() {
    let mut metadata = cluster_of(1);
    let first = create(&mut metadata, "t", 1).expect("new");
    run(&mut metadata, Command::DeleteTopic { topic: first }).expect("there");
    let second = create(&mut metadata, "t", 1).expect("free again");
    assert_ne!(first, second);
    assert!(metadata.deleted.contains(&first));
    assert!(!metadata.deleted.contains(&second));
}
