//! The sieve, through which batches go of which only the last record of each key stays.

use super::keys::KeyMap;
use crate::batch::{Batch, Record, retain_records, write_gap};
use crate::types::Offset;

/// What goes through a [`Sieve`], besides what a later record of its key makes old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SieveRules {
    /// No record below stays: they were deleted.
    pub start: Offset,
    /// Tombstones (a key without a value) below go, all others stay. Everything in front of them must go through this sieve,
    /// or have gone through an earlier one, while the map had them noted: otherwise an older value of a key that was deleted
    /// is still there, and is its last record again.
    pub tombstones_below: Offset,
    /// Most bytes of a batch that became longer than it was, since its codec does worse here than at its producer.
    pub batch_bytes_max: usize,
}

/// What went through a sieve, and what stayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sieved {
    /// Records that stayed. Those of batches that cannot be read are counted by the headers of the batches.
    pub records_kept: u64,
    /// Records that are gone.
    pub records_gone: u64,
    /// Tombstones that stayed, without those of batches that stayed as they are.
    pub tombstones_kept: u64,
    /// Bytes of the batches that came.
    pub bytes_in: u64,
    /// Bytes of the batches that were made, those without records among them.
    pub bytes_out: u64,
}

/// Makes the batches that stay of a stretch of batches, which come in the order of their offsets. What it makes covers the
/// same offsets, as whole batches that [`Log::append_copied`](crate::Log::append_copied) takes: those of which a record
/// stays, with their header but for the size, and batches without records for all offsets between them. A producer is
/// remembered only where a record of it stays.
#[derive(Debug)]
pub struct Sieve<'a> {
    keys: &'a KeyMap,
    rules: SieveRules,
    /// First offset that is not covered by what was made.
    next: u64,
    sieved: Sieved,
    first_unread: Option<u64>,
}

impl<'a> Sieve<'a> {
    /// A sieve for the batches from the offset `from` on.
    pub fn new(keys: &'a KeyMap, from: Offset, rules: SieveRules) -> Self {
        Self { keys, rules, next: from.0, sieved: Sieved::default(), first_unread: None }
    }

    /// Appends to `out` what stays of a batch, behind a batch without records for the offsets since the last one that
    /// stayed; nothing, if no record stays. A record stays if it has no key, or if the map knows no later one of its key. A
    /// batch whose records cannot be read to their end stays as it is, and so does one whose rest would be longer than it
    /// was and than the limit; behind it no tombstone goes.
    ///
    /// # Panics
    /// If the batch begins in front of what was covered already.
    pub fn batch(&mut self, batch: &Batch<'_>, out: &mut Vec<u8>) {
        assert!(batch.base_offset() >= self.next, "batches come in the order of their offsets");
        let records = batch.header().records_left();
        let bytes = batch.bytes().len();
        self.sieved.bytes_in += bytes as u64;
        if records == 0 || batch.end_offset() <= self.rules.start.0 {
            self.sieved.records_gone += u64::from(records);
            return;
        }
        let before = out.len();
        write_gap(self.next..batch.base_offset(), out);
        let bytes_max = self.rules.batch_bytes_max.max(bytes);
        let mut tombstones_kept = 0;
        let gone = retain_records(batch, out, bytes_max, |record| {
            let stays = self.keeps(record);
            tombstones_kept += u64::from(stays && record.key.is_some() && record.value.is_none());
            stays
        });
        match gone {
            Some(_) => self.sieved.tombstones_kept += tombstones_kept,
            None => drop(self.first_unread.get_or_insert(batch.base_offset())),
        }
        let gone = gone.unwrap_or(0);
        self.sieved.records_gone += u64::from(gone);
        self.sieved.records_kept += u64::from(records - gone);
        if gone == records {
            out.truncate(before);
        } else {
            self.next = batch.end_offset();
        }
        self.sieved.bytes_out += (out.len() - before) as u64;
    }

    /// Appends batches without records for the offsets up to `end` that are not covered yet.
    pub fn finish(&mut self, end: Offset, out: &mut Vec<u8>) {
        let before = out.len();
        write_gap(self.next..end.0, out);
        self.next = self.next.max(end.0);
        self.sieved.bytes_out += (out.len() - before) as u64;
    }

    /// What went through so far, and what stayed.
    pub fn sieved(&self) -> Sieved {
        self.sieved
    }

    /// Offset of the first batch that had to stay as it is, for the reasons that [`Sieve::batch`] names. It may hold an
    /// older value of any key, so tombstones behind it must stay as long as it is there.
    pub fn first_unread(&self) -> Option<Offset> {
        self.first_unread.map(Offset)
    }

    fn keeps(&self, record: &Record<'_>) -> bool {
        if record.offset < self.rules.start.0 {
            return false;
        }
        let Some(key) = record.key else { return true };
        let is_forgotten = record.value.is_none()
            && record.offset < self.rules.tombstones_below.0
            && self.first_unread.is_none();
        !is_forgotten && self.keys.last_of(key).is_none_or(|last| record.offset >= last.0)
    }
}
