//! OffsetCommit and OffsetFetch. Clients name topics; what is committed belongs to a topic's uuid, so that a topic which is made
//! again begins anew.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestTopic;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{
    GroupId, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse, TopicName,
};
use walrus_groups::{Commit, Committed, Place, Who};
use walrus_model::TopicId;

use super::{errors, group, text};
use crate::edge::{Operation, Resource, is_allowed};
use crate::kafka::context::Context;
use crate::kafka::errors as read_errors;

/// Most bytes that a client may have kept with an offset, as Kafka's brokers by default.
pub(in crate::kafka) const METADATA_BYTES_MAX: usize = 4_096;
/// Most bytes of one commit. It is stored as one batch.
const COMMIT_BYTES_MAX: usize = 8 << 20;
/// The first version of OffsetFetch that asks for many groups.
const MANY_SINCE: i16 = 8;
/// The first version of OffsetFetch with an error of its own.
const ERROR_SINCE: i16 = 2;
/// The first version of OffsetFetch that tells epochs.
const EPOCHS_SINCE: i16 = 5;
const NO_OFFSET: i64 = -1;
const NO_EPOCH: i32 = -1;

pub(in crate::kafka) async fn commit(
    context: &Context,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let OffsetCommitRequest {
        group_id,
        generation_id_or_member_epoch,
        member_id,
        group_instance_id,
        topics,
        ..
    } = request;
    let checked: Vec<Checked> = topics.iter().map(|topic| check(context, topic)).collect();
    let mut offsets = BTreeMap::new();
    for (topic, checked) in topics.iter().zip(&checked) {
        for (partition, code) in topic.partitions.iter().zip(&checked.codes) {
            let (None, Some(id), Ok(index)) = (code, checked.topic, u32::try_from(partition.partition_index))
            else {
                continue;
            };
            let metadata = partition.committed_metadata.as_ref();
            let committed = Committed {
                offset: partition.committed_offset,
                leader_epoch: partition.committed_leader_epoch,
                metadata: metadata.map(|metadata| metadata.to_string()).unwrap_or_default(),
            };
            offsets.insert(Place { topic: id, partition: index }, committed);
        }
    }
    let is_member = generation_id_or_member_epoch >= 0 || !member_id.is_empty();
    let who = is_member.then(|| Who {
        member: member_id.to_string(),
        instance: group_instance_id.map(|instance| instance.to_string()),
        generation: generation_id_or_member_epoch,
    });
    let bytes: usize = offsets.values().map(|committed| committed.metadata.len() + 64 + group_id.len()).sum();
    let outcome = match group(context, &group_id, Operation::Read) {
        Err(code) => Some(code),
        Ok(_) if bytes > COMMIT_BYTES_MAX => Some(ResponseError::InvalidCommitOffsetSize),
        Ok(_) if offsets.is_empty() => None,
        Ok(name) => match context.broker.groups().commit(&name, Commit { who, offsets }).await {
            Ok(told) => told.err().map(|refusal| errors::of_refusal(&refusal)),
            Err(error) => Some(errors::of_coordinator(&error)),
        },
    };
    let rows = topics.into_iter().zip(checked).map(|(topic, checked)| {
        let rows = topic.partitions.iter().zip(checked.codes).map(|(partition, code)| {
            let code = code.or(outcome).map_or(0, |code| code.code());
            let row =
                OffsetCommitResponsePartition::default().with_partition_index(partition.partition_index);
            row.with_error_code(code)
        });
        OffsetCommitResponseTopic::default().with_name(topic.name).with_partitions(rows.collect())
    });
    OffsetCommitResponse::default().with_topics(rows.collect())
}

/// What is wrong with each partition of a topic that a commit names.
struct Checked {
    topic: Option<TopicId>,
    codes: Vec<Option<ResponseError>>,
}

