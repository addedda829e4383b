//! Deciding where a segment ends whose leader does not: a `Recoverer` at work (R4). Any number of nodes may try at once;
//! all decide the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use prost::Message as _;
use tokio::sync::mpsc;
use walrus_metadata::{
    Attempt, CommandRejection, Request as MetadataRequest, RequestError, Response, SegmentState,
};
use walrus_model::{Ballot, Descriptor, Digest, Epoch, NodeId, Offset, SegmentId, Value};
use walrus_replica::{Accept, Mark, Message, Recoverer, RecovererInput, RecovererOutput, Reply};

use crate::copies::Copies;
use crate::copies::sealing;
use crate::copies::wire::{self, Ask};
use crate::ending::publish;
use crate::node::error::{Error, Result};
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::node::proto::peer::{ReplicaAnswer, SegmentInfo};
use crate::peer::Request;

/// Tries to end a segment until metadata has its end. Gives up where metadata does not list it or refuses, or too few replicas
/// answer in time. `reason` is for people.
pub(crate) async fn run(
    copies: &Arc<Copies>,
    segment: &Descriptor,
    avoid: &[u32],
    reason: &str,
) -> Result<()> {
    let started = Instant::now();
    let place = copies.table().place(segment).unwrap_or(segment.replicas.len());
    let mut above = segment.epoch;
    loop {
        let news = copies.cluster().news();
        match copies.cluster().current(segment).map(|listed| listed.state) {
            None => return Err(Error::UnknownSegment { segment: segment.id.to_string() }),
            Some(SegmentState::Sealed(_)) => return Ok(()),
            Some(SegmentState::Open | SegmentState::Sealing(_)) => {}
        }
        let Attempt { ballot, successor } = match begin(copies, segment, above, avoid).await {
            Ok(attempt) => attempt,
            // Somebody else was faster, and our snapshot of the metadata is older than that.
            Err(RequestError::Rejected(CommandRejection::Sealed { .. })) => {
                news.wait(patience::NEWS_LOOK).await;
                continue;
            }
            Err(refused) => return Err(refused.into()),
        };
        above = above.max(ballot.epoch);
        tracing::info!(
            segment = %segment.id, number = segment.number, epoch = ballot.epoch.0, reason,
            next_leader = successor.leader.node.0, "recovery of a segment begins"
        );
        match attempt(copies, segment, ballot, &successor).await {
            Ok(Choice { value, is_voted }) => {
                finish(copies, segment, value, is_voted).await?;
                let seconds = started.elapsed().as_secs_f64();
                copies.cluster().metrics().failover_seconds.observe(seconds);
                copies.cluster().metrics().count_failover(reason);
                tracing::info!(segment = %segment.id, number = segment.number, reason, seconds, "segment recovered");
                return Ok(());
            }
            Err(AttemptEnd::Outbid(epoch)) => {
                above = above.max(epoch);
                tracing::info!(segment = %segment.id, epoch = epoch.0, "a higher attempt is known, standing back");
                let factor = u32::try_from(place + 1).unwrap_or(u32::MAX);
                copies.cluster().news().wait(patience::OUTBID_STANDS_BACK * factor).await;
            }
            Err(AttemptEnd::Late) => {
                return Err(Obstacle::ReplicasSilent { segment: segment.id }.into());
            }
        }
    }
}

/// What an attempt chose.
struct Choice {
    value: Value,
    /// The replicas voted for it; else nobody is left to vote, and it is decided only if metadata take it.
    is_voted: bool,
}

/// Why an attempt ended without a choice.
enum AttemptEnd {
    Outbid(Epoch),
    Late,
}

async fn begin(
    copies: &Arc<Copies>,
    segment: &Descriptor,
    above: Epoch,
    avoid: &[u32],
) -> Result<Attempt, RequestError> {
    let request = MetadataRequest::BeginRecovery {
        topic: segment.topic,
        partition: segment.partition,
        segment: segment.id,
        above,
        avoid: avoid.iter().copied().map(NodeId).collect(),
    };
    match copies.cluster().control().ask(&request, patience::METADATA_ANSWER).await? {
        Response::Attempt(attempt) => Ok(*attempt),
        other => Err(RequestError::unavailable(format!("the answer to begin_recovery is {other:?}"))),
    }
}

