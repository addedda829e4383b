//! The progress of a cursor in one partition, which is the value of a record of the internal topic `__cursors`.
//!
//! An entry, once delivered, stays delivered, so two records about one partition never contradict each other: their
//! union holds. That is why a record of an owner that was replaced and does not know it does no harm, and why a
//! snapshot needs no mark: it is the same records again.
//!
//! Key, 20 bytes: topic uuid (16, big-endian), partition (u32 LE).
//! Value: version (u8, 1), `next` (u64 LE), number of ranges (u16 LE), then each range of entries below `next` that
//! are not delivered: first offset (u64 LE), count (u32 LE); ascending, apart, none empty.

use std::collections::BTreeSet;

use bytes::{Buf, BufMut};
use walrus_model::TopicId;

/// Version of the value's layout that this code writes, and the highest that it reads.
const VERSION: u8 = 1;
/// Limit on the ranges of one record; what does not fit is delivered again after a failure.
const RANGES_MAX: usize = 1_024;
/// Limit on the undelivered entries that one record names.
const PENDING_MAX: usize = 65_536;
const KEY_BYTES: usize = 20;
const RANGE_BYTES: usize = 12;

/// The cursor of one partition of one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CursorKey {
    /// Id of the topic: one that is deleted and created again is another one, with a new cursor.
    pub(crate) topic: TopicId,
    pub(crate) partition: u32,
}

/// What is delivered of a partition: everything below `next` but `pending`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// First offset never handed to anyone.
    pub(crate) next: u64,
    /// Offsets below `next` of entries that are not delivered.
    pub(crate) pending: BTreeSet<u64>,
}

/// A record of `__cursors` that this code cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadRecord {
    #[error("a cursor record's key has {got} bytes, not {KEY_BYTES}")]
    Key { got: usize },
    #[error("a cursor record of version {got}; this node reads up to {VERSION}: upgrade it")]
    Version { got: u8 },
    #[error("a cursor record of {got} bytes, where its fields need {needed}")]
    Length { got: usize, needed: usize },
    #[error("a cursor record whose ranges are not ascending below {next}, at range {index}")]
    Ranges { next: u64, index: usize },
    #[error("a cursor record that names more than {PENDING_MAX} undelivered entries")]
    TooMany,
}

impl CursorKey {
    pub(crate) fn encode(&self) -> [u8; KEY_BYTES] {
        let mut key = [0; KEY_BYTES];
        key[..16].copy_from_slice(self.topic.as_bytes());
        key[16..].copy_from_slice(&self.partition.to_le_bytes());
        key
    }

    pub(crate) fn decode(key: &[u8]) -> Result<Self, BadRecord> {
        let key: &[u8; KEY_BYTES] = key.try_into().map_err(|_| BadRecord::Key { got: key.len() })?;
        let (topic, partition) = key.split_at(16);
        let topic = TopicId::from_slice(topic).expect("16 bytes");
        let partition = partition.try_into().expect("4 bytes");
        Ok(Self { topic, partition: u32::from_le_bytes(partition) })
    }
}

impl Progress {
    /// Lowest entry that is not delivered.
    pub(crate) fn position(&self) -> u64 {
        self.pending.first().copied().unwrap_or(self.next)
    }

    /// Takes in what `other` knows to be delivered.
    pub(crate) fn merge(&mut self, other: &Self) {
        let delivered =
            |progress: &Self, offset: &u64| *offset < progress.next && !progress.pending.contains(offset);
        let mine = self.pending.iter().filter(|offset| !delivered(other, offset));
        let theirs = other.pending.iter().filter(|offset| !delivered(self, offset));
        let pending = mine.chain(theirs).copied().collect();
        self.next = self.next.max(other.next);
        self.pending = pending;
    }

