//! What the metadata list on this disk of sealed segments: an index, so that what is whole is looked at once and not
//! again with each change of the metadata.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use walrus_metadata::{CopyState, Metadata, Segment, SegmentState, Topic};
use walrus_model::{ReplicaRef, SegmentId, TopicId};

/// An index of the sealed segments that the metadata list on this disk.
pub(crate) struct Holdings {
    me: ReplicaRef,
    topics: HashMap<TopicId, Listed>,
}

struct Listed {
    /// As it was when its segments were looked through.
    topic: Arc<Topic>,
    /// By partition and number.
    copies: BTreeMap<(u32, u64), Held>,
}

/// A copy that is listed on this disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) topic: TopicId,
    pub(crate) partition: u32,
    pub(crate) number: u64,
    pub(crate) segment: SegmentId,
    pub(crate) state: CopyState,
    /// See [`walrus_metadata::SegmentCopy::since`].
    pub(crate) since: u64,
    /// It is verified, and was found here.
    is_settled: bool,
}

impl Holdings {
    pub(crate) fn new(me: ReplicaRef) -> Self {
        Self { me, topics: HashMap::new() }
    }

    /// Follows the metadata; looks through topics that have changed only.
    pub(crate) fn update(&mut self, metadata: &Metadata) {
        self.topics.retain(|id, _| metadata.topics.contains_key(id));
        for (id, topic) in &metadata.topics {
            let old = self.topics.get(id);
            if old.is_some_and(|old| Arc::ptr_eq(&old.topic, topic)) {
                continue;
            }
            let copies = self.copies_of(topic, old);
            self.topics.insert(*id, Listed { topic: topic.clone(), copies });
        }
    }

    fn copies_of(&self, topic: &Topic, old: Option<&Listed>) -> BTreeMap<(u32, u64), Held> {
        let segments = topic.partitions.iter().flat_map(|partition| &partition.segments);
        let sealed = segments.filter(|segment| matches!(segment.state, SegmentState::Sealed(_)));
        let held = |segment: &Segment| {
            let copy = segment.copies.iter().find(|copy| copy.replica == self.me)?;
            let descriptor = &segment.descriptor;
            let place = (descriptor.partition, descriptor.number);
            let held = Held {
                topic: topic.id,
                partition: place.0,
                number: place.1,
                segment: descriptor.id,
                state: copy.state,
                since: copy.since,
                is_settled: false,
            };
            let before = old.and_then(|old| old.copies.get(&place));
            let is_settled = before == Some(&Held { is_settled: true, ..held });
            Some((place, Held { is_settled, ..held }))
        };
        sealed.filter_map(held).collect()
    }

    /// Copies with which something is to be done, or that were not looked at yet.
    pub(crate) fn unsettled(&self) -> Vec<Held> {
        let all = self.topics.values().flat_map(|listed| listed.copies.values());
        all.filter(|held| !held.is_settled).copied().collect()
    }

    /// A verified copy is here: it is not looked at again.
    pub(crate) fn settle(&mut self, held: &Held) {
        let listed = self.topics.get_mut(&held.topic);
        let known = listed.and_then(|listed| listed.copies.get_mut(&(held.partition, held.number)));
        if let Some(known) = known.filter(|known| *known == held && known.state == CopyState::Verified) {
            known.is_settled = true;
        }
    }

    /// Copies that are here, in order of their segments' uuids.
    pub(crate) fn settled(&self) -> Vec<Held> {
        let all = self.topics.values().flat_map(|listed| listed.copies.values());
        let mut settled: Vec<Held> = all.filter(|held| held.is_settled).copied().collect();
        settled.sort_by_key(|held| held.segment);
        settled
    }

    /// All that is listed.
    pub(crate) fn all(&self) -> Vec<Held> {
        self.topics.values().flat_map(|listed| listed.copies.values()).copied().collect()
    }

    /// Copies that are to be made, and those beyond mending.
    pub(crate) fn unfinished(&self) -> (usize, usize) {
        let count = |state| {
            let all = self.topics.values().flat_map(|listed| listed.copies.values());
            all.filter(|held| held.state == state).count()
        };
        (count(CopyState::Filling), count(CopyState::Damaged))
    }
}

/// The listed segment of a copy; `None` where metadata have moved on.
pub(crate) fn segment_of(metadata: &Metadata, held: &Held) -> Option<Segment> {
    let partition = metadata.topics.get(&held.topic)?.partitions.get(held.partition as usize)?;
    let at = partition.segments.binary_search_by_key(&held.number, |segment| segment.descriptor.number);
    let segment = &partition.segments[at.ok()?];
    (segment.descriptor.id == held.segment).then(|| segment.clone())
}

#[cfg(test)]
mod tests {
    use walrus_metadata::{Partition, SegmentCopy};
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
        };
        let sealed = |(number, state, since): &(u64, CopyState, u64)| Segment {
            descriptor: descriptor(*number),
            state: SegmentState::Sealed(Value {
                end: Offset(number + 1),
                digest: Digest(0),
                successor: Box::new(descriptor(number + 1)),
                possible_loss: vec![],
                lost: vec![],
            }),
            successor: None,
            earlier_successors: vec![],
            copies: vec![SegmentCopy { replica: replica(1), state: *state, since: *since }],
            opened_at_ms: 0,
            silent_below: Offset(0),
            version: *since,
        };
        let partition = Partition {
            index: 0,
            next_epoch: Epoch(9),
            trimmed_below: 0,
            segments: copies.iter().map(sealed).collect(),
            version: 1,
        };
        let id = TopicId::from_u128(7);
        let (org, name) = ("o".to_owned(), "t".to_owned());
        let topic = Topic { id, org, name, internal: false, partitions: vec![partition] };
        Metadata { topics: [(id, Arc::new(topic))].into(), ..Metadata::default() }
    }

    #[test]
    fn a_copy_is_looked_at_until_it_is_settled_and_again_when_its_listing_changes() {
        use CopyState::{Filling, Verified};
        let mut holdings = Holdings::new(replica(1));
        let numbers = |held: Vec<Held>| held.iter().map(|held| held.number).collect::<Vec<_>>();
        holdings.update(&metadata(&[(0, Verified, 1), (1, Filling, 2)]));
        assert_eq!(numbers(holdings.unsettled()), [0, 1]);
        for held in holdings.unsettled() {
            holdings.settle(&held);
        }
        assert_eq!(numbers(holdings.unsettled()), [1], "what is to be made is not settled by anybody's word");
        holdings.update(&metadata(&[(0, Verified, 1), (1, Verified, 3), (2, Filling, 4)]));
        assert_eq!(numbers(holdings.unsettled()), [1, 2]);
        assert_eq!(numbers(holdings.settled()), [0]);
        holdings.update(&metadata(&[(0, Verified, 5)]));
        assert_eq!(numbers(holdings.unsettled()), [0], "listed anew");

        let mut other = Holdings::new(replica(2));
        other.update(&metadata(&[(0, Verified, 1)]));
        assert_eq!(other.unsettled(), []);
    }

    #[test]
    fn a_segment_is_found_by_what_is_held_of_it() {
        let metadata = metadata(&[(3, CopyState::Verified, 1), (4, CopyState::Verified, 1)]);
        let mut holdings = Holdings::new(replica(1));
        holdings.update(&metadata);
        let held = holdings.unsettled()[1];
        assert_eq!(segment_of(&metadata, &held).unwrap().descriptor.number, 4);
        assert_eq!(segment_of(&metadata, &Held { segment: SegmentId::from_u128(0), ..held }), None);
    }
}
