//! The order of a partition's appends on this node, wherever their leader is.
//!
//! Whatever is submitted reaches the partition's log in the order of submission and at most once: here, if this process
//! leads the open segment; else over one connection to the node that does; and while neither is possible (a roll, a
//! restart, a lost connection) it waits in a queue that one task, the driver, hands over when it is.
//!
//! A batch that another node sent here is meant for one segment. It is never sent on: when that segment is rolled, it
//! goes back to its sender, who keeps the order. Two nodes that sent batches on to each other would wait for each other.

mod driver;
mod forwarding;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Instant;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use walrus_log::batch::Batch;
use walrus_metadata::rolling::{Limits, Reason};
use walrus_metadata::{Segment, Timestamps, TopicSettings};
use walrus_model::{SegmentId, TopicId};

use crate::cluster::routing::{TopicRoute, is_led_by, open_segment};
use crate::node::clock;
use crate::node::error::{Error, Result};
use crate::node::locks::{Lock, SEQUENCER};
use crate::node::names::TopicPath;
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::partition::ack::AppendAck;
use crate::partition::follower;
use crate::partition::fullness::Decision;
use crate::partition::leader::{AppendOutcome, CarriedAppend, Leader, LocalAppend, Requeue};
use crate::partition::leaders::Leaders;
use crate::partition::roll::{self, Roll};
use crate::partition::ticket::Ticket;
use crate::partition::timestamps::{self, Times};
use crate::peer::Connection;

/// Limit on the bytes of batches that wait on this node, in all partitions together; a batch above it is refused.
const WAITING_BYTES_MAX: i64 = 256 << 20;

/// Orders one partition's appends on this node, wherever their leader is.
pub(crate) struct Sequencer {
    leaders: Arc<Leaders>,
    topic: TopicId,
    path: TopicPath,
    partition: u32,
    settings: ArcSwap<TopicSettings>,
    state: Lock<State, SEQUENCER>,
    /// Wakes the driver when all that was sent to another node is answered.
    all_answered: Notify,
}

struct State {
    mode: Mode,
    /// Batches that no log and no connection has, in order.
    queue: VecDeque<QueuedBatch>,
    /// Batches that were sent to another node and not answered for good, in the order of sending.
    in_flight: BTreeMap<u64, InFlight>,
    /// How many of these the other node has not answered at all.
    unanswered: usize,
    next_sent: u64,
    /// The driver's next task, before it hands over the queue.
    roll: Option<Roll>,
    /// What the queue waits for, for the errors of those that wait too long.
    obstacle: String,
    /// The listed open segment whose leader said that it is open no more. That leader is asked again only when the metadata have
    /// changed, or after a while.
    moved: Option<SegmentId>,
}

enum Mode {
    /// Nobody appended lately, or the target is gone.
    Idle,
    /// This process leads; appends go straight to the log.
    Local(Arc<Leader>),
    /// Another node leads; appends go straight to the connection.
    Remote { segment: SegmentId, connection: Arc<Connection> },
    /// The driver is at work; appends queue up.
    Driving,
}

/// A batch that waits for the target, or for the answer of another node.
struct QueuedBatch {
    batch: Bytes,
    /// It has a producer's id, by which the log recognises a second try.
    is_idempotent: bool,
    /// The segment for which another node sent it.
    for_segment: Option<SegmentId>,
    deadline: Instant,
    /// What is known of its timestamps.
    times: Times,
    reply: oneshot::Sender<Result<AppendOutcome>>,
}

/// A batch at the log's door.
struct Arrival<'a> {
    batch: &'a Batch<'a>,
    bytes: &'a Bytes,
    for_segment: Option<SegmentId>,
    deadline: Instant,
    times: Times,
}

/// A batch that was sent to another node.
struct InFlight {
    waiting: QueuedBatch,
    /// It did not arrive, or may be sent twice: it goes back to the front of the queue.
    returned: bool,
}

impl Requeue for Sequencer {
    fn requeue(self: Arc<Self>, carried: Vec<CarriedAppend>) {
        let mut state = self.state.lock();
        for CarriedAppend { batch, for_segment, deadline, reply } in carried.into_iter().rev() {
            self.leaders
                .cluster()
                .metrics()
                .waiting_bytes
                .inc_by(i64::try_from(batch.len()).unwrap_or(i64::MAX));
            let is_idempotent = Batch::parse(&batch).is_ok_and(|(batch, _)| batch.producer().is_some());
            let times = Times::Free; // the leader of the segment before has taken it
            state.queue.push_front(QueuedBatch { batch, is_idempotent, for_segment, deadline, times, reply });
        }
        self.leave(&mut state);
    }
}

