//! Passes of compactions: a node notes the last record of each key, writes sealed segments again without what those records stand
//! for, offers each of them, waits until it has its place, and tells the metadata how far it came. Each step is an event.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use walrus_metadata::{
    Command, CompactionOffer, PartitionPlace, PassEnd, Present, Segment, compactor, disks_for_replacement,
    due_pass, replacement, runs,
};

use super::*;
use crate::record::Record;

/// Limit on the keys that a pass can note.
const KEYS_MAX: usize = 4;
/// Limit on the bytes of segments that are written again as one.
const BYTES_MAX: u64 = 40;
const PLACE: PartitionPlace = PartitionPlace { topic: TOPIC, partition: 0 };

/// A pass that a process makes.
#[derive(Clone, Debug)]
pub struct Pass {
    /// The metadata by which it began.
    known: Arc<Committed>,
    /// The last record of each key of the new part.
    keys: BTreeMap<u8, Offset>,
    cleaned_to: Offset,
    tombstones_below: Offset,
    /// Segments that it covers.
    covered: usize,
    runs: Vec<Range<usize>>,
    /// The run that is next.
    at: usize,
    /// The candidate that it waits for, and whether it has seen it listed as such.
    waits_for: Option<(SegmentId, bool)>,
    first_unread: Option<Offset>,
    has_tombstones: bool,
    /// The segments that it began with, and those that have taken their places.
    left: Vec<SegmentId>,
}

impl Pass {
    fn parts(&self) -> impl Hash + PartialEq {
        let of_keys =
            (self.known.print, self.keys.clone(), self.cleaned_to, self.tombstones_below, self.covered);
        (of_keys, self.at, self.waits_for, self.first_unread, self.has_tombstones)
    }
}

impl PartialEq for Pass {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Hash for Pass {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl World {
    /// Begins a pass on a node, if one is due there by the metadata that it knows.
    pub fn begin_pass(&mut self, id: NodeId, known: &Arc<Committed>) -> Checked {
        if let Some(pass) = self.pass_due(id, known) {
            self.passes.insert(id, Arc::new(pass));
        }
        Ok(())
    }

    fn pass_due(&self, id: NodeId, known: &Arc<Committed>) -> Option<Pass> {
        let topic = known.state.topics.get(&TOPIC)?;
        let partition = &topic.partitions[0];
        if self.passes.contains_key(&id) || partition.compaction.candidate.is_some() {
            return None;
        }
        let due = due_pass(&known.state, partition, &topic.config.compaction()?)?;
        let segments = &partition.segments[..due.segments];
        if compactor(&known.state, &self.present(), topic, segments) != Some(id) {
            return None;
        }
        let from = partition.compaction.cleaned_to.max(partition.log_start());
        let (keys, cleaned_to, first_unread) = self.note_keys(id, segments, from)?;
        let is_covered =
            |segment: &&Segment| segment.descriptor.base_offset.is_some_and(|base| base < cleaned_to);
        let covered = segments.iter().take_while(is_covered).count();
        let tombstones_below =
            if self.makes(Mistake::TombstoneInItsFirstPass) { cleaned_to } else { due.tombstones_below };
        Some(Pass {
            known: Arc::clone(known),
            keys,
            cleaned_to,
            tombstones_below,
            covered,
            runs: runs(&segments[..covered], BYTES_MAX),
            at: 0,
            waits_for: None,
            left: partition.segments.iter().map(|segment| segment.descriptor.id).collect(),
            first_unread,
            has_tombstones: false,
        })
    }

    fn present(&self) -> Present {
        Present::only(self.nodes.iter().filter(|node| node.up).map(|node| node.id))
    }

    /// Notes the keys from an offset on, batch by batch, as many as there is room for; says up to where, and the first batch that was
    /// left out. `None` where a segment cannot be read.
    fn note_keys(
        &self,
        id: NodeId,
        segments: &[Segment],
        from: Offset,
    ) -> Option<(BTreeMap<u8, Offset>, Offset, Option<Offset>)> {
        let mut keys: BTreeMap<u8, Offset> = BTreeMap::new();
        let mut left_out = None;
        let is_new = |segment: &&Segment| end_of(segment) > from;
        for segment in segments.iter().filter(is_new) {
            let there = self.readable(id, segment)?;
            for batch in there.chunk_by(|left, right| left.batch == right.batch) {
                let base = Offset(batch[0].offset.0 - u64::from(batch[0].place));
                let mut with = keys.clone();
                with.extend(batch.iter().map(|record| (record.key(), record.offset)));
                match with.len() <= KEYS_MAX {
                    _ if batch.iter().all(|record| record.offset < from) => {}
                    true => keys = with,
                    false if !keys.is_empty() => return Some((keys, base, left_out)),
                    false => drop(left_out.get_or_insert(base)),
                }
            }
        }
        if self.makes(Mistake::KeysOfTheOpenSegment)
            && let Some(open) = self.last_segment()
        {
            keys.extend(self.written(open).into_iter().map(|record| (record.key(), record.offset)));
        }
        Some((keys, segments.last().map_or(from, end_of), left_out))
    }

    /// What a sealed segment holds, from a copy here or from another node that answers.
    fn readable(&self, id: NodeId, segment: &Segment) -> Option<Vec<Record>> {
        let uuid = segment.descriptor.id;
        let here = std::iter::once(self.node(id));
        let others = self.nodes.iter().map(|node| &**node).filter(|node| node.up);
        let source = here.chain(others).find(|node| self.has_whole(node, uuid))?;
        Some(self.records_on(source, uuid))
    }

