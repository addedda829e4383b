//! The walk through the records of a batch that comes in, for what its topic demands of each of them.

use tokio::runtime::{Handle, RuntimeFlavor};
use walrus_log::batch::{Batch, BatchError, RecordsSeen};

/// Limit on the bytes of an uncompressed batch that is looked through without a thought for the thread's other tasks.
const QUICK_BYTES: usize = 64 << 10;

/// Looks at each record of a batch. To open a compressed one may take long, so the thread's other tasks go on elsewhere
/// meanwhile.
pub(crate) fn walk(batch: &Batch<'_>) -> Result<RecordsSeen, BatchError> {
    let is_quick = !batch.is_compressed() && batch.bytes().len() <= QUICK_BYTES;
    let may_block =
        || Handle::try_current().is_ok_and(|now| now.runtime_flavor() == RuntimeFlavor::MultiThread);
    if is_quick || !may_block() {
        batch.walk_records()
    } else {
        tokio::task::block_in_place(|| batch.walk_records())
    }
}
