//! Commands about the segments of a partition.

use walrus_model::{Ballot, Descriptor, Epoch, Offset, Replication, SegmentId, Value};

use crate::answer::Answer;
use crate::levels::{LIMITS_LEVEL, ORGANISATIONS_LEVEL};
use crate::rejection::CommandRejection;
use crate::segment::{Segment, SegmentState};
use crate::state::{Metadata, NodeState, Partition};

/// A producer that has written nothing for this long may be forgotten at the next segment, where there are too many.
const PRODUCER_QUIET_MS: u64 = 15 * 60 * 1_000;
/// A producer that has written nothing for this long is forgotten at the next segment.
const PRODUCER_SILENCE_MS: u64 = 24 * 60 * 60 * 1_000;
/// Limit on the earlier successors of a segment that are remembered. A forgotten one that is decided is recovered instead
/// of opened, which is slower and as safe.
const EARLIER_SUCCESSORS_MAX: usize = 64;
/// The highest epoch of a segment or of an attempt: it is written into batches as Kafka's signed 32-bit leader epoch.
pub const EPOCH_MAX: Epoch = Epoch(i32::MAX as u32 - 1);

pub(super) fn begin_roll(
    partition: &mut Partition,
    segment: SegmentId,
    successor: &Descriptor,
    version: u64,
) -> Result<Answer, CommandRejection> {
    let next_epoch = partition.next_epoch;
    let found = segment_mut(partition, segment)?;
    if found.state != SegmentState::Open {
        return Err(CommandRejection::NotOpen { segment });
    }
    check_follows(&found.descriptor, successor, None)?;
    if successor.epoch < next_epoch {
        return Err(CommandRejection::StaleEpoch { got: successor.epoch, next: next_epoch });
    }
    allot(found, successor);
    found.version = version;
    partition.next_epoch = Epoch(successor.epoch.0 + 1);
    partition.version = version;
    Ok(Answer::Nothing)
}

/// Gives a recoverer the segment, at a fresh epoch: one above the segment's own and above that of every attempt that this
/// state knows of. A recoverer whose fence was refused by an attempt that this state has lost asks again with a higher one.
pub(super) fn begin_recovery(
    partition: &mut Partition,
    segment: SegmentId,
    ballot: Ballot,
    successor: &Descriptor,
    version: u64,
) -> Result<Answer, CommandRejection> {
    let next_epoch = partition.next_epoch;
    let found = segment_mut(partition, segment)?;
    match &found.state {
        SegmentState::Open => {}
        SegmentState::Sealing(current) if ballot > *current => {}
        SegmentState::Sealing(current) => {
            return Err(CommandRejection::StaleBallot { current: current.epoch });
        }
        SegmentState::Sealed(_) => return Err(CommandRejection::Sealed { segment }),
    }
    if ballot.epoch < next_epoch {
        return Err(CommandRejection::StaleEpoch { got: ballot.epoch, next: next_epoch });
    }
    check_follows(&found.descriptor, successor, None)?;
    if successor.epoch < ballot.epoch || ballot.is_zero() {
        let what = format!("its epoch must be at least the attempt's {:?}, which needs a uuid", ballot.epoch);
        return Err(invalid(successor, what));
    }
    allot(found, successor);
    found.state = SegmentState::Sealing(ballot);
    found.version = version;
    partition.next_epoch = Epoch(successor.epoch.0 + 1);
    partition.version = version;
    Ok(Answer::Nothing)
}

/// Allots a successor, and remembers those allotted before: whoever asked for one of them may have it decided.
fn allot(segment: &mut Segment, successor: &Descriptor) {
    segment.earlier_successors.extend(segment.successor.replace(successor.clone()));
    if segment.earlier_successors.len() > EARLIER_SUCCESSORS_MAX {
        segment.earlier_successors.remove(0);
    }
}

