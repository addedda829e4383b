//! How copies of sealed segments come back to n: which copies to make, and which to give up. Pure: one look takes a state
//! and who is there and answers changes; the next look sees what came of them.
//!
//! A segment is whole with n verified copies on nodes that stay, or w where its topic wants fewer by now than had to
//! acknowledge it. A node stays unless it is drained, its disk is gone, or it was silent for longer than the grace. What
//! may be given up must have been made elsewhere before: w verified copies stay in any case.
//!
//! Copies of a segment are spread over zones as evenly as can be. Where every segment has its copies, they move from zones that
//! have two more of a segment than another one could have, and then from disks that are much fuller than the others, such as those that were there
//! before a node joined: a copy too many is made on the emptiest disk, and then the one on the fullest is given up.

use std::collections::BTreeSet;

use serde::Serialize;
use walrus_model::{DiskId, NodeId, ReplicaRef, SegmentId, TopicId};

use crate::command::Command;
use crate::disks::{Disks, Relief};
use crate::presence::Present;
use crate::segment::{CopyState, Segment, SegmentState};
use crate::state::{Metadata, Node, NodeState};

/// Limit on the changes of one look; the next look is soon.
const CHANGES_MAX: usize = 256;

/// The answer of one look: what to do now, and how far things are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Upkeep {
    /// The changes to make, those of segments with the fewest verified copies first.
    pub changes: Vec<CopyChange>,
    /// The counts of copies before these changes.
    pub progress: Progress,
}

/// Counts of sealed segments and their copies, by what they lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Segments with fewer than n verified copies on nodes that stay.
    pub under_replicated: u64,
    /// Under-replicated segments without any verified copy: they wait for a node that is silent.
    pub without_copy: u64,
    /// Copies that are being made.
    pub moving: u64,
    /// Segments that no node has whole; the first two counts leave them out.
    pub lost: u64,
    /// Copies whose holders found damage that they cannot mend.
    pub damaged: u64,
    /// Segments that the loss of one zone would leave without a quorum, if they are open, or else without a copy; 0 where
    /// no two zones are known.
    pub in_one_zone: u64,
}

/// A change of one segment's copies: [`Command::SetCopies`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CopyChange {
    /// Topic.
    pub topic: TopicId,
    /// Partition.
    pub partition: u32,
    /// The sealed segment.
    pub segment: SegmentId,
    /// Version of the segment that was looked at.
    pub version: u64,
    /// Disks that are to make a copy.
    pub added: Vec<ReplicaRef>,
    /// Copies to give up.
    pub given_up: Vec<ReplicaRef>,
}

impl CopyChange {
    fn of(segment: &Segment, added: Vec<ReplicaRef>, given_up: Vec<ReplicaRef>) -> Self {
        let (descriptor, version) = (&segment.descriptor, segment.version);
        let (topic, partition, segment) = (descriptor.topic, descriptor.partition, descriptor.id);
        Self { topic, partition, segment, version, added, given_up }
    }

    /// The command that makes the change.
    #[must_use]
    pub fn command(&self) -> Command {
        let CopyChange { topic, partition, segment, version, added, given_up } = self.clone();
        Command::SetCopies { topic, partition, segment, version, added, given_up }
    }
}

/// Looks at all sealed segments. `present` are the nodes that the caller holds to be there.
#[must_use]
pub fn upkeep(metadata: &Metadata, present: &Present) -> Upkeep {
    let mut look = Look::new(metadata, present);
    let mut wanting: Vec<(usize, &Segment, usize)> = Vec::new();
    let mut progress = Progress::default();
    let mut has_spare = false;
    for (segment, wanted) in metadata.segments() {
        if !matches!(segment.state, SegmentState::Sealed(_)) {
            progress.in_one_zone += u64::from(look.needs_one_zone(segment, segment.quorum()));
            continue;
        }
        progress.in_one_zone += u64::from(look.needs_one_zone(segment, 1));
        let copies = look.sort(segment);
        if segment.is_lost() {
            progress.lost += 1;
        } else {
            progress.under_replicated += u64::from(copies.verified.len() < wanted);
            progress.without_copy += u64::from(copies.verified.is_empty());
        }
        has_spare |= copies.verified.len() + copies.filling.len() > wanted;
        progress.moving += copies.filling.len() as u64;
        progress.damaged += copies.damaged.len() as u64;
        if copies.verified.len() != wanted || copies.is_untidy() {
            wanting.push((copies.verified.len(), segment, wanted));
        }
    }
    look.moves_left = look.moves_max.saturating_sub(usize::try_from(progress.moving).unwrap_or(usize::MAX));
    wanting.sort_by_key(|(verified, ..)| *verified); // the sort is stable, so topics and numbers stay in order
    let changes = wanting.into_iter().filter_map(|(_, segment, wanted)| look.change(segment, wanted));
    let mut changes: Vec<CopyChange> = changes.take(CHANGES_MAX).collect();
    // One group of moves ends before the next begins: then the counts of the disks say what the last one has brought.
    if changes.is_empty() && !has_spare {
        changes = look.spread();
    }
    Upkeep { changes, progress }
}

