//! The answering side: greets, then serves the frames of a connection. Appends take their places in the order in which
//! they arrive; everything else runs side by side.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use uuid::Uuid;
use walrus_metadata::{Descriptor, TopicId};

use super::frame::{FRAME_BYTES_MAX, Frame, FrameReader, HELLO_BYTES_MAX, write_frames};
use super::{WireVersions, encode_error};
use crate::broker::Broker;
use crate::error::{Error, Result};
use crate::proto::peer::{
    AppendAnswer, Confirm, Fetch, FetchAnswer, ForwardAppend, Hello, HelloAnswer, Kind, Prepare,
    PrepareAnswer, ReplicaRequest, SegmentInfo,
};
use crate::reader::PAGE_BYTES_MAX;
use crate::segment::uuid_bytes;
use crate::submission::AppendAck;

/// For the greeting of a new connection.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);
/// Requests of one connection that are under way; the next frame is read when one is done.
const REQUESTS_MAX: usize = 4_096;
/// How long frames of a connection wait for the metadata that their sender knew.
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(5);
/// Longest wait of a long poll.
const POLL_MAX: Duration = Duration::from_secs(60);

/// Serves until the broker's shutdown signal.
pub(crate) async fn serve(listener: TcpListener, broker: Broker) {
    let shutdown = broker.shutdown_signal().clone();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                let serving = broker.clone();
                broker.spawn("peer connection", async move {
                    if let Err(problem) = serve_connection(stream, serving).await {
                        tracing::debug!(%address, %problem, "the connection of a peer ended");
                    }
                });
            }
            Err(problem) => {
                tracing::warn!(%problem, "cannot accept a peer's connection");
                tokio::time::sleep(Duration::from_millis(100)).await; // out of descriptors, perhaps
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, broker: Broker) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    let mut reader = FrameReader::new(reader);
    let (answers, outgoing) = mpsc::unbounded_channel();
    let writing = async {
        let written = write_frames(writer, outgoing, |_| {}).await;
        written.and_then(|()| Err(io::Error::other("closed here")))
    };
    let serving = async {
        let hello = tokio::time::timeout(HELLO_PATIENCE, reader.next(HELLO_BYTES_MAX)).await;
        let Some(hello) = hello.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? else {
            return Ok(());
        };
        match greet(&hello, &broker) {
            Ok((from, answer)) => {
                drop(answers.send(answer));
                serve_frames(from, &mut reader, &answers, &broker).await
            }
            Err(error) => {
                tracing::warn!(%error, "a peer is refused");
                drop(answers.send(answer_to(hello.id, Err(error))));
                // The refusal leaves before the connection does: the other side reads it and closes.
                drop(tokio::time::timeout(HELLO_PATIENCE, reader.next(HELLO_BYTES_MAX)).await);
                Ok(())
            }
        }
    };
    tokio::select! {
        served = serving => served,
        written = writing => written,
        () = broker.shutdown_signal().cancelled() => Ok(()),
    }
}

fn greet(frame: &Frame, broker: &Broker) -> Result<(u32, Frame)> {
    let refused = |problem: String| Error::InvalidRequest { problem };
    if i32::from(frame.kind) != Kind::Hello as i32 {
        return Err(refused(format!("a frame of kind {} before the greeting", frame.kind)));
    }
    let hello: Hello = decode(frame.payload.clone())?;
    let config = broker.config();
    let theirs = WireVersions::told(hello.wire_version, hello.oldest_wire_version);
    let wire_version = config
        .wire_versions
        .settle(theirs)
        .map_err(|problem| refused(format!("node {}: {problem}", hello.node)))?;
    if hello.cluster_id.as_ref() != config.cluster_id.as_bytes() {
        return Err(refused(format!("node {} is of another cluster", hello.node)));
    }
    let answer = HelloAnswer {
        wire_version,
        node: config.node_id,
        disk: uuid_bytes(config.disk),
        process: uuid_bytes(config.process),
    };
    Ok((hello.node, answer_to(frame.id, Ok(answer.encode_to_vec().into()))))
}

async fn serve_frames(
    from: u32,
    reader: &mut FrameReader<tokio::net::tcp::OwnedReadHalf>,
    answers: &mpsc::UnboundedSender<Frame>,
    broker: &Broker,
) -> io::Result<()> {
    let slots = Arc::new(Semaphore::new(REQUESTS_MAX));
    let mut replicas = ReplicaAnswers::new(broker);
    loop {
        let (slot, frame) = tokio::select! {
            taken = take(reader, &slots) => taken?,
            Some(()) = replicas.under_way.next() => continue,
        };
        let Some(frame) = frame else { return Ok(()) };
        let (answers, id) = (answers.clone(), frame.id);
        let answering = broker.clone();
        if i32::from(frame.kind) == Kind::Replica as i32 {
            // Appends take their places before the next frame is read.
            let asked =
                decode::<ReplicaRequest>(frame.payload).and_then(|request| broker.ask_replica(request));
            replicas.under_way.push(Box::pin(async move {
                let answer = match asked {
                    Ok(asked) => answering.finish_replica(asked).await,
                    Err(error) => Err(error),
                };
                let answer = answer.map(|answer| answer.encode_to_vec().into());
                drop(answers.send(answer_to(id, answer))); // the connection may be gone
                drop(slot);
            }));
        } else if i32::from(frame.kind) == Kind::ForwardAppend as i32 {
            let ticket = match decode::<ForwardAppend>(frame.payload) {
                Ok(append) => {
                    catch_up(broker, append.metadata_version).await?;
                    place(&append, broker)
                }
                Err(error) => Err(error),
            };
            broker.spawn("forwarded append", async move {
                let appended = match ticket {
                    Ok(ticket) => ticket.finish_forwarded(&answering).await,
                    Err(error) => Err(error),
                };
                let answer = appended.map(|ack| append_answer(ack).encode_to_vec().into());
                drop(answers.send(answer_to(id, answer))); // the connection may be gone
                drop(slot);
            });
        } else {
            broker.spawn("peer request", async move {
                let answer = answer(from, frame, &answering).await;
                drop(answers.send(answer_to(id, answer))); // the connection may be gone
                drop(slot);
            });
        }
    }
}

