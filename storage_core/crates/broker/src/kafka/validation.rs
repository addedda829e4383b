//! What is wrong with the records that a client produces, in Kafka's words: the rules of its LogValidator for a batch that is
//! stored as it was sent.

use bytes::Bytes;
use kafka_protocol::ResponseError;
use walrus_log::batch::{Batch, BatchError, BatchHeader, RecordsSeen};

use super::leaders::ToldLeader;
use crate::partition::walking::walk;

/// The codec that clients may use from this version of Produce on.
const ZSTD: u8 = 4;
const ZSTD_SINCE: i16 = 7;

/// Why records are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(super) code: ResponseError,
    pub(super) message: String,
    /// Places in the batch of the records that are to blame, if some are.
    pub(super) records: Vec<u32>,
    /// The leader to which the client is sent instead, if it is.
    pub(super) leader: Option<ToldLeader>,
}

impl Refusal {
    pub(super) fn new(code: ResponseError, message: impl ToString) -> Self {
        Self { code, message: message.to_string(), records: Vec::new(), leader: None }
    }

    fn invalid(message: impl ToString) -> Self {
        Self::new(ResponseError::InvalidRecord, message)
    }
}

/// A batch that may be appended.
pub(crate) struct Checked<'a> {
    /// The batch as it was sent.
    pub(super) batch: Batch<'a>,
    pub(super) seen: RecordsSeen,
    /// The same with what was put right, if anything had to be.
    pub(super) corrected: Option<Bytes>,
}

/// Checks the records of one partition in a request of this version of Produce. They must be one whole batch. Each record is
/// walked, in compressed batches too; a greatest timestamp that is not that of the records is put right.
pub(crate) fn check(records: &Bytes, version: i16, needs_keys: bool) -> Result<Checked<'_>, Refusal> {
    check_front(records, version)?;
    let (batch, rest) = Batch::parse(records).map_err(|problem| refusal_of(&problem))?;
    if !rest.is_empty() {
        let message =
            format!("{} bytes follow the batch: a request has exactly one for each partition", rest.len());
        return Err(Refusal::invalid(message));
    }
    if batch.header().is_transactional() {
        return Err(Refusal::invalid("the batch is part of a transaction, and there are none yet"));
    }
    if batch.header().is_log_append_time() {
        let message = "the batch says LogAppendTime, which only brokers set";
        return Err(Refusal::new(ResponseError::InvalidTimestamp, message));
    }
    batch.check_dense().map_err(Refusal::invalid)?;
    let seen = walk(&batch).map_err(|problem| refusal_of(&problem))?;
    if needs_keys && let Some(record) = seen.first_without_key {
        let message = "the record has no key, and its topic is compacted";
        return Err(Refusal { records: vec![record], ..Refusal::invalid(message) });
    }
    let is_right = seen.max_timestamp == batch.max_timestamp();
    let corrected = (!is_right).then(|| batch.with_max_timestamp(seen.max_timestamp).into());
    Ok(Checked { batch, seen, corrected })
}

/// Checks what must be known before the checksum is looked at: older formats have another one.
fn check_front(records: &Bytes, version: i16) -> Result<(), Refusal> {
    if records.is_empty() {
        return Err(Refusal::invalid("there is no batch: a request has exactly one for each partition"));
    }
    let header = BatchHeader::peek(records).map_err(|problem| refusal_of(&problem))?;
    if header.codec() == ZSTD && version < ZSTD_SINCE {
        let message = format!("zstd needs Produce {ZSTD_SINCE}, the request has version {version}");
        return Err(Refusal::new(ResponseError::UnsupportedCompressionType, message));
    }
    Ok(())
}

fn refusal_of(problem: &BatchError) -> Refusal {
    match problem {
        BatchError::Truncated { .. }
        | BatchError::InvalidLength { .. }
        | BatchError::ChecksumMismatch { .. } => Refusal::new(ResponseError::CorruptMessage, problem),
        BatchError::UnknownCodec { .. } => Refusal::new(ResponseError::UnsupportedCompressionType, problem),
        BatchError::OpenedTooLarge { .. } => Refusal::new(ResponseError::MessageTooLarge, problem),
        BatchError::InvalidRecord { index, .. } => {
            Refusal { records: vec![*index], ..Refusal::invalid(problem) }
        }
        _ => Refusal::invalid(problem),
    }
}

#[cfg(test)]
mod tests {
    use walrus_log::batch::BatchBuilder;

    use super::*;

    const LATEST: i16 = 10;

