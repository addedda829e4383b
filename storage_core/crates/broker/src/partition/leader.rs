//! The leader of one open segment on this node: the machine that decides, the batches that are not acknowledged yet, and
//! how full the segment is. Appends come through the partition's [`Sequencer`](crate::partition::sequencer::Sequencer), one after
//! another; answers of replicas come as they come.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;
use walrus_log::batch::Batch as StoredBatch;
use walrus_log::{Appended, Log};
use walrus_metadata::Segment;
use walrus_metadata::rolling::Limits;
use walrus_model::{Descriptor, Offset, SegmentId, Value};
use walrus_replica::{Batch, LeaderInput, LeaderOutput, LeaderPhase, Message, Reply};

use crate::broker::Broker;
use crate::bucket::Key;
use crate::copies::copy::Copy;
use crate::copies::lead::Lead;
use crate::copies::marks::mark_behind;
use crate::copies::wire::{AppendBytes, Ask};
use crate::node::clock;
use crate::node::error::{Error, Result};
use crate::partition::follower::{self, Link};
use crate::partition::fullness::{self, Decision, Fill};
use crate::partition::ticket::Placed;
use crate::partition::window::{Recent, Window};

/// Bytes of batches that may wait for their acknowledgement: more than the window keeps of others.
const UNACKNOWLEDGED_BYTES_MAX: usize = 256 << 20;

/// The leader of one open segment: the machine that decides, and what this node must know to carry it out.
pub(crate) struct Leader {
    pub(crate) descriptor: Descriptor,
    pub(crate) key: Key,
    /// This node's own copy, a replica like the others.
    copy: Arc<Copy>,
    own_copy_fenced: AtomicBool,
    /// Place of this node among the descriptor's replicas.
    own_replica: usize,
    /// What was known of producers at the segment's base.
    pub(crate) first_producers: Bytes,
    state: Mutex<State>,
    /// What it tells those who answer for the own copy.
    lead: Arc<Lead>,
    ended: watch::Sender<Option<Arc<Value>>>,
    mailboxes: Vec<Mailbox>,
    /// Metadata has another leader, or none.
    pub(crate) closed: CancellationToken,
    opened: Instant,
    /// Held by whoever has a successor allotted, so that it is done once.
    pub(crate) allotting: tokio::sync::Mutex<()>,
    /// A roll that found no successor is not tried again before this.
    hold_until: Mutex<Option<Instant>>,
}

/// What goes to one other replica.
#[derive(Default)]
struct Mailbox {
    /// What must be sent besides batches.
    mail: Mutex<VecDeque<Message>>,
    /// For mail and for batches.
    bell: Notify,
    /// How it is reached, by whoever holds the lock.
    link: Mutex<Option<Link>>,
}

struct State {
    machine: walrus_replica::Leader,
    window: Window,
    /// Outcomes of appends that went on to the next segment, by the offsets that they were to have here.
    carried: HashMap<u64, oneshot::Receiver<Result<Placed>>>,
}

/// An append that must go on to the next segment.
pub(crate) struct Carried {
    pub(crate) batch: Bytes,
    pub(crate) only: Option<SegmentId>,
    pub(crate) deadline: Instant,
    pub(crate) reply: oneshot::Sender<Result<Placed>>,
}

