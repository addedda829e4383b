//! What a leader sends to one other replica: batches as there is room, votes that are asked for, one connection at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use prost::Message as _;
use walrus_replica::{Message, Refusal, Reply};

use crate::copies::Copies;
use crate::copies::wire::{self, Ask};
use crate::node::budget::Purpose;
use crate::node::error::{Error, Result};
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::node::proto::peer::{Kind, ReplicaAnswer};
use crate::partition::leader::Leader;
use crate::partition::link::Link;
use crate::peer::{CallError, Lane};

/// Bytes of one message.
const MESSAGE_BYTES: usize = 1 << 20;
/// Bytes on the way to one replica; more waits in the leader's window.
const WINDOW_BYTES: usize = 8 << 20;
/// Largest batch that is sent by its appender.
const ALONE_BYTES_MAX: usize = 16 << 10;
/// Messages on the way to one replica.
const WINDOW_MESSAGES: usize = 256;

/// Serves one replica until the leader is closed.
pub(crate) async fn follow(copies: Arc<Copies>, leader: Arc<Leader>, place: usize) {
    let node = leader.descriptor.replicas[place].node.0;
    let shutdown = copies.cluster().tasks().shutdown().clone();
    let serving = async {
        let mut is_reported = false;
        loop {
            let ended = session(&copies, &leader, place).await;
            *leader.link(place).lock() = None;
            if let Err(error) = ended {
                if !std::mem::replace(&mut is_reported, true) {
                    tracing::info!(segment = leader.label(), node, %error, "a replica is not served, trying on");
                }
            } else {
                is_reported = false;
            }
            tokio::time::sleep(patience::REPLICA_RETRY).await;
        }
    };
    tokio::select! {
        () = serving => {}
        () = leader.closed.cancelled() => {}
        () = shutdown.cancelled() => {}
    }
    *leader.link(place).lock() = None;
}

/// One connection: ends when it does, or when an answer is missing.
async fn session(copies: &Arc<Copies>, leader: &Arc<Leader>, place: usize) -> Result<()> {
    let node = leader.descriptor.replicas[place].node.0;
    let connection = copies.cluster().peers().connection(node, Lane::Replica).await?;
    // Also after a rollback of the metadata: a replica that does not know the segment any more, or not yet, refuses it.
    copies.prepare_on(node, &leader.descriptor, &leader.first_producers).await?;
    let link = Link::new(connection.clone());
    let way = link.way.clone();
    leader.reconnected(copies, place);
    *leader.link(place).lock() = Some(link);
    leader.ring_for_batches(place);
    loop {
        tokio::select! {
            () = leader.bell(place) => {}
            () = connection.closed() => return Ok(()),
            () = way.over.cancelled() => return Ok(()),
        }
        if let Some(link) = &*leader.link(place).lock() {
            send_all(link, copies, leader, place)?;
        }
    }
}

/// Sends a batch that was just appended, if nothing is on the way to the replica: there is nothing to send it with, and to wake
/// the replica's task takes about as long as the disk. Else rings.
pub(crate) fn send_alone(copies: &Arc<Copies>, leader: &Arc<Leader>, place: usize, bytes: usize) {
    let link = leader.link(place).try_lock();
    match link.as_deref() {
        Some(Some(link)) if bytes <= ALONE_BYTES_MAX && link.is_idle() && !leader.has_mail(place) => {
            if send_all(link, copies, leader, place).is_err() {
                link.way.over.cancel();
            }
        }
        _ => leader.ring(place),
    }
}

/// Sends mail, and batches as there is room.
fn send_all(link: &Link, copies: &Arc<Copies>, leader: &Arc<Leader>, place: usize) -> Result<()> {
    while let Some(mail) = leader.take_mail(place) {
        let ask = match mail {
            Message::Accept(accept) => leader.missing(&accept, MESSAGE_BYTES)?,
            Message::Assigned(assigned) => Ask::Assigned(assigned),
            other => return Err(Error::Internal { message: format!("a leader sends {other:?}") }),
        };
        send(link, copies, leader, place, ask)?;
    }
    while link.way.bytes.load(Ordering::Relaxed) < WINDOW_BYTES
        && link.way.messages.load(Ordering::Relaxed) < WINDOW_MESSAGES
        && let Some(append) = leader.next_append(place, MESSAGE_BYTES)?
    {
        send(link, copies, leader, place, Ask::Append(append))?;
    }
    Ok(())
}

fn send(link: &Link, copies: &Arc<Copies>, leader: &Arc<Leader>, place: usize, ask: Ask) -> Result<()> {
    let disk = leader.descriptor.replicas[place].disk;
    let payload = wire::encode_ask(leader.descriptor.id, disk, ask, copies.cluster().metadata_version())
        .encode_to_vec();
    let bytes = payload.len();
    link.way.bytes.fetch_add(bytes, Ordering::Relaxed);
    link.way.messages.fetch_add(1, Ordering::Relaxed);
    let completion = {
        let (copies, leader, way) = (Arc::downgrade(copies), leader.clone(), link.way.clone());
        Box::new(move |answer| {
            way.bytes.fetch_sub(bytes, Ordering::Relaxed);
            way.messages.fetch_sub(1, Ordering::Relaxed);
            match (copies.upgrade(), decode(answer)) {
                (Some(copies), Ok(reply)) => {
                    // It fills its holes from the logs of others: the next session asks again.
                    if let Reply::Refused(Refusal::Holes { holes }) = &reply {
                        tracing::debug!(segment = leader.label(), place, ?holes, "a replica has holes");
                        way.over.cancel();
                    }
                    leader.reply(&copies, place, reply);
                    leader.ring_for_batches(place);
                }
                (_, Err(error)) => {
                    tracing::debug!(segment = leader.label(), place, %error, "a replica does not answer");
                    way.over.cancel();
                }
                (None, _) => way.over.cancel(),
            }
        })
    };
    let deadline = Instant::now() + patience::REPLICA_ANSWER;
    link.connection
        .send((Kind::Replica, Purpose::Replication), payload.into(), deadline, completion)
        .map_err(|reason| Obstacle::ConnectionBroken { reason: reason.to_owned() }.into())
}

/// The answer of a replica.
pub(crate) fn decode(answer: Result<bytes::Bytes, CallError>) -> Result<Reply> {
    let lost = |reason: String| Error::from(Obstacle::ConnectionBroken { reason });
    match answer {
        Ok(payload) => {
            let answer = ReplicaAnswer::decode(payload).map_err(|problem| lost(problem.to_string()))?;
            wire::decode_reply(answer)
        }
        Err(CallError::Refused(error)) => Err(error),
        Err(CallError::NotSent(reason) | CallError::Lost(reason)) => Err(lost(reason)),
    }
}
