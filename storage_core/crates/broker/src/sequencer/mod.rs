//! The order of a partition's appends on this node, wherever their leader is.
//!
//! Whatever is submitted reaches the partition's log in the order of submission and at most once: here, if this process
//! leads the open segment; else over one connection to the node that does; and while neither is possible (a roll, a
//! restart, a lost connection) it waits in a queue that one task, the driver, hands over when it is.
//!
//! A batch that another node sent here is meant for one segment. It is never sent on: when that segment is rolled, it
//! goes back to its sender, who keeps the order. Two nodes that sent batches on to each other would wait for each other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;
use walrus_log::batch::Batch;
use walrus_metadata::{Segment, TopicId};

use crate::broker::{AppendAck, Broker};
use crate::error::{Error, Result};
use crate::leader::{Carried, Leader};
use crate::peer::{CallError, Connection, Lane};
use crate::proto::peer::{AppendAnswer, ForwardAppend, Kind};
use crate::roll::{self, Roll, RollOutcome};
use crate::rollover::{Decision, Reason};
use crate::routing::{is_led_by, open_segment};
use crate::ticket::{Placed, Ticket};
use crate::topic::TopicName;

/// Most bytes of batches that wait on this node, of all partitions.
const WAITING_BYTES_MAX: i64 = 256 << 20;
/// The driver looks again after such a time where nothing tells it to look earlier.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How often batches that waited too long are given up.
const EXPIRE_EVERY: Duration = Duration::from_millis(100);
/// How much later than the leader the sender of a batch gives up.
const GRACE: Duration = Duration::from_secs(2);

/// See the module.
pub(crate) struct Sequencer {
    topic: TopicId,
    name: TopicName,
    partition: u32,
    state: Mutex<State>,
    /// What was sent is answered, all of it.
    settled: Notify,
}

struct State {
    mode: Mode,
    /// In order, none given to a log or a connection.
    queue: VecDeque<Waiting>,
    /// Sent to another node and not answered, by order of sending.
    in_flight: BTreeMap<u64, InFlight>,
    unanswered: usize,
    next_sent: u64,
    /// The driver's next task, before it hands over the queue.
    roll: Option<Roll>,
    /// What the queue waits for, for the errors of those that wait too long.
    obstacle: String,
    /// The open segment that its leader said is not: asked again only when the metadata has changed, or after a while.
    moved: Option<Uuid>,
}

enum Mode {
    /// Nobody appended lately, or the target is gone.
    Idle,
    /// This process leads.
    Local(Arc<Leader>),
    /// Another node leads.
    Remote { segment: Uuid, connection: Arc<Connection> },
    /// The driver is at work; appends queue up.
    Driving,
}

struct Waiting {
    batch: Bytes,
    /// A second try is recognised by the log.
    is_idempotent: bool,
    /// Another node sent it for this segment.
    only: Option<Uuid>,
    deadline: Instant,
    reply: oneshot::Sender<Result<Placed>>,
}

/// A batch at the log's door.
struct Arrived<'a> {
    batch: &'a Batch<'a>,
    bytes: &'a Bytes,
    only: Option<Uuid>,
    deadline: Instant,
}

struct InFlight {
    waiting: Waiting,
    /// It did not arrive, or it may arrive twice: it goes back to the front of the queue.
    returned: bool,
}

impl Sequencer {
    pub(crate) fn new(topic: TopicId, name: TopicName, partition: u32) -> Self {
        let state = State {
            mode: Mode::Idle,
            queue: VecDeque::new(),
            in_flight: BTreeMap::new(),
            unanswered: 0,
            next_sent: 0,
            roll: None,
            obstacle: String::new(),
            moved: None,
        };
        Self { topic, name, partition, state: Mutex::new(state), settled: Notify::new() }
    }

