//! RPC between brokers: framed, pipelined, capped before allocation. Three connections to each node, so that a large
//! fetch does not stand before an append, nor clients' appends before those of replicas.

mod connection;
mod frame;
mod server;
mod versions;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::oneshot;
use uuid::Uuid;
use walrus_metadata::{Metadata, NodeId};

pub(crate) use connection::{CallError, Connection, Handshake};
pub(crate) use server::serve;
pub use versions::WireVersions;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::proto::peer::{
    Confirm, ErrorAnswer, Fetch, Hello, Kind, Ping, Prepare, ReplicaRequest, SegmentInfo,
};

/// After a connection could not be made, the next attempt waits so long, then doubles.
const BACKOFF_MIN: Duration = Duration::from_millis(25);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// What a peer can be asked with [`Peers::call`]. The answer's payload belongs to the request's kind.
#[derive(Clone, Debug)]
pub enum Request {
    /// Batches of the receiver's copy of a segment; answered with `FetchAnswer`.
    Fetch(Fetch),
    /// Create the log of a successor; answered with `PrepareAnswer`.
    Prepare(Prepare),
    /// Facts about copies of segments; answered with `SegmentInfoAnswer`.
    SegmentInfo(SegmentInfo),
    /// Goes to [`crate::cursors::CursorService::answer_peer`] of the other node; the bytes are the cursors' own messages.
    Cursor(Bytes),
    /// Is anybody there?
    Ping,
    /// A message to a replica that needs no place in an order; answered with `ReplicaAnswer`.
    Replica(ReplicaRequest),
    /// Whether replicas still take their leader's appends; answered with `ConfirmAnswer`.
    Confirm(Confirm),
}

impl Request {
    fn encode(self) -> (Kind, Bytes) {
        match self {
            Self::Fetch(fetch) => (Kind::Fetch, fetch.encode_to_vec().into()),
            Self::Prepare(prepare) => (Kind::Prepare, prepare.encode_to_vec().into()),
            Self::SegmentInfo(info) => (Kind::SegmentInfo, info.encode_to_vec().into()),
            Self::Cursor(request) => (Kind::Cursor, request),
            Self::Ping => (Kind::Ping, Ping {}.encode_to_vec().into()),
            Self::Replica(request) => (Kind::Replica, request.encode_to_vec().into()),
            Self::Confirm(confirm) => (Kind::Confirm, confirm.encode_to_vec().into()),
        }
    }
}

/// Which connection to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Appends, in order.
    Append,
    /// All the rest.
    Ask,
    /// From leaders to replicas.
    Replica,
    /// Pings, so that they wait behind nothing.
    Ping,
}

/// Requests to other brokers.
pub struct Peers {
    hello: Hello,
    /// Connections live here, whoever asks for them.
    runtime: tokio::runtime::Handle,
    nodes: Mutex<HashMap<u32, Arc<Peer>>>,
}

struct Peer {
    node: u32,
    disk: Uuid,
    process: Uuid,
    address: String,
    lanes: [tokio::sync::Mutex<Attempt>; 4],
}

#[derive(Default)]
struct Attempt {
    connection: Option<Arc<Connection>>,
    not_before: Option<Instant>,
    backoff: Duration,
}

impl Peers {
    pub(crate) fn new(config: &Config, runtime: tokio::runtime::Handle) -> Self {
        let bytes = |id: Uuid| Bytes::copy_from_slice(id.as_bytes());
        let hello = Hello {
            wire_version: config.wire_versions.newest,
            oldest_wire_version: config.wire_versions.oldest,
            cluster_id: bytes(config.cluster_id),
            node: config.node_id,
            disk: bytes(config.disk),
            process: bytes(config.process),
        };
        Self { hello, runtime, nodes: Mutex::default() }
    }

    /// Takes in the nodes' addresses. Connections to an earlier process or address of a node are closed.
    pub(crate) fn update(&self, metadata: &Metadata) {
        let mut nodes = self.nodes.lock();
        nodes.retain(|id, _| metadata.nodes.contains_key(&NodeId(*id)));
        for (NodeId(id), node) in &metadata.nodes {
            let is_same = |peer: &Arc<Peer>| {
                (peer.disk, peer.process, &peer.address) == (node.disk, node.process, &node.peer_address)
            };
            if !nodes.get(id).is_some_and(is_same) {
                let peer = Peer {
                    node: *id,
                    disk: node.disk,
                    process: node.process,
                    address: node.peer_address.clone(),
                    lanes: Default::default(),
                };
                nodes.insert(*id, Arc::new(peer));
            }
        }
    }

