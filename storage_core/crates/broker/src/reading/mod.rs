//! Reading records, whichever node stores them.

pub(crate) mod by_time;
pub(crate) mod ends;
mod failures;
pub(crate) mod reader;

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::copies::Copies;
use crate::partition::Partitions;

/// Reads for clients, and for other nodes on behalf of their clients. Begins to lead a segment that it is asked for and that
/// metadata gives to this process.
pub(crate) struct Reading {
    partitions: Arc<Partitions>,
}

impl Reading {
    pub(crate) fn new(partitions: Arc<Partitions>) -> Self {
        Self { partitions }
    }

    /// The cluster as this node sees it.
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        self.partitions.cluster()
    }

    /// The copies on this node.
    pub(crate) fn copies(&self) -> &Arc<Copies> {
        self.partitions.copies()
    }

    /// All partitions.
    pub(crate) fn partitions(&self) -> &Arc<Partitions> {
        &self.partitions
    }
}
