//! Marks: the places where batches end in a log, each with the digest of all up to there.

use bytes::Bytes;
use walrus_log::batch::Batch as StoredBatch;
use walrus_model::{Digest, Offset};
use walrus_replica::{Batch, Mark};

use crate::node::error::{Error, Result};

/// Marks where batches will end that are put behind a place, one after another.
pub(crate) fn mark_batches(from: Mark, batches: &[Bytes]) -> Result<Vec<Batch>> {
    let mut last = from;
    let mut marked = Vec::with_capacity(batches.len());
    for bytes in batches {
        let (batch, rest) = StoredBatch::parse(bytes).map_err(|problem| invalid(&problem.to_string()))?;
        if !rest.is_empty() {
            return Err(invalid("bytes behind a batch"));
        }
        last = mark_behind(last, &batch).ok_or_else(|| invalid("its offsets would not fit 64 bits"))?;
        let base = marked.last().map_or(from.end, |batch: &Batch| batch.end);
        marked.push(Batch { base, end: last.end, digest: last.digest });
    }
    Ok(marked)
}

/// The place behind a batch that is put at `last`; `None` where offsets end before it, since a peer may name any place.
pub(crate) fn mark_behind(last: Mark, batch: &StoredBatch<'_>) -> Option<Mark> {
    let (records, crc) = (batch.record_count(), batch.header().crc);
    let end = last.end.0.checked_add(u64::from(records)).filter(|end| i64::try_from(*end).is_ok())?;
    let digest = walrus_log::digest_after(last.digest.0, last.end.0, records, crc);
    Some(Mark { end: Offset(end), digest: Digest(digest) })
}

/// The error for bytes that are no batch, or not one that fits.
pub(crate) fn invalid(problem: &str) -> Error {
    Error::InvalidBatch { problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use walrus_log::batch::BatchBuilder;

    use super::*;

    /// It was added without a look: with checks a panic, without them a place near 0.
    #[test]
    fn a_place_that_a_peer_names_at_the_end_of_all_offsets_has_none_behind_it() {
        let mut bytes = Vec::new();
        BatchBuilder::new().push(None, Some(b"x"), 0, &[]).build(&mut bytes).unwrap();
        let marked =
            |end| mark_batches(Mark { end: Offset(end), digest: Digest(0) }, &[bytes.clone().into()]);
        let last = i64::MAX.unsigned_abs();
        assert_eq!(marked(last - 1).unwrap()[0].end, Offset(last));
        for end in [last, u64::MAX - 1, u64::MAX] {
            assert!(matches!(marked(end), Err(Error::InvalidBatch { .. })), "{end}");
        }
    }
}
