//! The ends and sizes of segments; those of an open one are known to its leader.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use prost::Message as _;
use walrus_metadata::{Partition, Segment, SegmentState};
use walrus_model::{Descriptor, SegmentId};

use crate::cluster::routing::base_of;
use crate::cluster::segment::uuid_bytes;
use crate::node::error::{Error, Result};
use crate::node::names::{PartitionRef, TopicPath};
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::node::proto::peer::{SegmentFacts, SegmentInfoAnswer};
use crate::peer::Request;
use crate::reading::Reading;

impl Reading {
    /// The end of a partition, or of one of its segments.
    pub(crate) async fn end_of(&self, place: &PartitionRef, segment: Option<SegmentId>) -> Result<u64> {
        let mut partition = self.cluster().routing().partition(place)?.1.clone();
        let last = partition.segments.last().map(|last| last.descriptor.id);
        partition.segments.retain(|listed| Some(listed.descriptor.id) == segment.or(last));
        let sizes = self.sure_sizes(&place.topic, &[&partition]).await?;
        let none = || Obstacle::WithoutSegment { partition: place.to_string() };
        let listed = partition.segments.first().ok_or_else(none)?;
        Ok(end_of(listed, sizes.get(&listed.descriptor.id)))
    }

    /// The high watermark of a partition as far as this node knows, which asks nobody: that of its leader where it leads, else the
    /// least that it can be.
    pub(crate) fn known_high_watermark(&self, partition: &Partition) -> u64 {
        let Some(last) = partition.segments.last() else { return partition.log_start().0 };
        let lead = self.copies().table().lead(last.descriptor.id);
        lead.map_or_else(|| end_of(last, None), |lead| lead.high_watermark.get())
    }

    /// The ends of some partitions of any topics, as far as they are sure. Asks each node once.
    pub(crate) async fn told_ends(&self, partitions: Vec<Partition>) -> Vec<Option<u64>> {
        let partitions = with_last_segments(partitions);
        let (sizes, silent) = self.sizes(&partitions.iter().collect::<Vec<_>>()).await;
        let end = |partition: &Partition| {
            let last = partition.segments.last()?;
            let is_sure = doubt_of(last, &sizes, &silent).is_none();
            is_sure.then(|| end_of(last, sizes.get(&last.descriptor.id)))
        };
        partitions.iter().map(end).collect()
    }

    /// The ends of some partitions of a topic, or why one is not sure. Asks each node once.
    pub(crate) async fn ends_of(&self, topic: &TopicPath, partitions: Vec<Partition>) -> Vec<Result<u64>> {
        let partitions = with_last_segments(partitions);
        let (sizes, silent) = self.sizes(&partitions.iter().collect::<Vec<_>>()).await;
        let end = |partition: &Partition| {
            let none = || Obstacle::WithoutSegment { partition: format!("{topic}-{}", partition.index) };
            let last = partition.segments.last().ok_or_else(none)?;
            match doubt_of(last, &sizes, &silent) {
                Some(doubt) => Err(end_unknown(topic, last, doubt)),
                None => Ok(end_of(last, sizes.get(&last.descriptor.id))),
            }
        };
        partitions.iter().map(end).collect()
    }

    /// The sizes of all segments of some partitions, or `Unavailable` where it is not sure how far an open segment goes.
    pub(crate) async fn sure_sizes(
        &self,
        topic: &TopicPath,
        partitions: &[&Partition],
    ) -> Result<HashMap<SegmentId, Size>> {
        let (sizes, silent) = self.sizes(partitions).await;
        let mut segments = partitions.iter().flat_map(|partition| &partition.segments);
        let unknown = segments.find_map(|segment| {
            let doubt = doubt_of(segment, &sizes, &silent)?;
            Some(end_unknown(topic, segment, doubt))
        });
        unknown.map_or(Ok(sizes), Err)
    }

