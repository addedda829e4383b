//! The keys of a batch that comes in: a topic that keeps the last record of each key takes none without one.

use walrus_log::batch::{Batch, BatchError};

use crate::node::error::{Error, Result};
use crate::partition::walking::walk;

/// Refuses a batch with a record that has no key: it would stay for ever, and no later one could take its place.
///
/// `InvalidBatch` too if the records cannot be read.
pub(crate) fn check(topic: &str, batch: &Batch<'_>) -> Result<()> {
    let invalid = |problem: String| Error::InvalidBatch { problem };
    let without_key = walk(batch, first_without_key).map_err(|problem| invalid(problem.to_string()))?;
    without_key.map_or(Ok(()), |place| {
        Err(invalid(format!(
            "record {place} has no key, and topic {topic} is compacted (`cleanup.policy`), so each needs one"
        )))
    })
}

/// Place in the batch of the first record without a key.
fn first_without_key(batch: &Batch<'_>) -> std::result::Result<Option<u64>, BatchError> {
    let opened = batch.open()?;
    for record in batch.header().records_in(&opened) {
        let record = record?;
        if record.key.is_none() {
            return Ok(Some(record.offset - batch.base_offset()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use walrus_log::batch::BatchBuilder;

    use super::*;

    #[test]
    fn a_record_without_a_key_is_found_also_in_a_compressed_batch() {
        const ZSTD: u8 = 4;
        for codec in [0, ZSTD] {
            let build = |keys: &[Option<&[u8]>]| {
                let mut builder = BatchBuilder::new();
                for key in keys {
                    builder.push(*key, Some(b"value"), 1, &[]);
                }
                let mut bytes = Vec::new();
                builder.build(&mut bytes).unwrap();
                if codec == 0 { bytes } else { Batch::parse(&bytes).unwrap().0.compressed(codec).unwrap() }
            };
            let (whole, lacking) = (build(&[Some(b"a"), Some(b"")]), build(&[Some(b"a"), None]));
            assert_eq!(check("t", &Batch::parse(&whole).unwrap().0), Ok(()));
            let refused = check("t", &Batch::parse(&lacking).unwrap().0).unwrap_err();
            assert!(refused.to_string().contains("record 1 has no key"), "{refused}");
        }
    }
}