async fn attempt(
    copies: &Arc<Copies>,
    segment: &Descriptor,
    ballot: Ballot,
    successor: &Descriptor,
) -> Result<Choice, AttemptEnd> {
    let mut machine = Recoverer::new(segment.clone(), ballot, successor.clone());
    let (replies, mut arrived) = mpsc::unbounded_channel::<AttemptEvent>();
    // Nodes from which the batches of a place are fetched, where that is not the one that stored them.
    let mut left_with: HashMap<usize, u32> = HashMap::new();
    look_for_left(copies, segment, replies.clone());
    let mut inputs = vec![RecovererInput::Ask];
    let until = tokio::time::Instant::now() + patience::RECOVERY_ATTEMPT;
    loop {
        for input in inputs.drain(..) {
            for output in machine.step(input) {
                match output {
                    RecovererOutput::Send { to, message, fill } => {
                        let node =
                            |place| left_with.get(&place).copied().unwrap_or(segment.replicas[place].node.0);
                        let sources = fill.map(|(from, sources)| Fill {
                            from,
                            nodes: sources.into_iter().map(node).collect(),
                        });
                        ask(copies, segment, to, message, sources, replies.clone());
                    }
                    RecovererOutput::Decided(value) => return Ok(Choice { value, is_voted: true }),
                    RecovererOutput::Unvoted(value) => return Ok(Choice { value, is_voted: false }),
                    RecovererOutput::Outbid(promised) => return Err(AttemptEnd::Outbid(promised.epoch)),
                }
            }
        }
        tokio::select! {
            heard = arrived.recv() => match heard.expect("the other end is held here") {
                AttemptEvent::Reply { from, reply } => {
                    tracing::debug!(segment = %segment.id, from, ?reply, "a replica answers the recovery");
                    inputs.push(RecovererInput::Reply { from, reply });
                }
                AttemptEvent::Gone { replica, left } => {
                    tracing::debug!(segment = %segment.id, replica, ?left, "the disk of a replica is gone");
                    left_with.extend(left.map(|(node, _)| (replica, node)));
                    inputs.push(RecovererInput::Gone { replica, left: left.map(|(_, last)| last) });
                }
            },
            () = tokio::time::sleep(patience::RECOVERY_ASKS_AGAIN) => inputs.push(RecovererInput::Ask),
            () = tokio::time::sleep_until(until) => return Err(AttemptEnd::Late),
        }
    }
}

/// What happens to an attempt from outside.
#[expect(clippy::large_enum_variant, reason = "a few are under way, and most are replies")]
enum AttemptEvent {
    /// The replica of a place answered.
    Reply { from: usize, reply: Reply },
    /// The disk of a place is gone; perhaps its log is left with a node, whole up to a mark.
    Gone { replica: usize, left: Option<(u32, Mark)> },
}

/// What a replica lacks of the value's batches: from where on, and which nodes have them.
struct Fill {
    from: Offset,
    nodes: Vec<u32>,
}

/// Tells an attempt which disks are gone, once all nodes that are there have said which logs are left with them. One log stands
/// for each copy that is gone, the longest first.
fn look_for_left(copies: &Arc<Copies>, segment: &Descriptor, heard: mpsc::UnboundedSender<AttemptEvent>) {
    let metadata = copies.cluster().routing().metadata.clone();
    let is_gone = |place: &usize| metadata.gone_disks.contains(&segment.replicas[*place].disk);
    let gone: Vec<usize> = (0..segment.replicas.len()).filter(is_gone).collect();
    if gone.is_empty() {
        return;
    }
    let (asking, uuid) = (copies.clone(), segment.id);
    copies.cluster().tasks().spawn("logs left of a segment", async move {
        let mut left = Vec::new();
        for node in metadata.nodes.keys().map(|node| node.0) {
            if asking.cluster().liveness().is_silent(node) {
                continue;
            }
            match left_with(&asking, uuid, node).await {
                Ok(mark) => left.extend(mark.map(|mark| (node, mark))),
                Err(error) => {
                    // The next attempt asks again: what nobody asked for would be taken for lost.
                    tracing::debug!(segment = %uuid, node, %error, "a node does not say whether a log is left with it");
                    return;
                }
            }
        }
        left.sort_by_key(|(_, mark)| std::cmp::Reverse(mark.end));
        let mut left = left.into_iter();
        for replica in gone {
            drop(heard.send(AttemptEvent::Gone { replica, left: left.next() })); // the attempt may be over
        }
    });
}

