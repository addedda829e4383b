//! RPC between brokers: framed, pipelined, capped before allocation.

use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, Result};

/// Requests to other brokers; one connection per node.
pub struct Peers {}

/// What a peer can be asked. An answer's payload belongs to the request's kind.
#[derive(Clone, Debug)]
pub enum Request {
    /// Goes to [`crate::cursors::CursorService::answer_peer`] of the other node; the bytes are the cursors' own messages.
    Cursor(Bytes),
}

impl Peers {
    /// Sends a request and waits for its answer. `Unavailable`: it was not sent. `OutcomeUnknown`: it was sent, and the
    /// connection died or the deadline passed before the answer.
    pub async fn call(&self, _node: u32, _request: Request, _deadline: Duration) -> Result<Bytes> {
        Err(Error::Unavailable { what: "not wired yet".to_owned() })
    }
}
