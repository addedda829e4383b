//! DescribeCluster, and what user interfaces ask besides: access rules, moves of copies, producers. Of these there are none, which is
//! said in the way that they take for an answer.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_producers_response::{PartitionResponse, TopicResponse};
use kafka_protocol::messages::{
    DescribeAclsResponse, DescribeClusterRequest, DescribeClusterResponse, DescribeProducersRequest,
    DescribeProducersResponse, ListPartitionReassignmentsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::{Refused, check_cluster, described::text, topic};
use crate::edge::Operation;
use crate::kafka::context::Context;
use crate::kafka::leaders::broker_id;
use crate::kafka::metadata::Brokers;

/// The kind of endpoints that clients reach; the other one is that of Kafka's controllers.
const BROKERS: i8 = 1;
/// Operations that were not asked for.
const NOT_TOLD: i32 = i32::MIN;

pub(in crate::kafka) fn describe_cluster(
    context: &Context,
    request: &DescribeClusterRequest,
) -> DescribeClusterResponse {
    let response = DescribeClusterResponse::default().with_cluster_authorized_operations(NOT_TOLD);
    if let Err(refused) = may_describe(context, request) {
        return response.with_error_code(refused.code.code()).with_error_message(refused.message());
    }
    let cluster = context.broker.cluster();
    let brokers = Brokers::of(context).addresses().into_iter().map(|(id, host, port)| {
        DescribeClusterBroker::default().with_broker_id(id).with_host(text(host)).with_port(port.into())
    });
    response
        .with_cluster_id(text(cluster.config().cluster_id.to_string()))
        .with_controller_id(broker_id(cluster.node_id()))
        .with_brokers(brokers.collect())
}

fn may_describe(context: &Context, request: &DescribeClusterRequest) -> Result<(), Refused> {
    check_cluster(context, Operation::Describe)?;
    let why = "there are no controllers beside the brokers";
    let refused = || Refused::new(ResponseError::UnsupportedEndpointType, why);
    if request.endpoint_type == BROKERS { Ok(()) } else { Err(refused()) }
}

pub(in crate::kafka) fn describe_acls(context: &Context) -> DescribeAclsResponse {
    let response = DescribeAclsResponse::default();
    if let Err(refused) = check_cluster(context, Operation::Describe) {
        return response.with_error_code(refused.code.code()).with_error_message(refused.message());
    }
    response.with_error_code(ResponseError::SecurityDisabled.code()).with_error_message(Some(
        StrBytes::from_static_str("there are no access rules: everybody may do everything"),
    ))
}

pub(in crate::kafka) fn list_reassignments(context: &Context) -> ListPartitionReassignmentsResponse {
    let response = ListPartitionReassignmentsResponse::default();
    if let Err(refused) = check_cluster(context, Operation::Describe) {
        return response.with_error_code(refused.code.code()).with_error_message(refused.message());
    }
    // Copies are moved segment by segment, and no move was asked for by anybody.
    response.with_error_message(None)
}

pub(in crate::kafka) fn describe_producers(
    context: &Context,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let rows = request.topics.into_iter().map(|asked| {
        let found = topic(context, &asked.name, Operation::Read).map_err(|refused| refused.code);
        let found =
            found.and_then(|path| context.broker.topic(&path).ok_or(ResponseError::UnknownTopicOrPartition));
        let rows = asked.partition_indexes.iter().map(|&index| {
            let row = PartitionResponse::default().with_partition_index(index);
            let is_there = |partitions: u32| u32::try_from(index).is_ok_and(|index| index < partitions);
            match &found {
                Ok(topic) if is_there(topic.partitions) => row,
                Ok(_) => row.with_error_code(ResponseError::UnknownTopicOrPartition.code()),
                Err(code) => row.with_error_code(code.code()),
            }
        });
        let rows = rows.collect();
        TopicResponse::default().with_name(asked.name).with_partitions(rows)
    });
    DescribeProducersResponse::default().with_topics(rows.collect())
}
