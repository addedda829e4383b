//! The answering side: takes connections and greets. Frames are served by [`Serving`].

mod serving;

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use prost::Message as _;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::broker::Broker;
use crate::cluster::segment::uuid_bytes;
use crate::edge::{Arrival, Door};
use crate::node::error::{Error, Result};
use crate::node::patience;
use crate::node::proto::peer::{Challenge, Hello, HelloAnswer, Kind, Proof};
use crate::node::secret::{NONCE_BYTES, Role, find};
use crate::node::versions::WireVersions;
use crate::peer::frame::{FrameReader, HELLO_BYTES_MAX};
use crate::peer::greeting::{greeting, nonce};
use crate::peer::outlet::write_all;
use serving::{Serving, answer_to, decode};

/// Limit on the connections that are served by a thread of their own; one for each other node is needed.
const OWN_THREADS_MAX: usize = 64;

/// Serves until the broker's shutdown signal.
pub(crate) async fn serve(door: Door, broker: Broker) {
    let shutdown = broker.cluster().tasks().shutdown().clone();
    let threads = Arc::new(Semaphore::new(OWN_THREADS_MAX));
    while let Some(entered) = shutdown.run_until_cancelled(door.enter()).await {
        let Arrival::Admitted(stream, address, place) = entered else { continue };
        let (serving, threads) = (broker.clone(), threads.clone());
        broker.cluster().tasks().spawn("peer connection", async move {
            if let Err(problem) = serve_connection(stream, serving, threads).await {
                tracing::debug!(%address, %problem, "the connection of a peer ended");
            }
            drop(place);
        });
    }
}

async fn serve_connection(stream: TcpStream, broker: Broker, threads: Arc<Semaphore>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let greeting = greet(stream, &broker);
    let greeted = broker.cluster().tasks().shutdown().run_until_cancelled(greeting).await.transpose()?;
    let Some(GreetedPeer { hello, stream, behind }) = greeted.flatten() else { return Ok(()) };
    let from = hello.node;
    if hello.is_replica_lane
        && let Ok(thread) = threads.try_acquire_owned()
    {
        let serving = Serving { broker, from, has_own_thread: true };
        return serve_in_own_thread(serving, stream, behind, thread).await;
    }
    Serving { broker, from, has_own_thread: false }.run(stream, behind).await
}

/// A connection whose other end has proved that it may ask.
struct GreetedPeer {
    hello: Hello,
    stream: TcpStream,
    /// Bytes that were read behind the greeting.
    behind: BytesMut,
}

/// Serves the appends of another node's leaders, each of which waits for the disk. In a thread of its own the connection does so
/// itself, where that is quicker, and nobody but that node waits with it.
async fn serve_in_own_thread(
    serving: Serving,
    stream: TcpStream,
    behind: BytesMut,
    thread: OwnedSemaphorePermit,
) -> io::Result<()> {
    let broker = serving.broker.clone();
    let stream = stream.into_std()?;
    let (ended, end) = oneshot::channel();
    std::thread::Builder::new().name("walrus-replica".to_owned()).spawn(move || {
        let run = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async { serving.run(TcpStream::from_std(stream)?, behind).await })
        };
        drop(ended.send(run())); // who waited may be gone: the node stops
        drop(thread);
    })?;
    end.await.unwrap_or_else(|_| {
        broker.cluster().metrics().panics.inc();
        Err(io::Error::other("its thread panicked"))
    })
}

/// Exchanges greetings and proofs, and tells the other side if it is refused; `None` then, or if it went.
async fn greet(mut stream: TcpStream, broker: &Broker) -> io::Result<Option<GreetedPeer>> {
    let silence = broker.cluster().config().patience.silence();
    tokio::time::timeout(silence.first_byte, stream.readable()).await??;
    let greeted = tokio::time::timeout(silence.header, exchange(&mut stream, broker)).await??;
    match greeted {
        ExchangeOutcome::Proved { hello, behind } => Ok(Some(GreetedPeer { hello, stream, behind })),
        ExchangeOutcome::Gone => Ok(None),
        ExchangeOutcome::Refused(error) => {
            tracing::warn!(%error, "a peer is refused");
            write_all(&stream, answer_to(0, Err(error)).to_bytes()).await?;
            // The refusal leaves before the connection does: the other side reads it and closes.
            drop(
                tokio::time::timeout(
                    patience::REFUSED_PEER_CLOSES,
                    FrameReader::new(stream).next(HELLO_BYTES_MAX),
                )
                .await,
            );
            Ok(None)
        }
    }
}

