//! The disks that copies lie on, by the zones that they are in and by how full they are. Zones come first: the copies of a segment
//! lie in as many as there are. What counts for fullness is what the metadata list: copies and the bytes of their segments,
//! against the sizes that the nodes tell. Until every node has told its disk's size, the copies alone count.

use std::collections::{BTreeMap, BTreeSet};

use walrus_model::{DiskId, NodeId, ReplicaRef};

use crate::presence::Present;
use crate::state::{Metadata, Node, NodeState};

/// Millionths of a disk in one percentage point.
const POINT: u64 = 10_000;

/// The disks of the nodes that stay.
pub(crate) struct Disks<'a> {
    disks: BTreeMap<DiskId, Disk<'a>>,
    /// Whether the size of each of them is known.
    are_measured: bool,
    /// Whether they are in more than one zone.
    have_zones: bool,
}

#[derive(Clone, Copy)]
struct Disk<'a> {
    replica: ReplicaRef,
    /// The zone that its node has told.
    zone: &'a str,
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

impl<'a> Disk<'a> {
    fn new(node: &'a Node, present: &Present) -> Self {
        let is_alive = present.alive.contains(&node.id);
        Self {
            replica: ReplicaRef { node: node.id, disk: node.disk },
            zone: &node.zone,
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

impl<'a> Disks<'a> {
    /// Counts what lies on the disks in `staying`.
    pub(crate) fn new(metadata: &'a Metadata, present: &Present, staying: &BTreeSet<DiskId>) -> Self {
        let stay = metadata.nodes.values().filter(|node| staying.contains(&node.disk));
        let mut disks: BTreeMap<DiskId, Disk<'a>> =
            stay.map(|node| (node.disk, Disk::new(node, present))).collect();
        for (segment, _) in metadata.segments() {
            for replica in segment.stored_on() {
                if let Some(disk) = disks.get_mut(&replica.disk) {
                    disk.add(segment.bytes());
                }
            }
        }
        let are_measured = disks.values().all(|disk| disk.size > 0);
        let zones: BTreeSet<&str> = disks.values().map(|disk| disk.zone).collect();
        Self { disks, are_measured, have_zones: zones.len() > 1 }
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

    /// The disk of another node than `holders` that a copy goes to beside those on `near`: one in a zone with as few of them
    /// as there can be, and of these the emptiest.
    pub(crate) fn taker(&self, holders: &BTreeSet<NodeId>, near: &[ReplicaRef]) -> Option<ReplicaRef> {
        let best = self
            .takers(holders)
            .min_by_key(|disk| (self.neighbours(disk.zone, near), self.rank(disk), disk.replica.node))?;
        Some(best.replica)
    }

    /// The disks of other nodes that can be given copies now.
    fn takers(&self, holders: &BTreeSet<NodeId>) -> impl Iterator<Item = &Disk<'a>> {
        self.disks.values().filter(|disk| disk.takes && !holders.contains(&disk.replica.node))
    }

    /// The one of these disks that can be spared: the fullest of a zone that has most of them.
    pub(crate) fn spare(&self, replicas: &[ReplicaRef]) -> Option<ReplicaRef> {
        let rank = |replica: &&ReplicaRef| {
            let disk = self.disks.get(&replica.disk)?;
            Some((self.neighbours(disk.zone, replicas), self.rank(disk)))
        };
        replicas.iter().max_by_key(rank).copied()
    }

    /// The number of these disks that are in a zone.
    fn neighbours(&self, zone: &str, replicas: &[ReplicaRef]) -> usize {
        self.zones(replicas).filter(|other| *other == zone).count()
    }

    /// The zones of these disks, as far as they stay.
    fn zones(&self, replicas: &[ReplicaRef]) -> impl Iterator<Item = &'a str> {
        replicas.iter().filter_map(|replica| self.disks.get(&replica.disk)).map(|disk| disk.zone)
    }

    /// Whether the loss of one zone leaves fewer than `needed` of these disks. No zone is known to be lost at once where
    /// nobody has told more than one.
    pub(crate) fn needs_one_zone(&self, replicas: &[ReplicaRef], needed: usize) -> bool {
        let zones = || self.zones(replicas);
        self.have_zones && zones().any(|lost| zones().filter(|zone| *zone != lost).count() < needed)
    }

    /// Where a copy goes, and from where, so that no zone has two more of them than another one could have. `holders` are the
    /// disks that have copies.
    pub(crate) fn widening(&self, holders: &[ReplicaRef]) -> Option<Relief> {
        if !self.have_zones {
            return None;
        }
        let from = self.spare(holders)?;
        let nodes = holders.iter().map(|holder| holder.node).collect();
        let to = self.taker(&nodes, holders)?;
        let copies_beside = |replica: ReplicaRef| {
            self.disks.get(&replica.disk).map(|disk| self.neighbours(disk.zone, holders))
        };
        (copies_beside(to)? + 1 < copies_beside(from)?).then_some(Relief { from, to })
    }

    fn rank(&self, disk: &Disk<'_>) -> (u64, u64) {
        let fullness = if self.are_measured { disk.fullness_with(0) } else { 0 };
        (fullness, disk.copies)
    }

    /// The fullness that is `points` percentage points above that of all disks together, if a disk is above it.
    pub(crate) fn exceeded(&self, points: u64) -> Option<Fullness> {
        if !self.are_measured {
            return None;
        }
        let sum = |of: fn(&Disk<'_>) -> u64| self.disks.values().map(|disk| u128::from(of(disk))).sum();
        let limit = millionths(sum(|disk| disk.bytes), sum(|disk| disk.size)) + points * POINT;
        self.disks.values().any(|disk| disk.fullness_with(0) > limit).then_some(Fullness(limit))
    }

    /// Where a copy of so many bytes goes, and from where, so that a disk above `limit` becomes emptier and no other as full
    /// as it was. `holders` are the disks that have copies, each of them whole. The copy that goes is the one that can be spared
    /// beside the new one, so that they are spread over zones as well as they were.
    pub(crate) fn relief(&self, holders: &[ReplicaRef], bytes: u64, limit: Fullness) -> Option<Relief> {
        let nodes: BTreeSet<NodeId> = holders.iter().map(|holder| holder.node).collect();
        let mut takers: Vec<&Disk<'_>> = self.takers(&nodes).collect();
        takers.sort_by_key(|disk| (self.rank(disk), disk.replica.node));
        takers.into_iter().filter(|_| bytes > 0).find_map(|to| {
            let from = self.spare(&[holders, &[to.replica]].concat())?;
            let (before, after) = (self.disks.get(&from.disk)?.fullness_with(0), to.fullness_with(bytes));
            (before > limit.0 && after < before).then_some(Relief { from, to: to.replica })
        })
    }
}

/// How full a disk is, in millionths of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fullness(u64);

/// A move of one copy from a disk that is too full, or in a zone with another copy, to a better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relief {
    pub(crate) from: ReplicaRef,
    pub(crate) to: ReplicaRef,
}

fn millionths(part: u128, whole: u128) -> u64 {
    let parts = part.saturating_mul(1_000_000).checked_div(whole).unwrap_or(0);
    u64::try_from(parts).unwrap_or(u64::MAX)
}
