//! ListOffsets: where partitions begin and end, and which record is the first that is not older than a time, or the newest. What is
//! answered is confirmed, so that nobody who asks where the end is now is told where it was.

use std::collections::HashSet;

use futures_util::future::join_all;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

use super::context::Context;
use super::{epochs, errors};
use crate::edge::{Operation, Resource, is_allowed};
use crate::node::names::{PartitionRef, TopicPath};
use crate::reading::by_time::{FoundOffset, OffsetAt};

/// First version that answers with leader epochs.
const EPOCHS_SINCE: i16 = 4;
/// First version in which the newest record can be asked for.
const NEWEST_SINCE: i16 = 7;

pub(super) async fn answer(
    context: &Context,
    version: i16,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let topics = request.topics.into_iter().map(|topic| of_topic(context, version, topic));
    ListOffsetsResponse::default().with_topics(join_all(topics).await)
}

async fn of_topic(context: &Context, version: i16, topic: ListOffsetsTopic) -> ListOffsetsTopicResponse {
    let response = ListOffsetsTopicResponse::default().with_name(topic.name.clone());
    let principal = &context.listener.principal;
    let path = match principal.topic(&topic.name) {
        Ok(path) if is_allowed(principal, Operation::Describe, Resource::Topic(&path)) => Ok(path),
        Ok(_) => Err(ResponseError::TopicAuthorizationFailed),
        Err(error) => Err(errors::of_read(&error)),
    };
    let path = match path {
        Ok(path) => path,
        Err(code) => {
            let rows = topic.partitions.iter().map(|asked| refused(asked, code));
            return response.with_partitions(rows.collect());
        }
    };
    let mut seen = HashSet::new();
    let mut rows = Vec::with_capacity(topic.partitions.len());
    let mut asked_for = Vec::new();
    let checks = topic.partitions.iter().map(|asked| question(context, version, &path, asked));
    for (asked, question) in topic.partitions.iter().zip(join_all(checks).await) {
        let is_twice = !seen.insert(asked.partition_index);
        match if is_twice { Err(ResponseError::InvalidRequest) } else { question } {
            Ok(question) => asked_for.push((asked, question)),
            Err(code) => rows.push(refused(asked, code)),
        }
    }
    let questions: Vec<(u32, OffsetAt)> = asked_for.iter().map(|(_, question)| *question).collect();
    if !questions.is_empty() {
        match context.broker.list_offsets(&path, &questions).await {
            Ok(answers) => rows.extend(asked_for.iter().zip(answers).map(|((asked, question), answer)| {
                answer.map_or_else(
                    |error| refused(asked, errors::of_read(&error)),
                    |found| found_row(context, version, &path, asked, (question.0, found)),
                )
            })),
            Err(error) => {
                let code = errors::of_read(&error);
                rows.extend(asked_for.iter().map(|(asked, _)| refused(asked, code)));
            }
        }
    }
    response.with_partitions(rows)
}

/// What is asked about a partition.
async fn question(
    context: &Context,
    version: i16,
    topic: &TopicPath,
    asked: &ListOffsetsPartition,
) -> Result<(u32, OffsetAt), ResponseError> {
    let partition =
        u32::try_from(asked.partition_index).map_err(|_| ResponseError::UnknownTopicOrPartition)?;
    let at = match asked.timestamp {
        -1 => OffsetAt::Latest,
        -2 => OffsetAt::Earliest,
        -3 if version >= NEWEST_SINCE => OffsetAt::Newest,
        time @ 0.. => OffsetAt::NotBefore(time),
        _ => return Err(ResponseError::UnsupportedVersion),
    };
    let place = PartitionRef { topic: topic.clone(), partition };
    epochs::check(context, &place, asked.current_leader_epoch).await?;
    Ok((partition, at))
}

fn found_row(
    context: &Context,
    version: i16,
    topic: &TopicPath,
    asked: &ListOffsetsPartition,
    (partition, found): (u32, FoundOffset),
) -> ListOffsetsPartitionResponse {
    let row = ListOffsetsPartitionResponse::default().with_partition_index(asked.partition_index);
    let FoundOffset { offset: Some(offset), timestamp_ms } = found else {
        return row.with_offset(-1).with_timestamp(-1);
    };
    let row = row.with_offset(offset.cast_signed()).with_timestamp(timestamp_ms.unwrap_or(-1));
    if version < EPOCHS_SINCE {
        return row;
    }
    let place = PartitionRef { topic: topic.clone(), partition };
    let routing = context.broker.cluster().routing();
    row.with_leader_epoch(routing.partition(&place).map_or(-1, |(_, listed)| epochs::at(listed, offset)))
}

fn refused(asked: &ListOffsetsPartition, code: ResponseError) -> ListOffsetsPartitionResponse {
    ListOffsetsPartitionResponse::default()
        .with_partition_index(asked.partition_index)
        .with_error_code(code.code())
        .with_offset(-1)
        .with_timestamp(-1)
}
