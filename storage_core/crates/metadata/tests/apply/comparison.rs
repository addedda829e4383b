//! Topics as somebody wants them beside what there is.

use std::collections::{BTreeMap, BTreeSet};

use walrus_metadata::{
    Command, ComparedTopic, FoundTopic, LEVEL, Metadata, NodeLimits, SettingDifference, WantedTopic,
    compare_topics,
};
use walrus_model::{NodeId, TopicId};

use crate::cluster::{cluster_of, create, run};

fn named(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn node() -> NodeLimits {
    let fsync = "5ms".to_owned();
    NodeLimits { segment_entries_max: 1_000, segment_bytes_max: 2_000, segment_age_ms_max: 0, fsync }
}

fn compare(metadata: &Metadata, name: &str, config: &[(&str, &str)]) -> ComparedTopic {
    let wanted = WantedTopic { org: "default".to_owned(), name: name.to_owned(), config: named(config) };
    compare_topics(metadata, &node(), &[wanted]).remove(0)
}

fn found(metadata: &Metadata, config: &[(&str, &str)]) -> FoundTopic {
    compare(metadata, "t", config).found.expect("it is there")
}

fn difference(name: &str, wanted: Option<&str>, found: Option<&str>) -> SettingDifference {
    let [wanted, found] = [wanted, found].map(|value| value.map(str::to_owned));
    SettingDifference { name: name.to_owned(), wanted, found }
}

/// A topic of three partitions that sets these.
fn with_topic(config: &[(&str, &str)]) -> (Metadata, TopicId) {
    let mut metadata = cluster_of(2);
    run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
    let topic = create(&mut metadata, "t", 3).expect("new");
    let command = Command::AlterTopic { topic, set: named(config), unset: BTreeSet::new() };
    run(&mut metadata, command).expect("sound");
    (metadata, topic)
}

#[test]
fn a_topic_that_is_not_there_is_none_and_its_settings_are_looked_at_all_the_same() {
    let metadata = cluster_of(1);
    assert_eq!(compare(&metadata, "t", &[]), ComparedTopic { refused: None, found: None });
    let told = compare(&metadata, "t", &[("retention.mss", "1")]).refused.expect("no such setting");
    assert_eq!(
        told,
        "topic setting retention.mss: there is no such setting; the nearest name is retention.ms"
    );
}

#[test]
fn what_is_wanted_and_not_there_or_there_and_not_wanted_differs_and_another_spelling_does_not() {
    let (metadata, topic) = with_topic(&[("retention.ms", "5"), ("cleanup.policy", "delete,compact")]);
    let alike = found(&metadata, &[("retention.ms", " 5 "), ("cleanup.policy", "COMPACT,delete")]);
    assert_eq!((alike.topic, alike.partitions, alike.differences), (topic, 3, Vec::new()));
    let other = found(&metadata, &[("retention.ms", "6"), ("segment.ms", "7")]);
    assert_eq!(
        other.differences,
        [
            difference("cleanup.policy", None, Some("compact,delete")),
            difference("retention.ms", Some("6"), Some("5")),
            difference("segment.ms", Some("7"), None),
        ]
    );
}

#[test]
fn settings_that_cannot_be_differ_in_nothing() {
    let (metadata, _) = with_topic(&[("retention.ms", "5")]);
    let told = compare(&metadata, "t", &[("retention.ms", "soon")]);
    assert!(told.refused.expect("no number").contains("retention.ms"));
    assert_eq!(told.found.expect("it is there").differences, []);
}

#[test]
fn settings_are_told_as_they_are_in_force_but_for_those_that_never_act() {
    let (metadata, _) = with_topic(&[("retention.ms", "5"), ("compression.type", "zstd")]);
    let told = found(&metadata, &[]);
    let of = |name: &str| {
        let line = told.settings.iter().find(|line| line.name == name);
        line.map(|line| (line.value.as_str(), line.source))
    };
    assert_eq!(of("retention.ms"), Some(("5", "topic")));
    assert_eq!(of("compression.type"), Some(("zstd", "topic")));
    assert_eq!(of("walrus.segment.entries"), Some(("1000", "node")));
    assert_eq!(of("walrus.fsync"), Some(("5ms", "node")));
    assert_eq!(of("min.insync.replicas"), Some(("1", "cluster")));
    assert_eq!(of("retention.bytes"), Some(("-1", "built_in")));
    assert_eq!(of("preallocate"), None);
    assert_eq!((told.factor, told.write_quorum), (1, 1));
}

#[test]
fn leaders_are_counted_by_node() {
    let (metadata, _) = with_topic(&[]);
    let leaders = found(&metadata, &[]).leaders;
    assert_eq!(leaders.values().sum::<u32>(), 3);
    assert_eq!(leaders.keys().copied().collect::<Vec<_>>(), [NodeId(1), NodeId(2)]);
}

#[test]
fn a_topic_of_another_organisation_is_not_meant() {
    let (metadata, _) = with_topic(&[]);
    let wanted = WantedTopic { org: "acme".to_owned(), name: "t".to_owned(), config: BTreeMap::new() };
    assert_eq!(compare_topics(&metadata, &node(), &[wanted])[0].found, None);
}
