//! What is known of a partition's compaction: the policy, the place of a segment that took that of others, and since when
//! tombstones are all that is left of their keys.

use serde::{Deserialize, Serialize};
use walrus_model::{Descriptor, Digest, Epoch, LeaderRef, Offset, ReplicaRef, SegmentId, Value};

use crate::retention::Contents;

/// Limit on the marks of kept tombstones of a partition; beyond it those that lie closest in time are taken together.
const TOMBSTONE_MARKS_MAX: usize = 16;

/// The policy by which a topic keeps the last record of each key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompactionPolicy {
    /// How long a tombstone stays behind the first pass that kept it, in milliseconds.
    pub tombstone_delay_ms: u64,
    /// Age in milliseconds below which no record goes.
    pub lag_min_ms: u64,
    /// Age in milliseconds at which a segment is looked at, however little of the partition is new.
    pub lag_max_ms: u64,
    /// Share of a partition's bytes that must be new for a pass.
    pub dirty_share_min: f64,
}

/// The place that a segment has which took that of others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compacted {
    /// Number of the first segment whose place it took; the last one had its own number.
    pub first_number: u64,
    /// Greater than that of each segment whose place it took; theirs is 0 who never took another's.
    pub generation: u64,
    /// The epochs of its batches, in order.
    pub epochs: Vec<EpochStart>,
}

/// Where the batches of an epoch begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: Epoch,
    /// First offset of the segment that was written under it.
    pub first_offset: Offset,
}

/// A segment that is to take the place of neighbouring sealed ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// Its descriptor. It has no replicas, for nobody ever votes about it.
    pub descriptor: Descriptor,
    /// Its end, which is that of the last segment, and its own digest.
    pub value: Value,
    /// Whose place it takes.
    pub compacted: Compacted,
}

/// A segment that a compactor has written, and from what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionOffer {
    /// Identity of the new segment.
    pub segment: SegmentId,
    /// The process that wrote it.
    pub compactor: LeaderRef,
    /// Number of the first segment that it was made from, or the first whose place that one took.
    pub first_number: u64,
    /// Number of the last one.
    pub last_number: u64,
    /// Digest of its batches.
    pub digest: Digest,
    /// What they hold.
    pub contents: Contents,
    /// Disks that are to have a copy, the compactor's among them.
    pub copies: Vec<ReplicaRef>,
}

/// How far a pass came, which looked at everything from the partition's beginning on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassEnd {
    /// The segments that begin below `cleaned_to` when it ends. A state that lists others there has forgotten what the pass did.
    pub segments: Vec<SegmentId>,
    /// Everything below was looked at, and all that was written again has its place.
    pub cleaned_to: Offset,
    /// Tombstones below are gone.
    pub tombstones_gone_below: Offset,
    /// The tombstones below are all that is left of their keys; `None` where no tombstone is left.
    pub tombstones_kept_below: Option<Offset>,
}

/// The tombstones that a pass has kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptTombstones {
    /// They lie below this offset, behind those of the mark before.
    pub below: Offset,
    /// Time of the metadata when the pass ended, milliseconds since the epoch.
    pub since_ms: u64,
}

/// Since when tombstones are all that is left of their keys, in order of offset and time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TombstoneMarks(Vec<KeptTombstones>);

impl TombstoneMarks {
    /// Notes the end of a pass that kept tombstones.
    pub(crate) fn note(&mut self, below: Offset, since_ms: u64) {
        let marks = &mut self.0;
        if marks.last().is_some_and(|last| last.below >= below) {
            return;
        }
        marks.push(KeptTombstones { below, since_ms });
        if marks.len() > TOMBSTONE_MARKS_MAX {
            // The earlier of two marks goes: its tombstones stay a little longer, and none goes too early.
            let gap = |at: &usize| marks[at + 1].since_ms.saturating_sub(marks[*at].since_ms);
            let closest = (0..marks.len() - 1).min_by_key(gap).unwrap_or(0);
            marks.remove(closest);
        }
    }

    /// Forgets the tombstones below an offset, which are gone.
    pub(crate) fn forget(&mut self, below: Offset) {
        self.0.retain(|mark| mark.below > below);
    }

    /// The offset below which tombstones have stayed for long enough.
    pub(crate) fn stayed_for(&self, delay_ms: u64, now_ms: u64) -> Offset {
        let is_old = |mark: &&KeptTombstones| mark.since_ms.saturating_add(delay_ms) <= now_ms;
        self.0.iter().rev().find(is_old).map_or(Offset(0), |mark| mark.below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_tombstones_stay_few_and_none_is_moved_to_an_earlier_time() {
        let mut marks = TombstoneMarks::default();
        for pass in 1..=1_000_u64 {
            marks.note(Offset(pass * 10), pass * 7);
        }
        let marks = marks.0;
        assert!(marks.len() <= TOMBSTONE_MARKS_MAX);
        let ascend =
            |pair: &[KeptTombstones]| pair[0].below < pair[1].below && pair[0].since_ms < pair[1].since_ms;
        assert!(marks.windows(2).all(ascend));
        assert!(
            marks.iter().all(|mark| mark.since_ms * 10 >= mark.below.0 * 7),
            "none earlier than its pass"
        );
        assert_eq!(marks.last().map(|mark| mark.below), Some(Offset(10_000)));
    }

    #[test]
    fn tombstones_go_once_the_pass_that_kept_them_first_is_long_ago() {
        let mut marks = TombstoneMarks::default();
        marks.note(Offset(10), 1_000);
        marks.note(Offset(20), 1_500);
        marks.note(Offset(20), 9_000); // nothing new: the first pass counts
        let below = |now_ms| marks.stayed_for(1_000, now_ms).0;
        assert_eq!([1_999, 2_000, 2_499, 2_500].map(below), [0, 10, 10, 20]);
    }
}