fn check(context: &Context, topic: &OffsetCommitRequestTopic) -> Checked {
    let found = find(context, &topic.name, Operation::Read);
    let code = |index: i32, metadata: Option<usize>| {
        let (_, partitions) = found?;
        let is_known = u32::try_from(index).is_ok_and(|index| index < partitions);
        if !is_known {
            return Err(ResponseError::UnknownTopicOrPartition);
        }
        let is_short = metadata.is_none_or(|bytes| bytes <= METADATA_BYTES_MAX);
        if is_short { Ok(()) } else { Err(ResponseError::OffsetMetadataTooLarge) }
    };
    let codes = topic.partitions.iter().map(|partition| {
        code(partition.partition_index, partition.committed_metadata.as_ref().map(|metadata| metadata.len()))
            .err()
    });
    Checked { topic: found.ok().map(|(id, _)| id), codes: codes.collect() }
}

/// The topic of a name, and how many partitions it has.
pub(super) fn find(
    context: &Context,
    name: &str,
    operation: Operation,
) -> Result<(TopicId, u32), ResponseError> {
    let principal = &context.listener.principal;
    let path = principal.topic(name).map_err(|error| read_errors::of_read(&error))?;
    if !is_allowed(principal, operation, Resource::Topic(&path)) {
        return Err(ResponseError::TopicAuthorizationFailed);
    }
    let topic = context.broker.topic(&path).ok_or(ResponseError::UnknownTopicOrPartition)?;
    Ok((topic.id, topic.partitions))
}

/// Topics and partitions that are asked for; `None`: all that the group has committed.
type Asked = Option<Vec<(TopicName, Vec<i32>)>>;

/// What is told of a partition.
struct Told {
    partition: i32,
    committed: Result<Option<Committed>, ResponseError>,
}

pub(in crate::kafka) async fn fetch(
    context: &Context,
    version: i16,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    let response = OffsetFetchResponse::default();
    if version >= MANY_SINCE {
        let mut groups = Vec::with_capacity(request.groups.len());
        for OffsetFetchRequestGroup { group_id, topics, .. } in request.groups {
            let asked = topics.map(|topics| {
                topics.into_iter().map(|topic| (topic.name, topic.partition_indexes)).collect::<Vec<_>>()
            });
            groups.push(row_of_group(context, group_id, asked).await);
        }
        return response.with_groups(groups);
    }
    let asked: Asked = request
        .topics
        .map(|topics| topics.into_iter().map(|topic| (topic.name, topic.partition_indexes)).collect());
    let (topics, code) = match look(context, &request.group_id, asked.as_deref()).await {
        Ok(topics) => (topics, 0),
        Err(code) if version >= ERROR_SINCE => (Vec::new(), code.code()),
        Err(code) => (all_refused(asked.unwrap_or_default(), code), 0),
    };
    let rows = topics.into_iter().map(|(name, told)| {
        let rows = told.into_iter().map(|Told { partition, committed }| {
            let (offset, epoch, metadata, code) = fields(committed);
            let row = OffsetFetchResponsePartition::default().with_partition_index(partition);
            let row = row.with_committed_offset(offset).with_metadata(Some(text(metadata)));
            let epoch = if version >= EPOCHS_SINCE { epoch } else { NO_EPOCH };
            row.with_committed_leader_epoch(epoch).with_error_code(code)
        });
        OffsetFetchResponseTopic::default().with_name(name).with_partitions(rows.collect())
    });
    response.with_topics(rows.collect()).with_error_code(code)
}

async fn row_of_group(context: &Context, id: GroupId, asked: Asked) -> OffsetFetchResponseGroup {
    let looked = look(context, &id, asked.as_deref()).await;
    let row = OffsetFetchResponseGroup::default().with_group_id(id);
    let topics = match looked {
        Ok(topics) => topics,
        Err(code) => return row.with_error_code(code.code()),
    };
    let rows = topics.into_iter().map(|(name, told)| {
        let rows = told.into_iter().map(|Told { partition, committed }| {
            let (offset, epoch, metadata, code) = fields(committed);
            let row = OffsetFetchResponsePartitions::default().with_partition_index(partition);
            let row = row.with_committed_offset(offset).with_metadata(Some(text(metadata)));
            row.with_committed_leader_epoch(epoch).with_error_code(code)
        });
        OffsetFetchResponseTopics::default().with_name(name).with_partitions(rows.collect())
    });
    row.with_topics(rows.collect())
}

