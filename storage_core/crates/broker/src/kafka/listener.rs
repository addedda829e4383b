//! Accepts connections of Kafka's protocol.

use std::sync::Arc;

use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::context::{Context, Listener};
use super::session;
use super::traffic::Traffic;
use crate::broker::Broker;
use crate::edge::{Arrival, Door, Pace};
use crate::node::patience;

/// Serves the connections of a listener until the broker's shutdown signal, then lets running requests finish.
pub(crate) async fn serve(door: Door, broker: Broker, listener: Listener, traffic: Arc<Traffic>) {
    let stop = broker.cluster().tasks().shutdown().clone();
    let pace = Pace::new(broker.cluster().config().patience.silence());
    let context = Arc::new(Context { broker, listener, traffic });
    let sessions = TaskTracker::new();
    while let Some(entered) = stop.run_until_cancelled(door.enter()).await {
        let (stream, from, place) = match entered {
            Arrival::Admitted(stream, from, place) => (stream, from, place),
            Arrival::Refused(..) => {
                context.traffic.connections.connections_refused.inc();
                continue; // a client that is closed on tries another node; there is no frame to tell it why
            }
        };
        let context = Arc::clone(&context);
        context.traffic.connections.connections.inc();
        sessions.spawn(async move {
            session::run(stream, from, &context, pace).await;
            context.traffic.connections.connections.dec();
            drop(place);
        });
    }
    drop(door);
    sessions.close();
    if timeout(patience::KAFKA_STOP, sessions.wait()).await.is_err() {
        tracing::warn!(open = sessions.len(), "Kafka requests that still run are cut off");
    }
}
