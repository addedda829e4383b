//! CreateTopics, DeleteTopics and CreatePartitions.

use std::collections::{BTreeSet, HashMap};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;
use walrus_metadata::{CommandRejection, RequestError, TopicConfig};
use walrus_model::TopicId;

use super::described::{source, text};
use super::{Refused, check_admin, each, topic};
use crate::edge::Operation;
use crate::kafka::context::Context;
use crate::kafka::creation;
use crate::node::error::Error;
use crate::node::names::{OrgName, TopicPath};
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::topics::catalogue::NewTopic;
use crate::topics::view::{TopicDescription, TopicInfo};

/// The first version of CreateTopics that tells what was made.
const TOLD_SINCE: i16 = 5;
/// The first version of CreateTopics that tells the topic's id.
const IDS_TOLD_SINCE: i16 = 7;
/// The first version of DeleteTopics with messages.
const DELETE_MESSAGES_SINCE: i16 = 5;
/// The first version of DeleteTopics that takes ids.
const DELETE_IDS_SINCE: i16 = 6;
/// The number that stands for the cluster's own.
const DEFAULT: i32 = -1;

pub(in crate::kafka) async fn create(
    context: &Context,
    version: i16,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let topics = request.topics.into_iter().map(|wanted| (wanted.name.clone(), wanted)).collect();
    let made =
        each_named(topics, request.timeout_ms, |wanted| create_one(context, wanted, request.validate_only));
    let made = made.await;
    let has_made = made.iter().any(|(_, made)| made.is_ok()) && !request.validate_only;
    let rows = made.into_iter().map(|(name, made)| {
        let row = CreatableTopicResult::default().with_name(name).with_error_message(None);
        match made {
            Ok(made) => told(row, version, made),
            Err(refused) => row
                .with_error_code(refused.code.code())
                .with_error_message(refused.message())
                .with_configs((version >= TOLD_SINCE).then(Vec::new)),
        }
    });
    let rows = rows.collect();
    if has_made {
        context.broker.await_routed().await;
    }
    CreateTopicsResponse::default().with_topics(rows)
}

/// What was made, or would be.
struct Made {
    id: Uuid,
    partitions: i32,
    factor: i16,
    description: Option<TopicDescription>,
}

fn told(row: CreatableTopicResult, version: i16, made: Made) -> CreatableTopicResult {
    let Made { id, partitions, factor, description } = made;
    let row = if version >= IDS_TOLD_SINCE { row.with_topic_id(id) } else { row };
    if version < TOLD_SINCE {
        return row;
    }
    let settings = description.into_iter().flat_map(|description| description.settings);
    let config = settings.map(|setting| {
        CreatableTopicConfigs::default()
            .with_name(StrBytes::from_static_str(setting.definition.name))
            .with_config_source(source(setting.source))
            .with_value(Some(text(setting.value)))
    });
    row.with_num_partitions(partitions).with_replication_factor(factor).with_configs(Some(config.collect()))
}

async fn create_one(context: &Context, wanted: CreatableTopic, only_check: bool) -> Result<Made, Refused> {
    check_admin(context)?;
    let path = topic(context, &wanted.name, Operation::Create)?;
    let cluster = context.broker.cluster();
    if context.broker.topic(&path).is_some() {
        cluster.await_all_metadata(&format!("whether there is a topic {path}")).await?;
    }
    if context.broker.topic(&path).is_some() {
        return Err(Refused::new(
            ResponseError::TopicAlreadyExists,
            format!("topic {path} is there already"),
        ));
    }
    let new = new_topic(context, &wanted)?;
    let (partitions, replication) = (new.partitions, cluster.routing().metadata.replication);
    let factor = i16::try_from(factor_of(&new).unwrap_or(replication.factor)).unwrap_or(i16::MAX);
    let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
    if only_check {
        return Ok(Made { id: Uuid::nil(), partitions, factor, description: None });
    }
    let (topic, is_new) = match create_in_turn(context, &path, &new).await {
        Ok(made) => made,
        Err(Error::TopicExists { .. } | Error::TopicDiffers { .. }) => {
            return Err(Refused::new(
                ResponseError::TopicAlreadyExists,
                format!("topic {path} is there already"),
            ));
        }
        Err(error) => return Err(error.into()),
    };
    if !is_new {
        return Err(Refused::new(
            ResponseError::TopicAlreadyExists,
            format!("topic {path} is there already"),
        ));
    }
    let description = context.broker.describe_topic(&path).await.ok();
    Ok(Made { id: topic.id.0, partitions, factor, description })
}

