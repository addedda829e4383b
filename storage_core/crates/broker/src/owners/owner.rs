//! The owner of one partition of one of Walrus's own topics: the node that leads its open segment.
//!
//! Taking over, it asks every other node to stop serving the partition and to say what is not in its records, then replays the
//! partition. What changes is appended to the partition, one append in flight; when older segments hold little that is still
//! needed, that little is appended again and they are trimmed.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::watch;
use walrus_log::batch::Batch;
use walrus_model::TopicId;
use walrus_owners::{Entry, Late, ServedSegment, Step, Tenure, Term, Trim, Worth};

use super::hand_over;
use super::ledger::{Ledger, batch_of};
use crate::cluster::leadership::Leadership;
use crate::cluster::routing::{is_led_by, open_segment};
use crate::node::error::{Error, Result};
use crate::node::locks::Lock;
use crate::node::names::PartitionRef;
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::reading::reader::ReadOptions;
use crate::topics::Topics;

/// About how many bytes of a partition are replayed at a time.
const REPLAY_BYTES: usize = 1 << 20;
/// When it is worth it to record again what is needed of older segments.
const WORTH: Worth = Worth { entries_min: 1_000, factor: 4 };

/// One partition, as far as this node owns it.
pub(crate) struct Owner<L: Ledger> {
    log: PartitionRef,
    state: Lock<State<L>>,
    /// Held while this node takes the partition over, so that it does so once.
    taking_over: tokio::sync::Mutex<()>,
    /// Ticks when records became durable, or when the ownership ended.
    recorded: watch::Sender<u64>,
    /// Whether the last try to record failed, which was logged.
    is_stuck: AtomicBool,
}

struct State<L: Ledger> {
    tenure: Tenure<L>,
    /// Whether a task appends records.
    is_recording: bool,
}

impl<L: Ledger> Owner<L> {
    pub(crate) fn new(log: PartitionRef) -> Self {
        let state = State { tenure: Tenure::new(L::default()), is_recording: false };
        Self {
            log,
            state: Lock::new(state),
            taking_over: tokio::sync::Mutex::default(),
            recorded: watch::Sender::new(0),
            is_stuck: AtomicBool::new(false),
        }
    }

    /// The partition.
    pub(crate) fn log(&self) -> &PartitionRef {
        &self.log
    }

    /// Makes sure that this node owns the partition; takes it over if need be.
    pub(crate) async fn serve(self: &Arc<Self>, topics: &Arc<Topics>) -> Result<Term> {
        if let Some(term) = self.serving_under(&self.leadership(topics)?) {
            return Ok(term);
        }
        let _taking_over = self.taking_over.lock().await;
        let leadership = self.leadership(topics)?;
        if let Some(term) = self.serving_under(&leadership) {
            return Ok(term);
        }
        let serving = ServedSegment { segment: leadership.segment, number: leadership.number };
        let has_led = self.has_led(topics)?;
        let goes_on = self.state.lock().tenure.go_on(serving, has_led);
        let term = match goes_on {
            Some(term) => term,
            None => self.take_over(topics, serving).await?,
        };
        let live: HashSet<TopicId> =
            topics.cluster().routing().topics().map(|route| route.topic.id).collect();
        let before = Trim { number: leadership.number, base: leadership.base_offset };
        self.state.lock().tenure.plan_snapshot(&live, before, WORTH);
        self.record(topics);
        Ok(term)
    }

    /// Does something with the ledger, if this node still serves in that term.
    pub(crate) fn with<R>(&self, term: Term, act: impl FnOnce(&mut L) -> R) -> Result<R> {
        let mut state = self.state.lock();
        let lost = || Error::NotLeader { key: self.log.to_string(), hint: None };
        state.tenure.ledger(term).map(act).ok_or_else(lost)
    }

    /// The term in which this node serves now; `None` if it does not.
    pub(crate) fn term(&self) -> Option<Term> {
        self.state.lock().tenure.term()
    }

    /// The term in which this node serves, if it owns the partition and has nothing to do for that first.
    pub(crate) fn serves(&self, topics: &Arc<Topics>) -> Result<Option<Term>> {
        Ok(self.serving_under(&self.leadership(topics)?))
    }

    /// Ends serving where this node does not own the partition any more: whoever waits here is told.
    pub(crate) fn end_if_lost(&self, topics: &Arc<Topics>) {
        match self.leadership(topics) {
            // Between two segments nobody leads, and nobody else can take over.
            Ok(_) | Err(Error::Unavailable { obstacle: Obstacle::WithoutOpenSegment { .. } }) => {}
            Err(_) => self.resign(None),
        }
    }