fn fields(committed: Result<Option<Committed>, ResponseError>) -> (i64, i32, String, i16) {
    match committed {
        Ok(Some(Committed { offset, leader_epoch, metadata })) => (offset, leader_epoch, metadata, 0),
        Ok(None) => (NO_OFFSET, NO_EPOCH, String::new(), 0),
        Err(code) => (NO_OFFSET, NO_EPOCH, String::new(), code.code()),
    }
}

/// What a group has committed of the topics that are asked for.
async fn look(
    context: &Context,
    id: &str,
    asked: Option<&[(TopicName, Vec<i32>)]>,
) -> Result<Vec<(TopicName, Vec<Told>)>, ResponseError> {
    let name = group(context, id, Operation::Describe)?;
    let groups = context.broker.groups();
    let Some(asked) = asked else {
        let offsets = groups.offsets_anywhere(&name, None).await;
        return Ok(everything(context, &offsets.map_err(|error| errors::of_coordinator(&error))?));
    };
    let found: Vec<_> = asked.iter().map(|(name, _)| find(context, name, Operation::Describe)).collect();
    let place =
        |topic: TopicId, partition: i32| Some(Place { topic, partition: u32::try_from(partition).ok()? });
    let places = asked.iter().zip(&found).flat_map(|((_, partitions), found)| {
        let topic = found.ok().map(|(topic, _)| topic);
        partitions.iter().filter_map(move |partition| place(topic?, *partition))
    });
    let offsets = groups.offsets_anywhere(&name, Some(&places.collect())).await;
    let offsets = offsets.map_err(|error| errors::of_coordinator(&error))?;
    let told = asked.iter().zip(found).map(|((name, partitions), found)| {
        let committed = |partition: i32| match found {
            Ok((topic, _)) => Ok(place(topic, partition).and_then(|place| offsets.get(&place).cloned())),
            // A topic that is not there has no offsets, which is no error.
            Err(ResponseError::UnknownTopicOrPartition) => Ok(None),
            Err(code) => Err(code),
        };
        let told = partitions.iter().map(|&partition| Told { partition, committed: committed(partition) });
        (name.clone(), told.collect())
    });
    Ok(told.collect())
}

/// All that a group has committed of topics that are there, and that the client may know of.
fn everything(context: &Context, offsets: &BTreeMap<Place, Committed>) -> Vec<(TopicName, Vec<Told>)> {
    let routing = context.broker.cluster().routing();
    let principal = &context.listener.principal;
    let mut topics: BTreeMap<TopicName, Vec<Told>> = BTreeMap::new();
    for (place, committed) in offsets {
        let Some(route) = routing.topic(place.topic).filter(|route| route.path.org == principal.org) else {
            continue;
        };
        if !is_allowed(principal, Operation::Describe, Resource::Topic(&route.path)) {
            continue;
        }
        let partition = i32::try_from(place.partition).unwrap_or(i32::MAX);
        let told = Told { partition, committed: Ok(Some(committed.clone())) };
        topics.entry(TopicName(text(route.path.name.to_string()))).or_default().push(told);
    }
    topics.into_iter().collect()
}

fn all_refused(asked: Vec<(TopicName, Vec<i32>)>, code: ResponseError) -> Vec<(TopicName, Vec<Told>)> {
    let refused = |partition| Told { partition, committed: Err(code) };
    asked
        .into_iter()
        .map(|(name, partitions)| (name, partitions.into_iter().map(refused).collect()))
        .collect()
}