/// How an exchange of greetings ended.
enum ExchangeOutcome {
    Proved { hello: Hello, behind: BytesMut },
    Gone,
    Refused(Error),
}

/// Exchanges greetings and proofs. The dialler proves first: a stranger learns a nonce, nothing else, and nothing that it says is
/// acted upon.
async fn exchange(stream: &mut TcpStream, broker: &Broker) -> io::Result<ExchangeOutcome> {
    let (reader, writer) = stream.split();
    let mut reader = FrameReader::new(reader);
    let refused =
        |problem: &str| Ok(ExchangeOutcome::Refused(Error::InvalidRequest { problem: problem.to_owned() }));
    let Some(hello) = reader.next(HELLO_BYTES_MAX).await? else { return Ok(ExchangeOutcome::Gone) };
    if i32::from(hello.kind) != Kind::Hello as i32 {
        return refused(&format!("a frame of kind {} before the greeting", hello.kind));
    }
    let greeted: Hello = match decode(hello.payload.clone()) {
        Ok(greeted) => greeted,
        Err(error) => return Ok(ExchangeOutcome::Refused(error)),
    };
    if greeted.nonce.len() != NONCE_BYTES {
        return refused("a greeting without a nonce of 32 bytes: it is no node of this version");
    }
    let challenge = greeting(Kind::Challenge, hello.id, &Challenge { nonce: nonce()? });
    write_all(writer.as_ref(), challenge.to_bytes()).await?;
    let Some(proof) = reader.next(HELLO_BYTES_MAX).await? else { return Ok(ExchangeOutcome::Gone) };
    let mac = match i32::from(proof.kind) == Kind::Proof as i32 {
        true => Proof::decode(proof.payload).unwrap_or_default().mac,
        false => Bytes::new(),
    };
    let secrets = broker.cluster().secrets().current();
    let Some(secret) = find(&secrets, Role::Dialler, &[&hello.payload, &challenge.payload], &mac) else {
        return refused("it does not know the cluster's secret: give all nodes the same --secret-file");
    };
    let answer = match check_hello(&greeted, broker) {
        Ok(answer) => greeting(Kind::Answer, hello.id, &answer),
        Err(error) => return Ok(ExchangeOutcome::Refused(error)),
    };
    let parts = [&hello.payload[..], &challenge.payload, &answer.payload];
    let mac = secret.prove(Role::Acceptor, &parts).into();
    let mut bytes = answer.to_bytes();
    bytes.unsplit(greeting(Kind::Proof, hello.id, &Proof { mac }).to_bytes());
    write_all(writer.as_ref(), bytes).await?;
    Ok(ExchangeOutcome::Proved { hello: greeted, behind: reader.into_buffer() })
}

fn check_hello(hello: &Hello, broker: &Broker) -> Result<HelloAnswer> {
    let refused = |problem: String| Error::InvalidRequest { problem };
    let config = broker.cluster().config();
    let theirs = WireVersions::told(hello.wire_version, hello.oldest_wire_version);
    let wire_version = config
        .wire_versions
        .negotiate(theirs)
        .map_err(|problem| refused(format!("node {}: {problem}", hello.node)))?;
    if hello.cluster_id.as_ref() != config.cluster_id.as_bytes() {
        return Err(refused(format!("node {} is of another cluster", hello.node)));
    }
    let answer = HelloAnswer {
        wire_version,
        node: config.node_id,
        disk: uuid_bytes(config.disk.0),
        process: uuid_bytes(config.process.0),
    };
    Ok(answer)
}
