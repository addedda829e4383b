//! The tenure of a partition: under which segment a node serves it, and what it does there next.

use std::collections::HashSet;

use walrus_model::{SegmentId, TopicId};

use crate::ledger::{Entry, Ledger};

/// A time in which a node has served a partition without a gap, through segments that it led one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Term(u64);

/// The segment under which a node serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedSegment {
    /// The segment.
    pub segment: SegmentId,
    /// Its number in the partition.
    pub number: u64,
}

/// A trim below a segment, which may be done once everything needed is recorded at or behind the segment's base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// Number of the segment.
    pub number: u64,
    /// Its base offset.
    pub base: u64,
}

/// When it is worth it to record again what is needed of older segments, so that they can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worth {
    /// Least number of entries in older segments.
    pub entries_min: u64,
    /// Least number of them for each entry that is needed.
    pub factor: u64,
}

/// What is done next in a partition.
#[derive(Debug)]
pub enum Step<Lot> {
    /// Entries are appended.
    Append {
        /// The term that they are of.
        term: Term,
        /// What is told the ledger once they are stored.
        lot: Lot,
        /// The entries.
        entries: Vec<Entry>,
    },
    /// Old segments are trimmed.
    Trim(Trim),
}

/// One partition, as far as a node owns it.
#[derive(Debug)]
pub struct Tenure<L: Ledger> {
    /// The segment under which this node serves; `None` if it does not.
    serving: Option<ServedSegment>,
    /// The time in which it serves, or the last one.
    term: Term,
    /// Number of the segment below which all were handed over.
    handed_over_below: u64,
    /// First offset of the partition.
    log_start: u64,
    /// The trim that is due when everything is recorded again.
    trim: Option<Trim>,
    /// What other nodes handed over and is not taken in yet.
    heard: Vec<L::Handed>,
    ledger: L,
}

impl<L: Ledger> Tenure<L> {
    /// The tenure of a node that does not serve yet.
    pub fn new(ledger: L) -> Self {
        Self {
            serving: None,
            term: Term::default(),
            handed_over_below: 0,
            log_start: 0,
            trim: None,
            heard: Vec::new(),
            ledger,
        }
    }

    /// The term in which this node serves now; `None` if it does not.
    pub fn term(&self) -> Option<Term> {
        self.serving.map(|_| self.term)
    }

    /// The term in which this node serves, if it does so under this segment.
    pub fn serving_under(&self, segment: SegmentId) -> Option<Term> {
        self.serving.filter(|serving| serving.segment == segment).map(|_| self.term)
    }

    /// The ledger, if this node still serves in that term.
    pub fn ledger(&mut self, term: Term) -> Option<&mut L> {
        (self.term() == Some(term)).then_some(&mut self.ledger)
    }

    /// Whether the segment of a number was not handed over to somebody who serves behind it.
    pub fn may_serve(&self, number: u64) -> bool {
        number >= self.handed_over_below
    }

    /// Goes on under another segment in the same term, if this process has `led` every segment in between and that one, by their
    /// numbers: nobody else can have served meanwhile.
    pub fn go_on(&mut self, now: ServedSegment, led: impl Fn(u64) -> bool) -> Option<Term> {
        let before = self.serving?.number;
        let has_led_all = now.number > before && (before + 1..=now.number).all(led);
        has_led_all.then(|| {
            self.serving = Some(now);
            self.term
        })
    }

    /// Keeps what others have handed over until this node serves: nobody says it twice.
    pub fn hear(&mut self, handed: Vec<L::Handed>) {
        self.heard.extend(handed);
    }

    /// Begins to serve under a segment, with what the records of the partition say, which begin at `log_start`. `None` if the
    /// segment was handed over meanwhile.
    pub fn begin(&mut self, serving: ServedSegment, replayed: L::Replayed, log_start: u64) -> Option<Term> {
        if !self.may_serve(serving.number) {
            return None;
        }
        let heard = std::mem::take(&mut self.heard);
        self.ledger.begin(replayed, heard);
        (self.log_start, self.serving) = (log_start, Some(serving));
        self.term = Term(self.term.0 + 1);
        Some(self.term)
    }

    /// Stops serving segments below `number` for good. Answers what the next owner cannot read there; `None` where this node
    /// serves that segment or a later one.
    pub fn hand_over(&mut self, number: u64) -> Option<Vec<L::Handed>> {
        self.handed_over_below = self.handed_over_below.max(number);
        if self.serving.is_some_and(|serving| serving.number >= number) {
            return None;
        }
        self.end();
        Some(std::mem::take(&mut self.heard))
    }

    /// Ends serving, in one term or in any; what the next owner has to know is kept for it. False if it was another term.
    pub fn resign(&mut self, term: Option<Term>) -> bool {
        let is_meant = term.is_none_or(|term| term == self.term);
        if is_meant {
            self.end();
        }
        is_meant
    }

    fn end(&mut self) {
        (self.serving, self.trim) = (None, None);
        let handed = self.ledger.end();
        self.heard.extend(handed);
    }

    /// Whether [`Tenure::next_step`] has something to do.
    pub fn has_work(&self) -> bool {
        self.serving.is_some() && (self.ledger.has_lot() || self.trim.is_some())
    }

    /// What is done next, if anything is.
    pub fn next_step(&mut self) -> Option<Step<L::Lot>> {
        self.serving?;
        if !self.ledger.records_again()
            && let Some(trim) = self.trim.take()
        {
            return Some(Step::Trim(trim));
        }
        let (lot, entries) = self.ledger.next_lot()?;
        Some(Step::Append { term: self.term, lot, entries })
    }

    /// The segment to which records of a term are appended, and to no other one; `None` if the term is over.
    pub fn appends_to(&self, term: Term) -> Option<ServedSegment> {
        self.serving.filter(|_| self.term == term)
    }

    /// The entries of a lot are stored. What is served in another term knows nothing of them.
    pub fn recorded(&mut self, term: Term, lot: L::Lot, base_offset: u64) {
        if let Some(ledger) = self.ledger(term) {
            ledger.recorded(lot, base_offset);
        }
    }

    /// A trim was done.
    pub fn trimmed(&mut self, trim: Trim) {
        self.log_start = trim.base;
    }

    /// Has recorded again what is needed of the segments before this one, so that they can go, if that is worth it. A topic of a
    /// record in a sealed segment was created before this segment was opened: if it is not `live` in the metadata that name this
    /// node the leader, it is deleted.
    pub fn plan_snapshot(&mut self, live: &HashSet<TopicId>, before: Trim, worth: Worth) {
        if self.serving.is_none() {
            return;
        }
        self.ledger.drop_dead(live, before.base);
        let old_entries = before.base.saturating_sub(self.log_start);
        if old_entries >= worth.entries_min.max(self.ledger.entries() * worth.factor) {
            self.ledger.record_again(before.base);
            self.trim = Some(before);
        }
    }
}
