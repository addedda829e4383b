//! What was written last, in memory: the chunks of a tail that the disk may lack, and for a while those that it has. A
//! reader close behind a writer asks the disk for nothing.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use crate::disk::{ChunkReader, DiskFile};
use crate::page::page_down;
use crate::sync::Mutex;

/// The chunks of a tail: those that may not be on the disk yet, and in front of them some of those that are, for
/// readers close behind the writer.
#[derive(Default)]
pub(crate) struct Recent {
    chunks: Mutex<Chunks>,
}

/// Each chunk with the position of its first byte; all of them lie back to back.
#[derive(Default)]
struct Chunks {
    /// The disk has these; how long they stay is ruled by [`Lately`].
    on_disk: VecDeque<(u64, ChunkReader)>,
    waiting: VecDeque<(u64, ChunkReader)>,
}

impl Recent {
    /// Adds the chunk that begins at a position, behind all others.
    pub(crate) fn push(&self, position: u64, chunk: ChunkReader) {
        self.chunks.lock().waiting.push_back((position, chunk));
    }

    /// Drops the chunks that end at or below the page of `flushed`: the disk has them.
    pub(crate) fn release(&self, flushed: u64) {
        while self.chunks.lock().take_below(page_down(flushed)).is_some() {}
    }

    /// The same, but readers find them here a while longer.
    pub(crate) fn keep(self: &Arc<Self>, flushed: u64, lately: &Lately) {
        let mut kept = SmallVec::new();
        let mut chunks = self.chunks.lock();
        while let Some((position, chunk)) = chunks.take_below(page_down(flushed)) {
            kept.push(chunk.capacity_bytes());
            chunks.on_disk.push_back((position, chunk));
        }
        drop(chunks);
        lately.note(self, kept);
    }

    /// Drops the oldest chunk that the disk has.
    fn drop_oldest(&self) {
        let mut chunks = self.chunks.lock();
        let oldest = chunks.on_disk.pop_front();
        if chunks.on_disk.is_empty() {
            chunks.on_disk.shrink_to_fit();
        }
        drop(chunks);
        drop(oldest); // which takes a lock of the pool's
    }

    /// Whether the disk has everything.
    pub(crate) fn is_written(&self) -> bool {
        self.chunks.lock().waiting.is_empty()
    }

    /// Whether all from a position on is here.
    pub(crate) fn has(&self, position: u64) -> bool {
        let chunks = self.chunks.lock();
        chunks.all().next().is_some_and(|(first, _)| *first <= position)
    }

    /// The chunks of a written range, as far as they are still here.
    pub(crate) fn parts(&self, range: Range<u64>) -> SmallVec<[(ChunkReader, Range<usize>); 2]> {
        let chunks = self.chunks.lock();
        let part = |(position, chunk): &(u64, ChunkReader)| {
            let start = range.start.max(*position);
            let end = range.end.min(position + chunk.capacity_bytes() as u64);
            (start < end).then(|| (chunk.clone(), (start - position) as usize..(end - position) as usize))
        };
        chunks.all().filter_map(part).collect()
    }

    /// Appends a written range to `out`: the part that is only on the disk is read from `file`, the rest comes from
    /// the chunks.
    pub(crate) fn read(
        &self,
        file: &dyn DiskFile,
        start: u64,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let parts = self.parts(range.clone());
        let here: u64 = parts.iter().map(|(_, range)| range.len() as u64).sum();
        let on_disk = range.end - range.start - here;
        out.reserve((range.end - range.start) as usize);
        if on_disk > 0 {
            file.read(start + range.start, on_disk as usize, out)?;
        }
        for (chunk, range) in parts {
            out.extend_from_slice(chunk.slice(range));
        }
        Ok(())
    }
}

