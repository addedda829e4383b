//! A greeted connection: its frames are served. Appends take their places in the order in which they arrive; everything else
//! runs side by side.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use prost::Message;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;
use walrus_model::{SegmentId, TopicId};

use crate::copies::wire;

use crate::broker::Broker;
use crate::node::budget::{Held, Purpose, Share, counted};
use crate::node::error::{Error, Result};
use crate::node::patience;
use crate::node::proto::peer::{
    AppendAnswer, Confirm, Fetch, FetchAnswer, FindTime, ForwardAppend, Kind, Prepare, PrepareAnswer,
    ReplicaRequest, SegmentInfo,
};
use crate::partition::ack::AppendAck;
use crate::peer::errors::encode_error;
use crate::peer::frame::{FRAME_BYTES_MAX, Frame, FrameReader, Head};
use crate::peer::outlet::Outlet;
use crate::reading::reader::{PAGE_BYTES_MAX, Question};

/// Requests of one connection that are under way; the next frame is read when one is done.
const REQUESTS_MAX: usize = 4_096;
/// Requests up to this size are votes, questions, small batches; answers up to this size do not count.
const SMALL_BYTES: usize = 16 << 10;

/// What serves the frames of one greeted connection.
pub(super) struct Serving {
    pub(super) broker: Broker,
    /// The node that asks.
    pub(super) from: u32,
    /// This thread serves nothing else: it may wait for the disk.
    pub(super) has_own_thread: bool,
}

/// Answers of replicas that wait for the disk. They are worked on in the connection's task: one of their own would cost an
/// append that is alone a change of threads.
type ReplicaAnswers = FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>;

impl Serving {
    /// Serves until the connection ends, or the node stops. `behind`: what was read of it before.
    pub(super) async fn run(self, stream: TcpStream, behind: BytesMut) -> io::Result<()> {
        let (reader, writer) = stream.into_split();
        let mut reader = FrameReader::resume(reader, behind);
        let answers = Answers::new(writer);
        let mut replicas = ReplicaAnswers::new();
        let ended = tokio::select! {
            served = self.serve(&mut reader, &answers, &mut replicas) => served,
            written = answers.outlet.write_waiting() => written,
            () = self.broker.cluster().tasks().shutdown().cancelled() => Ok(()),
        };
        answers.outlet.close(); // requests that are under way keep it
        while replicas.next().await.is_some() {} // what has a place in a log is committed
        ended
    }

    /// The next frame, once there is room for a request more, and what it holds until it is answered. Dropping it loses
    /// nothing.
    async fn take(
        &self,
        reader: &mut FrameReader<OwnedReadHalf>,
        answers: &Answers,
    ) -> io::Result<Option<(Frame, Slot)>> {
        answers.outlet.has_room().await;
        let permit = answers.slots.clone().acquire_owned().await.map_err(io::Error::other)?;
        let Some(head) = reader.head(FRAME_BYTES_MAX).await? else { return Ok(None) };
        let share = self.share_of(head);
        let (frame, held) = reader.rest_counted(head, share, patience::MESSAGE_MEMORY).await?;
        Ok(Some((frame, Slot { _permit: permit, _held: held })))
    }

    /// Small requests are those that all else depends on, votes and questions among them.
    fn share_of(&self, head: Head) -> &Arc<Share> {
        let is_append = i32::from(head.kind) == Kind::ForwardAppend as i32;
        self.broker.cluster().share(match (is_append, head.payload_bytes) {
            (true, _) => Purpose::Appends,
            (false, ..=SMALL_BYTES) => Purpose::Votes,
            (false, _) => Purpose::Replication,
        })
    }

