//! The trim that forgets the front of a log, for a caller or for its retention: the promise goes into the journal
//! first, then memory changes, and space is given back last.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::member::Member;
use crate::clock::now_ms;
use crate::error::{Error, Result};
use crate::log::block::Block;
use crate::log::block_producers;
use crate::log::floor::Floor;
use crate::log::state::{LogState, Phase, TrimmedPrefix};
use crate::resources::journal::{Record, TableTold};
use crate::types::Offset;

impl Member {
    /// Forgets offsets below `offset`, and frees the blocks that lie below it entirely.
    pub(super) fn delete_before(&self, offset: u64) -> Result<()> {
        let log = &*self.log;
        let _changing = log.changing.lock();
        let _layout = log.layout.write();
        self.committer.behind_commit(|| {
            // The commit has brought all of the blocks that go to the disk: they may have to be read once more.
            let mut writer = log.writer.lock();
            if writer.phase == Phase::Deleted {
                return Err(Error::UnknownLog { log: log.id });
            }
            let (start, end) = (log.start.load(Ordering::Acquire), log.readable.load(Ordering::Acquire));
            if offset > end {
                let (requested, start, end) = (Offset(offset), Offset(start), Offset(end));
                return Err(Error::OffsetOutOfRange { requested, start, end });
            }
            if offset <= start {
                return Ok(());
            }
            let is_below = |block: &Arc<Block>| block.closed_end().is_some_and(|end| end <= offset);
            let below = log.directory.read().blocks.iter().take_while(|block| is_below(block)).count();
            let trimmed = trim_blocks(log, below)?;
            let TrimmedPrefix { end: freed, digest, ref producers } = trimmed;
            let producers = TableTold::Changes(log.changes_to(producers));
            let before = self.resources().blocks.peek_sequence();
            let promise = Record::LogTrimmed { log: log.id, start: offset, freed, before, digest, producers };
            log.say(&promise)?;
            *log.trimmed.lock() = trimmed;
            log.start.store(offset, Ordering::Release);
            let mut directory = log.directory.write();
            directory.fences.retain(|(_, end)| *end > offset);
            let freed: Vec<_> = directory.blocks.drain(..below).collect();
            directory.forget_times();
            drop(directory);
            writer.pending.retain(|open| !freed.iter().any(|block| Arc::ptr_eq(block, &open.block)));
            log.free(freed);
            Ok(())
        })
    }

    /// Trims the log to its floor, where that frees a block or somebody asked for it. The background thread calls
    /// this.
    pub(super) fn apply_retention(&self) -> Result<()> {
        self.log.retention.is_asked.store(false, Ordering::Release);
        let Floor { offset: Offset(offset), .. } = self.log.floor(now_ms());
        let is_asked_for = self.log.retention.rules.lock().trim >= offset;
        if offset > self.log.start.load(Ordering::Acquire) && (is_asked_for || self.log.frees_blocks(offset))
        {
            self.delete_before(offset)?;
        }
        Ok(())
    }
}

/// Computes what must be remembered when the first `below` blocks go. All of them is with the disk.
fn trim_blocks(log: &LogState, below: usize) -> Result<TrimmedPrefix> {
    let blocks = log.directory.read().blocks[..below].to_vec();
    let TrimmedPrefix { mut end, mut digest, mut producers } = log.trimmed.lock().clone();
    let first = log.first_producers.clone().unwrap_or_default();
    for block in &blocks {
        let Some(closed) = block.closed.get() else { continue };
        digest = digest.concat(closed.digest);
        end = closed.end_offset;
        match block_producers::in_footer(block, &first)? {
            Some(known) => producers = known,
            None => drop(block_producers::walk_to(block, end, &mut producers)?),
        }
    }
    Ok(TrimmedPrefix { end, digest, producers })
}
