//! The way of a log from block to block: it opens the next one, goes on in a recovered one, closes the last one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::block::{Block, BlockIndex, ClosedBlock};
use super::open_block::{OpenBlock, Resume};
use super::state::{LogState, Writer};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::format::block_header::BlockHeader;
use crate::format::epochs::Epochs;
use crate::format::footer::data_max;
use crate::page::{PAGE_BYTES, page_up};
use crate::resources::blocks::{LastBlock, Slots};
use crate::sync::RwLock;

/// A log that filled its last block in less time has pages made ready from the first byte of the next one on.
const FILLED_FAST: Duration = Duration::from_secs(1);

impl LogState {
    /// Opens a block that takes a batch of `batch_bytes`; the open block before it is closed and waits for its commit.
    pub(super) fn open_block(&self, writer: &mut Writer, batch_bytes: u64) -> Result<()> {
        let blocks = &self.resources.blocks;
        let last = self.last_block(writer);
        let is_fast = last.is_some_and(|last| last.took < FILLED_FAST);
        let size = blocks
            .classes
            .next(last, batch_bytes)
            .map_err(|bytes_max| Error::TooLarge { bytes: batch_bytes, bytes_max })?;
        let (slots, space) = blocks.allocate(size, self.fsync)?;
        let file = &slots.file;
        let mut tail = match self.resources.open_tail(&slots, self.tails, 0, is_fast) {
            Ok(tail) => tail,
            Err(error) => {
                blocks.free(&slots);
                return Err(file.error("open a block in", error));
            }
        };
        let mut header = self.new_header(&slots, writer.last_sequence, writer.end);
        if let Some(epochs) = &writer.epochs {
            header.epochs = epochs.from(writer.end);
        }
        tail.append(&header.encode()).map_err(|error| file.poison("write", error))?;
        let block = Arc::new(Block {
            recent: RwLock::new(tail.recent()),
            index: RwLock::new(BlockIndex::Growing(Vec::new())),
            ..Block::new(slots, space, &header)
        });
        self.close_block(writer);
        self.directory.write().blocks.push(Arc::clone(&block));
        writer.last_sequence = header.sequence;
        let data_max = data_max(block.bytes);
        writer.open = Some(OpenBlock {
            block,
            tail,
            opened_at: Instant::now(),
            flushed: 0,
            commits: 0,
            data_max,
            index_next: 0,
            max_timestamp: i64::MIN,
            digest: Digest::default(),
            producers: None,
        });
        self.ask_retention_if_ruled();
        Ok(())
    }

    /// Makes the header of the log's next block, for slots that were taken for it.
    pub(crate) fn new_header(&self, slots: &Slots, previous: u64, base_offset: u64) -> BlockHeader {
        BlockHeader {
            manifest: self.resources.manifest,
            log: self.id,
            sequence: self.resources.blocks.take_sequence(),
            previous,
            base_offset,
            place: slots.place(),
            journal_sequence: self.resources.journal.durable_sequence(),
            fsync: self.own_fsync,
            replaces_to: 0,
            group: (uuid::Uuid::nil(), 0, 0),
            name: self.name.clone(),
            epochs: Epochs::one(base_offset, self.epoch),
        }
    }

    /// Size class and speed of the log's last block, from which the size of the next one follows.
    fn last_block(&self, writer: &Writer) -> Option<LastBlock> {
        match &writer.open {
            Some(open) => Some(LastBlock {
                class: open.block.slots.file.name.class,
                took: open.opened_at.elapsed(),
                commit_bytes: open.flushed.checked_div(open.commits).unwrap_or(0),
            }),
            None => {
                let directory = self.directory.read();
                directory.blocks.last().map(|block| LastBlock::at_no_known_rate(block.slots.file.name.class))
            }
        }
    }

    /// Opens a recovered block for appends: only zeros lie behind its data.
    pub(super) fn reopen(&self, resume: &Resume) -> Result<OpenBlock> {
        let &Resume { ref block, data_end, max_timestamp, digest } = resume;
        let block = Arc::clone(block);
        let file = Arc::clone(&block.slots.file);
        block.space.assume(page_up(data_end));
        let tail = self.resources.open_tail(&block.slots, self.tails, data_end, false);
        let tail = tail.map_err(|error| {
            let error = file.error("reopen", error);
            if !matches!(error, Error::NoSpace { .. }) {
                self.poison(&error.to_string().into());
            }
            error
        })?;
        *block.recent.write() = tail.recent();
        let entries = match &*block.index.read() {
            BlockIndex::Growing(entries) => entries.clone(),
            BlockIndex::Loaded(entries) => entries.to_vec(),
            BlockIndex::OnDisk => Vec::new(),
        };
        let index_next = entries.last().map_or(0, |last| u64::from(last.position) + PAGE_BYTES);
        *block.index.write() = BlockIndex::Growing(entries);
        if let BlockIndex::Growing(entries) = &mut *block.index.write()
            && let Some(last) = entries.last_mut()
        {
            last.max_timestamp = i64::MAX;
        }
        let data_max = data_max(block.bytes);
        Ok(OpenBlock {
            block,
            tail,
            opened_at: Instant::now(),
            flushed: data_end,
            commits: 0,
            data_max,
            index_next,
            max_timestamp,
            digest,
            producers: None,
        })
    }

    /// Closes the open block, or the recovered one that was not opened again: it takes no more appends.
    pub(crate) fn close_block(&self, writer: &mut Writer) {
        if let Some(resume) = writer.resume.take() {
            let Resume { block, data_end, max_timestamp, digest, .. } = resume;
            let closed = ClosedBlock { end_offset: writer.end, max_timestamp, data_end, digest };
            let _ = block.closed.set(closed);
            self.queues.chores.write_footer(block, Some(self.changes_to(&writer.producers)));
        }
        let Some(mut open) = writer.open.take() else { return };
        if let BlockIndex::Growing(entries) = &mut *open.block.index.write()
            && let Some(last) = entries.last_mut()
        {
            last.max_timestamp = open.max_timestamp;
        }
        let (max_timestamp, data_end, digest) = (open.max_timestamp, open.tail.written(), open.digest);
        let _ =
            open.block.closed.set(ClosedBlock { end_offset: writer.end, max_timestamp, data_end, digest });
        open.producers = Some(self.changes_to(&writer.producers));
        if self.commits_appends() && open.flushed < data_end {
            writer.pending.push(open);
        } else {
            self.finish_block(open);
        }
    }

    /// Lets go of a closed block, once everything of it is with the disk. While the log goes on, readers find what was
    /// written last in memory as before, and nothing of the blocks in front of this one.
    pub(super) fn finish_block(&self, open: OpenBlock) {
        let OpenBlock { block, producers, .. } = open;
        if let Some(recent) = &*block.recent.read() {
            recent.keep(u64::MAX, &self.resources.lately);
        }
        let goes_on = self.sealed.get().is_none();
        self.leave_memory(if goes_on { block.sequence } else { u64::MAX });
        self.queues.chores.write_footer(block, producers);
    }

    /// Takes the closed blocks that are with the disk out of memory, of those in front of a block's sequence.
    pub(crate) fn leave_memory(&self, before: u64) {
        let directory = self.directory.read();
        let in_front = directory.blocks.iter().rev().filter(|block| block.sequence < before);
        for block in in_front.filter(|block| block.closed.get().is_some()) {
            if block.recent.read().is_none() {
                return; // blocks in front of this one have left it before
            }
            if block.is_written() {
                *block.recent.write() = None;
            }
        }
    }
}
