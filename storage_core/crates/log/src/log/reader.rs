//! Reads of a log: whole batches by offset. Every batch is checked before it is given; damage found on the way is
//! fenced, so that what lies around it can be read.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::block::Block;
use super::state::LogState;
use crate::batch::{Batch, BatchHeader, HEADER_BYTES, write_epoch};
use crate::error::{Error, Result};
use crate::log::scan::Window;
use crate::page::PAGE_BYTES;
use crate::types::{LogId, Offset};

/// Bytes that are read beyond those wanted: what an index entry covers, so that the wanted batch is among them.
pub(super) const SLACK_BYTES: u64 = 2 * PAGE_BYTES;

/// Whole batches as they were appended, with their offsets and the epoch of their log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slices {
    /// Batches in order, without gaps. The first contains the offset that was asked for.
    pub batches: Vec<Bytes>,
    /// Offset at which to read on.
    pub next_offset: Offset,
    /// Memory that the batches share: each piece with the number of batches that lie in it, one behind the other.
    memory: Vec<(Bytes, usize)>,
}

impl Slices {
    /// Gives the same bytes in few pieces without copying: batches that one read of a block brought lie one behind the
    /// other and make one piece. Batches that were taken from the end of `batches` are left out.
    pub fn pieces(&self) -> Vec<Bytes> {
        let mut batches = &self.batches[..];
        let mut pieces = Vec::with_capacity(self.memory.len());
        for (memory, count) in &self.memory {
            let (here, behind) = batches.split_at((*count).min(batches.len()));
            batches = behind;
            if !here.is_empty() {
                let bytes: usize = here.iter().map(Bytes::len).sum();
                pieces.push(memory.slice(..bytes));
            }
        }
        pieces
    }

    /// Gives the same batches in other memory: `wrap` turns each piece of memory into one with the same bytes, for
    /// example one that is counted.
    #[must_use]
    pub fn wrapped(self, mut wrap: impl FnMut(Bytes) -> Bytes) -> Self {
        let mut wrapped = Self { next_offset: self.next_offset, ..Self::default() };
        let mut batches = self.batches.iter();
        for (memory, count) in self.memory {
            let memory = wrap(memory);
            let mut at = 0;
            for batch in batches.by_ref().take(count) {
                wrapped.batches.push(memory.slice(at..at + batch.len()));
                at += batch.len();
            }
            wrapped.memory.push((memory, count));
        }
        wrapped
    }

    /// Adds the result of one read of a block: the memory from the first batch on, and the batches in it.
    fn extend(&mut self, memory: Bytes, batches: Vec<Bytes>) {
        self.memory.push((memory, batches.len()));
        self.batches.extend(batches);
    }
}

/// Result of one step of a read.
enum Step {
    /// Batches from the offset on, the memory that begins with them, and the offset behind them.
    Batches(Vec<Bytes>, Bytes, u64),
    /// The offset is in a damaged range.
    Damaged { start: u64, end: u64 },
    /// The block was freed meanwhile.
    Gone,
}