/// Answers of replicas that wait for the disk. They are worked on in the connection's task: one of their own would cost an
/// append that is alone a change of threads. What has a place in a log is committed, though the connection ends.
struct ReplicaAnswers<'a> {
    broker: &'a Broker,
    under_way: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<'a> ReplicaAnswers<'a> {
    fn new(broker: &'a Broker) -> Self {
        Self { broker, under_way: FuturesUnordered::new() }
    }
}

impl Drop for ReplicaAnswers<'_> {
    fn drop(&mut self) {
        let mut rest = std::mem::take(&mut self.under_way);
        if !rest.is_empty() {
            self.broker.spawn("replica", async move { while rest.next().await.is_some() {} });
        }
    }
}

/// The next frame, once there is room for a request more. Dropping it loses nothing.
async fn take(
    reader: &mut FrameReader<tokio::net::tcp::OwnedReadHalf>,
    slots: &Arc<Semaphore>,
) -> io::Result<(OwnedSemaphorePermit, Option<Frame>)> {
    let slot = slots.clone().acquire_owned().await.map_err(io::Error::other)?;
    Ok((slot, reader.next(FRAME_BYTES_MAX).await?))
}

/// Waits for the metadata that the sender of a batch acted on. A node that stays behind ends the connection: refusing
/// single batches would let later ones overtake them.
async fn catch_up(broker: &Broker, version: u64) -> io::Result<()> {
    if broker.metadata_version() >= version {
        return Ok(());
    }
    broker.metadata_reaches(version, CATCH_UP_PATIENCE).await;
    if broker.metadata_version() >= version {
        return Ok(());
    }
    Err(io::Error::other(format!("the metadata of this node stay behind version {version}")))
}

/// Fixes the place of a forwarded batch, before the next frame is read.
fn place(append: &ForwardAppend, broker: &Broker) -> Result<crate::ticket::Ticket> {
    let (topic, segment) = (TopicId(uuid(&append.topic)?), uuid(&append.segment)?);
    let patience = Duration::from_millis(append.patience_ms.into());
    Ok(broker.submit_forwarded(topic, append.partition, segment, &append.batch, patience))
}

fn append_answer(ack: Option<AppendAck>) -> AppendAnswer {
    match ack {
        Some(AppendAck { base_offset, end_offset, duplicate }) => {
            AppendAnswer { base_offset, end_offset, duplicate, moved: false }
        }
        None => AppendAnswer { moved: true, ..AppendAnswer::default() },
    }
}

async fn answer(from: u32, frame: Frame, broker: &Broker) -> Result<Bytes> {
    match Kind::try_from(i32::from(frame.kind)) {
        Ok(Kind::Fetch) => {
            let Fetch { segment, offset, bytes_max, wait_ms, durable } = decode(frame.payload)?;
            let bytes_max = (bytes_max as usize).min(PAGE_BYTES_MAX);
            if durable {
                let batches = broker.durable_batches(uuid(&segment)?, offset, bytes_max).await?;
                return Ok(FetchAnswer { batches, ..FetchAnswer::default() }.encode_to_vec().into());
            }
            let wait = Duration::from_millis(wait_ms.into()).min(POLL_MAX);
            let page = broker.fetch_here(uuid(&segment)?, offset, bytes_max, wait).await?;
            Ok(page.encode_to_vec().into())
        }
        Ok(Kind::Prepare) => {
            let Prepare { descriptor_json, producers } = decode(frame.payload)?;
            let invalid = |problem: serde_json::Error| Error::InvalidRequest { problem: problem.to_string() };
            let successor: Descriptor = serde_json::from_slice(&descriptor_json).map_err(invalid)?;
            broker.prepare(&successor, &producers).await?;
            Ok(PrepareAnswer {}.encode_to_vec().into())
        }
        Ok(Kind::SegmentInfo) => {
            let wanted: SegmentInfo = decode(frame.payload)?;
            Ok(broker.segment_facts_asked(&wanted).await.encode_to_vec().into())
        }
        Ok(Kind::Ping) => {
            broker.liveness().heard(from);
            Ok(Bytes::new())
        }
        Ok(Kind::Confirm) => {
            let question: Confirm = decode(frame.payload)?;
            Ok(broker.confirm(&question).encode_to_vec().into())
        }
        Ok(Kind::Cursor) => broker.cursors().answer_peer(from, frame.payload).await,
        _ => Err(Error::InvalidRequest { problem: format!("a frame of kind {}", frame.kind) }),
    }
}

fn decode<M: Message + Default>(payload: Bytes) -> Result<M> {
    M::decode(payload).map_err(|problem| Error::InvalidRequest { problem: problem.to_string() })
}

fn uuid(bytes: &Bytes) -> Result<Uuid> {
    Uuid::from_slice(bytes).map_err(|problem| Error::InvalidRequest { problem: problem.to_string() })
}

fn answer_to(id: u64, answer: Result<Bytes>) -> Frame {
    let (kind, payload) = match answer {
        Ok(payload) => (Kind::Answer, payload),
        Err(error) => (Kind::Error, encode_error(&error)),
    };
    Frame { kind: u8::try_from(kind as i32).expect("kinds fit a byte"), id, payload }
}
