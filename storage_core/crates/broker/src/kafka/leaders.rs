//! The leaders of partitions as the clients of one listener are told them. Who is told is a function of the metadata alone, so
//! that all nodes tell the same: a client that hears of two leaders under one epoch cannot know which of them is right.

use std::collections::BTreeSet;

use kafka_protocol::messages::BrokerId;
use walrus_metadata::{Metadata, Protocol, SegmentState};
use walrus_model::{Descriptor, NodeId};

use super::context::{Context, Listener};
use super::epochs;
use crate::cluster::Cluster;
use crate::node::names::PartitionRef;

/// The leader that clients are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToldLeader {
    pub(super) node: u32,
    pub(super) epoch: i32,
    pub(super) host: String,
    pub(super) port: u16,
}

/// Where the appends and fetches of a partition belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// They belong here, or nobody can say where else: this node sends on what another one must do.
    Here,
    /// They belong to another node, which answers and which the client reaches.
    At(ToldLeader),
}

/// Where a partition's appends and fetches belong, for the clients of a listener.
pub(super) fn place_of(context: &Context, partition: &PartitionRef) -> Place {
    let cluster = context.broker.cluster();
    let routing = cluster.routing();
    let Ok((_, listed)) = routing.partition(partition) else { return Place::Here };
    let Some(last) = listed.segments.last() else { return Place::Here };
    let leader = last.descriptor.leader.node;
    let me = NodeId(cluster.node_id());
    if leader == me || last.state != SegmentState::Open {
        return Place::Here;
    }
    let (metadata, listener) = (&routing.metadata, &context.listener);
    let Some(told) = told_node(metadata, listener, &last.descriptor).filter(|told| *told != me) else {
        return Place::Here;
    };
    let answers = cluster.answering(metadata).alive;
    let Some((host, port)) = address_of(metadata, listener, told).filter(|_| {
        // A client that is sent to a node that is gone comes back; here its append waits for the next leader.
        answers.contains(&told) && answers.contains(&leader)
    }) else {
        return Place::Here;
    };
    Place::At(ToldLeader { node: told.0, epoch: epochs::told(listed), host, port })
}

/// The leader of a partition with its epoch, as clients are told them beside an error that comes of not knowing; `None` where
/// there is none that they could go to.
pub(super) fn current(context: &Context, partition: &PartitionRef) -> Option<(u32, i32)> {
    match place_of(context, partition) {
        Place::At(leader) => Some((leader.node, leader.epoch)),
        Place::Here => {
            let cluster = context.broker.cluster();
            let routing = cluster.routing();
            let (_, listed) = routing.partition(partition).ok()?;
            let last = listed.segments.last()?;
            let told = told_node(&routing.metadata, &context.listener, &last.descriptor)?;
            (told.0 == cluster.node_id()).then(|| (told.0, epochs::told(listed)))
        }
    }
}

/// The node that clients of a listener are told to be the leader of a segment: the leader itself, if it has such a listener. Else
/// it is one that sends on what it gets: a replica before the others, and of these the one with the lowest id. Whether it is
/// there just now does not matter: each node would see that a little earlier or later.
pub(super) fn told_node(metadata: &Metadata, listener: &Listener, segment: &Descriptor) -> Option<NodeId> {
    let replicas = segment.replicas.iter().map(|replica| replica.node);
    let candidates = std::iter::once(segment.leader.node).chain(replicas);
    let mut candidates = candidates.chain(metadata.nodes.keys().copied());
    candidates.find(|node| address_of(metadata, listener, *node).is_some())
}

/// The nodes that clients are told: those whose leases have not lapsed, and this one.
pub(super) fn alive(cluster: &Cluster) -> Vec<NodeId> {
    let metadata = &cluster.routing().metadata;
    told_alive(cluster.present(metadata).alive, NodeId(cluster.node_id()), metadata)
}

/// A node that sees no lease but its own has heard nothing for a while, for alone it is no majority: it is the one that is cut off.
/// Clients that it told of no other node would stay with it, so it tells them of all that it knows.
fn told_alive(mut alive: BTreeSet<NodeId>, me: NodeId, metadata: &Metadata) -> Vec<NodeId> {
    alive.insert(me);
    if alive.len() == 1 {
        alive.extend(metadata.nodes.keys());
    }
    alive.into_iter().collect()
}

