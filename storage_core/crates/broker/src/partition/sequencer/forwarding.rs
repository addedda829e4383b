//! Sending batches to the node that leads: they go in order over one connection, are answered in any order, and are put back in
//! front of the queue, in order, when they did not arrive or may be sent again.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use prost::Message as _;
use walrus_model::SegmentId;

use super::{InFlight, Mode, QueuedBatch, Sequencer, State};
use crate::node::budget::Purpose;
use crate::node::error::{Error, Result};
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::node::proto::peer::{AppendAnswer, ForwardAppend, Kind};
use crate::partition::ack::AppendAck;
use crate::partition::leader::AppendOutcome;
use crate::peer::{CallError, Connection};

impl Sequencer {
    /// Sends a batch to the leader; gives it back if it was not sent, for the connection is gone.
    pub(super) fn send(
        self: &Arc<Self>,
        state: &mut State,
        segment: SegmentId,
        connection: &Arc<Connection>,
        waiting: QueuedBatch,
    ) -> Result<(), QueuedBatch> {
        let now = Instant::now();
        let patience = waiting.deadline.saturating_duration_since(now);
        let request = ForwardAppend {
            topic: Bytes::copy_from_slice(self.topic.0.as_bytes()),
            partition: self.partition,
            batch: waiting.batch.clone(),
            patience_ms: u32::try_from(patience.as_millis()).unwrap_or(u32::MAX),
            metadata_version: self.leaders.cluster().metadata_version(),
            segment: Bytes::copy_from_slice(segment.as_bytes()),
        };
        let number = state.next_sent;
        let this = self.clone();
        let completion = Box::new(move |answer| this.answered(segment, number, answer));
        // The leader gives up first, so that its answer says what became of the batch.
        let deadline = waiting.deadline + patience::FORWARD_BEYOND_LEADER;
        let payload = request.encode_to_vec().into();
        if connection.send((Kind::ForwardAppend, Purpose::Appends), payload, deadline, completion).is_err() {
            return Err(waiting);
        }
        self.leaders.cluster().metrics().forwards.inc();
        state.next_sent += 1;
        state.unanswered += 1;
        state.in_flight.insert(number, InFlight { waiting, returned: false });
        Ok(())
    }

    /// Takes the answer of the leader's node, or the news that the connection to it died.
    fn answered(self: &Arc<Self>, segment: SegmentId, number: u64, answer: Result<Bytes, CallError>) {
        let mut state = self.state.lock();
        state.unanswered -= 1;
        let Some(sent) = state.in_flight.get_mut(&number) else { return };
        match outcome(answer, &sent.waiting) {
            Outcome::Again { why, moved } => {
                sent.returned = true;
                state.obstacle = why;
                state.moved = state.moved.or(moved.then_some(segment));
                let is_its_target =
                    matches!(&state.mode, Mode::Remote { segment: now, .. } if *now == segment);
                if is_its_target {
                    self.leave(&mut state);
                }
            }
            Outcome::Final(result) => {
                let sent = state.in_flight.remove(&number).expect("it was there a line above");
                drop(sent.waiting.reply.send(result.map(AppendOutcome::Committed))); // whoever asked may be gone
            }
        }
        if state.unanswered == 0 {
            self.all_answered.notify_one();
        }
    }

    /// Waits until all that was sent is answered, and puts what came back in front of the queue, in order.
    pub(super) async fn take_back(&self) {
        loop {
            let all_answered = self.all_answered.notified();
            {
                let mut state = self.state.lock();
                if state.unanswered == 0 {
                    let returned = std::mem::take(&mut state.in_flight);
                    for (_, sent) in returned.into_iter().rev() {
                        let bytes = i64::try_from(sent.waiting.batch.len()).unwrap_or(i64::MAX);
                        self.leaders.cluster().metrics().waiting_bytes.inc_by(bytes);
                        state.queue.push_front(sent.waiting);
                    }
                    return;
                }
            }
            all_answered.await;
        }
    }
}

/// What the answer to a sent batch means.
enum Outcome {
    /// The sender is told this.
    Final(Result<AppendAck>),
    /// The batch is tried again; `moved` if its segment is not open at that leader.
    Again { why: String, moved: bool },
}

fn outcome(answer: Result<Bytes, CallError>, waiting: &QueuedBatch) -> Outcome {
    let is_late = Instant::now() >= waiting.deadline;
    match answer {
        Ok(payload) => match AppendAnswer::decode(payload) {
            Ok(AppendAnswer { moved: true, .. }) if !is_late => {
                Outcome::Again { why: Obstacle::Rolling.to_string(), moved: true }
            }
            Ok(AppendAnswer { moved: true, .. }) => Outcome::Final(Err(Obstacle::Rolling.into())),
            Ok(AppendAnswer { base_offset, end_offset, duplicate, append_time_ms, .. }) => {
                Outcome::Final(Ok(AppendAck { base_offset, end_offset, duplicate, append_time_ms }))
            }
            Err(problem) => {
                Outcome::Final(Err(Error::Internal { message: format!("a peer's answer: {problem}") }))
            }
        },
        // The leader's node stops, or too much waits there: nothing was written.
        Err(CallError::Refused(Error::Unavailable { obstacle })) if !is_late => {
            Outcome::Again { why: obstacle.to_string(), moved: true }
        }
        Err(CallError::Refused(error)) => Outcome::Final(Err(error)),
        Err(CallError::NotSent(reason)) if is_late => {
            Outcome::Final(Err(Obstacle::ConnectionBroken { reason }.into()))
        }
        Err(CallError::NotSent(why)) => Outcome::Again { why, moved: false },
        Err(CallError::Lost(why)) if !waiting.is_idempotent => {
            let what = format!("the leader's node did not answer ({why}) for a batch without producer id");
            Outcome::Final(Err(Error::OutcomeUnknown { what }))
        }
        Err(CallError::Lost(reason)) if is_late => {
            Outcome::Final(Err(Obstacle::ConnectionBroken { reason }.into()))
        }
        Err(CallError::Lost(why)) => Outcome::Again { why, moved: false },
    }
}
