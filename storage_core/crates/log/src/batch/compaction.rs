//! Batches from which a compaction takes records out. The records that are left keep their offsets, and the batch still
//! covers the offsets of all records that it had.

use std::borrow::Cow;
use std::ops::Range;

use super::error::BatchError;
use super::header::{HEADER_BYTES, NewBatch, set_codec, update_header, write_header, write_offsets};
use super::record::Record;
use super::view::Batch;

/// Appends the batch to `out` with only those of its records for which `keep` is true, and returns how many were taken
/// out. If no record is left, nothing is appended, unless the batch has a producer, whose sequences it still tells. A
/// compressed batch is decompressed, and compressed again with its codec.
///
/// `None` means that the batch was appended as it is, because its records cannot be read to their end, or because the
/// rest of them is longer than all of them were: an encoder with more patience than ours had compressed them.
pub(crate) fn retain_records(
    batch: &Batch<'_>,
    out: &mut Vec<u8>,
    keep: impl FnMut(&Record<'_>) -> bool,
) -> Option<u32> {
    let left = retained(batch, keep).ok().filter(|(left, _)| left.len() <= batch.bytes().len());
    out.extend_from_slice(left.as_ref().map_or(batch.bytes(), |(left, _)| left));
    left.map(|(_, gone)| gone)
}

/// The batch with only the records for which `keep` is true, and the number of the others.
fn retained<'a>(
    batch: &Batch<'a>,
    mut keep: impl FnMut(&Record<'_>) -> bool,
) -> Result<(Cow<'a, [u8]>, u32), BatchError> {
    let opened = batch.open()?;
    let mut left = batch.bytes()[..HEADER_BYTES].to_vec();
    let (mut kept, mut gone) = (0, 0);
    let mut records = batch.header().records_in(&opened);
    loop {
        let before = records.rest();
        let Some(record) = records.next().transpose()? else { break };
        if keep(&record) {
            left.extend_from_slice(&before[..before.len() - records.rest().len()]);
            kept += 1;
        } else {
            gone += 1;
        }
    }
    if gone == 0 {
        return Ok((Cow::Borrowed(batch.bytes()), 0));
    }
    if kept == 0 && batch.producer().is_none() {
        return Ok((Cow::Borrowed(&[]), gone));
    }
    let codec = batch.header().codec();
    set_codec(&mut left, 0);
    update_header(&mut left, kept)?;
    let left = if codec == 0 { left } else { Batch::just_built(&left).compressed(codec)? };
    Ok((Cow::Owned(left), gone))
}

/// Appends batches without records that cover these offsets. Their epoch is 0, until they get another or a mark.
pub(crate) fn write_gap(offsets: Range<u64>, out: &mut Vec<u8>) {
    let mut base = offsets.start;
    while base < offsets.end {
        let count = (offsets.end - base).min(i32::MAX as u64) as u32;
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        let new = NewBatch { records: count, base_timestamp: -1, max_timestamp: -1, producer: None };
        write_header(&mut out[start..], &new);
        update_header(&mut out[start..], 0).expect("a header alone is short");
        write_offsets(&mut out[start..], base, 0);
        base += u64::from(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, ProducerRef};

    fn batch_of(keys: &[u8], producer: Option<ProducerRef>) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        if let Some(producer) = producer {
            builder.producer(producer);
        }
        for key in keys {
            builder.push(Some(&[*key]), Some(&[*key; 5]), i64::from(*key), &[("h", None)]);
        }
        let mut bytes = Vec::new();
        builder.build(&mut bytes).unwrap();
        write_offsets(&mut bytes, 100, 3);
        bytes
    }

    fn read(bytes: &[u8]) -> (Range<u64>, Vec<(u64, u8)>) {
        let (batch, rest) = Batch::parse(bytes).unwrap();
        assert!(rest.is_empty());
        let records = batch.records().map(|record| record.map(|r| (r.offset, r.key.unwrap()[0])).unwrap());
        (batch.base_offset()..batch.end_offset(), records.collect())
    }

    #[test]
    fn what_is_left_keeps_its_offsets_and_the_batch_all_of_them() {
        let bytes = batch_of(&[1, 2, 3, 4], None);
        let (batch, _) = Batch::parse(&bytes).unwrap();
        for kept in 1..16_u8 {
            let mut out = Vec::new();
            let gone = retain_records(&batch, &mut out, |record| kept >> (record.offset - 100) & 1 == 1);
            let gone = gone.unwrap();
            assert_eq!(gone, 4 - kept.count_ones());
            let expected: Vec<_> = (0..4)
                .filter(|bit| kept >> bit & 1 == 1)
                .map(|bit| (100 + u64::from(bit), bit + 1))
                .collect();
            assert_eq!(read(&out), (100..104, expected));
            assert_eq!(gone == 0, out == bytes);
            assert_eq!(Batch::parse(&out).unwrap().0.header().is_dense(), gone == 0);
        }
    }

    #[test]
    fn of_a_batch_without_records_only_its_producer_is_left() {
        let bytes = batch_of(&[1, 2], None);
        let mut out = Vec::new();
        assert_eq!(retain_records(&Batch::parse(&bytes).unwrap().0, &mut out, |_| false), Some(2));
        assert!(out.is_empty());
        let producer = ProducerRef { id: 1, epoch: 2, base_sequence: 3 };
        let bytes = batch_of(&[1, 2], Some(producer));
        assert_eq!(retain_records(&Batch::parse(&bytes).unwrap().0, &mut out, |_| false), Some(2));
        assert_eq!(read(&out), (100..102, vec![]));
        assert_eq!(Batch::parse(&out).unwrap().0.producer(), Some(producer));
    }

    #[test]
    fn a_gap_is_batches_without_records() {
        let mut out = Vec::new();
        write_gap(5..5, &mut out);
        assert!(out.is_empty());
        write_gap(5..9, &mut out);
        assert_eq!(read(&out), (5..9, vec![]));
        out.clear();
        write_gap(5..(1 << 32) + 9, &mut out);
        let (first, rest) = Batch::parse(&out).unwrap();
        let (second, rest) = Batch::parse(rest).unwrap();
        let (third, rest) = Batch::parse(rest).unwrap();
        assert_eq!((first.base_offset(), second.base_offset()), (5, first.end_offset()));
        assert_eq!((third.base_offset(), third.end_offset()), (second.end_offset(), (1 << 32) + 9));
        assert!(rest.is_empty());
    }
}