impl LogState {
    /// Reads whole batches from the one that contains `offset`, about `bytes_max` bytes, as [`crate::Log::read`] says.
    pub(crate) fn read(&self, offset: u64, bytes_max: usize) -> Result<Slices> {
        let mut slices = Slices { next_offset: Offset(offset), ..Slices::default() };
        let mut left = bytes_max as u64;
        loop {
            let next = slices.next_offset.0;
            let end = self.readable.load(Ordering::Acquire);
            let start = self.start.load(Ordering::Acquire);
            if next < start || next > end {
                // The log was trimmed on the way; what was read before still counts.
                if !slices.batches.is_empty() {
                    return Ok(slices);
                }
                return Err(Error::OffsetOutOfRange {
                    requested: Offset(offset),
                    start: Offset(start),
                    end: Offset(end),
                });
            }
            if next == end || (left == 0 && !slices.batches.is_empty()) {
                return Ok(slices);
            }
            let Some((block, limit)) = self
                .find(next)
                .or_else(|fence| if slices.batches.is_empty() { Err(fence) } else { Ok(None) })?
            else {
                // The log was trimmed since `start` was loaded.
                if slices.batches.is_empty() && self.start.load(Ordering::Acquire) > next {
                    continue;
                }
                return Ok(slices);
            };
            let is_first = slices.batches.is_empty();
            match self.read_block(&block, next, limit, left, is_first)? {
                Step::Batches(mut batches, memory, mut next_offset) => {
                    // A compaction has rewritten the block since the batches in front were read: this gap begins among
                    // those batches.
                    if let (false, Some(first)) = (is_first, batches.first())
                        && BatchHeader::peek(first)?.base_offset < next
                    {
                        return Ok(slices);
                    }
                    // A commit shows the bytes of a block a moment before it shows the log's end.
                    while next_offset > end
                        && let Some(hidden) = batches.pop()
                    {
                        next_offset = BatchHeader::peek(&hidden)?.base_offset;
                    }
                    if batches.is_empty() {
                        // A compaction has joined what lies behind the end with what lies in front of it: the end is
                        // further by now.
                        if is_first && self.readable.load(Ordering::Acquire) > end {
                            continue;
                        }
                        return Ok(slices);
                    }
                    left = left.saturating_sub(batches.iter().map(|batch| batch.len() as u64).sum());
                    slices.extend(memory, batches);
                    slices.next_offset = Offset(next_offset);
                }
                Step::Damaged { start, end } => self.fence(&block, start, end),
                Step::Gone => {}
            }
        }
    }

    /// Whether a read from an offset on will hardly wait for the disk: what it needs was written just now.
    pub(crate) fn is_in_memory(&self, offset: u64) -> bool {
        matches!(self.find(offset), Ok(Some((block, _))) if block.is_in_memory(offset, &self.resources.indexes))
    }

    /// Finds the block of a readable offset and the offset at which damage in it starts. Fails if the offset itself is
    /// damaged.
    fn find(&self, offset: u64) -> Result<Option<(Arc<Block>, u64)>> {
        let directory = self.directory.read();
        let fence = directory.fences.iter().find(|(_, end)| offset < *end);
        if let Some(&(start, end)) = fence.filter(|(start, _)| *start <= offset) {
            return Err(corrupted(self.id, start, end));
        }
        let after = directory.blocks.partition_point(|block| block.base_offset <= offset);
        let block = after.checked_sub(1).map(|index| Arc::clone(&directory.blocks[index]));
        Ok(block.map(|block| (block, fence.map_or(u64::MAX, |(start, _)| *start))))
    }

