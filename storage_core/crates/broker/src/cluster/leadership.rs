//! The leadership of a partition: which node leads its open segment.

use walrus_model::{Descriptor, SegmentId};

use crate::cluster::Cluster;
use crate::cluster::routing::{is_led_by, open_segment};
use crate::node::error::Result;
use crate::node::names::PartitionRef;
use crate::node::obstacle::Obstacle;

/// The leader of a partition's open segment, as this node's snapshot of the metadata says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The open segment.
    pub segment: SegmentId,
    /// Its number.
    pub number: u64,
    /// Its first offset.
    pub base_offset: u64,
    /// Its epoch.
    pub epoch: u32,
    /// Id of the node that leads it.
    pub node: u32,
    /// Whether this very process leads it, and not an earlier one of this node.
    pub ours: bool,
}

impl Cluster {
    /// The leadership of a partition, as far as this node knows: neither an answer nor an error is final.
    pub(crate) fn leadership(&self, partition: &PartitionRef) -> Result<Leadership> {
        let routing = self.routing();
        let (_, found) = routing.partition(partition)?;
        let nobody = || Obstacle::WithoutOpenSegment { partition: partition.to_string() };
        let Descriptor { id, number, base_offset, epoch, leader, .. } =
            &open_segment(found).ok_or_else(nobody)?.descriptor;
        Ok(Leadership {
            segment: *id,
            number: *number,
            base_offset: base_offset.map_or(0, |base| base.0),
            epoch: epoch.0,
            node: leader.node.0,
            ours: is_led_by(*leader, self.config()),
        })
    }
}
