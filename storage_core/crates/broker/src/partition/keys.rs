//! The keys of a batch that comes in: a topic that keeps the last record of each key takes none without one.

use walrus_log::batch::RecordsSeen;

use crate::node::error::{Error, Result};

/// Refuses a batch with a record that has no key: it would stay for ever, and no later one could take its place.
pub(crate) fn check(topic: &str, seen: &RecordsSeen) -> Result<()> {
    seen.first_without_key.map_or(Ok(()), |place| {
        Err(Error::InvalidBatch {
            problem: format!(
                "record {place} has no key, and topic {topic} is compacted (`cleanup.policy`), so each needs one"
            ),
        })
    })
}

#[cfg(test)]
mod tests {
    use walrus_log::batch::{Batch, BatchBuilder};

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
            let walk = |bytes: &[u8]| Batch::parse(bytes).unwrap().0.walk_records().unwrap();
            assert_eq!(check("t", &walk(&whole)), Ok(()));
            let refused = check("t", &walk(&lacking)).unwrap_err();
            assert!(refused.to_string().contains("record 1 has no key"), "{refused}");
        }
    }
}
