//! Tiny batches whose digest *is* their content: a segment's digest lists the numbers of its batches, so that every copy,
//! vote and decision can be compared byte for byte by comparing digests.

use std::hash::{DefaultHasher, Hash, Hasher};

use walrus_model::{Digest, Offset};
use walrus_replica::{Batch, Mark};

/// Number of a batch that a client sent.
pub type BatchId = u16;

const BITS: u32 = 10;
/// Limit on the batches of a segment.
pub const BATCHES_MAX: usize = 6;
/// Limit on the batches that clients send.
pub const IDS_MAX: BatchId = (1 << BITS) - 2;

/// Records in a batch: one or two, so that offsets and batches are not the same thing.
fn records(id: BatchId) -> u64 {
    1 + u64::from(id % 3 == 2)
}

/// The batch with that number behind a place.
#[must_use]
pub fn batch_after(mark: Mark, id: BatchId) -> Batch {
    let digest = (mark.digest.0 << BITS) | (u64::from(id) + 1);
    Batch { base: mark.end, end: Offset(mark.end.0 + records(id)), digest: Digest(digest) }
}

/// The number of the last batch behind a digest.
#[must_use]
pub fn last_id(digest: Digest) -> Option<BatchId> {
    let number = digest.0 & ((1 << BITS) - 1);
    (number != 0).then(|| BatchId::try_from(number - 1).expect("ten bits"))
}

/// The batches behind a digest, oldest first.
#[must_use]
pub fn ids(digest: Digest) -> Vec<BatchId> {
    let mut left = digest.0;
    let mut found = Vec::new();
    while left != 0 {
        found.push(BatchId::try_from((left & ((1 << BITS) - 1)) - 1).expect("ten bits"));
        left >>= BITS;
    }
    found.reverse();
    found
}

/// The places behind each batch of a segment that starts at `base`.
#[must_use]
pub fn marks(base: Offset, digest: Digest) -> Vec<Mark> {
    let mut mark = Mark { end: base, digest: Digest(0) };
    let mut all = vec![mark];
    for id in ids(digest) {
        mark = batch_after(mark, id).mark();
        all.push(mark);
    }
    all
}

/// Number of the keys that records have.
const KEYS: u64 = 5;

/// A record of a batch. Its key, and whether it has a value, follow from its batch and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Record {
    /// Its offset.
    pub offset: Offset,
    /// Its batch.
    pub batch: BatchId,
    /// Its place in the batch.
    pub place: u8,
}

impl Record {
    /// A number that looks random, always the same for a record.
    fn drawn(self) -> u64 {
        let mixed =
            (u64::from(self.batch) * 2 + u64::from(self.place) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40
    }

    /// Its key.
    #[must_use]
    pub fn key(self) -> u8 {
        u8::try_from(self.drawn() % KEYS).expect("few keys")
    }

    /// Whether it has no value: its key is deleted.
    #[must_use]
    pub fn is_tombstone(self) -> bool {
        (self.drawn() / KEYS).is_multiple_of(3)
    }
}

/// The records of the batch that begins at an offset.
pub fn records_of(base: Offset, batch: BatchId) -> impl Iterator<Item = Record> {
    (0..records(batch)).map(move |place| Record {
        offset: Offset(base.0 + place),
        batch,
        place: u8::try_from(place).expect("two at most"),
    })
}

/// The digest of whole batches.
#[must_use]
pub fn digest_of_batches(records: &[Record]) -> Digest {
    let firsts = records.iter().filter(|record| record.place == 0);
    Digest(firsts.fold(0, |digest, first| (digest << BITS) | (u64::from(first.batch) + 1)))
}

/// The digest of what a compaction left, which is no digest of whole batches.
#[must_use]
pub fn digest_of_rest(records: &[Record]) -> Digest {
    let mut hasher = DefaultHasher::new();
    records.hash(&mut hasher);
    Digest(hasher.finish() | 1 << 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_lists_its_batches() {
        let mut mark = Mark { end: Offset(5), digest: Digest(0) };
        for id in [0, 2, IDS_MAX] {
            mark = batch_after(mark, id).mark();
        }
        assert_eq!(ids(mark.digest), [0, 2, IDS_MAX]);
        assert_eq!(marks(Offset(5), mark.digest).last(), Some(&mark));
        assert_eq!(mark.end, Offset(10));
    }
}
