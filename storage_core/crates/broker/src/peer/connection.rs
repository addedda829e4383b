//! The asking side of one connection to another broker: requests are pipelined, answers are matched by request id. When it
//! dies, each request learns whether it had been sent.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use prost::Message as _;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::sync::CancellationToken;
use walrus_model::{DiskId, ProcessId};

use super::errors::decode_error;
use super::frame::{FRAME_BYTES_MAX, Frame, FrameReader, HELLO_BYTES_MAX};
use super::greeting::{greeting, nonce};
use super::outlet::{Outlet, write_all};
use crate::node::budget::{Budget, Purpose, counted};
use crate::node::error::Error;
use crate::node::locks::{CONNECTION, Lock};
use crate::node::patience;
use crate::node::proto::peer::{Challenge, Hello, HelloAnswer, Kind, Proof};
use crate::node::secret::{NONCE_BYTES, Role, Secrets, find};
use crate::node::versions::WireVersions;

/// Limit on the bytes of requests that wait for the socket; a request above it is refused as not sent.
const OUTGOING_BYTES_MAX: usize = 256 << 20;
/// Answers up to this size do not count against the budget.
const SMALL_ANSWER_BYTES: usize = 16 << 10;

/// Why a request has no answer's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The other node never saw it.
    NotSent(String),
    /// The other node may have seen it: the connection died, or the deadline passed.
    Lost(String),
    /// The other node refused it.
    Refused(Error),
}

/// Takes the answer of a request; called exactly once, on the connection's task.
pub(crate) type Completion = Box<dyn FnOnce(Result<Bytes, CallError>) + Send>;

/// What one end of a connection says of itself, and whom it expects at the other.
pub(crate) struct Handshake {
    pub(crate) hello: Hello,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) expect_node: u32,
    pub(crate) expect_disk: DiskId,
}

/// An open connection.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    /// Id of the other node's process, as it said in its greeting.
    process: Bytes,
}

struct Shared {
    state: Lock<State, CONNECTION>,
    /// Requests are numbered from 1 and written in this order.
    outlet: Outlet,
    closed: CancellationToken,
    budget: Arc<Budget>,
}

struct State {
    next_id: u64,
    is_closed: bool,
    unanswered: BTreeMap<u64, PendingCall>,
}

/// A request that has no answer yet.
struct PendingCall {
    /// What the answer is for: it counts to that share of the budget.
    purpose: Purpose,
    deadline: Instant,
    completion: Completion,
}

impl Connection {
    /// Connects and greets. The tasks that serve it end with it.
    pub(crate) async fn open(address: String, handshake: Handshake, budget: Arc<Budget>) -> io::Result<Self> {
        let greeted = tokio::time::timeout(patience::HANDSHAKE, greet(&address, handshake)).await;
        let GreetedPeer { reader, writer, process } =
            greeted.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let shared = Arc::new(Shared {
            state: Lock::new(State { next_id: 1, is_closed: false, unanswered: BTreeMap::new() }),
            outlet: Outlet::new(writer),
            closed: CancellationToken::new(),
            budget,
        });
        let serving = shared.clone();
        tokio::spawn(async move { serving.serve(reader).await });
        Ok(Self { shared, process })
    }