/// What became of an append that was waited for.
pub(crate) enum Waited {
    /// On w disks.
    Acknowledged,
    /// It is not in this segment: its place in the next one is told here.
    Carried(oneshot::Receiver<Result<Placed>>),
    /// Nobody knows, or not in time.
    Unknown(&'static str),
}

impl Leader {
    /// For a new, empty log of which this process is the leader, and which no other process has written (R7).
    pub(crate) fn open(
        segment: &Segment,
        label: Arc<str>,
        log: Log,
        copy: Arc<Copy>,
        node: u32,
    ) -> Result<Self> {
        let descriptor = segment.descriptor.clone();
        let unfit = |what: &str| Error::Unavailable { what: format!("{label}: {what}") };
        let own_replica = descriptor.replicas.iter().position(|replica| replica.node.0 == node);
        let own_replica = own_replica.ok_or_else(|| unfit("it is led here and not stored here"))?;
        if log.end_offset() != log.base_offset() || log.is_sealed() {
            return Err(unfit("it was written before, and a leader never resumes"));
        }
        let machine = walrus_replica::Leader::open(descriptor.clone(), descriptor.leader.process);
        bind_writer(&copy, &machine)?;
        let lead = Arc::new(Lead::new(log.base_offset().0));
        copy.set_lead(Some(lead.clone()));
        let age_ms = u64::try_from(clock::now_ms()).unwrap_or(0).saturating_sub(segment.opened_at_ms);
        let opened = Instant::now();
        let replicas = descriptor.replicas.len();
        let epoch = descriptor.epoch;
        Ok(Self {
            own_copy_fenced: AtomicBool::new(false),
            own_replica,
            first_producers: log.first_producers(),
            lead,
            state: Mutex::new(State { machine, window: Window::default(), carried: HashMap::new() }),
            ended: watch::Sender::new(None),
            mailboxes: (0..replicas).map(|_| Default::default()).collect(),
            closed: CancellationToken::new(),
            key: Key { log, label, epoch },
            copy,
            opened: opened.checked_sub(Duration::from_millis(age_ms)).unwrap_or(opened),
            allotting: tokio::sync::Mutex::default(),
            hold_until: Mutex::default(),
            descriptor,
        })
    }

    pub(crate) fn log(&self) -> &Log {
        &self.key.log
    }

    /// How its segment is called in log lines and errors.
    pub(crate) fn label(&self) -> &str {
        &self.key.label
    }

    /// The other replicas, by place.
    pub(crate) fn followers(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.own_replica;
        (0..self.descriptor.replicas.len()).filter(move |place| *place != own)
    }

    /// No other node has a copy.
    pub(crate) fn is_only_copy(&self) -> bool {
        self.descriptor.replicas.len() == 1
    }

    /// Appends to the own log; the other replicas are sent the batch as soon as there is room on the way.
    /// `NotLeader`: somebody else decides where the segment ends.
    pub(crate) fn append(
        self: &Arc<Self>,
        broker: &Broker,
        batch: &StoredBatch<'_>,
        bytes: &Bytes,
        only: Option<SegmentId>,
        deadline: Instant,
    ) -> Result<Appended> {
        if broker.cluster().is_cut_off(&self.descriptor) {
            return Err(broker.cluster().cut_off(&self.descriptor));
        }
        let mut state = self.state.lock();
        if *state.machine.phase() != LeaderPhase::Leading {
            return Err(self.not_leader());
        }
        if state.window.bytes() > UNACKNOWLEDGED_BYTES_MAX {
            let what = format!("too much of {} waits for its replicas", self.label());
            return Err(Error::Unavailable { what });
        }
        let last = state.machine.last();
        let commit = state.machine.high_watermark();
        let appended = self.copy.append_here(commit, || {
            let appended = broker.bucket().append_by_key(&self.key, batch)?;
            if appended.duplicate {
                return Ok(((appended, None), None));
            }
            let mark = mark_behind(last, batch).expect("the log has taken it");
            assert_eq!(
                (appended.base_offset.0, appended.end_offset.0),
                (last.end.0, mark.end.0),
                "{}",
                self.label()
            );
            let placed = Batch { base: last.end, end: mark.end, digest: mark.digest };
            Ok(((appended, Some(placed)), Some(placed)))
        })?;
        let Some((appended, placed)) = appended else {
            // A recoverer was here: nothing is written by this leader any more, whatever the others promised.
            self.own_copy_fenced.store(true, Ordering::Release);
            return Err(self.not_leader());
        };
        if let Some(placed) = placed {
            let outputs = state.machine.step(LeaderInput::Assign(placed));
            debug_assert!(outputs.is_empty());
            state.window.push(Recent { batch: placed, bytes: bytes.clone(), only, deadline });
            state.trim_window();
            let up_to_date = |place: &usize| state.machine.next(*place) == placed.base;
            let (next, later): (Vec<_>, Vec<_>) = self.followers().partition(up_to_date);
            drop(state);
            next.into_iter().for_each(|place| follower::send_alone(broker, self, place, bytes.len()));
            later.into_iter().for_each(|place| self.ring(place));
        }
        Ok(appended)
    }

    /// Metadata has another leader, or none: whoever waits for an acknowledgement is told.
    pub(crate) fn close(&self) {
        self.copy.set_lead(None);
        self.closed.cancel();
    }

