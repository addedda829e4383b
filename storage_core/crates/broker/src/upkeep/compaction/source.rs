//! The batches of a sealed segment for a compaction: read here where the own copy is whole, else fetched from other nodes.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use walrus_log::batch::Batch;
use walrus_metadata::{Segment, SegmentState};
use walrus_model::Offset;

use super::courtesy::Courtesy;
use crate::cluster::segment::log_id;
use crate::copies::Copies;
use crate::node::error::{Error, Result};
use crate::node::obstacle::Obstacle;

/// About how much is read at once.
const READ_BYTES: usize = 1 << 20;

/// Whether whoever looks at batches wants to see the next one.
pub(super) enum Next {
    Batch,
    Nothing,
}

/// Where the batches of a pass come from.
pub(super) struct Source {
    copies: Arc<Copies>,
    courtesy: RefCell<Courtesy>,
}

impl Source {
    pub(super) fn new(copies: &Arc<Copies>) -> Self {
        Self { copies: copies.clone(), courtesy: RefCell::new(Courtesy::new(copies)) }
    }

    pub(super) fn copies(&self) -> &Arc<Copies> {
        &self.copies
    }

    /// Shows the batches of a sealed segment from the one that holds an offset on. Blocks the calling thread, the longer the more
    /// others use this node. Ends early with an error when the node stops.
    pub(super) fn each_batch(
        &self,
        segment: &Segment,
        from: Offset,
        mut look: impl FnMut(&Batch<'_>) -> Result<Next>,
    ) -> Result<()> {
        let SegmentState::Sealed(value) = &segment.state else {
            return Err(Error::Internal { message: format!("{} is not sealed", segment.descriptor.id) });
        };
        let mut next = value.past_lost(from);
        while next < value.end {
            if self.copies.tasks().shutdown().is_cancelled() {
                return Err(Obstacle::Stopping.into());
            }
            let page = page(&self.copies, segment, next)?;
            let bytes = page.iter().map(Bytes::len).sum::<usize>() as u64;
            self.courtesy.borrow_mut().give_way(&self.copies, bytes);
            let before = next;
            for bytes in &page {
                let (batch, _) = Batch::parse(bytes)
                    .map_err(|problem| Error::InvalidBatch { problem: problem.to_string() })?;
                if batch.end_offset() <= next.0 || next >= value.end {
                    continue; // a source that was cut later has more than was decided
                }
                if matches!(look(&batch)?, Next::Nothing) {
                    return Ok(());
                }
                next = value.past_lost(Offset(batch.end_offset()));
            }
            if next == before {
                return Err(Obstacle::NobodyElseHas { segment: segment.descriptor.id }.into());
            }
        }
        Ok(())
    }

    /// Notes bytes that the pass has written: they are no work of others.
    pub(super) fn note_written(&self, bytes: u64) {
        self.courtesy.borrow_mut().note_written(bytes);
    }
}

fn page(copies: &Arc<Copies>, segment: &Segment, from: Offset) -> Result<Vec<Bytes>> {
    let own = copies.bucket().log(log_id(&segment.descriptor)).filter(|log| log.is_sealed());
    if let Some(log) = own {
        match log.read(from, READ_BYTES) {
            Ok(slices) if !slices.batches.is_empty() => return Ok(slices.batches),
            Ok(_) => {}
            Err(error) => {
                tracing::info!(log = log.name(), %error, "a compaction reads on from another copy");
                copies.table().note_damage(segment.descriptor.id);
            }
        }
    }
    copies.tasks().runtime().block_on(copies.fetch_from_any(&segment.descriptor, from))
}