impl Sequencer {
    pub(crate) fn new(leaders: Arc<Leaders>, route: &TopicRoute, partition: u32) -> Self {
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
        Self {
            leaders,
            topic: route.topic.id,
            path: route.path.clone(),
            partition,
            settings: ArcSwap::from_pointee(route.settings),
            state: Lock::new(state),
            all_answered: Notify::new(),
        }
    }

    /// Takes a batch that `Batch::parse` has checked, with what is known of its timestamps. Its place in the order is fixed when
    /// this returns.
    pub(crate) fn submit(
        self: &Arc<Self>,
        bytes: Bytes,
        batch: &Batch<'_>,
        times: Times,
        deadline: Instant,
    ) -> Ticket {
        let is_led_here = || {
            let open = self.open_segment().map(|open| open.descriptor.leader);
            open.is_some_and(|leader| is_led_by(leader, self.leaders.cluster().config()))
        };
        let times = if times == Times::Unknown { self.look_at_times(batch, is_led_here) } else { Ok(times) };
        match times {
            Ok(times) => self.place(bytes, batch, None, deadline, times),
            Err(error) => Ticket::failed(error),
        }
    }

    /// Takes a batch that another node sent to the leader of `segment`. If that segment is not led by this node, or not open,
    /// the answer is [`Ticket::moved`].
    pub(crate) fn submit_forwarded(
        self: &Arc<Self>,
        bytes: Bytes,
        batch: &Batch<'_>,
        segment: SegmentId,
        deadline: Instant,
    ) -> Ticket {
        let open = self.open_segment().map(|open| open.descriptor);
        let is_here = open
            .is_some_and(|open| open.id == segment && open.leader.node.0 == self.leaders.cluster().node_id());
        if !is_here {
            return Ticket::moved();
        }
        match self.look_at_times(batch, || true) {
            Ok(times) => self.place(bytes, batch, Some(segment), deadline, times),
            Err(error) => Ticket::failed(error),
        }
    }

    /// The timestamps of a batch, if the topic bounds them and this node leads: what may take long is done before anybody else
    /// waits for this batch. Another node's leader looks itself.
    fn look_at_times(&self, batch: &Batch<'_>, is_led_here: impl FnOnce() -> bool) -> Result<Times> {
        let is_wanted = timestamps::is_bounded(self.settings.load().timestamps) && is_led_here();
        if is_wanted { timestamps::look(batch) } else { Ok(Times::Unknown) }
    }

    /// Gives a batch to the target, or puts it in the queue.
    fn place(
        self: &Arc<Self>,
        bytes: Bytes,
        batch: &Batch<'_>,
        for_segment: Option<SegmentId>,
        deadline: Instant,
        times: Times,
    ) -> Ticket {
        let mut state = self.state.lock();
        if let Mode::Local(leader) = &state.mode {
            let leader = leader.clone();
            if for_segment.is_some_and(|wanted| wanted != leader.descriptor.id) {
                return Ticket::moved();
            }
            let arrived = Arrival { batch, bytes: &bytes, for_segment, deadline, times };
            if let Some(placed) = self.append_here(&mut state, &leader, &arrived) {
                return Ticket::placed(placed);
            }
        }
        let metrics = self.leaders.cluster().metrics();
        let length = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        if metrics.waiting_bytes.get() + length > WAITING_BYTES_MAX {
            return Ticket::failed(Obstacle::QueueFull.into());
        }
        let (reply, receiver) = oneshot::channel();
        let waiting = QueuedBatch {
            batch: bytes,
            is_idempotent: batch.producer().is_some(),
            for_segment,
            deadline,
            times,
            reply,
        };
        match &state.mode {
            Mode::Remote { .. } if for_segment.is_some() => return Ticket::moved(),
            Mode::Remote { segment, connection } => {
                let (segment, connection) = (*segment, connection.clone());
                if let Err(waiting) = self.send(&mut state, segment, &connection, waiting) {
                    self.enqueue(&mut state, waiting);
                }
            }
            Mode::Idle | Mode::Local(_) | Mode::Driving => self.enqueue(&mut state, waiting),
        }
        Ticket::waiting(receiver)
    }