    async fn serve(
        &self,
        reader: &mut FrameReader<OwnedReadHalf>,
        answers: &Answers,
        replicas: &mut ReplicaAnswers,
    ) -> io::Result<()> {
        loop {
            let taken = tokio::select! {
                biased; // who waits for an answer can send nothing
                Some(()) = replicas.next() => continue,
                taken = self.take(reader, answers) => taken?,
            };
            let Some((frame, slot)) = taken else { return Ok(()) };
            let (broker, answers, id) = (self.broker.clone(), answers.clone(), frame.id);
            if i32::from(frame.kind) == Kind::Replica as i32 {
                // Appends take their places before the next frame is read.
                let asked = decode::<ReplicaRequest>(frame.payload)
                    .and_then(|asked| broker.copies().ask_replica(asked));
                if self.has_own_thread
                    && let Ok(asked) = &asked
                {
                    asked.commit_if_quicker();
                }
                replicas.push(Box::pin(async move {
                    let answer = match asked {
                        Ok(asked) => broker.copies().finish_replica(asked).await,
                        Err(error) => Err(error),
                    };
                    let answer = answer.map(|answer| answer.encode_to_vec().into());
                    answers.send(answer_to(id, answer));
                    drop(slot);
                }));
            } else if i32::from(frame.kind) == Kind::ForwardAppend as i32 {
                let ticket = match decode::<ForwardAppend>(frame.payload) {
                    Ok(append) => {
                        catch_up(&broker, append.metadata_version).await?;
                        place(&append, &broker)
                    }
                    Err(error) => Err(error),
                };
                self.broker.cluster().tasks().spawn("forwarded append", async move {
                    let appended = match ticket {
                        Ok(ticket) => ticket.finish_forwarded(broker.copies()).await,
                        Err(error) => Err(error),
                    };
                    let answer = appended.map(|ack| append_answer(ack).encode_to_vec().into());
                    answers.send(answer_to(id, answer));
                    drop(slot);
                });
            } else {
                let from = self.from;
                self.broker.cluster().tasks().spawn("peer request", async move {
                    let answer = answer(from, frame, &broker).await;
                    answers.send(answer_to(id, answer));
                    drop(slot);
                });
            }
        }
    }
}

/// What a request holds until it is answered: one of its connection's places, and memory.
struct Slot {
    _permit: OwnedSemaphorePermit,
    _held: Held,
}

/// Answers to the requests of one connection, and how many requests there are.
#[derive(Clone)]
struct Answers {
    outlet: Arc<Outlet>,
    slots: Arc<Semaphore>,
}

impl Answers {
    fn new(writer: OwnedWriteHalf) -> Self {
        Self { outlet: Arc::new(Outlet::new(writer)), slots: Arc::new(Semaphore::new(REQUESTS_MAX)) }
    }

    /// Answers a request that has its slot still. The connection may be gone.
    fn send(&self, answer: Frame) {
        // One slot is this request's, one waits for the next.
        let is_alone = REQUESTS_MAX - self.slots.available_permits() <= 2;
        if is_alone { self.outlet.send_alone(answer) } else { self.outlet.send(answer) }
    }
}

/// Waits for the metadata that the sender of a batch acted on. A node that stays behind ends the connection: refusing
/// single batches would let later ones overtake them.
async fn catch_up(broker: &Broker, version: u64) -> io::Result<()> {
    if broker.cluster().metadata_version() >= version {
        return Ok(());
    }
    broker.cluster().metadata_reaches(version, patience::FRAME_NEWS).await;
    if broker.cluster().metadata_version() >= version {
        return Ok(());
    }
    Err(io::Error::other(format!("the metadata of this node stay behind version {version}")))
}

/// Fixes the place of a forwarded batch, before the next frame is read.
fn place(append: &ForwardAppend, broker: &Broker) -> Result<crate::partition::ticket::Ticket> {
    let (topic, segment) = (TopicId(uuid(&append.topic)?), uuid(&append.segment)?);
    let patience = Duration::from_millis(append.patience_ms.into());
    Ok(broker.partitions().submit_forwarded(
        topic,
        append.partition,
        SegmentId(segment),
        &append.batch,
        patience,
    ))
}

fn append_answer(ack: Option<AppendAck>) -> AppendAnswer {
    match ack {
        Some(AppendAck { base_offset, end_offset, duplicate, append_time_ms }) => {
            AppendAnswer { base_offset, end_offset, duplicate, moved: false, append_time_ms }
        }
        None => AppendAnswer { moved: true, ..AppendAnswer::default() },
    }
}

