//! The way from a leader to one other replica: what waits to be sent, and the connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use walrus_replica::Message;

use crate::node::locks::{LINK, Lock};
use crate::peer::Connection;

/// What goes to one other replica.
#[derive(Default)]
pub(super) struct Mailbox {
    /// Messages that must be sent besides batches.
    pub(super) mail: Lock<VecDeque<Message>>,
    /// Rings for mail and for batches.
    pub(super) bell: Notify,
    /// The connection to it. Whoever holds the lock sends.
    pub(super) link: Lock<Option<Link>, LINK>,
}

/// The connection of a session with a replica. Whoever holds its lock sends, so that batches leave in their order.
pub(crate) struct Link {
    pub(super) connection: Arc<Connection>,
    pub(super) way: Arc<InTransit>,
}

/// What is on the way on one connection.
pub(super) struct InTransit {
    pub(super) bytes: AtomicUsize,
    pub(super) messages: AtomicUsize,
    /// Cancelled when an answer did not come, or was no answer: what comes behind it is out of place.
    pub(super) over: CancellationToken,
}

impl Link {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        let way = InTransit {
            bytes: AtomicUsize::new(0),
            messages: AtomicUsize::new(0),
            over: CancellationToken::new(),
        };
        Self { connection, way: Arc::new(way) }
    }

    /// Whether nothing is on the way.
    pub(super) fn is_idle(&self) -> bool {
        self.way.messages.load(Ordering::Relaxed) == 0
    }
}
