//! Commands about nodes.

use walrus_model::{NodeId, ProcessId};

use crate::answer::Answer;
use crate::command::Command;
use crate::organisation::is_org_name;
use crate::rejection::CommandRejection;
use crate::state::{Metadata, Node, NodeState};

/// Length of the longest name that DNS knows, in bytes.
const HOST_BYTES_MAX: usize = 253;

pub(super) fn register_node(
    metadata: &mut Metadata,
    command: &Command,
    version: u64,
) -> Result<Answer, CommandRejection> {
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
        listeners,
        name,
        zone,
        level,
    } = command
    else {
        unreachable!("the caller matched the variant");
    };
    if metadata.gone_disks.contains(disk) {
        return Err(CommandRejection::DiskGone { disk: *disk });
    }
    // Raft alone is dialled before the node's data plane listens: the ports of the others may still be 0.
    check_address(raft_address, 1)?;
    for address in [peer_address, text_address, grpc_address, http_address, admin_address] {
        check_address(address, 0)?;
    }
    for listener in listeners {
        check_address(&listener.address, 0)?;
        if !is_org_name(&listener.org) {
            return Err(CommandRejection::InvalidOrganisationName { name: listener.org.clone() });
        }
        if !listener.name.is_empty() && !is_org_name(&listener.name) {
            return Err(CommandRejection::InvalidListenerName { name: listener.name.clone() });
        }
    }
    if !zone.is_empty() && !is_org_name(zone) {
        return Err(CommandRejection::InvalidZoneName { name: zone.clone() });
    }
    if *level < metadata.level {
        return Err(CommandRejection::TooOld { knows: *level, needed: metadata.level });
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
        listeners: listeners.clone(),
        name: name.clone(),
        zone: zone.clone(),
        level: *level,
        state: known.map_or(NodeState::Up, |node| state_after_start(node, *process)),
        renewals: known.map_or(0, |node| node.renewals),
        asked_boottime_ms: known
            .filter(|node| node.process == *process)
            .map_or(0, |node| node.asked_boottime_ms),
        clock_ms: known.map_or(0, |node| node.clock_ms),
        disk_bytes: known.map_or(0, |node| node.disk_bytes),
        version,
    };
    metadata.nodes.insert(id, node);
    Ok(Answer::Node(id))
}

/// Refuses an address that nobody can dial. An empty one is taken, for the node has not told it; any other is `host:port`
/// or `[ipv6]:port`, its host 1 to 253 characters of `[A-Za-z0-9._:-]` and its port at least `port_min`.
fn check_address(address: &str, port_min: u16) -> Result<(), CommandRejection> {
    let is_host = |host: &str| {
        (1..=HOST_BYTES_MAX).contains(&host.len())
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte))
    };
    let can_be_dialled = address.rsplit_once(':').is_some_and(|(host, port)| {
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        is_host(bracketed.unwrap_or(host))
            && (bracketed.is_some() || !host.contains(':'))
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port >= port_min)
    });
    if address.is_empty() || can_be_dialled {
        return Ok(());
    }
    Err(CommandRejection::BadAddress { address: address.chars().take(HOST_BYTES_MAX).collect() })
}

/// The state of a node that registers again. A new process has not said yet that its disk is full, nor does it stop, while a drain
/// concerns the disk, whatever process runs on it.
fn state_after_start(node: &Node, process: ProcessId) -> NodeState {
    match node.state {
        NodeState::Full | NodeState::Stopping if node.process != process => NodeState::Up,
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
    process: ProcessId,
) -> Result<&mut Node, CommandRejection> {
    let found = metadata.nodes.get_mut(&node).ok_or(CommandRejection::UnknownNode { node })?;
    if found.process != process {
        return Err(CommandRejection::StaleProcess { node, current: found.process, got: process });
    }
    Ok(found)
}
