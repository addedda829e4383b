//! Aligned memory for O_DIRECT writes: chunks with one writer and many readers, and single pages.
#![allow(unsafe_code, reason = "the disk folder is where unsafe lives")]

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::calls;
use crate::page::PAGE_BYTES;
use crate::sync::{Condvar, Mutex, atomic::AtomicUsize};

/// Size of the chunks of a tail that is short, or slow: a multiple of a page.
pub(crate) const SMALL_CHUNK_BYTES: usize = 16 << 10;
/// Size of the chunks of other tails.
pub(crate) const CHUNK_BYTES: usize = 128 << 10;
/// Size of the regions that large chunks are cut from, which is that of a huge page: the first touches of small pages
/// cost more than the stores themselves.
const REGION_BYTES: usize = 2 << 20;
/// Limit on the regions that are backed by memory before a tail needs them.
const READY_REGIONS: usize = 8;
const CHUNKS_PER_REGION: usize = REGION_BYTES / CHUNK_BYTES;
/// Limit on the free memory of each kind of chunk that is kept for the next use: memory that the system has backed
/// already is many times faster.
const KEPT_BYTES: usize = 1 << 30;
/// Limit on the free memory of each kind of chunk that is kept while nothing is written.
const KEPT_BYTES_IDLE: usize = 16 << 20;
/// Limit on the free pages that are kept. Commits go one after the other and need one for each log that they write.
const KEPT_PAGES: usize = 64;

const PAGE_LAYOUT: Layout = match Layout::from_size_align(PAGE_BYTES as usize, PAGE_BYTES as usize) {
    Ok(layout) => layout,
    Err(_) => panic!("size and alignment are powers of two"),
};

/// Memory aligned to its size.
struct Region {
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is owned; `Shared` and `ChunkWriter` rule who may touch which bytes.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    fn new(bytes: usize) -> Self {
        let layout = Self::layout(bytes);
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { alloc(layout) };
        let memory = NonNull::new(pointer).unwrap_or_else(|| handle_alloc_error(layout));
        if bytes == REGION_BYTES {
            calls::advise_huge(pointer, bytes);
        }
        Self { memory, bytes }
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, bytes).expect("regions and chunks are powers of two")
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, freed once.
        unsafe { dealloc(self.memory.as_ptr(), Self::layout(self.bytes)) }
    }
}

impl Region {
    /// Has the system back the memory now, since its first touch costs more than a store.
    fn populate(&self) {
        calls::populate(self.memory.as_ptr(), self.bytes);
    }

    /// Cuts the region into chunks, last one first, so that a stack of them gives the first one first.
    fn into_chunks(self, bytes: usize) -> impl Iterator<Item = ChunkMemory> {
        let (region_bytes, region) = (self.bytes, Arc::new(self));
        let part = move |at| ChunkMemory { region: Arc::clone(&region), at, bytes };
        (0..region_bytes).step_by(bytes).rev().map(part)
    }
}

/// Part of a region that belongs to one chunk at a time.
struct ChunkMemory {
    region: Arc<Region>,
    at: usize,
    bytes: usize,
}

impl ChunkMemory {
    fn pointer(&self) -> *mut u8 {
        // SAFETY: the part lies in its region.
        unsafe { self.region.memory.as_ptr().add(self.at) }
    }
}

/// Gives chunks and single pages, and takes them back. Large chunks are made ready before a tail needs them: as many as were ever needed,
/// within limits.
#[derive(Default)]
pub(crate) struct ChunkPool {
    small: Mutex<Vec<ChunkMemory>>,
    large: Mutex<Vec<ChunkMemory>>,
    pages: Mutex<Vec<AlignedPage>>,
    /// Number of regions of large chunks that were made.
    regions: AtomicUsize,
    ahead: Mutex<Ahead>,
    wake: Condvar,
}

#[derive(Default)]
struct Ahead {
    is_asked: bool,
    stop: bool,
}

