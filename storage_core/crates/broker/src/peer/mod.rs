//! RPC between brokers: framed, pipelined, capped before allocation. A connection for each [`Lane`] to each node, so that a
//! large fetch does not stand before an append, nor clients' appends before those of replicas.

mod connection;
pub(crate) mod errors;
pub(crate) mod frame;
pub(crate) mod greeting;
pub(crate) mod outlet;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;
use tokio::sync::{oneshot, watch};
use uuid::Uuid;
use walrus_metadata::Metadata;
use walrus_model::{DiskId, NodeId, ProcessId};

pub(crate) use connection::{CallError, Connection, Handshake};

use crate::node::budget::{Budget, Purpose};
use crate::node::config::Config;
use crate::node::error::{Error, Result};
use crate::node::locks::{Lock, PEERS};
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::node::proto::peer::{
    Confirm, Fetch, FindTime, GroupRequest, Hello, Kind, Ping, Prepare, ReplicaRequest, SegmentInfo,
};
use crate::node::secret::Secrets;

/// What a peer can be asked with [`Peers::call`]. The answer's payload belongs to the request's kind.
#[derive(Clone, Debug)]
pub enum Request {
    /// Batches of the receiver's copy of a segment; answered with `FetchAnswer`.
    Fetch(Fetch),
    /// Has the log of a successor created; answered with `PrepareAnswer`.
    Prepare(Prepare),
    /// Facts about copies of segments; answered with `SegmentInfoAnswer`.
    SegmentInfo(SegmentInfo),
    /// A message of the cursors, for [`crate::cursors::CursorService::answer_peer`] of the other node.
    Cursor(Bytes),
    /// A message of consumer groups, for [`crate::groups::GroupService::answer_peer`] of the other node.
    Group(GroupRequest),
    /// A question whether the node answers at all.
    Ping,
    /// A message to a replica that needs no place in an order; answered with `ReplicaAnswer`.
    Replica(ReplicaRequest),
    /// Whether replicas still take their leader's appends; answered with `ConfirmAnswer`.
    Confirm(Confirm),
    /// A search by time in the receiver's copy of a segment; answered with `FindTimeAnswer`.
    FindTime(FindTime),
}

impl Request {
    /// The purpose to whose share of the budget the answer counts.
    fn purpose(&self) -> Purpose {
        match self {
            Self::Fetch(fetch) if !fetch.durable => Purpose::Reads,
            Self::Cursor(_) | Self::Group(_) => Purpose::Reads,
            Self::Fetch(_) => Purpose::Repairs,
            _ => Purpose::Votes,
        }
    }

    fn encode(self) -> (Kind, Bytes) {
        match self {
            Self::Fetch(fetch) => (Kind::Fetch, fetch.encode_to_vec().into()),
            Self::Prepare(prepare) => (Kind::Prepare, prepare.encode_to_vec().into()),
            Self::SegmentInfo(info) => (Kind::SegmentInfo, info.encode_to_vec().into()),
            Self::Cursor(request) => (Kind::Cursor, request),
            Self::Group(request) => (Kind::Group, request.encode_to_vec().into()),
            Self::Ping => (Kind::Ping, Ping {}.encode_to_vec().into()),
            Self::Replica(request) => (Kind::Replica, request.encode_to_vec().into()),
            Self::Confirm(confirm) => (Kind::Confirm, confirm.encode_to_vec().into()),
            Self::FindTime(find) => (Kind::FindTime, find.encode_to_vec().into()),
        }
    }
}

/// The connections to a node, one for each kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Carries appends, in order.
    Append,
    /// Carries all the rest.
    Ask,
    /// Carries appends and votes from leaders to replicas.
    Replica,
    /// Carries pings, so that they wait behind nothing.
    Ping,
}

/// Requests to other brokers.
pub struct Peers {
    hello: Hello,
    secrets: Arc<Secrets>,
    /// Budget against which answers count.
    budget: Arc<Budget>,
    /// Runtime on which connections live, whoever asks for them.
    runtime: tokio::runtime::Handle,
    nodes: Lock<HashMap<u32, Arc<Peer>>, PEERS>,
}

/// Another node, and the connections to it.
struct Peer {
    node: u32,
    disk: DiskId,
    /// The latest process of the node that the metadata named.
    process: Lock<ProcessId>,
    address: String,
    lanes: [tokio::sync::Mutex<Attempt>; 4],
    /// Whether the node is silent, and only pinged until it answers: else each request would wait for a connection.
    given_up: watch::Sender<bool>,
}

