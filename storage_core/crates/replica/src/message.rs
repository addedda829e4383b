//! Messages between leaders, recoverers and replicas of one segment. The cluster's id, and the node and disk of both
//! ends, are in the connection's greeting and in `to`.

use walrus_model::{
    Ballot, Descriptor, Digest, Epoch, Offset, OffsetRange, ProcessId, ReplicaRef, SegmentId, Value,
};

use crate::batch::{Batch, Mark};
use crate::cut::CutId;

/// A message to a replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// Segment.
    pub segment: SegmentId,
    /// Disk that is meant; another incarnation refuses.
    pub to: ReplicaRef,
    /// What it is to do.
    pub message: Message,
}

/// The act that a replica is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// Takes batches; sent by the leader.
    Append(Append),
    /// Tells a suspect replica the assigned end; sent by the leader.
    Assigned(Assigned),
    /// Asks for a promise; sent by a recoverer.
    Fence(Fence),
    /// Asks for a vote; sent by a recoverer, or by the leader with ballot 0.
    Accept(Accept),
    /// Tells the decision; sent by anyone who knows it.
    Sealed(SealedNotice),
}

/// Batches of the leader. It sends none to bind the writer, to ask for the end, or to tell the high watermark.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Append {
    /// The segment's epoch.
    pub epoch: Epoch,
    /// Process that orders the appends.
    pub writer: ProcessId,
    /// Place where the batches start, with the digest of everything before it.
    pub from: Mark,
    /// The batches, without gaps from `from` on.
    pub batches: Vec<Batch>,
    /// The leader's high watermark.
    pub commit: Offset,
}

/// The leader's assigned end, in answer to an acknowledgement that named the cut (R8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Assigned {
    /// Process that orders the appends.
    pub writer: ProcessId,
    /// The suspect replica's name for its cut.
    pub cut: CutId,
    /// First offset that the leader had not assigned when it was asked.
    pub end: Offset,
}

/// Asks for a promise, and for what the replica has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence {
    /// The ballot to promise: nothing lower is answered afterwards (S4).
    pub ballot: Ballot,
}

/// Asks to vote for a value, and brings what the replica lacks of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Accept {
    /// Ballot of the attempt that proposes the value.
    pub ballot: Ballot,
    /// The value.
    pub value: Value,
    /// Batches from where the replica was known to end up to the value's end, without gaps but for what is lost.
    pub missing: Vec<Batch>,
}

/// Says what was decided, and brings what the replica lacks of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SealedNotice {
    /// The decided value.
    pub value: Value,
    /// Batches up to the value's end, without gaps but for what is lost.
    pub missing: Vec<Batch>,
}

/// An answer of a replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reply {
    /// Acknowledges an append, once it is durable.
    Ack {
        /// Everything below is on this disk.
        durable_end: Offset,
        /// The name of the cut if the replica lost a tail: it asks how far the leader is (R8).
        suspect: Option<CutId>,
    },
    /// Promises, in answer to a fence.
    Promised(FenceAnswer),
    /// Tells that the vote was given, in answer to an accept.
    Accepted {
        /// Ballot that the vote is for.
        ballot: Ballot,
    },
    /// Tells that the copy is whole and its digest right, in answer to a sealed notice.
    Sealed,
    /// Refuses a message of any kind.
    Refused(Refusal),
}

/// The promise of a replica, with what it has, read after the promise was durable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FenceAnswer {
    /// Ballot of the fence that is answered.
    pub ballot: Ballot,
    /// Everything below is on this disk.
    pub durable_end: Offset,
    /// Digest of the copy's batches up to `durable_end`.
    pub digest: Digest,
    /// The vote of the highest ballot.
    pub accepted: Option<(Ballot, Value)>,
    /// The decision, if it is known here.
    pub sealed: Option<Value>,
    /// Whether it lost a tail: it may lack what it has acknowledged.
    pub suspect: bool,
    /// Batches below `durable_end` that it knows to have lost; `digest` is over the others. Because it knows, it counts
    /// towards f.
    pub holes: Vec<OffsetRange>,
}

/// Why a replica refuses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The message is meant for another disk.
    OtherReplica,
    /// A higher ballot was promised.
    Fenced {
        /// The highest ballot seen; a fresh one must be above.
        promised: Ballot,
    },
    /// A vote was given, so no appends are taken any more.
    Voted {
        /// The highest ballot seen.
        promised: Ballot,
    },
    /// The end was decided.
    Sealed {
        /// The decided value.
        value: Value,
    },
    /// Another process writes this segment (S9).
    OtherWriter {
        /// The process that writes it.
        writer: ProcessId,
    },
    /// The batches before these are missing.
    Gap {
        /// First missing offset.
        end: Offset,
        /// The name of the cut if the replica is suspect, as in [`Reply::Ack`].
        suspect: Option<CutId>,
    },
    /// Batches below its end are lost here. The copy gets them from the logs of others, and is asked again.
    Holes {
        /// The lost ranges.
        holes: Vec<OffsetRange>,
    },
    /// The copy has other bytes, and an alarm was raised.
    Diverged,
}

impl Request {
    /// Addresses a message to a replica.
    #[must_use]
    pub fn new(descriptor: &Descriptor, to: ReplicaRef, message: Message) -> Self {
        Self { segment: descriptor.id, to, message }
    }
}
