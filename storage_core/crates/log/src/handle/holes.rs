//! The holes of a log that is not sealed: batches that rotted. They are filled in place from another copy's bytes, or
//! left out for good; the log is counted anew then, as recovery counts it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::member::Member;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::format::footer::data_max;
use crate::log::block::{Block, BlockIndex, ClosedBlock};
use crate::log::queues::Queues;
use crate::log::scan::{Bounds, Window, walk};
use crate::log::state::{LogState, TrimmedPrefix, Writer};
use crate::page::PAGE_BYTES;
use crate::producers::ProducerTable;
use crate::resources::journal::Record;
use crate::types::Offset;

impl Member {
    /// Counts the log anew, as [`crate::Log::recount`] says.
    pub(super) fn recount(&self) -> Result<Vec<(Offset, Offset)>> {
        self.between_appends(|writer| count(&self.log, self.queues(), writer))?;
        let fences = &self.log.directory.read().fences;
        Ok(fences.iter().map(|&(start, end)| (Offset(start), Offset(end))).collect())
    }

    /// Leaves offsets out, as [`crate::Log::skip_to`] says.
    pub(super) fn skip_to(&self, to: u64) -> Result<()> {
        self.between_appends(|writer| {
            let (log, end) = (&*self.log, writer.end);
            if to <= end {
                let (requested, end) = (Offset(to), Offset(end));
                return Err(Error::OffsetOutOfRange { requested, start: end, end });
            }
            log.close_block(writer);
            // Every start treats offsets below the synced mark that are in no block as a hole.
            log.say_or_stop(&Record::Synced { log: log.id, end: to })?;
            log.directory.write().fences.push((end, to));
            (writer.end, writer.taken) = (to, to);
            log.end.store(to, Ordering::Release);
            log.readable.store(to, Ordering::Release);
            log.synced.fetch_max(to, Ordering::AcqRel);
            Ok(())
        })
    }
}

/// Computes blocks, damaged ranges, digest and producer table from the batches as they are now, and puts them in place
/// of the old ones.
fn count(log: &LogState, queues: &Queues, writer: &mut Writer) -> Result<()> {
    log.close_block(writer);
    let TrimmedPrefix { end: mut reached, mut digest, mut producers } = log.trimmed.lock().clone();
    let (mut fences, mut blocks) = (Vec::new(), Vec::new());
    let known = log.directory.read().blocks.clone();
    for block in &known {
        if block.base_offset > reached {
            fences.push((reached, block.base_offset));
        }
        let end = block.closed.get().map_or(writer.end, |closed| closed.end_offset);
        let (counted, of_block) = count_block(block, end, &mut producers, &mut fences)?;
        digest = digest.concat(of_block);
        reached = end;
        blocks.push((counted, log.changes_to(&producers)));
    }
    let reached = reached.max(log.start.load(Ordering::Acquire));
    if reached < writer.end {
        fences.push((reached, writer.end));
    }
    for (block, producers) in &blocks {
        // Without producers in the footers the next start reads the batches again, for as long as there is a hole.
        let producers = fences.is_empty().then(|| producers.clone());
        queues.chores.write_footer(Arc::clone(block), producers);
    }
    (writer.digest, writer.producers) = (digest, producers);
    let mut directory = log.directory.write();
    directory.forget_times();
    directory.blocks = blocks.into_iter().map(|(block, _)| block).collect();
    directory.fences = fences;
    Ok(())
}

/// Makes the block anew from its bytes as they are now; gives it and the digest of its good batches.
fn count_block(
    block: &Block,
    end: u64,
    producers: &mut ProducerTable,
    fences: &mut Vec<(u64, u64)>,
) -> Result<(Arc<Block>, Digest)> {
    let bounds = Bounds { base_offset: block.base_offset, known: end, limit: end };
    let mut window = Window::new(block, data_max(block.bytes));
    let walked = walk(&mut window, bounds, |batch| {
        if let Some(producer) = batch.producer() {
            producers.record(producer, batch.record_count(), batch.base_offset());
        }
    });
    let walked = walked.map_err(|e| block.slots.file.error("read", e))?;
    fences.extend(&walked.fences);
    let (digest, max_timestamp) = (walked.digest, walked.max_timestamp);
    let data_end = block.readable.load(Ordering::Acquire).max(walked.data_end).max(PAGE_BYTES);
    let closed = ClosedBlock { end_offset: end, max_timestamp, data_end, digest };
    let index = BlockIndex::Loaded(Arc::new(walked.entries));
    Ok((Arc::new(block.cut_to(closed, index)), digest))
}
