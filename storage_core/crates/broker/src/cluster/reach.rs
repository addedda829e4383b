//! Whether a segment can be reached from here: enough of its replicas have answered this node lately.

use walrus_model::{Descriptor, ReplicaRef};

use crate::cluster::Cluster;
use crate::cluster::routing::open_segment;
use crate::cluster::standing;
use crate::node::error::{Error, Result};
use crate::node::names::PartitionRef;
use crate::node::obstacle::Obstacle;

impl Cluster {
    /// Whether appends to a segment are not worth waiting for here: too few of its replicas have answered this node
    /// lately.
    pub(crate) fn is_cut_off(&self, segment: &Descriptor) -> bool {
        let lost = self.liveness().lost();
        let is_lost = |replica: &&ReplicaRef| lost.contains(&replica.node.0);
        let (replicas, write_quorum) = (segment.replicas.len(), segment.write_quorum as usize);
        !lost.is_empty()
            && standing::is_cut_off(replicas, write_quorum, segment.replicas.iter().filter(is_lost).count())
    }

    /// `Unavailable` if the open segment of a partition is cut off from here.
    pub(crate) fn check_reach(&self, partition: &PartitionRef) -> Result<()> {
        let routing = self.routing();
        let listed = routing.partition(partition).ok();
        let open = listed.and_then(|(_, found)| open_segment(found));
        open.map_or(Ok(()), |open| self.check_segment_reach(&open.descriptor))
    }

    /// `Unavailable` if a segment is cut off from here.
    pub(crate) fn check_segment_reach(&self, segment: &Descriptor) -> Result<()> {
        if self.is_cut_off(segment) { Err(self.cut_off_error(segment)) } else { Ok(()) }
    }

    /// The error for a segment that is cut off from here; it names the lost nodes.
    pub(crate) fn cut_off_error(&self, segment: &Descriptor) -> Error {
        Obstacle::CutOff { segment: segment.id, nodes: self.liveness().lost() }.into()
    }
}