/// Seals a segment with its decided value and opens the successor. The segment's replicas decided the value, so it is
/// taken even where this state has forgotten the successor or raised its epoch since: refusing it would fork the
/// partition. A successor that was never allotted here is one that this state has lost. It may have been written, and
/// sealed, and followed by others that are lost too; so nobody is made its leader: it waits for a recoverer, which reads
/// the next link off its replicas.
pub(super) fn seal_and_open(
    partition: &mut Partition,
    segment: SegmentId,
    value: &Value,
    (opened_at_ms, version): (u64, u64),
    ageing: Option<Ageing>,
) -> Result<Answer, CommandRejection> {
    if value.successor.number <= partition.trimmed_below {
        return Ok(Answer::Nothing); // published before, and trimmed since
    }
    if partition.segments.iter().any(|listed| listed.stands_for(value)) {
        return Ok(Answer::Nothing); // published before, and compacted since
    }
    let next_epoch = partition.next_epoch;
    let found = segment_mut(partition, segment)?;
    if let SegmentState::Sealed(published) = &found.state {
        return if published == value {
            Ok(Answer::Nothing)
        } else {
            Err(CommandRejection::ValueConflict { segment })
        };
    }
    check_follows(&found.descriptor, &value.successor, Some(value.end))?;
    let allotted = found.successor.iter().chain(&found.earlier_successors);
    let is_known = allotted.into_iter().any(|known| known.is_same_segment(&value.successor));
    found.state = SegmentState::Sealed(value.clone());
    found.successor = None;
    found.earlier_successors = Vec::new();
    found.begun = Vec::new();
    found.version = version;
    let mut next = open_segment((*value.successor).clone(), opened_at_ms, version);
    if !is_known {
        next.state = SegmentState::Sealing(Ballot::zero(next.descriptor.epoch));
    }
    if let Some(ageing) = ageing {
        let last = partition.segments.last();
        let (silent, quiet) = last.map_or(<_>::default(), |last| (last.silent_below, last.quiet_below));
        next.silent_below = opened_until(partition, ageing.silent_since_ms).max(silent);
        next.quiet_below =
            ageing.quiet_since_ms.map_or(quiet, |since| opened_until(partition, since).max(quiet));
    }
    partition.segments.push(next);
    partition.next_epoch = next_epoch.max(Epoch(value.successor.epoch.0 + 1));
    partition.version = version;
    Ok(Answer::Nothing)
}

/// The times since when a producer must have written something to be remembered. The opening of a segment is the sealing of
/// the one before, so a producer whose newest batch lies in front of a segment was silent at least since that was opened.
#[derive(Clone, Copy)]
pub(super) struct Ageing {
    silent_since_ms: u64,
    /// `None` at a level at which some member does not know of quiet producers: all states must stay equal.
    quiet_since_ms: Option<u64>,
}

impl Ageing {
    /// The times at a level of commands and a time of the metadata; `None` at a level whose members forget nobody.
    pub(super) fn at(level: u32, now_ms: u64) -> Option<Self> {
        let quiet_since_ms = now_ms.saturating_sub(PRODUCER_QUIET_MS);
        match level {
            ..LIMITS_LEVEL => None,
            LIMITS_LEVEL..ORGANISATIONS_LEVEL => {
                Some(Self { silent_since_ms: quiet_since_ms, quiet_since_ms: None })
            }
            _ => Some(Self {
                silent_since_ms: now_ms.saturating_sub(PRODUCER_SILENCE_MS),
                quiet_since_ms: Some(quiet_since_ms),
            }),
        }
    }
}

/// First offset of the latest segment that was opened at a time or earlier; 0 if there is none.
fn opened_until(partition: &Partition, until_ms: u64) -> Offset {
    let mut segments = partition.segments.iter().rev();
    let old = segments.find(|segment| segment.opened_at_ms <= until_ms);
    old.and_then(|segment| segment.descriptor.base_offset).unwrap_or(Offset(0))
}

/// Drops the segments below a number. With `first` the trim was decided before this state lost it. The listed segments may
/// all end before that one; then it becomes the only one, and waits for a recoverer as every adopted segment does. Where a
/// compaction has put the segment behind the trim and some before it into one, that one stays, and is read from there on.
pub(super) fn trim(
    partition: &mut Partition,
    below_number: u64,
    first: Option<&Descriptor>,
    at_ms: u64,
    version: u64,
) -> Result<Answer, CommandRejection> {
    let is_known = first.is_some_and(|first| partition.knows_trim(below_number, first));
    if below_number <= partition.trimmed_below || is_known {
        return Ok(Answer::Nothing);
    }
    let mut limit = partition.segments.last().map_or(0, |last| last.descriptor.number);
    if let Some(first) = first.filter(|_| below_number > limit) {
        let expected = (partition.index, below_number);
        if (first.partition, first.number) != expected
            || first.base_offset.is_none()
            || first.replicas.is_empty()
        {
            return Err(invalid(
                first,
                format!("expected (partition, number) {expected:?}, above {limit}, with replicas"),
            ));
        }
        let mut adopted = open_segment(first.clone(), at_ms, version);
        adopted.state = SegmentState::Sealing(Ballot::zero(first.epoch));
        partition.segments = vec![adopted];
        partition.next_epoch = partition.next_epoch.max(Epoch(first.epoch.0 + 1));
        limit = first.number;
    }
    if below_number > limit {
        return Err(CommandRejection::NotTrimmable { below_number, limit });
    }
    partition.drop_below(below_number, version);
    if let Some(base) =
        first.and_then(|first| first.base_offset).filter(|_| partition.lies_within(below_number))
    {
        partition.start = partition.start.max(base); // what was trimmed was put into a segment that stays, and is not read again
    }
    Ok(Answer::Nothing)
}

