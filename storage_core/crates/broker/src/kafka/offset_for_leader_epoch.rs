//! OffsetForLeaderEpoch: where an epoch ends, by which a consumer finds out whether what it has read is still there. Here it always
//! is: what could be read once never changes.

use futures_util::future::join_all;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use super::context::Context;
use super::epochs::{self, EpochEnd};
use super::errors;
use crate::edge::{Operation, Resource, is_allowed};
use crate::reading::by_time::OffsetAt;

pub(super) async fn answer(
    context: &Context,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.into_iter().map(|topic| of_topic(context, topic));
    OffsetForLeaderEpochResponse::default().with_topics(join_all(topics).await)
}

async fn of_topic(context: &Context, topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult {
    let rows = topic.partitions.iter().map(|asked| of_partition(context, &topic.topic, asked));
    let rows = join_all(rows).await;
    OffsetForLeaderTopicResult::default().with_topic(topic.topic).with_partitions(rows)
}

async fn of_partition(context: &Context, topic: &str, asked: &OffsetForLeaderPartition) -> EpochEndOffset {
    let row = EpochEndOffset::default().with_partition(asked.partition);
    match end(context, topic, asked).await {
        Ok((epoch, end)) => row.with_leader_epoch(epoch).with_end_offset(end),
        Err(code) => row.with_error_code(code.code()).with_leader_epoch(-1).with_end_offset(-1),
    }
}

async fn end(
    context: &Context,
    topic: &str,
    asked: &OffsetForLeaderPartition,
) -> Result<(i32, i64), ResponseError> {
    let place = epochs::place(context, topic, asked.partition).map_err(|error| errors::of_read(&error))?;
    let principal = &context.listener.principal;
    if !is_allowed(principal, Operation::Describe, Resource::Topic(&place.topic)) {
        return Err(ResponseError::TopicAuthorizationFailed);
    }
    epochs::check(context, &place, asked.current_leader_epoch).await?;
    let cluster = context.broker.cluster();
    let look = || Ok(epochs::end_of(cluster.routing().partition(&place)?.1, asked.leader_epoch));
    let found = cluster.find_confirmed(look).await.map_err(|error| errors::of_read(&error))?;
    match found {
        EpochEnd::At(epoch, offset) => Ok((epoch, offset.cast_signed())),
        EpochEnd::Unknown => Ok((-1, -1)),
        EpochEnd::Last(epoch) => {
            let question = [(place.partition, OffsetAt::Latest)];
            let answers = context.broker.list_offsets(&place.topic, &question).await;
            let latest =
                answers.and_then(|answers| answers.into_iter().next().unwrap_or(Ok(Default::default())));
            let latest = latest.map_err(|error| errors::of_read(&error))?;
            Ok((epoch, latest.offset.map_or(-1, u64::cast_signed)))
        }
    }
}