    /// Follows changed metadata of this partition: its topic's settings, and its open segment. A target that they do not have any
    /// more is given up.
    pub(crate) fn metadata_changed(self: &Arc<Self>, open: Option<&Segment>, settings: TopicSettings) {
        if **self.settings.load() != settings {
            self.settings.store(Arc::new(settings));
        }
        let mut state = self.state.lock();
        let open = open.map(|segment| segment.descriptor.id);
        let is_stale = match &state.mode {
            Mode::Remote { segment, .. } => Some(*segment) != open,
            Mode::Local(leader) => Some(leader.descriptor.id) != open,
            Mode::Idle | Mode::Driving => false,
        };
        if is_stale {
            self.leave(&mut state);
        }
    }

    /// The leader of an open segment of the partition that metadata gives to this process. Makes its log if need be.
    pub(crate) async fn leader(self: &Arc<Self>, segment: &Segment) -> Result<Arc<Leader>> {
        let this: Weak<Self> = Arc::downgrade(self);
        self.leaders.leader(&self.path, segment, this).await
    }

    /// Rolls the segment that this process leads if it is full or too old, holds nothing any more that its topic keeps, or has
    /// been open for long and is crowded with producers. Called now and then, for segments to which nobody appends. Says whether
    /// the segment must wait for the node's next second of rolls.
    pub(crate) fn check_fullness(self: &Arc<Self>, leader: &Arc<Leader>) -> bool {
        let mut state = self.state.lock();
        if matches!(state.mode, Mode::Idle) {
            state.mode = Mode::Local(leader.clone());
        }
        match &state.mode {
            Mode::Local(current) if current.descriptor.id == leader.descriptor.id => {
                let is_old = leader.fill().age >= patience::PRODUCER_SILENCE;
                if is_old && !leader.is_held() && leader.log().is_crowded_with_producers() {
                    self.start_roll(&mut state, leader, Reason::Producers);
                } else if !leader.is_held() && self.leaders.copies().holds_nothing_kept(&leader.descriptor) {
                    self.start_roll(&mut state, leader, Reason::Retention);
                } else {
                    return self.follow_up(&mut state, leader);
                }
            }
            _ => {}
        }
        false
    }

    /// Ends the segment that this process leads, empty or not: its replicas belong elsewhere.
    pub(crate) fn end_segment(self: &Arc<Self>, leader: &Arc<Leader>, reason: Reason) {
        let mut state = self.state.lock();
        if matches!(state.mode, Mode::Idle) {
            state.mode = Mode::Local(leader.clone());
        }
        let is_leading = matches!(&state.mode, Mode::Local(now) if now.descriptor.id == leader.descriptor.id);
        if is_leading && !leader.is_held() {
            self.start_roll(&mut state, leader, reason);
        }
    }