    /// Takes a batch that `Batch::parse` has checked. Its place in the order is fixed when this returns.
    pub(crate) fn submit(
        self: &Arc<Self>,
        broker: &Broker,
        bytes: Bytes,
        batch: &Batch<'_>,
        deadline: Instant,
    ) -> Ticket {
        self.place(broker, bytes, batch, None, deadline)
    }

    /// The same for a batch that another node sent to the leader of `segment`. One that is not led by this node, or
    /// not open, is answered with [`Ticket::moved`].
    pub(crate) fn submit_forwarded(
        self: &Arc<Self>,
        broker: &Broker,
        bytes: Bytes,
        batch: &Batch<'_>,
        segment: Uuid,
        deadline: Instant,
    ) -> Ticket {
        let open = self.open_segment(broker).map(|open| open.descriptor);
        let is_here = open.is_some_and(|open| open.uuid == segment && open.leader.node.0 == broker.node_id());
        if is_here { self.place(broker, bytes, batch, Some(segment), deadline) } else { Ticket::moved() }
    }

    fn place(
        self: &Arc<Self>,
        broker: &Broker,
        bytes: Bytes,
        batch: &Batch<'_>,
        only: Option<Uuid>,
        deadline: Instant,
    ) -> Ticket {
        let mut state = self.state.lock();
        if let Mode::Local(leader) = &state.mode {
            let leader = leader.clone();
            if only.is_some_and(|only| only != leader.descriptor.uuid) {
                return Ticket::moved();
            }
            let arrived = Arrived { batch, bytes: &bytes, only, deadline };
            if let Some(placed) = self.append_here(broker, &mut state, &leader, &arrived) {
                return Ticket::placed(placed);
            }
        }
        let metrics = broker.metrics();
        let length = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        if metrics.waiting_bytes.get() + length > WAITING_BYTES_MAX {
            return Ticket::failed(Error::Unavailable {
                what: "too many appends wait for their leaders".to_owned(),
            });
        }
        let (reply, receiver) = oneshot::channel();
        let waiting =
            Waiting { batch: bytes, is_idempotent: batch.producer().is_some(), only, deadline, reply };
        match &state.mode {
            Mode::Remote { .. } if only.is_some() => return Ticket::moved(),
            Mode::Remote { segment, connection } => {
                let (segment, connection) = (*segment, connection.clone());
                if let Err(waiting) = self.send(broker, &mut state, segment, &connection, waiting) {
                    self.enqueue(broker, &mut state, waiting);
                }
            }
            Mode::Idle | Mode::Local(_) | Mode::Driving => self.enqueue(broker, &mut state, waiting),
        }
        Ticket::waiting(receiver)
    }

    /// The metadata has changed for this partition: a connection to an earlier leader takes nothing more.
    pub(crate) fn metadata_changed(self: &Arc<Self>, broker: &Broker, open: Option<&Segment>) {
        let mut state = self.state.lock();
        let open = open.map(|segment| segment.descriptor.uuid);
        let is_stale = match &state.mode {
            Mode::Remote { segment, .. } => Some(*segment) != open,
            Mode::Local(leader) => Some(leader.descriptor.uuid) != open,
            Mode::Idle | Mode::Driving => false,
        };
        if is_stale {
            self.leave(broker, &mut state);
        }
    }

    /// Appends that their segment ended without: in front of all others, in their order.
    pub(crate) fn carry(self: &Arc<Self>, broker: &Broker, carried: Vec<Carried>) {
        let mut state = self.state.lock();
        for Carried { batch, only, deadline, reply } in carried.into_iter().rev() {
            broker.metrics().waiting_bytes.inc_by(i64::try_from(batch.len()).unwrap_or(i64::MAX));
            let is_idempotent = Batch::parse(&batch).is_ok_and(|(batch, _)| batch.producer().is_some());
            state.queue.push_front(Waiting { batch, is_idempotent, only, deadline, reply });
        }
        self.leave(broker, &mut state);
    }

