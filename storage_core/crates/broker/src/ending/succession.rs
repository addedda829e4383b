//! Watching the leaders of the segments that this node stores: when one is gone, somebody must decide where its segment
//! ends. Each replica waits a little longer than the one before it in the set, so that mostly one of them tries.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use imbl::OrdMap;
use tokio::sync::mpsc;
use walrus_metadata::{Metadata, Node, Segment, SegmentState, Topic};
use walrus_model::{Ballot, Descriptor, DiskId, NodeId, ProcessId, SegmentId, TopicId};
use walrus_replica::Part;

use crate::cluster::routing::is_led_by;
use crate::cluster::segment::log_id;
use crate::copies::Copies;
use crate::ending::recovery;
use crate::node::error::Error;
use crate::node::patience;

/// Limit on the recoveries at the same time: each costs commands, which the metadata take together.
const AT_ONCE: usize = 64;

/// Why a segment needs somebody else to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// Its leader's process is not the node's any more, as the metadata say or the node itself: a leader never resumes (R7).
    Restarted,
    /// Its only copy has lost its votes, or its disk.
    Forgotten,
    /// Its leader's node does not answer.
    Silent,
    /// Its leader's node answers, and hears nothing of the metadata: it may not know that it leads, for it has written nothing.
    Deaf,
    /// Its leader's process is this one, and can lead it no more: only an append would bring it forward, and a reader waits.
    Unable,
    /// It was adopted: it may have been written and sealed before metadata forgot it (R6).
    Adopted,
    /// Somebody has begun to end it and may be stuck.
    Attempt(Ballot),
}

impl Cause {
    fn name(self) -> &'static str {
        match self {
            Self::Restarted => "leader_restarted",
            Self::Forgotten => "votes_lost",
            Self::Silent => "leader_silent",
            Self::Deaf => "leader_deaf",
            Self::Unable => "leader_unable",
            Self::Adopted => "adopted",
            Self::Attempt(_) => "attempt_stuck",
        }
    }

    fn patience(self) -> Duration {
        match self {
            // Whoever deposed it is at work, as a rule, and metadata will say so.
            Self::Unable => patience::UNABLE_LEADER,
            Self::Deaf => patience::DEAF_LEADER,
            Self::Attempt(_) => patience::OTHERS_ATTEMPT,
            Self::Restarted | Self::Forgotten | Self::Silent | Self::Adopted => Duration::ZERO,
        }
    }
}

/// What this node sees of those that lead. A change of it is a reason to look at the segments; that a lease was renewed is none.
#[derive(Default, PartialEq, Eq)]
struct Sight {
    /// The topics, with their segments.
    topics: OrdMap<TopicId, Arc<Topic>>,
    /// The processes that run on the nodes, as the metadata say.
    processes: BTreeMap<NodeId, ProcessId>,
    gone_disks: BTreeSet<DiskId>,
    /// Nodes that do not answer.
    silent: Vec<u32>,
    /// Nodes that answer as another process than the one that is listed.
    replaced: BTreeSet<NodeId>,
    /// Nodes whose lease has lapsed; none while this node does not hold its own, for it may be the one that hears nothing.
    unheard: BTreeSet<NodeId>,
    /// Segments that this process is to lead and cannot lead, and whose end somebody wants to know.
    unable: HashSet<SegmentId>,
}

impl Sight {
    fn take(copies: &Arc<Copies>, metadata: &Metadata) -> Self {
        let cluster = copies.cluster();
        let alive = cluster.present(metadata).alive;
        let hears = metadata.nodes.get(&NodeId(cluster.node_id())).is_some_and(|me| cluster.holds_lease(me));
        let named = |is_meant: &dyn Fn(&Node) -> bool| {
            metadata.nodes.values().filter(|node| is_meant(node)).map(|node| node.id).collect()
        };
        Self {
            topics: metadata.topics.clone(),
            processes: metadata.nodes.values().map(|node| (node.id, node.process)).collect(),
            gone_disks: metadata.gone_disks.clone(),
            silent: cluster.liveness().silent(),
            replaced: named(&|node| cluster.peers().runs_as_another(node.id.0, node.process)),
            unheard: named(&|node| hears && !alive.contains(&node.id)),
            unable: unable_segments(copies, metadata),
        }
    }
}

struct Suspicion {
    cause: Cause,
    since: Instant,
    under_way: bool,
    /// Number of recoveries that were begun.
    attempts: u32,
}

