//! Rolls of open segments whose replica set or quorum is not what it should be any more, for a node is drained, gone or away too
//! long, others came or tell another zone, or the topic wants more acknowledgements. Their leaders roll them, since neither of an open segment ever
//! changes (R9).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use imbl::OrdMap;
use walrus_metadata::rolling::Reason;
use walrus_metadata::{Metadata, NodeState, Present, Segment, SegmentState, Topic, reason_to_roll};
use walrus_model::{DiskId, NodeId, ProcessId, Replication, TopicId};

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
    // Where nothing departed, nothing does until something is different.
    let mut settled: Option<(Circumstances, Instant)> = None;
    while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
        let now = Circumstances::take(&partitions);
        let is_settled = settled
            .as_ref()
            .is_some_and(|(then, looked)| *then == now && looked.elapsed() < patience::ALL_DEPARTURES_LOOK);
        if is_settled {
            continue;
        }
        let departing = departing(&partitions);
        settled = departing.is_empty().then(|| (now, Instant::now()));
        for (segment, reason) in departing {
            if shutdown.is_cancelled() {
                return;
            }
            roll(&partitions, &segment, reason).await;
        }
    }
}

/// What decides, beside this node's own logs, whether segments depart. That a lease was renewed is nothing new.
#[derive(PartialEq, Eq)]
struct Circumstances {
    topics: OrdMap<TopicId, Arc<Topic>>,
    nodes: BTreeMap<NodeId, (DiskId, ProcessId, NodeState, String)>,
    gone_disks: BTreeSet<DiskId>,
    replication: Replication,
    present: Present,
}

impl Circumstances {
    fn take(partitions: &Partitions) -> Self {
        let routing = partitions.cluster().routing();
        let metadata: &Metadata = &routing.metadata;
        let nodes = metadata.nodes.values();
        Self {
            topics: metadata.topics.clone(),
            nodes: nodes
                .map(|node| (node.id, (node.disk, node.process, node.state, node.zone.clone())))
                .collect(),
            gone_disks: metadata.gone_disks.clone(),
            replication: metadata.replication,
            present: partitions.cluster().present(metadata),
        }
    }
}

/// Segments that this process leads and that should be stored otherwise, and why.
fn departing(partitions: &Partitions) -> Vec<(Segment, Reason)> {
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
            if !is_ours {
                continue;
            }
            if let Some(reason) = reason_to_roll(metadata, route.topic.id, partition.index, &present) {
                found.push((open.clone(), reason));
                if found.len() == ROLLS_MAX {
                    return found;
                }
            }
        }
    }
    found
}

async fn roll(partitions: &Partitions, segment: &Segment, reason: Reason) {
    if let Err(error) = partitions.end_segment(segment, reason).await {
        let segment = segment.descriptor.id;
        tracing::warn!(%segment, %reason, %error, "a segment that should be stored otherwise cannot be rolled yet");
    }
}
