//! Commands of compaction: a candidate is offered, its copies are verified by their holders, and with enough of them it takes the
//! place of the segments that it was made from. Whoever reads meets the ones or the other, never a part of both.

use walrus_model::{ReplicaRef, SegmentId, TopicId};

use super::copies::{check_disk, verified_copies};
use super::partitions::{find_partition, partition_mut};
use super::segments::open_segment;
use crate::answer::Answer;
use crate::command::{CopyReport, PartitionPlace};
use crate::compaction::{Compacted, CompactionOffer, PassEnd, Replacement};
use crate::passes::replacement;
use crate::rejection::CommandRejection;
use crate::retention::Contents;
use crate::segment::{Segment, SegmentState};
use crate::state::{Metadata, Partition};

pub(super) fn offer_compaction(
    metadata: &mut Metadata,
    place: PartitionPlace,
    offer: &CompactionOffer,
    version: u64,
) -> Result<Answer, CommandRejection> {
    let found = find_partition(metadata, place.topic, place.partition)?;
    let (segment, (first, last)) = (offer.segment, (offer.first_number, offer.last_number));
    if let Some(candidate) = &found.compaction.candidate {
        if candidate.descriptor.id == segment {
            return Ok(Answer::Nothing);
        }
        return Err(CommandRejection::CompactionUnderWay { segment: candidate.descriptor.id });
    }
    let refused = |problem: &str| {
        let problem = format!("segments {first} to {last}: {problem}");
        CommandRejection::NotCompactable { segment, problem }
    };
    if found.all_segments().any(|listed| listed.descriptor.id == segment) {
        return Err(refused("there is a segment with the new one's uuid"));
    }
    let Some(run) = found.run(first, last).map(|run| &found.segments[run]) else {
        return Err(refused("they are not listed one behind the other"));
    };
    let Some(new) = replacement(run, segment, offer.compactor, offer.digest) else {
        return Err(refused("one is not sealed or has lost records, or they have too many epochs"));
    };
    let candidate = listed(run, new, Some(offer.contents), &offer.copies, version);
    check_copies(metadata, segment, &offer.copies, candidate.descriptor.write_quorum)?;
    let found = partition_mut(metadata, place.topic, place.partition)?;
    found.compaction.candidate = Some(Box::new(candidate));
    found.version = version;
    Ok(Answer::Nothing)
}

/// Gives a candidate up; changes nothing where there is none of that identity.
pub(super) fn abandon_compaction(
    metadata: &mut Metadata,
    place: PartitionPlace,
    segment: SegmentId,
    version: u64,
) -> Result<Answer, CommandRejection> {
    let candidate = &find_partition(metadata, place.topic, place.partition)?.compaction.candidate;
    if candidate.as_ref().is_some_and(|candidate| candidate.descriptor.id == segment) {
        let found = partition_mut(metadata, place.topic, place.partition)?;
        found.compaction.abandon(version);
        found.version = version;
    }
    Ok(Answer::Nothing)
}

/// Takes over a replacement that was decided before and that this state has forgotten. The segments that it lists instead must
/// cover the same offsets, but for those that were trimmed since, and the last one be of an earlier generation.
pub(super) fn repeat_compaction(
    metadata: &mut Metadata,
    place: PartitionPlace,
    forgotten: &Replacement,
    copies: &[ReplicaRef],
    version: u64,
) -> Result<Answer, CommandRejection> {
    let found = find_partition(metadata, place.topic, place.partition)?;
    let Replacement { descriptor, value, compacted } = forgotten;
    let (id, first, last) = (descriptor.id, compacted.first_number, descriptor.number);
    if found.segments.iter().any(|listed| listed.descriptor.id == id) || last < found.trimmed_below {
        return Ok(Answer::Nothing);
    }
    let refused = |problem: &str| {
        let problem = format!("segments {first} to {last}: {problem}");
        CommandRejection::NotCompactable { segment: id, problem }
    };
    let whole = found.run(first, last);
    let is_cut = whole.is_none() && first < found.trimmed_below;
    let Some(run) = whole.or_else(|| found.run(first.max(found.trimmed_below), last)) else {
        return Err(refused("they are not listed one behind the other"));
    };
    let run = &found.segments[run];
    let ends_there = matches!(&run[run.len() - 1].state, SegmentState::Sealed(ended)
        if ended.end == value.end && ended.successor == value.successor);
    if (descriptor.topic, descriptor.partition) != (place.topic, place.partition)
        || (run[0].descriptor.base_offset != descriptor.base_offset && !is_cut)
        || !ends_there
    {
        return Err(refused("they hold other offsets"));
    }
    // Whoever remembers it looks at the one that has its number, too, before it asks.
    if run[run.len() - 1].generation() >= compacted.generation {
        return Err(refused("they were compacted as often"));
    }
    let generations = run.iter().map(|listed| 1 + listed.generation());
    let generation = generations.fold(compacted.generation, u64::max);
    let compacted = Compacted { generation, ..compacted.clone() };
    let there: Vec<ReplicaRef> =
        copies.iter().filter(|copy| check_disk(metadata, **copy).is_ok()).copied().collect();
    check_copies(metadata, id, &there, 1)?;
    let candidate = listed(run, Replacement { compacted, ..forgotten.clone() }, None, &there, version);
    let found = partition_mut(metadata, place.topic, place.partition)?;
    found.compaction.abandon(version);
    // A state that knows it as a candidate only, or gave it up as one, has forgotten that it took their place.
    found.compaction.replaced.retain(|listed| listed.descriptor.id != id);
    found.compaction.candidate = Some(Box::new(candidate));
    if is_cut {
        found.start = found.log_start(); // what was trimmed is in it, and is not read again
    }
    replace(found, version);
    Ok(Answer::Nothing)
}

