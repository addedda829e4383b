//! What members ask of their group.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::offsets::{Committed, Place};

/// Who asks, and of which generation of the group that member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The id that the member was given.
    pub member: String,
    /// The id that a static member has given itself (KIP-345).
    pub instance: Option<String>,
    /// Generation that the member has joined.
    pub generation: i32,
}

/// A way to share the work out, by the name on which the members agree, and what a member says for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Its name.
    pub name: String,
    /// What the member says for it: to a consumer's leader, what that consumer subscribes to.
    pub metadata: Bytes,
}

/// A member wants to be part of the group's next generation.
#[derive(Clone, Debug)]
pub struct Join {
    /// The id that the member was given; empty if it has none yet.
    pub member: String,
    /// The id that a static member has given itself.
    pub instance: Option<String>,
    /// An id for the member, should it need one: never used before in the group.
    pub fresh_id: String,
    /// Whether a new member joins in two steps, so that an answer that gets lost leaves nobody behind (KIP-394).
    pub needs_known_id: bool,
    /// What the client calls itself.
    pub client_id: String,
    /// Where the client is.
    pub host: String,
    /// A member that is silent for longer is gone; milliseconds.
    pub session_timeout_ms: u64,
    /// How long the others wait for this member to join again; milliseconds.
    pub rebalance_timeout_ms: u64,
    /// What kind of group it is: `consumer` for consumers.
    pub protocol_type: String,
    /// How the member can share the work out, with what it prefers first.
    pub protocols: Vec<Protocol>,
}

/// A member asks for its share; the leader of the generation brings all shares along.
#[derive(Clone, Debug)]
pub struct Sync {
    /// Who asks.
    pub who: Who,
    /// The kind of group that the member takes it for, where it says so (KIP-559).
    pub protocol_type: Option<String>,
    /// The protocol that the member takes for the chosen one, where it says so.
    pub protocol: Option<String>,
    /// The share of each member, from the leader.
    pub shares: BTreeMap<String, Bytes>,
}

/// A member leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leave {
    /// The id that the member was given; empty for a static member that somebody else removes.
    pub member: String,
    /// The id that a static member has given itself.
    pub instance: Option<String>,
}

/// Offsets that the group is to remember.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Who commits; `None` for somebody who is no member and shares the work out by itself.
    pub who: Option<Who>,
    /// The offsets.
    pub offsets: BTreeMap<Place, Committed>,
}
