//! What goes between leaders, recoverers and replicas of one segment. The cluster's id, and the node and disk of both
//! ends, are in the connection's greeting and in `to`.

use walrus_model::{
    Ballot, Descriptor, Digest, Epoch, Offset, OffsetRange, ProcessId, ReplicaRef, SegmentId, Value,
};

use crate::batch::{Batch, Mark};
use crate::cut::CutId;

/// To a replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// Segment.
    pub segment: SegmentId,
    /// Disk; another incarnation refuses.
    pub to: ReplicaRef,
    /// What to do.
    pub message: Message,
}

/// What a replica is asked to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// From the leader.
    Append(Append),
    /// From the leader, to a suspect replica.
    Assigned(Assigned),
    /// From a recoverer.
    Fence(Fence),
    /// From a recoverer, or from the leader with ballot 0.
    Accept(Accept),
    /// From anyone who knows the decision.
    Sealed(SealedNotice),
}

/// Batches of the leader; none of them to bind the writer, to ask for the end, or to tell the high watermark.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Append {
    /// The segment's.
    pub epoch: Epoch,
    /// Process that orders the appends.
    pub writer: ProcessId,
    /// Where the batches start, and the digest of everything before.
    pub from: Mark,
    /// Without gaps from `from` on.
    pub batches: Vec<Batch>,
    /// The leader's high watermark.
    pub commit: Offset,
}

/// The leader's assigned end, in answer to an acknowledgement that named the cut (R8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Assigned {
    /// Process that orders the appends.
    pub writer: ProcessId,
    /// The suspect replica's word for its cut.
    pub cut: CutId,
    /// First offset that the leader had not assigned when it was asked.
    pub end: Offset,
}

/// Asks for a promise, and for what the replica has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence {
    /// Nothing lower is answered afterwards (S4).
    pub ballot: Ballot,
}

/// Asks to vote for a value, and brings what the replica lacks of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Accept {
    /// Whose value it is.
    pub ballot: Ballot,
    /// The value.
    pub value: Value,
    /// Without gaps up to the value's end, but for what is lost; from where the replica was known to end.
    pub missing: Vec<Batch>,
}

/// Says what was decided, and brings what the replica lacks of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SealedNotice {
    /// Decided.
    pub value: Value,
    /// Without gaps up to the value's end, but for what is lost.
    pub missing: Vec<Batch>,
}

/// From a replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reply {
    /// To an append, when it is durable.
    Ack {
        /// Everything below is on this disk.
        durable_end: Offset,
        /// The replica lost a tail and asks how far the leader is (R8).
        suspect: Option<CutId>,
    },
    /// To a fence.
    Promised(FenceAnswer),
    /// To an accept.
    Accepted {
        /// The one that was accepted.
        ballot: Ballot,
    },
    /// To a sealed notice: the copy is whole and its digest is right.
    Sealed,
    /// Nothing was changed.
    Refused(Refusal),
}

/// What a replica has, read after its promise was durable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FenceAnswer {
    /// Promised.
    pub ballot: Ballot,
    /// Everything below is on this disk.
    pub durable_end: Offset,
    /// Digest of the copy's batches up to `durable_end`.
    pub digest: Digest,
    /// The vote of the highest ballot.
    pub accepted: Option<(Ballot, Value)>,
    /// The decision, if it is known here.
    pub sealed: Option<Value>,
    /// It lost a tail: it may lack what it has acknowledged.
    pub suspect: bool,
    /// Batches below `durable_end` that it lost. It knows that, so it counts towards f; `digest` is over the others.
    pub holes: Vec<OffsetRange>,
}

/// Why a replica refuses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// Meant for another disk.
    OtherReplica,
    /// A higher ballot was promised.
    Fenced {
        /// The highest seen; a fresh one must be above.
        promised: Ballot,
    },
    /// A vote was given: no appends any more.
    Voted {
        /// The highest seen.
        promised: Ballot,
    },
    /// The end was decided.
    Sealed {
        /// As this.
        value: Value,
    },
    /// Another process writes this segment (S9).
    OtherWriter {
        /// That one.
        writer: ProcessId,
    },
    /// The batches before these are missing.
    Gap {
        /// First missing offset.
        end: Offset,
        /// As in [`Reply::Ack`].
        suspect: Option<CutId>,
    },
    /// Batches below its end are lost here. The copy gets them from the logs of others, and is asked again.
    Holes {
        /// These.
        holes: Vec<OffsetRange>,
    },
    /// Other bytes are here: an alarm was raised.
    Diverged,
}

impl Request {
    /// Addresses a message to a replica.
    #[must_use]
    pub fn new(descriptor: &Descriptor, to: ReplicaRef, message: Message) -> Self {
        Self { segment: descriptor.id, to, message }
    }
}
