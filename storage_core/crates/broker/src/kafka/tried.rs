//! Requests without a connection, for tests of what becomes of them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;

use super::answer::Outcome;
use super::apis::OFFERS;
use super::context::{Context, Listener};
use super::telling::Telling;
use super::{dispatch, request, traffic};
use crate::broker::Broker;
use crate::edge::Principal;
use crate::node::metrics::Metrics;

/// A listener that nobody can reach.
pub(crate) struct Tried {
    context: Context,
}

impl Tried {
    /// A listener whose clients are `principal`.
    pub(crate) fn new(broker: Broker, principal: Principal) -> Self {
        let (name, told) = ("kafka".to_owned(), "127.0.0.1:9092".to_owned());
        let listener = Listener { name, told, principal };
        let traffic = Arc::new(traffic(&Metrics::new()));
        Self { context: Context { broker, listener, traffic } }
    }

    /// The answer to a frame, behind its length; `None` if the connection would be closed.
    pub(crate) async fn answer(&self, frame: Bytes) -> Option<Bytes> {
        let (header, request) = request::decode(frame).ok()?;
        let telling = Telling::default();
        let from = IpAddr::V4(Ipv4Addr::LOCALHOST);
        match dispatch::begin(&self.context, &telling, from, header, request).await {
            Outcome::Answered(answer) => {
                Some(Bytes::from(answer.pieces.concat()).split_off(super::frame::LENGTH_BYTES))
            }
            Outcome::Silent | Outcome::Closed { .. } => None,
        }
    }
}

/// Key, name and newest version of each API that is offered.
pub(crate) fn offered() -> Vec<(i16, &'static str, i16)> {
    OFFERS.iter().map(|offer| (offer.key, offer.name, offer.max)).collect()
}