    /// Sends a request and waits for its answer. `Unavailable`: it was not sent. `OutcomeUnknown`: it was sent, and the
    /// connection died or the deadline passed before the answer.
    pub async fn call(&self, node: u32, request: Request, patience: Duration) -> Result<Bytes> {
        let deadline = Instant::now() + patience;
        let lane = if matches!(request, Request::Ping) { Lane::Ping } else { Lane::Ask };
        let connection = tokio::time::timeout(patience, self.connection(node, lane));
        let late = |_| Error::Unavailable { what: format!("node {node} does not take connections") };
        let connection = connection.await.map_err(late)??;
        let (sender, receiver) = oneshot::channel();
        let (kind, payload) = request.encode();
        let completion = Box::new(move |answer| drop(sender.send(answer)));
        connection
            .send(kind, payload, deadline, completion)
            .map_err(|what| Error::Unavailable { what: format!("node {node}: {what}") })?;
        match receiver.await {
            Ok(Ok(payload)) => Ok(payload),
            Ok(Err(CallError::Refused(error))) => Err(error),
            Ok(Err(CallError::NotSent(what))) => {
                Err(Error::Unavailable { what: format!("node {node}: {what}") })
            }
            Ok(Err(CallError::Lost(what))) => {
                Err(Error::OutcomeUnknown { what: format!("node {node}: {what}") })
            }
            Err(_) => Err(Error::OutcomeUnknown { what: format!("node {node}: the connection's task died") }),
        }
    }

    /// An open connection, made if need be. Right after a failure it fails at once.
    pub(crate) async fn connection(&self, node: u32, lane: Lane) -> Result<Arc<Connection>> {
        let peer = self.nodes.lock().get(&node).cloned();
        let peer =
            peer.ok_or_else(|| Error::Unavailable { what: format!("unknown addr for node {node}") })?;
        let mut attempt = peer.lanes[lane as usize].lock().await;
        if let Some(connection) = attempt.connection.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        attempt.connection = None;
        let unavailable = |what: String| Error::Unavailable { what };
        if attempt.not_before.is_some_and(|not_before| Instant::now() < not_before) {
            return Err(unavailable(format!("node {node} at {} was not reachable just now", peer.address)));
        }
        let handshake =
            Handshake { hello: self.hello.clone(), expect_node: peer.node, expect_disk: peer.disk };
        let opening = Connection::open(peer.address.clone(), handshake);
        let opened =
            self.runtime.spawn(opening).await.unwrap_or_else(|problem| Err(std::io::Error::other(problem)));
        match opened {
            Ok(connection) => {
                tracing::debug!(node, address = peer.address, ?lane, "connected to peer");
                let connection = Arc::new(connection);
                *attempt = Attempt { connection: Some(connection.clone()), ..Attempt::default() };
                Ok(connection)
            }
            Err(problem) => {
                let backoff = (attempt.backoff * 2).clamp(BACKOFF_MIN, BACKOFF_MAX);
                if attempt.backoff.is_zero() {
                    tracing::warn!(node, address = peer.address, %problem, "cannot connect to peer, trying on");
                }
                *attempt = Attempt { connection: None, not_before: Some(Instant::now() + backoff), backoff };
                Err(unavailable(format!("node {node} at {} is not reachable: {problem}", peer.address)))
            }
        }
    }

    /// Closes the connections to a node that is silent: what waits for it learns so now. The next request connects anew.
    pub(crate) fn sever(&self, node: u32) {
        let peer = self.nodes.lock().get(&node).cloned();
        for lane in peer.iter().flat_map(|peer| &peer.lanes) {
            if let Ok(mut attempt) = lane.try_lock()
                && let Some(connection) = attempt.connection.take()
            {
                connection.close();
            }
        }
    }

    /// Closes all connections.
    pub(crate) fn close(&self) {
        self.nodes.lock().clear();
    }
}

fn encode_error(error: &Error) -> Bytes {
    let answer = ErrorAnswer {
        reason: error.reason().to_owned(),
        message: error.to_string(),
        retryable: error.retryable(),
        error_json: serde_json::to_vec(error).expect("errors are plain data").into(),
    };
    answer.encode_to_vec().into()
}

fn decode_error(payload: Bytes) -> Error {
    let Ok(ErrorAnswer { reason, message, retryable, error_json }) = ErrorAnswer::decode(payload) else {
        return Error::Internal { message: "a peer's error is not understood".to_owned() };
    };
    serde_json::from_slice(&error_json).unwrap_or(Error::Foreign { reason, message, retryable })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_cross_the_wire_and_unknown_ones_keep_their_name() {
        let error = Error::OutOfOrderSequence { producer_id: 3, expected: 4, got: 7 };
        assert_eq!(decode_error(encode_error(&error)), error);

        let newer = ErrorAnswer {
            reason: "Throttled".to_owned(),
            message: "slow down".to_owned(),
            retryable: true,
            error_json: r#"{"Throttled":{"ms":3}}"#.into(),
        };
        let error = decode_error(newer.encode_to_vec().into());
        assert!(error.retryable());
        assert_eq!((error.reason(), error.to_string().as_str()), ("Throttled", "slow down"));
        assert_eq!(decode_error(Bytes::from_static(b"\xff\xff")).reason(), "Internal");
    }
}
