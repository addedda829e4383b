//! A walk over the batches of a block as they lie on the disk. Recovery does it with a tail, a reader with what lies
//! behind damage.

use std::io;
use std::ops::Range;

use crate::batch::{Batch, BatchHeader, HEADER_BYTES};
use crate::digest::Digest;
use crate::disk::DiskFile;
use crate::format::footer::IndexEntry;
use crate::format::mark::BlockKey;
use crate::log::block::Block;
use crate::page::PAGE_BYTES;

/// How many bytes are read at a time.
const WINDOW_BYTES: u64 = 256 << 10;
/// Position in a batch of the byte that names the format.
const MAGIC_AT: usize = 16;
const MAGIC: u8 = 2;

/// The part of a block that is in memory during a walk; it moves forward.
pub(crate) struct Window<'a> {
    file: &'a dyn DiskFile,
    key: BlockKey,
    /// Position of the block in its file.
    start: u64,
    /// First position that is not looked at.
    end: u64,
    bytes: Vec<u8>,
    /// Position of the first byte of `bytes`.
    at: u64,
}

impl<'a> Window<'a> {
    /// A window on a block up to the position `end`.
    pub(crate) fn new(block: &'a Block, end: u64) -> Self {
        Self { file: block.file(), key: block.key, start: block.start, end, bytes: Vec::new(), at: 0 }
    }

    /// A window on a block that is all of a file.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn of_file(file: &'a dyn DiskFile, key: BlockKey, end: u64) -> Self {
        Self { file, key, start: 0, end, bytes: Vec::new(), at: 0 }
    }

    /// Takes a page of the block that was read before, as `bytes` without the zeros at its end.
    pub(crate) fn load_page(&mut self, position: u64, mut bytes: Vec<u8>) {
        let room = self.end.saturating_sub(position).min(PAGE_BYTES);
        bytes.resize(room as usize, 0);
        (self.bytes, self.at) = (bytes, position);
    }

    /// All bytes at hand from a position on: at least `least`, fewer only where the block ends.
    fn ahead(&mut self, position: u64, least: usize) -> io::Result<&[u8]> {
        let end = self.end.min(position.saturating_add(least as u64));
        if position < self.at || end > self.at + self.bytes.len() as u64 {
            self.bytes.clear();
            self.at = position;
            let wanted =
                (end.max(position.saturating_add(WINDOW_BYTES)).min(self.end)).saturating_sub(position);
            self.file.read(self.start + position, wanted as usize, &mut self.bytes)?;
        }
        let from = (position - self.at).min(self.bytes.len() as u64) as usize;
        Ok(&self.bytes[from..])
    }

    /// `count` bytes from a position on, fewer only where the block ends.
    fn slice(&mut self, position: u64, count: usize) -> io::Result<&[u8]> {
        let bytes = self.ahead(position, count)?;
        Ok(&bytes[..count.min(bytes.len())])
    }

    /// The batch at a position, if a valid one of this offset was written there. Its leader epoch is its mark.
    pub(crate) fn batch(&mut self, position: u64, offset: u64) -> io::Result<Option<StoredBatch<'_>>> {
        let (end, key) = (self.end, self.key);
        let Some((header, begins_commit)) = BatchHeader::peek(self.slice(position, HEADER_BYTES)?)
            .ok()
            .filter(|header| header.base_offset == offset)
            .and_then(|header| Some((header, key.check(position, &header)?)))
        else {
            return Ok(None);
        };
        if header.size_bytes() as u64 > end.saturating_sub(position) {
            return Ok(None);
        }
        let bytes = self.slice(position, header.size_bytes())?;
        Ok(Batch::parse(bytes).ok().map(|(batch, _)| StoredBatch { batch, begins_commit }))
    }

    /// Searches behind damage at `position` for the next batch whose offset is in the range; gives its position and
    /// offset. Record payloads can hold bytes that look like batches, but their marks do not name the place where they
    /// lie.
    pub(crate) fn next_batch(
        &mut self,
        position: u64,
        offsets: Range<u64>,
    ) -> io::Result<Option<(u64, u64)>> {
        let mut position = position + 1;
        while position + HEADER_BYTES as u64 <= self.end {
            let ahead = self.ahead(position, HEADER_BYTES)?;
            let magics = ahead.get(MAGIC_AT..).unwrap_or_default();
            let Some(at) = magics.iter().position(|&byte| byte == MAGIC) else {
                if magics.is_empty() {
                    return Ok(None); // the file is cut off
                }
                position += magics.len() as u64;
                continue;
            };
            position += at as u64;
            let offset = BatchHeader::peek(self.slice(position, HEADER_BYTES)?).ok().map(|it| it.base_offset);
            if let Some(offset) = offset.filter(|offset| offsets.contains(offset))
                && self.batch(position, offset)?.is_some()
            {
                return Ok(Some((position, offset)));
            }
            position += 1;
        }
        Ok(None)
    }

    /// Searches behind a torn place for batches that were written there and whose offsets are in the range.
    pub(crate) fn behind(&mut self, position: u64, offsets: Range<u64>) -> io::Result<BatchesBehind> {
        let mut behind = BatchesBehind::default();
        let (mut position, mut from) = (position, offsets.start);
        while let Some((at, offset)) = self.next_batch(position, from..offsets.end)? {
            let Some(StoredBatch { batch, begins_commit }) = self.batch(at, offset)? else { break };
            behind.batches += 1;
            if begins_commit {
                behind.durable_to = Some(offset);
            }
            (position, from) = (at + batch.bytes().len() as u64 - 1, batch.end_offset());
        }
        Ok(behind)
    }
}