    /// Looks at how full the segment is that this process leads: for the monitor.
    pub(crate) fn check(self: &Arc<Self>, broker: &Broker, leader: &Arc<Leader>) {
        let mut state = self.state.lock();
        if matches!(state.mode, Mode::Idle) {
            state.mode = Mode::Local(leader.clone());
        }
        match &state.mode {
            Mode::Local(current) if current.descriptor.uuid == leader.descriptor.uuid => {
                self.follow_up(broker, &mut state, leader);
            }
            _ => {}
        }
    }

    /// Ends the segment that this process leads, empty or not: its replicas belong elsewhere.
    pub(crate) fn end_segment(self: &Arc<Self>, broker: &Broker, leader: &Arc<Leader>, reason: Reason) {
        let mut state = self.state.lock();
        if matches!(state.mode, Mode::Idle) {
            state.mode = Mode::Local(leader.clone());
        }
        let is_leading =
            matches!(&state.mode, Mode::Local(now) if now.descriptor.uuid == leader.descriptor.uuid);
        if is_leading && !leader.is_held() {
            self.start_roll(broker, &mut state, leader, reason);
        }
    }

    /// Appends to the own log. `None`: the batch must wait, the driver is called.
    fn append_here(
        self: &Arc<Self>,
        broker: &Broker,
        state: &mut State,
        leader: &Arc<Leader>,
        &Arrived { batch, bytes, only, deadline }: &Arrived<'_>,
    ) -> Option<Result<Placed>> {
        match leader.append(broker, batch, bytes, only, deadline) {
            Ok(appended) => {
                broker.metrics().append_bytes.inc_by(bytes.len() as u64);
                let ack = AppendAck {
                    base_offset: appended.base_offset.0,
                    end_offset: appended.end_offset.0,
                    duplicate: appended.duplicate,
                };
                if !appended.duplicate {
                    self.follow_up(broker, state, leader);
                }
                let (commit, leader) = (appended.commit, leader.clone());
                Some(Ok(Placed::Committing { ack, commit, leader, deadline }))
            }
            Err(Error::NotLeader { key, .. }) => {
                let open = self.open_segment(broker);
                let is_listed = open.is_some_and(|open| open.descriptor.uuid == leader.descriptor.uuid);
                if is_listed && leader.is_leading() {
                    return Some(Err(Error::NotLeader { key, hint: None })); // metadata says so, the bucket says no
                }
                self.leave(broker, state);
                None
            }
            Err(error @ Error::NoSpace { .. }) => {
                broker.space().note_refusal();
                if leader.is_held() {
                    return Some(Err(error));
                }
                self.start_roll(broker, state, leader, Reason::NoSpace);
                None
            }
            // A leader that was replaced without knowing lacks what the next one has.
            Err(error @ Error::OutOfOrderSequence { .. }) => {
                Some(Ok(Placed::Refused { error, leader: leader.clone() }))
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// After an append, or now and then: rolls, or has the successor allotted.
    fn follow_up(self: &Arc<Self>, broker: &Broker, state: &mut State, leader: &Arc<Leader>) {
        match leader.decide(broker.limits()) {
            Decision::Continue => {}
            Decision::AllotSuccessor(reason) => roll::allot_ahead(broker, leader, reason),
            Decision::SealAfterThis(reason) => self.start_roll(broker, state, leader, reason),
        }
    }

    /// From here on nothing is appended to the leader's log.
    fn start_roll(
        self: &Arc<Self>,
        broker: &Broker,
        state: &mut State,
        leader: &Arc<Leader>,
        reason: Reason,
    ) {
        broker.bucket().freeze(leader.log().id());
        state.roll = Some(Roll::of_leader(leader.clone(), reason));
        self.leave(broker, state);
    }

    /// Gives the target up; the driver finds the next one.
    fn leave(self: &Arc<Self>, broker: &Broker, state: &mut State) {
        let is_driving = matches!(state.mode, Mode::Driving);
        let has_work = state.roll.is_some() || !state.queue.is_empty() || !state.in_flight.is_empty();
        if is_driving {
            return;
        }
        if !has_work {
            state.mode = Mode::Idle;
            return;
        }
        state.mode = Mode::Driving;
        let (this, driving) = (self.clone(), broker.clone());
        broker.spawn("sequencer", async move { this.drive_guarded(&driving).await });
    }

    fn enqueue(self: &Arc<Self>, broker: &Broker, state: &mut State, waiting: Waiting) {
        broker.metrics().waiting_bytes.inc_by(i64::try_from(waiting.batch.len()).unwrap_or(i64::MAX));
        state.queue.push_back(waiting);
        self.leave(broker, state);
    }

    fn dequeued(&self, broker: &Broker, waiting: &Waiting) {
        broker.metrics().waiting_bytes.dec_by(i64::try_from(waiting.batch.len()).unwrap_or(i64::MAX));
    }

    /// Sends a batch to the leader. `Err`: it was not sent, the connection is gone.
    fn send(
        self: &Arc<Self>,
        broker: &Broker,
        state: &mut State,
        segment: Uuid,
        connection: &Arc<Connection>,
        waiting: Waiting,
    ) -> Result<(), Waiting> {
        let now = Instant::now();
        let patience = waiting.deadline.saturating_duration_since(now);
        let request = ForwardAppend {
            topic: Bytes::copy_from_slice(self.topic.0.as_bytes()),
            partition: self.partition,
            batch: waiting.batch.clone(),
            patience_ms: u32::try_from(patience.as_millis()).unwrap_or(u32::MAX),
            metadata_version: broker.metadata_version(),
            segment: Bytes::copy_from_slice(segment.as_bytes()),
        };
        let number = state.next_sent;
        let completion = {
            let (this, broker) = (self.clone(), broker.downgrade());
            Box::new(move |answer| {
                if let Ok(broker) = broker.upgrade() {
                    this.answered(&broker, segment, number, answer);
                }
            })
        };
        // The leader gives up first, so that its answer says what became of the batch.
        let deadline = waiting.deadline + GRACE;
        let payload = request.encode_to_vec().into();
        if connection.send(Kind::ForwardAppend, payload, deadline, completion).is_err() {
            return Err(waiting);
        }
        broker.metrics().forwards.inc();
        state.next_sent += 1;
        state.unanswered += 1;
        state.in_flight.insert(number, InFlight { waiting, returned: false });
        Ok(())
    }

    /// The leader's node answered, or the connection to it died.
    fn answered(
        self: &Arc<Self>,
        broker: &Broker,
        segment: Uuid,
        number: u64,
        answer: Result<Bytes, CallError>,
    ) {
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
                    self.leave(broker, &mut state);
                }
            }
            Outcome::Final(result) => {
                let sent = state.in_flight.remove(&number).expect("it was there a line above");
                drop(sent.waiting.reply.send(result.map(Placed::Committed))); // whoever asked may be gone
            }
        }
        if state.unanswered == 0 {
            self.settled.notify_one();
        }
    }

