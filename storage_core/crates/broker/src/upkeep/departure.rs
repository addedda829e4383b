//! Rolls of open segments whose replica set is not what it should be any more, for a node is drained, gone or away too long,
//! or others came. Their leaders roll them, since the replica set of an open segment never changes (R9).

use std::sync::Arc;

use walrus_metadata::rolling::Reason;
use walrus_metadata::{Segment, SegmentState, is_better_elsewhere};

use crate::cluster::routing::is_led_by;
use crate::node::patience;
use crate::partition::Partitions;

/// Limit on the segments that are rolled at one look: each costs commands.
const ROLLS_MAX: usize = 32;

/// Rolls departing segments until the node stops.
pub(crate) async fn keep_watch(partitions: Arc<Partitions>) {
    let shutdown = partitions.cluster().tasks().shutdown().clone();
    let mut ticks = tokio::time::interval(patience::DEPARTURE_LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
        for segment in departing(&partitions) {
            if shutdown.is_cancelled() {
                return;
            }
            roll(&partitions, &segment).await;
        }
    }
}

/// Segments that this process leads and that would be stored better elsewhere.
fn departing(partitions: &Partitions) -> Vec<Segment> {
    let routing = partitions.cluster().routing();
    let metadata = &routing.metadata;
    let present = partitions.cluster().present(metadata);
    let mut found = Vec::new();
    for route in routing.topics() {
        for partition in &route.topic.partitions {
            let Some(open) = partition.segments.last() else { continue };
            let is_ours = open.state == SegmentState::Open
                && is_led_by(open.descriptor.leader, partitions.cluster().config())
                && partitions.leaders().may_lead(open);
            if is_ours && is_better_elsewhere(metadata, route.topic.id, partition.index, &present) {
                found.push(open.clone());
                if found.len() == ROLLS_MAX {
                    return found;
                }
            }
        }
    }
    found
}

async fn roll(partitions: &Partitions, segment: &Segment) {
    if let Err(error) = partitions.end_segment(segment, Reason::Moved).await {
        let segment = segment.descriptor.id;
        tracing::warn!(%segment, %error, "a segment that should move cannot be rolled yet");
    }
}