/// The copies of a segment by what can be expected of them.
#[derive(Default)]
struct Copies {
    /// Verified copies on nodes that stay.
    verified: Vec<ReplicaRef>,
    /// Copies that nodes that stay are to make or to compare.
    filling: Vec<ReplicaRef>,
    /// Copies that nodes that stay look for in vain.
    lost: Vec<ReplicaRef>,
    /// Damaged copies on nodes that stay.
    damaged: Vec<ReplicaRef>,
    /// Copies on nodes that are drained.
    drained: Vec<ReplicaRef>,
    /// Copies on disks that are gone.
    gone: Vec<ReplicaRef>,
    /// Whether there may be a whole copy somewhere, if only on a node that does not stay or that gives it up.
    has_source: bool,
}

impl Copies {
    fn is_untidy(&self) -> bool {
        !(self.damaged.is_empty() && self.drained.is_empty() && self.gone.is_empty())
    }
}

struct Look<'a> {
    metadata: &'a Metadata,
    /// Disks of the nodes that stay.
    staying: BTreeSet<DiskId>,
    /// What these disks have or will have.
    disks: Disks<'a>,
    moves_max: usize,
    moves_left: usize,
}

impl<'a> Look<'a> {
    fn new(metadata: &'a Metadata, present: &Present) -> Self {
        let stays = |node: &&Node| {
            node.state != NodeState::Draining
                && !metadata.gone_disks.contains(&node.disk)
                && present.staying.contains(&node.id)
        };
        let staying: BTreeSet<DiskId> = metadata.nodes.values().filter(stays).map(|node| node.disk).collect();
        let disks = Disks::new(metadata, present, &staying);
        Self { metadata, staying, disks, moves_max: metadata.config.copies_moves_max(), moves_left: 0 }
    }

    fn sort(&self, segment: &Segment) -> Copies {
        let mut copies = Copies::default();
        for copy in &segment.copies {
            let replica = copy.replica;
            let (stays, is_gone) =
                (self.staying.contains(&replica.disk), self.metadata.gone_disks.contains(&replica.disk));
            copies.has_source |= matches!(copy.state, CopyState::Verified | CopyState::Leaving) && !is_gone;
            let is_drained = || {
                let node = self.metadata.nodes.get(&replica.node);
                node.is_some_and(|node| node.disk == replica.disk && node.state == NodeState::Draining)
            };
            match copy.state {
                _ if is_gone => copies.gone.push(replica),
                CopyState::Leaving => {}
                CopyState::Verified if stays && segment.counts(copy) => copies.verified.push(replica),
                CopyState::Verified | CopyState::Filling if stays => copies.filling.push(replica),
                CopyState::Lost if stays => copies.lost.push(replica),
                CopyState::Damaged if stays => copies.damaged.push(replica),
                _ if is_drained() => copies.drained.push(replica),
                // The node is silent and may come back.
                CopyState::Verified | CopyState::Filling | CopyState::Damaged | CopyState::Lost => {}
            }
        }
        copies
    }

