//! Settings of topics: what is stored, what is refused, what is in force.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use uuid::Uuid;
use walrus_metadata::rolling::{Limits, Reason};
use walrus_metadata::{
    Answer, BATCH_BYTES_MAX, Command, CommandRejection, CompactionPolicy, DEFINITIONS, Envelope, Fallback,
    Metadata, SettingProblem, Source, Timestamps, TopicConfig, Values, apply, first_descriptor,
    reason_to_roll, successor,
};
use walrus_model::{FsyncSchedule, Replication, SegmentId, TopicId};

use crate::cluster::{cluster_of, create, envelope, everybody, run, seal};

const NODE: Limits = Limits { entries_max: 1_000, bytes_max: 2_000, age_max: None, age_min: Duration::ZERO };

fn named(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn alter(
    metadata: &mut Metadata,
    topic: TopicId,
    set: &[(&str, &str)],
    unset: &[&str],
) -> Result<u64, CommandRejection> {
    let command = Command::AlterTopic { topic, set: named(set), unset: names(unset) };
    run(metadata, command).map(|applied| match applied.answer {
        Answer::Config { version } => version,
        other => panic!("{other:?}"),
    })
}

/// A cluster of so many nodes whose segments have as many copies, with one topic.
fn with_topic(nodes: u32, write_quorum: u32) -> (Metadata, TopicId) {
    let mut metadata = cluster_of(nodes.into());
    let replication = Replication { factor: nodes, write_quorum };
    run(&mut metadata, Command::SetReplication { replication }).expect("sound");
    run(&mut metadata, Command::RaiseLevel { level: walrus_metadata::LEVEL }).expect("all know it");
    let topic = create(&mut metadata, "t", 1).expect("new");
    (metadata, topic)
}

fn in_force(metadata: &Metadata, topic: TopicId, name: &str) -> (String, Source) {
    let config = &metadata.topics[&topic].config;
    let all =
        config.in_force(&metadata.config.entries, metadata.replication, (NODE, FsyncSchedule::SyncEach));
    let found = all.into_iter().find(|setting| setting.definition.name == name).expect("a setting");
    (found.value, found.source)
}

#[test]
fn every_setting_is_listed_once_in_order_and_takes_its_own_default() {
    assert!(DEFINITIONS.is_sorted_by(|left, right| left.name < right.name));
    let (mut metadata, topic) = with_topic(1, 1);
    for definition in &DEFINITIONS {
        if let Fallback::Value(value) = definition.default {
            let set = alter(&mut metadata, topic, &[(definition.name, value)], &[]);
            assert!(set.is_ok(), "{}: {set:?}", definition.name);
            assert_eq!(in_force(&metadata, topic, definition.name), (value.to_owned(), Source::Topic));
        }
    }
    assert_eq!(metadata.topics[&topic].config.settings().batch_bytes_max, BATCH_BYTES_MAX);
}

#[test]
fn a_change_counts_once_whatever_form_its_values_have_and_compares_with_the_topics_own_version() {
    let (mut metadata, topic) = with_topic(1, 1);
    let first = alter(&mut metadata, topic, &[("segment.ms", " 0060000 "), ("preallocate", "TRUE")], &[]);
    let first = first.expect("sound");
    assert_eq!(
        metadata.topics[&topic].config.values,
        named(&[("segment.ms", "60000"), ("preallocate", "true")])
    );
    create(&mut metadata, "another", 1).expect("what else changes does not matter");
    assert_eq!(alter(&mut metadata, topic, &[("segment.ms", "60000")], &["flush.ms"]), Ok(first));

    let expecting = |expect, id| Envelope {
        expect: Some(expect),
        ..envelope(
            id,
            Command::AlterTopic { topic, set: named(&[]), unset: names(&["segment.ms", "preallocate"]) },
        )
    };
    let stale = apply(&mut metadata, &expecting(0, 901));
    assert_eq!(stale, Err(CommandRejection::VersionMismatch { expected: 0, current: first }));
    apply(&mut metadata, &expecting(first, 902)).expect("the version that is there");
    let config = &metadata.topics[&topic].config;
    assert!(config.values.is_empty() && config.version > first, "{config:?}");
    let restored = Metadata::from_snapshot(&metadata.to_snapshot()).expect("our own snapshot");
    assert_eq!(restored, metadata);
}

#[test]
fn a_wrong_name_or_value_is_told_with_what_would_be_right_and_changes_nothing() {
    let (mut metadata, topic) = with_topic(1, 1);
    alter(&mut metadata, topic, &[("segment.bytes", "4096")], &[]).expect("sound");
    let long = "x".repeat(5_000);
    let many = (0..17).map(|reader| reader.to_string()).collect::<Vec<_>>().join(",");
    let wrong: [(&str, &str, &str); 20] = [
        ("segmnt.bytes", "1", "there is no such setting; the nearest name is segment.bytes"),
        ("retention.mss", "1", "there is no such setting; the nearest name is retention.ms"),
        (&long, "1", "there is no such setting"),
        ("", "1", "there is no such setting"),
        (
            "walrus.retention.pinned",
            "a,,b",
            "it takes at most 16 names of readers with commas between them, each of 1 to 249 bytes, not \"a,,b\"",
        ),
        ("walrus.retention.consumed", &long, "it takes at most 16 names of readers"),
        ("walrus.retention.consumed", &many, "it takes at most 16 names of readers"),
        ("cleanup.policy", "compact,", "it takes one or more of compact, delete"),
        ("cleanup.policy", "", "it takes one or more of compact, delete"),
        (
            "cleanup.policy",
            "compact,shred",
            "it takes one or more of compact, delete, each once with commas between them, not \"compact,shred\"",
        ),
        ("min.cleanable.dirty.ratio", "1.01", "it takes a number from 0 to 1, not \"1.01\""),
        ("min.cleanable.dirty.ratio", "NaN", "it takes a number from 0 to 1"),
        ("segment.bytes", "0", "it takes whole numbers from 1 to 1125899906842624, not \"0\""),
        ("segment.bytes", "1.5", "it takes whole numbers from 1 to 1125899906842624, not \"1.5\""),
        ("max.message.bytes", "25165825", "it takes whole numbers from 1 to 25165824, not \"25165825\""),
        (
            "compression.type",
            &long,
            "it takes one of producer, uncompressed, gzip, snappy, lz4, zstd, not \"xx",
        ),
        (
            "unclean.leader.election.enable",
            "true",
            "it takes only false, not \"true\": a leader without all acknowledged records would lose them",
        ),
        ("remote.storage.enable", "yes", "it takes only false, not \"yes\": segments are not moved"),
        ("walrus.fsync", "0ms", "\"0ms\" is not each, never or <n>ms, from 1ms to 86400000ms"),
        ("leader.replication.throttled.replicas", &long, "it takes at most 1000 bytes, not 5000"),
    ];
    let before = metadata.topics.clone();
    for (name, value, told) in wrong {
        let refused = alter(&mut metadata, topic, &[("flush.ms", "1"), (name, value)], &[]).unwrap_err();
        let CommandRejection::InvalidTopicConfig { name: shown, problem } = &refused else {
            panic!("{refused:?}")
        };
        assert!(name.starts_with(shown.as_str()) && shown.len() <= 100, "{shown}");
        assert!(problem.to_string().starts_with(told), "{name}: {problem}");
        assert!(refused.to_string().len() < 400, "{refused}");
        assert_eq!(metadata.topics, before);
    }
    let both = alter(&mut metadata, topic, &[("segment.bytes", "1")], &["segment.bytes"]);
    let name = "segment.bytes".to_owned();
    let problem = SettingProblem::SetAndUnset;
    assert_eq!(both, Err(CommandRejection::InvalidTopicConfig { name, problem }));
    assert!(alter(&mut metadata, topic, &[], &["segmnt.bytes"]).is_err());
    let missing = TopicId(Uuid::new_v4());
    assert_eq!(
        alter(&mut metadata, missing, &[], &[]),
        Err(CommandRejection::UnknownTopic { topic: missing })
    );
    assert_eq!(metadata.topics, before);
}

#[test]
fn a_topic_with_a_wrong_setting_is_not_created() {
    let (mut metadata, _) = with_topic(1, 1);
    let topic = TopicId(Uuid::new_v4());
    let place = (topic, 0, SegmentId(Uuid::new_v4()));
    let first = first_descriptor(&metadata, &Default::default(), place, &everybody(&metadata));
    let create = |config| Command::CreateTopic {
        topic,
        org: "default".into(),
        name: "new".into(),
        internal: false,
        config,
        first: first.clone().into_iter().collect(),
    };
    let before = metadata.topics.clone();
    let refused = run(&mut metadata, create(named(&[("segment.bytes", "many")])));
    assert!(matches!(refused, Err(CommandRejection::InvalidTopicConfig { .. })), "{refused:?}");
    assert_eq!(metadata.topics, before);
    run(&mut metadata, create(named(&[("segment.bytes", "+7")]))).expect("sound");
    let config = &metadata.topics[&topic].config;
    assert_eq!((config.values.clone(), config.version), (named(&[("segment.bytes", "7")]), metadata.version));
}

#[test]
fn what_the_topic_does_not_set_is_the_clusters_then_the_nodes_then_built_in() {
    let (mut metadata, topic) = with_topic(3, 2);
    let is = |value: &str, source| (value.to_owned(), source);
    assert_eq!(in_force(&metadata, topic, "walrus.segment.entries"), is("1000", Source::Node));
    assert_eq!(in_force(&metadata, topic, "segment.ms"), is("9223372036854775807", Source::Node));
    assert_eq!(in_force(&metadata, topic, "min.insync.replicas"), is("2", Source::Cluster));
    assert_eq!(in_force(&metadata, topic, "max.message.bytes"), is("25165824", Source::BuiltIn));
    assert_eq!(in_force(&metadata, topic, "walrus.fsync"), is("each", Source::Node));
    let set = [("segments.max_entries".to_owned(), 5)].into();
    run(&mut metadata, Command::SetConfig { set, unset: BTreeSet::new() }).expect("a setting");
    // Each node's limits follow the cluster's settings.
    let node = Limits { entries_max: 5, ..NODE };
    let all = metadata.topics[&topic].config.in_force(
        &metadata.config.entries,
        metadata.replication,
        (node, FsyncSchedule::SyncEach),
    );
    let entries = all.iter().find(|setting| setting.definition.name == "walrus.segment.entries");
    assert_eq!(entries.map(|found| (found.value.as_str(), found.source)), Some(("5", Source::Cluster)));

    let set = [("walrus.segment.entries", "9"), ("segment.ms", "50"), ("min.insync.replicas", "3")];
    alter(&mut metadata, topic, &set, &[]).expect("sound");
    let settings = metadata.topics[&topic].config.settings();
    let expected = Limits { entries_max: 9, age_max: Some(Duration::from_millis(50)), ..NODE };
    assert_eq!(settings.limits(node), expected);
    assert_eq!(in_force(&metadata, topic, "segment.ms"), is("50", Source::Topic));
    assert_eq!(in_force(&metadata, topic, "min.insync.replicas"), is("3", Source::Topic));
}

#[test]
fn a_topics_quorum_is_a_majority_at_least_and_all_copies_at_most() {
    for (factor, of_cluster, wanted, quorum) in
        [(3, 2, 1, 2), (3, 2, 3, 3), (3, 2, 9, 3), (3, 3, 1, 2), (5, 3, 4, 4), (2, 1, 1, 2), (1, 1, 9, 1)]
    {
        let (mut metadata, topic) = with_topic(factor, of_cluster);
        alter(&mut metadata, topic, &[("min.insync.replicas", &wanted.to_string())], &[]).expect("sound");
        let next = successor(&metadata, topic, 0, SegmentId(Uuid::new_v4()), &[], &everybody(&metadata));
        let next = next.expect("all nodes are up");
        assert_eq!((next.write_quorum, next.replicas.len()), (quorum, factor as usize), "{factor} {wanted}");
    }
}

#[test]
fn raising_a_topics_quorum_ends_its_open_segment_once_and_lowering_it_does_not() {
    let (mut metadata, topic) = with_topic(3, 2);
    let reason = |metadata: &Metadata| reason_to_roll(metadata, topic, 0, &everybody(metadata));
    alter(&mut metadata, topic, &[("min.insync.replicas", "1")], &[]).expect("sound");
    assert_eq!(reason(&metadata), None, "the quorum is what it was");
    alter(&mut metadata, topic, &[("min.insync.replicas", "3")], &[]).expect("sound");
    assert_eq!(reason(&metadata), Some(Reason::Quorum));
    let two: Vec<_> = metadata.nodes.keys().take(2).copied().collect();
    let present = walrus_metadata::Present::only(two);
    assert_eq!(reason_to_roll(&metadata, topic, 0, &present), None, "two nodes cannot give three disks");
    seal(&mut metadata, topic, 10);
    assert_eq!(reason(&metadata), None, "the next segment has it");
    alter(&mut metadata, topic, &[], &["min.insync.replicas"]).expect("sound");
    assert_eq!(reason(&metadata), None);
}

#[test]
fn a_topics_schedule_of_syncs_is_fixed_with_each_segment() {
    let (mut metadata, topic) = with_topic(1, 1);
    let next = |metadata: &Metadata| {
        successor(metadata, topic, 0, SegmentId(Uuid::new_v4()), &[], &everybody(metadata)).expect("it is up")
    };
    assert_eq!(next(&metadata).fsync, None);
    for (value, schedule) in [("never", FsyncSchedule::NoFsync), ("each", FsyncSchedule::SyncEach)] {
        alter(&mut metadata, topic, &[("walrus.fsync", value)], &[]).expect("sound");
        assert_eq!(next(&metadata).fsync, Some(schedule));
    }
    let restored = Metadata::from_snapshot(&metadata.to_snapshot()).expect("our own snapshot");
    assert_eq!(next(&restored).fsync, Some(FsyncSchedule::SyncEach));
    let as_json = serde_json::to_value(next(&metadata)).expect("plain data");
    assert_eq!(as_json["fsync"], "each");
}

#[test]
fn whose_time_records_have_is_the_producers_within_bounds_or_the_leaders() {
    let (mut metadata, topic) = with_topic(1, 1);
    let mut set = |entries: &[(&str, &str)]| {
        alter(&mut metadata, topic, entries, &[]).expect("sound");
        metadata.topics[&topic].config.settings().timestamps
    };
    let created = |before_ms_max, after_ms_max| Timestamps::Created { before_ms_max, after_ms_max };
    assert_eq!(set(&[]), created(None, None));
    assert_eq!(set(&[("message.timestamp.before.max.ms", "7")]), created(Some(7), None));
    assert_eq!(set(&[("message.timestamp.after.max.ms", "0")]), created(Some(7), Some(0)));
    assert_eq!(
        set(&[("message.timestamp.before.max.ms", "9223372036854775807")]),
        created(None, Some(0)),
        "Kafka's word for no bound"
    );
    assert_eq!(set(&[("message.timestamp.type", "logappendtime")]), Timestamps::Appended);
    assert_eq!(set(&[("message.timestamp.type", "CreateTime")]), created(None, Some(0)));
    let refused = alter(&mut metadata, topic, &[("message.timestamp.type", "Never")], &[]).unwrap_err();
    assert!(refused.to_string().contains("CreateTime, LogAppendTime"), "{refused}");
    let set = named(&[("message.timestamp.type", "CreateTime")]);
    assert_eq!(Command::AlterTopic { topic, set, unset: names(&[]) }.level(), 7);
}

#[test]
fn a_topic_says_how_its_records_go_and_only_then_is_compacted() {
    let (mut metadata, topic) = with_topic(1, 1);
    let mut set = |entries: &[(&str, &str)]| {
        alter(&mut metadata, topic, entries, &[]).expect("sound");
        metadata.topics[&topic].config.clone()
    };
    let untouched = set(&[("retention.ms", "5"), ("max.compaction.lag.ms", "70"), ("segment.ms", "90")]);
    assert_eq!((untouched.compaction(), untouched.retention().age_ms), (None, Some(5)));
    assert_eq!(untouched.settings().segment_age_ms_max, Some(90));
    let compacted = set(&[("cleanup.policy", "Compact")]);
    let policy = CompactionPolicy {
        tombstone_delay_ms: 86_400_000,
        lag_min_ms: 0,
        lag_max_ms: 70,
        dirty_share_min: 0.5,
    };
    assert_eq!((compacted.compaction(), compacted.retention().age_ms), (Some(policy), None));
    assert_eq!(compacted.settings().segment_age_ms_max, Some(70), "a record is looked at in time");
    let both = set(&[
        ("cleanup.policy", " delete, compact"),
        ("min.compaction.lag.ms", "3"),
        ("delete.retention.ms", "4"),
        ("min.cleanable.dirty.ratio", "0"),
    ]);
    let policy =
        CompactionPolicy { tombstone_delay_ms: 4, lag_min_ms: 3, lag_max_ms: 70, dirty_share_min: 0.0 };
    assert_eq!((both.compaction(), both.retention().age_ms), (Some(policy), Some(5)));
    assert_eq!(both.values["cleanup.policy"], "compact,delete");
    let set = named(&[("cleanup.policy", "compact")]);
    assert_eq!(Command::AlterTopic { topic, set, unset: names(&[]) }.level(), 7);
}

/// `docs/reference/topics.md` has this table; whoever changes a setting changes the page.
#[test]
fn the_reference_lists_every_setting_with_what_it_takes_and_does() {
    let page = include_str!("../../../../../docs/reference/topics.md");
    for definition in &DEFINITIONS {
        let values = match definition.values {
            Values::Whole { min, max: i64::MAX } => format!("whole numbers from {min}"),
            Values::Whole { min, max } => format!("whole numbers from {min} to {max}"),
            Values::OneOf(words) => {
                words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
            }
            Values::SomeOf(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                format!("{}, or several with commas between them", words.join(", "))
            }
            Values::Share => "a number from 0 to 1".to_owned(),
            Values::OnlyFalse(_) => "`false`".to_owned(),
            Values::Schedule => "`each`, `never`, `<n>ms` up to `86400000ms`".to_owned(),
            Values::Text(bytes_max) => format!("text of at most {bytes_max} bytes"),
            Values::Readers => "at most 16 names with commas between them".to_owned(),
        };
        let default = match definition.default {
            Fallback::Value("9223372036854775807") if definition.name.starts_with("message.timestamp.") => {
                "any distance".to_owned()
            }
            Fallback::Value("9223372036854775807") => "never".to_owned(),
            Fallback::Value("") => "empty".to_owned(),
            Fallback::Value(value) => format!("`{value}`"),
            Fallback::ClusterSetting(key) => format!("`{key}` of the cluster, else the node's option"),
            Fallback::NodeOption(option) => format!("the node's option `{option}`"),
            Fallback::WriteQuorum => "the cluster's write quorum".to_owned(),
            Fallback::Factor => "the cluster's number of copies".to_owned(),
        };
        let row = format!("| `{}` | {values} | {default} | {} |", definition.name, definition.what);
        assert!(page.lines().any(|line| line == row), "the page lacks this line:\n{row}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, DEFINITIONS.len(), "the page has a setting that there is not");
}

proptest! {
    /// Whatever is set and unset in whatever order, the topic has what a plain map would have, and its version tells when that
    /// last became different.
    #[test]
    fn settings_are_what_the_last_changes_made_them(
        changes in prop::collection::vec(prop::collection::btree_map(0..4_usize, prop::option::of(1..4_u64), 0..4), 1..20)
    ) {
        const NAMES: [&str; 4] = ["segment.bytes", "segment.ms", "flush.ms", "max.message.bytes"];
        let (mut metadata, topic) = with_topic(1, 1);
        let (mut plain, mut version) = (BTreeMap::new(), 0);
        for change in changes {
            let (mut set, mut unset, before) = (Vec::new(), Vec::new(), plain.clone());
            for (place, value) in change {
                let name = NAMES[place];
                match value {
                    Some(value) => {
                        plain.insert(name.to_owned(), value.to_string());
                        set.push((name, value.to_string()));
                    }
                    None => {
                        plain.remove(name);
                        unset.push(name);
                    }
                }
            }
            let set: Vec<(&str, &str)> = set.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let answered = alter(&mut metadata, topic, &set, &unset).expect("sound");
            if plain != before {
                version = metadata.version;
            }
            prop_assert_eq!(answered, version);
            prop_assert_eq!(&metadata.topics[&topic].config, &TopicConfig { version, values: plain.clone() });
            prop_assert!(metadata.topics[&topic].config.has(&plain));
        }
    }
}