    /// `Unavailable` or `NotLeader`, unless nobody else can have owned the partition between the beginning of that term and this
    /// question.
    pub(crate) async fn confirm(&self, topics: &Arc<Topics>, term: Term) -> Result<()> {
        let routing = topics.cluster().routing().clone();
        let (_, partition) = routing.partition(&self.log)?;
        let nobody = || Obstacle::WithoutOpenSegment { partition: self.log.to_string() };
        let open = open_segment(partition).ok_or_else(nobody)?;
        // This node may have led before somebody else, and lead again: then the term is another one.
        if self.state.lock().tenure.serving_under(open.descriptor.id) != Some(term) {
            return Err(Error::NotLeader { key: self.log.to_string(), hint: None });
        }
        topics.copies().may_claim_end(&open.descriptor).await
    }

    /// Ticks when records became durable, or when the ownership ended.
    pub(crate) fn watch_recorded(&self) -> watch::Receiver<u64> {
        self.recorded.subscribe()
    }

    /// Stops serving segments below `number`; says what the next owner cannot read there.
    pub(crate) fn hand_over(&self, number: u64) -> Vec<L::Handed> {
        let Some(unknown) = self.state.lock().tenure.hand_over(number) else { return Vec::new() };
        self.tick();
        unknown
    }

    /// Waits until everything that is to be recorded is.
    pub(crate) async fn drain(&self) {
        let mut recorded = self.watch_recorded();
        while self.state.lock().is_recording {
            if recorded.changed().await.is_err() {
                return;
            }
        }
    }

    /// Starts the task that appends records, unless it runs or nothing is to do.
    pub(crate) fn record(self: &Arc<Self>, topics: &Arc<Topics>) {
        let mut state = self.state.lock();
        if state.is_recording || !state.tenure.has_work() {
            return;
        }
        state.is_recording = true;
        drop(state);
        let (owner, topics) = (Arc::clone(self), topics.clone());
        tokio::spawn(async move { while owner.record_once(&topics).await {} });
    }

    /// The leadership of the open segment, if it is ours and not handed over.
    fn leadership(&self, topics: &Arc<Topics>) -> Result<Leadership> {
        let leadership = topics.cluster().leadership(&self.log)?;
        if leadership.ours && self.state.lock().tenure.may_serve(leadership.number) {
            topics.cluster().check_reach(&self.log)?; // else another node may own it by now
            return Ok(leadership);
        }
        let hint = (!leadership.ours).then_some(leadership.node);
        Err(Error::NotLeader { key: self.log.to_string(), hint })
    }

    /// The term in which this node serves, if it does so under the segment of this leadership.
    fn serving_under(&self, leadership: &Leadership) -> Option<Term> {
        self.state.lock().tenure.serving_under(leadership.segment)
    }

    /// Whether this process led the segment of a number, by the metadata of now.
    fn has_led(&self, topics: &Arc<Topics>) -> Result<impl Fn(u64) -> bool + use<L>> {
        let routing = topics.cluster().routing();
        let segments = &routing.partition(&self.log)?.1.segments;
        let mine =
            segments.iter().filter(|segment| is_led_by(segment.descriptor.leader, topics.cluster().config()));
        let mine: HashSet<u64> = mine.map(|segment| segment.descriptor.number).collect();
        Ok(move |number| mine.contains(&number))
    }

    async fn take_over(&self, topics: &Arc<Topics>, serving: ServedSegment) -> Result<Term> {
        self.resign(None);
        let said = hand_over::collect::<L>(topics, self.log.partition, serving.number).await;
        self.state.lock().tenure.hear(said); // kept should the replay fail: nobody says it twice
        let began = Instant::now();
        if L::LATE == Late::Wrong {
            self.settle(topics, serving).await?;
        }
        let (replayed, log_start) = self.replay(topics).await?;
        let lost = || Error::NotLeader { key: self.log.to_string(), hint: None };
        let term = self.state.lock().tenure.begin(serving, replayed, log_start).ok_or_else(lost)?;
        let entries = self.with(term, |ledger| ledger.entries())?;
        let (what, took) = (L::WHAT, began.elapsed());
        tracing::info!(log = %self.log, number = serving.number, entries, ?took, "owns {what}");
        Ok(term)
    }

    /// Returns when it is decided of everything that this node has ever appended to the segment whether it is stored: an earlier term of
    /// this node may have ended because nobody knew. What is replayed then is all that there is.
    async fn settle(&self, topics: &Arc<Topics>, serving: ServedSegment) -> Result<()> {
        let deadline = Instant::now() + patience::OWNER_RECORD;
        let batch = batch_of(&[L::nothing()])?;
        let lost = || Error::NotLeader { key: self.log.to_string(), hint: None };
        topics.append_to(&self.log, serving.segment, &batch, deadline).await?.map(drop).ok_or_else(lost)
    }

