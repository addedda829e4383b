//! Open segments whose replica set is not what it should be any more, for a node is drained, gone or away too long, or
//! others came: their leaders roll them. The replica set of an open segment never changes (R9).

use std::time::Duration;

use walrus_metadata::rolling::Reason;
use walrus_metadata::{Segment, SegmentState, is_better_elsewhere};

use crate::broker::Broker;
use crate::cluster::routing::is_led_by;
use crate::node::names::TopicName;

/// Nodes come and go slowly.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Segments rolled at one look: each costs commands.
const ROLLS_MAX: usize = 32;

/// Until the node stops.
pub(crate) async fn keep_watch(broker: Broker) {
    let shutdown = broker.cluster().tasks().shutdown().clone();
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
        for (topic, segment) in departing(&broker) {
            if shutdown.is_cancelled() {
                return;
            }
            roll(&broker, &topic, &segment).await;
        }
    }
}

/// Segments that this process leads and that would be stored better elsewhere.
fn departing(broker: &Broker) -> Vec<(TopicName, Segment)> {
    let routing = broker.cluster().routing();
    let metadata = &routing.metadata;
    let present = broker.cluster().present(metadata);
    let mut found = Vec::new();
    for route in routing.routes() {
        for partition in &route.topic.partitions {
            let Some(open) = partition.segments.last() else { continue };
            let is_ours = open.state == SegmentState::Open
                && is_led_by(open.descriptor.leader, broker.cluster().config())
                && broker.may_lead(open);
            if is_ours && is_better_elsewhere(metadata, route.topic.id, partition.index, &present) {
                found.push((route.name.clone(), open.clone()));
                if found.len() == ROLLS_MAX {
                    return found;
                }
            }
        }
    }
    found
}

async fn roll(broker: &Broker, topic: &TopicName, segment: &Segment) {
    let descriptor = &segment.descriptor;
    let leader = match broker.leader(topic, segment).await {
        Ok(leader) => leader,
        Err(error) => {
            tracing::warn!(segment = %descriptor.id, %error, "a segment that should move cannot be rolled yet");
            return;
        }
    };
    let route = broker.cluster().routing().topic(descriptor.topic).cloned();
    if let Some(sequencer) =
        route.as_ref().and_then(|route| route.sequencers.get(descriptor.partition as usize))
    {
        sequencer.end_segment(broker, &leader, Reason::Moved);
    }
}
