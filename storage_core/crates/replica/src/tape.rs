//! The tape of a segment's copy: where its batches end, as far back as anybody may still ask.

use std::collections::VecDeque;

use walrus_model::{Digest, Offset, OffsetRange, ranges};

use crate::batch::{Batch, Mark};

/// The marks of a copy in order. All copies agree on what lies below the high watermark (S2), so its marks may be
/// forgotten.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tape {
    /// Never empty; the first is the oldest place still known.
    marks: VecDeque<Mark>,
    /// Batches that are not in the copy, though later ones are. The digests behind them are over the others.
    holes: Vec<OffsetRange>,
}

impl Tape {
    /// The tape of a copy that is known from one place on.
    #[must_use]
    pub fn starting_at(mark: Mark) -> Self {
        Self { marks: VecDeque::from([mark]), holes: Vec::new() }
    }

    /// The tape of an empty copy.
    #[must_use]
    pub fn empty(base: Offset) -> Self {
        Self::starting_at(Mark { end: base, digest: Digest(0) })
    }

    /// The oldest place still known.
    #[must_use]
    pub fn floor(&self) -> Mark {
        self.marks[0]
    }

    /// The end of the last batch.
    #[must_use]
    pub fn last(&self) -> Mark {
        self.marks[self.marks.len() - 1]
    }

    /// First offset behind the copy.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.last().end
    }

    /// The digest up to a place; `None` if the offset is inside of a batch, forgotten or behind the end.
    #[must_use]
    pub fn digest_at(&self, end: Offset) -> Option<Digest> {
        let found = self.marks.binary_search_by_key(&end, |mark| mark.end).ok()?;
        Some(self.marks[found].digest)
    }

    /// Adds a batch.
    ///
    /// # Panics
    /// If it does not start at the end.
    pub fn push(&mut self, batch: Batch) {
        assert!(
            batch.base == self.end() && batch.end > batch.base,
            "{batch:?} does not follow {:?}",
            self.last()
        );
        self.marks.push_back(batch.mark());
    }

    /// Leaves a hole from the end up to an offset: the copy has nothing there.
    ///
    /// # Panics
    /// If the offset is not behind the end.
    pub fn skip(&mut self, to: Offset) {
        let Mark { end, digest } = self.last();
        assert!(to > end, "nothing is left out between {end:?} and {to:?}");
        ranges::push(&mut self.holes, OffsetRange { start: end, end: to });
        self.marks.push_back(Mark { end: to, digest });
    }

    /// The ranges that the copy has left out, in order.
    #[must_use]
    pub fn holes(&self) -> &[OffsetRange] {
        &self.holes
    }

    /// Drops everything behind a known place.
    ///
    /// # Panics
    /// If nothing is known of that place.
    pub fn cut(&mut self, end: Offset) {
        assert!(self.digest_at(end).is_some(), "{end:?} is no place to cut at");
        while self.end() > end {
            self.marks.pop_back();
        }
        self.holes = ranges::below(&self.holes, end);
    }

    /// Batches from a known place on, up to `end`. Finding the first takes a search, not a walk: a replica that is far behind
    /// is sent a few of very many, again and again.
    pub fn batches(&self, from: Offset, end: Offset) -> impl Iterator<Item = Batch> {
        let first = self.marks.partition_point(|mark| mark.end < from);
        let pairs = self.marks.range(first..).zip(self.marks.iter().skip(first + 1));
        let batches =
            pairs.map(|(before, mark)| Batch { base: before.end, end: mark.end, digest: mark.digest });
        let is_hole =
            |batch: &Batch| self.holes.iter().any(|hole| hole.start <= batch.base && batch.end <= hole.end);
        batches.take_while(move |batch| batch.end <= end).filter(move |batch| !is_hole(batch))
    }

    /// Forgets the places below the highest one that is at or below `offset`.
    pub fn forget_below(&mut self, offset: Offset) {
        while self.marks.get(1).is_some_and(|mark| mark.end <= offset) {
            self.marks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tape(ends: &[u64]) -> Tape {
        let mut tape = Tape::empty(Offset(10));
        for &end in ends {
            tape.push(Batch { base: tape.end(), end: Offset(end), digest: Digest(end * 7) });
        }
        tape
    }

    #[test]
    fn places_between_batches_are_known_and_no_others() {
        let tape = tape(&[12, 15]);
        assert_eq!(tape.digest_at(Offset(10)), Some(Digest(0)));
        assert_eq!(tape.digest_at(Offset(12)), Some(Digest(84)));
        assert_eq!(tape.digest_at(Offset(13)), None);
        assert_eq!(tape.digest_at(Offset(16)), None);
        let ends = |from, end| -> Vec<u64> {
            tape.batches(Offset(from), Offset(end)).map(|batch| batch.end.0).collect()
        };
        assert_eq!([ends(12, 15), ends(10, 15), ends(10, 14)], [vec![15], vec![12, 15], vec![12]]);
        assert!([ends(15, 15), ends(99, 99)].concat().is_empty());
    }

    #[test]
    fn what_is_forgotten_leaves_the_place_below() {
        let mut tape = tape(&[12, 15, 20]);
        tape.forget_below(Offset(16));
        assert_eq!(tape.floor().end, Offset(15));
        tape.forget_below(Offset(99));
        assert_eq!((tape.floor(), tape.end()), (tape.last(), Offset(20)));
    }

    #[test]
    fn what_is_left_out_is_no_batch_and_adds_nothing_to_the_digest() {
        let mut holed = tape(&[12]);
        holed.skip(Offset(15));
        assert_eq!(holed.digest_at(Offset(15)), holed.digest_at(Offset(12)));
        holed.push(Batch { base: Offset(15), end: Offset(16), digest: Digest(3) });
        assert_eq!(holed.holes(), [OffsetRange { start: Offset(12), end: Offset(15) }]);
        let batches: Vec<u64> = holed.batches(Offset(10), Offset(16)).map(|batch| batch.base.0).collect();
        assert_eq!(batches, [10, 15]);
        holed.cut(Offset(12));
        assert_eq!(holed, tape(&[12]));
    }

    #[test]
    fn a_cut_drops_what_is_behind() {
        let mut cut = tape(&[12, 15, 20]);
        cut.cut(Offset(12));
        assert_eq!(cut, tape(&[12]));
    }
}
