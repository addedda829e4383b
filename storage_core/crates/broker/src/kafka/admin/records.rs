//! DeleteRecords: a partition begins at a later offset from then on.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_records_request::DeleteRecordsTopic;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};

use super::{Refused, check_admin, topic};
use crate::edge::Operation;
use crate::kafka::context::Context;
use crate::node::names::TopicPath;

/// The offset that stands for everything that is acknowledged.
const TO_THE_END: i64 = -1;

pub(in crate::kafka) async fn delete_records(
    context: &Context,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let mut rows = Vec::with_capacity(request.topics.len());
    for wanted in request.topics {
        let starts = of_topic(context, &wanted).await;
        let partitions = wanted.partitions.iter().zip(starts).map(|(asked, start)| {
            let row = DeleteRecordsPartitionResult::default().with_partition_index(asked.partition_index);
            match start {
                Ok(start) => row.with_low_watermark(start.cast_signed()),
                Err(refused) => row.with_low_watermark(-1).with_error_code(refused.code.code()),
            }
        });
        let partitions = partitions.collect();
        rows.push(DeleteRecordsTopicResult::default().with_name(wanted.name).with_partitions(partitions));
    }
    DeleteRecordsResponse::default().with_topics(rows)
}

/// The first offset of each partition, once its records are deleted.
async fn of_topic(context: &Context, wanted: &DeleteRecordsTopic) -> Vec<Result<u64, Refused>> {
    let path = check_admin(context).and_then(|()| topic(context, &wanted.name, Operation::Delete));
    let path = match path {
        Ok(path) => path,
        Err(refused) => return wanted.partitions.iter().map(|_| Err(refused.clone())).collect(),
    };
    let befores: Vec<Result<(u32, Option<u64>), Refused>> =
        wanted.partitions.iter().map(|asked| before(asked.partition_index, asked.offset)).collect();
    let sound: BTreeMap<u32, Option<u64>> = befores.iter().filter_map(|before| before.clone().ok()).collect();
    // All of a topic in one command, as Streams asks every half minute for many; one by one only if one of them cannot be.
    let together =
        if sound.is_empty() { None } else { context.broker.delete_records(&path, sound).await.ok() };
    let mut starts = Vec::with_capacity(befores.len());
    for asked in befores {
        starts.push(match (asked, &together) {
            (Ok((partition, _)), Some(starts)) if starts.contains_key(&partition) => Ok(starts[&partition]),
            (Ok((partition, before)), _) => alone(context, &path, partition, before).await,
            (Err(refused), _) => Err(refused),
        });
    }
    starts
}

async fn alone(
    context: &Context,
    path: &TopicPath,
    partition: u32,
    before: Option<u64>,
) -> Result<u64, Refused> {
    let starts = context.broker.delete_records(path, BTreeMap::from([(partition, before)])).await?;
    let unknown = || Refused::new(ResponseError::UnknownTopicOrPartition, "no such partition");
    starts.get(&partition).copied().ok_or_else(unknown)
}

fn before(partition: i32, offset: i64) -> Result<(u32, Option<u64>), Refused> {
    let unknown = |_| Refused::new(ResponseError::UnknownTopicOrPartition, "no such partition");
    let partition = u32::try_from(partition).map_err(unknown)?;
    if offset == TO_THE_END {
        return Ok((partition, None));
    }
    let wrong = |_| Refused::new(ResponseError::OffsetOutOfRange, format!("offset {offset}"));
    Ok((partition, Some(u64::try_from(offset).map_err(wrong)?)))
}