    fn open_segment(&self, broker: &Broker) -> Option<Segment> {
        let routing = broker.routing();
        let route = routing.topic(self.topic)?;
        open_segment(route.partition(self.partition).ok()?).cloned()
    }

    /// A panic in the driver must not leave appends waiting for ever.
    async fn drive_guarded(self: Arc<Self>, broker: &Broker) {
        let driven = std::panic::AssertUnwindSafe(self.drive(broker)).catch_unwind().await;
        if driven.is_err() {
            broker.metrics().panics.inc();
            tracing::error!(topic = %self.name, partition = self.partition, "the driver of a partition panicked");
            let error = Error::Internal { message: format!("the driver of {} panicked", self.name) };
            let mut state = self.state.lock();
            state.roll = None;
            state.mode = Mode::Idle;
            self.fail_queue(broker, &mut state, &error);
        }
    }

    /// Works until the queue is empty and the target known, or nobody waits any more.
    async fn drive(self: &Arc<Self>, broker: &Broker) {
        loop {
            self.while_waiting(broker, self.take_back(broker)).await;
            if broker.shutdown_signal().is_cancelled() {
                let mut state = self.state.lock();
                (state.roll, state.mode) = (None, Mode::Idle);
                self.fail_queue(broker, &mut state, &stopping());
                return;
            }
            let roll = self.state.lock().roll.clone();
            if let Some(roll) = roll {
                let outcome = self.while_waiting(broker, roll::run(broker, &self.name, &roll)).await;
                let is_stuck = matches!(outcome, RollOutcome::NoSuccessor(_));
                self.rolled(broker, &roll, outcome);
                self.expire(broker);
                if is_stuck {
                    self.while_waiting(broker, broker.metadata_change(roll::HOLD)).await;
                }
                continue;
            }
            self.expire(broker);
            if self.rest() {
                return;
            }
            let Some(segment) = self.open_segment(broker) else {
                let is_gone = broker.routing().topic(self.topic).is_none();
                if is_gone {
                    let error = broker.as_claim(Error::UnknownTopic { topic: self.name.to_string() });
                    self.fail_queue(broker, &mut self.state.lock(), &error);
                } else {
                    self.obstacle(format!("{}/{} has no open segment", self.name, self.partition));
                    self.while_waiting(broker, broker.metadata_change(LOOK_AGAIN)).await;
                }
                continue;
            };
            if self.give_back(broker, &segment) {
                self.while_waiting(broker, broker.metadata_change(LOOK_AGAIN)).await;
                continue;
            }
            let handed_over = self.while_waiting(broker, self.hand_over(broker, &segment)).await;
            match handed_over {
                Ok(()) => {
                    if !matches!(self.state.lock().mode, Mode::Driving) {
                        return;
                    }
                }
                Err(error) => {
                    tracing::debug!(topic = %self.name, partition = self.partition, %error, "appends wait");
                    self.obstacle(error.to_string());
                    self.while_waiting(broker, broker.metadata_change(LOOK_AGAIN)).await;
                }
            }
        }
    }

