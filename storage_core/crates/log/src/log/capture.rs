//! A log's part in a commit: the bytes to write are captured under the log's mutex, and published when they are with
//! the disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::block::Block;
use super::open_block::OpenBlock;
use super::state::LogState;
use crate::resources::tail::TailCapture;
use crate::seeded;

/// The bytes of a log that a commit writes, and the end that it publishes afterwards.
pub(crate) struct LogCapture {
    pub(crate) log: Arc<LogState>,
    pub(crate) blocks: SmallVec<[(Arc<Block>, TailCapture); 1]>,
    end: u64,
    /// Number of captured bytes.
    pub(crate) bytes: u64,
    /// Whether the capture has everything that was appended, so that nothing is left for the next commit.
    pub(crate) is_all: bool,
}

impl LogState {
    /// Captures under the mutex what a commit must write; the writing happens without it. A log that never syncs gives
    /// about `unsynced_max` bytes at most, for nobody waits for the rest. `None` if there is nothing to write.
    pub(crate) fn capture(self: Arc<Self>, unsynced_max: u64) -> Option<LogCapture> {
        let bytes_max = if self.syncs() { u64::MAX } else { unsynced_max };
        if self.poisoned.get().is_some() {
            // Batches behind a write that failed must not be written: they would vouch for what is in front of them.
            return None;
        }
        let mut writer = self.writer.lock();
        let (mut bytes, mut is_all) = (0, true);
        let mut blocks = SmallVec::new();
        for open in writer.pending.iter().chain(&writer.open) {
            let written = open.tail.written();
            if written > open.flushed {
                if bytes >= bytes_max {
                    is_all = false;
                    break;
                }
                let captured = open.tail.capture_some(open.flushed, bytes_max - bytes);
                bytes += captured.end - open.flushed;
                is_all &= captured.end == written;
                blocks.push((Arc::clone(&open.block), captured));
            }
        }
        let end = writer.end;
        writer.taken = end;
        drop(writer);
        (!blocks.is_empty()).then_some(LogCapture { log: self, blocks, end, bytes, is_all })
    }

    /// Shows readers what a commit has written and, where the log syncs, counts it as synced.
    pub(crate) fn publish(&self, capture: &LogCapture) {
        if seeded!(EndBeforeBytes) {
            self.readable.fetch_max(capture.end, Ordering::AcqRel);
        }
        let mut writer = self.writer.lock();
        for (block, captured) in &capture.blocks {
            block.readable.fetch_max(captured.end, Ordering::AcqRel);
            if let Some(recent) = &*block.recent.read() {
                recent.keep(captured.end, &self.resources.lately);
            }
            let same = |open: &&mut OpenBlock| Arc::ptr_eq(&open.block, block);
            let writer = &mut *writer;
            if let Some(open) = writer.pending.iter_mut().chain(&mut writer.open).find(same) {
                open.flushed = captured.end;
                open.commits += 1;
            }
        }
        let (done, pending) = std::mem::take(&mut writer.pending)
            .into_iter()
            .partition(|open| open.flushed == open.tail.written());
        writer.pending = pending;
        writer.waiting_bytes =
            writer.pending.iter().chain(&writer.open).map(|open| open.tail.written() - open.flushed).sum();
        self.waiting_bytes.store(writer.waiting_bytes, Ordering::Release);
        drop(writer);
        for open in done {
            self.finish_block(open);
        }
        if self.syncs() {
            self.synced.fetch_max(capture.end, Ordering::AcqRel);
            self.unmarked_bytes.fetch_add(capture.bytes, Ordering::Relaxed);
        }
        self.readable.fetch_max(capture.end, Ordering::AcqRel);
        self.arrivals.announce();
    }
}