impl Peer {
    /// Takes in which process the metadata name. Connections that lead to another one are closed; one that was made since the
    /// node is back stays, with what is under way on it. A node that was given up stays so until it answers a ping: up to then
    /// it is given up again and again, and what was sent to it meanwhile would be lost. Returns whether it is another one than before.
    fn runs_as(&self, process: ProcessId) -> bool {
        if std::mem::replace(&mut *self.process.lock(), process) == process {
            return false;
        }
        // Whoever holds a lane connects just now, to the process that is there now.
        for mut attempt in self.lanes.iter().filter_map(|lane| lane.try_lock().ok()) {
            let connection = attempt.connection.take();
            if let Some(connection) = connection.as_ref().filter(|connection| !connection.is_to(process)) {
                connection.close();
            }
            *attempt = Attempt { connection, ..Attempt::default() };
        }
        true
    }
}

/// The state of one connection: open, or when the next try may come.
#[derive(Default)]
struct Attempt {
    connection: Option<Arc<Connection>>,
    not_before: Option<Instant>,
    backoff: Duration,
}

impl Peers {
    pub(crate) fn new(
        config: &Config,
        secrets: Arc<Secrets>,
        budget: Arc<Budget>,
        runtime: tokio::runtime::Handle,
    ) -> Self {
        let bytes = |id: Uuid| Bytes::copy_from_slice(id.as_bytes());
        let hello = Hello {
            wire_version: config.wire_versions.newest,
            oldest_wire_version: config.wire_versions.oldest,
            cluster_id: bytes(config.cluster_id),
            node: config.node_id,
            disk: bytes(config.disk.0),
            process: bytes(config.process.0),
            is_replica_lane: false,
            nonce: Bytes::new(), // one for each connection
        };
        Self { hello, secrets, budget, runtime, nodes: Lock::default() }
    }

    /// Takes in the nodes' addresses. Connections to an earlier process or address of a node are closed. Returns the nodes that
    /// run as another process than before.
    pub(crate) fn update(&self, metadata: &Metadata) -> Vec<u32> {
        let mut restarted = Vec::new();
        let mut nodes = self.nodes.lock();
        nodes.retain(|id, _| metadata.nodes.contains_key(&NodeId(*id)));
        for (NodeId(id), node) in &metadata.nodes {
            let is_same = |peer: &&Arc<Peer>| (peer.disk, &peer.address) == (node.disk, &node.peer_address);
            if let Some(peer) = nodes.get(id).filter(is_same) {
                if peer.runs_as(node.process) {
                    restarted.push(*id);
                }
            } else {
                let peer = Peer {
                    node: *id,
                    disk: node.disk,
                    process: Lock::new(node.process),
                    address: node.peer_address.clone(),
                    lanes: Default::default(),
                    given_up: watch::Sender::new(false),
                };
                nodes.insert(*id, Arc::new(peer));
            }
        }
        restarted
    }

    /// Sends a request and waits for its answer. `Unavailable` if it was not sent; `OutcomeUnknown` if it was, and the connection
    /// died or `patience` ended before the answer.
    pub async fn call(&self, node: u32, request: Request, patience: Duration) -> Result<Bytes> {
        let deadline = Instant::now() + patience;
        let lane = if matches!(request, Request::Ping) { Lane::Ping } else { Lane::Ask };
        let connection = tokio::time::timeout(patience, self.connection(node, lane));
        let late = |_| Obstacle::Unconnected { node };
        let connection = connection.await.map_err(late)??;
        let (sender, receiver) = oneshot::channel();
        let purpose = request.purpose();
        let (kind, payload) = request.encode();
        let completion = Box::new(move |answer| drop(sender.send(answer)));
        connection
            .send((kind, purpose), payload, deadline, completion)
            .map_err(|reason| Obstacle::NotSent { node, reason: reason.to_owned() })?;
        match receiver.await {
            Ok(Ok(payload)) => Ok(payload),
            Ok(Err(CallError::Refused(error))) => Err(error),
            Ok(Err(CallError::NotSent(reason))) => Err(Obstacle::NotSent { node, reason }.into()),
            Ok(Err(CallError::Lost(what))) => {
                if lane == Lane::Ping {
                    connection.close(); // it may be half open: the next ping finds out
                }
                Err(Error::OutcomeUnknown { what: format!("node {node}: {what}") })
            }
            Err(_) => Err(Error::OutcomeUnknown { what: format!("node {node}: the connection's task died") }),
        }
    }

    /// An open connection, which is made if need be. Fails at once right after a failure, and while the node is given up.
    pub(crate) async fn connection(&self, node: u32, lane: Lane) -> Result<Arc<Connection>> {
        let peer = self.peer(node)?;
        if lane == Lane::Ping {
            return self.connect(&peer, lane).await;
        }
        let mut given_up = peer.given_up.subscribe();
        tokio::select! {
            biased;
            Ok(_) = given_up.wait_for(|given_up| *given_up) => {
                Err(Obstacle::Silent { node }.into())
            }
            connected = self.connect(&peer, lane) => connected,
        }
    }