    /// Sends a request; its answer counts to the share of `purpose`. Requests are written in the order of these calls. On `Err`
    /// it was not sent and `completion` is not called.
    pub(crate) fn send(
        &self,
        (kind, purpose): (Kind, Purpose),
        payload: Bytes,
        deadline: Instant,
        completion: Completion,
    ) -> Result<(), &'static str> {
        let Shared { state, outlet, .. } = &*self.shared;
        let mut state = state.lock();
        if state.is_closed {
            return Err("the connection is closed");
        }
        if outlet.waiting_bytes() > OUTGOING_BYTES_MAX {
            return Err("too many bytes wait for this connection");
        }
        let id = state.next_id;
        state.next_id += 1;
        state.unanswered.insert(id, PendingCall { purpose, deadline, completion });
        let kind = u8::try_from(kind as i32).expect("kinds fit a byte");
        let frame = Frame { kind, id, payload };
        if state.unanswered.len() == 1 {
            outlet.send_alone(frame)
        } else {
            outlet.send(frame)
        }
        Ok(())
    }

    /// Whether the connection leads to that process.
    pub(crate) fn is_to(&self, process: ProcessId) -> bool {
        self.process == process.as_bytes().as_slice()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.shared.closed.is_cancelled()
    }

    /// Resolves when the connection is closed, by whomever.
    pub(crate) async fn closed(&self) {
        self.shared.closed.cancelled().await;
    }

    /// Closes the connection; what is unanswered completes with an error.
    pub(crate) fn close(&self) {
        self.shared.closed.cancel();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    async fn serve(&self, reader: FrameReader<OwnedReadHalf>) {
        let why = tokio::select! {
            () = self.closed.cancelled() => "it was closed here".to_owned(),
            result = self.read(reader) => match result {
                Ok(()) => "the other node closed it".to_owned(),
                Err(problem) => problem.to_string(),
            },
            result = self.outlet.write_waiting() => match result {
                Ok(()) => "it was closed here".to_owned(),
                Err(problem) => problem.to_string(),
            },
            () = self.sweep() => unreachable!("sweeping does not end"),
        };
        self.fail_all(&why);
    }

    async fn read(&self, mut reader: FrameReader<OwnedReadHalf>) -> io::Result<()> {
        while let Some(head) = reader.head(FRAME_BYTES_MAX).await? {
            let Some(unanswered) = self.state.lock().unanswered.remove(&head.id) else {
                reader.skip(head).await?; // its deadline passed before
                continue;
            };
            let share = self.budget.share(unanswered.purpose);
            let mut held = None;
            if head.payload_bytes > SMALL_ANSWER_BYTES {
                // A page for a client does not wait for room but is refused: behind it may be the answer to a vote.
                let must_fit = unanswered.purpose == Purpose::Reads;
                held = if must_fit {
                    share.try_take(head.payload_bytes)
                } else {
                    Some(share.hold(head.payload_bytes))
                };
                if held.is_none() {
                    reader.skip(head).await?;
                    (unanswered.completion)(Err(CallError::Refused(share.exhausted())));
                    continue;
                }
            }
            let mut frame = reader.rest(head).await?;
            if let Some(held) = held {
                frame.payload = counted(frame.payload, Arc::new(held));
            }
            let answer = match Kind::try_from(i32::from(frame.kind)) {
                Ok(Kind::Answer) => Ok(frame.payload),
                Ok(Kind::Error) => Err(CallError::Refused(decode_error(frame.payload))),
                _ => Err(CallError::Lost(format!("an answer of kind {}", frame.kind))),
            };
            (unanswered.completion)(answer);
        }
        Ok(())
    }

    /// Completes requests whose deadline has passed.
    async fn sweep(&self) {
        loop {
            tokio::time::sleep(patience::CALL_DEADLINES_LOOK).await;
            let now = Instant::now();
            let late: Vec<PendingCall> = {
                let mut state = self.state.lock();
                let is_late = |(_, unanswered): &(&u64, &PendingCall)| unanswered.deadline <= now;
                let ids: Vec<u64> = state.unanswered.iter().filter(is_late).map(|(id, _)| *id).collect();
                ids.into_iter().filter_map(|id| state.unanswered.remove(&id)).collect()
            };
            for unanswered in late {
                (unanswered.completion)(Err(CallError::Lost("no answer before the deadline".to_owned())));
            }
        }
    }

    /// Closes the connection and completes what is unanswered with an error.
    fn fail_all(&self, why: &str) {
        self.closed.cancel();
        let unanswered = {
            let mut state = self.state.lock();
            state.is_closed = true;
            std::mem::take(&mut state.unanswered)
        };
        self.outlet.close();
        let written = self.outlet.written();
        for (id, unanswered) in unanswered {
            let error = if id <= written { CallError::Lost } else { CallError::NotSent };
            (unanswered.completion)(Err(error(why.to_owned())));
        }
    }
}

/// A connection to a node that has proved to be who it should be.
struct GreetedPeer {
    reader: FrameReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    process: Bytes,
}

async fn greet(address: &str, handshake: Handshake) -> io::Result<GreetedPeer> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let hello = Hello { nonce: nonce()?, ..handshake.hello.clone() };
    let hello = greeting(Kind::Hello, 0, &hello);
    write_all(&stream, hello.to_bytes()).await?;
    let (reader, writer) = stream.into_split();

    let mut reader = FrameReader::new(reader);
    let challenge = step(&mut reader, Kind::Challenge).await?;
    let nonce = Challenge::decode(challenge.clone())?.nonce;
    if nonce.len() != NONCE_BYTES {
        return Err(refused(format!("a nonce of {} bytes", nonce.len())));
    }
    let secrets = handshake.secrets.current();
    let mac = secrets[0].prove(Role::Dialler, &[&hello.payload, &challenge]).into();
    write_all(writer.as_ref(), greeting(Kind::Proof, 0, &Proof { mac }).to_bytes()).await?;
    let answer = step(&mut reader, Kind::Answer).await?;
    let proof = Proof::decode(step(&mut reader, Kind::Proof).await?)?.mac;
    if find(&secrets, Role::Acceptor, &[&hello.payload, &challenge, &answer], &proof).is_none() {
        return Err(refused("it does not know the cluster's secret".to_owned()));
    }
    let answer = HelloAnswer::decode(answer)?;
    let spoken = WireVersions::told(answer.wire_version, 0);
    let ours = WireVersions::told(handshake.hello.wire_version, handshake.hello.oldest_wire_version);
    ours.negotiate(spoken).map_err(|problem| refused(format!("node {}: {problem}", answer.node)))?;
    let expected = (handshake.expect_node, handshake.expect_disk.as_bytes().as_slice());
    if (answer.node, answer.disk.as_ref()) != expected {
        return Err(refused(format!(
            "expected node {} of disk {} there; found node {}",
            handshake.expect_node, handshake.expect_disk, answer.node
        )));
    }
    Ok(GreetedPeer { reader, writer, process: answer.process })
}

fn refused(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, message)
}

/// The payload of the next step of the greeting; a refusal may come in its place.
async fn step(reader: &mut FrameReader<OwnedReadHalf>, kind: Kind) -> io::Result<Bytes> {
    let frame = reader.next(HELLO_BYTES_MAX).await?;
    let frame = frame.ok_or_else(|| refused("closed at the greeting".to_owned()))?;
    match Kind::try_from(i32::from(frame.kind)) {
        Ok(Kind::Error) => Err(refused(decode_error(frame.payload).to_string())),
        Ok(step) if step == kind => Ok(frame.payload),
        _ => Err(refused(format!(
            "a frame of kind {} in the greeting, expected is {}",
            frame.kind, kind as i32
        ))),
    }
}