    fn batch(keys: &[Option<&[u8]>]) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for (time, key) in (100..).zip(keys) {
            builder.push(*key, Some(b"value"), time, &[("h", None)]);
        }
        let mut bytes = Vec::new();
        builder.build(&mut bytes).unwrap();
        bytes
    }

    /// The batch with other bytes at a place, and the checksum that they have then.
    fn changed(bytes: &[u8], place: usize, to: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        bytes[place..place + to.len()].copy_from_slice(to);
        let crc = crc_fast::crc32_iscsi(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    fn code(bytes: impl Into<Bytes>) -> Result<(), i16> {
        check(&bytes.into(), LATEST, false).map(drop).map_err(|refusal| refusal.code.code())
    }

    #[test]
    fn a_sound_batch_goes_through_as_it_came_compressed_or_not() {
        let plain = batch(&[None, Some(b"k")]);
        for codec in 0..=4 {
            let sent: Bytes = Batch::parse(&plain).unwrap().0.compressed(codec).unwrap().into();
            let checked = check(&sent, LATEST, false).unwrap();
            assert!(checked.corrected.is_none(), "it is not copied");
            assert_eq!(checked.seen.max_timestamp, 101);
        }
    }

    #[test]
    fn each_fault_has_kafkas_code() {
        let good = batch(&[None, Some(b"k")]);
        let attributes = |bits: u8| changed(&good, 22, &[bits]);
        let mut flipped = good.clone();
        *flipped.last_mut().unwrap() ^= 1;
        for (what, bytes, expected) in [
            ("whole", good.clone(), Ok(())),
            ("nothing", Vec::new(), Err(87)),
            ("cut off", good[..good.len() - 1].to_vec(), Err(2)),
            ("a wrong checksum", flipped, Err(2)),
            ("a length of 2^31 - 1", changed(&good, 8, &i32::MAX.to_be_bytes()), Err(2)),
            ("magic 1", changed(&good, 16, &[1]), Err(87)),
            ("magic 0", changed(&good, 16, &[0]), Err(87)),
            ("two batches", [&good[..], &good].concat(), Err(87)),
            ("codec 5", attributes(5), Err(76)),
            ("log append time", attributes(8), Err(32)),
            ("a transaction", attributes(16), Err(87)),
            ("a control batch", attributes(32), Err(87)),
            ("gzip that is none", attributes(1), Err(87)),
            ("more records than offsets", changed(&good, 57, &3_i32.to_be_bytes()), Err(87)),
            ("fewer records than offsets", changed(&good, 57, &1_i32.to_be_bytes()), Err(87)),
            ("2^31 - 1 records", changed(&good, 57, &i32::MAX.to_be_bytes()), Err(87)),
            ("a producer without a sequence", changed(&good, 43, &7_i64.to_be_bytes()), Err(87)),
        ] {
            assert_eq!(code(bytes), expected, "{what}");
        }
    }

    #[test]
    fn zstd_needs_a_client_whose_consumers_know_it() {
        let sent: Bytes = Batch::parse(&batch(&[None])).unwrap().0.compressed(ZSTD).unwrap().into();
        assert_eq!(check(&sent, 6, false).map(drop).unwrap_err().code.code(), 76);
        assert!(check(&sent, 7, false).is_ok());
    }

    #[test]
    fn a_record_without_a_key_is_named_where_the_topic_is_compacted() {
        for codec in [0, 1] {
            let sent = batch(&[Some(b"a"), None]);
            let sent: Bytes = Batch::parse(&sent).unwrap().0.compressed(codec).unwrap().into();
            let refusal = check(&sent, LATEST, true).map(drop).unwrap_err();
            assert_eq!((refusal.code.code(), refusal.records), (87, vec![1]));
        }
    }

    #[test]
    fn a_record_at_the_wrong_offset_is_named() {
        let good = batch(&[Some(b"a"), Some(b"b")]);
        let second = good.len() - (good.len() - 61) / 2;
        // length, attributes, timestamp delta, offset delta
        let wrong = changed(&good, second + 3, &[4]);
        let refusal = check(&wrong.into(), LATEST, false).map(drop).unwrap_err();
        assert_eq!((refusal.code.code(), &refusal.records), (87, &vec![1]), "{refusal:?}");
    }

    #[test]
    fn a_wrong_greatest_timestamp_is_put_right_with_the_checksum() {
        for codec in [0, 3] {
            let good = Batch::parse(&batch(&[None, None])).unwrap().0.compressed(codec).unwrap();
            let wrong: Bytes = changed(&good, 35, &9_999_i64.to_be_bytes()).into();
            let checked = check(&wrong, LATEST, false).map_err(|refusal| refusal.message).unwrap();
            assert_eq!(checked.corrected.unwrap(), good);
        }
    }
}