impl ChunkPool {
    /// Takes an empty chunk of `SMALL_CHUNK_BYTES` or `CHUNK_BYTES`.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> ChunkWriter {
        let mut free = self.free(bytes).lock();
        if free.is_empty() {
            let is_large = bytes == CHUNK_BYTES;
            free.extend(Region::new(if is_large { REGION_BYTES } else { bytes }).into_chunks(bytes));
            self.regions.fetch_add(usize::from(is_large), Ordering::Relaxed);
        }
        let memory = free.pop();
        let left = free.len();
        drop(free);
        if bytes == CHUNK_BYTES && left < self.ready_chunks() / 2 {
            self.ask_ahead();
        }
        let shared = Shared { memory, bytes, written: AtomicUsize::new(0), pool: Arc::clone(self) };
        ChunkWriter { reader: ChunkReader(Arc::new(shared)) }
    }

    /// Makes a page of these bytes and then zeros. Panics if they do not fit.
    pub(crate) fn page(self: &Arc<Self>, bytes: &[u8]) -> PooledPage {
        let free = self.pages.lock().pop();
        let page = match free {
            Some(mut page) => {
                page[..bytes.len()].copy_from_slice(bytes);
                page[bytes.len()..].fill(0);
                page
            }
            None => AlignedPage::padded(bytes),
        };
        PooledPage { page: Some(page), pool: Arc::clone(self) }
    }

    /// Number of large chunks that should be free.
    fn ready_chunks(&self) -> usize {
        // One region is enough for a store that writes little.
        let needed = self.regions.load(Ordering::Relaxed).saturating_sub(1);
        needed.min(READY_REGIONS) * CHUNKS_PER_REGION
    }

    fn ask_ahead(&self) {
        let mut ahead = self.ahead.lock();
        if !std::mem::replace(&mut ahead.is_asked, true) {
            self.wake.notify_one();
        }
    }

    /// Runs the thread that makes memory ready, until [`ChunkPool::stop_ahead`].
    pub(crate) fn run_ahead(&self) {
        let mut ahead = self.ahead.lock();
        while !ahead.stop {
            if !std::mem::take(&mut ahead.is_asked) {
                ahead = self.wake.wait(ahead);
                continue;
            }
            drop(ahead);
            while self.large.lock().len() < self.ready_chunks() {
                let region = Region::new(REGION_BYTES);
                region.populate();
                self.regions.fetch_add(1, Ordering::Relaxed);
                self.large.lock().extend(region.into_chunks(CHUNK_BYTES));
            }
            ahead = self.ahead.lock();
        }
    }

    /// Tells the thread that makes memory ready to end.
    pub(crate) fn stop_ahead(&self) {
        self.ahead.lock().stop = true;
        self.wake.notify_one();
    }

    fn free(&self, bytes: usize) -> &Mutex<Vec<ChunkMemory>> {
        if bytes == CHUNK_BYTES { &self.large } else { &self.small }
    }

    fn give_back(&self, memory: ChunkMemory) {
        let bytes = memory.bytes;
        let mut free = self.free(bytes).lock();
        if free.len() < KEPT_BYTES / bytes {
            free.push(memory);
        }
    }

    /// Gives memory that only a burst needed back to the system.
    pub(crate) fn trim(&self) {
        for bytes in [SMALL_CHUNK_BYTES, CHUNK_BYTES] {
            let mut free = self.free(bytes).lock();
            let kept = free.len().min(KEPT_BYTES_IDLE / bytes);
            // The surplus is dropped without the lock: giving it back takes long.
            let surplus = free.split_off(kept);
            drop(free);
            drop(surplus);
        }
    }
}

struct Shared {
    /// The chunk's memory; `None` only while this is dropped.
    memory: Option<ChunkMemory>,
    bytes: usize,
    /// Number of written bytes. They never change while a reader or the writer lives; the bytes behind them belong to the
    /// writer.
    written: AtomicUsize,
    pool: Arc<ChunkPool>,
}

impl Shared {
    fn pointer(&self) -> *mut u8 {
        self.memory.as_ref().expect("there until dropped").pointer()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.give_back(memory);
        }
    }
}

/// The only handle of a chunk that writes; it cannot be cloned.
pub(crate) struct ChunkWriter {
    reader: ChunkReader,
}

impl ChunkWriter {
    /// Copies as much of `bytes` as there is room for behind the written bytes, and returns how much.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> usize {
        let shared = &*self.reader.0;
        let written = shared.written.load(Ordering::Relaxed);
        let count = bytes.len().min(shared.bytes - written);
        // SAFETY: `written + count <= shared.bytes`. Readers touch only bytes below `written`, and `&mut self` is the
        // only writer, so nobody else touches the destination. The source is a live slice elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), shared.pointer().add(written), count) };
        shared.written.store(written + count, Ordering::Release);
        count
    }

    /// Makes a handle for a reader.
    pub(crate) fn reader(&self) -> ChunkReader {
        self.reader.clone()
    }
}

