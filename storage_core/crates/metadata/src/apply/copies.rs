//! Commands about the copies of a sealed segment: copies are listed, reported verified by their holders, and given up
//! while enough others stay.

use walrus_model::{Digest, ReplicaRef, SegmentId, TopicId};

use super::partitions::{find_partition, partition_mut};
use super::segments::{find_segment, segment_mut};
use crate::answer::Answer;
use crate::command::{CopyReport, Found};
use crate::rejection::CommandRejection;
use crate::segment::{CopyState, Segment, SegmentCopy, SegmentState};
use crate::state::{Metadata, Partition};

/// The copies that come and go. `version` is the segment's version that the proposer saw, for whoever decides about copies
/// must have seen all of them.
pub(super) struct Change<'a> {
    pub(super) place: (TopicId, u32, SegmentId),
    pub(super) version: u64,
    pub(super) added: &'a [ReplicaRef],
    pub(super) given_up: &'a [ReplicaRef],
}

pub(super) fn set_copies(
    metadata: &mut Metadata,
    change: &Change<'_>,
    version: u64,
) -> Result<Answer, CommandRejection> {
    let (topic, partition, segment) = change.place;
    let found = find_segment(find_partition(metadata, topic, partition)?, segment)?;
    let SegmentState::Sealed(_) = &found.state else {
        return Err(CommandRejection::NotSealed { segment });
    };
    if found.version != change.version {
        return Err(CommandRejection::VersionMismatch { expected: change.version, current: found.version });
    }
    let mut copies = found.copies.clone();
    for replica in change.added {
        check_disk(metadata, *replica)?;
        if copies.iter().any(|copy| copy.replica.node == replica.node) {
            return Err(CommandRejection::HasCopy { segment, node: replica.node });
        }
        copies.push(SegmentCopy { replica: *replica, state: CopyState::Filling, since: version });
    }
    let is_gone = |replica: &ReplicaRef| metadata.gone_disks.contains(&replica.disk);
    // Nobody is left who could delete a copy on a disk that is gone.
    copies.retain(|copy| !(change.given_up.contains(&copy.replica) && is_gone(&copy.replica)));
    let leaves =
        |copy: &&mut SegmentCopy| change.given_up.contains(&copy.replica) && copy.state != CopyState::Leaving;
    let mut anything_leaves = false;
    for copy in copies.iter_mut().filter(leaves) {
        (copy.state, copy.since, anything_leaves) = (CopyState::Leaving, version, true);
    }
    let stays = |copy: &&SegmentCopy| found.counts(copy) && !is_gone(&copy.replica);
    let left = u32::try_from(copies.iter().filter(stays).count()).unwrap_or(u32::MAX);
    let needed = found.descriptor.write_quorum;
    if copies.is_empty() || (anything_leaves && left < needed) {
        return Err(CommandRejection::TooFewCopies { segment, left, needed });
    }
    let found = segment_mut(partition_mut(metadata, topic, partition)?, segment)?;
    found.copies = copies;
    found.version = version;
    Ok(Answer::Nothing)
}

/// Records what a holder found on its disk. A report that does not fit any more changes nothing: the holder looks again.
pub(super) fn report_copies(
    metadata: &mut Metadata,
    replica: ReplicaRef,
    reports: &[CopyReport],
    version: u64,
) -> Result<Answer, CommandRejection> {
    check_disk(metadata, replica)?;
    let gone = metadata.gone_disks.clone();
    for report in reports {
        let CopyReport { topic, partition, segment, since, found, contents } = report;
        let Ok(found_in) = find_partition(metadata, *topic, *partition) else { continue };
        let Some(listed) = found_in.all_segments().find(|one| one.descriptor.id == *segment) else {
            continue;
        };
        let SegmentState::Sealed(value) = &listed.state else { continue };
        let copy = listed.copies.iter().find(|copy| copy.replica == replica && copy.since == *since);
        // A holder that reports it lost has not heard of a copy that was verified meanwhile.
        if *found == Found::Lost && verified_copies(metadata, &listed.copies) > 0 {
            continue;
        }
        let Some(state) = copy.map(|copy| after(copy.state, *found, value.digest)) else { continue };
        // The holder of the last copy stays listed: somebody must say that the segment is lost. Nobody reads what was replaced.
        let is_read = find_segment(found_in, *segment).is_ok();
        let state = state.or((is_read && listed.copies.len() == 1).then_some(CopyState::Filling));
        let listed = any_segment_mut(partition_mut(metadata, *topic, *partition)?, *segment)?;
        if state == Some(CopyState::Verified) {
            listed.contents = listed.contents.or(*contents);
        }
        match state {
            Some(state) => {
                let mut copies = listed.copies.iter_mut();
                let copy = copies.find(|copy| copy.replica == replica).expect("it was found above");
                if copy.state == state {
                    continue;
                }
                (copy.state, copy.since) = (state, version);
            }
            None => listed.copies.retain(|copy| copy.replica != replica),
        }
        listed.version = version;
        let changed = partition_mut(metadata, *topic, *partition)?;
        changed.compaction.forget_copies_on(&gone);
    }
    Ok(Answer::Nothing)
}

/// A segment of which a node may have a copy, whether it is listed, a candidate or replaced.
fn any_segment_mut(partition: &mut Partition, segment: SegmentId) -> Result<&mut Segment, CommandRejection> {
    let Partition { segments, compaction, .. } = partition;
    let mut all =
        segments.iter_mut().rev().chain(compaction.candidate.as_deref_mut()).chain(&mut compaction.replaced);
    all.find(|one| one.descriptor.id == segment).ok_or(CommandRejection::UnknownSegment { segment })
}

/// The state of a copy after a report; `None` if it is not listed any more.
fn after(state: CopyState, found: Found, digest: Digest) -> Option<CopyState> {
    match (state, found) {
        (CopyState::Leaving, Found::Gone) => None,
        (CopyState::Leaving, _) => Some(CopyState::Leaving),
        (CopyState::Filling, Found::Lost) => Some(CopyState::Lost),
        (_, Found::Lost) => Some(state),
        (_, Found::Gone) => Some(CopyState::Filling),
        (_, Found::Damaged) => Some(CopyState::Damaged),
        (_, Found::Whole { digest: got }) if got == digest => Some(CopyState::Verified),
        (_, Found::Whole { .. }) => Some(CopyState::Damaged),
    }
}

/// The number of verified copies; a copy on a disk that is gone does not count.
pub(super) fn verified_copies(metadata: &Metadata, copies: &[SegmentCopy]) -> u32 {
    let is_there = |copy: &&SegmentCopy| {
        copy.state == CopyState::Verified && !metadata.gone_disks.contains(&copy.replica.disk)
    };
    u32::try_from(copies.iter().filter(is_there).count()).unwrap_or(u32::MAX)
}

/// Refuses a disk that is not, or no longer, a member's.
pub(super) fn check_disk(metadata: &Metadata, replica: ReplicaRef) -> Result<(), CommandRejection> {
    let ReplicaRef { node, disk } = replica;
    let found = metadata.nodes.get(&node).ok_or(CommandRejection::UnknownNode { node })?;
    if found.disk != disk || metadata.gone_disks.contains(&disk) {
        return Err(CommandRejection::DiskGone { disk });
    }
    Ok(())
}
