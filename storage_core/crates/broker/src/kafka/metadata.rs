//! Metadata: the brokers, as the clients of this listener reach them, and the topics of its organisation with their leaders.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use walrus_metadata::{Metadata, Partition};
use walrus_model::NodeId;

use super::context::Context;
use super::leaders::{self, broker_id};
use super::{creation, epochs, errors};
use crate::cluster::routing::TopicRoute;
use crate::edge::{Operation, Resource, is_allowed};
use crate::node::error::Error;
use crate::node::names::TopicPath;

/// The first version in which no topics are no topics: before that they were all.
const NONE_MEANS_NONE_SINCE: i16 = 1;
/// Topics of one request that are looked up, or made, at a time.
const LOOK_UPS_MAX: usize = 8;

pub(super) async fn answer(context: &Context, version: i16, request: MetadataRequest) -> MetadataResponse {
    let cluster = context.broker.cluster();
    let topics = match request.topics {
        Some(named) if version >= NONE_MEANS_NONE_SINCE || !named.is_empty() => {
            let may_create = request.allow_auto_topic_creation
                && context.listener.principal.may_change_topics()
                && cluster.config().auto_create_topics;
            let look_ups = named.into_iter().map(|topic| named_topic(context, topic, may_create));
            let look_ups: Vec<_> = look_ups.collect(); // futures, none of which runs yet
            stream::iter(look_ups).buffered(LOOK_UPS_MAX).collect().await
        }
        _ => all_topics(context).await,
    };
    let cluster_id = StrBytes::from_string(cluster.config().cluster_id.to_string());
    MetadataResponse::default()
        .with_brokers(Brokers::of(context).rows())
        .with_cluster_id(Some(cluster_id))
        .with_controller_id(broker_id(cluster.node_id()))
        .with_topics(topics)
}

/// All topics of the organisation that the client may see.
async fn all_topics(context: &Context) -> Vec<MetadataResponseTopic> {
    let principal = &context.listener.principal;
    // A node that may have missed some has no way to say so here; the topics that it knows are better than none.
    if let Err(error) = context.broker.list_topics(&principal.org, false).await {
        tracing::debug!(%error, "the list of topics may be an old one");
    }
    let brokers = Brokers::of(context);
    let routing = context.broker.cluster().routing();
    let mut rows: Vec<_> = routing
        .topics_of(&principal.org)
        .filter(|route| is_allowed(principal, Operation::Describe, Resource::Topic(&route.path)))
        .map(|route| topic_row(&brokers, route))
        .collect();
    rows.sort_by(|left, right| left.name.cmp(&right.name));
    rows
}

async fn named_topic(
    context: &Context,
    MetadataRequestTopic { name, .. }: MetadataRequestTopic,
    may_create: bool,
) -> MetadataResponseTopic {
    let Some(name) = name else {
        // Topics are asked for by their ids from version 12 on, which is not served.
        let row = MetadataResponseTopic::default().with_name(Some(TopicName::default()));
        return row.with_error_code(ResponseError::InvalidRequest.code());
    };
    let found = find_or_create(context, &name, may_create).await.and_then(|path| {
        let routing = context.broker.cluster().routing();
        let route = routing.find(&path).ok_or(ResponseError::UnknownTopicOrPartition)?;
        Ok(topic_row(&Brokers::of(context), route))
    });
    found.unwrap_or_else(|code| {
        MetadataResponseTopic::default().with_error_code(code.code()).with_name(Some(name.clone()))
    })
}

/// The path of a topic that is there, at the end.
async fn find_or_create(context: &Context, name: &str, may_create: bool) -> Result<TopicPath, ResponseError> {
    let principal = &context.listener.principal;
    let path = principal.topic(name).map_err(|_| ResponseError::InvalidTopicException)?;
    let resource = Resource::Topic(&path);
    if !is_allowed(principal, Operation::Describe, resource) {
        return Err(ResponseError::TopicAuthorizationFailed);
    }
    let unknown = || Error::UnknownTopic { topic: path.to_string() };
    let look = || context.broker.topic(&path).map(drop).ok_or_else(unknown);
    match context.broker.cluster().find_confirmed(look).await {
        Ok(()) => {}
        Err(Error::UnknownTopic { .. }) if may_create => {
            if !is_allowed(principal, Operation::Create, resource) {
                return Err(ResponseError::TopicAuthorizationFailed);
            }
            creation::create(context, &path).await.map_err(|error| {
                tracing::info!(topic = %path, %error, "a topic that a Kafka client names cannot be made");
                if error.retryable() { ResponseError::LeaderNotAvailable } else { errors::of_change(&error) }
            })?;
        }
        Err(Error::UnknownTopic { .. }) => return Err(ResponseError::UnknownTopicOrPartition),
        // Whether there is one is not known here just now: the client asks again.
        Err(_) => return Err(ResponseError::LeaderNotAvailable),
    }
    Ok(path)
}