/// Creates a topic, once the cluster has room for one more in a second: the topics of a request that are made together are more than
/// that easily, and not every client of Kafka asks again.
async fn create_in_turn(
    context: &Context,
    path: &TopicPath,
    new: &NewTopic,
) -> Result<(TopicInfo, bool), Error> {
    loop {
        match context.broker.create_topic(path, new.clone()).await {
            Err(Error::Unavailable { obstacle: Obstacle::RequestFailed { error } })
                if matches!(*error, RequestError::Rejected(CommandRejection::TooManyCreations { .. })) =>
            {
                tokio::time::sleep(patience::CREATION_RETRY).await;
            }
            made => return made,
        }
    }
}

/// The topic that a client wants, with what such clients take for granted; refused where a part of it cannot be.
fn new_topic(context: &Context, wanted: &CreatableTopic) -> Result<NewTopic, Refused> {
    if !wanted.assignments.is_empty() {
        return Err(Refused::new(
            ResponseError::InvalidReplicaAssignment,
            "the cluster places copies itself: name a number of partitions and a replication factor",
        ));
    }
    let metadata = &context.broker.cluster().routing().metadata;
    let partitions = match wanted.num_partitions {
        DEFAULT => metadata.config.partitions_default(),
        number => u32::try_from(number).ok().filter(|number| *number > 0).ok_or_else(|| {
            Refused::new(ResponseError::InvalidPartitions, format!("a topic cannot have {number} partitions"))
        })?,
    };
    let mut config = creation::defaults();
    for setting in &wanted.configs {
        let value = setting.value.as_ref().ok_or_else(|| {
            Refused::new(ResponseError::InvalidConfig, format!("{} has no value", setting.name))
        })?;
        config.insert(setting.name.to_string(), value.to_string());
    }
    let factor = i32::from(wanted.replication_factor);
    if factor != DEFAULT {
        let nodes = i32::try_from(metadata.nodes.len()).unwrap_or(i32::MAX);
        if !(1..=nodes).contains(&factor) {
            let why = format!("{factor} copies on {nodes} nodes: name a factor between 1 and {nodes}");
            return Err(Refused::new(ResponseError::InvalidReplicationFactor, why));
        }
        if u32::try_from(factor).is_ok_and(|factor| factor != metadata.replication.factor) {
            config.entry(FACTOR.to_owned()).or_insert_with(|| factor.to_string());
        }
    }
    TopicConfig::default().check(&config, &BTreeSet::new()).map_err(|wrong| {
        Refused::new(ResponseError::InvalidConfig, format!("{}: {}", wrong.name, wrong.problem))
    })?;
    Ok(NewTopic { partitions, config })
}

/// The setting of a topic's number of copies.
const FACTOR: &str = "walrus.replication.factor";

fn factor_of(new: &NewTopic) -> Option<u32> {
    new.config.get(FACTOR)?.parse().ok()
}

/// Makes each change of a topic that a request names, as [`each`] does; a topic that the request names twice is left as it is.
async fn each_named<W, F, D>(
    wanted: Vec<(TopicName, W)>,
    timeout_ms: i32,
    change: impl Fn(W) -> F,
) -> Vec<(TopicName, Result<D, Refused>)>
where
    F: Future<Output = Result<D, Refused>>,
{
    let mut counts: HashMap<TopicName, usize> = HashMap::new();
    wanted.iter().for_each(|(name, _)| *counts.entry(name.clone()).or_default() += 1);
    let names: Vec<TopicName> = wanted.iter().map(|(name, _)| name.clone()).collect();
    let done = each(wanted, timeout_ms, |(name, wanted)| {
        let change = (counts[&name] == 1).then(|| change(wanted));
        async move {
            let twice = "the request names the topic more than once";
            change.ok_or_else(|| Refused::new(ResponseError::InvalidRequest, twice))?.await
        }
    });
    names.into_iter().zip(done.await).collect()
}

