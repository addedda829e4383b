//! The leader of one open segment on this node: the machine that decides, the batches that are not acknowledged yet, and
//! how full the segment is. Appends come through the partition's [`Sequencer`](crate::partition::sequencer::Sequencer), one after
//! another; answers of replicas come as they come.

mod filling;
mod sending;
pub(crate) mod waiting;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use walrus_log::batch::Batch as StoredBatch;
use walrus_log::{Admission, AppendReceipt, CommitTicket, Log, ProducerTable};
use walrus_metadata::Segment;
use walrus_model::{Descriptor, Offset, SegmentId, Value};
use walrus_replica::{Batch, LeaderInput, LeaderOutput, LeaderPhase, Message, Reply};

use crate::bucket::Key;
use crate::cluster::Cluster;
use crate::copies::Copies;
use crate::copies::copy::Copy;
use crate::copies::lead::Lead;
use crate::copies::marks::mark_behind;
use crate::copies::wire::{AppendBytes, Ask};
use crate::node::clock;
use crate::node::error::{Error, Result};
use crate::node::locks::{LEADER, Lock};
use crate::node::obstacle::Obstacle;
use crate::partition::ack::AppendAck;
use crate::partition::fullness::Hold;
use crate::partition::link::Mailbox;
use crate::partition::window::{RecentBatch, Window};

/// Limit on the bytes of one segment's batches that wait for their acknowledgement; an append above it is refused. It is above
/// what the window keeps of acknowledged ones.
const UNACKNOWLEDGED_BYTES_MAX: usize = 256 << 20;

/// The leader of one open segment: the machine that decides, and what this node must know to carry it out.
pub(crate) struct Leader {
    pub(crate) descriptor: Descriptor,
    pub(crate) key: Key,
    /// This node's own copy, a replica like the others.
    copy: Arc<Copy>,
    /// A recoverer has made the own copy refuse this leader's appends.
    own_copy_fenced: AtomicBool,
    /// Place of this node among the descriptor's replicas.
    own_replica: usize,
    /// What was known of producers at the segment's base.
    pub(crate) first_producers: ProducerTable,
    state: Lock<State, LEADER>,
    /// The facts that it tells those who answer for the own copy.
    lead: Arc<Lead>,
    /// Where the segment ends, once that is decided.
    ended: watch::Sender<Option<Arc<Value>>>,
    /// What goes to each replica, by place.
    mailboxes: Vec<Mailbox>,
    /// Cancelled when metadata has another leader, or none.
    pub(crate) closed: CancellationToken,
    opened: Instant,
    /// The time that the last batch got from this leader, where its topic wants that; milliseconds since the epoch.
    last_time_ms: AtomicI64,
    /// Held by whoever has a successor allotted, so that it is done once.
    pub(crate) allotting: tokio::sync::Mutex<()>,
    /// A roll that found no successor is not tried again before this.
    hold: Lock<Option<Hold>>,
    /// Takes the appends that the segment ends without.
    back: Weak<dyn Requeue>,
}

/// Takes appends back that their segment ended without: they go on in the next one, in front of all that came later.
pub(crate) trait Requeue: Send + Sync {
    /// Takes appends in their order. When this returns they have their places.
    fn requeue(self: Arc<Self>, carried: Vec<CarriedAppend>);
}

/// What became of a batch.
pub(crate) enum AppendOutcome {
    /// Acknowledged by the leader's node.
    Committed(AppendAck),
    /// In the log of this node's leader, on its way to the disks.
    Committing { ack: AppendAck, commit: CommitTicket, leader: Arc<Leader>, deadline: Instant },
    /// Another node sent it for a segment that is not open here.
    Moved,
    /// This leader refused it, for its log lacks something before it.
    Refused { error: Error, leader: Arc<Leader> },
}

/// What a step of the machine wants done outside of the leader's lock. What is sent to others lies in their mailboxes already,
/// in the order of sending.
#[derive(Default)]
#[must_use = "nothing is done before the effects are carried out"]
struct Effects {
    /// Replicas that have mail.
    mail: Vec<usize>,
    /// Messages to the own replica.
    own_mail: Vec<Message>,
    /// The new high watermark: everything below it is on w disks.
    high_watermark: Option<Offset>,
    /// The segment's end, and the appends that are not in the segment.
    ended: Option<(Value, Vec<CarriedAppend>)>,
    /// What is to be logged and counted.
    reports: Vec<Report>,
}

