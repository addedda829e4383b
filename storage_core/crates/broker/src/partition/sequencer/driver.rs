//! The driver of a partition: the one task that works while appends cannot go straight to a log or a connection. It rolls,
//! finds the target, hands the queue over, and gives up what has waited too long.

use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use walrus_log::batch::Batch;
use walrus_metadata::Segment;
use walrus_metadata::rolling::Reason;
use walrus_model::SegmentId;

use super::{Arrival, Mode, QueuedBatch, Sequencer, State};
use crate::cluster::routing::is_led_by;
use crate::node::error::{Error, Result};
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::partition::leader::AppendOutcome;
use crate::partition::leader::Leader;
use crate::partition::roll::{self, Roll};
use crate::peer::{Connection, Lane};

/// How much of the queue was handed over.
enum HandOver {
    /// All of it. From here on there may be another driver: this one must end.
    All,
    /// Up to a batch behind which the segment ends, or before which it must be looked for anew.
    UpToARoll,
}

impl Sequencer {
    /// Runs the driver; should it panic, the appends that wait are failed and do not wait for ever.
    pub(super) async fn drive_guarded(self: Arc<Self>) {
        let driven = std::panic::AssertUnwindSafe(self.drive()).catch_unwind().await;
        if driven.is_err() {
            self.leaders.cluster().metrics().panics.inc();
            tracing::error!(topic = %self.path, partition = self.partition, "the driver of a partition panicked");
            let error = Error::Internal { message: format!("the driver of {} panicked", self.path) };
            let mut state = self.state.lock();
            state.roll = None;
            state.mode = Mode::Idle;
            self.fail_queue(&mut state, &error);
        }
    }

    /// Works until the queue is empty and the target known, or nobody waits any more.
    async fn drive(self: &Arc<Self>) {
        loop {
            self.while_waiting(self.take_back()).await;
            if self.leaders.cluster().tasks().shutdown().is_cancelled() {
                let mut state = self.state.lock();
                (state.roll, state.mode) = (None, Mode::Idle);
                self.fail_queue(&mut state, &Obstacle::Stopping.into());
                return;
            }
            let roll = self.state.lock().roll.take();
            if let Some(roll) = roll {
                let outcome = self.while_waiting(roll::run(self.leaders.copies(), &self.path, &roll)).await;
                let is_stuck = outcome.is_err_and(|error| self.note_failed_roll(roll, &error));
                self.expire();
                if is_stuck {
                    self.while_waiting(self.leaders.cluster().news().wait(patience::WITHOUT_SUCCESSOR)).await;
                }
                continue;
            }
            self.expire();
            if self.go_idle() {
                return;
            }
            let news = self.leaders.cluster().news();
            let Some(segment) = self.open_segment() else {
                let is_gone = self.leaders.cluster().routing().topic(self.topic).is_none();
                if is_gone {
                    let error = Error::UnknownTopic { topic: self.path.to_string() };
                    self.fail_queue(&mut self.state.lock(), &error);
                } else {
                    self.note_obstacle(format!("{}/{} has no open segment", self.path, self.partition));
                    self.while_waiting(news.wait(patience::DRIVER_LOOK)).await;
                }
                continue;
            };
            if self.give_back(&segment) {
                self.while_waiting(news.wait(patience::DRIVER_LOOK)).await;
                continue;
            }
            let handed_over = self.while_waiting(self.hand_over(&segment)).await;
            match handed_over {
                Ok(HandOver::All) => return,
                Ok(HandOver::UpToARoll) => {}
                Err(error) => {
                    tracing::debug!(topic = %self.path, partition = self.partition, %error, "appends wait");
                    self.note_obstacle(error.to_string());
                    self.while_waiting(news.wait(patience::DRIVER_LOOK)).await;
                }
            }
        }
    }

    /// Gives back the batches that other nodes sent for another segment than the open one. Says whether the leader of the open
    /// one has rolled it while the metadata here do not know that yet.
    fn give_back(&self, open: &Segment) -> bool {
        let mut state = self.state.lock();
        let is_stale =
            |waiting: &QueuedBatch| waiting.for_segment.is_some_and(|wanted| wanted != open.descriptor.id);
        let (stale, waiting) = std::mem::take(&mut state.queue).into_iter().partition(is_stale);
        state.queue = waiting;
        for waiting in Vec::from(stale) {
            self.note_dequeued(&waiting);
            drop(waiting.reply.send(Ok(AppendOutcome::Moved)));
        }
        state.moved.take() == Some(open.descriptor.id)
    }

    /// Ends the driver if there is nothing to do (`true`): the next append starts anew.
    fn go_idle(&self) -> bool {
        let mut state = self.state.lock();
        let is_done = state.queue.is_empty() && state.roll.is_none() && state.in_flight.is_empty();
        if is_done {
            state.mode = Mode::Idle;
        }
        is_done
    }

    /// Notes what the queue waits for.
    fn note_obstacle(&self, what: String) {
        self.state.lock().obstacle = what;
    }

    /// Runs a step of the driver, meanwhile giving up what has waited too long.
    async fn while_waiting<T>(&self, step: impl Future<Output = T>) -> T {
        let mut step = std::pin::pin!(step);
        loop {
            match tokio::time::timeout(patience::APPEND_EXPIRY_LOOK, &mut step).await {
                Ok(done) => return done,
                Err(_) => self.expire(),
            }
        }
    }