/// A handle of a chunk that sees its written bytes.
#[derive(Clone)]
pub(crate) struct ChunkReader(Arc<Shared>);

impl ChunkReader {
    /// Number of bytes that the chunk has room for, written or not.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.0.bytes
    }

    /// A range of the written bytes. Panics if some of them were not written.
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
    /// A page of these bytes and then zeros. Panics if they do not fit.
    pub(crate) fn padded(bytes: &[u8]) -> Self {
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { alloc_zeroed(PAGE_LAYOUT) };
        let mut page = Self(NonNull::new(pointer).unwrap_or_else(|| handle_alloc_error(PAGE_LAYOUT)));
        page[..bytes.len()].copy_from_slice(bytes);
        page
    }
}

/// A page that goes back to its pool: memory that was used a moment ago is still in the processor's caches, and costs
/// no call of the allocator.
pub(crate) struct PooledPage {
    /// The page; `None` only while this is dropped.
    page: Option<AlignedPage>,
    pool: Arc<ChunkPool>,
}

impl Deref for PooledPage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.page.as_ref().expect("there until dropped")
    }
}

impl Drop for PooledPage {
    fn drop(&mut self) {
        let mut free = self.pool.pages.lock();
        if free.len() < KEPT_PAGES {
            free.extend(self.page.take());
        }
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
        // SAFETY: a page of initialised memory, borrowed exclusively as long as `self`.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), PAGE_BYTES as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_what_was_written_and_memory_is_used_again() {
        let pool = Arc::new(ChunkPool::default());
        let mut writer = pool.take(CHUNK_BYTES);
        let free = || pool.large.lock().len();
        let others = free();
        assert_eq!(others, CHUNKS_PER_REGION - 1);
        let reader = writer.reader();
        assert_eq!(writer.append(b"hello"), 5);
        assert_eq!(reader.slice(1..5), b"ello");
        assert_eq!(writer.append(&vec![7; CHUNK_BYTES]), CHUNK_BYTES - 5);
        assert_eq!(writer.append(b"x"), 0);
        drop(writer);
        assert_eq!(free(), others);
        assert_eq!(reader.slice(4..6), b"o\x07");
        drop(reader);
        assert_eq!(free(), others + 1);
        assert!(pool.take(CHUNK_BYTES).reader().slice(0..0).is_empty());
        assert_eq!(pool.take(SMALL_CHUNK_BYTES).append(&vec![7; CHUNK_BYTES]), SMALL_CHUNK_BYTES);
    }

    #[test]
    fn a_page_that_was_used_before_shows_nothing_of_that() {
        let pool = Arc::new(ChunkPool::default());
        drop(pool.page(&[7; PAGE_BYTES as usize]));
        let page = pool.page(b"hello");
        assert!(pool.pages.lock().is_empty());
        assert_eq!(page[..5], *b"hello");
        assert!(page[5..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn who_needs_much_memory_finds_some_ready() {
        let pool = Arc::new(ChunkPool::default());
        std::thread::scope(|scope| {
            scope.spawn(|| pool.run_ahead());
            // The first region is all that a small store ever has.
            let first: Vec<_> = (0..CHUNKS_PER_REGION).map(|_| pool.take(CHUNK_BYTES)).collect();
            assert_eq!(pool.regions.load(Ordering::Relaxed), 1);
            let second = pool.take(CHUNK_BYTES);
            let more: Vec<_> = (0..CHUNKS_PER_REGION * 2 / 3).map(|_| pool.take(CHUNK_BYTES)).collect();
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
            while pool.large.lock().len() < CHUNKS_PER_REGION {
                assert!(std::time::Instant::now() < deadline, "no memory was made ready");
                std::thread::yield_now();
            }
            drop((first, second, more));
            pool.stop_ahead();
        });
    }

    #[test]
    #[should_panic(expected = "written bytes")]
    fn bytes_that_were_not_written_are_not_shown() {
        let pool = Arc::new(ChunkPool::default());
        pool.take(SMALL_CHUNK_BYTES).reader().slice(0..1);
    }
}
