//! What a group answers, and what it wants done.

use bytes::Bytes;

use crate::record::Record;

/// The number by which a driver finds the request again that an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What the driver of a group does for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A request is answered.
    Answer {
        /// The request.
        ticket: Ticket,
        /// Its answer.
        answer: Answer,
    },
    /// A record is appended; what became of it is told by its number.
    Store {
        /// Number of the record, one more than the one before.
        number: u64,
        /// The record.
        record: Record,
    },
}

/// The answer to a request that had to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a join.
    Joined(Result<Joined, Refusal>),
    /// To a sync.
    Synced(Result<Synced, Refusal>),
    /// To a commit.
    Committed(Result<(), Refusal>),
    /// To the wish that something is forgotten.
    Forgotten(Result<(), Refusal>),
}

/// A member is part of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The id that the member has from now on.
    pub member: String,
    /// Number of the generation.
    pub generation: i32,
    /// What kind of group it is.
    pub protocol_type: String,
    /// The protocol by which the work is shared out.
    pub protocol: String,
    /// The member that shares the work out.
    pub leader: String,
    /// The members, each with its static id and what it has said for the protocol; for the leader only.
    pub members: Vec<(String, Option<String>, Bytes)>,
    /// Whether the leader has nothing to share out: it is back, and the shares are as they were (KIP-814).
    pub skips_sharing: bool,
}

/// A member knows its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// What kind of group it is.
    pub protocol_type: String,
    /// The protocol by which the work was shared out.
    pub protocol: String,
    /// What the member reads.
    pub share: Bytes,
}

/// Why a request is not done. Kafka has an error code for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The group has no such member: it joins anew.
    UnknownMember,
    /// The member is of another generation: it joins anew.
    IllegalGeneration,
    /// A new generation is being formed: the member joins again.
    RebalanceInProgress,
    /// Another process has the static id of this member now: it ends.
    FencedInstance,
    /// The group is of another kind, or has no protocol that all of its members know.
    InconsistentProtocol,
    /// The timeout of the session is out of bounds.
    InvalidSessionTimeout,
    /// The member joins again with this id.
    MemberIdRequired(String),
    /// The group has as many members as it may have.
    GroupFull,
    /// The group has members.
    NonEmpty,
    /// What the members say, or are told, is more than a group may hold.
    TooLarge,
    /// Somebody else coordinates the group, or nobody for now.
    NotCoordinator,
}