/// How far a segment's log goes that a former disk left with a node; `None` if there is none, or it is not whole.
async fn left_with(copies: &Arc<Copies>, segment: SegmentId, node: u32) -> Result<Option<Mark>> {
    let asked = crate::cluster::segment::uuid_bytes(segment.0);
    let question = SegmentInfo { left: true, ..copies.segment_info(vec![asked], false) };
    let facts = copies.facts_of(node, &question, patience::RECOVERY_ANSWER).await?;
    let found = facts.into_iter().find(|facts| facts.left);
    Ok(found.map(|facts| Mark { end: Offset(facts.end_offset), digest: Digest(facts.digest) }))
}

/// Asks a replica, fetching first what it lacks; a reply that does not come is not told.
fn ask(
    copies: &Arc<Copies>,
    segment: &Descriptor,
    to: usize,
    message: Message,
    fill: Option<Fill>,
    replies: mpsc::UnboundedSender<AttemptEvent>,
) {
    let (asking, segment) = (copies.clone(), segment.clone());
    copies.cluster().tasks().spawn("recovery", async move {
        let asked = match message {
            Message::Fence(fence) => Ok(Ask::Fence(fence, Box::new(segment.clone()))),
            Message::Accept(accept) => with_missing(&asking, &segment, accept, fill).await,
            other => Err(Error::Internal { message: format!("a recoverer sends {other:?}") }),
        };
        let reply = match asked {
            Ok(ask) => deliver(&asking, &segment, to, ask).await,
            Err(error) => Err(error),
        };
        match reply {
            Ok(reply) => drop(replies.send(AttemptEvent::Reply { from: to, reply })), // the attempt may be over
            Err(error) => {
                let node = segment.replicas[to].node.0;
                tracing::debug!(segment = %segment.id, node, %error, "a replica does not answer the recovery");
            }
        }
    });
}

/// Fetches the batches that a replica lacks of a value and puts them into the message that asks for its vote.
async fn with_missing(
    copies: &Arc<Copies>,
    segment: &Descriptor,
    accept: Accept,
    fill: Option<Fill>,
) -> Result<Ask> {
    let end = accept.value.end;
    let nothing = |accept| Ok(Ask::Accept(accept, end, Vec::new(), Box::new(segment.clone())));
    let Some(Fill { from, nodes }) = fill else { return nothing(accept) };
    // Nobody has the lost batches; the replica leaves them out by itself.
    let from = accept.value.past_lost(from);
    if from >= end {
        return nothing(accept);
    }
    let mut failure = Error::from(Obstacle::NobodyHasAll { segment: segment.id });
    for node in nodes {
        match copies.fetch(segment.id, node, from).await {
            Ok(batches) => return Ok(Ask::Accept(accept, from, batches, Box::new(segment.clone()))),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

async fn deliver(copies: &Arc<Copies>, segment: &Descriptor, to: usize, ask: Ask) -> Result<Reply> {
    let replica = segment.replicas[to];
    let request = wire::encode_ask(segment.id, replica.disk, ask, copies.cluster().metadata_version());
    if replica.node.0 == copies.cluster().node_id() {
        let answer = copies.answer_replica(request).await?;
        return wire::decode_reply(answer);
    }
    let payload = copies
        .cluster()
        .peers()
        .call(replica.node.0, Request::Replica(request), patience::RECOVERY_ANSWER)
        .await?;
    let wrong = |problem: prost::DecodeError| Error::Internal { message: problem.to_string() };
    wire::decode_reply(ReplicaAnswer::decode(payload).map_err(wrong)?)
}

/// Carries out a choice: seals the own copy, so that the next leader can be given the producers at the end, and tells
/// metadata.
async fn finish(copies: &Arc<Copies>, segment: &Descriptor, value: Value, is_voted: bool) -> Result<()> {
    if !value.possible_loss.is_empty() {
        copies.cluster().metrics().possible_losses.inc();
        tracing::error!(
            alarm = "possible_loss", segment = %segment.id, end = value.end.0,
            "records from this end on may be lost: too few sound replicas were left"
        );
    }
    if !value.lost.is_empty() {
        copies.cluster().metrics().lost_ranges.inc_by(value.lost.len() as u64);
        tracing::error!(
            alarm = "lost_records", segment = %segment.id, lost = ?value.lost,
            "these records rotted on every disk that had them: all copies leave them out"
        );
    }
    if !is_voted {
        return publish::publish(copies, segment, &value).await;
    }
    if copies.table().place(segment).is_some()
        && let Err(error) = sealing::seal_here(copies, segment, &value).await
    {
        tracing::warn!(segment = %segment.id, %error, "the own copy is not whole yet");
    }
    publish::prepare_ahead(copies, segment, &value).await;
    publish::publish(copies, segment, &value).await
}
