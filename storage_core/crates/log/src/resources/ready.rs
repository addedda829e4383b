//! Pages of mapped tails that are made ready before their writers get there. A store into a page that the kernel has not
//! mapped yet faults, and the append would wait while the file system finds the page's place; here a thread of its own
//! waits instead. As much is made ready as was written to the block, within limits: a log that writes little takes no
//! memory ahead.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::disk::DiskFile;
use crate::page::{page_down, page_up};
use crate::sync::{Condvar, Mutex, atomic::AtomicU64};

/// Least position of a writer from which on pages are made ready: many logs never come so far.
const FROM_BYTES: u64 = 64 << 10;
/// Limit on what is made ready in front of one writer.
const STEP_BYTES_MAX: u64 = 4 << 20;
/// Limit on the ready pages of a store to which no writer has come yet. They are memory of the page cache that holds
/// zeros, and the kernel writes them to the disk if they stay unused for long.
const READY_BYTES_MAX: u64 = 64 << 20;

/// The queue of the thread that makes pages ready.
#[derive(Default)]
pub(crate) struct ReadyPages {
    queue: Mutex<Queue>,
    wake: Condvar,
    idle: Condvar,
    /// Bytes that were asked for and that no writer has come to yet, as far as the windows have told.
    ahead_bytes: AtomicU64,
}

#[derive(Default)]
struct Queue {
    /// The files are not held: one that is removed meanwhile gives its space back at once.
    asked: VecDeque<(Weak<dyn DiskFile>, Range<u64>)>,
    /// Whether the thread is making pages ready.
    is_working: bool,
    stop: bool,
}

impl ReadyPages {
    /// Counts bytes as ready; false if there would be too many of them.
    fn take(&self, bytes: u64) -> bool {
        let fits = |taken: u64| Some(taken + bytes).filter(|taken| *taken <= READY_BYTES_MAX);
        self.ahead_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.ahead_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn ask(&self, file: &Arc<dyn DiskFile>, range: Range<u64>) {
        self.queue.lock().asked.push_back((Arc::downgrade(file), range));
        self.wake.notify_one();
    }

    /// Runs the thread that makes pages ready, until [`ReadyPages::stop`].
    pub(crate) fn run(&self) {
        let mut queue = self.queue.lock();
        while !queue.stop {
            match queue.asked.pop_front() {
                Some((file, range)) => {
                    queue.is_working = true;
                    drop(queue);
                    if let Some(file) = file.upgrade() {
                        file.make_ready(range);
                    }
                    queue = self.queue.lock();
                    queue.is_working = false;
                }
                None => {
                    self.idle.notify_all();
                    queue = self.wake.wait(queue);
                }
            }
        }
        queue.asked.clear();
        self.idle.notify_all();
    }

    /// Blocks until the thread has nothing to do and holds no file.
    pub(crate) fn await_idle(&self) {
        let mut queue = self.queue.lock();
        while !queue.stop && (queue.is_working || !queue.asked.is_empty()) {
            queue = self.idle.wait(queue);
        }
    }

    /// Tells that thread to end.
    pub(crate) fn stop(&self) {
        self.queue.lock().stop = true;
        self.wake.notify_one();
    }
}

/// The ready pages in front of the writer of one block. Positions count from the start of the block.
pub(crate) struct Window {
    pages: Arc<ReadyPages>,
    block: Range<u64>,
    /// Position up to which pages were asked for.
    asked: u64,
    /// Bytes in front of the writer that count as ready since the last look.
    counted: u64,
    /// Position from which on the window looks whether more should be made ready.
    look_at: u64,
    /// Whether the log fills blocks so fast that much should be ready from the block's first byte on.
    is_fast: bool,
}

impl Window {
    /// A window of a range of a file in which nothing is ready, for a writer at the position `written`.
    pub(crate) fn new(pages: &Arc<ReadyPages>, block: Range<u64>, written: u64, is_fast: bool) -> Self {
        let look_at = if is_fast { 0 } else { FROM_BYTES };
        Self { pages: Arc::clone(pages), block, asked: written, counted: 0, look_at, is_fast }
    }

    /// Notes where the writer is, and asks for more pages where too few are left in front of it.
    #[inline]
    pub(crate) fn advance(&mut self, written: u64, file: &Arc<dyn DiskFile>) {
        if written >= self.look_at {
            self.look(written, file);
        }
    }

