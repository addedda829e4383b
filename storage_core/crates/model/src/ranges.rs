//! Ranges of offsets in order, apart from each other: the holes of a copy, and what several copies lack together.

use crate::number::Offset;

/// A half-open run of offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OffsetRange {
    /// First offset in it.
    pub start: Offset,
    /// First offset behind it; the highest possible one where nobody knows how many there were.
    pub end: Offset,
}

/// Adds a range behind the others. One that touches or overlaps the last range extends it, and an empty one changes nothing.
pub fn push(ranges: &mut Vec<OffsetRange>, range: OffsetRange) {
    match ranges.last_mut() {
        Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
        _ if range.start < range.end => ranges.push(range),
        _ => {}
    }
}

/// The parts of the ranges that lie below an offset.
#[must_use]
pub fn below(ranges: &[OffsetRange], end: Offset) -> Vec<OffsetRange> {
    let parts = ranges.iter().take_while(|range| range.start < end);
    parts.map(|range| OffsetRange { start: range.start, end: range.end.min(end) }).collect()
}

/// The offsets that lie in both lists.
#[must_use]
pub fn intersection(left: &[OffsetRange], right: &[OffsetRange]) -> Vec<OffsetRange> {
    let mut both = Vec::new();
    for one in left {
        for other in right {
            push(&mut both, OffsetRange { start: one.start.max(other.start), end: one.end.min(other.end) });
        }
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(pairs: &[(u64, u64)]) -> Vec<OffsetRange> {
        pairs.iter().map(|&(start, end)| OffsetRange { start: Offset(start), end: Offset(end) }).collect()
    }

    #[test]
    fn ranges_that_touch_are_one() {
        let mut all = Vec::new();
        for range in ranges(&[(1, 3), (3, 4), (6, 6), (6, 8)]) {
            push(&mut all, range);
        }
        assert_eq!(all, ranges(&[(1, 4), (6, 8)]));
    }

    #[test]
    fn a_range_is_cut_where_it_goes_beyond() {
        assert_eq!(below(&ranges(&[(1, 4), (6, 8), (9, 10)]), Offset(7)), ranges(&[(1, 4), (6, 7)]));
        assert_eq!(below(&ranges(&[(1, 4)]), Offset(1)), []);
    }

    #[test]
    fn what_two_copies_lack_is_what_lies_in_the_holes_of_both() {
        let (left, right) = (ranges(&[(1, 4), (6, 9)]), ranges(&[(2, 3), (3, 7), (8, 20)]));
        assert_eq!(intersection(&left, &right), ranges(&[(2, 4), (6, 7), (8, 9)]));
        assert_eq!(intersection(&left, &[]), []);
    }
}
