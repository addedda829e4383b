//! Leaders that stay where they are go back to an even spread, a few at a time, after a node was away or was added.

use std::sync::Arc;

use walrus_metadata::rolling::Reason;
use walrus_metadata::{Segment, SegmentState, leads_to_give_away};
use walrus_model::NodeId;

use crate::cluster::routing::is_led_by;
use crate::node::patience;
use crate::partition::Partitions;

/// Limit on the segments that are given away at one look: nobody waits for an even spread.
const MOVES_MAX: usize = 4;

/// Gives away what this node leads above its share, until the node stops.
pub(crate) async fn keep_even(partitions: Arc<Partitions>) {
    let shutdown = partitions.cluster().tasks().shutdown().clone();
    let mut ticks = tokio::time::interval(patience::SPREAD_LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
        for segment in surplus(&partitions) {
            if let Err(error) = partitions.end_segment(&segment, Reason::Spread).await {
                let segment = segment.descriptor.id;
                tracing::warn!(%segment, %error, "a segment that another node should lead cannot be rolled yet");
            }
        }
    }
}

/// Segments that this process leads and another node should lead in its place. They are the first ones each time: what is being
/// rolled since the last look is found again, and nothing else in addition to it.
fn surplus(partitions: &Partitions) -> Vec<Segment> {
    let routing = partitions.cluster().routing();
    let config = partitions.cluster().config();
    let present = partitions.cluster().present(&routing.metadata);
    let moves = leads_to_give_away(&routing.metadata, NodeId(config.node_id), &present);
    let moves = usize::try_from(moves).map_or(MOVES_MAX, |moves| moves.min(MOVES_MAX));
    if moves == 0 {
        return Vec::new();
    }
    let standing = routing.metadata.topics.values().filter(|topic| topic.has_standing_leaders());
    let open = standing.flat_map(|topic| &topic.partitions).filter_map(|partition| partition.segments.last());
    let is_ours = |segment: &&Segment| {
        segment.state == SegmentState::Open
            && is_led_by(segment.descriptor.leader, config)
            && partitions.leaders().may_lead(segment)
    };
    open.filter(is_ours).take(moves).cloned().collect()
}
