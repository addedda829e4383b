//! The growing end of a range of a file. One writer appends, commits capture what to write, and readers see recent
//! bytes without a system call. Mapped tails are stored at once; buffered ones stay in memory until a commit writes
//! them.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use crate::disk::{
    CHUNK_BYTES, ChunkPool, ChunkReader, ChunkWriter, ClosedFile, DiskFile, FEW_PARTS, MappedRange,
    PooledPage, SMALL_CHUNK_BYTES, write_all,
};
use crate::page::page_down;
use crate::resources::ready::{ReadyPages, Window};
use crate::sync::Mutex;

/// Position from which a tail gets large chunks: many logs never come so far.
const LARGE_FROM: u64 = 64 << 10;

/// The tail of a range. Positions count from the start of the range.
pub(crate) struct Tail {
    file: Arc<dyn DiskFile>,
    start: u64,
    written: u64,
    memory: Memory,
}

enum Memory {
    Mapped { claim: Box<dyn MappedRange>, window: Window },
    Buffered { pool: Arc<ChunkPool>, current: Option<ChunkWriter>, recent: Arc<Recent> },
}

impl Tail {
    /// Opens a tail whose bytes are stored into a mapping of the file; it goes on at `written`. With `is_fast` the log
    /// fills blocks so fast that pages are made ready from the first byte on.
    pub(crate) fn mapped(
        file: Arc<dyn DiskFile>,
        range: Range<u64>,
        written: u64,
        pages: &Arc<ReadyPages>,
        is_fast: bool,
    ) -> Self {
        let start = range.start;
        let window = Window::new(pages, range.clone(), written, is_fast);
        let claim = Arc::clone(&file).claim(range);
        Self { file, start, written, memory: Memory::Mapped { claim, window } }
    }

    /// Opens a tail whose bytes stay in memory until a commit writes them; it goes on at `written`, and reads the bytes
    /// that are before it on its page.
    pub(crate) fn buffered(
        file: Arc<dyn DiskFile>,
        range: &Range<u64>,
        written: u64,
        pool: &Arc<ChunkPool>,
    ) -> io::Result<Self> {
        let (start, page) = (range.start, page_down(written));
        let memory =
            Memory::Buffered { pool: Arc::clone(pool), current: None, recent: Arc::new(Recent::default()) };
        let mut tail = Self { file, start, written: page, memory };
        if page < written {
            let mut bytes = Vec::new();
            tail.file.read(start + page, (written - page) as usize, &mut bytes)?;
            if bytes.len() as u64 != written - page {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            tail.append(&bytes)?;
        }
        Ok(tail)
    }

    /// Closes the tail's file; nothing is written any more.
    pub(crate) fn let_go(&mut self) {
        self.file = Arc::new(ClosedFile);
    }

    /// Position of the next byte.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Appends bytes; the range must have been prepared up to their end. After an error the file must take no more, as
    /// [`MappedRange::store`] says.
    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.memory {
            Memory::Mapped { claim, window } => {
                claim.store(self.written, bytes)?;
                self.written += bytes.len() as u64;
                window.advance(self.written, &self.file);
            }
            Memory::Buffered { pool, current, recent } => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    let chunk = current.get_or_insert_with(|| {
                        let is_large = self.written >= LARGE_FROM || rest.len() > SMALL_CHUNK_BYTES;
                        let chunk = pool.take(if is_large { CHUNK_BYTES } else { SMALL_CHUNK_BYTES });
                        recent.push(self.written, chunk.reader());
                        chunk
                    });
                    let count = chunk.append(rest);
                    if count == 0 {
                        *current = None;
                    }
                    self.written += count as u64;
                    rest = &rest[count..];
                }
            }
        }
        Ok(())
    }

    /// Captures what must be written so that the disk has everything up to now, if it has everything below `flushed`.
    pub(crate) fn capture(&self, flushed: u64) -> TailCapture {
        self.capture_to(flushed, self.written)
    }

    /// Captures as [`Tail::capture`] does, but not much more than `bytes_max`.
    pub(crate) fn capture_some(&self, flushed: u64, bytes_max: u64) -> TailCapture {
        let end = page_down(flushed.saturating_add(bytes_max));
        self.capture_to(flushed, if end > flushed { end.min(self.written) } else { self.written })
    }

    fn capture_to(&self, flushed: u64, end: u64) -> TailCapture {
        let from = page_down(flushed);
        let mut parts = SmallVec::new();
        if let Memory::Buffered { pool, recent, .. } = &self.memory
            && flushed < end
        {
            let whole = page_down(end);
            parts = recent
                .parts(from..whole)
                .into_iter()
                .map(|(chunk, range)| Part::Chunk(chunk, range))
                .collect();
            // The last page is copied: bytes that arrive later must not be written in part.
            let last = recent.parts(whole..end);
            if let Some((chunk, range)) = last.first() {
                parts.push(Part::Page(pool.page(chunk.slice(range.clone()))));
            }
        }
        TailCapture { file: Arc::clone(&self.file), position: self.start + from, parts, end }
    }

    /// Recent bytes for readers; `None` if the file always has them.
    pub(crate) fn recent(&self) -> Option<Arc<Recent>> {
        match &self.memory {
            Memory::Mapped { .. } => None,
            Memory::Buffered { recent, .. } => Some(Arc::clone(recent)),
        }
    }
}

/// Bytes of a tail at one moment, which are written without holding anything of the writer's.
pub(crate) struct TailCapture {
    file: Arc<dyn DiskFile>,
    /// Position in the file.
    position: u64,
    /// Parts of whole pages; empty if nothing needs to be written.
    parts: SmallVec<[Part; 2]>,
    /// Position in the range where the tail ended.
    pub(crate) end: u64,
}

enum Part {
    Chunk(ChunkReader, Range<usize>),
    Page(PooledPage),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Chunk(chunk, range) => chunk.slice(range.clone()),
            Self::Page(page) => page,
        }
    }
}

impl TailCapture {
    /// Whether there is anything to write.
    pub(crate) fn has_writes(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Position in the file, and the parts to write there.
    pub(crate) fn as_write(&self) -> (u64, Vec<&[u8]>) {
        (self.position, self.parts.iter().map(Part::bytes).collect())
    }

    /// Syncs the tail's file.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// Writes the captured bytes; returns how many there were.
    pub(crate) fn write(&self, durable: bool) -> io::Result<u64> {
        let parts: SmallVec<[&[u8]; FEW_PARTS]> = self.parts.iter().map(Part::bytes).collect();
        write_all(&*self.file, self.position, &parts, durable)?;
        Ok(parts.iter().map(|part| part.len() as u64).sum())
    }
}

/// The chunks of a tail: those that may not be on the disk yet, and in front of them some of those that are, for readers close
/// behind the writer.
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
    fn push(&self, position: u64, chunk: ChunkReader) {
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

    /// Whether all from a position on is here.
    pub(crate) fn has(&self, position: u64) -> bool {
        let chunks = self.chunks.lock();
        chunks.all().next().is_some_and(|(first, _)| *first <= position)
    }

    /// The chunks of a written range, as far as they are still here.
    fn parts(&self, range: Range<u64>) -> SmallVec<[(ChunkReader, Range<usize>); 2]> {
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

/// Which chunks of all logs readers find in memory although the disk has them: those that were written last. A reader at the end of
/// a log comes when a commit is through; it would ask the disk for what was in memory a moment ago.
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
