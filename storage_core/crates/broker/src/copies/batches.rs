//! Reads of the batches of a log on this node: they run beside the node's other work, and the batches count as long as anybody
//! has them.

use std::sync::Arc;

use bytes::Bytes;
use walrus_log::{Log, Slices};
use walrus_model::Offset;

use crate::cluster::segment::segment_of;
use crate::copies::Copies;
use crate::node::budget::{BATCH_BYTES_MAX, Purpose, counted};
use crate::node::error::{Error, Result};
use crate::node::patience;

/// Limit on what is read at once of records that are in memory; copies of more would hold up the threads that do all else.
const AT_ONCE_BYTES: usize = 1 << 20;
/// So few records are read at once, too, whatever was asked for: there is no more in front of the log's end.
const FEW_RECORDS: u64 = 1_000;

impl Copies {
    /// Reads batches of a log here. What was written just now is in memory. For the rest a thread of its own waits for the disk:
    /// the few threads that do all else, pings included, would make a node with a slow disk a silent one. The batches count
    /// against the byte budget as long as anybody has them. `Unavailable` where the node holds too much already.
    pub(crate) async fn batches_of(
        &self,
        log: &Log,
        offset: u64,
        bytes_max: usize,
        purpose: Purpose,
    ) -> Result<Slices> {
        let is_little =
            bytes_max <= AT_ONCE_BYTES || log.end_offset().0.saturating_sub(offset) <= FEW_RECORDS;
        let is_new = is_little && !log.is_sealed() && log.is_in_memory(Offset(offset));
        // At least one batch is answered, and how large it is shows only when it is read. Reads that wait for no disk may take
        // less than that: there is one for each thread at most.
        let most = if is_new { bytes_max } else { bytes_max.max(BATCH_BYTES_MAX) };
        let mut held = self.cluster().share(purpose).take(most, patience::ANSWER_MEMORY).await?;
        let read = if is_new {
            self.bucket().read_by_key(log, offset, bytes_max)
        } else {
            let (bucket, log) = (self.bucket().clone(), log.clone());
            self.tasks().blocking(move || bucket.read_by_key(&log, offset, bytes_max)).await
        };
        if let Err(Error::Corrupted { .. }) = &read {
            self.table().note_damage(segment_of(log.id()));
        }
        let slices = read?;
        held.set(slices.batches.iter().map(Bytes::len).sum());
        let held = Arc::new(held);
        Ok(slices.wrapped(|memory| counted(memory, held.clone())))
    }
}
