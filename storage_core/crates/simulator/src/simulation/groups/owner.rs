//! One node's part in coordinating groups: the loop around a [`Tenure`] that the broker's owners are, step by step.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use walrus_groups::{Answer, GroupName, Key, Lot, Refusal, Replayed};
use walrus_model::{NodeId, Offset, ProcessId, SegmentId, TopicId};
use walrus_owners::{Entry, ServedSegment, Step, Tenure, Term, Trim, Worth};

use super::asks::{Ask, Asker, TermOf, Told};
use super::book::{Book, Desk};
use super::promises::check_log;
use super::{FORGETTING, Shared, busy, quiet};
use crate::mistake::Mistake;
use crate::record::BatchId;
use crate::simulation::surroundings::Surroundings;
use crate::world::{Checked, Committed, Fate, Violation, has_led, is_led_by_another, lists, open_segment};

/// An append is given up after so long, and with it the ownership.
const PATIENCE_MS: u64 = 10_000;
/// When old segments are worth it to be trimmed: these are small.
const WORTH: Worth = Worth { entries_min: 20, factor: 2 };

/// What a node does for the groups.
pub(super) struct Owner {
    node: NodeId,
    process: ProcessId,
    tenure: Tenure<Book>,
    desk: Rc<RefCell<Desk>>,
    began_ms: u64,
    taking: Option<Taking>,
    recording: Option<Recording>,
    /// What has reached the node, and is not looked at yet: it may be asleep.
    pub(super) inbox: Vec<(Asker, Ask)>,
    /// Offsets that are told once it is confirmed that nobody else coordinates.
    confirming: Vec<(Asker, Term, BTreeMap<u32, i64>)>,
    /// Groups that were forgotten in memory, and when; members know nothing of that before it is recorded.
    forgotten: BTreeMap<GroupName, u64>,
}

/// The way to serve under a segment.
struct Taking {
    serving: ServedSegment,
    /// The append by which it is decided what an earlier term has left open.
    settling: Append,
}

/// A lot on its way.
struct Recording {
    term: Term,
    lot: Lot,
    append: Append,
}

/// An append to one segment.
struct Append {
    segment: SegmentId,
    entries: Vec<Entry>,
    /// The batch and its range, once it has its place.
    placed: Option<(BatchId, Offset, Offset)>,
    deadline_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Waits,
    Stored(Offset),
    LeftOut,
    Unknown,
}

/// Who is told what by whom.
pub(super) type Answers = Vec<(Asker, Told, TermOf)>;

impl Owner {
    pub(super) fn new(node: NodeId, process: ProcessId, now_ms: u64) -> Self {
        let desk = Rc::new(RefCell::new(Desk { now_ms, ..Desk::default() }));
        Self {
            node,
            process,
            tenure: Tenure::new(Book::new(Rc::clone(&desk))),
            desk,
            began_ms: now_ms,
            taking: None,
            recording: None,
            inbox: Vec::new(),
            confirming: Vec::new(),
            forgotten: BTreeMap::new(),
        }
    }

    pub(super) fn process(&self) -> ProcessId {
        self.process
    }

    /// Stops serving segments below a number.
    pub(super) fn hand_over(&mut self, number: u64, known: &Committed, answers: &mut Answers) -> bool {
        let is_listed = lists(known, number);
        if is_listed {
            let term = self.tenure.term();
            drop(self.tenure.hand_over(number));
            self.tell(term, answers);
        }
        is_listed
    }

    /// The segment that this node is to take over, if it has to ask the others first.
    pub(super) fn begin_taking(&mut self, around: &Surroundings<'_>) -> Option<u64> {
        let known = around.known(self.node);
        let led = open_segment(known).filter(|open| open.leader.process == self.process);
        let led = led.filter(|open| self.tenure.may_serve(open.number))?;
        let serving = ServedSegment { segment: led.id, number: led.number };
        if self.tenure.serving_under(led.id).is_some()
            || self.taking.as_ref().is_some_and(|taking| taking.serving == serving)
        {
            return None;
        }
        self.taking = None;
        let process = self.process;
        if self.tenure.go_on(serving, |number| has_led(known, process, number)).is_some() {
            self.plan(led.number, led.first());
            return None;
        }
        self.taking = Some(Taking { serving, settling: Append::new(led.id, Vec::new(), around.now_ms()) });
        Some(led.number)
    }

