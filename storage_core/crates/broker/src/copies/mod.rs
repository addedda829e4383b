//! The copies of segments on this node. The machines of `walrus-replica` are at work here: their batches go into logs, their
//! promises into the store's journal.

pub(crate) mod answers;
mod batches;
mod claims;
pub(crate) mod codec;
pub(crate) mod copy;
pub(crate) mod high_watermark;
pub(crate) mod holdings;
pub(crate) mod holed;
pub(crate) mod holes;
mod kept;
mod known;
pub(crate) mod lead;
pub(crate) mod left;
mod logs;
pub(crate) mod marks;
pub(crate) mod pace;
pub(crate) mod pages;
pub(crate) mod partition_notes;
pub(crate) mod promises;
pub(crate) mod remains;
pub(crate) mod replacements;
pub(crate) mod scratch;
pub(crate) mod sealing;
mod sources;
pub(crate) mod table;
mod tombstones;
pub(crate) mod wire;

use std::sync::Arc;

use left::LeftLogs;
use table::CopyTable;

use crate::bucket::Bucket;
use crate::cluster::Cluster;
use crate::node::tasks::Tasks;

/// The copies of segments on this node, the logs that they write to, and what is left of former disks.
pub(crate) struct Copies {
    cluster: Arc<Cluster>,
    bucket: Arc<Bucket>,
    table: CopyTable,
    left: LeftLogs,
    /// Held while a log is made, so that it is made once.
    making: tokio::sync::Mutex<()>,
}

impl Copies {
    pub(crate) fn new(cluster: Arc<Cluster>, bucket: Arc<Bucket>, table: CopyTable, left: LeftLogs) -> Self {
        Self { cluster, bucket, table, left, making: tokio::sync::Mutex::default() }
    }

    /// The cluster as this node sees it.
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// The tasks and threads of this node.
    pub(crate) fn tasks(&self) -> &Tasks {
        self.cluster.tasks()
    }

    /// The logs of this node.
    pub(crate) fn bucket(&self) -> &Arc<Bucket> {
        &self.bucket
    }

    /// Waits until no log is being made by what was known of the metadata before the call.
    pub(crate) async fn await_makers(&self) {
        drop(self.making.lock().await);
    }

    /// The copies, and what the disk remembers of them.
    pub(crate) fn table(&self) -> &CopyTable {
        &self.table
    }

    /// The logs that are left of former disks.
    pub(crate) fn left(&self) -> &LeftLogs {
        &self.left
    }
}