    #[cold]
    fn look(&mut self, written: u64, file: &Arc<dyn DiskFile>) {
        let left = self.asked.saturating_sub(written).min(self.counted);
        self.pages.give_back(self.counted - left);
        self.counted = left;
        let step = if self.is_fast { STEP_BYTES_MAX } else { written.min(STEP_BYTES_MAX) };
        let from = self.asked.max(page_down(written));
        let to = page_up(written + step).min(self.block.end - self.block.start);
        if from < to && self.pages.take(to - from) {
            self.counted += to - from;
            self.asked = to;
            self.pages.ask(file, self.block.start + from..self.block.start + to);
        }
        self.look_at = written + step / 2;
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.pages.give_back(self.counted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, FileKind, SimulatedDisk, TailKind};

    const MIB: u64 = 1 << 20;

    fn file() -> Arc<dyn DiskFile> {
        let disk = SimulatedDisk::new(TailKind::Mapped);
        disk.create("a", 64 * MIB, FileKind::Mapped).unwrap()
    }

    /// Start and end of the ranges that were asked for and not made ready yet.
    fn asked(pages: &ReadyPages) -> Vec<(u64, u64)> {
        pages.queue.lock().asked.drain(..).map(|(_, range)| (range.start, range.end)).collect()
    }

    #[test]
    fn a_writer_has_as_much_ahead_as_it_has_written() {
        let (pages, file) = (Arc::new(ReadyPages::default()), file());
        let mut window = Window::new(&pages, 10 * MIB..20 * MIB, 0, false);
        for written in (0..FROM_BYTES).step_by(1000) {
            window.advance(written, &file);
        }
        assert_eq!(asked(&pages), [], "nothing for a log that writes little");
        window.advance(MIB, &file);
        assert_eq!(asked(&pages), [(11 * MIB, 12 * MIB)]);
        window.advance(MIB + MIB / 2 - 1, &file);
        assert_eq!(asked(&pages), []);
        window.advance(MIB + MIB / 2, &file);
        assert_eq!(asked(&pages), [(12 * MIB, 13 * MIB)]);
        window.advance(8 * MIB, &file);
        assert_eq!(asked(&pages), [(18 * MIB, 20 * MIB)], "not behind the end of the block");
        window.advance(9 * MIB, &file);
        window.advance(10 * MIB, &file);
        assert_eq!(asked(&pages), []);
        assert_eq!(pages.ahead_bytes.load(Ordering::Relaxed), 0, "the writer has come to all of them");
    }

    #[test]
    fn the_ready_pages_of_all_writers_are_limited() {
        let (pages, file) = (Arc::new(ReadyPages::default()), file());
        let mut windows: Vec<_> = (0..100).map(|_| Window::new(&pages, 0..64 * MIB, 0, true)).collect();
        for window in &mut windows {
            window.advance(4096, &file);
        }
        let bytes = || asked(&pages).iter().map(|(start, end)| end - start).sum::<u64>();
        assert!((READY_BYTES_MAX - STEP_BYTES_MAX..=READY_BYTES_MAX).contains(&bytes()));
        drop(windows);
        assert_eq!(pages.ahead_bytes.load(Ordering::Relaxed), 0);
        Window::new(&pages, 0..64 * MIB, 0, true).advance(0, &file);
        assert_eq!(bytes(), STEP_BYTES_MAX, "a block that is closed gives its share back");
    }

    /// A thread that had no turn for a while kept the space of files that were removed long before.
    #[test]
    fn no_file_that_is_removed_waits_for_the_thread() {
        let (pages, file) = (ReadyPages::default(), file());
        pages.ask(&file, 0..MIB);
        assert_eq!(Arc::strong_count(&file), 1, "the queue holds it");
        std::thread::scope(|scope| {
            scope.spawn(|| pages.run());
            pages.await_idle();
            assert_eq!(Arc::strong_count(&file), 1, "the idle thread holds it");
            pages.stop();
        });
    }

    #[test]
    fn the_thread_ends_when_it_is_told() {
        let (pages, file) = (ReadyPages::default(), file());
        std::thread::scope(|scope| {
            scope.spawn(|| pages.run());
            pages.ask(&file, 0..MIB);
            pages.stop();
        });
        assert_eq!(asked(&pages), []);
    }
}
