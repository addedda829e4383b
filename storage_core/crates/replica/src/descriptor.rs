//! What was fixed about a segment when it was opened.

use crate::types::{DiskId, Epoch, NodeId, Offset, ProcessId, SegmentId, TopicId};

/// A segment's identity, its leader and its replica set, which never changes while it is open (R9).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Descriptor {
    /// What it is.
    pub segment: SegmentId,
    /// Topic it belongs to.
    pub topic: TopicId,
    /// Partition it belongs to.
    pub partition: u32,
    /// Place in the partition, from 0.
    pub number: u64,
    /// First offset. Of a successor that waits for its predecessor's end it is not known: `None`.
    pub base: Option<Offset>,
    /// Epoch of its appends.
    pub epoch: Epoch,
    /// Who orders its appends.
    pub leader: LeaderRef,
    /// Who stores it: n disks on different nodes.
    pub replicas: Vec<ReplicaRef>,
    /// w: so many copies make a record acknowledged.
    pub write_quorum: u32,
}

/// A leader is a process: after a restart it does not resume (R7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaderRef {
    /// Node.
    pub node: NodeId,
    /// Process incarnation.
    pub process: ProcessId,
}

/// A replica is a disk (R11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaRef {
    /// Node.
    pub node: NodeId,
    /// Disk incarnation.
    pub disk: DiskId,
}

impl Descriptor {
    /// w: copies that make a record acknowledged.
    #[must_use]
    pub fn write_quorum(&self) -> usize {
        self.write_quorum as usize
    }

    /// f: answers that settle where the segment ends; every f of n meet every w of n.
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
        self.base.expect("the base of a segment that takes messages is known")
    }

    /// Place of a replica in the set.
    #[must_use]
    pub fn place(&self, replica: ReplicaRef) -> Option<usize> {
        self.replicas.iter().position(|known| *known == replica)
    }

    /// The successor of a segment that ends there.
    #[must_use]
    pub fn starting_at(mut self, base: Offset) -> Self {
        self.base = Some(base);
        self
    }

    /// 1 <= w <= n, no node twice, the leader stores it.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let nodes = || self.replicas.iter().map(|replica| replica.node);
        let is_twice = |(at, node)| nodes().take(at).any(|before| before == node);
        (1..=self.replicas.len()).contains(&self.write_quorum())
            && !nodes().enumerate().any(is_twice)
            && nodes().any(|node| node == self.leader.node)
    }
}
