//! The passes of compaction over partitions: when one is due, who makes it, and which segments are written again as one.
//! Pure; the time is the one that a majority of the nodes' clocks have reached ([`Metadata::reached_ms`]).
//!
//! A pass of a compactor reads sealed segments from the partition's beginning and writes those from which records go, and small
//! neighbours, again as one segment of another identity. That one is a candidate until enough copies of it are verified; then it
//! takes the place of the others, whose copies leave.

use std::collections::BTreeSet;
use std::ops::Range;

use walrus_model::{
    Descriptor, Digest, FsyncSchedule, LeaderRef, NodeId, Offset, ReplicaRef, SegmentId, TopicId, Value,
};

use crate::command::PartitionPlace;
use crate::compaction::{Compacted, CompactionPolicy, EpochStart, Replacement};
use crate::presence::Present;
use crate::segment::{CopyState, Segment, SegmentState};
use crate::state::{Metadata, Node, NodeState, Partition, Topic};

/// Limit on the epochs of a segment that took the place of others: as many as the header of a block has room for.
const EPOCHS_MAX: usize = 200;

/// A pass that is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DuePass {
    /// Number of segments, from the first one on, that may be written again.
    pub segments: usize,
    /// Bytes of those that no pass has looked at.
    pub dirty_bytes: u64,
    /// Tombstones below this offset go.
    pub tombstones_below: Offset,
    /// Whether records wait for longer than the topic allows.
    pub is_overdue: bool,
}

/// The segment that is to take the place of neighbouring ones, which compacted batches have that digest; `None` where they cannot
/// be replaced, because one is not sealed, has lost records, or they have too many epochs.
#[must_use]
pub fn replacement(
    run: &[Segment],
    id: SegmentId,
    compactor: LeaderRef,
    digest: Digest,
) -> Option<Replacement> {
    let (first, last) = (run.first()?, run.last()?);
    if !run.iter().all(Segment::is_compactable) {
        return None;
    }
    let SegmentState::Sealed(ended) = &last.state else { return None };
    let mut epochs: Vec<EpochStart> = Vec::new();
    for start in run.iter().flat_map(Segment::epochs) {
        // A segment without records leaves no epoch: nothing was written under it.
        epochs.pop_if(|last| last.first_offset == start.first_offset);
        if epochs.last().is_none_or(|last| last.epoch != start.epoch) {
            epochs.push(start);
        }
    }
    if epochs.len() > EPOCHS_MAX {
        return None;
    }
    let values = run.iter().filter_map(|segment| match &segment.state {
        SegmentState::Sealed(value) => Some(value),
        _ => None,
    });
    let possible_loss = values.flat_map(|value| value.possible_loss.iter().copied()).collect();
    let descriptor = Descriptor {
        id,
        base_offset: first.descriptor.base_offset,
        leader: compactor,
        replicas: Vec::new(),
        write_quorum: run.iter().map(|segment| segment.descriptor.write_quorum).max()?,
        // Copies of what it replaces are given up as soon as it is said to be there, so it must outlive a loss of power.
        fsync: Some(FsyncSchedule::SyncEach),
        ..last.descriptor.clone()
    };
    let value = Value { digest, possible_loss, ..ended.clone() };
    let generation = 1 + run.iter().map(Segment::generation).max()?;
    let compacted = Compacted { first_number: first.first_number(), generation, epochs };
    Some(Replacement { descriptor, value, compacted })
}

/// The pass that is due in a partition of a topic with that policy, if one is.
#[must_use]
pub fn due_pass(metadata: &Metadata, partition: &Partition, policy: &CompactionPolicy) -> Option<DuePass> {
    let now_ms = metadata.reached_ms();
    let compaction = &partition.compaction;
    let segments = ready_segments(metadata, partition, policy, now_ms);
    let ready = &partition.segments[..segments];
    let is_dirty = |segment: &&Segment| {
        let SegmentState::Sealed(value) = &segment.state else { return false };
        value.end > compaction.cleaned_to
    };
    let dirty_bytes: u64 = ready.iter().filter(is_dirty).map(Segment::bytes).sum();
    let bytes: u64 = ready.iter().map(Segment::bytes).sum();
    let is_overdue = ready
        .iter()
        .find(is_dirty)
        .is_some_and(|first| first.opened_at_ms.saturating_add(policy.lag_max_ms) <= now_ms);
    let tombstones_below = compaction.kept_tombstones.stayed_for(policy.tombstone_delay_ms, now_ms);
    // The figures are for a comparison only, which need not be exact.
    #[expect(clippy::cast_precision_loss)]
    let is_dirty_enough = dirty_bytes > 0 && dirty_bytes as f64 > policy.dirty_share_min * bytes as f64;
    let is_due = is_dirty_enough || is_overdue || tombstones_below > Offset(0);
    (is_due && segments > 0).then_some(DuePass { segments, dirty_bytes, tombstones_below, is_overdue })
}

