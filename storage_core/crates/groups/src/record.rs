//! What the log of the coordinator holds of a group: enough to go on with it elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::offsets::{Committed, Place};

/// A record of a group. A later one of the same kind replaces an earlier one; offsets, those of the same places. One about many places
/// is stored as a whole or not at all; many places are forgotten by several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The group as its members have formed it.
    Group(GroupRecord),
    /// Offsets that were committed.
    Offsets(BTreeMap<Place, Committed>),
    /// Offsets that are forgotten.
    Forgotten(BTreeSet<Place>),
    /// The group is forgotten, and the offsets that it has committed.
    Gone {
        /// The places of these offsets.
        offsets: BTreeSet<Place>,
    },
}

/// A generation of a group whose members have their shares, or a group without members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupRecord {
    /// Number of the generation.
    pub generation: i32,
    /// What kind of group it is; empty if nobody has said it.
    pub protocol_type: String,
    /// The protocol by which the work is shared out; empty without members.
    pub protocol: String,
    /// Id of the member that shares the work out; empty without members.
    pub leader: String,
    /// The members.
    pub members: Vec<MemberRecord>,
}

/// A member and its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// The id that the member was given.
    pub id: String,
    /// The id that a static member has given itself.
    pub instance: Option<String>,
    /// What the client calls itself.
    pub client_id: String,
    /// Where the client is.
    pub host: String,
    /// A member that is silent for longer is gone; milliseconds.
    pub session_timeout_ms: u64,
    /// How long the others wait for this member to join again; milliseconds.
    pub rebalance_timeout_ms: u64,
    /// What the member has said for the chosen protocol.
    pub subscription: Bytes,
    /// What the member reads.
    pub share: Bytes,
}
