//! Walks the batches of a block as they lie on the disk: what a recovery does with a tail, and a reader behind damage.

use std::io;
use std::ops::Range;

use crate::batch::{Batch, BatchHeader, HEADER_BYTES};
use crate::digest::Digest;
use crate::disk::DiskFile;
use crate::format::PAGE_BYTES;
use crate::format::footer::IndexEntry;
use crate::types::Epoch;

/// How much is read at a time.
const WINDOW_BYTES: u64 = 256 << 10;

/// A part of a file that moves forward.
pub(crate) struct Window<'a> {
    file: &'a dyn DiskFile,
    /// Of the block in its file.
    start: u64,
    /// Positions from here on are not looked at.
    end: u64,
    bytes: Vec<u8>,
    /// Position of the first byte of `bytes`.
    at: u64,
}

impl<'a> Window<'a> {
    pub(crate) fn new(file: &'a dyn DiskFile, start: u64, end: u64) -> Self {
        Self { file, start, end, bytes: Vec::new(), at: 0 }
    }

    /// Takes a page of the block as it was read before; `bytes` are without the zeros at its end.
    pub(crate) fn load_page(&mut self, position: u64, mut bytes: Vec<u8>) {
        let room = self.end.saturating_sub(position).min(PAGE_BYTES);
        bytes.resize(room as usize, 0);
        (self.bytes, self.at) = (bytes, position);
    }

    /// Bytes from a position on, fewer only where the block ends.
    fn slice(&mut self, position: u64, count: usize) -> io::Result<&[u8]> {
        let end = self.end.min(position.saturating_add(count as u64));
        if position < self.at || end > self.at + self.bytes.len() as u64 {
            self.bytes.clear();
            self.at = position;
            let wanted =
                (end.max(position.saturating_add(WINDOW_BYTES)).min(self.end)).saturating_sub(position);
            self.file.read(self.start + position, wanted as usize, &mut self.bytes)?;
        }
        let from = (position - self.at).min(self.bytes.len() as u64) as usize;
        let to = (end.max(position) - self.at).min(self.bytes.len() as u64) as usize;
        Ok(&self.bytes[from..to])
    }

    /// The batch at a position, if a valid one of this offset and epoch is there.
    pub(crate) fn batch(
        &mut self,
        position: u64,
        offset: u64,
        epoch: Epoch,
    ) -> io::Result<Option<Batch<'_>>> {
        let end = self.end;
        let header = match BatchHeader::peek(self.slice(position, HEADER_BYTES)?) {
            Ok(header) if header.base_offset == offset && header.leader_epoch.cast_unsigned() == epoch.0 => {
                header
            }
            _ => return Ok(None),
        };
        if header.size_bytes() as u64 > end.saturating_sub(position) {
            return Ok(None);
        }
        let bytes = self.slice(position, header.size_bytes())?;
        Ok(Batch::parse(bytes).ok().map(|(batch, _)| batch))
    }

    /// Searches behind damage at `position` for the next batch, of an offset in the range; its position and offset.
    /// Record payloads can hold bytes that look like batches: one counts only if the next follows or nothing does.
    pub(crate) fn next_batch(
        &mut self,
        position: u64,
        offsets: Range<u64>,
        epoch: Epoch,
    ) -> io::Result<Option<(u64, u64)>> {
        for position in position + 1..self.end.saturating_sub(HEADER_BYTES as u64 - 1) {
            let Ok(header) = BatchHeader::peek(self.slice(position, HEADER_BYTES)?) else { continue };
            let offset = header.base_offset;
            if !offsets.contains(&offset) {
                continue;
            }
            let Some(batch) = self.batch(position, offset, epoch)? else { continue };
            let (behind, end_offset) = (position + batch.bytes().len() as u64, batch.end_offset());
            let ends = end_offset >= offsets.end
                || self.slice(behind, HEADER_BYTES)?.iter().all(|&byte| byte == 0)
                || self.batch(behind, end_offset, epoch)?.is_some();
            if ends {
                return Ok(Some((position, offset)));
            }
        }
        Ok(None)
    }
}

/// What a walk over a block found.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    pub(crate) entries: Vec<IndexEntry>,
    pub(crate) end_offset: u64,
    pub(crate) data_end: u64,
    pub(crate) max_timestamp: i64,
    pub(crate) digest: Digest,
    /// Ranges of offsets that are damaged.
    pub(crate) fences: Vec<(u64, u64)>,
}

/// How far a walk may or must go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) base_offset: u64,
    pub(crate) epoch: Epoch,
    /// Offsets below were synced: what is bad there is damage, not a torn tail.
    pub(crate) known: u64,
    /// Batches from here on are not the log's any more.
    pub(crate) limit: u64,
}

/// Walks from the first batch of a block, over damage where `bounds` say that something was there, and hands each
/// batch to `see`.
pub(crate) fn walk(
    window: &mut Window<'_>,
    bounds: Bounds,
    mut see: impl FnMut(&Batch<'_>),
) -> io::Result<Walked> {
    let mut walked = Walked {
        end_offset: bounds.base_offset,
        data_end: PAGE_BYTES,
        max_timestamp: i64::MIN,
        ..Walked::default()
    };
    let mut index_next = 0;
    while walked.end_offset < bounds.limit {
        let (position, offset) = (walked.data_end, walked.end_offset);
        let batch =
            window.batch(position, offset, bounds.epoch)?.filter(|batch| batch.end_offset() <= bounds.limit);
        let Some(batch) = batch else {
            if offset >= bounds.known {
                break;
            }
            match window.next_batch(position, offset + 1..bounds.limit, bounds.epoch)? {
                Some((position, next)) => {
                    walked.fences.push((offset, next));
                    (walked.data_end, walked.end_offset) = (position, next);
                    index_next = 0;
                }
                None => {
                    let end = bounds.known.min(bounds.limit);
                    walked.fences.push((offset, end));
                    walked.end_offset = end;
                    break;
                }
            }
            continue;
        };
        if position >= index_next {
            walked.entries.push(IndexEntry {
                offset,
                max_timestamp: walked.max_timestamp,
                position: position as u32,
            });
            index_next = position + PAGE_BYTES;
        }
        if let Some(entry) = walked.entries.last_mut() {
            entry.max_timestamp = entry.max_timestamp.max(batch.max_timestamp());
        }
        see(&batch);
        walked.max_timestamp = walked.max_timestamp.max(batch.max_timestamp());
        walked.digest.push(offset, batch.record_count(), batch.header().crc);
        walked.end_offset = batch.end_offset();
        walked.data_end = position + batch.bytes().len() as u64;
    }
    Ok(walked)
}
