//! The walk through the records of a batch that comes in, for what its topic demands of each of them.

use std::ops::RangeInclusive;

use tokio::runtime::{Handle, RuntimeFlavor};
use walrus_log::batch::{Batch, BatchError, RecordsSeen};

/// Limit on the bytes of an uncompressed batch that is looked through without a thought for the thread's other tasks: the smallest
/// records there are take a millisecond. To hand the other tasks to another thread costs more than to look through a usual batch.
const QUICK_BYTES: usize = 1 << 20;

/// Looks at each record of a batch. To open a compressed one may take long, so the thread's other tasks go on elsewhere
/// meanwhile.
pub(crate) fn walk(batch: &Batch<'_>) -> Result<RecordsSeen, BatchError> {
    opened(batch, || batch.walk_records())
}

/// Places of the first records, `most` at most, whose timestamps lie outside of a range.
pub(crate) fn records_outside(
    batch: &Batch<'_>,
    range: &RangeInclusive<i64>,
    most: usize,
) -> Result<Vec<u32>, BatchError> {
    opened(batch, || batch.records_outside(range, most))
}

/// Looks into a batch, on a thread that may take its time if it has to be opened for that.
fn opened<T>(batch: &Batch<'_>, look: impl FnOnce() -> T) -> T {
    let is_quick = !batch.is_compressed() && batch.bytes().len() <= QUICK_BYTES;
    let may_block =
        || Handle::try_current().is_ok_and(|now| now.runtime_flavor() == RuntimeFlavor::MultiThread);
    if is_quick || !may_block() { look() } else { tokio::task::block_in_place(look) }
}