    fn not_leader(&self) -> Error {
        Error::NotLeader { key: self.label().to_owned(), hint: None }
    }

    /// The own disk has more: tells the machine.
    pub(crate) fn note_durable(&self, broker: &Broker) {
        match self.copy.note_durable() {
            Ok(Some(reply)) => self.reply(broker, self.own_replica, reply),
            Ok(None) => {}
            Err(error) => tracing::error!(segment = self.label(), %error, "the own copy fails"),
        }
    }

    /// A replica answered.
    pub(crate) fn reply(&self, broker: &Broker, from: usize, reply: Reply) {
        self.step(broker, LeaderInput::Reply { from, reply });
    }

    /// A new connection to a replica.
    pub(crate) fn reconnected(&self, broker: &Broker, to: usize) {
        self.mailboxes[to].mail.lock().clear();
        self.step(broker, LeaderInput::Reconnected { to });
    }

    /// The segment ends where its high watermark is, and goes on in that one.
    pub(crate) fn freeze(&self, broker: &Broker, successor: &Descriptor) {
        let successor = Descriptor { base_offset: None, ..successor.clone() };
        self.step(broker, LeaderInput::Freeze { successor });
    }

    /// Metadata has the decision.
    pub(crate) fn learned(&self, broker: &Broker, value: Value) {
        self.step(broker, LeaderInput::Learned(value));
    }

    fn step(&self, broker: &Broker, input: LeaderInput) {
        let mut state = self.state.lock();
        let outputs = state.machine.step(input);
        let mut carried = Vec::new();
        let mut own_mail = Vec::new();
        for output in outputs {
            match output {
                LeaderOutput::Send { to, message } if to == self.own_replica => own_mail.push(message),
                LeaderOutput::Send { to, message } => {
                    self.mailboxes[to].mail.lock().push_back(message);
                    self.ring(to);
                }
                LeaderOutput::HighWatermark(end) => {
                    state.trim_window();
                    self.lead.high_watermark.raise(end.0);
                }
                LeaderOutput::Deposed => {
                    self.lead.set_deposed(true);
                    tracing::warn!(
                        segment = self.label(),
                        "too few replicas take appends: somebody else decides its end"
                    );
                    broker.cluster().metrics().deposed.inc();
                }
                LeaderOutput::Recover => {
                    tracing::warn!(
                        segment = self.label(),
                        "its end cannot be voted on, a recovery is asked for"
                    );
                }
                LeaderOutput::Behind { replica } => {
                    let node = self.descriptor.replicas[replica].node.0;
                    tracing::warn!(
                        segment = self.label(),
                        node,
                        "a replica lost its place until the segment ends"
                    );
                }
                LeaderOutput::Ended(value) => {
                    self.lead.set_deposed(false);
                    carried = state.carry(&value);
                    self.mailboxes.iter().for_each(|mailbox| mailbox.bell.notify_one());
                    self.ended.send_replace(Some(Arc::new(value)));
                }
                LeaderOutput::Alarm(alarm) => {
                    broker.cluster().metrics().alarms.inc();
                    tracing::error!(segment = self.label(), ?alarm, "replicas contradict each other");
                }
            }
        }
        drop(state);
        if !own_mail.is_empty() {
            self.ask_own_copy(broker, own_mail);
        }
        if !carried.is_empty() {
            tracing::info!(
                segment = self.label(),
                appends = carried.len(),
                "appends go on in the next segment"
            );
            broker.carry(&self.descriptor, carried);
        }
    }

    /// The own replica votes like the others; that waits for the disk.
    fn ask_own_copy(&self, broker: &Broker, mail: Vec<Message>) {
        let (asking, copy, segment) = (broker.clone(), self.copy.clone(), self.descriptor.id);
        let own = self.own_replica;
        broker.cluster().tasks().spawn("own vote", async move {
            for message in mail {
                let copy = copy.clone();
                let asked = asking.cluster().tasks().blocking(move || copy.tell(message)).await;
                match asked {
                    Ok(Some(reply)) => {
                        if let Some(leader) = asking.known_leader(segment) {
                            leader.reply(&asking, own, reply);
                        }
                    }
                    Ok(None) => {}
                    Err(error) => tracing::error!(%segment, %error, "the own copy cannot vote"),
                }
            }
        });
    }