    /// Answers the batches of other nodes that were meant for another segment than the open one. `true`: the leader of
    /// the open one has rolled it, and the metadata here do not know it yet.
    fn give_back(&self, broker: &Broker, open: &Segment) -> bool {
        let mut state = self.state.lock();
        let is_stale = |waiting: &Waiting| waiting.only.is_some_and(|only| only != open.descriptor.uuid);
        let (stale, waiting) = std::mem::take(&mut state.queue).into_iter().partition(is_stale);
        state.queue = waiting;
        for waiting in Vec::from(stale) {
            self.dequeued(broker, &waiting);
            drop(waiting.reply.send(Ok(Placed::Moved)));
        }
        state.moved.take() == Some(open.descriptor.uuid)
    }

    /// Nothing to do: `true`, and the next append starts anew.
    fn rest(&self) -> bool {
        let mut state = self.state.lock();
        let is_done = state.queue.is_empty() && state.roll.is_none() && state.in_flight.is_empty();
        if is_done {
            state.mode = Mode::Idle;
        }
        is_done
    }

    fn obstacle(&self, what: String) {
        self.state.lock().obstacle = what;
    }

    /// Waits until all that was sent is answered, and puts what came back in front of the queue, in order.
    async fn take_back(&self, broker: &Broker) {
        loop {
            let settled = self.settled.notified();
            {
                let mut state = self.state.lock();
                if state.unanswered == 0 {
                    let returned = std::mem::take(&mut state.in_flight);
                    for (_, sent) in returned.into_iter().rev() {
                        let bytes = i64::try_from(sent.waiting.batch.len()).unwrap_or(i64::MAX);
                        broker.metrics().waiting_bytes.inc_by(bytes);
                        state.queue.push_front(sent.waiting);
                    }
                    return;
                }
            }
            settled.await;
        }
    }

