//! The hand-over of a node that stops: the segments that it leads are rolled, so that other nodes lead the next ones before it
//! goes. Nothing fails over then, and no append waits for a silence to be noticed. Where nobody can take them it ends at once:
//! the nodes of a cluster that all stop do not wait for each other.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use walrus_metadata::rolling::Reason;
use walrus_metadata::{
    Metadata, Node, NodeState, Present, Request, Segment, SegmentState, has_other_leaders, successor,
};
use walrus_model::{Descriptor, NodeId, SegmentId};

use crate::cluster::Cluster;
use crate::cluster::routing::is_led_by;
use crate::cluster::segment::log_id;
use crate::node::patience;
use crate::partition::Partitions;

/// Limit on the segments that are rolled at the same time: each costs commands, which the metadata take together.
const ROLLS_MAX: usize = 64;

/// What came of a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandOver {
    /// Segments that this process led and whose successors other nodes lead.
    pub handed_over: u64,
    /// Open segments that it leads still; other nodes, or its next process, will decide where they end.
    pub staying: u64,
    /// Why the hand-over ended before it was through.
    pub why: Option<Staying>,
}

/// Why a node that stops leads segments still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staying {
    /// No other node may lead them, or too few nodes are left to store them.
    NobodyElse,
    /// This node has lost its lease: the metadata have no majority or no leader.
    WithoutMetadata,
    /// The time was up.
    Late,
    /// The node was told to stop at once.
    Hurried,
}

impl Staying {
    /// A word for it, for logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NobodyElse => "nobody else can lead them",
            Self::WithoutMetadata => "the metadata do not answer",
            Self::Late => "the time was up",
            Self::Hurried => "told to stop at once",
        }
    }
}

impl fmt::Display for Staying {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// How far a hand-over is.
struct Progress {
    began: Instant,
    /// The segments that were asked to be rolled and are led here still.
    asked: HashMap<SegmentId, Asked>,
    /// The number of those that are not led here any more.
    handed_over: u64,
}

/// A segment that was asked to be rolled.
#[derive(Clone, Copy)]
struct Asked {
    at: Instant,
    /// Whether somebody used it before; its roll opens it, too.
    was_in_use: bool,
}

/// Hands over whatever this process leads, for at most `patience`. No segment begins to be led here from now on.
pub(crate) async fn run(partitions: &Arc<Partitions>, patience: Duration) -> HandOver {
    let cluster = partitions.cluster();
    cluster.leave();
    let mut progress = Progress { began: Instant::now(), asked: HashMap::new(), handed_over: 0 };
    let why = tokio::select! {
        why = hand_over(partitions, &mut progress, patience) => why,
        () = tokio::time::sleep(patience) => Some(Staying::Late),
        () = cluster.tasks().shutdown().cancelled() => Some(Staying::Hurried),
    };
    let led = led(cluster);
    progress.note(&led);
    HandOver { handed_over: progress.handed_over, staying: led.len() as u64, why }
}

/// Rolls segments until none is led here, or none can be led elsewhere.
async fn hand_over(
    partitions: &Arc<Partitions>,
    progress: &mut Progress,
    patience: Duration,
) -> Option<Staying> {
    let cluster = partitions.cluster();
    let mut announcement = std::pin::pin!(announce(cluster, patience));
    let (mut is_announced, mut silent_since) = (false, None);
    loop {
        let (metadata, led) = (cluster.routing().metadata.clone(), led(cluster));
        progress.note(&led);
        let has_left = led.is_empty() && !is_expected(partitions, &metadata);
        if has_left && is_announced {
            return None;
        }
        let present = cluster.present(&metadata);
        let answering = answering(cluster, &present);
        if can_anybody_take(cluster, &metadata, &led, &answering) {
            silent_since = None;
        } else {
            // Those who came back a moment ago are silent until they have answered once more.
            let since = *silent_since.get_or_insert_with(Instant::now);
            let may_answer_yet = can_anybody_take(cluster, &metadata, &led, &present)
                && since.elapsed() < patience::HAND_OVER_HOPES;
            if !may_answer_yet {
                return (!has_left).then_some(Staying::NobodyElse);
            }
        }
        if !metadata.nodes.get(&NodeId(cluster.node_id())).is_some_and(|me| cluster.holds_lease(me)) {
            return Some(Staying::WithoutMetadata);
        }
        let movable = led.iter().filter(|segment| can_move(cluster, &metadata, segment, &answering));
        let is_in_use =
            |segment: &Segment| partitions.leaders().known_leader(segment.descriptor.id).is_some();
        let rolls =
            progress.take_next(movable, is_in_use).into_iter().map(|segment| roll(partitions, segment));
        join_all(rolls).await;
        // The loop does not look on each change of the metadata: each roll makes some, and a look costs what is led.
        let pause = tokio::time::sleep(patience::HAND_OVER_LOOK);
        tokio::select! {
            () = &mut announcement, if !is_announced => is_announced = true,
            () = pause => {}
        }
    }
}

impl Progress {
    /// Takes note of what is led here now.
    fn note(&mut self, led: &[Segment]) {
        let before = self.asked.len();
        self.asked.retain(|asked, _| led.iter().any(|segment| segment.descriptor.id == *asked));
        self.handed_over += (before - self.asked.len()) as u64;
    }

