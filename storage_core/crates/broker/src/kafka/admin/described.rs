//! Settings as Kafka's tools show them: of topics as they are in force, and those of brokers that tools look for.

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsSynonym,
};
use kafka_protocol::protocol::StrBytes;
use walrus_metadata::{Effect, SettingInForce, Source, Values};

use crate::groups;
use crate::kafka::context::Context;
use crate::kafka::creation;
use crate::kafka::groups::METADATA_BYTES_MAX;
use crate::node::patience;

/// The first version of DescribeConfigs that tells types and documentation.
pub(super) const TYPES_SINCE: i16 = 3;

const OF_TOPIC: i8 = 1;
const OF_ALL_BROKERS: i8 = 3;
const OF_BROKER_FILE: i8 = 4;
const BUILT_IN: i8 = 5;

const BOOLEAN: i8 = 1;
const STRING: i8 = 2;
const LONG: i8 = 5;
const DOUBLE: i8 = 6;
const LIST: i8 = 7;

/// Where a value comes from, by Kafka's number.
pub(super) fn source(source: Source) -> i8 {
    match source {
        Source::Topic => OF_TOPIC,
        Source::Cluster => OF_ALL_BROKERS,
        Source::Node => OF_BROKER_FILE,
        Source::BuiltIn => BUILT_IN,
    }
}

pub(super) fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

/// What a client wants to be told of settings.
#[derive(Clone, Copy)]
pub(super) struct Wish<'a> {
    pub(super) version: i16,
    pub(super) names: Option<&'a [StrBytes]>,
    pub(super) synonyms: bool,
    pub(super) documentation: bool,
}

impl Wish<'_> {
    fn names(&self, name: &str) -> bool {
        self.names.is_none_or(|names| names.is_empty() || names.iter().any(|wanted| wanted.as_str() == name))
    }

    fn row(
        &self,
        name: &str,
        value: String,
        kind: i8,
        from: i8,
        what: &str,
    ) -> DescribeConfigsResourceResult {
        let synonym = || {
            DescribeConfigsSynonym::default()
                .with_name(text(name))
                .with_value(Some(text(value.clone())))
                .with_source(from)
        };
        let synonyms = if self.synonyms { vec![synonym()] } else { Vec::new() };
        let row = DescribeConfigsResourceResult::default()
            .with_name(text(name))
            .with_config_source(from)
            .with_synonyms(synonyms)
            .with_value(Some(text(value)));
        if self.version < TYPES_SINCE {
            return row;
        }
        row.with_config_type(kind).with_documentation(self.documentation.then(|| text(what)))
    }
}

/// The settings of a topic.
pub(super) fn of_topic(wish: Wish<'_>, settings: &[SettingInForce]) -> Vec<DescribeConfigsResourceResult> {
    let wanted = settings.iter().filter(|setting| wish.names(setting.definition.name));
    let row = |setting: &SettingInForce| {
        let definition = setting.definition;
        let kind = match definition.values {
            Values::Whole { .. } => LONG,
            Values::OneOf(words) if words == ["false", "true"] || words == ["true", "false"] => BOOLEAN,
            Values::OnlyFalse(_) => BOOLEAN,
            Values::OneOf(_) | Values::Text(_) | Values::Schedule => STRING,
            Values::SomeOf(_) | Values::Readers => LIST,
            Values::Share => DOUBLE,
        };
        let without_effect = if definition.effect == Effect::Never { " It has no effect here." } else { "" };
        let what = format!("{}{without_effect}", definition.what);
        wish.row(definition.name, setting.value.clone(), kind, source(setting.source), &what)
    };
    wanted.map(row).collect()
}

/// What a broker says of itself, for tools that look for it. None of it can be changed over Kafka's protocol.
pub(super) fn of_broker(context: &Context, wish: Wish<'_>) -> Vec<DescribeConfigsResourceResult> {
    let cluster = context.broker.cluster();
    let metadata = &cluster.routing().metadata;
    let config = cluster.config();
    let is_set =
        |name: &str| if metadata.config.entries.contains_key(name) { OF_ALL_BROKERS } else { BUILT_IN };
    let mut rows: BTreeMap<&str, (String, i8, i8, &str)> = BTreeMap::new();
    let mut tell = |name, value: String, kind, from, what| drop(rows.insert(name, (value, kind, from, what)));
    let makes = config.auto_create_topics && context.listener.principal.may_change_topics();
    tell(
        "auto.create.topics.enable",
        makes.to_string(),
        BOOLEAN,
        OF_BROKER_FILE,
        "Whether this listener makes topics that a client names.",
    );
    tell(
        "delete.topic.enable",
        context.listener.principal.may_change_topics().to_string(),
        BOOLEAN,
        OF_BROKER_FILE,
        "Whether this listener deletes topics.",
    );
    tell(
        "num.partitions",
        metadata.config.partitions_default().to_string(),
        LONG,
        is_set("topics.partitions_default"),
        "Partitions of a topic that names no number: the cluster's setting topics.partitions_default.",
    );
    tell(
        "default.replication.factor",
        metadata.replication.factor.to_string(),
        LONG,
        OF_ALL_BROKERS,
        "Copies of a topic that names no number.",
    );
    tell(
        "min.insync.replicas",
        metadata.replication.write_quorum.to_string(),
        LONG,
        OF_ALL_BROKERS,
        "Disks that have a record before it is acknowledged.",
    );
    tell(
        "message.max.bytes",
        creation::default_of("max.message.bytes").to_owned(),
        LONG,
        BUILT_IN,
        "Bytes of a batch, in topics that are made over this protocol.",
    );
    tell(
        "log.retention.ms",
        creation::default_of("retention.ms").to_owned(),
        LONG,
        BUILT_IN,
        "Age of records that go, in topics that are made over this protocol.",
    );
    tell("log.cleanup.policy", "delete".to_owned(), LIST, BUILT_IN, "How topics let records go.");
    tell(
        "inter.broker.protocol.version",
        PROTOCOL_VERSION.to_owned(),
        STRING,
        BUILT_IN,
        "The version of Kafka that comes closest to what is served.",
    );
    tell("log.message.format.version", "3.0".to_owned(), STRING, BUILT_IN, "The format of records.");
    tell(
        "offsets.retention.minutes",
        (patience::GROUP_EXPIRY.as_secs() / 60).to_string(),
        LONG,
        BUILT_IN,
        "A group without members and commits is forgotten then.",
    );
    tell(
        "group.min.session.timeout.ms",
        groups::LIMITS.session_timeout_ms.start().to_string(),
        LONG,
        BUILT_IN,
        "Least time of a session.",
    );
    tell(
        "group.max.session.timeout.ms",
        groups::LIMITS.session_timeout_ms.end().to_string(),
        LONG,
        BUILT_IN,
        "Most time of a session.",
    );
    tell(
        "group.initial.rebalance.delay.ms",
        groups::LIMITS.first_delay_ms.to_string(),
        LONG,
        BUILT_IN,
        "The first members of a group wait so long for others.",
    );
    tell(
        "offset.metadata.max.bytes",
        METADATA_BYTES_MAX.to_string(),
        LONG,
        BUILT_IN,
        "What may be kept with a committed offset.",
    );
    let wanted = rows.into_iter().filter(|(name, _)| wish.names(name));
    wanted
        .map(|(name, (value, kind, from, what))| wish.row(name, value, kind, from, what).with_read_only(true))
        .collect()
}

/// The version of Kafka whose brokers come closest to what is served here; tools look at its first number.
const PROTOCOL_VERSION: &str = "3.9";