fn topic_row(brokers: &Brokers<'_>, route: &TopicRoute) -> MetadataResponseTopic {
    let name = TopicName(StrBytes::from_string(route.topic.name.clone()));
    let partitions = route.topic.partitions.iter().map(|partition| brokers.partition_row(partition));
    MetadataResponseTopic::default()
        .with_name(Some(name))
        .with_topic_id(route.topic.id.0)
        .with_is_internal(route.topic.internal)
        .with_partitions(partitions.collect())
}

/// The nodes that clients of one listener can reach.
pub(super) struct Brokers<'a> {
    context: &'a Context,
    metadata: Arc<Metadata>,
    /// The nodes whose leases have not lapsed, and this one.
    alive: Vec<NodeId>,
}

impl<'a> Brokers<'a> {
    pub(super) fn of(context: &'a Context) -> Self {
        let cluster = context.broker.cluster();
        Self { context, metadata: cluster.routing().metadata.clone(), alive: leaders::alive(cluster) }
    }

    /// Those that are alive, with their hosts and ports.
    pub(super) fn addresses(&self) -> Vec<(BrokerId, String, u16)> {
        let listener = &self.context.listener;
        let me = NodeId(self.context.broker.cluster().node_id());
        let told = |node: NodeId| {
            let told = leaders::address_of(&self.metadata, listener, node);
            // This node answers, whatever the metadata say; they may not have heard of its listener yet.
            told.or_else(|| (node == me).then(|| leaders::parse_address(&listener.told)).flatten())
        };
        let mut nodes: Vec<NodeId> =
            self.metadata.nodes.keys().filter(|node| self.alive.contains(node)).copied().collect();
        if !nodes.contains(&me) {
            nodes.push(me);
        }
        let address = |node: NodeId| told(node).map(|(host, port)| (broker_id(node.0), host, port));
        nodes.into_iter().filter_map(address).collect()
    }

    /// One that is alive, with its host and port.
    pub(super) fn address(&self, node: u32) -> Option<(BrokerId, String, u16)> {
        self.addresses().into_iter().find(|(id, ..)| *id == broker_id(node))
    }

    fn rows(&self) -> Vec<MetadataResponseBroker> {
        let row = |(id, host, port): (BrokerId, String, u16)| {
            let row = MetadataResponseBroker::default().with_node_id(id);
            row.with_host(StrBytes::from_string(host)).with_port(port.into())
        };
        self.addresses().into_iter().map(row).collect()
    }

    /// A partition with the leader that the clients of this listener are told.
    fn partition_row(&self, partition: &Partition) -> MetadataResponsePartition {
        let index = i32::try_from(partition.index).unwrap_or(i32::MAX);
        let row = MetadataResponsePartition::default().with_partition_index(index);
        let row = row.with_leader_epoch(epochs::told(partition));
        let without_leader = |row: MetadataResponsePartition| {
            row.with_leader_id(BrokerId(-1)).with_error_code(ResponseError::LeaderNotAvailable.code())
        };
        let Some(last) = partition.segments.last() else { return without_leader(row) };
        let (leader, replicas) = (last.descriptor.leader.node, &last.descriptor.replicas);
        let ids = |is_wanted: &dyn Fn(NodeId) -> bool| -> Vec<BrokerId> {
            let wanted = replicas.iter().map(|replica| replica.node).filter(|node| is_wanted(*node));
            wanted.map(|node| broker_id(node.0)).collect()
        };
        let is_alive = |node: NodeId| self.alive.contains(&node);
        let row = row
            .with_replica_nodes(ids(&|_| true))
            .with_isr_nodes(ids(&is_alive))
            .with_offline_replicas(ids(&|node| !is_alive(node)));
        match leaders::told_node(&self.metadata, &self.context.listener, &last.descriptor) {
            Some(told) if is_alive(told) && is_alive(leader) => row.with_leader_id(broker_id(told.0)),
            _ => without_leader(row),
        }
    }
}
