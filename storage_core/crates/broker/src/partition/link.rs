//! How a leader reaches one other replica: what waits to be sent, and the connection.

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
    /// What must be sent besides batches.
    pub(super) mail: Lock<VecDeque<Message>>,
    /// For mail and for batches.
    pub(super) bell: Notify,
    /// How it is reached, by whoever holds the lock.
    pub(super) link: Lock<Option<Link>, LINK>,
}

/// The connection of a session. Whoever holds its lock sends, so that batches leave in their order.
pub(crate) struct Link {
    pub(super) connection: Arc<Connection>,
    pub(super) way: Arc<OnTheWay>,
}

/// What is on the way on one connection.
pub(super) struct OnTheWay {
    pub(super) bytes: AtomicUsize,
    pub(super) messages: AtomicUsize,
    /// An answer did not come, or was no answer: what comes behind it is out of place.
    pub(super) over: CancellationToken,
}

impl Link {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        let way = OnTheWay {
            bytes: AtomicUsize::new(0),
            messages: AtomicUsize::new(0),
            over: CancellationToken::new(),
        };
        Self { connection, way: Arc::new(way) }
    }

    /// Nothing is on the way.
    pub(super) fn is_idle(&self) -> bool {
        self.way.messages.load(Ordering::Relaxed) == 0
    }
}