/// Host and port by which clients of a listener reach a node, as the metadata say.
pub(super) fn address_of(metadata: &Metadata, listener: &Listener, node: NodeId) -> Option<(String, u16)> {
    let node = metadata.nodes.get(&node)?;
    parse_address(node.address_of(Protocol::Kafka, &listener.name, listener.principal.org.as_str())?)
}

/// Host and port of an address; the brackets around one of IPv6 are not part of it.
pub(super) fn parse_address(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    Some((bare.to_owned(), port.parse().ok()?))
}

/// A node's id as Kafka writes it.
pub(super) fn broker_id(node: u32) -> BrokerId {
    BrokerId(i32::try_from(node).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use walrus_metadata::Node;

    use super::*;
    use crate::edge::Principal;
    use crate::node::names::OrgName;

    fn listener(name: &str) -> Listener {
        let principal = Principal::anonymous(OrgName::parse("default").unwrap(), true);
        Listener { name: name.to_owned(), told: String::new(), principal }
    }

    /// Metadata in which the listener `outside` is that of these nodes of 1 to 4.
    fn metadata(outside: &[u32]) -> Metadata {
        let mut metadata = Metadata::default();
        for id in 1..=4 {
            let address = |name: &str| json!({ "protocol": "kafka", "name": name, "org": "default", "address": format!("{name}-{id}:1") });
            let uuid = format!("00000000-0000-0000-0000-{id:012}");
            let node: Node = serde_json::from_value(json!({
                "id": id, "disk": uuid, "process": uuid, "raft_address": "", "peer_address": "", "text_address": "",
                "grpc_address": "", "http_address": "", "state": "up", "version": 0,
                "listeners": if outside.contains(&id) { vec![address("kafka"), address("outside")] } else { vec![address("kafka")] },
            }))
            .unwrap();
            metadata.nodes.insert(NodeId(id), node);
        }
        metadata
    }

    fn segment(leader: u32, replicas: &[u32]) -> Descriptor {
        let uuid = |n: u32| format!("00000000-0000-0000-0000-{n:012}");
        let replica = |node: &u32| json!({ "node": node, "disk": uuid(*node) });
        serde_json::from_value(json!({
            "uuid": uuid(90), "topic": uuid(91), "partition": 0, "number": 0, "base_offset": 0, "epoch": 1,
            "leader": { "node": leader, "process": uuid(leader) },
            "replicas": replicas.iter().map(replica).collect::<Vec<_>>(),
        }))
        .unwrap()
    }

    /// Each node named itself once where clients did not reach the leader, so that two leaders were told under one epoch.
    #[test]
    fn a_leader_that_is_not_reached_has_one_stand_in_whichever_node_is_asked() {
        let told = |outside: &[u32], leader, replicas: &[u32]| {
            let found = told_node(&metadata(outside), &listener("outside"), &segment(leader, replicas));
            found.map(|node| node.0)
        };
        assert_eq!(told(&[1, 2, 3], 3, &[3, 2]), Some(3), "the leader itself");
        assert_eq!(told(&[1, 2], 3, &[3, 2]), Some(2), "a replica");
        assert_eq!(told(&[1, 4], 3, &[3, 2]), Some(1), "another node");
        assert_eq!(told(&[], 3, &[3, 2]), None);
        assert_eq!(told_node(&metadata(&[]), &listener("kafka"), &segment(3, &[3])), Some(NodeId(3)));
    }

    /// A client that reached nobody but a node that was cut off was told of no other one, and stayed with it for as long as that took.
    #[test]
    fn a_node_that_sees_no_lease_but_its_own_tells_of_all_that_it_knows() {
        let told = |alive: &[u32]| -> Vec<u32> {
            let alive = alive.iter().copied().map(NodeId).collect();
            told_alive(alive, NodeId(1), &metadata(&[])).into_iter().map(|node| node.0).collect()
        };
        assert_eq!(told(&[]), [1, 2, 3, 4]);
        assert_eq!(told(&[1]), [1, 2, 3, 4]);
        assert_eq!(told(&[1, 3]), [1, 3], "it hears of others, and would hear of those, too");
        assert_eq!(told(&[3]), [1, 3], "it is there, whatever the metadata say");
    }

    #[test]
    fn an_address_is_told_without_brackets() {
        assert_eq!(parse_address("[::1]:9092"), Some(("::1".to_owned(), 9092)));
        assert_eq!(parse_address("walrus-0.walrus:31092"), Some(("walrus-0.walrus".to_owned(), 31_092)));
        assert_eq!(parse_address("walrus-0"), None);
    }
}