    fn plan(&mut self, number: u64, base: Offset) {
        let live = HashSet::from([TopicId::from_u128(1)]);
        self.tenure.plan_snapshot(&live, Trim { number, base: base.0 }, WORTH);
    }

    /// Does what is next.
    pub(super) fn step(
        &mut self,
        around: &mut Surroundings<'_>,
        shared: &mut Shared,
        answers: &mut Answers,
    ) -> Checked {
        let known = Arc::clone(around.known(self.node));
        self.set_clocks(around);
        if is_led_by_another(&known, self.process) {
            let term = self.tenure.term();
            self.tenure.resign(None);
            self.tell(term, answers);
        }
        self.take_over(around, shared, &known, answers)?;
        self.serve(around, &known, answers)?;
        self.record(around, shared, &known)?;
        let term = self.tenure.term();
        self.tell(term, answers);
        Ok(())
    }

    /// Goes on taking over: what this node has appended in earlier terms is decided first, then all records are read.
    fn take_over(
        &mut self,
        around: &mut Surroundings<'_>,
        shared: &mut Shared,
        known: &Committed,
        answers: &mut Answers,
    ) -> Checked {
        let Some(mut taking) = self.taking.take() else { return Ok(()) };
        let term = self.tenure.term();
        self.tenure.resign(None);
        self.tell(term, answers);
        match taking.settling.step(around, shared, known)? {
            Outcome::Waits => self.taking = Some(taking),
            Outcome::LeftOut | Outcome::Unknown => {}
            Outcome::Stored(_) => {
                let node = self.node;
                let read = around.world.read_all(known, |other| around.hears(node, other));
                let Some((batches, start)) = read else {
                    self.taking = Some(taking);
                    return Ok(());
                };
                self.begin(&taking, (&batches, start), around, shared)?;
            }
        }
        Ok(())
    }

    fn begin(
        &mut self,
        taking: &Taking,
        (batches, start): (&[BatchId], Offset),
        around: &Surroundings<'_>,
        shared: &mut Shared,
    ) -> Checked {
        let entries = || batches.iter().flat_map(|batch| shared.contents.get(batch)).flatten();
        let mut known = Replayed::default();
        for Entry { key, value, timestamp_ms } in entries() {
            let taken = known.take_in(key, value.as_deref(), *timestamp_ms);
            taken.map_err(|problem| Violation(problem.to_string()))?;
        }
        let now_ms = around.now_ms();
        let Some(term) = self.tenure.begin(taking.serving, known, start.0) else { return Ok(()) };
        self.began_ms = now_ms;
        shared.takeovers += 1;
        // A node that takes over by old metadata finds old groups. It can record nothing, and confirms before it tells an offset.
        let is_real = around.world.last_segment() == Some(taking.serving.segment);
        if is_real
            && !shared.promises.are_void
            && let Some(book) = self.tenure.ledger(term)
        {
            check_log(entries())?;
            shared.promises.check_restored(&book.coordinator, now_ms)?;
        }
        let base = around.world.descriptor(taking.serving.segment).first();
        self.plan(taking.serving.number, base);
        Ok(())
    }

    fn serve(&mut self, around: &Surroundings<'_>, known: &Committed, answers: &mut Answers) -> Checked {
        let under = open_segment(known).and_then(|open| self.tenure.serving_under(open.id));
        let now_ms = around.now_ms();
        self.confirm(around, known, answers)?;
        for (asker, ask) in std::mem::take(&mut self.inbox) {
            match under {
                Some(term) => self.take(asker, ask, term, now_ms, answers),
                None => answers.push((asker, refusal(&ask), (self.process, Term::default()))),
            }
        }
        let Some(term) = self.tenure.term() else { return Ok(()) };
        let Some(book) = self.tenure.ledger(term) else { return Ok(()) };
        book.coordinator.tick(now_ms);
        let reached_ms = i64::try_from(known.state.reached_ms()).unwrap_or(0);
        let forgotten = book.coordinator.expire(now_ms, reached_ms, FORGETTING);
        self.forgotten.extend(forgotten.into_iter().map(|name| (name, now_ms)));
        Ok(())
    }