    /// Runs a step of the driver, meanwhile giving up what has waited too long.
    async fn while_waiting<T>(&self, broker: &Broker, step: impl Future<Output = T>) -> T {
        let mut step = std::pin::pin!(step);
        loop {
            match tokio::time::timeout(EXPIRE_EVERY, &mut step).await {
                Ok(done) => return done,
                Err(_) => self.expire(broker),
            }
        }
    }

    fn expire(&self, broker: &Broker) {
        let now = Instant::now();
        let mut state = self.state.lock();
        if broker.shutdown_signal().is_cancelled() {
            self.fail_queue(broker, &mut state, &stopping());
        }
        if !state.queue.is_empty()
            && let Some(open) = self.open_segment(broker).filter(|open| broker.is_cut_off(&open.descriptor))
        {
            self.fail_queue(broker, &mut state, &broker.cut_off(&open.descriptor));
        }
        if state.queue.iter().all(|waiting| waiting.deadline > now) {
            return;
        }
        let what = format!("{}/{} has no leader: {}", self.name, self.partition, state.obstacle);
        let (late, waiting) =
            std::mem::take(&mut state.queue).into_iter().partition(|one| one.deadline <= now);
        state.queue = waiting;
        for waiting in Vec::from(late) {
            self.dequeued(broker, &waiting);
            drop(waiting.reply.send(Err(Error::Unavailable { what: what.clone() })));
        }
    }

    fn fail_queue(&self, broker: &Broker, state: &mut State, error: &Error) {
        for waiting in std::mem::take(&mut state.queue) {
            self.dequeued(broker, &waiting);
            drop(waiting.reply.send(Err(error.clone())));
        }
    }

    fn rolled(self: &Arc<Self>, broker: &Broker, roll: &Roll, outcome: RollOutcome) {
        let mut state = self.state.lock();
        state.roll = None;
        match outcome {
            RollOutcome::Opened => {}
            RollOutcome::NoSuccessor(error) => {
                tracing::warn!(segment = roll.label.as_ref(), reason = %roll.reason, %error, "no successor, going on");
                let Some(leader) = roll.leader() else {
                    state.obstacle = error.to_string();
                    return;
                };
                if roll.reason == Reason::NoSpace {
                    let error = Error::NoSpace { node: broker.node_id() };
                    self.fail_queue(broker, &mut state, &error);
                }
                leader.hold(roll::HOLD);
                if leader.may_outgrow(broker.limits()) {
                    broker.bucket().thaw(leader.log().id());
                } else {
                    state.obstacle = error.to_string();
                    state.roll = Some(roll.clone()); // it stays frozen, and the roll is tried again
                }
            }
            RollOutcome::Failed(error) => {
                tracing::error!(segment = roll.label.as_ref(), reason = %roll.reason, %error, "the segment cannot be sealed");
                // What waits was never in it: whoever sends it again finds the next one.
                let what = format!("{}: {error}", roll.label);
                self.fail_queue(broker, &mut state, &Error::Unavailable { what });
            }
        }
    }

    /// Finds the target and gives it the queue. The mode is another one than `Driving` when it took everything.
    async fn hand_over(self: &Arc<Self>, broker: &Broker, segment: &Segment) -> Result<()> {
        let descriptor = &segment.descriptor;
        let leader = descriptor.leader;
        if is_led_by(leader, broker.config()) && broker.may_lead(segment) {
            let leader = broker.leader(&self.name, segment).await?;
            if !leader.is_leading() {
                // It is being rolled or recovered: the end comes from the metadata.
                return Err(Error::Unavailable { what: format!("{} is ending", leader.label()) });
            }
            self.fill_leader(broker, &leader);
            Ok(())
        } else if leader.node.0 == broker.node_id() && broker.known_leader(descriptor.uuid).is_none() {
            let roll = Roll::of_earlier_process(&self.name, segment);
            self.state.lock().roll = Some(roll);
            Ok(())
        } else {
            let connection = broker.peers().connection(leader.node.0, Lane::Append).await?;
            self.fill_connection(broker, descriptor.uuid, &connection)
        }
    }