impl Chunks {
    /// The oldest chunk that the disk may lack, if it ends at or below a position.
    fn take_below(&mut self, end: u64) -> Option<(u64, ChunkReader)> {
        let is_below = |(position, chunk): &(u64, ChunkReader)| {
            position.saturating_add(chunk.capacity_bytes() as u64) <= end
        };
        if self.waiting.front().is_some_and(is_below) { self.waiting.pop_front() } else { None }
    }

    fn all(&self) -> impl Iterator<Item = &(u64, ChunkReader)> {
        self.on_disk.iter().chain(&self.waiting)
    }
}

/// Limit on the memory of chunks that the disk has.
const LATELY_BYTES: usize = 8 << 20;

/// Which chunks of all logs readers find in memory although the disk has them: those that were written last. A reader
/// at the end of a log comes when a commit is through; it would ask the disk for what was in memory a moment ago.
#[derive(Default)]
pub(crate) struct Lately {
    order: Mutex<Order>,
}

#[derive(Default)]
struct Order {
    /// Whose chunk it is, and its size, the oldest first.
    chunks: VecDeque<(Weak<Recent>, usize)>,
    bytes: usize,
}

impl Lately {
    /// Counts chunks of a tail, and drops the oldest of all beyond the limit.
    fn note(&self, recent: &Arc<Recent>, sizes: SmallVec<[usize; 8]>) {
        if sizes.is_empty() {
            return;
        }
        let mut order = self.order.lock();
        for bytes in sizes {
            order.bytes += bytes;
            order.chunks.push_back((Arc::downgrade(recent), bytes));
        }
        let surplus = order.take_down_to(LATELY_BYTES);
        drop(order);
        surplus.iter().filter_map(Weak::upgrade).for_each(|recent| recent.drop_oldest());
    }

    /// Drops all of them: nothing was written for a while, so nobody reads close behind a writer.
    pub(crate) fn forget(&self) {
        let surplus = self.order.lock().take_down_to(0);
        surplus.iter().filter_map(Weak::upgrade).for_each(|recent| recent.drop_oldest());
    }
}

impl Order {
    fn take_down_to(&mut self, bytes_max: usize) -> SmallVec<[Weak<Recent>; 8]> {
        let mut taken = SmallVec::new();
        while self.bytes > bytes_max
            && let Some((recent, bytes)) = self.chunks.pop_front()
        {
            self.bytes -= bytes;
            taken.push(recent);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{CHUNK_BYTES, ChunkPool, SMALL_CHUNK_BYTES};

    #[test]
    fn what_was_written_before_a_pause_leaves_the_memory() {
        let (pool, lately) = (Arc::new(ChunkPool::default()), Lately::default());
        let recent = Arc::new(Recent::default());
        let mut writer = pool.take(SMALL_CHUNK_BYTES);
        writer.append(&[7; SMALL_CHUNK_BYTES]);
        recent.push(0, writer.reader());
        drop(writer);
        recent.keep(SMALL_CHUNK_BYTES as u64, &lately);
        assert!(recent.has(0));
        lately.forget();
        assert!(!recent.has(0));
        assert_eq!(lately.order.lock().bytes, 0);
    }

    #[test]
    fn a_tail_that_is_gone_takes_its_memory_along() {
        let (pool, lately) = (Arc::new(ChunkPool::default()), Lately::default());
        let recent = Arc::new(Recent::default());
        for chunk in 0..LATELY_BYTES / CHUNK_BYTES * 2 {
            let mut writer = pool.take(CHUNK_BYTES);
            writer.append(&[7; CHUNK_BYTES]);
            recent.push((chunk * CHUNK_BYTES) as u64, writer.reader());
        }
        recent.keep(u64::MAX, &lately);
        assert!(recent.has(LATELY_BYTES as u64) && !recent.has(LATELY_BYTES as u64 - 1));
        drop(recent);
        lately.note(&Arc::default(), SmallVec::from_slice(&[LATELY_BYTES]));
        assert_eq!(lately.order.lock().chunks.len(), 1);
    }
}