    /// Goes on with the pass of a node, by the metadata that it knows now. One that cannot go on ends.
    pub fn step_pass(&mut self, id: NodeId, known: &Committed) -> Checked {
        let Some(pass) = self.passes.remove(&id) else { return Ok(()) };
        let mut pass = Arc::unwrap_or_clone(pass);
        let goes_on = match pass.waits_for {
            Some((segment, was_listed)) => self.await_place(id, known, &mut pass, (segment, was_listed)),
            None if pass.at < pass.runs.len() => self.rewrite(id, &mut pass)?,
            None => {
                self.finish(&mut pass)?;
                false
            }
        };
        if goes_on {
            self.passes.insert(id, Arc::new(pass));
        }
        Ok(())
    }

    /// Ends a pass for another reason, such as a candidate that was waited for in vain.
    pub fn give_up_pass(&mut self, id: NodeId) {
        self.passes.remove(&id);
    }

    /// Looks whether a candidate has its place; the pass ends where it was given up.
    fn await_place(
        &mut self,
        id: NodeId,
        known: &Committed,
        pass: &mut Pass,
        (segment, was_listed): (SegmentId, bool),
    ) -> bool {
        let Some(topic) = known.state.topics.get(&TOPIC) else { return false };
        let partition = &topic.partitions[0];
        if partition.segments.iter().any(|listed| listed.descriptor.id == segment) {
            if let Some(plain) = self.node_mut(id).plain.get_mut(&segment) {
                plain.is_scratch = false;
            }
            pass.waits_for = None;
            pass.left.push(segment);
            pass.at += 1;
            return true;
        }
        let candidate = partition.compaction.candidate.as_ref();
        let is_candidate = candidate.is_some_and(|candidate| candidate.descriptor.id == segment);
        pass.waits_for = Some((segment, was_listed || is_candidate));
        is_candidate || !was_listed
    }

    /// Writes a run again and offers it, unless it is one segment from which nothing goes.
    fn rewrite(&mut self, id: NodeId, pass: &mut Pass) -> Result<bool, Violation> {
        let known = Arc::clone(&pass.known);
        let partition = &known.state.topics[&TOPIC].partitions[0];
        let range = pass.runs[pass.at].clone();
        let looked_at = pass.at.checked_sub(1).map_or(0, |before| pass.runs[before].end);
        if looked_at < range.start {
            pass_over(pass, &partition.segments[looked_at]);
        }
        let run = &partition.segments[range];
        let below = pass.first_unread.unwrap_or(pass.tombstones_below).min(pass.tombstones_below);
        let start = partition.log_start();
        let stays = |record: &Record| {
            let is_forgotten = record.is_tombstone() && record.offset < below;
            let is_last = pass.keys.get(&record.key()).is_none_or(|last| record.offset >= *last);
            record.offset >= start && is_last && !is_forgotten
        };
        let mut all = Vec::new();
        for segment in run {
            let Some(there) = self.readable(id, segment) else { return Ok(false) };
            all.extend(there);
        }
        let kept: Vec<Record> = all.iter().copied().filter(stays).collect();
        pass.has_tombstones |= kept.iter().any(|record| record.is_tombstone());
        if run.len() == 1 && kept.len() == all.len() {
            pass.at += 1;
            return Ok(true);
        }
        let node = self.node(id);
        let (me, leader) =
            (ReplicaRef { node: id, disk: node.disk }, LeaderRef { node: id, process: node.process() });
        let copies = disks_for_replacement(&known.state, &self.present(), PLACE, run, me);
        let segment = SegmentId(self.mint());
        let digest = record::digest_of_rest(&kept);
        let Some(new) = replacement(run, segment, leader, digest) else { return Ok(false) };
        let offer = CompactionOffer {
            segment,
            compactor: leader,
            first_number: run[0].first_number(),
            last_number: run[run.len() - 1].descriptor.number,
            digest,
            contents: self.contents(&kept),
            copies,
        };
        let plain =
            Plain { records: kept.clone(), to: new.value.end, sealed: Some(digest), is_scratch: true };
        self.node_mut(id).plain.insert(segment, plain);
        let form = Form { replacement: new, records: kept };
        Arc::make_mut(&mut self.promised).forms.insert(segment, Arc::new(form));
        pass.waits_for = Some((segment, false));
        Ok(self.propose(Command::OfferCompaction { place: PLACE, offer })?.is_ok())
    }

    fn finish(&mut self, pass: &mut Pass) -> Checked {
        let partition = &pass.known.state.topics[&TOPIC].partitions[0];
        let looked_at = pass.runs.last().map_or(0, |last| last.end);
        let behind = partition.segments[..pass.covered].get(looked_at).cloned();
        if let Some(segment) = behind {
            pass_over(pass, &segment);
        }
        let proven = pass.first_unread.unwrap_or(pass.cleaned_to).min(pass.cleaned_to);
        let gone_below =
            if pass.has_tombstones { pass.tombstones_below } else { pass.tombstones_below.max(proven) };
        let end = PassEnd {
            segments: pass.left.clone(),
            cleaned_to: pass.cleaned_to,
            tombstones_gone_below: gone_below,
            tombstones_kept_below: pass.has_tombstones.then_some(proven),
        };
        self.propose(Command::FinishCompaction { place: PLACE, end }).map(drop)
    }
}

/// A segment that is not written again may hold an older value of any key.
fn pass_over(pass: &mut Pass, segment: &Segment) {
    pass.first_unread = pass.first_unread.or(segment.descriptor.base_offset);
}

/// The end of a sealed segment.
fn end_of(segment: &Segment) -> Offset {
    match &segment.state {
        SegmentState::Sealed(value) => value.end,
        _ => Offset(0),
    }
}
