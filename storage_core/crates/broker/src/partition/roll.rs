//! The planned roll of a segment: a successor is allotted in metadata, its leader prepares its log, then the replicas vote
//! for the end, which decides, and metadata learns it. Each step may be repeated; the vote is asked for once.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use walrus_metadata::rolling::Reason;
use walrus_metadata::{NodeState, Request, Response, Segment};
use walrus_model::{Descriptor, NodeId, Value};

use crate::cluster::segment::label;
use crate::copies::Copies;
use crate::copies::sealing;
use crate::ending::publish;
use crate::ending::recovery;
use crate::node::error::{Error, Result};
use crate::node::names::TopicPath;
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::partition::leader::Leader;

/// A segment that must end.
#[derive(Clone)]
pub(crate) struct Roll {
    pub(crate) segment: Descriptor,
    pub(crate) label: Arc<str>,
    pub(crate) reason: Reason,
    /// `None` if an earlier process of this node led it: whatever log the disk has is rolled.
    leader: Option<Arc<Leader>>,
    started: Instant,
}

impl Roll {
    /// A roll of a segment that this process leads and has frozen.
    pub(crate) fn of_leader(leader: Arc<Leader>, reason: Reason) -> Self {
        let (segment, label) = (leader.descriptor.clone(), leader.key.label.clone());
        Self { segment, label, reason, leader: Some(leader), started: Instant::now() }
    }

    /// A roll of a segment that an earlier process of this node led: a leader never resumes.
    pub(crate) fn of_earlier_process(topic: &TopicPath, segment: &Segment) -> Self {
        let segment = segment.descriptor.clone();
        let label = label(topic, &segment).into();
        Self { segment, label, reason: Reason::Restarted, leader: None, started: Instant::now() }
    }

    pub(crate) fn leader(&self) -> Option<&Arc<Leader>> {
        self.leader.as_ref()
    }
}

/// Has a successor allotted before it is needed. Does nothing while that is under way or done.
pub(crate) fn allot_ahead(copies: &Arc<Copies>, leader: &Arc<Leader>) {
    if leader.is_held()
        || leader.allotting.try_lock().is_err()
        || listed_successor(copies, &leader.descriptor).is_some()
    {
        return;
    }
    let (asking, leader) = (copies.clone(), leader.clone());
    copies.cluster().tasks().spawn("allot", async move {
        let Ok(_turn) = leader.allotting.try_lock() else { return };
        if let Err(error) = begin_roll(&asking, &leader.descriptor, &[], patience::METADATA_ANSWER).await {
            tracing::warn!(segment = leader.label(), %error, "no successor could be allotted ahead");
            leader.hold(patience::WITHOUT_SUCCESSOR);
        }
    });
}

/// Rolls a segment; on return metadata has the successor. It can be run again after an error, and after it was cancelled at
/// any point. After an error either nothing was done and the leader still leads, or it takes nothing more.
pub(crate) async fn run(copies: &Arc<Copies>, topic: &TopicPath, roll: &Roll) -> Result<()> {
    let Some(leader) = &roll.leader else {
        // Nobody may go on in it: its end is decided as after a failure.
        return recovery::run(copies, &roll.segment, &[], roll.reason.name()).await;
    };
    if leader.is_leading() {
        await_acked(leader).await?;
        let successor = find_successor(copies, roll, leader).await?;
        leader.freeze(copies, &successor);
    }
    let value = await_decision(copies, roll, leader).await?;
    sealing::seal_here(copies, &roll.segment, &value).await?;
    publish::publish(copies, &roll.segment, &value).await?;
    let pause = roll.started.elapsed();
    copies.cluster().metrics().count_roll(roll.reason);
    copies.cluster().metrics().roll_seconds.observe(pause.as_secs_f64());
    let successor = &value.successor;
    tracing::info!(
        topic = %topic,
        segment = roll.label.as_ref(),
        reason = %roll.reason,
        end = value.end.0,
        next_leader = successor.leader.node.0,
        next_epoch = successor.epoch.0,
        pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
        "segment sealed, successor opened"
    );
    Ok(())
}

/// Waits until everything that was appended is acknowledged, so that nothing has to move to the next segment.
async fn await_acked(leader: &Leader) -> Result<()> {
    let end = leader.log().end_offset().0;
    let mut watermark = leader.watch_high_watermark();
    let acked =
        tokio::time::timeout(patience::LAST_APPENDS_ACKED, watermark.wait_for(|reached| *reached >= end));
    match acked.await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(Obstacle::LastBatchesUnacknowledged { label: leader.label().to_owned() }.into()),
    }
}

