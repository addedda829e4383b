//! One pass over a partition: it notes the last record of each key in the part that is new, as far as there is memory for, and then
//! writes the segments from the first one on without what those records stand for.

use std::sync::Arc;

use walrus_log::{KeyMap, Noted, SieveRules};
use walrus_metadata::{BATCH_BYTES_MAX, PartitionPlace, PassEnd, Request, Segment, SegmentState, runs};
use walrus_model::{Offset, SegmentId};

use super::rewriting::Rewriting;
use super::source::{Next, Source};
use super::summary::{PassSummary, Stay};
use crate::copies::Copies;
use crate::node::error::{Error, Result};
use crate::node::obstacle::Obstacle;
use crate::node::patience;

/// Limit on the memory in which the keys of a pass are noted. What does not fit is left to the next pass.
const KEYS_BYTES_MAX: usize = 24 << 20;

/// Memory of one key, with the room that the map needs beside it.
const KEY_BYTES: u64 = 20;

/// A pass over a partition, as the metadata say that it is due.
pub(super) struct Pass {
    pub(super) place: PartitionPlace,
    /// The segments that may be written again, from the first one on.
    pub(super) segments: Vec<Segment>,
    /// First offset that can be read.
    pub(super) start: Offset,
    /// Earlier passes have looked at everything below.
    pub(super) cleaned_to: Offset,
    /// Tombstones below go.
    pub(super) tombstones_below: Offset,
    /// Limit on the bytes of the segments that are written as one.
    pub(super) segment_bytes_max: u64,
}

/// How far the keys of a partition's new part were noted.
struct NotedPart {
    cleaned_to: Offset,
    /// The first batch whose keys were left out: the map could not read it, or had no room for it alone.
    first_left_out: Option<Offset>,
}

impl Pass {
    /// Makes the pass, and tells the metadata how far it came. Blocks the calling thread; ends early when the node stops. What was
    /// replaced before an error stays replaced.
    pub(super) fn run(&self, copies: &Arc<Copies>) -> Result<PassSummary> {
        let source = Source::new(copies);
        let no_memory =
            |problem: std::io::Error| Error::Internal { message: format!("keys of a pass: {problem}") };
        let mut keys = KeyMap::with_memory(self.keys_bytes()).map_err(no_memory)?;
        let NotedPart { cleaned_to, first_left_out } = self.note_keys(&source, &mut keys)?;
        let is_covered =
            |segment: &&Segment| segment.descriptor.base_offset.is_some_and(|base| base < cleaned_to);
        let covered = self.segments.iter().take_while(is_covered).count();
        let segments = &self.segments[..covered];
        let runs = runs(segments, self.segment_bytes_max);
        let joined = runs.iter().map(|run| run.len() - 1).sum::<usize>();
        let mut summary = PassSummary {
            cleaned_to,
            segments_before: covered,
            segments_after: covered - joined,
            stays: Stay { first_unread: first_left_out, ..Stay::default() },
        };
        // Those that are in no run stay, and each run leaves one.
        let mut left: Vec<SegmentId> = segments.iter().map(|segment| segment.descriptor.id).collect();
        let mut looked_at = 0;
        for run in runs {
            if run.start > looked_at {
                pass_over(&segments[looked_at], &mut summary.stays);
            }
            looked_at = run.end;
            let rules = SieveRules {
                start: self.start,
                tombstones_below: before(summary.stays.first_unread, self.tombstones_below),
                batch_bytes_max: usize::try_from(BATCH_BYTES_MAX).unwrap_or(usize::MAX),
            };
            let rewriting =
                Rewriting { source: &source, place: self.place, run: &segments[run], keys: &keys, rules };
            left.push(rewriting.run(&mut summary.stays)?);
        }
        if looked_at < covered {
            pass_over(&segments[looked_at], &mut summary.stays);
        }
        self.finish(copies, &summary, left)?;
        Ok(summary)
    }

    /// Memory for the keys of the new part: there are no more of them than records.
    fn keys_bytes(&self) -> usize {
        let new = end_of(&self.segments).0.saturating_sub(self.cleaned_to.0);
        usize::try_from(new.saturating_mul(KEY_BYTES)).unwrap_or(usize::MAX).clamp(1 << 10, KEYS_BYTES_MAX)
    }

    /// Notes the keys of the new part, up to the end of the segments or until the map is full.
    fn note_keys(&self, source: &Source, keys: &mut KeyMap) -> Result<NotedPart> {
        let from = self.cleaned_to.max(self.start);
        let (mut is_cleared, mut first_left_out) = (false, None);
        let is_new = |segment: &&Segment| end_of(std::slice::from_ref(*segment)) > from;
        for segment in self.segments.iter().filter(is_new) {
            let mut full_at = None;
            let begin = segment.descriptor.base_offset.unwrap_or(from).max(from);
            source.each_batch(segment, begin, |batch| {
                let base = Offset(batch.base_offset());
                if !std::mem::replace(&mut is_cleared, true) {
                    keys.clear(base);
                }
                Ok(match keys.note(batch) {
                    Noted::Taken => Next::Batch,
                    Noted::Full | Noted::OutOfReach if !keys.is_empty() => {
                        full_at = Some(base);
                        Next::Nothing
                    }
                    // It makes no other record old, or has more records than there is memory for: older ones of its keys stay.
                    Noted::Unreadable | Noted::Full | Noted::OutOfReach => {
                        first_left_out.get_or_insert(base);
                        Next::Batch
                    }
                })
            })?;
            if let Some(full_at) = full_at {
                return Ok(NotedPart { cleaned_to: full_at, first_left_out });
            }
        }
        Ok(NotedPart { cleaned_to: end_of(&self.segments), first_left_out })
    }

    /// Tells the metadata how far the pass came, and which segments are there now.
    fn finish(&self, copies: &Arc<Copies>, summary: &PassSummary, segments: Vec<SegmentId>) -> Result<()> {
        let proven = before(summary.stays.first_unread, summary.cleaned_to);
        let has_some = summary.stays.tombstones_kept > 0;
        // Those behind a batch that cannot be read stay as long as that does, and no pass is due for them.
        let gone_below = if has_some { self.tombstones_below } else { self.tombstones_below.max(proven) };
        let end = PassEnd {
            segments,
            cleaned_to: summary.cleaned_to,
            tombstones_gone_below: gone_below,
            tombstones_kept_below: has_some.then_some(proven),
        };
        let request = Request::FinishCompaction { place: self.place, end };
        let asked = copies.cluster().control().ask(&request, patience::METADATA_ANSWER);
        let answered = copies.tasks().runtime().block_on(asked);
        answered.map(drop).map_err(|error| Obstacle::RequestFailed { error: Box::new(error) }.into())
    }
}

/// A segment that is not written again may hold an older value of any key.
fn pass_over(segment: &Segment, stays: &mut Stay) {
    stays.first_unread = stays.first_unread.or(segment.descriptor.base_offset);
}

/// An end, or the first batch that could not be read where that lies in front of it.
fn before(first_unread: Option<Offset>, end: Offset) -> Offset {
    first_unread.map_or(end, |unread| unread.min(end))
}

/// The end of sealed segments.
fn end_of(segments: &[Segment]) -> Offset {
    match segments.last().map(|last| &last.state) {
        Some(SegmentState::Sealed(value)) => value.end,
        _ => Offset(0),
    }
}