    /// Checks what a batch forgets that has just got its place. A coordinator that was replaced forgets in its own memory alone: a
    /// segment whose end is decided takes nothing more.
    fn check_forgotten(
        &mut self,
        append: &Append,
        around: &Surroundings<'_>,
        shared: &mut Shared,
    ) -> Checked {
        if around.world.promised.decided.contains_key(&append.segment) {
            return Ok(());
        }
        for entry in append.entries.iter().filter(|entry| entry.value.is_none()) {
            if let Ok(Key::Group(name) | Key::Offset(name, _)) = Key::decode(&entry.key)
                && let Some(at_ms) = self.forgotten.remove(&name)
            {
                shared.promises.check_forgotten(&name, at_ms, self.began_ms)?;
            }
        }
        Ok(())
    }

    fn set_clocks(&self, around: &Surroundings<'_>) {
        let mut desk = self.desk.borrow_mut();
        desk.now_ms = around.now_ms();
        desk.wall_ms = i64::try_from(around.world.clock_of(self.node)).unwrap_or(i64::MAX);
    }

    /// Answers those who have asked for offsets, where nobody else can have coordinated meanwhile.
    fn confirm(&mut self, around: &Surroundings<'_>, known: &Committed, answers: &mut Answers) -> Checked {
        for (asker, term, offsets) in std::mem::take(&mut self.confirming) {
            let is_same = |segment| self.tenure.serving_under(segment) == Some(term);
            let open = open_segment(known).filter(|open| is_same(open.id));
            let told = match open {
                Some(open) if around.confirms(self.node, open.id)? => Ok(offsets),
                _ => Err(Refusal::NotCoordinator),
            };
            answers.push((asker, Told::Offsets(told), (self.process, term)));
        }
        Ok(())
    }

    fn take(&mut self, asker: Asker, ask: Ask, term: Term, now_ms: u64, answers: &mut Answers) {
        let Some(book) = self.tenure.ledger(term) else { return };
        let name = if asker.member == super::QUIET { quiet() } else { busy() };
        let coordinator = &mut book.coordinator;
        let ticket = match ask {
            Ask::Join(join) => {
                coordinator.ask(&name, now_ms, |group, ticket, now| group.join(join, ticket, now))
            }
            Ask::Sync(sync) => {
                coordinator.ask(&name, now_ms, |group, ticket, now| group.sync(sync, ticket, now))
            }
            Ask::Commit(commit) => {
                coordinator.ask(&name, now_ms, |group, ticket, now| group.commit(commit, ticket, now))
            }
            Ask::Heartbeat(who) => {
                let told =
                    coordinator.act(&name, now_ms, |group, now| (group.heartbeat(&who, now), Vec::new()));
                return answers.push((asker, Told::Heartbeat(told), (self.process, term)));
            }
            Ask::Leave(leave) => {
                coordinator.act(&name, now_ms, |group, now| group.leave(&[leave], now));
                return;
            }
            Ask::Offsets => {
                let offsets =
                    coordinator.group(&name).map(|group| group.offsets().clone()).unwrap_or_default();
                let offsets = offsets.iter().map(|(place, committed)| (place.partition, committed.offset));
                return self.confirming.push((asker, term, offsets.collect()));
            }
        };
        self.desk.borrow_mut().waiting.insert(ticket, asker);
    }