pub(super) fn finish_compaction(
    metadata: &mut Metadata,
    place: PartitionPlace,
    end: &PassEnd,
    (at_ms, version): (u64, u64),
) -> Result<Answer, CommandRejection> {
    // Where nodes are away the clocks of a majority stand still, and a tombstone that is noted by them alone would go too early as
    // soon as they are back. A proposer whose clock is ahead only keeps it for longer.
    let now_ms = metadata.reached_ms().max(at_ms);
    let found = find_partition(metadata, place.topic, place.partition)?;
    let is_below =
        |listed: &&Segment| listed.descriptor.base_offset.is_some_and(|base| base < end.cleaned_to);
    let mut below = found.segments.iter().filter(is_below).map(|listed| listed.descriptor.id);
    if let Some(segment) = below.find(|listed| !end.segments.contains(listed)) {
        let problem = "a pass has ended that knew others there".to_owned();
        return Err(CommandRejection::NotCompactable { segment, problem });
    }
    let found = partition_mut(metadata, place.topic, place.partition)?;
    let compaction = &mut found.compaction;
    compaction.cleaned_to = compaction.cleaned_to.max(end.cleaned_to);
    compaction.kept_tombstones.forget(end.tombstones_gone_below);
    if let Some(below) = end.tombstones_kept_below {
        compaction.kept_tombstones.note(below, now_ms);
    }
    found.version = version;
    Ok(Answer::Nothing)
}

/// Puts the candidates of partitions about whose copies somebody has reported in the place of the segments that they were made
/// from, where enough of their copies are verified.
pub(super) fn replace_verified(
    metadata: &mut Metadata,
    reports: &[CopyReport],
    version: u64,
) -> Result<(), CommandRejection> {
    for report in reports {
        replace_if_verified(metadata, (report.topic, report.partition), version)?;
    }
    Ok(())
}

fn replace_if_verified(
    metadata: &mut Metadata,
    (topic, partition): (TopicId, u32),
    version: u64,
) -> Result<(), CommandRejection> {
    let Ok(found) = find_partition(metadata, topic, partition) else { return Ok(()) };
    let is_verified = |candidate: &Segment| {
        verified_copies(metadata, &candidate.copies) >= candidate.descriptor.write_quorum
    };
    if found.compaction.candidate.as_deref().is_some_and(is_verified) {
        replace(partition_mut(metadata, topic, partition)?, version);
    }
    Ok(())
}

/// Puts the candidate in the place of the segments from its first number to its last. A candidate whose segments are not listed so
/// any more is given up.
fn replace(partition: &mut Partition, version: u64) {
    let Some(candidate) = partition.compaction.candidate.take() else { return };
    partition.version = version;
    let (first, last) = (candidate.first_number(), candidate.descriptor.number);
    let run = partition.run(first, last).or_else(|| partition.run(first.max(partition.trimmed_below), last));
    match run {
        Some(run) => {
            let new = Segment { version, ..*candidate };
            let old: Vec<Segment> = partition.segments.splice(run, [new]).collect();
            let leaving = old.into_iter().map(|segment| segment.left_by_all(version));
            partition.compaction.replaced.extend(leaving);
        }
        None => {
            partition.compaction.candidate = Some(candidate);
            partition.compaction.abandon(version);
        }
    }
}

/// The replacement as it is listed: sealed from the beginning, its copies to be made or compared.
fn listed(
    run: &[Segment],
    new: Replacement,
    contents: Option<Contents>,
    copies: &[ReplicaRef],
    version: u64,
) -> Segment {
    let (first, last) = (&run[0], &run[run.len() - 1]);
    let mut segment = open_segment(new.descriptor, first.opened_at_ms, version);
    segment.state = SegmentState::Sealed(new.value);
    segment.compacted = Some(new.compacted);
    segment.contents = contents;
    (segment.silent_below, segment.quiet_below) = (last.silent_below, last.quiet_below);
    segment.list_copies_on(copies);
    segment
}

/// Checks that copies are to be made on disks of members, one on each node, and enough of them.
fn check_copies(
    metadata: &Metadata,
    segment: SegmentId,
    copies: &[ReplicaRef],
    needed: u32,
) -> Result<(), CommandRejection> {
    for (at, replica) in copies.iter().enumerate() {
        check_disk(metadata, *replica)?;
        if copies[..at].iter().any(|earlier| earlier.node == replica.node) {
            return Err(CommandRejection::HasCopy { segment, node: replica.node });
        }
    }
    let left = u32::try_from(copies.len()).unwrap_or(u32::MAX);
    if left < needed {
        return Err(CommandRejection::TooFewCopies { segment, left, needed });
    }
    Ok(())
}