    fn peer(&self, node: u32) -> Result<Arc<Peer>> {
        let peer = self.nodes.lock().get(&node).cloned();
        peer.ok_or(Obstacle::AddressUnknown { node }.into())
    }

    async fn connect(&self, peer: &Peer, lane: Lane) -> Result<Arc<Connection>> {
        let node = peer.node;
        let mut attempt = peer.lanes[lane as usize].lock().await;
        if let Some(connection) = attempt.connection.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        attempt.connection = None;
        if attempt.not_before.is_some_and(|not_before| Instant::now() < not_before) {
            return Err(Obstacle::RetriedTooSoon { node, address: peer.address.clone() }.into());
        }
        let hello = Hello { is_replica_lane: lane == Lane::Replica, ..self.hello.clone() };
        let secrets = self.secrets.clone();
        let handshake = Handshake { hello, secrets, expect_node: peer.node, expect_disk: peer.disk };
        let opening = Connection::open(peer.address.clone(), handshake, self.budget.clone());
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
                let backoff =
                    (attempt.backoff * 2).clamp(patience::CONNECT_RETRY_MIN, patience::CONNECT_RETRY_MAX);
                if attempt.backoff.is_zero() {
                    tracing::warn!(node, address = peer.address, %problem, "cannot connect to peer, trying on");
                }
                *attempt = Attempt { connection: None, not_before: Some(Instant::now() + backoff), backoff };
                let (address, reason) = (peer.address.clone(), problem.to_string());
                Err(Obstacle::Unreachable { node, address, reason }.into())
            }
        }
    }

    /// Gives a node up that does not answer: what waits for it learns so now, and so does whoever asks it anew. It is only
    /// pinged, until it is taken back. To be said again as long as it does not answer: a connection can slip through.
    pub(crate) fn give_up(&self, node: u32) {
        let Ok(peer) = self.peer(node) else { return };
        peer.given_up.send_replace(true);
        for lane in [Lane::Append, Lane::Ask, Lane::Replica] {
            if let Ok(mut attempt) = peer.lanes[lane as usize].try_lock()
                && let Some(connection) = attempt.connection.take()
            {
                connection.close();
            }
        }
    }

    /// Takes back that a node was given up, for it has answered a ping.
    pub(crate) fn take_back(&self, node: u32) {
        if let Ok(peer) = self.peer(node) {
            peer.given_up.send_replace(false);
        }
    }

    /// Whether a node answers pings as another process than this one; false as long as it is not known.
    pub(crate) fn runs_as_another(&self, node: u32, process: ProcessId) -> bool {
        let Ok(peer) = self.peer(node) else { return false };
        let Ok(attempt) = peer.lanes[Lane::Ping as usize].try_lock() else { return false };
        let open = attempt.connection.as_ref().filter(|connection| !connection.is_closed());
        open.is_some_and(|connection| !connection.is_to(process))
    }

    /// Closes all connections.
    pub(crate) fn close(&self) {
        self.nodes.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::{FutureExt as _, poll};

    use super::frame::{FrameReader, HELLO_BYTES_MAX};
    use super::greeting::{greeting, nonce};
    use super::outlet::write_all;
    use super::*;
    use crate::node::proto::peer::{Challenge, HelloAnswer, Proof};
    use crate::node::secret::Role;

    /// The process that greets, which the metadata have yet to name.
    const RUNNING: Uuid = Uuid::from_u128(1);

    /// A peer that takes connections and never greets back.
    async fn mute_peer() -> (tokio::net::TcpListener, Peers) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peers = Peers {
            hello: Hello::default(),
            secrets: Arc::new(Secrets::open(None).unwrap()),
            budget: Arc::new(Budget::new(64 << 20)),
            runtime: tokio::runtime::Handle::current(),
            nodes: Lock::default(),
        };
        let peer = Peer {
            node: 7,
            disk: DiskId::from_u128(0),
            process: Lock::new(ProcessId::from_u128(0)),
            address: listener.local_addr().unwrap().to_string(),
            lanes: Default::default(),
            given_up: watch::Sender::new(false),
        };
        peers.nodes.lock().insert(7, Arc::new(peer));
        (listener, peers)
    }

    #[tokio::test]
    async fn whoever_waits_for_a_connection_to_a_node_that_is_given_up_learns_so_at_once() {
        let (_listener, peers) = mute_peer().await;
        let unanswered = Error::from(Obstacle::Silent { node: 7 });
        let mut first = pin!(peers.connection(7, Lane::Ask));
        let mut behind = pin!(peers.connection(7, Lane::Ask));
        assert!(poll!(&mut first).is_pending() && poll!(&mut behind).is_pending());
        peers.give_up(7);
        assert_eq!(first.await.err(), Some(unanswered.clone()));
        assert_eq!(behind.await.err(), Some(unanswered.clone()));
        let asked_anew = pin!(peers.connection(7, Lane::Append)).now_or_never();
        assert_eq!(asked_anew.map(Result::err), Some(Some(unanswered)));
        assert!(poll!(pin!(peers.connection(7, Lane::Ping))).is_pending(), "pings go on");
        peers.take_back(7);
        assert!(poll!(pin!(peers.connection(7, Lane::Append))).is_pending(), "it is connected to again");
    }

    /// A peer that greets back and answers no request; tells how many have connected.
    async fn greeting_peer() -> (watch::Receiver<u32>, Peers) {
        let (listener, peers) = mute_peer().await;
        let (connected, count) = watch::channel(0);
        tokio::spawn(async move {
            let mut greeted = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (reader, writer) = stream.into_split();
                let mut reader = FrameReader::new(reader);
                let hello = reader.next(HELLO_BYTES_MAX).await.unwrap().unwrap();
                let challenge = greeting(Kind::Challenge, 0, &Challenge { nonce: nonce().unwrap() });
                write_all(writer.as_ref(), challenge.to_bytes()).await.unwrap();
                reader.next(HELLO_BYTES_MAX).await.unwrap().unwrap();
                let answer = HelloAnswer {
                    node: 7,
                    disk: Bytes::copy_from_slice(Uuid::nil().as_bytes()),
                    process: Bytes::copy_from_slice(RUNNING.as_bytes()),
                    ..HelloAnswer::default()
                };
                let answer = greeting(Kind::Answer, 0, &answer);
                write_all(writer.as_ref(), answer.to_bytes()).await.unwrap();
                let secrets = Secrets::open(None).unwrap().current();
                let parts = [&hello.payload[..], &challenge.payload, &answer.payload];
                let mac = secrets[0].prove(Role::Acceptor, &parts).into();
                let proof = greeting(Kind::Proof, 0, &Proof { mac });
                write_all(writer.as_ref(), proof.to_bytes()).await.unwrap();
                greeted.push((reader, writer)); // else it would be closed
                connected.send_modify(|count| *count += 1);
            }
        });
        (count, peers)
    }

    /// The machine behind it may be gone: no packet would ever say so.
    #[tokio::test]
    async fn a_ping_that_is_not_answered_in_time_is_the_last_one_of_its_connection() {
        let (connected, peers) = greeting_peer().await;
        for pings in 1..=3 {
            peers.connection(7, Lane::Ping).await.unwrap(); // its greeting may take longer than the ping may
            let answer = peers.call(7, Request::Ping, Duration::from_millis(50)).await;
            assert!(matches!(answer, Err(Error::OutcomeUnknown { .. })), "{answer:?}");
            assert_eq!(*connected.borrow(), pings);
        }
    }

    #[tokio::test]
    async fn what_a_node_that_is_given_up_was_asked_is_not_waited_for() {
        let (_connected, peers) = greeting_peer().await;
        let connection = peers.connection(7, Lane::Ask).await.unwrap();
        let mut asked = pin!(peers.call(7, Request::Cursor(Bytes::new()), Duration::from_secs(10)));
        assert!(poll!(&mut asked).is_pending());
        peers.give_up(7);
        let answer = asked.await; // which of the two depends on whether it has left
        assert!(
            matches!(answer, Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. })),
            "{answer:?}"
        );
        assert!(connection.is_closed());
    }

    #[tokio::test]
    async fn a_connection_to_a_node_that_is_back_outlives_the_news_of_its_return() {
        let (_connected, peers) = greeting_peer().await;
        let connection = peers.connection(7, Lane::Append).await.unwrap();
        let peer = peers.peer(7).unwrap();
        peer.runs_as(ProcessId(RUNNING));
        assert!(!connection.is_closed(), "an append on it may be under way");
        let same = peers.connection(7, Lane::Append).await.unwrap();
        assert!(Arc::ptr_eq(&connection, &same));
        peer.runs_as(ProcessId(Uuid::from_u128(2)));
        assert!(connection.is_closed(), "the process that it led to is of before");
        assert!(!peers.connection(7, Lane::Append).await.unwrap().is_closed());

        peers.give_up(7);
        peer.runs_as(ProcessId(RUNNING));
        assert!(peers.connection(7, Lane::Append).await.is_err(), "it has yet to answer a ping");
    }
}
