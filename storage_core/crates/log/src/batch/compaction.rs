//! Batches with records taken out: what is left keeps its offsets, and the batch those of all it had.

use std::ops::Range;

use super::error::BatchError;
use super::header::{Batch, CHECKED_FROM, HEADER_BYTES, NewBatch, write_header, write_offsets};
use super::record::Record;

/// Appends the batch to `out` with those of its records only that `keep` says; gives how many went. One that is compressed,
/// or whose records break the format, stays as it is. Nothing is appended where nothing would be left, unless it tells what
/// its producer did.
pub(crate) fn retain_records(
    batch: &Batch<'_>,
    out: &mut Vec<u8>,
    mut keep: impl FnMut(&Record<'_>) -> bool,
) -> u32 {
    let start = out.len();
    out.extend_from_slice(&batch.bytes()[..HEADER_BYTES]);
    match retained(batch, out, &mut keep) {
        Ok((kept, gone)) if gone > 0 => {
            if kept == 0 && batch.producer().is_none() {
                out.truncate(start);
            } else {
                seal(&mut out[start..], kept);
            }
            gone
        }
        // All of it stays, or nobody knows what it holds.
        _ => {
            out.truncate(start);
            out.extend_from_slice(batch.bytes());
            0
        }
    }
}

/// Appends the records that stay; how many stay and how many go.
fn retained(
    batch: &Batch<'_>,
    out: &mut Vec<u8>,
    keep: &mut impl FnMut(&Record<'_>) -> bool,
) -> Result<(u32, u32), BatchError> {
    let (mut kept, mut gone) = (0, 0);
    let mut records = batch.records();
    loop {
        let before = records.rest();
        let Some(record) = records.next().transpose()? else { return Ok((kept, gone)) };
        if keep(&record) {
            out.extend_from_slice(&before[..before.len() - records.rest().len()]);
            kept += 1;
        } else {
            gone += 1;
        }
    }
}

/// Makes length, number of records and checksum right.
fn seal(batch: &mut [u8], records: u32) {
    let length = i32::try_from(batch.len() - 12).expect("not longer than it was");
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[57..61].copy_from_slice(&records.to_be_bytes());
    let crc = crc_fast::crc32_iscsi(&batch[CHECKED_FROM..]);
    batch[17..CHECKED_FROM].copy_from_slice(&crc.to_be_bytes());
}

/// Appends batches without records that take these offsets. Their epoch is 0, until they get another or a mark.
pub(crate) fn write_gap(offsets: Range<u64>, out: &mut Vec<u8>) {
    let mut base = offsets.start;
    while base < offsets.end {
        let count = (offsets.end - base).min(i32::MAX as u64) as u32;
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        let new = NewBatch { records: count, base_timestamp: -1, max_timestamp: -1, producer: None };
        write_header(&mut out[start..], &new);
        seal(&mut out[start..], 0);
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
        assert_eq!(retain_records(&Batch::parse(&bytes).unwrap().0, &mut out, |_| false), 2);
        assert!(out.is_empty());
        let producer = ProducerRef { id: 1, epoch: 2, base_sequence: 3 };
        let bytes = batch_of(&[1, 2], Some(producer));
        assert_eq!(retain_records(&Batch::parse(&bytes).unwrap().0, &mut out, |_| false), 2);
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
