//! Accepts connections of the text protocol.

use std::io::Write as _;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::answer::Answer;
use super::session;
use super::traffic::Traffic;
use crate::broker::Broker;
use crate::edge::{Arrival, Door, Pace, Principal};
use crate::node::patience;
use crate::node::strangers::Silence;

/// Serves the connections of a principal until the broker's shutdown signal, then lets running requests finish.
pub(crate) async fn serve(door: Door, broker: Broker, principal: Principal, traffic: Arc<Traffic>) {
    let stop = broker.cluster().tasks().shutdown().clone();
    let principal = Arc::new(principal);
    let patience = broker.cluster().config().patience;
    let pace = Pace::new(Silence { idle: patience.text_idle(), ..patience.silence() });
    let sessions = TaskTracker::new();
    while let Some(entered) = stop.run_until_cancelled(door.enter()).await {
        let (stream, place) = match entered {
            Arrival::Admitted(stream, _, place) => (stream, place),
            Arrival::Refused(stream, why) => {
                traffic.connections_refused.inc();
                refuse(stream, &why);
                continue;
            }
        };
        let (broker, principal, traffic) = (broker.clone(), Arc::clone(&principal), Arc::clone(&traffic));
        traffic.connections.inc();
        sessions.spawn(async move {
            session::run(stream, broker, &principal, &traffic, pace).await;
            traffic.connections.dec();
            drop(place);
        });
    }
    drop(door);
    sessions.close();
    if timeout(patience::TEXT_STOP, sessions.wait()).await.is_err() {
        tracing::warn!(open = sessions.len(), "text requests that still run are cut off");
    }
    broker.cursors().drain(patience::TEXT_STOP_DELIVERIES).await;
}

/// Tells a client that has no place why, if the socket takes it at once; nobody waits for it.
fn refuse(stream: TcpStream, why: &str) {
    let mut frame = BytesMut::new();
    Answer::error(format!("{why}, try another node")).encode(&mut frame);
    let _ = stream.into_std().and_then(|mut stream| stream.write(&frame)); // it stays non-blocking
}
