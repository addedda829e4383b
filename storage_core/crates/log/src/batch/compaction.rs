//! Batches from which a compaction takes records out. The records that are left keep their offsets, and the batch still
//! covers the offsets of all records that it had.

use std::ops::Range;

use super::error::BatchError;
use super::header::{HEADER_BYTES, NewBatch, set_codec, update_header, write_header, write_offsets};
use super::record::Record;
use super::view::Batch;

/// Appends the batch to `out` with only those of its records for which `keep` is true, and returns how many were taken
/// out. If no record is left, nothing is appended, unless the batch has a producer, whose sequences it still tells. A
/// compressed batch is decompressed, and compressed again with its codec.
///
/// `None` means that the batch was appended as it is, because its records cannot be read to their end, or because what
/// is left of it has more than `bytes_max` bytes, which must not be less than it has: an encoder with more patience than
/// ours had compressed it.
pub(crate) fn retain_records(
    batch: &Batch<'_>,
    out: &mut Vec<u8>,
    bytes_max: usize,
    keep: impl FnMut(&Record<'_>) -> bool,
) -> Option<u32> {
    let start = out.len();
    let gone = append_retained(batch, out, keep).ok().filter(|_| out.len() - start <= bytes_max);
    if gone.is_none() {
        out.truncate(start);
        out.extend_from_slice(batch.bytes());
    }
    gone
}

/// Appends the batch with only the records for which `keep` is true, and returns the number of the others. After an
/// error `out` has a part of it.
fn append_retained(
    batch: &Batch<'_>,
    out: &mut Vec<u8>,
    keep: impl FnMut(&Record<'_>) -> bool,
) -> Result<u32, BatchError> {
    let opened = batch.open()?;
    let codec = batch.header().codec();
    if codec == 0 {
        return append_opened(batch, &opened, out, keep);
    }
    // Opened records may need many times the memory of what is left in the end, so they get memory of their own.
    let mut left = Vec::new();
    let gone = append_opened(batch, &opened, &mut left, keep)?;
    if gone == 0 {
        out.extend_from_slice(batch.bytes());
    } else if !left.is_empty() {
        out.extend_from_slice(&Batch::just_built(&left).compressed(codec)?);
    }
    Ok(gone)
}

/// Does what [`append_retained`] does with the opened records of a batch, and does not compress what is left. If no record
/// goes, what is appended has the header of the batch as it was.
fn append_opened(
    batch: &Batch<'_>,
    opened: &[u8],
    out: &mut Vec<u8>,
    mut keep: impl FnMut(&Record<'_>) -> bool,
) -> Result<u32, BatchError> {
    let start = out.len();
    out.extend_from_slice(&batch.bytes()[..HEADER_BYTES]);
    let (mut kept, mut gone) = (0, 0);
    let mut records = batch.header().records_in(opened);
    // Records that follow each other and stay are copied together; those in front of this position were.
    let mut copied_to = 0;
    loop {
        let at = opened.len() - records.rest().len();
        let Some(record) = records.next().transpose()? else { break };
        if keep(&record) {
            kept += 1;
        } else {
            out.extend_from_slice(&opened[copied_to..at]);
            copied_to = opened.len() - records.rest().len();
            gone += 1;
        }
    }
    out.extend_from_slice(&opened[copied_to..]);
    if kept == 0 && batch.producer().is_none() {
        out.truncate(start);
    } else if gone > 0 {
        set_codec(&mut out[start..], 0);
        update_header(&mut out[start..], kept)?;
    }
    Ok(gone)
}

/// Shows `see` the key and the offset of each record that has a key, in order. If the records cannot be read to their
/// end, none is shown.
pub(crate) fn each_key(batch: &Batch<'_>, mut see: impl FnMut(&[u8], u64)) -> Result<(), BatchError> {
    let opened = batch.open()?;
    let mut records = batch.header().records_in(&opened);
    records.clone().try_for_each(|record| record.map(drop))?;
    records.try_for_each(|record| {
        let record = record?;
        if let Some(key) = record.key {
            see(key, record.offset);
        }
        Ok(())
    })
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
            let gone = retain_records(&batch, &mut out, bytes.len(), |record| {
                kept >> (record.offset - 100) & 1 == 1
            });
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
        let batch = Batch::parse(&bytes).unwrap().0;
        assert_eq!(retain_records(&batch, &mut out, bytes.len(), |_| false), Some(2));
        assert!(out.is_empty());
        let producer = ProducerRef { id: 1, epoch: 2, base_sequence: 3 };
        let bytes = batch_of(&[1, 2], Some(producer));
        let batch = Batch::parse(&bytes).unwrap().0;
        assert_eq!(retain_records(&batch, &mut out, bytes.len(), |_| false), Some(2));
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
