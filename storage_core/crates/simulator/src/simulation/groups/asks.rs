//! What members and others ask of a coordinator, and what it answers them.

use std::collections::BTreeMap;

use walrus_groups::{Answer, Commit, Join, Leave, Place, Refusal, Sync, Who};
use walrus_model::{ProcessId, TopicId};
use walrus_owners::Term;

/// A session, and how long the others wait for a member to join again; milliseconds.
pub(super) const SESSION_MS: u64 = 6_000;

/// Who asks: a member, and the number of its question. A late answer to an earlier one is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) member: usize,
    pub(super) question: u64,
}

/// What is asked of a coordinator.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Join(Join),
    Sync(Sync),
    Commit(Commit),
    Heartbeat(Who),
    Leave(Leave),
    /// Which offsets are committed.
    Offsets,
}

/// What a coordinator answers.
#[derive(Clone, Debug)]
pub(super) enum Told {
    Group(Answer),
    Heartbeat(Result<(), Refusal>),
    Offsets(Result<BTreeMap<u32, i64>, Refusal>),
}

/// A term in which a process coordinates. A process that starts counts its terms anew, so that a number alone does not tell the terms of
/// a node apart: after a loss that was told, the next process of a coordinator need not know the members of the one before.
pub(super) type TermOf = (ProcessId, Term);

/// A place that members read.
pub(super) fn place(partition: u32) -> Place {
    Place { topic: TopicId::from_u128(1), partition }
}
