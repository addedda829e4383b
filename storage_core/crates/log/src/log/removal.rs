//! What goes of a log: blocks are freed, bytes in memory dropped, and in the end all of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::block::Block;
use super::directory::Directory;
use super::state::{LogState, Phase, Writer};
use crate::page::PAGE_BYTES;

impl LogState {
    /// Everything of the log goes. The promise is in the journal.
    pub(crate) fn apply_delete(&self) {
        let mut writer = self.writer.lock();
        writer.phase = Phase::Deleted;
        self.drop_open(&mut writer);
        let Directory { blocks, .. } = std::mem::take(&mut *self.directory.write());
        self.free(blocks);
    }

    /// The store is closed: lets go of the log's files.
    pub(crate) fn let_go(&self) {
        let mut writer = self.writer.lock();
        writer.open = None;
        writer.resume = None;
        writer.pending.clear();
        drop(writer);
        self.directory.write().blocks.clear();
    }

    /// What was appended and not written goes.
    pub(crate) fn drop_open(&self, writer: &mut Writer) {
        writer.open = None;
        writer.resume = None;
        writer.pending.clear();
        writer.waiting_bytes = 0;
        self.waiting_bytes.store(0, Ordering::Release);
    }

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
            self.queues.chores.look_around();
        }
    }
}