    /// Fails the appends that have waited too long, and all of them while this node stops or is cut off from the segment.
    fn expire(&self) {
        let now = Instant::now();
        let mut state = self.state.lock();
        if self.leaders.cluster().tasks().shutdown().is_cancelled() {
            self.fail_queue(&mut state, &Obstacle::Stopping.into());
        }
        if !state.queue.is_empty()
            && let Some(open) =
                self.open_segment().filter(|open| self.leaders.cluster().is_cut_off(&open.descriptor))
        {
            self.fail_queue(&mut state, &self.leaders.cluster().cut_off_error(&open.descriptor));
        }
        if state.queue.iter().all(|waiting| waiting.deadline > now) {
            return;
        }
        let partition = format!("{}/{}", self.path, self.partition);
        let obstacle = Obstacle::WithoutLeader { partition, reason: state.obstacle.clone() };
        let (late, waiting) =
            std::mem::take(&mut state.queue).into_iter().partition(|one| one.deadline <= now);
        state.queue = waiting;
        for waiting in Vec::from(late) {
            self.note_dequeued(&waiting);
            drop(waiting.reply.send(Err(obstacle.clone().into())));
        }
    }

    fn fail_queue(&self, state: &mut State, error: &Error) {
        for waiting in std::mem::take(&mut state.queue) {
            self.note_dequeued(&waiting);
            drop(waiting.reply.send(Err(error.clone())));
        }
    }

    /// Decides how a segment goes on after a roll that failed: for a while as it was if it can. One that takes nothing more must
    /// end whatever it takes, and nobody else may see a reason to end it, for its leader is there: `true`, and the roll is tried
    /// again.
    fn note_failed_roll(&self, roll: Roll, error: &Error) -> bool {
        let mut state = self.state.lock();
        tracing::warn!(segment = roll.label.as_ref(), reason = %roll.reason, %error, "the segment is not rolled yet");
        if let Some(leader) = roll.leader().filter(|leader| leader.is_leading()) {
            if roll.reason == Reason::NoSpace {
                let error = Error::NoSpace { node: self.leaders.cluster().node_id() };
                self.fail_queue(&mut state, &error);
            }
            leader.hold(patience::WITHOUT_SUCCESSOR);
            if leader.may_outgrow(self.limits()) {
                self.leaders.copies().bucket().thaw(leader.log().id());
                return false;
            }
        }
        let is_unsealed = self.leaders.cluster().is_unsealed(&roll.segment);
        if is_unsealed {
            state.obstacle = error.to_string();
            state.roll = Some(roll);
        }
        is_unsealed
    }

    /// Finds the target of the appends and gives it the queue.
    async fn hand_over(self: &Arc<Self>, segment: &Segment) -> Result<HandOver> {
        let descriptor = &segment.descriptor;
        let leader = descriptor.leader;
        if is_led_by(leader, self.leaders.cluster().config()) && self.leaders.may_lead(segment) {
            let leader = self.leader(segment).await?;
            if !leader.is_leading() {
                // It is being rolled or recovered: the end comes from the metadata.
                return Err(Obstacle::Ending { label: leader.label().to_owned() }.into());
            }
            Ok(self.fill_leader(&leader))
        } else if leader.node.0 == self.leaders.cluster().node_id()
            && self.leaders.known_leader(descriptor.id).is_none()
        {
            let roll = Roll::of_earlier_process(&self.path, segment);
            self.state.lock().roll = Some(roll);
            Ok(HandOver::UpToARoll)
        } else {
            let connection = self.leaders.cluster().peers().connection(leader.node.0, Lane::Append).await?;
            self.fill_connection(descriptor.id, &connection)
        }
    }

    fn fill_leader(self: &Arc<Self>, leader: &Arc<Leader>) -> HandOver {
        let mut state = self.state.lock();
        while state.roll.is_none() {
            let Some(waiting) = state.queue.pop_front() else {
                state.mode = Mode::Local(leader.clone());
                return HandOver::All;
            };
            let bytes = waiting.batch.clone();
            let (for_segment, deadline, times) = (waiting.for_segment, waiting.deadline, waiting.times);
            let placed = match Batch::parse(&bytes) {
                Ok((batch, _)) => {
                    let arrived = Arrival { batch: &batch, bytes: &bytes, for_segment, deadline, times };
                    self.append_here(&mut state, leader, &arrived)
                }
                Err(problem) => Some(Err(Error::Internal { message: format!("a checked batch: {problem}") })),
            };
            let Some(placed) = placed else {
                state.queue.push_front(waiting);
                return HandOver::UpToARoll;
            };
            self.note_dequeued(&waiting);
            drop(waiting.reply.send(placed)); // whoever asked may be gone
        }
        HandOver::UpToARoll
    }

    fn fill_connection(
        self: &Arc<Self>,
        segment: SegmentId,
        connection: &Arc<Connection>,
    ) -> Result<HandOver> {
        let mut state = self.state.lock();
        while let Some(waiting) = state.queue.pop_front() {
            self.note_dequeued(&waiting);
            if let Err(waiting) = self.send(&mut state, segment, connection, waiting) {
                self.leaders
                    .cluster()
                    .metrics()
                    .waiting_bytes
                    .inc_by(i64::try_from(waiting.batch.len()).unwrap_or(i64::MAX));
                state.queue.push_front(waiting);
                return Err(Obstacle::LeaderLost.into());
            }
        }
        state.mode = Mode::Remote { segment, connection: connection.clone() };
        Ok(HandOver::All)
    }
}
