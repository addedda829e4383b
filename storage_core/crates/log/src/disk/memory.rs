//! Aligned memory for O_DIRECT writes: chunks with one writer and many readers, and single pages.
#![allow(unsafe_code, reason = "the disk folder is where unsafe lives")]

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::format::PAGE_BYTES;

/// Size of a chunk: a multiple of a page.
pub(crate) const CHUNK_BYTES: usize = 128 << 10;
/// Chunks kept for the next use: memory that the system has backed already is many times faster than new memory.
const CHUNKS_KEPT: usize = 128;

const CHUNK_LAYOUT: Layout = match Layout::from_size_align(CHUNK_BYTES, PAGE_BYTES as usize) {
    Ok(layout) => layout,
    Err(_) => panic!("size and alignment are powers of two"),
};
const PAGE_LAYOUT: Layout = match Layout::from_size_align(PAGE_BYTES as usize, PAGE_BYTES as usize) {
    Ok(layout) => layout,
    Err(_) => panic!("size and alignment are powers of two"),
};

/// `CHUNK_BYTES` of memory, aligned to a page.
struct ChunkMemory(NonNull<u8>);

// SAFETY: the memory is owned; who may touch which bytes is ruled by `Shared` and `ChunkWriter`.
unsafe impl Send for ChunkMemory {}
// SAFETY: as above.
unsafe impl Sync for ChunkMemory {}

impl ChunkMemory {
    fn new() -> Self {
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { alloc(CHUNK_LAYOUT) };
        Self(NonNull::new(pointer).unwrap_or_else(|| handle_alloc_error(CHUNK_LAYOUT)))
    }
}

impl Drop for ChunkMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, freed once.
        unsafe { dealloc(self.0.as_ptr(), CHUNK_LAYOUT) }
    }
}

/// Gives chunks and takes them back.
#[derive(Default)]
pub(crate) struct ChunkPool {
    free: Mutex<Vec<ChunkMemory>>,
}

impl ChunkPool {
    /// An empty chunk.
    pub(crate) fn take(self: &Arc<Self>) -> ChunkWriter {
        let memory = self.free.lock().pop().unwrap_or_else(ChunkMemory::new);
        let shared = Shared { memory: Some(memory), written: AtomicUsize::new(0), pool: Arc::clone(self) };
        ChunkWriter { reader: ChunkReader(Arc::new(shared)) }
    }
}

struct Shared {
    /// `None` only while it is dropped.
    memory: Option<ChunkMemory>,
    /// Bytes below were written and never change while a reader or the writer lives; bytes above are the writer's.
    written: AtomicUsize,
    pool: Arc<ChunkPool>,
}

impl Shared {
    fn pointer(&self) -> *mut u8 {
        self.memory.as_ref().expect("there until dropped").0.as_ptr()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut free = self.pool.free.lock();
        if free.len() < CHUNKS_KEPT {
            free.extend(self.memory.take());
        }
    }
}

/// The only handle that writes; not cloneable.
pub(crate) struct ChunkWriter {
    reader: ChunkReader,
}

impl ChunkWriter {
    /// Copies as much of `bytes` as there is room for, behind what was written; says how much.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> usize {
        let shared = &*self.reader.0;
        let written = shared.written.load(Ordering::Relaxed);
        let count = bytes.len().min(CHUNK_BYTES - written);
        // SAFETY: `written + count <= CHUNK_BYTES`. Readers touch only bytes below `written`, and `&mut self` is the
        // only writer, so nobody else touches the destination. The source is a live slice elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), shared.pointer().add(written), count) };
        shared.written.store(written + count, Ordering::Release);
        count
    }

    /// A handle for readers.
    pub(crate) fn reader(&self) -> ChunkReader {
        self.reader.clone()
    }
}

/// Sees what was written.
#[derive(Clone)]
pub(crate) struct ChunkReader(Arc<Shared>);

impl ChunkReader {
    /// Written bytes. Panics for bytes that were not written.
    pub(crate) fn slice(&self, range: Range<usize>) -> &[u8] {
        let written = self.0.written.load(Ordering::Acquire);
        assert!(range.start <= range.end && range.end <= written, "{range:?} of {written} written bytes");
        // SAFETY: the range was initialised by the writer (acquired above) and is never written again while this
        // handle keeps the memory from going back to the pool.
        unsafe { std::slice::from_raw_parts(self.0.pointer().add(range.start), range.len()) }
    }
}

/// One page of memory, aligned to a page.
pub(crate) struct AlignedPage(NonNull<u8>);

// SAFETY: an owned allocation without interior mutability.
unsafe impl Send for AlignedPage {}
// SAFETY: as above.
unsafe impl Sync for AlignedPage {}

impl AlignedPage {
    /// The bytes and then zeros. Panics if they do not fit.
    pub(crate) fn padded(bytes: &[u8]) -> Self {
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { alloc_zeroed(PAGE_LAYOUT) };
        let mut page = Self(NonNull::new(pointer).unwrap_or_else(|| handle_alloc_error(PAGE_LAYOUT)));
        page[..bytes.len()].copy_from_slice(bytes);
        page
    }
}

impl Drop for AlignedPage {
    fn drop(&mut self) {
        // SAFETY: allocated in `padded` with this layout, freed once.
        unsafe { dealloc(self.0.as_ptr(), PAGE_LAYOUT) }
    }
}

impl Deref for AlignedPage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: a page of initialised memory, borrowed as long as `self`.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), PAGE_BYTES as usize) }
    }
}

impl DerefMut for AlignedPage {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), PAGE_BYTES as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_what_was_written_and_memory_is_used_again() {
        let pool = Arc::new(ChunkPool::default());
        let mut writer = pool.take();
        let reader = writer.reader();
        assert_eq!(writer.append(b"hello"), 5);
        assert_eq!(reader.slice(1..5), b"ello");
        assert_eq!(writer.append(&vec![7; CHUNK_BYTES]), CHUNK_BYTES - 5);
        assert_eq!(writer.append(b"x"), 0);
        drop(writer);
        assert_eq!(pool.free.lock().len(), 0);
        assert_eq!(reader.slice(4..6), b"o\x07");
        drop(reader);
        assert_eq!(pool.free.lock().len(), 1);
        assert!(pool.take().reader().slice(0..0).is_empty());
    }

    #[test]
    #[should_panic(expected = "written bytes")]
    fn bytes_that_were_not_written_are_not_shown() {
        let pool = Arc::new(ChunkPool::default());
        pool.take().reader().slice(0..1);
    }
}
