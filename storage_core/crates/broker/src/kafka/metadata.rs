//! Metadata: the brokers, as the clients of this listener reach them, and the topics of its organisation with their leaders.

use futures_util::{StreamExt as _, stream};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use walrus_metadata::Partition;

use super::context::Context;
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
                && context.listener.admin
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
        .with_controller_id(BrokerId(broker_id(cluster.node_id())))
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

fn topic_row(brokers: &Brokers, route: &TopicRoute) -> MetadataResponseTopic {
    let name = TopicName(StrBytes::from_string(route.topic.name.clone()));
    let partitions = route.topic.partitions.iter().map(|partition| brokers.partition_row(partition));
    MetadataResponseTopic::default()
        .with_name(Some(name))
        .with_topic_id(route.topic.id.0)
        .with_is_internal(route.topic.internal)
        .with_partitions(partitions.collect())
}

/// The nodes that clients of one listener can reach.
pub(super) struct Brokers {
    /// By id: host and port.
    nodes: Vec<(u32, (String, u16))>,
    /// Those whose leases have not lapsed, reachable or not.
    alive: Vec<u32>,
    /// The node that answers.
    me: u32,
}

impl Brokers {
    pub(super) fn of(context: &Context) -> Self {
        let (cluster, listener) = (context.broker.cluster(), &context.listener);
        let (me, routing) = (cluster.node_id(), cluster.routing());
        let alive: Vec<u32> =
            cluster.present(&routing.metadata).alive.into_iter().map(|node| node.0).collect();
        let mut nodes = Vec::new();
        for node in routing.metadata.nodes.values() {
            let told = node.kafka_address_of(&listener.name, listener.principal.org.as_str());
            // This node answers, whatever the metadata say; they may not have heard of its listener yet.
            let told = told.or((node.id.0 == me).then_some(listener.told.as_str()));
            let is_there = node.id.0 == me || alive.contains(&node.id.0);
            nodes.extend(told.filter(|_| is_there).and_then(parse_address).map(|told| (node.id.0, told)));
        }
        if nodes.iter().all(|(id, _)| *id != me) {
            nodes.extend(parse_address(&listener.told).map(|told| (me, told)));
        }
        Self { nodes, alive, me }
    }

    /// A node with its host and port.
    pub(super) fn address(self, node: u32) -> Option<(BrokerId, String, u16)> {
        let (_, (host, port)) = self.nodes.into_iter().find(|(id, _)| *id == node)?;
        Some((BrokerId(broker_id(node)), host, port))
    }

    /// All of them.
    pub(super) fn addresses(self) -> Vec<(BrokerId, String, u16)> {
        self.nodes.into_iter().map(|(id, (host, port))| (Self::id(id), host, port)).collect()
    }

    /// A node's id, as Kafka's clients know it.
    pub(super) fn id(node: u32) -> BrokerId {
        BrokerId(broker_id(node))
    }

    fn rows(self) -> Vec<MetadataResponseBroker> {
        let row = |(id, (host, port)): (u32, (String, u16))| {
            let row = MetadataResponseBroker::default().with_node_id(BrokerId(broker_id(id)));
            row.with_host(StrBytes::from_string(host)).with_port(port.into())
        };
        self.nodes.into_iter().map(row).collect()
    }

    /// A partition with its leader. A leader that clients of this listener do not reach is told to be the node that answers, which
    /// sends on what it gets.
    fn partition_row(&self, partition: &Partition) -> MetadataResponsePartition {
        let index = i32::try_from(partition.index).unwrap_or(i32::MAX);
        let row = MetadataResponsePartition::default().with_partition_index(index);
        let row = row.with_leader_epoch(epochs::told(partition));
        let Some(last) = partition.segments.last() else {
            return row
                .with_leader_id(BrokerId(-1))
                .with_error_code(ResponseError::LeaderNotAvailable.code());
        };
        let (leader, replicas) = (last.descriptor.leader.node.0, &last.descriptor.replicas);
        let ids = |is_wanted: &dyn Fn(u32) -> bool| -> Vec<BrokerId> {
            let wanted = replicas.iter().map(|replica| replica.node.0).filter(|node| is_wanted(*node));
            wanted.map(|node| BrokerId(broker_id(node))).collect()
        };
        let is_alive = |node: u32| node == self.me || self.alive.contains(&node);
        let row = row
            .with_replica_nodes(ids(&|_| true))
            .with_isr_nodes(ids(&is_alive))
            .with_offline_replicas(ids(&|node| !is_alive(node)));
        if !is_alive(leader) {
            return row
                .with_leader_id(BrokerId(-1))
                .with_error_code(ResponseError::LeaderNotAvailable.code());
        }
        let is_reached = self.nodes.iter().any(|(id, _)| *id == leader);
        row.with_leader_id(BrokerId(broker_id(if is_reached { leader } else { self.me })))
    }
}

fn broker_id(node: u32) -> i32 {
    i32::try_from(node).unwrap_or(i32::MAX)
}

/// Host and port of an address; the brackets around one of IPv6 are not part of it.
fn parse_address(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    Some((bare.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_without_brackets() {
        assert_eq!(parse_address("[::1]:9092"), Some(("::1".to_owned(), 9092)));
        assert_eq!(parse_address("walrus-0.walrus:31092"), Some(("walrus-0.walrus".to_owned(), 31_092)));
        assert_eq!(parse_address("walrus-0"), None);
    }
}