/// Number of segments, from the first one on, that are sealed, verified by somebody and old enough.
fn ready_segments(
    metadata: &Metadata,
    partition: &Partition,
    policy: &CompactionPolicy,
    now_ms: u64,
) -> usize {
    let is_ready = |(segment, next): &(&Segment, &Segment)| {
        let Some(contents) = segment.contents else { return false };
        let newest_ms = contents.newest_ms.and_then(|newest| u64::try_from(newest).ok());
        // No record is younger than the end of its segment, whatever its producer's clock said.
        let newest_ms = newest_ms.map_or(next.opened_at_ms, |newest| newest.min(next.opened_at_ms));
        let is_old = policy.lag_min_ms == 0 || newest_ms.saturating_add(policy.lag_min_ms) <= now_ms;
        // The one behind it knows what producers have written, so nobody asks this one again.
        matches!(segment.state, SegmentState::Sealed(_)) && is_old && metadata.is_on_quorum(next)
    };
    partition.segments.iter().zip(partition.segments.iter().skip(1)).take_while(is_ready).count()
}

/// The neighbours among these segments that are written again together, each run as long as its bytes stay within `bytes_max`. A
/// segment that cannot be replaced is in none.
#[must_use]
pub fn runs(segments: &[Segment], bytes_max: u64) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let (mut bytes, mut epochs) = (0_u64, 0);
    for (at, segment) in segments.iter().enumerate().filter(|(_, segment)| segment.is_compactable()) {
        let (its_bytes, its_epochs) = (segment.bytes(), segment.epochs().len());
        match runs.last_mut() {
            Some(run)
                if run.end == at
                    && bytes.saturating_add(its_bytes) <= bytes_max
                    && epochs + its_epochs <= EPOCHS_MAX =>
            {
                run.end = at + 1;
                (bytes, epochs) = (bytes + its_bytes, epochs + its_epochs);
            }
            _ => {
                runs.push(at..at + 1);
                (bytes, epochs) = (its_bytes, its_epochs);
            }
        }
    }
    runs
}

/// The node that is to compact a partition: of those that are there the one that has most of these segments. Nodes that see the
/// same choose the same; where they do not, the metadata take one candidate at a time.
#[must_use]
pub fn compactor(
    metadata: &Metadata,
    present: &Present,
    topic: &Topic,
    segments: &[Segment],
) -> Option<NodeId> {
    let is_verified = |segment: &&Segment, node: NodeId| {
        let mut copies = segment.copies.iter();
        copies.any(|copy| copy.replica.node == node && copy.state == CopyState::Verified)
    };
    let held = |node: NodeId| segments.iter().filter(|segment| is_verified(segment, node)).count();
    let there: BTreeSet<NodeId> = metadata
        .nodes
        .values()
        .filter(|node| node.state == NodeState::Up && present.alive.contains(&node.id))
        .map(|node| node.id)
        .collect();
    let place = segments.first()?.descriptor.partition;
    let turn = |node: NodeId| shuffled(topic.id, place, node);
    let best = there.into_iter().map(|node| (held(node), turn(node), node)).max()?;
    (best.0 > 0).then_some(best.2)
}

/// The disks that are to have copies of what `compactor` wrote for a run of segments: as many as the topic wants, or as many as are
/// there. It has one itself; the others are preferred that have copies of the last segment.
#[must_use]
pub fn disks_for_replacement(
    metadata: &Metadata,
    present: &Present,
    place: PartitionPlace,
    run: &[Segment],
    compactor: ReplicaRef,
) -> Vec<ReplicaRef> {
    let factor = metadata
        .topics
        .get(&place.topic)
        .map_or(metadata.replication.factor, |topic| topic.config.replication(metadata.replication).factor);
    let wanted = run.iter().map(|segment| segment.copies_wanted(factor)).max().unwrap_or(1);
    let holds = |node: NodeId| {
        let copies = run.last().map_or(&[][..], |last| &last.copies);
        copies.iter().any(|copy| copy.replica.node == node && copy.state == CopyState::Verified)
    };
    let others = metadata
        .nodes
        .values()
        .filter(|node| node.may_store() && present.alive.contains(&node.id) && node.id != compactor.node);
    let mut others: Vec<&Node> = others.collect();
    others.sort_by_key(|node| {
        (!holds(node.id), node.state != NodeState::Up, shuffled(place.topic, place.partition, node.id))
    });
    let disks = others.into_iter().map(|node| ReplicaRef { node: node.id, disk: node.disk });
    std::iter::once(compactor).chain(disks).take(wanted).collect()
}

/// A number that spreads the partitions of topics over nodes.
fn shuffled(topic: TopicId, partition: u32, node: NodeId) -> u64 {
    let (high, low) = topic.0.as_u64_pair();
    let mixed = high ^ low ^ (u64::from(partition) << 32) ^ u64::from(node.0);
    // The finaliser of splitmix64 (Steele, Lea, Flood 2014).
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