/// Waits for the end of a frozen segment: it is decided by the votes for ballot 0, else by a recovery (R3).
async fn await_decision(copies: &Arc<Copies>, roll: &Roll, leader: &Leader) -> Result<Value> {
    let mut end = leader.watch_end();
    let is_voted = tokio::time::timeout(patience::ROLL_VOTES, end.wait_for(Option::is_some)).await.is_ok();
    if !is_voted {
        tracing::warn!(segment = leader.label(), "the votes for its end take too long, recovering it");
        recovery::run(copies, &roll.segment, &[], "votes_missing").await?;
        // Metadata has the decision, and so has the leader when its snapshot comes in.
        drop(tokio::time::timeout(patience::METADATA_ANSWER, end.wait_for(Option::is_some)).await);
    }
    let value = end.borrow().clone();
    let unknown = || Obstacle::LeaderEndUnknown { label: leader.label().to_owned() }.into();
    value.map(|value| (*value).clone()).ok_or_else(unknown)
}

/// Finds a successor whose leader's node has its log on disk, and answers it with its base.
async fn find_successor(copies: &Arc<Copies>, roll: &Roll, leader: &Leader) -> Result<Descriptor> {
    let end = leader.log().end_offset();
    let producers = copies.producers_behind(&roll.segment, leader.log().producers());
    let mut avoid = if roll.reason.sends_away() { vec![copies.cluster().node_id()] } else { Vec::new() };
    let mut failing_since = None;
    loop {
        let successor = allot(copies, roll, leader, &avoid).await?;
        let node = successor.leader.node.0;
        let descriptor = Descriptor { base_offset: Some(end), ..successor };
        match copies.prepare_successor(&descriptor, &producers).await {
            Ok(()) => return Ok(descriptor),
            Err(error) => {
                let since = *failing_since.get_or_insert_with(Instant::now);
                let may_answer_yet =
                    matches!(error, Error::Unavailable { .. } | Error::OutcomeUnknown { .. })
                        && !copies.cluster().liveness().is_silent(node)
                        && since.elapsed() <= patience::PREPARING_NODE_PASSED_OVER;
                if !may_answer_yet {
                    tracing::warn!(segment = roll.label.as_ref(), node, %error, "the successor cannot prepare, passing it over");
                    if !avoid.contains(&node) {
                        avoid.push(node);
                    }
                    failing_since = None;
                }
                tokio::time::sleep(patience::STEP_RETRY).await;
            }
        }
    }
}

/// Answers the successor that metadata has, if it can still serve; else has a new one allotted.
async fn allot(copies: &Arc<Copies>, roll: &Roll, leader: &Leader, avoid: &[u32]) -> Result<Descriptor> {
    let late = |_| Obstacle::WithoutSuccessor { label: roll.label.to_string() };
    let _turn =
        tokio::time::timeout(patience::METADATA_ALLOTS, leader.allotting.lock()).await.map_err(late)?;
    if let Some(successor) = listed_successor(copies, &roll.segment)
        && !avoid.contains(&successor.leader.node.0)
        && !copies.cluster().liveness().is_silent(successor.leader.node.0)
        && may_serve(copies, &successor)
    {
        return Ok(successor);
    }
    begin_roll(copies, &roll.segment, avoid, patience::METADATA_ALLOTS).await
}

fn listed_successor(copies: &Arc<Copies>, segment: &Descriptor) -> Option<Descriptor> {
    copies.cluster().current(segment)?.successor
}

/// Whether the process that is to lead a successor still runs and is not about to stop, as far as metadata knows.
fn may_serve(copies: &Arc<Copies>, successor: &Descriptor) -> bool {
    let routing = copies.cluster().routing();
    let node = routing.metadata.nodes.get(&successor.leader.node);
    node.is_some_and(|node| node.process == successor.leader.process && node.state != NodeState::Stopping)
}

async fn begin_roll(
    copies: &Arc<Copies>,
    segment: &Descriptor,
    avoid: &[u32],
    patience: Duration,
) -> Result<Descriptor> {
    let silent = copies.cluster().liveness().silent();
    let avoid = avoid.iter().copied().chain(silent).map(NodeId).collect();
    let request =
        Request::BeginRoll { topic: segment.topic, partition: segment.partition, segment: segment.id, avoid };
    match copies.cluster().control().ask(&request, patience).await? {
        Response::Successor(successor) => Ok(*successor),
        other => Err(Error::Internal { message: format!("the answer to begin_roll: {other:?}") }),
    }
}