async fn answer(from: u32, frame: Frame, broker: &Broker) -> Result<Bytes> {
    match Kind::try_from(i32::from(frame.kind)) {
        Ok(Kind::Fetch) => {
            let Fetch { segment, offset, bytes_max, wait_ms, durable, unconfirmed } = decode(frame.payload)?;
            let bytes_max = (bytes_max as usize).min(PAGE_BYTES_MAX);
            if durable {
                let batches =
                    broker.copies().durable_batches(SegmentId(uuid(&segment)?), offset, bytes_max).await?;
                let page = FetchAnswer { batches, ..FetchAnswer::default() };
                return Ok(weighed(broker, Purpose::Repairs, page.encode_to_vec()));
            }
            let wait = Duration::from_millis(wait_ms.into()).min(patience::LONG_POLL_MAX);
            let question = Question { offset, bytes_max, wait, unconfirmed };
            let page = broker.reading().fetch_here(SegmentId(uuid(&segment)?), question).await?;
            Ok(weighed(broker, Purpose::Reads, page.encode_to_vec()))
        }
        Ok(Kind::Prepare) => {
            let Prepare { descriptor, producers, metadata_version, producers_digest } =
                decode(frame.payload)?;
            let successor = wire::decode_descriptor(descriptor)?;
            broker.copies().knows(&successor, successor.epoch, metadata_version).await?;
            let is_made = broker.copies().prepare_asked(&successor, &producers, &producers_digest).await?;
            Ok(PrepareAnswer { wants_producers: !is_made }.encode_to_vec().into())
        }
        Ok(Kind::SegmentInfo) => {
            let wanted: SegmentInfo = decode(frame.payload)?;
            let facts = broker.copies().segment_facts_asked(&wanted).await;
            Ok(weighed(broker, Purpose::Votes, facts.encode_to_vec()))
        }
        Ok(Kind::Ping) => {
            broker.cluster().liveness().heard(from);
            Ok(Bytes::new())
        }
        Ok(Kind::Confirm) => {
            let question: Confirm = decode(frame.payload)?;
            Ok(broker.copies().confirm(&question).await.encode_to_vec().into())
        }
        Ok(Kind::FindTime) => {
            let find: FindTime = decode(frame.payload)?;
            Ok(broker.reading().find_time(&find).await?.encode_to_vec().into())
        }
        Ok(Kind::Cursor) => {
            let answer = broker.cursors().answer_peer(from, frame.payload).await?;
            Ok(weighed(broker, Purpose::Reads, answer))
        }
        Ok(Kind::Group) => {
            let answer = broker.groups().answer_peer(from, decode(frame.payload)?).await?;
            Ok(weighed(broker, Purpose::Reads, answer.encode_to_vec()))
        }
        _ => Err(Error::InvalidRequest { problem: format!("a frame of kind {}", frame.kind) }),
    }
}

/// An answer that counts until it is written.
fn weighed(broker: &Broker, purpose: Purpose, answer: impl Into<Bytes>) -> Bytes {
    let answer = answer.into();
    let bytes = answer.len();
    if bytes <= SMALL_BYTES {
        answer
    } else {
        counted(answer, Arc::new(broker.cluster().share(purpose).hold(bytes)))
    }
}

pub(super) fn decode<M: Message + Default>(payload: Bytes) -> Result<M> {
    M::decode(payload).map_err(|problem| Error::InvalidRequest { problem: problem.to_string() })
}

fn uuid(bytes: &Bytes) -> Result<Uuid> {
    Uuid::from_slice(bytes).map_err(|problem| Error::InvalidRequest { problem: problem.to_string() })
}

pub(super) fn answer_to(id: u64, answer: Result<Bytes>) -> Frame {
    let (kind, payload) = match answer {
        Ok(payload) => (Kind::Answer, payload),
        Err(error) => (Kind::Error, encode_error(&error)),
    };
    Frame { kind: u8::try_from(kind as i32).expect("kinds fit a byte"), id, payload }
}
