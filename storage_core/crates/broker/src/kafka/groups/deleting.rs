//! DeleteGroups and OffsetDelete.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, OffsetDeleteRequest, OffsetDeleteResponse,
};
use walrus_groups::Place;

use super::{errors, group, offsets};
use crate::edge::Operation;
use crate::kafka::context::Context;

pub(in crate::kafka) async fn delete_groups(
    context: &Context,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let mut rows = Vec::with_capacity(request.groups_names.len());
    for id in request.groups_names {
        let deleted = delete_group(context, &id).await;
        let row = DeletableGroupResult::default().with_group_id(id);
        rows.push(row.with_error_code(deleted.err().map_or(0, |code| code.code())));
    }
    DeleteGroupsResponse::default().with_results(rows)
}

async fn delete_group(context: &Context, id: &str) -> Result<(), ResponseError> {
    let name = group(context, id, Operation::Delete)?;
    let deleted = context.broker.groups().delete(&name).await;
    let deleted = deleted.map_err(|error| errors::of_coordinator(&error))?;
    let deleted = deleted.ok_or(ResponseError::GroupIdNotFound)?;
    deleted.map_err(|refusal| errors::of_refusal(&refusal))
}

pub(in crate::kafka) async fn delete_offsets(
    context: &Context,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let found: Vec<_> =
        request.topics.iter().map(|topic| offsets::find(context, &topic.name, Operation::Read)).collect();
    let mut places: BTreeMap<String, BTreeSet<Place>> = BTreeMap::new();
    for (topic, found) in request.topics.iter().zip(&found) {
        let Ok((id, partitions)) = *found else { continue };
        let indexes = topic.partitions.iter().filter_map(|asked| u32::try_from(asked.partition_index).ok());
        let indexes = indexes.filter(|index| *index < partitions);
        let named = places.entry(topic.name.to_string()).or_default();
        named.extend(indexes.map(|partition| Place { topic: id, partition }));
    }
    let read = match forget(context, &request.group_id, &places).await {
        Ok(read) => read,
        Err(code) => return OffsetDeleteResponse::default().with_error_code(code.code()),
    };
    let rows = request.topics.into_iter().zip(found).map(|(topic, found)| {
        let code = |index: i32| match found {
            Err(code) => code.code(),
            Ok((_, partitions)) if !u32::try_from(index).is_ok_and(|index| index < partitions) => {
                ResponseError::UnknownTopicOrPartition.code()
            }
            Ok(_) if read.contains(topic.name.as_str()) => ResponseError::GroupSubscribedToTopic.code(),
            Ok(_) => 0,
        };
        let rows = topic.partitions.iter().map(|asked| {
            let row = OffsetDeleteResponsePartition::default().with_partition_index(asked.partition_index);
            row.with_error_code(code(asked.partition_index))
        });
        let rows = rows.collect();
        OffsetDeleteResponseTopic::default().with_name(topic.name).with_partitions(rows)
    });
    OffsetDeleteResponse::default().with_topics(rows.collect())
}

/// Forgets offsets, and answers the topics of which none was, for the group's members read them.
async fn forget(
    context: &Context,
    id: &str,
    places: &BTreeMap<String, BTreeSet<Place>>,
) -> Result<BTreeSet<String>, ResponseError> {
    let name = group(context, id, Operation::Delete)?;
    let forgotten = context.broker.groups().forget(&name, places).await;
    let forgotten = forgotten.map_err(|error| errors::of_coordinator(&error))?;
    let forgotten = forgotten.ok_or(ResponseError::GroupIdNotFound)?;
    forgotten.map_err(|refusal| errors::of_refusal(&refusal))
}
