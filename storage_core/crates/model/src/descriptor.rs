//! The descriptor of a segment: everything that was fixed when it was opened.

use crate::fsync::FsyncSchedule;
use crate::identity::{DiskId, NodeId, ProcessId, SegmentId, TopicId};
use crate::number::{Epoch, Offset};

/// A segment's identity, its leader and its replica set, which never changes while it is open (R9).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Descriptor {
    /// Identity of the segment.
    #[cfg_attr(feature = "serde", serde(rename = "uuid"))]
    pub id: SegmentId,
    /// Topic it belongs to.
    pub topic: TopicId,
    /// Partition it belongs to.
    pub partition: u32,
    /// Place in the partition, from 0.
    pub number: u64,
    /// First offset. Of a successor that waits for its predecessor's end it is not known: `None`.
    pub base_offset: Option<Offset>,
    /// Epoch under which its leader appends.
    pub epoch: Epoch,
    /// The process that orders its appends.
    pub leader: LeaderRef,
    /// The disks that store it: n, on different nodes.
    pub replicas: Vec<ReplicaRef>,
    /// w: so many copies make a record acknowledged.
    #[cfg_attr(feature = "serde", serde(default = "one"))]
    pub write_quorum: u32,
    /// When its replicas sync what is appended, where its topic says so; `None`: as each node's store does.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub fsync: Option<FsyncSchedule>,
}

#[cfg(feature = "serde")]
fn one() -> u32 {
    1
}

/// A leader is a process: after a restart it does not resume (R7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LeaderRef {
    /// Node.
    pub node: NodeId,
    /// Process incarnation.
    pub process: ProcessId,
}

/// A replica is a disk (R11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ReplicaRef {
    /// Node.
    pub node: NodeId,
    /// Disk incarnation.
    pub disk: DiskId,
}

/// The number of disks that store a segment, and of those for which an acknowledgement waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Replication {
    /// n: replicas of a new segment, as long as there are so many nodes.
    pub factor: u32,
    /// w: replicas that hold a record durably before it is acknowledged.
    pub write_quorum: u32,
}

impl Replication {
    /// Limit on n: whoever asks for more copies has made a mistake.
    pub const FACTOR_MAX: u32 = 9;

    /// 3/2, what a cluster is given unless its founder says otherwise.
    pub const DEFAULT: Self = Self { factor: 3, write_quorum: 2 };

    /// 1/1: one copy. It is for development, and it is what a cluster has whose founder named no replication.
    #[must_use]
    pub const fn single() -> Self {
        Self { factor: 1, write_quorum: 1 }
    }

    /// f = n + 1 - w: replicas that must answer before a segment's end is chosen. Every set of f meets every set of w.
    #[must_use]
    pub const fn seal_quorum(self) -> u32 {
        self.factor + 1 - self.write_quorum
    }
}

impl Default for Replication {
    fn default() -> Self {
        Self::single()
    }
}

impl Descriptor {
    /// The segment's n and w; f follows.
    #[must_use]
    pub fn replication(&self) -> Replication {
        let factor = u32::try_from(self.replicas.len()).unwrap_or(u32::MAX);
        Replication { factor, write_quorum: self.write_quorum }
    }

    /// w: copies that make a record acknowledged.
    #[must_use]
    pub fn write_quorum(&self) -> usize {
        self.write_quorum as usize
    }

    /// f: replicas that must answer before the segment's end is chosen; every f of n meet every w of n.
    #[must_use]
    pub fn seal_quorum(&self) -> usize {
        self.replicas.len() + 1 - self.write_quorum()
    }

    /// First offset of a segment that is open, or was.
    ///
    /// # Panics
    /// For a successor whose predecessor's end is not decided.
    #[must_use]
    pub fn first(&self) -> Offset {
        self.base_offset.expect("the base of a segment that takes messages is known")
    }

    /// Place of a replica in the set; `None` if it is not in it.
    #[must_use]
    pub fn place(&self, replica: ReplicaRef) -> Option<usize> {
        self.replicas.iter().position(|known| *known == replica)
    }

    /// The same descriptor with its base known: its predecessor ends at `base_offset`.
    #[must_use]
    pub fn starting_at(mut self, base_offset: Offset) -> Self {
        self.base_offset = Some(base_offset);
        self
    }

    /// Whether both describe the same segment, whatever base either names: a successor's base is not known before its
    /// predecessor's end.
    #[must_use]
    pub fn is_same_segment(&self, other: &Self) -> bool {
        Self { base_offset: None, ..self.clone() } == Self { base_offset: None, ..other.clone() }
    }

    /// Whether 1 <= w <= n, no node is named twice and the leader's node is among the replicas.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let nodes = || self.replicas.iter().map(|replica| replica.node);
        let is_twice = |(at, node)| nodes().take(at).any(|before| before == node);
        (1..=self.replicas.len()).contains(&self.write_quorum())
            && !nodes().enumerate().any(is_twice)
            && nodes().any(|node| node == self.leader.node)
    }
}