    /// Appends to the own log. `None` if the batch must wait; then the driver was called.
    fn append_here(
        self: &Arc<Self>,
        state: &mut State,
        leader: &Arc<Leader>,
        arrival: &Arrival<'_>,
    ) -> Option<Result<AppendOutcome>> {
        let &Arrival { bytes, deadline, .. } = arrival;
        match self.append_timed(leader, arrival) {
            Ok((LocalAppend { appended, up_to_date }, append_time_ms)) => {
                for place in up_to_date {
                    follower::send_alone(self.leaders.copies(), leader, place, bytes.len());
                }
                self.leaders.cluster().metrics().append_bytes.inc_by(bytes.len() as u64);
                let ack = AppendAck {
                    base_offset: appended.base_offset.0,
                    end_offset: appended.end_offset.0,
                    duplicate: appended.duplicate,
                    append_time_ms,
                };
                if !appended.duplicate {
                    self.follow_up(state, leader);
                }
                let (commit, leader) = (appended.commit, leader.clone());
                Some(Ok(AppendOutcome::Committing { ack, commit, leader, deadline }))
            }
            Err(Error::NotLeader { key, .. }) => {
                let open = self.open_segment();
                let is_listed = open.is_some_and(|open| open.descriptor.id == leader.descriptor.id);
                if is_listed && leader.is_leading() {
                    return Some(Err(Error::NotLeader { key, hint: None })); // metadata says so, the bucket says no
                }
                self.leave(state);
                None
            }
            Err(error @ Error::NoSpace { .. }) => {
                self.leaders.cluster().room().note_refusal();
                if leader.is_held() {
                    return Some(Err(error));
                }
                self.start_roll(state, leader, Reason::NoSpace);
                None
            }
            Err(error @ Error::TooManyProducers { .. }) => {
                if leader.is_held() || leader.fill().age < patience::PRODUCER_SILENCE {
                    return Some(Err(error));
                }
                self.start_roll(state, leader, Reason::Producers);
                None
            }
            // A leader that was replaced without knowing lacks what the next one has.
            Err(error @ Error::OutOfOrderSequence { .. }) => {
                Some(Ok(AppendOutcome::Refused { error, leader: leader.clone() }))
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Appends a batch whose timestamps the topic takes, or with the leader's time where the topic wants that; says which.
    fn append_timed(
        &self,
        leader: &Arc<Leader>,
        arrival: &Arrival<'_>,
    ) -> Result<(LocalAppend, Option<i64>)> {
        let &Arrival { batch, bytes, for_segment, deadline, times } = arrival;
        let (copies, rule) = (self.leaders.copies(), self.settings.load().timestamps);
        if rule == Timestamps::Appended {
            let time_ms = leader.next_time_ms();
            let timed: Bytes = batch.with_append_time(time_ms).into();
            let wrong =
                |problem| Error::Internal { message: format!("a batch with its leader's time: {problem}") };
            let (batch, _) = Batch::parse(&timed).map_err(wrong)?;
            let appended = leader.append(copies, &batch, &timed, for_segment, deadline)?;
            return Ok((appended, Some(time_ms)));
        }
        if timestamps::is_bounded(rule) {
            // The bounds may have been set behind the look, or this node may lead only since then.
            let times = if times == Times::Unknown { timestamps::look(batch)? } else { times };
            let checked = timestamps::check(rule, times, clock::now_ms());
            checked.or_else(|refused| if leader.has(batch) { Ok(()) } else { Err(refused) })?;
        }
        Ok((leader.append(copies, batch, bytes, for_segment, deadline)?, None))
    }

    /// Does what is due after an append, or now and then: rolls, or has the successor allotted. Says whether a roll is due that
    /// must wait for the node's next second; appends go on meanwhile.
    fn follow_up(self: &Arc<Self>, state: &mut State, leader: &Arc<Leader>) -> bool {
        match leader.decide(self.limits()) {
            Decision::Continue => {}
            Decision::AllotSuccessor(_) => roll::allot_ahead(self.leaders.copies(), leader),
            Decision::SealAfterThis(_) if !self.leaders.may_roll() => return true,
            Decision::SealAfterThis(reason) => self.start_roll(state, leader, reason),
        }
        false
    }

    /// Freezes the leader's log, to which nothing is appended from here on, and has the driver roll the segment.
    fn start_roll(self: &Arc<Self>, state: &mut State, leader: &Arc<Leader>, reason: Reason) {
        self.leaders.copies().bucket().freeze(leader.log().id());
        state.roll = Some(Roll::of_leader(leader.clone(), reason));
        self.leave(state);
    }

    /// Gives the target up, and calls the driver to find the next one if anything waits for it.
    fn leave(self: &Arc<Self>, state: &mut State) {
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
        let this = self.clone();
        self.leaders.copies().tasks().spawn("sequencer", this.drive_guarded());
    }

    fn enqueue(self: &Arc<Self>, state: &mut State, waiting: QueuedBatch) {
        self.leaders
            .cluster()
            .metrics()
            .waiting_bytes
            .inc_by(i64::try_from(waiting.batch.len()).unwrap_or(i64::MAX));
        state.queue.push_back(waiting);
        self.leave(state);
    }

    /// Takes the bytes of a batch that left the queue off those that wait.
    fn note_dequeued(&self, waiting: &QueuedBatch) {
        self.leaders
            .cluster()
            .metrics()
            .waiting_bytes
            .dec_by(i64::try_from(waiting.batch.len()).unwrap_or(i64::MAX));
    }

    /// The limits at which a segment of the partition is full.
    fn limits(&self) -> Limits {
        self.settings.load().limits(self.leaders.limits())
    }

    fn open_segment(&self) -> Option<Segment> {
        let routing = self.leaders.cluster().routing();
        let route = routing.topic(self.topic)?;
        open_segment(route.partition(self.partition).ok()?).cloned()
    }
}
