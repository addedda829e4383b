//! The answering side: takes connections and greets. Frames are served by [`Serving`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use prost::Message as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::WireVersions;
use super::frame::{Frame, FrameReader, HELLO_BYTES_MAX};
use super::outlet::write_all;
use super::serving::{Serving, answer_to, decode};
use crate::broker::Broker;
use crate::error::{Error, Result};
use crate::proto::peer::{Hello, HelloAnswer, Kind};
use crate::segment::uuid_bytes;

/// For the greeting of a new connection.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);
/// Connections that are served by a thread of their own; one for each other node is needed.
const OWN_THREADS_MAX: usize = 64;

/// Serves until the broker's shutdown signal.
pub(crate) async fn serve(listener: TcpListener, broker: Broker) {
    let shutdown = broker.shutdown_signal().clone();
    let threads = Arc::new(Semaphore::new(OWN_THREADS_MAX));
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                let (serving, threads) = (broker.clone(), threads.clone());
                broker.spawn("peer connection", async move {
                    if let Err(problem) = serve_connection(stream, serving, threads).await {
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

async fn serve_connection(stream: TcpStream, broker: Broker, threads: Arc<Semaphore>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let greeting = greet(stream, &broker);
    let greeted = broker.shutdown_signal().run_until_cancelled(greeting).await.transpose()?;
    let Some(Greeted { hello, stream, behind }) = greeted.flatten() else { return Ok(()) };
    let from = hello.node;
    if hello.is_replica_lane
        && let Ok(thread) = threads.try_acquire_owned()
    {
        let serving = Serving { broker, from, has_own_thread: true };
        return serve_in_own_thread(serving, stream, behind, thread).await;
    }
    Serving { broker, from, has_own_thread: false }.run(stream, behind).await
}

/// A connection that may ask.
struct Greeted {
    hello: Hello,
    stream: TcpStream,
    /// What was read behind the greeting.
    behind: BytesMut,
}

/// The appends of another node's leaders: each waits for the disk. In a thread of its own the connection does so itself, where
/// that is quicker, and nobody but that node waits with it.
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
        broker.metrics().panics.inc();
        Err(io::Error::other("its thread panicked"))
    })
}

/// Exchanges greetings. `None`: the other side was refused, or went.
async fn greet(mut stream: TcpStream, broker: &Broker) -> io::Result<Option<Greeted>> {
    let mut reader = FrameReader::new(&mut stream);
    let hello = tokio::time::timeout(HELLO_PATIENCE, reader.next(HELLO_BYTES_MAX)).await;
    let Some(frame) = hello.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? else {
        return Ok(None);
    };
    let answer = match check_hello(&frame, broker) {
        Ok((hello, answer)) => {
            let behind = reader.into_buffer();
            write_all(&stream, answer_to(frame.id, Ok(answer)).to_bytes()).await?;
            return Ok(Some(Greeted { hello, stream, behind }));
        }
        Err(error) => {
            tracing::warn!(%error, "a peer is refused");
            answer_to(frame.id, Err(error))
        }
    };
    write_all(&stream, answer.to_bytes()).await?;
    // The refusal leaves before the connection does: the other side reads it and closes.
    drop(tokio::time::timeout(HELLO_PATIENCE, FrameReader::new(stream).next(HELLO_BYTES_MAX)).await);
    Ok(None)
}

fn check_hello(frame: &Frame, broker: &Broker) -> Result<(Hello, Bytes)> {
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
    Ok((hello, answer.encode_to_vec().into()))
}