    /// What a replica is sent next, besides batches.
    pub(crate) fn take_mail(&self, to: usize) -> Option<Message> {
        self.mailboxes[to].mail.lock().pop_front()
    }

    /// Says that there is mail for a replica.
    pub(crate) fn has_mail(&self, to: usize) -> bool {
        !self.mailboxes[to].mail.lock().is_empty()
    }

    /// How a replica is reached now.
    pub(crate) fn link(&self, to: usize) -> &Mutex<Option<Link>> {
        &self.mailboxes[to].link
    }

    /// Calls the task that serves a replica.
    pub(crate) fn ring(&self, to: usize) {
        self.mailboxes[to].bell.notify_one();
    }

    /// Rings when there is something for a replica.
    pub(crate) async fn bell(&self, to: usize) {
        self.mailboxes[to].bell.notified().await;
    }

    /// Rings if there are batches for a replica.
    pub(crate) fn ring_for_batches(&self, to: usize) {
        if self.state.lock().machine.has_batches_for(to) {
            self.ring(to);
        }
    }

    /// The next batches for a replica, about so many bytes; `None`: it has all, or takes none.
    pub(crate) fn next_append(&self, to: usize, bytes_max: usize) -> Result<Option<AppendBytes>> {
        let mut state = self.state.lock();
        if !state.machine.has_batches_for(to) {
            return Ok(None);
        }
        let next = state.machine.next(to);
        let bytes = match state.window.from(next, bytes_max) {
            Some(bytes) => bytes,
            None => {
                // The slow one: it has fallen behind the window. What was sent before need not be durable here.
                drop(state);
                let batches = self.read_aside(next.0, bytes_max)?;
                state = self.state.lock();
                batches
            }
        };
        if bytes.is_empty() || state.machine.next(to) != next {
            return Ok(None);
        }
        let outputs = state.machine.step(LeaderInput::Send { to, batches_max: bytes.len() });
        Ok(outputs.into_iter().find_map(|output| match output {
            LeaderOutput::Send { message: Message::Append(append), .. } => {
                let walrus_replica::Append { epoch, writer, from, batches, commit } = append;
                let batches = bytes[..batches.len()].to_vec();
                Some(AppendBytes { epoch, writer, from, batches, commit })
            }
            _ => None,
        }))
    }

    /// Reads the own log, perhaps from the disk: this thread's other tasks go on elsewhere.
    fn read_aside(&self, from: u64, bytes_max: usize) -> Result<Vec<Bytes>> {
        let read = tokio::task::block_in_place(|| self.log().read(Offset(from), bytes_max));
        let failed = |error| Error::Storage {
            node: self.descriptor.leader.node.0,
            message: format!("{}: {error}", self.label()),
        };
        read.map(|slices| slices.batches).map_err(failed)
    }

    /// What of the own log a message lacks that asks for a vote.
    pub(crate) fn missing(&self, accept: &walrus_replica::Accept, bytes_max: usize) -> Result<Ask> {
        let from = accept.missing.first().map_or(accept.value.end, |batch| batch.base);
        let mut batches = Vec::new();
        if from < accept.value.end {
            batches = self.read_aside(from.0, bytes_max)?;
        }
        let accept = walrus_replica::Accept { missing: Vec::new(), ..accept.clone() };
        Ok(Ask::Accept(accept, from, batches, Box::new(self.descriptor.clone())))
    }

