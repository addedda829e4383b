//! The properties of a log that are fixed when it is created.

use crate::producers::ProducerTable;
use crate::types::{Epoch, FsyncSchedule, LogId, Offset};

/// Properties of a new log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSpec {
    /// Identity of the log; it must never have been used before, not even for a deleted log.
    pub id: LogId,
    /// Name of 1 to 255 bytes without NUL. Two logs may have the same name.
    pub name: String,
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Epoch that is written into each batch, unless [`Log::set_epochs`](crate::Log::set_epochs) names others.
    pub epoch: Epoch,
    /// Producer table at the end of the log that this one continues; empty if it continues none.
    pub producers: ProducerTable,
    /// The log that this one continues. If it is in the store, the table costs only what was written to that log; it may be
    /// deleted any time.
    pub after: Option<LogId>,
    /// Schedule of this log's syncs, kept for ever; `None` follows the store's schedule, which each open may change.
    pub fsync: Option<FsyncSchedule>,
}