#[derive(Debug)]
enum Report {
    Deposed,
    Recover,
    Behind { replica: usize },
    Alarm(String),
}

/// An append that was written, and who is to be sent it.
pub(crate) struct LocalAppend {
    pub(crate) appended: AppendReceipt,
    /// Replicas that have all that came before: whoever appended sends it to them, if nothing is on the way to them.
    pub(crate) up_to_date: Vec<usize>,
}

struct State {
    machine: walrus_replica::Leader,
    window: Window,
    /// Outcomes of appends that went on to the next segment, by the offsets that they were to have here.
    carried: HashMap<u64, oneshot::Receiver<Result<AppendOutcome>>>,
}

/// An append that must go on to the next segment.
pub(crate) struct CarriedAppend {
    pub(crate) batch: Bytes,
    /// The segment for which another node sent it.
    pub(crate) for_segment: Option<SegmentId>,
    pub(crate) deadline: Instant,
    pub(crate) reply: oneshot::Sender<Result<AppendOutcome>>,
}

impl Leader {
    /// Begins to lead a segment with a new, empty log of which this process is the leader, and which no other process has
    /// written (R7). Binds the own copy to this process, and waits for the disk.
    pub(crate) fn open(
        segment: &Segment,
        label: Arc<str>,
        log: Log,
        copy: Arc<Copy>,
        node: u32,
        back: Weak<dyn Requeue>,
    ) -> Result<Self> {
        let descriptor = segment.descriptor.clone();
        let own_replica = descriptor.replicas.iter().position(|replica| replica.node.0 == node);
        let own_replica = own_replica.ok_or_else(|| Obstacle::LedNotStored { label: label.to_string() })?;
        if log.end_offset() != log.base_offset() || log.is_sealed() {
            return Err(Obstacle::WrittenBefore { label: label.to_string() }.into());
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
            first_producers: log.first_producers().unwrap_or_default(),
            lead,
            state: Lock::new(State { machine, window: Window::default(), carried: HashMap::new() }),
            ended: watch::Sender::new(None),
            mailboxes: (0..replicas).map(|_| Default::default()).collect(),
            closed: CancellationToken::new(),
            key: Key { log, label, epoch },
            copy,
            last_time_ms: AtomicI64::new(i64::MIN),
            opened: opened.checked_sub(Duration::from_millis(age_ms)).unwrap_or(opened),
            allotting: tokio::sync::Mutex::default(),
            hold: Lock::default(),
            back,
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

    /// Whether no other node has a copy.
    pub(crate) fn is_only_copy(&self) -> bool {
        self.descriptor.replicas.len() == 1
    }

    /// Appends to the own log; nothing is durable on return. Calls the replicas that are behind; the others are the caller's
    /// business, see [`LocalAppend`]. `NotLeader` if somebody else decides where the segment ends.
    pub(crate) fn append(
        &self,
        copies: &Arc<Copies>,
        batch: &StoredBatch<'_>,
        bytes: &Bytes,
        for_segment: Option<SegmentId>,
        deadline: Instant,
    ) -> Result<LocalAppend> {
        copies.cluster().check_segment_reach(&self.descriptor)?;
        let mut state = self.state.lock();
        if *state.machine.phase() != LeaderPhase::Leading {
            return Err(self.not_leader());
        }
        if state.window.bytes() > UNACKNOWLEDGED_BYTES_MAX {
            return Err(Obstacle::ReplicasBehind { label: self.label().to_owned() }.into());
        }
        let last = state.machine.last();
        let commit = state.machine.high_watermark();
        let appended = self.copy.append_here(commit, || {
            let appended = copies.bucket().append_by_key(&self.key, batch)?;
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
        let mut next = Vec::new();
        if let Some(placed) = placed {
            let outputs = state.machine.step(LeaderInput::Assign(placed));
            debug_assert!(outputs.is_empty());
            state.window.push(RecentBatch { batch: placed, bytes: bytes.clone(), for_segment, deadline });
            state.trim_window();
            let up_to_date = |place: &usize| state.machine.next(*place) == placed.base;
            let later: Vec<_>;
            (next, later) = self.followers().partition(up_to_date);
            drop(state);
            later.into_iter().for_each(|place| self.ring(place));
        }
        Ok(LocalAppend { appended, up_to_date: next })
    }

    /// The time that the next batch gets: that of the clock, and never lower than the one before in this segment. Calls come in
    /// the order of the batches.
    pub(crate) fn next_time_ms(&self) -> i64 {
        let now = clock::now_ms();
        self.last_time_ms.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// Whether the log has a batch of a producer already.
    pub(crate) fn has(&self, batch: &StoredBatch<'_>) -> bool {
        let admission = |producer| self.log().producers().check(producer, batch.record_count());
        batch
            .producer()
            .is_some_and(|producer| matches!(admission(producer), Ok(Admission::Duplicate { .. })))
    }

    /// Ends this leader when metadata has another one, or none: whoever waits for an acknowledgement is told.
    pub(crate) fn close(&self) {
        self.copy.set_lead(None);
        self.closed.cancel();
    }

    fn not_leader(&self) -> Error {
        Error::NotLeader { key: self.label().to_owned(), hint: None }
    }

    /// Tells the machine that the own disk has more.
    pub(crate) fn note_durable(self: &Arc<Self>, copies: &Arc<Copies>) {
        match self.copy.note_durable() {
            Ok(Some(reply)) => self.reply(copies, self.own_replica, reply),
            Ok(None) => {}
            Err(error) => tracing::error!(segment = self.label(), %error, "the own copy fails"),
        }
    }

    /// Tells the machine what a replica answered.
    pub(crate) fn reply(self: &Arc<Self>, copies: &Arc<Copies>, from: usize, reply: Reply) {
        self.input(copies, LeaderInput::Reply { from, reply });
    }

    /// Tells the machine of a new connection to a replica, for which the old mail is dropped.
    pub(crate) fn reconnected(self: &Arc<Self>, copies: &Arc<Copies>, to: usize) {
        self.mailboxes[to].mail.lock().clear();
        self.input(copies, LeaderInput::Reconnected { to });
    }

    /// Freezes the segment: it takes no more appends, ends where its high watermark is, and goes on in `successor`.
    pub(crate) fn freeze(self: &Arc<Self>, copies: &Arc<Copies>, successor: &Descriptor) {
        let successor = Descriptor { base_offset: None, ..successor.clone() };
        self.input(copies, LeaderInput::Freeze { successor });
    }

    /// Tells the machine where the segment ends, as metadata has it.
    pub(crate) fn learn_end(self: &Arc<Self>, copies: &Arc<Copies>, value: Value) {
        self.input(copies, LeaderInput::Learned(value));
    }

    fn input(self: &Arc<Self>, copies: &Arc<Copies>, input: LeaderInput) {
        let effects = self.step(input);
        self.carry_out(copies, effects);
    }

    /// Steps the machine under the lock, and says what is to be done outside of it.
    fn step(&self, input: LeaderInput) -> Effects {
        let mut effects = Effects::default();
        let mut state = self.state.lock();
        for output in state.machine.step(input) {
            match output {
                LeaderOutput::Send { to, message } if to == self.own_replica => {
                    effects.own_mail.push(message);
                }
                LeaderOutput::Send { to, message } => {
                    self.mailboxes[to].mail.lock().push_back(message);
                    effects.mail.push(to);
                }
                LeaderOutput::HighWatermark(end) => {
                    state.trim_window();
                    effects.high_watermark = Some(end);
                }
                LeaderOutput::Ended(value) => {
                    let carried = state.carry(&value);
                    effects.ended = Some((value, carried));
                }
                LeaderOutput::Deposed => effects.reports.push(Report::Deposed),
                LeaderOutput::Recover => effects.reports.push(Report::Recover),
                LeaderOutput::Behind { replica } => effects.reports.push(Report::Behind { replica }),
                LeaderOutput::Alarm(alarm) => effects.reports.push(Report::Alarm(format!("{alarm:?}"))),
            }
        }
        effects
    }

    fn carry_out(self: &Arc<Self>, copies: &Arc<Copies>, effects: Effects) {
        let Effects { mail, own_mail, high_watermark, ended, reports } = effects;
        if let Some(end) = high_watermark {
            self.lead.high_watermark.raise(end.0);
        }
        mail.into_iter().for_each(|to| self.ring(to));
        reports.into_iter().for_each(|report| self.report(copies.cluster(), report));
        if !own_mail.is_empty() {
            self.ask_own_copy(copies, own_mail);
        }
        if let Some((value, carried)) = ended {
            self.end(value, carried);
        }
    }

    fn report(&self, cluster: &Cluster, report: Report) {
        let segment = self.label();
        match report {
            Report::Deposed => {
                self.lead.set_deposed(true);
                cluster.metrics().deposed.inc();
                tracing::warn!(segment, "too few replicas take appends: somebody else decides its end");
            }
            Report::Recover => {
                tracing::warn!(segment, "its end cannot be voted on, a recovery is asked for");
            }
            Report::Behind { replica } => {
                let node = self.descriptor.replicas[replica].node.0;
                tracing::warn!(segment, node, "a replica lost its place until the segment ends");
            }
            Report::Alarm(alarm) => {
                cluster.metrics().alarms.inc();
                tracing::error!(segment, alarm, "replicas contradict each other");
            }
        }
    }

    /// Ends the segment at a decided value. What it ends without has its place in the next one before anybody hears of the end:
    /// else what came later could be handed on first.
    fn end(&self, value: Value, carried: Vec<CarriedAppend>) {
        self.lead.set_deposed(false);
        if !carried.is_empty() {
            tracing::info!(
                segment = self.label(),
                appends = carried.len(),
                "appends go on in the next segment"
            );
            match self.back.upgrade() {
                Some(back) => back.requeue(carried),
                None => {
                    for append in carried {
                        let topic = self.descriptor.topic.0.to_string();
                        drop(append.reply.send(Err(Error::UnknownTopic { topic }))); // whoever asked may be gone
                    }
                }
            }
        }
        self.ended.send_replace(Some(Arc::new(value)));
        self.mailboxes.iter().for_each(|mailbox| mailbox.bell.notify_one());
    }

    /// Has the own replica vote like the others, beside this thread, for that waits for the disk.
    fn ask_own_copy(self: &Arc<Self>, copies: &Arc<Copies>, mail: Vec<Message>) {
        let (leader, asking) = (self.clone(), copies.clone());
        copies.tasks().spawn("own vote", async move {
            for message in mail {
                let copy = leader.copy.clone();
                match asking.tasks().blocking(move || copy.tell(message)).await {
                    Ok(Some(reply)) if !leader.closed.is_cancelled() => {
                        leader.reply(&asking, leader.own_replica, reply);
                    }
                    Ok(_) => {}
                    Err(error) => {
                        tracing::error!(segment = leader.label(), %error, "the own copy cannot vote");
                    }
                }
            }
        });
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

    /// Whether this leader takes appends, as far as its replicas said.
    pub(crate) fn is_leading(&self) -> bool {
        !self.own_copy_fenced.load(Ordering::Acquire)
            && *self.state.lock().machine.phase() == LeaderPhase::Leading
    }

    /// For each replica its node and how many records it has not acknowledged.
    pub(crate) fn lags(&self) -> Vec<(u32, u64)> {
        let state = self.state.lock();
        let end = state.machine.assigned_end().0;
        let replicas = self.descriptor.replicas.iter().enumerate();
        replicas.map(|(place, replica)| (replica.node.0, end - state.machine.durable_end(place).0)).collect()
    }
}

impl State {
    fn trim_window(&mut self) {
        self.window.trim(self.machine.high_watermark());
    }

    /// Takes the appends behind the decided end, in order, each once (R3).
    fn carry(&mut self, value: &Value) -> Vec<CarriedAppend> {
        let mut carried = Vec::new();
        for RecentBatch { batch, bytes, for_segment, deadline } in self.window.take_behind(value.end) {
            let (reply, receiver) = oneshot::channel();
            self.carried.insert(batch.base.0, receiver);
            carried.push(CarriedAppend { batch: bytes, for_segment, deadline, reply });
        }
        carried
    }
}

/// Binds the own copy to this process before the first batch: from here on it takes appends of no other (S9).
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
        answer => Err(Obstacle::OwnCopyUnwilling { answer: answer.map(Box::new) }.into()),
    }
}