    /// Reads all records of the partition; says also where it begins.
    async fn replay(&self, topics: &Arc<Topics>) -> Result<(L::Replayed, u64)> {
        let mut replayed = L::Replayed::default();
        let options =
            ReadOptions { bytes_max: REPLAY_BYTES, wait: Duration::ZERO, segment: None, unconfirmed: false };
        let mut offset = 0;
        let log_start = loop {
            let page = match topics.reading().read(&self.log, offset, options).await {
                Err(Error::OffsetOutOfRange { start, .. }) if offset < start => {
                    offset = start;
                    continue;
                }
                page => page?,
            };
            for batch in page.batches() {
                let batch = batch.map_err(|problem| self.unreadable(problem))?;
                let (batch, _) = Batch::parse(&batch).map_err(|problem| self.unreadable(problem))?;
                for record in batch.records() {
                    let record = record.map_err(|problem| self.unreadable(problem))?;
                    L::replay(&mut replayed, &record).map_err(|problem| self.unreadable(problem.0))?;
                }
            }
            if page.next_offset <= offset || page.pieces.is_empty() {
                break page.log_start;
            }
            offset = page.next_offset;
        };
        Ok((replayed, log_start))
    }

    fn unreadable(&self, problem: impl std::fmt::Display) -> Error {
        Error::Internal { message: format!("cannot replay {}: {problem}", self.log) }
    }

    /// Appends the next lot, or trims. `false` if nothing is left to do.
    async fn record_once(self: &Arc<Self>, topics: &Arc<Topics>) -> bool {
        let step = {
            let mut state = self.state.lock();
            let step = state.tenure.next_step();
            state.is_recording = step.is_some();
            step
        };
        let is_more = step.is_some();
        match step {
            None => {}
            Some(Step::Append { term, lot, entries }) => match self.append(topics, term, &entries).await {
                Ok(base_offset) => {
                    if self.is_stuck.swap(false, Ordering::Relaxed) {
                        tracing::info!(log = %self.log, "{} are recorded again", L::WHAT);
                    }
                    self.state.lock().tenure.recorded(term, lot, base_offset);
                }
                Err(problem) => self.give_up(topics, term, &problem).await,
            },
            Some(Step::Trim(trim)) => match topics.trim(&self.log, trim.number).await {
                Ok(()) => self.state.lock().tenure.trimmed(trim),
                Err(problem) => {
                    tracing::warn!(log = %self.log, %problem, "old records of {} stay until the next roll", L::WHAT);
                }
            },
        }
        self.tick();
        is_more
    }

    async fn append(self: &Arc<Self>, topics: &Arc<Topics>, term: Term, entries: &[Entry]) -> Result<u64> {
        let batch = batch_of(entries)?;
        match L::LATE {
            Late::Harmless => Ok(topics.append(&self.log, batch).await?.base_offset),
            Late::Wrong => self.append_in(topics, term, &batch).await,
        }
    }

    /// Appends to the segment under which this node serves, and to no other one; goes on to the next one where this node leads that
    /// as well.
    async fn append_in(self: &Arc<Self>, topics: &Arc<Topics>, term: Term, batch: &Bytes) -> Result<u64> {
        let lost = || Error::NotLeader { key: self.log.to_string(), hint: None };
        let deadline = Instant::now() + patience::OWNER_RECORD;
        loop {
            let mut metadata = topics.cluster().watch_metadata();
            metadata.mark_unchanged();
            let serving = self.state.lock().tenure.appends_to(term).ok_or_else(lost)?;
            if let Some(ack) = topics.append_to(&self.log, serving.segment, batch, deadline).await? {
                return Ok(ack.base_offset);
            }
            // The segment was ended, and has nothing of this.
            if Instant::now() >= deadline {
                return Err(Obstacle::Rolling.into());
            }
            match self.serve(topics).await {
                Ok(now) if now != term => return Err(lost()),
                Ok(_) if self.state.lock().tenure.appends_to(term) != Some(serving) => {}
                // The metadata have no next segment yet.
                _ => drop(tokio::time::timeout(patience::OWNER_NAMED, metadata.changed()).await),
            }
        }
    }

    /// What follows when a lot could not be recorded.
    async fn give_up(&self, topics: &Arc<Topics>, term: Term, problem: &Error) {
        if L::LATE == Late::Wrong {
            tracing::info!(log = %self.log, %problem, "cannot record {}, and ends", L::WHAT);
            self.resign(Some(term));
            return;
        }
        if !self.is_stuck.swap(true, Ordering::Relaxed) {
            tracing::warn!(log = %self.log, %problem, "{} are not recorded, trying on", L::WHAT);
        }
        let shutdown = topics.cluster().tasks().shutdown();
        let pause = tokio::time::sleep(patience::OWNER_RECORD_RETRY);
        if shutdown.run_until_cancelled(pause).await.is_none() {
            self.resign(None);
        }
    }

    /// Ends serving, in one term or in any; what the next owner has to know is kept for it.
    fn resign(&self, term: Option<Term>) {
        if self.state.lock().tenure.resign(term) {
            self.tick();
        }
    }

    fn tick(&self) {
        self.recorded.send_modify(|tick| *tick += 1);
    }
}