pub(in crate::kafka) async fn delete(
    context: &Context,
    version: i16,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let wanted: Vec<DeleteTopicState> = if version >= DELETE_IDS_SINCE {
        request.topics
    } else {
        let named = request.topic_names.into_iter();
        named.map(|name| DeleteTopicState::default().with_name(Some(name))).collect()
    };
    let deleted = each(wanted.clone(), request.timeout_ms, |wanted| async move {
        delete_one(context, wanted.name.as_ref(), TopicId(wanted.topic_id)).await
    });
    let rows =
        wanted.into_iter().zip(deleted.await).map(|(DeleteTopicState { name, topic_id, .. }, deleted)| {
            let row = DeletableTopicResult::default();
            match deleted {
                Ok((path, id)) => {
                    let row = row.with_name(Some(TopicName(text(path.name.to_string()))));
                    if version >= DELETE_IDS_SINCE { row.with_topic_id(id.0) } else { row }
                }
                Err(refused) => {
                    let row = row.with_error_code(refused.code.code());
                    let row = row
                        .with_error_message(refused.message().filter(|_| version >= DELETE_MESSAGES_SINCE));
                    row.with_topic_id(topic_id).with_name(name)
                }
            }
        });
    let rows = rows.collect();
    DeleteTopicsResponse::default().with_responses(rows)
}

async fn delete_one(
    context: &Context,
    name: Option<&TopicName>,
    id: TopicId,
) -> Result<(TopicPath, TopicId), Refused> {
    check_admin(context)?;
    let path = match name {
        Some(name) => topic(context, name, Operation::Delete)?,
        None => {
            let routing = context.broker.cluster().routing();
            let unknown =
                || Refused::new(ResponseError::UnknownTopicId, format!("no topic has the id {}", id.0));
            let of_org = |org: &OrgName| *org == context.listener.principal.org;
            let route = routing.topic(id).filter(|route| of_org(&route.path.org)).ok_or_else(unknown)?;
            // Whoever knows the id of a topic that is not theirs is told neither its name nor that it is there.
            topic(context, route.path.name.as_str(), Operation::Delete).map_err(|_| unknown())?
        }
    };
    let unknown = || Error::UnknownTopic { topic: path.to_string() };
    let cluster = context.broker.cluster();
    let found = cluster.find_confirmed(|| context.broker.topic(&path).ok_or_else(unknown)).await?;
    context.broker.delete_topic(&path, Some(found.id)).await?;
    Ok((path, found.id))
}

pub(in crate::kafka) async fn add_partitions(
    context: &Context,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let topics = request.topics.into_iter().map(|wanted| (wanted.name.clone(), wanted)).collect();
    let added =
        each_named(topics, request.timeout_ms, |wanted| add_to(context, wanted, request.validate_only));
    let rows = added.await.into_iter().map(|(name, added)| {
        let row = CreatePartitionsTopicResult::default().with_name(name);
        match added {
            Ok(()) => row,
            Err(refused) => row.with_error_code(refused.code.code()).with_error_message(refused.message()),
        }
    });
    let rows = rows.collect();
    context.broker.await_routed().await;
    CreatePartitionsResponse::default().with_results(rows)
}

async fn add_to(context: &Context, wanted: CreatePartitionsTopic, only_check: bool) -> Result<(), Refused> {
    check_admin(context)?;
    let path = topic(context, &wanted.name, Operation::Alter)?;
    let unknown = || Error::UnknownTopic { topic: path.to_string() };
    let cluster = context.broker.cluster();
    cluster.await_all_metadata(&format!("how many partitions topic {path} has")).await?;
    let before = context.broker.topic(&path).ok_or_else(unknown)?.partitions;
    if wanted.assignments.is_some() {
        let why = "the cluster places copies itself: name the number of partitions alone";
        return Err(Refused::new(ResponseError::InvalidReplicaAssignment, why));
    }
    let count = u32::try_from(wanted.count).ok().filter(|count| *count > before).ok_or_else(|| {
        let why = format!("topic {path} has {before} partitions, and cannot have {} then", wanted.count);
        Refused::new(ResponseError::InvalidPartitions, why)
    })?;
    if !only_check {
        context.broker.add_partitions(&path, count).await?;
    }
    Ok(())
}