    /// Reads batches of one block from the one that contains `offset` on, up to the offset `limit`.
    fn read_block(
        &self,
        block: &Block,
        offset: u64,
        limit: u64,
        bytes_max: u64,
        is_first: bool,
    ) -> Result<Step> {
        let failed = |e| block.slots.file.error("read", e);
        let readable = block.readable.load(Ordering::Acquire);
        let entry = block.entry_for(offset, &self.resources.indexes).map_err(failed)?;
        let (mut next, mut position) =
            entry.map_or((block.base_offset, PAGE_BYTES), |entry| (entry.offset, u64::from(entry.position)));
        let mut wanted = bytes_max.saturating_add(SLACK_BYTES);
        loop {
            let mut bytes = Vec::new();
            let end = readable.min(position.saturating_add(wanted)).max(position);
            if position < end {
                block.read(position..end, &mut bytes).map_err(failed)?;
            }
            // Somebody has cut the file off: what it lacks is damaged, and asking for more brings no more.
            let is_cut = (bytes.len() as u64) < end - position;
            if !block.is_still_there() {
                return Ok(Step::Gone);
            }
            let mut batches = Vec::new();
            let (mut at, mut total) = (0, 0);
            let stop = loop {
                if next >= limit || (total >= bytes_max && !batches.is_empty()) {
                    return Ok(sliced(bytes, &batches, next));
                }
                let (rest, here) = (&bytes[at..], position + at as u64);
                if rest.is_empty() && here >= readable && next > offset {
                    return Ok(sliced(bytes, &batches, next));
                }
                let batch = match Batch::parse(rest) {
                    Ok((batch, _)) if batch.base_offset() == next && block.has(here, batch.header()) => batch,
                    Ok(_) => break None,
                    Err(_) => break missing(rest, readable - here),
                };
                if batch.end_offset() > limit {
                    break None;
                }
                let size = batch.bytes().len();
                let is_wanted = batch.end_offset() > offset;
                let fits = total + size as u64 <= bytes_max || (batches.is_empty() && is_first);
                if is_wanted && !fits {
                    return Ok(sliced(bytes, &batches, next));
                }
                let epoch = block.epochs.at(next);
                next = batch.end_offset();
                if is_wanted {
                    batches.push(at..at + size);
                    total += size as u64;
                    write_epoch(&mut bytes[at..], epoch.0);
                }
                at += size;
            };
            if !batches.is_empty() {
                return Ok(sliced(bytes, &batches, next));
            }
            position += at as u64;
            match stop {
                // The batch goes on behind what was read.
                Some(size) if size > (bytes.len() - at) as u64 && !is_cut => wanted = size.max(bytes_max),
                _ => {
                    let (behind, end) = self.behind_damage(block, position, next).map_err(failed)?;
                    if end > offset {
                        return Ok(Step::Damaged { start: next, end });
                    }
                    (position, next) = (behind, end);
                }
            }
        }
    }

    /// Finds where reading goes on behind a damaged batch: position and offset of the next good one, or of the block's
    /// end.
    fn behind_damage(&self, block: &Block, position: u64, offset: u64) -> io::Result<(u64, u64)> {
        let end = block
            .closed
            .get()
            .map_or_else(|| self.readable.load(Ordering::Acquire), |closed| closed.end_offset);
        let data_end = block.readable.load(Ordering::Acquire);
        let mut window = Window::new(block, data_end);
        let next = window.next_batch(position, offset + 1..end)?;
        Ok(next.unwrap_or((data_end, end.max(offset + 1))))
    }

    /// Remembers a damaged range, so that later reads answer for it at once.
    fn fence(&self, block: &Block, start: u64, end: u64) {
        let mut directory = self.directory.write();
        let at = directory.fences.partition_point(|fence| *fence < (start, end));
        if block.is_still_there() && directory.fences.get(at) != Some(&(start, end)) {
            tracing::error!(log = %self.id, start, end, "stored batches are damaged");
            self.resources.corrupted_ranges.fetch_add(1, Ordering::Relaxed);
            directory.fences.insert(at, (start, end));
        }
    }
}

/// Makes the step of batches at ranges that follow each other and share their memory; `next` is the offset behind
/// them.
fn sliced(bytes: Vec<u8>, ranges: &[Range<usize>], next: u64) -> Step {
    let bytes = Bytes::from(bytes);
    let start = ranges.first().map_or(0, |first| first.start);
    let batches = ranges.iter().map(|range| bytes.slice(range.clone())).collect();
    Step::Batches(batches, bytes.slice(start..), next)
}

/// How many bytes the batch at the front of `rest` needs, if that may be more than were read.
fn missing(rest: &[u8], available: u64) -> Option<u64> {
    let size = match BatchHeader::peek(rest) {
        Ok(header) => header.size_bytes() as u64,
        Err(_) if rest.len() < HEADER_BYTES => HEADER_BYTES as u64,
        Err(_) => return None,
    };
    // A length that runs over the data was not written: nothing is read, or allocated, for it.
    (size <= available).then_some(size)
}

fn corrupted(log: LogId, start: u64, end: u64) -> Error {
    Error::Corrupted { log, start: Offset(start), end: Offset(end) }
}