/// The batches that lie behind a torn place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchesBehind {
    /// Number of whole batches.
    pub(crate) batches: u64,
    /// Offset of the last batch there that begins a commit: everything in front of it was durable before.
    pub(crate) durable_to: Option<u64>,
}

/// A batch that lies where it was written.
pub(crate) struct StoredBatch<'a> {
    pub(crate) batch: Batch<'a>,
    /// Whether everything in front of it in its log was durable before it could be written.
    pub(crate) begins_commit: bool,
}

/// Result of a walk over a block.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    pub(crate) entries: Vec<IndexEntry>,
    pub(crate) end_offset: u64,
    pub(crate) data_end: u64,
    pub(crate) max_timestamp: i64,
    pub(crate) digest: Digest,
    /// Damaged ranges of offsets.
    pub(crate) fences: Vec<(u64, u64)>,
}

impl Walk {
    /// Whether the walk ended in damage and not behind a batch.
    pub(crate) fn ends_damaged(&self) -> bool {
        self.fences.last().is_some_and(|(_, end)| *end == self.end_offset)
    }
}

/// Limits of a walk: how far it may go, and how far it must.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) base_offset: u64,
    /// Offsets below were synced: what is bad there is damage, not a torn tail.
    pub(crate) known: u64,
    /// Batches from this offset on do not belong to the log any more.
    pub(crate) limit: u64,
}

/// Walks from the first batch of a block on, over damage below `bounds.known`, and hands each batch to `see`.
pub(crate) fn walk(
    window: &mut Window<'_>,
    bounds: Bounds,
    mut see: impl FnMut(&Batch<'_>),
) -> io::Result<Walk> {
    let mut walked = Walk {
        end_offset: bounds.base_offset,
        data_end: PAGE_BYTES,
        max_timestamp: i64::MIN,
        ..Walk::default()
    };
    let mut index_next = 0;
    while walked.end_offset < bounds.limit {
        let (position, offset) = (walked.data_end, walked.end_offset);
        let stored =
            window.batch(position, offset)?.filter(|stored| stored.batch.end_offset() <= bounds.limit);
        let Some(StoredBatch { batch, .. }) = stored else {
            if offset >= bounds.known {
                break;
            }
            match window.next_batch(position, offset + 1..bounds.limit)? {
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
            entry.max_timestamp = entry.max_timestamp.max(batch.newest());
        }
        see(&batch);
        walked.max_timestamp = walked.max_timestamp.max(batch.newest());
        walked.digest.push(offset, batch.record_count(), batch.header().crc);
        walked.end_offset = batch.end_offset();
        walked.data_end = position + batch.bytes().len() as u64;
    }
    Ok(walked)
}
