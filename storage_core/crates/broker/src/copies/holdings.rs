//! An index of the copies of sealed segments that the metadata list on this disk, so that what is whole is looked at once
//! and not again with each change of the metadata.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use imbl::{OrdMap, Vector};
use walrus_metadata::{CopyState, Metadata, Partition, Segment, SegmentState, Topic};
use walrus_model::{ReplicaRef, SegmentId, TopicId};

use crate::node::differences::{differences, differing_places};

/// An index of the sealed segments that the metadata list on this disk.
pub(crate) struct Holdings {
    me: ReplicaRef,
    /// The topics as they were when their segments were looked through.
    seen: OrdMap<TopicId, Arc<Topic>>,
    /// Whether the metadata take what segments hold.
    take_contents: bool,
    copies: HashMap<TopicId, TopicCopies>,
}

/// The copies of one topic's segments that are listed on this disk, by partition, number and identity of the segment: one that is to
/// take the place of others has the number of one of them.
type TopicCopies = BTreeMap<(u32, u64, SegmentId), HeldCopy>;

/// A copy that is listed on this disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldCopy {
    pub(crate) topic: TopicId,
    pub(crate) partition: u32,
    pub(crate) number: u64,
    pub(crate) segment: SegmentId,
    pub(crate) state: CopyState,
    /// The version of the metadata since which it is in this state ([`walrus_metadata::SegmentCopy::since`]).
    pub(crate) since: u64,
    /// Whether the metadata wait for somebody to say what the segment holds.
    pub(crate) wants_contents: bool,
    /// Whether the metadata wait for this disk to remember that its segment took the place of others.
    pub(crate) wants_note: bool,
    /// It is verified and was found on this disk, so nothing is to be done with it.
    is_found: bool,
}

impl Holdings {
    pub(crate) fn new(me: ReplicaRef) -> Self {
        Self { me, seen: OrdMap::new(), take_contents: false, copies: HashMap::new() }
    }

    /// Follows the metadata; looks through those partitions only that have changed.
    pub(crate) fn update(&mut self, metadata: &Metadata) {
        if metadata.knows_retention() != self.take_contents {
            self.take_contents = metadata.knows_retention();
            self.seen = OrdMap::new(); // all segments are asked for
            self.copies.retain(|topic, _| metadata.topics.contains_key(topic));
        }
        let seen = std::mem::replace(&mut self.seen, metadata.topics.clone());
        for (id, topic) in differences(&seen, &metadata.topics) {
            let mut listed = self.copies.remove(id).unwrap_or_default();
            let Some(topic) = topic else { continue };
            let unseen = Vector::new();
            let before = seen.get(id).map_or(&unseen, |topic| &topic.partitions);
            for place in differing_places(before, &topic.partitions) {
                let old = take_partition(&mut listed, place);
                if let Some(partition) = topic.partitions.get(place) {
                    listed.extend(self.copies_of(topic, partition, &old));
                }
            }
            self.copies.insert(*id, listed);
        }
    }

    /// The copies of a partition's segments that are listed here. Those of `old` that were found still are.
    fn copies_of(&self, topic: &Topic, partition: &Partition, old: &TopicCopies) -> TopicCopies {
        let sealed = |segment: &&Segment| matches!(segment.state, SegmentState::Sealed(_));
        let held = |segment: &Segment| {
            let copy = segment.copies.iter().find(|copy| copy.replica == self.me)?;
            let descriptor = &segment.descriptor;
            let place = (descriptor.partition, descriptor.number, descriptor.id);
            let held = HeldCopy {
                topic: topic.id,
                partition: place.0,
                number: place.1,
                segment: descriptor.id,
                state: copy.state,
                since: copy.since,
                wants_contents: self.take_contents && segment.contents.is_none(),
                wants_note: copy.state == CopyState::Verified
                    && !segment.counts(copy)
                    && partition.segments.iter().any(|listed| listed.descriptor.id == descriptor.id),
                is_found: false,
            };
            let is_found = old.get(&place) == Some(&HeldCopy { is_found: true, ..held });
            Some((place, HeldCopy { is_found, ..held }))
        };
        partition.all_segments().filter(sealed).filter_map(held).collect()
    }

    /// Copies with which something is to be done, or that were not found yet.
    pub(crate) fn pending_copies(&self) -> Vec<HeldCopy> {
        let all = self.copies.values().flat_map(|listed| listed.values());
        all.filter(|held| !held.is_found).copied().collect()
    }

