//! Commands about nodes.

use uuid::Uuid;

use crate::command::{Answer, Command};
use crate::model::{Metadata, Node, NodeId, NodeState};
use crate::rejected::Rejected;

pub(super) fn register_node(
    metadata: &mut Metadata,
    command: &Command,
    version: u64,
) -> Result<Answer, Rejected> {
    let Command::RegisterNode {
        wanted,
        disk,
        process,
        raft_address,
        peer_address,
        text_address,
        grpc_address,
        http_address,
        admin_address,
        name,
        level,
    } = command
    else {
        unreachable!("the caller matched the variant");
    };
    if metadata.gone_disks.contains(disk) {
        return Err(Rejected::DiskGone { disk: *disk });
    }
    if *level < metadata.level {
        return Err(Rejected::TooOld { knows: *level, needed: metadata.level });
    }
    let known = metadata.nodes.values().find(|node| node.disk == *disk);
    let id = known.map_or_else(|| free_id(metadata, *wanted), |node| node.id);
    let node = Node {
        id,
        disk: *disk,
        process: *process,
        raft_address: raft_address.clone(),
        peer_address: peer_address.clone(),
        text_address: text_address.clone(),
        grpc_address: grpc_address.clone(),
        http_address: http_address.clone(),
        admin_address: admin_address.clone(),
        name: name.clone(),
        level: *level,
        state: known.map_or(NodeState::Up, |node| state_after_start(node, *process)),
        renewals: known.map_or(0, |node| node.renewals),
        asked_boottime_ms: known
            .filter(|node| node.process == *process)
            .map_or(0, |node| node.asked_boottime_ms),
        version,
    };
    metadata.nodes.insert(id, node);
    Ok(Answer::Node(id))
}

/// A new process has not said yet that its disk is full; to be drained is not a matter of the process.
fn state_after_start(node: &Node, process: Uuid) -> NodeState {
    match node.state {
        NodeState::Full if node.process != process => NodeState::Up,
        state => state,
    }
}

fn free_id(metadata: &Metadata, wanted: Option<NodeId>) -> NodeId {
    let is_free = |id: &NodeId| id.0 > 0 && !metadata.nodes.contains_key(id);
    wanted
        .filter(is_free)
        .unwrap_or_else(|| (1..).map(NodeId).find(is_free).expect("there are more ids than nodes"))
}

pub(super) fn current_process(
    metadata: &mut Metadata,
    node: NodeId,
    process: Uuid,
) -> Result<&mut Node, Rejected> {
    let found = metadata.nodes.get_mut(&node).ok_or(Rejected::UnknownNode { node })?;
    if found.process != process {
        return Err(Rejected::StaleProcess { node, current: found.process, got: process });
    }
    Ok(found)
}
