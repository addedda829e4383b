//! One segment as the metadata list it: who stores it, which copies there are, and what became of it.

use serde::{Deserialize, Serialize};
use walrus_model::{Ballot, Descriptor, Offset, ReplicaRef, Value};

use crate::compaction::{Compacted, EpochStart, Replacement};
use crate::retention::Contents;

/// One segment: who stores it, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Everything that was fixed when it was opened.
    pub descriptor: Descriptor,
    /// Its state.
    pub state: SegmentState,
    /// The successor that the last `BeginRoll` or `BeginRecovery` allotted; none once it is sealed.
    pub successor: Option<Descriptor>,
    /// Successors allotted before that one, oldest first; one of them may still be the decided one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_successors: Vec<Descriptor>,
    /// Set where it took the place of others: whose, and what it keeps of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacted: Option<Compacted>,
    /// The copies that store it: its replica set while it is not sealed; afterwards copies come and go.
    #[serde(default)]
    pub copies: Vec<SegmentCopy>,
    /// What its batches hold, once it is sealed and the holder of a copy has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<Contents>,
    /// Disks of its replica set that have said that its log is there, with what was known of producers at its base. They are
    /// asked only where the segment before it is to go. Of one that took the place of others: disks with a copy that
    /// remember durably that it did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub begun: Vec<ReplicaRef>,
    /// When the command that opened it was proposed, milliseconds since the epoch; age rolls count from here.
    pub opened_at_ms: u64,
    /// A producer that had written nothing from this offset on when the segment was opened had been silent for a day: the
    /// next segment begins without remembering it.
    #[serde(default = "nowhere")]
    pub silent_below: Offset,
    /// The same for a quarter of an hour: of these the next segment forgets those who have been silent for longest, where
    /// it would remember too many.
    #[serde(default = "nowhere")]
    pub quiet_below: Offset,
    /// Version of the metadata at its last change.
    pub version: u64,
}

impl Segment {
    /// Makes the replica set the list of copies, none of them verified.
    pub(crate) fn list_copies(&mut self) {
        let replicas = std::mem::take(&mut self.descriptor.replicas);
        self.list_copies_on(&replicas);
        self.descriptor.replicas = replicas;
    }

    /// Makes these disks the list of copies, none of them verified.
    pub(crate) fn list_copies_on(&mut self, disks: &[ReplicaRef]) {
        let since = self.version;
        let listed =
            |replica: &ReplicaRef| SegmentCopy { replica: *replica, state: CopyState::Filling, since };
        self.copies = disks.iter().map(listed).collect();
    }

    /// The segment with copies all of which leave.
    pub(crate) fn left_by_all(mut self, version: u64) -> Self {
        for copy in self.copies.iter_mut().filter(|copy| copy.state != CopyState::Leaving) {
            (copy.state, copy.since) = (CopyState::Leaving, version);
        }
        Self { version, ..self }
    }

    /// Number of the first segment whose place it has: its own, if it took no other's.
    #[must_use]
    pub fn first_number(&self) -> u64 {
        self.compacted.as_ref().map_or(self.descriptor.number, |compacted| compacted.first_number)
    }

    /// Whether it took the place of the segment that ended with that value, by whose successor's number it is known.
    pub(crate) fn stands_for(&self, value: &Value) -> bool {
        let before = value.successor.number.saturating_sub(1);
        self.compacted.is_some() && (self.first_number()..=self.descriptor.number).contains(&before)
    }

    /// The segment as one that took the place of others, which a state that has forgotten it can be told; `None` if it took no
    /// other's.
    #[must_use]
    pub fn replacement(&self) -> Option<Replacement> {
        let (Some(compacted), SegmentState::Sealed(value)) = (&self.compacted, &self.state) else {
            return None;
        };
        let (descriptor, value) = (self.descriptor.clone(), value.clone());
        Some(Replacement { descriptor, value, compacted: compacted.clone() })
    }

    /// Whether others may go because this copy is there: it is verified and, where the segment took the place of others, its disk
    /// remembers that.
    #[must_use]
    pub fn counts(&self, copy: &SegmentCopy) -> bool {
        copy.state == CopyState::Verified && (self.compacted.is_none() || self.begun.contains(&copy.replica))
    }

    /// How often what it holds was compacted.
    pub(crate) fn generation(&self) -> u64 {
        self.compacted.as_ref().map_or(0, |compacted| compacted.generation)
    }

