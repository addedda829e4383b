//! What a partition has to let go: which of its sealed segments may be dropped, and why the next one stays. Pure; the time is the
//! one that a majority of the nodes' clocks have reached ([`Metadata::reached_ms`]).

use std::sync::Arc;

use walrus_model::Offset;

use crate::command::PartitionPlace;
use crate::segment::{Segment, SegmentState};
use crate::state::{Metadata, Partition, Topic};

/// Why a segment is still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is open, or its end is being decided: it goes behind its end.
    Open,
    /// The topic keeps its records for ever.
    ForEver,
    /// Its newest record is too young; it is old enough at this time, milliseconds since the epoch.
    Age {
        /// That time.
        until_ms: u64,
    },
    /// The segments behind it have fewer bytes than the partition keeps.
    Bytes,
    /// It is not in the archive.
    Archive,
    /// A reader has not read all of it whom the topic's retention waits for, or who is to use it up.
    Reader {
        /// Its name.
        name: String,
    },
    /// No holder of a copy has reported what it holds.
    Unreported,
    /// It is the last sealed segment, and the one behind it has not begun on enough disks: who has written what, which tells a
    /// repeated append from a new one, would be lost with it.
    Successor,
}

/// What may go of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Segments with lower numbers may go.
    pub below_number: u64,
    /// Why the segment of that number stays.
    pub kept: Kept,
}

/// Tells what may go now of a partition by its topic's policy. Segments go from the oldest on, so one that stays keeps all behind it.
#[must_use]
pub fn verdict(metadata: &Metadata, topic: &Topic, partition: &Partition) -> Verdict {
    let now_ms = metadata.reached_ms();
    let mut bytes_left: u64 = partition.segments.iter().filter_map(bytes_of).fold(0, u64::saturating_add);
    for (place, segment) in partition.segments.iter().enumerate() {
        let number = segment.first_number();
        let stays = |kept| Verdict { below_number: number, kept };
        let (SegmentState::Sealed(value), Some(next)) = (&segment.state, partition.segments.get(place + 1))
        else {
            return stays(Kept::Open);
        };
        if value.end > partition.start
            && let Some(kept) =
                reason_to_keep(topic, (segment, value.end), (bytes_left, next.opened_at_ms), now_ms)
        {
            return stays(kept);
        }
        let is_last = place + 2 == partition.segments.len();
        if is_last && !metadata.is_on_quorum(next) {
            return stays(Kept::Successor);
        }
        bytes_left = bytes_left.saturating_sub(bytes_of(segment).unwrap_or(0));
    }
    Verdict { below_number: partition.trimmed_below, kept: Kept::Open } // a partition always has an open segment
}

fn bytes_of(segment: &Segment) -> Option<u64> {
    segment.contents.map(|contents| contents.bytes)
}

/// Why the policy keeps a sealed segment with that end; `None` if it lets it go. `bytes_left` are those of this segment and all
/// behind it, `ended_ms` is when it was sealed.
fn reason_to_keep(
    topic: &Topic,
    (segment, end): (&Segment, Offset),
    (bytes_left, ended_ms): (u64, u64),
    now_ms: u64,
) -> Option<Kept> {
    let retention = topic.config.retention();
    if retention.is_for_ever() {
        return Some(Kept::ForEver);
    }
    if retention.archived {
        return Some(Kept::Archive);
    }
    let partition = segment.descriptor.partition;
    let lacks = |name: &&str| topic.read.of(name, partition) < end;
    let kept_for = |name: &str| Kept::Reader { name: name.to_owned() };
    if let Some(waiting) = topic.config.pinned_by().find(lacks) {
        return Some(kept_for(waiting));
    }
    let unread = topic.config.consumed_by().find(lacks);
    if retention.consumed && unread.is_none() {
        return None;
    }
    let goes_otherwise = retention.age_ms.is_some() || retention.bytes.is_some();
    if let Some(unread) = unread.filter(|_| !goes_otherwise) {
        return Some(kept_for(unread));
    }
    let Some(contents) = segment.contents else { return Some(Kept::Unreported) };
    let expires_at = retention.expires_at(contents.newest_ms, ended_ms);
    let is_surplus = retention.bytes.is_some_and(|kept| bytes_left.saturating_sub(contents.bytes) >= kept);
    match expires_at {
        _ if is_surplus => None,
        Some(at) if at <= now_ms => None,
        Some(until_ms) => Some(Kept::Age { until_ms }),
        None => Some(Kept::Bytes),
    }
}

/// The partitions that have something to let go, `limit` at most.
#[must_use]
pub fn partitions_past_retention(metadata: &Metadata, limit: usize) -> Vec<PartitionPlace> {
    if !metadata.knows_retention() {
        return Vec::new();
    }
    let of_topic = |topic: &Topic| {
        let (id, retention) = (topic.id, topic.config.retention());
        let lets_go = |partition: &&Arc<Partition>| {
            let may = !retention.is_for_ever() || partition.has_deleted();
            may && verdict(metadata, topic, partition).below_number > partition.trimmed_below
        };
        let past: Vec<_> = topic.partitions.iter().filter(lets_go).map(|found| found.index).collect();
        past.into_iter().map(move |partition| PartitionPlace { topic: id, partition })
    };
    metadata.topics.values().flat_map(|topic| of_topic(topic)).take(limit).collect()
}