    fn fill_leader(self: &Arc<Self>, broker: &Broker, leader: &Arc<Leader>) {
        let mut state = self.state.lock();
        while state.roll.is_none() {
            let Some(waiting) = state.queue.pop_front() else {
                state.mode = Mode::Local(leader.clone());
                return;
            };
            let bytes = waiting.batch.clone();
            let (only, deadline) = (waiting.only, waiting.deadline);
            let placed = match Batch::parse(&bytes) {
                Ok((batch, _)) => {
                    let arrived = Arrived { batch: &batch, bytes: &bytes, only, deadline };
                    self.append_here(broker, &mut state, leader, &arrived)
                }
                Err(problem) => Some(Err(Error::Internal { message: format!("a checked batch: {problem}") })),
            };
            let Some(placed) = placed else {
                state.queue.push_front(waiting);
                return;
            };
            self.dequeued(broker, &waiting);
            drop(waiting.reply.send(placed)); // whoever asked may be gone
        }
    }

    fn fill_connection(
        self: &Arc<Self>,
        broker: &Broker,
        segment: Uuid,
        connection: &Arc<Connection>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        while let Some(waiting) = state.queue.pop_front() {
            self.dequeued(broker, &waiting);
            if let Err(waiting) = self.send(broker, &mut state, segment, connection, waiting) {
                broker.metrics().waiting_bytes.inc_by(i64::try_from(waiting.batch.len()).unwrap_or(i64::MAX));
                state.queue.push_front(waiting);
                return Err(Error::Unavailable { what: "the connection to the leader was lost".to_owned() });
            }
        }
        state.mode = Mode::Remote { segment, connection: connection.clone() };
        Ok(())
    }
}

fn stopping() -> Error {
    Error::Unavailable { what: "this node is stopping".to_owned() }
}

enum Outcome {
    Final(Result<AppendAck>),
    Again { why: String, moved: bool },
}

fn outcome(answer: Result<Bytes, CallError>, waiting: &Waiting) -> Outcome {
    let is_late = Instant::now() >= waiting.deadline;
    match answer {
        Ok(payload) => match AppendAnswer::decode(payload) {
            Ok(AppendAnswer { moved: true, .. }) if !is_late => {
                Outcome::Again { why: "its segment is being rolled".to_owned(), moved: true }
            }
            Ok(AppendAnswer { moved: true, .. }) => {
                Outcome::Final(Err(Error::Unavailable { what: "its segment is being rolled".to_owned() }))
            }
            Ok(AppendAnswer { base_offset, end_offset, duplicate, .. }) => {
                Outcome::Final(Ok(AppendAck { base_offset, end_offset, duplicate }))
            }
            Err(problem) => {
                Outcome::Final(Err(Error::Internal { message: format!("a peer's answer: {problem}") }))
            }
        },
        // It stops, or too much waits there: nothing was written.
        Err(CallError::Refused(Error::Unavailable { what })) if !is_late => {
            Outcome::Again { why: what, moved: true }
        }
        Err(CallError::Refused(error)) => Outcome::Final(Err(error)),
        Err(CallError::NotSent(why)) if is_late => Outcome::Final(Err(Error::Unavailable { what: why })),
        Err(CallError::NotSent(why)) => Outcome::Again { why, moved: false },
        Err(CallError::Lost(why)) if !waiting.is_idempotent => {
            let what = format!("the leader's node did not answer ({why}) for a batch without producer id");
            Outcome::Final(Err(Error::OutcomeUnknown { what }))
        }
        Err(CallError::Lost(why)) if is_late => Outcome::Final(Err(Error::Unavailable { what: why })),
        Err(CallError::Lost(why)) => Outcome::Again { why, moved: false },
    }
}
