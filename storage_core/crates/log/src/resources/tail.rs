//! The growing end of a range of a file. One writer appends, commits capture what to write, and readers see recent
//! bytes without a system call. Mapped tails are stored at once; buffered ones stay in memory until a commit writes
//! them.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::disk::{
    CHUNK_BYTES, ChunkPool, ChunkReader, ChunkWriter, ClosedFile, DiskFile, FEW_PARTS, MappedRange,
    PooledPage, SMALL_CHUNK_BYTES, write_all,
};
use crate::page::page_down;
use crate::resources::ready::{ReadyPages, Window};
use crate::resources::recent::Recent;

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
