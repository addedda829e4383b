//! Where batches end in a log, and the digest of all up to there.

use bytes::Bytes;
use walrus_log::batch::Batch as StoredBatch;
use walrus_replica::{Batch, Digest, Mark, Offset};

use crate::error::{Error, Result};

/// Where batches end that follow a place, as their offsets will be.
pub(crate) fn mark_batches(from: Mark, batches: &[Bytes]) -> Result<Vec<Batch>> {
    let mut last = from;
    let mut marked = Vec::with_capacity(batches.len());
    for bytes in batches {
        let (batch, rest) = StoredBatch::parse(bytes).map_err(|problem| invalid(&problem.to_string()))?;
        if !rest.is_empty() {
            return Err(invalid("bytes behind a batch"));
        }
        last = mark_behind(last, &batch);
        let base = marked.last().map_or(from.end, |batch: &Batch| batch.end);
        marked.push(Batch { base, end: last.end, digest: last.digest });
    }
    Ok(marked)
}

/// The place behind a batch that is put there.
pub(crate) fn mark_behind(last: Mark, batch: &StoredBatch<'_>) -> Mark {
    let (records, crc) = (batch.record_count(), batch.header().crc);
    let digest = walrus_log::digest_after(last.digest.0, last.end.0, records, crc);
    Mark { end: Offset(last.end.0 + u64::from(records)), digest: Digest(digest) }
}

/// A batch that is none.
pub(crate) fn invalid(problem: &str) -> Error {
    Error::InvalidBatch { problem: problem.to_owned() }
}