pub(super) fn open_segment(descriptor: Descriptor, opened_at_ms: u64, version: u64) -> Segment {
    let mut segment = Segment {
        descriptor,
        state: SegmentState::Open,
        successor: None,
        earlier_successors: Vec::new(),
        copies: Vec::new(),
        contents: None,
        begun: Vec::new(),
        compacted: None,
        opened_at_ms,
        silent_below: Offset(0),
        quiet_below: Offset(0),
        version,
    };
    segment.list_copies();
    segment
}

/// Checks that a new segment is led by a registered process, which is not about to stop and whose node stores it too, and that
/// its replicas are disks of members.
pub(super) fn check_replicas(metadata: &Metadata, descriptor: &Descriptor) -> Result<(), CommandRejection> {
    let leader = descriptor.leader;
    let node = metadata.nodes.get(&leader.node).ok_or(CommandRejection::UnknownNode { node: leader.node })?;
    if node.process != leader.process {
        return Err(CommandRejection::StaleProcess {
            node: node.id,
            current: node.process,
            got: leader.process,
        });
    }
    if node.state == NodeState::Stopping {
        // It was chosen before it said so, and does not look any more for what it leads.
        return Err(CommandRejection::LeaderStops { node: node.id });
    }
    let Replication { factor, write_quorum } = descriptor.replication();
    if write_quorum == 0 || write_quorum > factor {
        return Err(invalid(
            descriptor,
            format!("{factor} replicas cannot give {write_quorum} acknowledgements"),
        ));
    }
    for (index, replica) in descriptor.replicas.iter().enumerate() {
        if descriptor.replicas[..index].iter().any(|earlier| earlier.node == replica.node) {
            return Err(invalid(descriptor, format!("node {:?} stores it twice", replica.node)));
        }
        if metadata.gone_disks.contains(&replica.disk) {
            return Err(CommandRejection::DiskGone { disk: replica.disk });
        }
        let node =
            metadata.nodes.get(&replica.node).ok_or(CommandRejection::UnknownNode { node: replica.node })?;
        if node.disk != replica.disk {
            return Err(invalid(
                descriptor,
                format!("node {:?} has disk {}, not {}", node.id, node.disk, replica.disk),
            ));
        }
    }
    if !descriptor.replicas.iter().any(|replica| replica.node == leader.node) {
        return Err(invalid(descriptor, "the leader is not among the replicas".to_owned()));
    }
    Ok(())
}

/// Checks that `next` can be the segment behind `segment`, with the base `base_offset`.
///
/// Errors: [`CommandRejection::InvalidDescriptor`] says what is wrong with `next`.
pub fn check_follows(
    segment: &Descriptor,
    next: &Descriptor,
    base_offset: Option<Offset>,
) -> Result<(), CommandRejection> {
    let expected = (segment.topic, segment.partition, segment.number + 1, base_offset);
    if (next.topic, next.partition, next.number, next.base_offset) != expected {
        return Err(invalid(next, format!("expected (topic, partition, number, base) {expected:?}")));
    }
    if next.epoch <= segment.epoch || next.epoch > EPOCH_MAX {
        return Err(invalid(
            next,
            format!("its epoch must be above {:?} and at most {EPOCH_MAX:?}", segment.epoch),
        ));
    }
    if next.id == segment.id {
        return Err(invalid(next, "it has its predecessor's uuid".to_owned()));
    }
    if base_offset < segment.base_offset && base_offset.is_some() {
        return Err(invalid(next, format!("its base is below its predecessor's {:?}", segment.base_offset)));
    }
    Ok(())
}

pub(super) fn invalid(descriptor: &Descriptor, what: String) -> CommandRejection {
    CommandRejection::InvalidDescriptor { segment: descriptor.id, what }
}

pub(super) fn find_segment(partition: &Partition, segment: SegmentId) -> Result<&Segment, CommandRejection> {
    let mut found = partition.segments.iter().rev();
    found
        .find(|candidate| candidate.descriptor.id == segment)
        .ok_or(CommandRejection::UnknownSegment { segment })
}

pub(super) fn segment_mut(
    partition: &mut Partition,
    segment: SegmentId,
) -> Result<&mut Segment, CommandRejection> {
    let mut found = partition.segments.iter_mut().rev();
    found
        .find(|candidate| candidate.descriptor.id == segment)
        .ok_or(CommandRejection::UnknownSegment { segment })
}