    /// Waits until an append of this leader is acknowledged, or is known not to be here.
    pub(crate) async fn acknowledged(
        &self,
        broker: &Broker,
        (base, end): (u64, u64),
        deadline: Instant,
    ) -> Waited {
        let mut lost = broker.cluster().liveness().watch_lost();
        let mut reaching = std::pin::pin!(self.lead.high_watermark.reaches(end));
        let mut ended = self.ended.subscribe();
        loop {
            // Before the others: what metadata told the leader, it was told before it was closed.
            let is_closed = self.closed.is_cancelled();
            if self.lead.high_watermark.get() >= end {
                return Waited::Acknowledged;
            }
            let decided = ended.borrow_and_update().clone();
            if let Some(value) = decided {
                let is_lost = value.lost.iter().any(|range| range.start.0 < end && base < range.end.0);
                if is_lost {
                    return Waited::Unknown("it rotted on every disk that had it");
                }
                if value.end.0 >= end {
                    return Waited::Acknowledged;
                }
                return match self.state.lock().carried.remove(&base) {
                    Some(receiver) => Waited::Carried(receiver),
                    None => Waited::Unknown("its segment has ended before it"),
                };
            }
            if is_closed {
                return Waited::Unknown("its segment is not listed any more");
            }
            lost.mark_unchanged();
            if broker.cluster().is_cut_off(&self.descriptor) {
                return Waited::Unknown("too few of its replicas answer this node");
            }
            tokio::select! {
                biased; // a task that was held up finds several: it is too late only if nothing else is so
                () = &mut reaching => return Waited::Acknowledged,
                _ = ended.changed() => {}
                _ = lost.changed() => {}
                () = self.closed.cancelled() => {}
                () = tokio::time::sleep_until(deadline.into()) => {
                    return Waited::Unknown("too few replicas have it");
                }
            }
        }
    }

    pub(crate) fn high_watermark(&self) -> u64 {
        self.lead.high_watermark.get()
    }

    pub(crate) fn watch_high_watermark(&self) -> watch::Receiver<u64> {
        self.lead.high_watermark.watch()
    }

    pub(crate) fn watch_end(&self) -> watch::Receiver<Option<Arc<Value>>> {
        self.ended.subscribe()
    }

    /// Whether it takes appends, as far as its replicas said.
    pub(crate) fn is_leading(&self) -> bool {
        !self.own_copy_fenced.load(Ordering::Acquire)
            && *self.state.lock().machine.phase() == LeaderPhase::Leading
    }

    /// By replica: node, and how many records it has not acknowledged.
    pub(crate) fn lags(&self) -> Vec<(u32, u64)> {
        let state = self.state.lock();
        let end = state.machine.assigned_end().0;
        let replicas = self.descriptor.replicas.iter().enumerate();
        replicas.map(|(place, replica)| (replica.node.0, end - state.machine.durable_end(place).0)).collect()
    }

    pub(crate) fn fill(&self) -> Fill {
        Fill {
            entries: self.key.log.end_offset().0.saturating_sub(self.key.log.base_offset().0),
            bytes: self.key.log.size_bytes(),
            age: self.opened.elapsed(),
        }
    }

    /// What to do with the segment as it is now.
    pub(crate) fn decide(&self, limits: Limits) -> Decision {
        let fill = self.fill();
        let decision = fullness::decide(fill, limits);
        match decision {
            Decision::SealAfterThis(_) if self.is_held() && fullness::may_outgrow(fill, limits) => {
                Decision::Continue
            }
            other => other,
        }
    }

    /// The roll found no successor: go on for a while.
    pub(crate) fn hold(&self, time: Duration) {
        *self.hold_until.lock() = Some(Instant::now() + time);
    }

    /// Whether it may go on without a successor.
    pub(crate) fn may_outgrow(&self, limits: Limits) -> bool {
        fullness::may_outgrow(self.fill(), limits)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.hold_until.lock().is_some_and(|until| Instant::now() < until)
    }
}

impl State {
    fn trim_window(&mut self) {
        self.window.trim(self.machine.high_watermark());
    }

    /// Appends behind the decided end, in order, each once (R3).
    fn carry(&mut self, value: &Value) -> Vec<Carried> {
        let mut carried = Vec::new();
        for Recent { batch, bytes, only, deadline } in self.window.take_behind(value.end) {
            let (reply, receiver) = oneshot::channel();
            self.carried.insert(batch.base.0, receiver);
            carried.push(Carried { batch: bytes, only, deadline, reply });
        }
        carried
    }
}

/// Before the first batch: the replica takes appends of this process only (S9).
fn bind_writer(copy: &Copy, machine: &walrus_replica::Leader) -> Result<()> {
    let descriptor = machine.descriptor();
    let append = AppendBytes {
        epoch: descriptor.epoch,
        writer: descriptor.leader.process,
        from: machine.last(),
        batches: Vec::new(),
        commit: machine.high_watermark(),
    };
    match copy.ask(Ask::Append(append))?.answer {
        Some(Reply::Ack { .. }) => Ok(()),
        other => Err(Error::Unavailable { what: format!("the own copy takes no appends: {other:?}") }),
    }
}
