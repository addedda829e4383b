//! The disks that copies lie on, by how full they are. What counts is what the metadata list: copies and the bytes of their
//! segments, against the sizes that the nodes tell. Until every node has told its disk's size, the copies alone count.

use std::collections::{BTreeMap, BTreeSet};

use walrus_model::{DiskId, NodeId, ReplicaRef};

use crate::presence::Present;
use crate::state::{Metadata, Node, NodeState};

/// Millionths of a disk in one percentage point.
const POINT: u64 = 10_000;

/// The disks of the nodes that stay.
pub(crate) struct Disks {
    disks: BTreeMap<DiskId, Disk>,
    /// Whether the size of each of them is known.
    are_measured: bool,
}

#[derive(Clone, Copy)]
struct Disk {
    replica: ReplicaRef,
    /// Whether it can be given copies now.
    takes: bool,
    /// Whether its node does now what is listed for it.
    answers: bool,
    /// Copies that it has or will have.
    copies: u64,
    /// Bytes of their segments, as far as they are known.
    bytes: u64,
    /// Its size in bytes; 0 while it is not known.
    size: u64,
}

impl Disk {
    fn new(node: &Node, present: &Present) -> Self {
        let is_alive = present.alive.contains(&node.id);
        Self {
            replica: ReplicaRef { node: node.id, disk: node.disk },
            takes: is_alive && node.state == NodeState::Up,
            answers: is_alive && matches!(node.state, NodeState::Up | NodeState::Full),
            copies: 0,
            bytes: 0,
            size: node.disk_bytes,
        }
    }

    fn add(&mut self, bytes: u64) {
        self.copies += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// How full it is with so many bytes more, in millionths of its size.
    fn fullness_with(&self, bytes: u64) -> u64 {
        millionths(self.bytes.saturating_add(bytes).into(), self.size.into())
    }
}

impl Disks {
    /// Counts what lies on the disks in `staying`.
    pub(crate) fn new(metadata: &Metadata, present: &Present, staying: &BTreeSet<DiskId>) -> Self {
        let stay = metadata.nodes.values().filter(|node| staying.contains(&node.disk));
        let mut disks: BTreeMap<DiskId, Disk> =
            stay.map(|node| (node.disk, Disk::new(node, present))).collect();
        for (segment, _) in metadata.segments() {
            for replica in segment.stored_on() {
                if let Some(disk) = disks.get_mut(&replica.disk) {
                    disk.add(segment.bytes());
                }
            }
        }
        let are_measured = disks.values().all(|disk| disk.size > 0);
        Self { disks, are_measured }
    }

    /// Counts a copy of so many bytes that a disk is given.
    pub(crate) fn give(&mut self, replica: ReplicaRef, bytes: u64) {
        if let Some(disk) = self.disks.get_mut(&replica.disk) {
            disk.add(bytes);
        }
    }

    /// Counts a copy less of so many bytes.
    pub(crate) fn take(&mut self, replica: ReplicaRef, bytes: u64) {
        if let Some(disk) = self.disks.get_mut(&replica.disk) {
            disk.copies = disk.copies.saturating_sub(1);
            disk.bytes = disk.bytes.saturating_sub(bytes);
        }
    }

    /// Whether the disk's node does now what is listed for it.
    pub(crate) fn answers(&self, replica: ReplicaRef) -> bool {
        self.disks.get(&replica.disk).is_some_and(|disk| disk.answers)
    }

    /// The disks of other nodes that can be given copies now, the emptiest first.
    pub(crate) fn takers_besides(&self, holders: &BTreeSet<NodeId>) -> Vec<ReplicaRef> {
        let mut takers: Vec<&Disk> =
            self.disks.values().filter(|disk| disk.takes && !holders.contains(&disk.replica.node)).collect();
        takers.sort_by_key(|disk| (self.rank(disk), disk.replica.node));
        takers.into_iter().map(|disk| disk.replica).collect()
    }

    /// The fullest of these disks.
    pub(crate) fn fullest<'a>(&self, replicas: &'a [ReplicaRef]) -> Option<&'a ReplicaRef> {
        replicas.iter().max_by_key(|replica| self.disks.get(&replica.disk).map(|disk| self.rank(disk)))
    }

    fn rank(&self, disk: &Disk) -> (u64, u64) {
        let fullness = if self.are_measured { disk.fullness_with(0) } else { 0 };
        (fullness, disk.copies)
    }

    /// The fullness that is `points` percentage points above that of all disks together, if a disk is above it.
    pub(crate) fn exceeded(&self, points: u64) -> Option<Fullness> {
        if !self.are_measured {
            return None;
        }
        let sum = |of: fn(&Disk) -> u64| self.disks.values().map(|disk| u128::from(of(disk))).sum();
        let limit = millionths(sum(|disk| disk.bytes), sum(|disk| disk.size)) + points * POINT;
        self.disks.values().any(|disk| disk.fullness_with(0) > limit).then_some(Fullness(limit))
    }

    /// Where a copy of so many bytes goes, and from where, so that a disk above `limit` becomes emptier and no other as full
    /// as it was. `holders` are the disks that have copies, each of them whole.
    pub(crate) fn relief(&self, holders: &[ReplicaRef], bytes: u64, limit: Fullness) -> Option<Relief> {
        let from = *self.fullest(holders)?;
        let before = self.disks.get(&from.disk)?.fullness_with(0);
        let nodes: BTreeSet<NodeId> = holders.iter().map(|holder| holder.node).collect();
        let to = *self.takers_besides(&nodes).first()?;
        let after = self.disks.get(&to.disk)?.fullness_with(bytes);
        (bytes > 0 && before > limit.0 && after < before).then_some(Relief { from, to })
    }
}

/// How full a disk is, in millionths of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fullness(u64);

/// A move of one copy from a disk that is too full to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relief {
    pub(crate) from: ReplicaRef,
    pub(crate) to: ReplicaRef,
}

fn millionths(part: u128, whole: u128) -> u64 {
    let parts = part.saturating_mul(1_000_000).checked_div(whole).unwrap_or(0);
    u64::try_from(parts).unwrap_or(u64::MAX)
}
