//! What the requests of one listener are answered with.

use std::sync::Arc;

use super::traffic::Traffic;
use crate::broker::Broker;
use crate::edge::Principal;

/// A listener, as its clients see it.
pub(crate) struct Listener {
    /// Its name, which the listeners have that its clients are told of, one on each node.
    pub(crate) name: String,
    /// `host:port` of this one, as clients reach it.
    pub(crate) told: String,
    /// Who its clients are.
    pub(crate) principal: Principal,
}

/// What the requests of one listener are answered with.
pub(super) struct Context {
    pub(super) broker: Broker,
    pub(super) listener: Listener,
    pub(super) traffic: Arc<Traffic>,
}