/// Watches the leaders until the node stops.
pub(crate) async fn keep_watch(copies: Arc<Copies>) {
    let shutdown = copies.cluster().tasks().shutdown().clone();
    let mut suspicions: HashMap<SegmentId, Suspicion> = HashMap::new();
    let (finished, mut done) = mpsc::unbounded_channel::<SegmentId>();
    let (mut seen, mut looked) = (Sight::default(), Instant::now());
    loop {
        while let Ok(segment) = done.try_recv() {
            if let Some(suspicion) = suspicions.get_mut(&segment) {
                suspicion.under_way = false;
                suspicion.since = Instant::now() + patience::RECOVERY_RETRY;
            }
        }
        let metadata = copies.cluster().routing().metadata.clone();
        let now = Sight::take(&copies, &metadata);
        if now != seen || !suspicions.is_empty() || looked.elapsed() >= patience::ALL_SEGMENTS_LOOK {
            let suspected = suspects(&copies, &metadata, &now);
            (seen, looked) = (now, Instant::now());
            let known: HashSet<SegmentId> = suspected.iter().map(|(segment, _)| segment.id).collect();
            suspicions.retain(|segment, _| known.contains(segment));
            for segment in due(&copies, &mut suspicions, suspected) {
                recover(&copies, segment, &suspicions[&segment.id], finished.clone());
            }
        }
        // The loop does not look on each change of the metadata, for many come at once.
        if shutdown.run_until_cancelled(tokio::time::sleep(patience::SUSPICION_LOOK)).await.is_none() {
            return;
        }
    }
}

/// Takes note of the suspected segments, and gives those to recover now: those that were suspected for long enough by this node's
/// place among the replicas, as many as may be under way.
fn due<'a>(
    copies: &Arc<Copies>,
    suspicions: &mut HashMap<SegmentId, Suspicion>,
    suspected: Vec<(&'a Descriptor, Cause)>,
) -> Vec<&'a Descriptor> {
    let mut room = AT_ONCE.saturating_sub(suspicions.values().filter(|one| one.under_way).count());
    let mut due = Vec::new();
    for (segment, cause) in suspected {
        let fresh = || Suspicion { cause, since: Instant::now(), under_way: false, attempts: 0 };
        let suspicion = suspicions.entry(segment.id).or_insert_with(fresh);
        if suspicion.under_way {
            continue;
        }
        if suspicion.cause != cause {
            *suspicion = fresh();
        }
        let turn = || patience::RECOVERER_TURN * rank(copies, segment);
        if room > 0 && suspicion.since + cause.patience() + turn() <= Instant::now() {
            suspicion.under_way = true;
            suspicion.attempts = suspicion.attempts.saturating_add(1);
            room -= 1;
            due.push(segment);
        }
    }
    due
}

fn recover(
    copies: &Arc<Copies>,
    segment: &Descriptor,
    suspicion: &Suspicion,
    finished: mpsc::UnboundedSender<SegmentId>,
) {
    let (recovering, segment) = (copies.clone(), segment.clone());
    let (cause, attempt) = (suspicion.cause, suspicion.attempts);
    copies.cluster().tasks().spawn("recovery of a segment", async move {
        let avoid = recovering.cluster().liveness().silent();
        let shutdown = recovering.cluster().tasks().shutdown().clone();
        let ended =
            shutdown.run_until_cancelled(recovery::run(&recovering, &segment, &avoid, cause.name())).await;
        if let Some(Err(error)) = ended {
            warn_ever_less(&segment, cause, attempt, &error);
        }
        let _ = finished.send(segment.id); // the watch may have ended
    });
}

/// Tells that an attempt to recover a segment failed. Where too few disks are there, thousands of segments fail once a second, for as
/// long as that lasts: the log gets the first attempts of each, then ever fewer.
fn warn_ever_less(segment: &Descriptor, cause: Cause, attempt: u32, error: &Error) {
    if attempt.is_power_of_two() {
        tracing::warn!(segment = %segment.id, cause = cause.name(), attempt, %error, "the segment is not recovered yet");
    }
}

/// Unsealed segments that this node stores, or stored as another disk, and whose leader is not there.
fn suspects<'a>(copies: &Arc<Copies>, metadata: &'a Metadata, sight: &Sight) -> Vec<(&'a Descriptor, Cause)> {
    let suspected = last_segments(metadata).filter_map(|segment| {
        let cause = match sight.unable.contains(&segment.descriptor.id) {
            true => Cause::Unable,
            false => cause(copies, metadata, sight, segment)?,
        };
        Some((&segment.descriptor, cause))
    });
    let is_here = |segment: &Descriptor| {
        copies.table().place(segment).is_some() || copies.left().log(log_id(segment)).is_some()
    };
    suspected.filter(|(segment, _)| is_here(segment)).collect()
}