    /// Encodes the record's value. Past its limits it says less than was delivered, never more.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut ranges: Vec<(u64, u32)> = Vec::new();
        let mut next = self.next;
        for (index, &offset) in self.pending.iter().enumerate() {
            let is_next = ranges.last().is_some_and(|(start, count)| start + u64::from(*count) == offset);
            if index == PENDING_MAX || (!is_next && ranges.len() == RANGES_MAX) {
                next = offset;
                break;
            }
            match ranges.last_mut() {
                Some((_, count)) if is_next => *count += 1,
                _ => ranges.push((offset, 1)),
            }
        }
        let mut value = Vec::with_capacity(11 + ranges.len() * RANGE_BYTES);
        value.put_u8(VERSION);
        value.put_u64_le(next);
        value.put_u16_le(u16::try_from(ranges.len()).expect("RANGES_MAX fits"));
        for (start, count) in ranges {
            value.put_u64_le(start);
            value.put_u32_le(count);
        }
        value
    }

    pub(crate) fn decode(mut value: &[u8]) -> Result<Self, BadRecord> {
        let got = value.len();
        let short = |needed: usize| BadRecord::Length { got, needed };
        let version = *value.first().ok_or(short(1))?;
        if version == 0 || version > VERSION {
            return Err(BadRecord::Version { got: version });
        }
        if got < 11 {
            return Err(short(11));
        }
        value.advance(1);
        let next = value.get_u64_le();
        let ranges = usize::from(value.get_u16_le());
        if value.len() != ranges * RANGE_BYTES {
            return Err(short(11 + ranges * RANGE_BYTES));
        }
        let mut pending = BTreeSet::new();
        let mut above = 0;
        for index in 0..ranges {
            let (start, count) = (value.get_u64_le(), u64::from(value.get_u32_le()));
            let end = start.checked_add(count).filter(|end| *end <= next && start >= above && count > 0);
            let end = end.ok_or(BadRecord::Ranges { next, index })?;
            if pending.len() as u64 + count > PENDING_MAX as u64 {
                return Err(BadRecord::TooMany);
            }
            pending.extend(start..end);
            above = end;
        }
        Ok(Self { next, pending })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn progress() -> impl Strategy<Value = Progress> {
        (0u64..200, proptest::collection::btree_set(0u64..200, 0..30)).prop_map(|(next, mut pending)| {
            pending.retain(|offset| *offset < next);
            Progress { next, pending }
        })
    }

    fn delivered(progress: &Progress) -> BTreeSet<u64> {
        (0..progress.next).filter(|offset| !progress.pending.contains(offset)).collect()
    }

    proptest! {
        #[test]
        fn a_record_says_what_was_put_in(progress in progress()) {
            prop_assert_eq!(Progress::decode(&progress.encode()), Ok(progress));
        }

        #[test]
        fn two_records_hold_together_what_either_delivered(a in progress(), b in progress()) {
            let mut merged = a.clone();
            merged.merge(&b);
            let both: BTreeSet<u64> = delivered(&a).union(&delivered(&b)).copied().collect();
            prop_assert_eq!(delivered(&merged), both);
            let mut other_way = b.clone();
            other_way.merge(&a);
            prop_assert_eq!(merged, other_way);
        }

        #[test]
        fn no_bytes_make_it_panic(value in proptest::collection::vec(any::<u8>(), 0..80), version in 0u8..3) {
            let _ = Progress::decode(&value);
            let mut versioned = vec![version];
            versioned.extend_from_slice(&value);
            let _ = Progress::decode(&versioned);
            let _ = CursorKey::decode(&value);
        }

        #[test]
        fn a_key_says_what_was_put_in(topic in any::<u128>(), partition in any::<u32>()) {
            let key = CursorKey { topic: TopicId::from_u128(topic), partition };
            prop_assert_eq!(CursorKey::decode(&key.encode()), Ok(key));
        }
    }

    #[test]
    fn damaged_records_are_named() {
        let good = Progress { next: 9, pending: [3, 4, 7].into() }.encode();
        let range = |start: u64, count: u32| {
            let mut value = Progress { next: 9, pending: [3].into() }.encode();
            value[11..19].copy_from_slice(&start.to_le_bytes());
            value[19..].copy_from_slice(&count.to_le_bytes());
            Progress::decode(&value)
        };
        assert_eq!(Progress::decode(&[]), Err(BadRecord::Length { got: 0, needed: 1 }));
        assert_eq!(Progress::decode(&[2]), Err(BadRecord::Version { got: 2 }));
        assert_eq!(Progress::decode(&good[..good.len() - 1]), Err(BadRecord::Length { got: 34, needed: 35 }));
        assert_eq!(range(9, 1), Err(BadRecord::Ranges { next: 9, index: 0 }));
        assert_eq!(range(1, 0), Err(BadRecord::Ranges { next: 9, index: 0 }));
        assert_eq!(range(u64::MAX, 2), Err(BadRecord::Ranges { next: 9, index: 0 }));
        let mut vast = vec![VERSION];
        vast.put_u64_le(u64::MAX);
        vast.put_u16_le(1);
        vast.put_u64_le(0);
        vast.put_u32_le(u32::MAX);
        assert_eq!(Progress::decode(&vast), Err(BadRecord::TooMany));
        assert_eq!(CursorKey::decode(&[0; 19]), Err(BadRecord::Key { got: 19 }));
    }

    #[test]
    fn what_does_not_fit_a_record_counts_as_not_delivered() {
        let scattered = Progress { next: 10_000, pending: (0..3_000).map(|n| n * 3).collect() };
        let kept = Progress::decode(&scattered.encode()).unwrap();
        assert_eq!(kept.next, 3 * RANGES_MAX as u64);
        assert_eq!(kept.pending.len(), RANGES_MAX);
        assert!(delivered(&kept).is_subset(&delivered(&scattered)));
    }
}