    /// Takes the segments to roll now, as many as may be under way. Those in use go first, and for a while alone: their clients
    /// would wait for all the others otherwise, each of which costs commands as well.
    fn take_next<'a>(
        &mut self,
        movable: impl Iterator<Item = &'a Segment>,
        is_in_use: impl Fn(&Segment) -> bool,
    ) -> Vec<&'a Segment> {
        let now = Instant::now();
        let is_due = |asked: &Asked| now.duration_since(asked.at) >= patience::HAND_OVER_RETRY;
        let was_in_use = |segment: &Segment| {
            let asked = self.asked.get(&segment.descriptor.id);
            asked.map_or_else(|| is_in_use(segment), |asked| asked.was_in_use)
        };
        let (in_use, idle): (Vec<&Segment>, Vec<&Segment>) = movable.partition(|segment| was_in_use(segment));
        let idle_wait =
            !in_use.is_empty() && now.duration_since(self.began) < patience::HAND_OVER_OF_IDLE_WAITS;
        let idle = if idle_wait { Vec::new() } else { idle };
        let in_turn = in_use.into_iter().map(|segment| (segment, true));
        let in_turn = in_turn.chain(idle.into_iter().map(|segment| (segment, false)));
        let under_way = self.asked.values().filter(|asked| !is_due(asked)).count();
        let due = in_turn.filter(|(segment, _)| self.asked.get(&segment.descriptor.id).is_none_or(is_due));
        let next: Vec<_> = due.take(ROLLS_MAX.saturating_sub(under_way)).collect();
        let asked =
            next.iter().map(|&(segment, was_in_use)| (segment.descriptor.id, Asked { at: now, was_in_use }));
        self.asked.extend(asked);
        next.into_iter().map(|(segment, _)| segment).collect()
    }
}

/// Tells the metadata that this process stops, so that they give it nothing new. Without that, as in a cluster one of whose
/// members does not know the command yet, it may be given segments while it hands others over, and hands those over too.
async fn announce(cluster: &Cluster, patience: Duration) {
    let routing = cluster.routing();
    let me = routing.metadata.nodes.get(&NodeId(cluster.node_id()));
    let Some(me) = me.filter(|me| may_announce(cluster, &routing.metadata, me)) else { return };
    let request = Request::SetNodeState { node: me.id, process: me.process, state: NodeState::Stopping };
    drop(routing);
    if let Err(refusal) = cluster.control().ask(&request, patience).await {
        tracing::warn!(?refusal, "the metadata do not know that this node stops");
    }
}

fn may_announce(cluster: &Cluster, metadata: &Metadata, me: &Node) -> bool {
    metadata.knows_placement() && me.process == cluster.config().process
}

/// The open segments that this process leads.
fn led(cluster: &Cluster) -> Vec<Segment> {
    let routing = cluster.routing();
    let last =
        routing.topics().flat_map(|route| &route.topic.partitions).filter_map(|one| one.segments.last());
    let is_ours = |segment: &&Segment| {
        segment.state == SegmentState::Open && is_led_by(segment.descriptor.leader, cluster.config())
    };
    last.filter(is_ours).cloned().collect()
}

/// These nodes without those that do not answer.
fn answering(cluster: &Cluster, present: &Present) -> Present {
    let mut answering = present.clone();
    for silent in cluster.liveness().silent() {
        answering.alive.remove(&NodeId(silent));
    }
    answering
}

/// Whether one of the present nodes could lead what this one leads, or may be given, in its place.
fn can_anybody_take(cluster: &Cluster, metadata: &Metadata, led: &[Segment], present: &Present) -> bool {
    match led.is_empty() {
        true => has_other_leaders(metadata, NodeId(cluster.node_id()), present),
        false => led.iter().any(|segment| can_move(cluster, metadata, segment, present)),
    }
}

/// Whether another one of the present nodes could lead the segment that follows.
fn can_move(cluster: &Cluster, metadata: &Metadata, segment: &Segment, present: &Present) -> bool {
    let (segment, me) = (&segment.descriptor, NodeId(cluster.node_id()));
    successor(metadata, segment.topic, segment.partition, segment.id, &[me], present).is_some()
}

/// Whether a segment may yet come to be led here: somebody decides where the one before it ends, or its leader, which answers,
/// has had this node make the log of the next one and ends it just now.
fn is_expected(partitions: &Partitions, metadata: &Metadata) -> bool {
    let cluster = partitions.cluster();
    let (config, liveness) = (cluster.config(), cluster.liveness());
    let is_ending = |segment: &Segment, next: &Descriptor| match segment.state {
        SegmentState::Sealing(_) => true,
        SegmentState::Open => {
            let leader = segment.descriptor.leader;
            let is_elsewhere = !is_led_by(leader, config) && !liveness.is_silent(leader.node.0);
            is_elsewhere && partitions.copies().bucket().log(log_id(next)).is_some()
        }
        SegmentState::Sealed(_) => false,
    };
    let partitions = metadata.topics.values().flat_map(|topic| &topic.partitions);
    partitions.filter_map(|partition| partition.segments.last()).any(|segment| {
        let next = segment.successor.as_ref().filter(|next| is_led_by(next.leader, config));
        next.is_some_and(|next| is_ending(segment, next))
    })
}

async fn roll(partitions: &Partitions, segment: &Segment) {
    if !partitions.leaders().may_lead(segment) {
        return; // it was written before: whoever suspects its leader ends it
    }
    if let Err(error) = partitions.end_segment(segment, Reason::Stopping).await {
        let segment = segment.descriptor.id;
        tracing::warn!(%segment, %error, "a segment cannot be handed over yet");
    }
}