fn last_segments(metadata: &Metadata) -> impl Iterator<Item = &Segment> {
    let partitions = in_turn(metadata).flat_map(|topic| &topic.partitions);
    partitions.filter_map(|partition| partition.segments.last())
}

/// All topics, Walrus's own ones first: clients of cursors and groups wait for those, whatever topics they read, and no
/// more than [`AT_ONCE`] segments are recovered at the same time.
fn in_turn(metadata: &Metadata) -> impl Iterator<Item = &Arc<Topic>> {
    let topics = |internal| metadata.topics.values().filter(move |topic| topic.internal == internal);
    topics(true).chain(topics(false))
}

/// The segments of [`Sight::unable`].
fn unable_segments(copies: &Arc<Copies>, metadata: &Metadata) -> HashSet<SegmentId> {
    let doubted = copies.table().doubted();
    if doubted.is_empty() {
        return doubted;
    }
    let wanted = last_segments(metadata).filter(|segment| doubted.contains(&segment.descriptor.id));
    wanted.filter(|segment| copies.leads_in_vain(segment)).map(|segment| segment.descriptor.id).collect()
}

fn cause(copies: &Arc<Copies>, metadata: &Metadata, sight: &Sight, segment: &Segment) -> Option<Cause> {
    let Descriptor { leader, replicas, .. } = &segment.descriptor;
    match &segment.state {
        SegmentState::Sealed(_) => None,
        SegmentState::Sealing(ballot) if ballot.is_zero() => Some(Cause::Adopted),
        SegmentState::Sealing(ballot) => Some(Cause::Attempt(*ballot)),
        // The only copy is where the leader was: it ends its segment at the first append that needs it, if it knows how, or
        // when the topic keeps nothing of it.
        SegmentState::Open if replicas.len() == 1 => {
            let is_gone = metadata.gone_disks.contains(&replicas[0].disk);
            if is_gone || copies.table().has_forgotten(&segment.descriptor) {
                return Some(Cause::Forgotten);
            }
            let is_left = !is_led_by(*leader, copies.cluster().config());
            (is_left && copies.holds_nothing_kept(&segment.descriptor)).then_some(Cause::Restarted)
        }
        SegmentState::Open => {
            let node = metadata.nodes.get(&leader.node);
            let is_listed = node.is_some_and(|node| node.process == leader.process);
            if !is_listed || sight.replaced.contains(&leader.node) {
                Some(Cause::Restarted)
            } else if copies.cluster().liveness().is_silent(leader.node.0) {
                Some(Cause::Silent)
            } else {
                // One that leads goes on without the metadata; one that has yet to learn that it leads is waited for in vain.
                let is_deaf =
                    sight.unheard.contains(&leader.node) && is_unwritten(copies, &segment.descriptor);
                is_deaf.then_some(Cause::Deaf)
            }
        }
    }
}

/// Whether nobody has written an open segment, as far as this node's copy shows.
fn is_unwritten(copies: &Arc<Copies>, segment: &Descriptor) -> bool {
    copies.own_part(segment.topic, segment.partition, segment.id) == Ok(Part::Fresh)
}

/// How many replicas of the segment try before this one.
fn rank(copies: &Arc<Copies>, segment: &Descriptor) -> u32 {
    let own = copies.table().place(segment).unwrap_or(0);
    let before = segment.replicas[..own].iter().filter(|replica| {
        replica.node != segment.leader.node && !copies.cluster().liveness().is_silent(replica.node.0)
    });
    u32::try_from(before.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use imbl::Vector;
    use walrus_metadata::{ReadMarks, TopicConfig};

    use super::*;

    fn topic(number: u128, internal: bool) -> Arc<Topic> {
        Arc::new(Topic {
            id: TopicId::from_u128(number),
            org: "o".to_owned(),
            name: format!("t{number}"),
            internal,
            config: TopicConfig::default(),
            read: ReadMarks::default(),
            partitions: Vector::new(),
        })
    }

    #[test]
    fn topics_of_cursors_and_groups_are_looked_at_before_all_others() {
        let topics = [topic(1, false), topic(2, true), topic(3, false)];
        let mut metadata = Metadata::default();
        metadata.topics = topics.into_iter().map(|topic| (topic.id, topic)).collect();
        let order: Vec<_> = in_turn(&metadata).map(|topic| topic.id).collect();
        assert_eq!(order, [2, 1, 3].map(TopicId::from_u128));
    }
}
