//! Accepts connections of the text protocol, a bounded number of them.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::answer::Answer;
use super::session::{self, Limits};
use super::traffic::Traffic;
use crate::broker::Broker;

/// Connections that are served at a time; one more is told so and closed.
const CONNECTIONS_MAX: usize = 4_096;
/// Pause after an accept that failed for want of descriptors or memory: trying again at once would only spin.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// What running requests get when the node stops.
const STOP: Duration = Duration::from_millis(1_000);
/// What recording their deliveries gets then.
const STOP_CURSORS: Duration = Duration::from_millis(300);

/// Serves until the broker's shutdown signal, then lets running requests finish.
pub async fn serve(listener: TcpListener, broker: Broker) {
    let stop = broker.shutdown_signal().clone();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let traffic = Arc::new(Traffic::new(broker.metrics()));
    let sessions = TaskTracker::new();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(problem) => {
                tracing::warn!(%problem, "cannot accept a text connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            traffic.connections_refused.inc();
            refuse(stream);
            continue;
        };
        let (broker, traffic) = (broker.clone(), Arc::clone(&traffic));
        traffic.connections.inc();
        sessions.spawn(async move {
            session::run(stream, broker, &traffic, Limits::default()).await;
            traffic.connections.dec();
            drop(place);
        });
    }
    drop(listener);
    sessions.close();
    if timeout(STOP, sessions.wait()).await.is_err() {
        tracing::warn!(open = sessions.len(), "text requests that still run are cut off");
    }
    broker.cursors().drain(STOP_CURSORS).await;
}

/// Says why, if the socket takes it at once; nobody waits for a client that has no place.
fn refuse(stream: TcpStream) {
    let mut frame = BytesMut::new();
    Answer::error(format!("too many connections: {CONNECTIONS_MAX} are open, try another node"))
        .encode(&mut frame);
    let _ = stream.into_std().and_then(|mut stream| stream.write(&frame)); // it stays non-blocking
}
