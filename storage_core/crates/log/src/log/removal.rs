//! Removal of parts of a log from memory, and of the whole log: blocks are given back, unwritten bytes are dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::block::Block;
use super::directory::Directory;
use super::state::{LogState, Phase, Writer};
use crate::page::PAGE_BYTES;

impl LogState {
    /// Drops the whole log from memory and gives its blocks back. The caller has made the deletion durable in the
    /// journal.
    pub(crate) fn apply_delete(&self) {
        let mut writer = self.writer.lock();
        writer.phase = Phase::Deleted;
        self.drop_open(&mut writer);
        let Directory { blocks, .. } = std::mem::take(&mut *self.directory.write());
        self.free(blocks);
    }

    /// Closes the log's files, because the store closes.
    pub(crate) fn let_go(&self) {
        let mut writer = self.writer.lock();
        writer.open = None;
        writer.resume = None;
        writer.pending.clear();
        drop(writer);
        self.directory.write().blocks.clear();
    }

    /// Drops the open block and everything appended that was not written yet.
    pub(crate) fn drop_open(&self, writer: &mut Writer) {
        writer.open = None;
        writer.resume = None;
        writer.pending.clear();
        writer.waiting_bytes = 0;
        self.waiting_bytes.store(0, Ordering::Release);
    }

    /// Gives blocks back, for which the caller has a promise in the journal or no log; the background zeroes and
    /// reuses their space.
    pub(crate) fn free(&self, blocks: Vec<Arc<Block>>) {
        for block in &blocks {
            let data_end = block.closed.get().map_or(0, |closed| closed.data_end - PAGE_BYTES);
            let _ = self.size_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |size| {
                Some(size.saturating_sub(data_end))
            });
            block.freed.store(true, Ordering::Release);
            self.resources.blocks.free(&block.slots);
        }
        if !blocks.is_empty() {
            self.queues.chores.ask_upkeep();
        }
    }
}