    fn change(&mut self, segment: &Segment, wanted: usize) -> Option<CopyChange> {
        let copies = self.sort(segment);
        // Where all copies are gone, a disk that lost its votes may still have the log, and only a node that is listed with a
        // copy looks for it. One such node is enough.
        let is_gone = copies.gone.len() == segment.copies.len();
        let added = match (copies.has_source, is_gone) {
            (true, _) => self.add(segment, &copies, wanted),
            (false, true) => self.add(segment, &copies, 1),
            (false, false) => Vec::new(),
        };
        let given_up = if added.is_empty() { self.give_up(segment, wanted, copies) } else { Vec::new() };
        if added.is_empty() && given_up.is_empty() {
            return None;
        }
        Some(CopyChange::of(segment, added, given_up))
    }

    /// Takes disks in further zones, and of these the emptiest, as far as moves are allowed now, until there are `wanted` copies.
    fn add(&mut self, segment: &Segment, copies: &Copies, wanted: usize) -> Vec<ReplicaRef> {
        let mut there = [&copies.verified[..], &copies.filling, &copies.lost].concat();
        let mut holders = holders(segment);
        let mut added = Vec::new();
        while there.len() < wanted && self.moves_left > 0 {
            let Some(taker) = self.disks.taker(&holders, &there) else { break };
            self.disks.give(taker, segment.bytes());
            self.moves_left -= 1;
            there.push(taker);
            holders.insert(taker.node);
            added.push(taker);
        }
        added
    }

    /// The copies to give up: those on disks that are gone, and those that are not needed any more because they are on
    /// drained nodes, damaged or too many.
    fn give_up(&mut self, segment: &Segment, wanted: usize, copies: Copies) -> Vec<ReplicaRef> {
        let Copies { verified, filling, damaged, drained, gone, .. } = copies;
        let enough = verified.len() >= segment.descriptor.write_quorum as usize;
        let has_taker = self.disks.taker(&holders(segment), &verified).is_some();
        // More is not to be had: n copies are verified, or none is being made and no node is left that could take one.
        let is_complete = verified.len() >= wanted || (filling.is_empty() && !has_taker);
        let mut given_up = Vec::new();
        if segment.copies.len() > gone.len() {
            given_up.extend(gone);
        }
        if enough && is_complete {
            given_up.extend(drained);
            given_up.extend(damaged);
        }
        let all_answer = verified.iter().all(|replica| self.disks.answers(*replica));
        if enough && verified.len() > wanted && all_answer {
            given_up.extend(self.disks.spare(&verified));
        }
        given_up
    }

    fn needs_one_zone(&self, segment: &Segment, needed: usize) -> bool {
        let on: Vec<ReplicaRef> = segment.readable_on().collect();
        self.disks.needs_one_zone(&on, needed)
    }

    /// Makes copies too many, as far as moves are allowed now: of segments that could be spread over zones better, and where
    /// there is none, of those that lie on disks which are much fuller than the others.
    fn spread(&mut self) -> Vec<CopyChange> {
        let widened = self.moved(|disks, _, holders| disks.widening(holders));
        if !widened.is_empty() {
            return widened;
        }
        let points = self.metadata.config.copies_imbalance_max_points();
        let Some(limit) = self.disks.exceeded(points) else { return Vec::new() };
        self.moved(|disks, segment, holders| disks.relief(holders, segment.bytes(), limit))
    }

    /// The moves of copies that are wanted, of segments that are whole.
    fn moved(
        &mut self,
        wish: impl Fn(&Disks<'_>, &Segment, &[ReplicaRef]) -> Option<Relief>,
    ) -> Vec<CopyChange> {
        let mut changes = Vec::new();
        for (segment, wanted) in self.metadata.segments() {
            if changes.len() >= self.moves_left.min(CHANGES_MAX) {
                break;
            }
            let holders = self.sort(segment).verified;
            let is_whole = holders.len() == wanted && segment.copies.len() == wanted;
            if is_whole && let Some(Relief { from, to }) = wish(&self.disks, segment, &holders) {
                self.disks.take(from, segment.bytes());
                self.disks.give(to, segment.bytes());
                changes.push((holders.len(), CopyChange::of(segment, vec![to], Vec::new())));
            }
        }
        changes.sort_by_key(|(verified, _)| *verified);
        changes.into_iter().map(|(_, change)| change).collect()
    }
}

/// The nodes with a copy of a segment, in whatever condition.
fn holders(segment: &Segment) -> BTreeSet<NodeId> {
    segment.copies.iter().map(|copy| copy.replica.node).collect()
}