    /// Notes that a verified copy is here, so that it is not looked at again until its listing changes.
    pub(crate) fn mark_found(&mut self, held: &HeldCopy) {
        let listed = self.copies.get_mut(&held.topic);
        let known = listed.and_then(|listed| listed.get_mut(&(held.partition, held.number, held.segment)));
        if let Some(known) = known.filter(|known| *known == held && known.state == CopyState::Verified) {
            known.is_found = true;
        }
    }

    /// Verified copies that were found here, in order of their segments' uuids.
    pub(crate) fn found_copies(&self) -> Vec<HeldCopy> {
        let all = self.copies.values().flat_map(|listed| listed.values());
        let mut found: Vec<HeldCopy> = all.filter(|held| held.is_found).copied().collect();
        found.sort_by_key(|held| held.segment);
        found
    }

    /// All copies that are listed here.
    pub(crate) fn all(&self) -> Vec<HeldCopy> {
        self.copies.values().flat_map(|listed| listed.values()).copied().collect()
    }

    /// How many copies are to be made, and how many are beyond mending.
    pub(crate) fn unfinished(&self) -> (usize, usize) {
        let count = |state| {
            let all = self.copies.values().flat_map(|listed| listed.values());
            all.filter(|held| held.state == state).count()
        };
        (count(CopyState::Filling), count(CopyState::Damaged))
    }
}

/// Takes the copies of one partition off those of its topic.
fn take_partition(listed: &mut TopicCopies, place: usize) -> TopicCopies {
    let Ok(index) = u32::try_from(place) else { return TopicCopies::new() };
    let first = |index| (index, 0, SegmentId::from_u128(0));
    let places: Vec<_> = listed.range(first(index)..first(index + 1)).map(|(place, _)| *place).collect();
    places.into_iter().filter_map(|place| listed.remove_entry(&place)).collect()
}

/// The partition of a copy.
pub(crate) fn partition_of<'a>(metadata: &'a Metadata, held: &HeldCopy) -> Option<&'a Partition> {
    metadata.topics.get(&held.topic)?.partitions.get(held.partition as usize).map(Arc::as_ref)
}

/// The listed segment of a copy; `None` where metadata have moved on.
pub(crate) fn segment_of(metadata: &Metadata, held: &HeldCopy) -> Option<Segment> {
    let partition = partition_of(metadata, held)?;
    let at = partition.segments.binary_search_by_key(&held.number, |segment| segment.descriptor.number);
    let listed = at.ok().map(|at| &partition.segments[at]);
    let listed = listed.filter(|segment| segment.descriptor.id == held.segment);
    listed.or_else(|| partition.all_segments().find(|one| one.descriptor.id == held.segment)).cloned()
}

#[cfg(test)]
mod tests {
    use walrus_metadata::{Compaction, SegmentCopy};
    use walrus_model::{Descriptor, Digest, DiskId, Epoch, LeaderRef, NodeId, Offset, ProcessId, Value};

    use super::*;

    fn replica(node: u32) -> ReplicaRef {
        ReplicaRef { node: NodeId(node), disk: DiskId::from_u128(node.into()) }
    }

    fn metadata(copies: &[(u64, CopyState, u64)]) -> Metadata {
        let descriptor = |number: u64| Descriptor {
            id: SegmentId::from_u128(100 + u128::from(number)),
            topic: TopicId::from_u128(7),
            partition: 0,
            number,
            base_offset: Some(Offset(number)),
            epoch: Epoch(1),
            leader: LeaderRef { node: NodeId(1), process: ProcessId::from_u128(0) },
            replicas: vec![replica(1)],
            write_quorum: 1,
            fsync: None,
        };
        let sealed = |(number, state, since): &(u64, CopyState, u64)| Segment {
            descriptor: descriptor(*number),
            state: SegmentState::Sealed(Value::without_loss(
                Offset(number + 1),
                Digest(0),
                descriptor(number + 1),
            )),
            successor: None,
            earlier_successors: vec![],
            copies: vec![SegmentCopy { replica: replica(1), state: *state, since: *since }],
            contents: None,
            begun: vec![],
            compacted: None,
            opened_at_ms: 0,
            silent_below: Offset(0),
            quiet_below: Offset(0),
            version: *since,
        };
        let partition = Partition {
            index: 0,
            next_epoch: Epoch(9),
            trimmed_below: 0,
            start: Offset(0),
            segments: copies.iter().map(sealed).collect(),
            compaction: Compaction::default(),
            version: 1,
        };
        let id = TopicId::from_u128(7);
        let (org, name) = ("o".to_owned(), "t".to_owned());
        let (config, partitions) =
            (walrus_metadata::TopicConfig::default(), Vector::unit(Arc::new(partition)));
        let read = walrus_metadata::ReadMarks::default();
        let topic = Topic { id, org, name, internal: false, config, read, partitions };
        let mut metadata = Metadata::default();
        metadata.topics.insert(id, Arc::new(topic));
        metadata
    }

