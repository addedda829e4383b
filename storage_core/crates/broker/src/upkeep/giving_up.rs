//! Copies that the metadata give up. One goes only once as many others as had to acknowledge its records say that they have
//! theirs, whole, and are not about to delete it. Metadata that were rolled back may list a copy as verified although its node
//! has deleted it, as commands said that the metadata have forgotten. Without the question two copies could go, each for the
//! sake of the other.
//!
//! A node says that it is about to delete its copy before it asks others, and until that is done or put off: of two that would
//! delete theirs each hears no from the other, or one of them asks when the other has nothing any more.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use prost::Message as _;
use walrus_metadata::{CopyState, Metadata, Segment, SegmentState};
use walrus_model::SegmentId;

use crate::cluster::segment::{log_id, uuid_bytes};
use crate::copies::Copies;
use crate::copies::holdings::{HeldCopy, partition_of};
use crate::node::patience;
use crate::node::proto::peer::SegmentInfoAnswer;
use crate::peer::Request;

/// The copies that were given up, and which of them may go, as long as this lives.
pub(super) struct GivingUp {
    copies: Arc<Copies>,
    asked: HashSet<SegmentId>,
    kept: HashSet<SegmentId>,
}

impl GivingUp {
    /// Asks about the copies that leave by the `metadata`.
    pub(super) async fn ask(
        copies: &Arc<Copies>,
        metadata: &Metadata,
        leaving: impl Iterator<Item = &HeldCopy>,
    ) -> Self {
        let is_here = |segment: &&Segment| copies.bucket().log(log_id(&segment.descriptor)).is_some();
        let listed: Vec<&Segment> =
            leaving.filter_map(|held| in_force(metadata, held)).filter(is_here).collect();
        let asked: HashSet<SegmentId> = listed.iter().map(|segment| segment.descriptor.id).collect();
        copies.table().mark_going(asked.iter().copied());
        let mut this = Self { copies: copies.clone(), asked, kept: HashSet::new() };
        let voices = this.voices(metadata, &listed).await;
        let is_kept = |segment: &&&Segment| {
            let heard = voices.get(&segment.descriptor.id).copied().unwrap_or(0);
            heard >= segment.descriptor.write_quorum()
        };
        this.kept = listed.iter().filter(is_kept).map(|segment| segment.descriptor.id).collect();
        this
    }

    /// Whether the copy of a segment may be deleted: enough others keep theirs, or it is not needed any more.
    pub(super) fn may_go(&self, segment: SegmentId) -> bool {
        !self.asked.contains(&segment) || self.kept.contains(&segment)
    }

    /// The number of other nodes that keep their copy of each segment.
    async fn voices(&self, metadata: &Metadata, listed: &[&Segment]) -> HashMap<SegmentId, usize> {
        let mut by_node: BTreeMap<u32, Vec<&Segment>> = BTreeMap::new();
        let own = self.copies.table().replica();
        for segment in listed {
            for copy in segment.copies.iter().filter(|copy| copy.state == CopyState::Verified) {
                let node = copy.replica.node;
                let is_listed = metadata.nodes.get(&node).is_some_and(|node| node.disk == copy.replica.disk);
                if copy.replica != own && is_listed && !self.copies.cluster().liveness().is_silent(node.0) {
                    by_node.entry(node.0).or_default().push(segment);
                }
            }
        }
        let asked = by_node.into_iter().map(|(node, segments)| async move {
            let uuids = segments.iter().map(|segment| uuid_bytes(segment.descriptor.id.0)).collect();
            let info = Request::SegmentInfo(self.copies.segment_info(uuids, false));
            let answer = self.copies.cluster().peers().call(node, info, patience::SEGMENT_INFO).await;
            let answer = answer.ok().and_then(|payload| SegmentInfoAnswer::decode(payload).ok());
            kept(&segments, &answer.unwrap_or_default())
        });
        let mut voices = HashMap::new();
        for segment in futures_util::future::join_all(asked).await.into_iter().flatten() {
            *voices.entry(segment).or_default() += 1;
        }
        voices
    }
}

impl Drop for GivingUp {
    fn drop(&mut self) {
        self.copies.table().clear_going();
    }
}

/// The segment of a copy that leaves, where it is one that readers are served from: what took the place of others, or lost its own,
/// goes by other rules.
fn in_force<'a>(metadata: &'a Metadata, held: &HeldCopy) -> Option<&'a Segment> {
    let segments = &partition_of(metadata, held)?.segments;
    segments.iter().find(|segment| segment.descriptor.id == held.segment)
}

/// The segments of which one node keeps a whole copy, each once, as it answers.
fn kept(asked: &[&Segment], answer: &SegmentInfoAnswer) -> HashSet<SegmentId> {
    let facts = answer.segments.iter().filter(|facts| facts.sealed && facts.stays);
    let digests: HashMap<SegmentId, u64> =
        facts.filter_map(|facts| Some((SegmentId::from_slice(&facts.segment)?, facts.digest))).collect();
    let is_whole = |segment: &&&Segment| match &segment.state {
        SegmentState::Sealed(value) => digests.get(&segment.descriptor.id) == Some(&value.digest.0),
        _ => false,
    };
    asked.iter().filter(is_whole).map(|segment| segment.descriptor.id).collect()
}