    /// The sizes of all segments of some partitions, from the nodes that led them, and which of those nodes did not answer.
    async fn sizes(&self, partitions: &[&Partition]) -> (HashMap<SegmentId, Size>, HashSet<u32>) {
        let mut by_node: BTreeMap<u32, Vec<Bytes>> = BTreeMap::new();
        for segment in partitions.iter().flat_map(|partition| &partition.segments) {
            // The leader's copy answers for an open segment; for a sealed one any would do.
            let node = segment.descriptor.leader.node.0;
            by_node.entry(node).or_default().push(uuid_bytes(segment.descriptor.id.0));
        }
        let asked = by_node.into_iter().map(|(node, segments)| async move {
            let info = self.copies().segment_info(segments, false);
            if node == self.cluster().node_id() {
                return (node, Some(self.copies().segment_facts(&info).await));
            }
            let answer =
                self.cluster().peers().call(node, Request::SegmentInfo(info), patience::SEGMENT_INFO).await;
            (node, answer.ok().and_then(|payload| SegmentInfoAnswer::decode(payload).ok()))
        });
        let answers = futures_util::future::join_all(asked).await;
        let silent = answers.iter().filter(|(_, answer)| answer.is_none()).map(|(node, _)| *node).collect();
        let facts = answers.into_iter().filter_map(|(_, answer)| answer).flat_map(|answer| answer.segments);
        let size = |facts: SegmentFacts| {
            let uuid = SegmentId::from_slice(&facts.segment)?;
            Some((
                uuid,
                // A segment that is open here and sealed there goes on in one that is not listed here yet.
                Size {
                    end_offset: facts.end_offset,
                    bytes: facts.bytes,
                    doubt: match (facts.sealed, facts.unsettled) {
                        (true, _) => Some(
                            "it is sealed there, and goes on in one that is not listed here yet".to_owned(),
                        ),
                        (false, true) => Some(facts.doubt),
                        (false, false) => None,
                    },
                },
            ))
        };
        (facts.filter_map(size).collect(), silent)
    }
}

/// Partitions with the last of their segments only.
fn with_last_segments(mut partitions: Vec<Partition>) -> Vec<Partition> {
    for partition in &mut partitions {
        partition.segments.drain(..partition.segments.len().saturating_sub(1));
    }
    partitions
}

/// The size of a segment, as far as the node that was asked knows it.
pub(crate) struct Size {
    end_offset: u64,
    pub(crate) bytes: u64,
    /// Why the end of an open segment is not sure.
    doubt: Option<String>,
}

fn end_unknown(topic: &TopicPath, segment: &Segment, doubt: String) -> Error {
    Obstacle::EndUnknown { segment: segment.descriptor.id, topic: topic.to_string(), doubt }.into()
}

/// Why it is not sure how far a segment goes, if it is not.
fn doubt_of(segment: &Segment, sizes: &HashMap<SegmentId, Size>, silent: &HashSet<u32>) -> Option<String> {
    let Descriptor { id, leader, .. } = &segment.descriptor;
    let node = leader.node.0;
    match &segment.state {
        SegmentState::Sealed(_) => None,
        SegmentState::Sealing(_) => Some("its end is being decided".to_owned()),
        SegmentState::Open if silent.contains(&node) => {
            Some(format!("its leader, node {node}, does not answer"))
        }
        SegmentState::Open => match sizes.get(id) {
            None => Some(format!("its leader, node {node}, has not heard of it yet")),
            Some(size) => {
                size.doubt.as_ref().map(|doubt| format!("its leader, node {node}, says that {doubt}"))
            }
        },
    }
}

/// First offset behind a segment; for an open one the leader's size tells it.
pub(crate) fn end_of(segment: &Segment, size: Option<&Size>) -> u64 {
    match &segment.state {
        SegmentState::Sealed(value) => value.end.0,
        _ => size.map_or(0, |size| size.end_offset).max(base_of(segment)),
    }
}