    /// Goes on recording: one append at a time, to the segment under which this node serves.
    fn record(&mut self, around: &mut Surroundings<'_>, shared: &mut Shared, known: &Committed) -> Checked {
        if self.recording.is_none() {
            match self.tenure.next_step() {
                None => {}
                Some(Step::Trim(trim)) => self.trim(trim, around, shared)?,
                Some(Step::Append { term, lot, entries }) => {
                    if let Some(serving) = self.tenure.appends_to(term) {
                        let append = Append::new(serving.segment, entries, around.now_ms());
                        self.recording = Some(Recording { term, lot, append });
                    }
                }
            }
        }
        let Some(mut recording) = self.recording.take() else { return Ok(()) };
        let was_placed = recording.append.placed.is_some();
        let outcome = recording.append.step(around, shared, known)?;
        if !was_placed && recording.append.placed.is_some() {
            self.check_forgotten(&recording.append, around, shared)?;
        }
        match outcome {
            Outcome::Stored(base) => self.tenure.recorded(recording.term, recording.lot, base.0),
            Outcome::Unknown => drop(self.tenure.resign(Some(recording.term))),
            Outcome::Waits => self.recording = Some(recording),
            Outcome::LeftOut => {
                let next = self.tenure.appends_to(recording.term).map(|serving| serving.segment);
                let next =
                    if around.makes(Mistake::LateCoordinator) { around.world.last_segment() } else { next };
                let is_late = around.now_ms() >= recording.append.deadline_ms;
                match next {
                    Some(segment) if !is_late => {
                        (recording.append.segment, recording.append.placed) = (segment, None);
                        self.recording = Some(recording);
                    }
                    _ => drop(self.tenure.resign(Some(recording.term))),
                }
            }
        }
        Ok(())
    }

    fn trim(&mut self, trim: Trim, around: &mut Surroundings<'_>, shared: &mut Shared) -> Checked {
        if around.metadata_answer && around.world.trim_owned(trim.number, Offset(trim.base))? {
            self.tenure.trimmed(trim);
            shared.trims += 1;
        }
        Ok(())
    }

    /// Hands out the answers of a term, or of the one that has just ended.
    fn tell(&mut self, term: Option<Term>, answers: &mut Answers) {
        let mut desk = self.desk.borrow_mut();
        if let Some(book) = term.and_then(|term| self.tenure.ledger(term)) {
            desk.tell(book.coordinator.take_answers());
        }
        let by = (self.process, term.unwrap_or_default());
        answers.extend(desk.take_told().into_iter().map(|(asker, answer)| (asker, Told::Group(answer), by)));
    }
}

impl Append {
    fn new(segment: SegmentId, entries: Vec<Entry>, now_ms: u64) -> Self {
        Self { segment, entries, placed: None, deadline_ms: now_ms + PATIENCE_MS }
    }

    /// Puts the batch into its place, if it has none, and sees what became of it.
    fn step(
        &mut self,
        around: &mut Surroundings<'_>,
        shared: &mut Shared,
        known: &Committed,
    ) -> Result<Outcome, Violation> {
        if self.placed.is_none() {
            if around.world.fate(self.segment, Offset(u64::MAX), known) == Fate::LeftOut {
                return Ok(Outcome::LeftOut);
            }
            let base = around.world.written_end(self.segment);
            if let Some(id) = around.world.append_fresh(self.segment)? {
                shared.contents.insert(id, self.entries.clone());
                self.placed = Some((id, base, around.world.written_end(self.segment)));
            }
        }
        let fate = self.placed.map(|(_, base, end)| (base, around.world.fate(self.segment, end, known)));
        Ok(match fate {
            Some((base, Fate::Stored)) => Outcome::Stored(base),
            Some((base, Fate::Open)) if around.makes(Mistake::CommittedBeforeQuorum) => Outcome::Stored(base),
            Some((_, Fate::LeftOut)) => Outcome::LeftOut,
            _ if around.now_ms() >= self.deadline_ms => Outcome::Unknown,
            _ => Outcome::Waits,
        })
    }
}

fn refusal(ask: &Ask) -> Told {
    let refusal = Refusal::NotCoordinator;
    match ask {
        Ask::Join(_) => Told::Group(Answer::Joined(Err(refusal))),
        Ask::Sync(_) => Told::Group(Answer::Synced(Err(refusal))),
        Ask::Commit(_) => Told::Group(Answer::Committed(Err(refusal))),
        Ask::Heartbeat(_) | Ask::Leave(_) => Told::Heartbeat(Err(refusal)),
        Ask::Offsets => Told::Offsets(Err(refusal)),
    }
}