    /// The epochs of its batches, in order.
    #[must_use]
    pub fn epochs(&self) -> Vec<EpochStart> {
        let own = || {
            let first_offset = self.descriptor.base_offset.unwrap_or(Offset(0));
            vec![EpochStart { epoch: self.descriptor.epoch, first_offset }]
        };
        self.compacted.as_ref().map_or_else(own, |compacted| compacted.epochs.clone())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.contents.map_or(0, |contents| contents.bytes)
    }

    /// Whether it may be written again: it ended without loss. What is lost may still come back with a disk.
    pub(crate) fn is_compactable(&self) -> bool {
        matches!(&self.state, SegmentState::Sealed(value) if value.lost.is_empty())
    }

    /// The disks that store the segment, or will: its replica set until it is sealed, then the disks of its copies without
    /// those that are listed as lost.
    pub fn stored_on(&self) -> impl Iterator<Item = ReplicaRef> {
        let sealed = matches!(self.state, SegmentState::Sealed(_));
        let (copies, replicas): (&[SegmentCopy], &[ReplicaRef]) =
            if sealed { (&self.copies, &[]) } else { (&[], &self.descriptor.replicas) };
        let stored = copies.iter().filter(|copy| copy.state != CopyState::Lost);
        stored.map(|copy| copy.replica).chain(replicas.iter().copied())
    }

    /// The number of copies that there should be where the topic wants `factor`: never fewer than had to acknowledge its records.
    pub(crate) fn copies_wanted(&self, factor: u32) -> usize {
        factor.max(self.descriptor.write_quorum) as usize
    }

    /// Whether no node has all of it: a holder has asked all nodes in vain, and no other is listed that could have it.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        let is_lost = |copy: &SegmentCopy| copy.state == CopyState::Lost;
        let may_be = |copy: &SegmentCopy| !matches!(copy.state, CopyState::Lost | CopyState::Leaving);
        self.copies.iter().any(is_lost) && !self.copies.iter().any(may_be)
    }

    /// The replicas that can be expected to have the whole segment: all until it is sealed, then those whose copy is
    /// verified.
    pub(crate) fn readable_on(&self) -> impl Iterator<Item = ReplicaRef> {
        let is_sealed = matches!(self.state, SegmentState::Sealed(_));
        self.stored_on().filter(move |replica| {
            let is_verified =
                |copy: &SegmentCopy| copy.replica == *replica && copy.state == CopyState::Verified;
            !is_sealed || self.copies.iter().any(is_verified)
        })
    }

    /// The number of replicas that is enough for an append and for sealing.
    pub(crate) fn quorum(&self) -> usize {
        let replication = self.descriptor.replication();
        replication.write_quorum.max(replication.seal_quorum()) as usize
    }
}

pub(crate) fn nowhere() -> Offset {
    Offset(0)
}

pub(crate) fn is_nowhere(offset: &Offset) -> bool {
    *offset == nowhere()
}

/// A copy of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentCopy {
    /// The disk that has it, or is to have it.
    pub replica: ReplicaRef,
    /// Its condition.
    pub state: CopyState,
    /// Version of the metadata at the last change of its state. Its holder's reports name it, so that a report about an
    /// earlier copy on the same disk does not count for this one.
    pub since: u64,
}

/// The condition of a copy: `filling -> verified -> leaving`, and then it is not listed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyState {
    /// It is to be made, or was not compared yet; nothing is known about what is there.
    Filling,
    /// Its bytes were compared with the sealed digest.
    Verified,
    /// Its holder found damage that it could not mend.
    Damaged,
    /// It was given up: its holder deletes it, and says so.
    Leaving,
    /// It cannot be made: its holder has asked all nodes, and none has what is missing. The holder asks again now and then,
    /// for a disk that lost its votes may come back with its log.
    Lost,
}

/// The state of a segment: `open -> sealing -> sealed`. A segment that is then trimmed is not listed any more;
/// [`Partition::trimmed_below`] tells which are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentState {
    /// Takes appends.
    Open,
    /// Its end is being decided by the recoverer with this ballot. With ballot 0 it waits for a recoverer, for it was adopted
    /// and may have been written and sealed before the metadata lost it.
    Sealing(Ballot),
    /// Its end is decided and it never changes again.
    Sealed(Value),
}
