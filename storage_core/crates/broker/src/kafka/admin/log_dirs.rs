//! DescribeLogDirs: what lies on the disk of this node.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName};
use walrus_metadata::Partition;

use super::described::text;
use crate::cluster::segment::log_id;
use crate::edge::{Operation, Resource, is_allowed};
use crate::kafka::context::Context;

/// The first version with an error of its own.
const ERROR_SINCE: i16 = 3;
/// The first version that tells the room on the disk.
const ROOM_SINCE: i16 = 4;

pub(in crate::kafka) async fn describe_log_dirs(
    context: &Context,
    version: i16,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let response = DescribeLogDirsResponse::default();
    let principal = &context.listener.principal;
    if !is_allowed(principal, Operation::Describe, Resource::Cluster) {
        let code = if version >= ERROR_SINCE { ResponseError::ClusterAuthorizationFailed.code() } else { 0 };
        return response.with_error_code(code);
    }
    let asked: Option<BTreeMap<String, Vec<i32>>> = request
        .topics
        .map(|topics| topics.into_iter().map(|asked| (asked.topic.to_string(), asked.partitions)).collect());
    let routing = context.broker.cluster().routing().clone();
    let mut topics = Vec::new();
    for route in routing.topics_of(&principal.org) {
        let wanted = match &asked {
            Some(asked) => match asked.get(route.path.name.as_str()) {
                Some(partitions) => Some(partitions),
                None => continue,
            },
            None => None,
        };
        let is_wanted = |index: i32| wanted.is_none_or(|wanted| wanted.is_empty() || wanted.contains(&index));
        let partitions: Vec<DescribeLogDirsPartition> = route
            .topic
            .partitions
            .iter()
            .filter_map(|partition| {
                let index = i32::try_from(partition.index).ok().filter(|index| is_wanted(*index))?;
                let bytes = i64::try_from(bytes_here(context, partition)?).unwrap_or(i64::MAX);
                let row = DescribeLogDirsPartition::default().with_partition_index(index);
                Some(row.with_partition_size(bytes))
            })
            .collect();
        if !partitions.is_empty() {
            let name = TopicName(text(route.path.name.to_string()));
            topics.push(DescribeLogDirsTopic::default().with_name(name).with_partitions(partitions));
        }
    }
    let folder = context.broker.cluster().config().data_dir.display().to_string();
    let mut row = DescribeLogDirsResult::default().with_log_dir(text(folder)).with_topics(topics);
    if version >= ROOM_SINCE {
        let folder = context.broker.cluster().config().data_dir.clone();
        let room = tokio::task::spawn_blocking(move || rustix::fs::statvfs(&folder)).await;
        if let Ok(Ok(room)) = room {
            let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(room.f_frsize)).unwrap_or(i64::MAX);
            row = row.with_total_bytes(bytes(room.f_blocks)).with_usable_bytes(bytes(room.f_bavail));
        }
    }
    response.with_results(vec![row])
}

/// Bytes of a partition's batches on this disk; `None` if it has none of its segments.
fn bytes_here(context: &Context, partition: &Partition) -> Option<u64> {
    let (bucket, me) = (context.broker.bucket(), context.broker.copies().table().replica());
    let here = partition.segments.iter().filter(|segment| segment.stored_on().any(|replica| replica == me));
    let mut bytes = None;
    for segment in here {
        let log = bucket.log(log_id(&segment.descriptor));
        let own = log.map_or(0, |log| log.size_bytes());
        bytes = Some(bytes.unwrap_or(0) + own);
    }
    bytes
}
