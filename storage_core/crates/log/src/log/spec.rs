//! What is decided of a log when it is made.

use super::producers::ProducerTable;
use crate::options::FsyncSchedule;
use crate::types::{Epoch, LogId, Offset};

/// What a log starts as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSpec {
    /// Never used before.
    pub id: LogId,
    /// 1 to 255 bytes without NUL. Names need not differ.
    pub name: String,
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Written into each batch.
    pub epoch: Epoch,
    /// What is known of producers: the end of the log that this one continues.
    pub producers: ProducerTable,
    /// When its data is synced, for good; `None`: as the store says at each open.
    pub fsync: Option<FsyncSchedule>,
}