    #[test]
    fn a_copy_is_looked_at_until_it_is_found_and_again_when_its_listing_changes() {
        use CopyState::{Filling, Verified};
        let mut holdings = Holdings::new(replica(1));
        let numbers = |held: Vec<HeldCopy>| held.iter().map(|held| held.number).collect::<Vec<_>>();
        holdings.update(&metadata(&[(0, Verified, 1), (1, Filling, 2)]));
        assert_eq!(numbers(holdings.pending_copies()), [0, 1]);
        for held in holdings.pending_copies() {
            holdings.mark_found(&held);
        }
        assert_eq!(
            numbers(holdings.pending_copies()),
            [1],
            "what is to be made is not found by anybody's word"
        );
        holdings.update(&metadata(&[(0, Verified, 1), (1, Verified, 3), (2, Filling, 4)]));
        assert_eq!(numbers(holdings.pending_copies()), [1, 2]);
        assert_eq!(numbers(holdings.found_copies()), [0]);
        holdings.update(&metadata(&[(0, Verified, 5)]));
        assert_eq!(numbers(holdings.pending_copies()), [0], "listed anew");

        let mut other = Holdings::new(replica(2));
        other.update(&metadata(&[(0, Verified, 1)]));
        assert_eq!(other.pending_copies(), []);
    }

    #[test]
    fn a_partition_that_changed_is_looked_through_and_the_others_are_not() {
        let mut listed = metadata(&[(0, CopyState::Verified, 1)]);
        let topic = TopicId::from_u128(7);
        let change = |listed: &mut Metadata, change: &dyn Fn(&mut Vector<Arc<Partition>>)| {
            change(&mut Arc::make_mut(listed.topics.get_mut(&topic).unwrap()).partitions);
        };
        change(&mut listed, &|partitions| {
            let mut other = Partition::clone(&partitions[0]);
            other.index = 1;
            for segment in &mut other.segments {
                segment.descriptor.partition = 1;
                segment.descriptor.id = SegmentId::from_u128(900);
            }
            partitions.push_back(Arc::new(other));
        });
        let mut holdings = Holdings::new(replica(1));
        holdings.update(&listed);
        for held in holdings.pending_copies() {
            holdings.mark_found(&held);
        }
        assert_eq!(holdings.found_copies().len(), 2);
        change(&mut listed, &|partitions| Arc::make_mut(&mut partitions[1]).segments[0].copies[0].since = 2);
        holdings.update(&listed);
        let pending: Vec<_> =
            holdings.pending_copies().iter().map(|held| (held.partition, held.since)).collect();
        assert_eq!(pending, [(1, 2)]);
        change(&mut listed, &|partitions| drop(partitions.pop_back()));
        holdings.update(&listed);
        assert_eq!(holdings.all().iter().map(|held| held.partition).collect::<Vec<_>>(), [0]);
        listed.topics.remove(&topic);
        holdings.update(&listed);
        assert!(holdings.all().is_empty());
    }

    /// What was sealed before all members knew retention was not asked for then.
    #[test]
    fn what_segments_hold_is_asked_for_once_the_metadata_take_it() {
        let mut holdings = Holdings::new(replica(1));
        let mut listed = metadata(&[(0, CopyState::Verified, 1)]);
        holdings.update(&listed);
        let held = holdings.pending_copies()[0];
        assert!(!held.wants_contents);
        holdings.mark_found(&held);
        listed.level = walrus_metadata::LEVEL;
        holdings.update(&listed);
        assert!(matches!(holdings.pending_copies()[..], [HeldCopy { wants_contents: true, .. }]));
        (listed.level, listed.topics) = (0, OrdMap::new());
        holdings.update(&listed);
        assert!(holdings.all().is_empty(), "a topic that went in the same step");
    }

    #[test]
    fn a_segment_is_found_by_what_is_held_of_it() {
        let metadata = metadata(&[(3, CopyState::Verified, 1), (4, CopyState::Verified, 1)]);
        let mut holdings = Holdings::new(replica(1));
        holdings.update(&metadata);
        let held = holdings.pending_copies()[1];
        assert_eq!(segment_of(&metadata, &held).unwrap().descriptor.number, 4);
        assert_eq!(segment_of(&metadata, &HeldCopy { segment: SegmentId::from_u128(0), ..held }), None);
    }
}
