//! Topics: which there are, what is shown of them, how they are made, and appends to them by name.

mod appending;
pub(crate) mod catalogue;
mod creation;
pub(crate) mod view;

use std::sync::Arc;

use creation::TopicCreations;

use crate::cluster::Cluster;
use crate::copies::Copies;
use crate::partition::Partitions;
use crate::reading::Reading;

/// The catalogue of topics, and appends to them by name.
pub(crate) struct Topics {
    reading: Arc<Reading>,
    creations: TopicCreations,
}

impl Topics {
    pub(crate) fn new(reading: Arc<Reading>) -> Self {
        Self { reading, creations: TopicCreations::default() }
    }

    /// The cluster as this node sees it.
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        self.reading.cluster()
    }

    /// The copies on this node.
    pub(crate) fn copies(&self) -> &Arc<Copies> {
        self.reading.copies()
    }

    /// All partitions.
    pub(crate) fn partitions(&self) -> &Arc<Partitions> {
        self.reading.partitions()
    }

    /// Reads of records.
    pub(crate) fn reading(&self) -> &Arc<Reading> {
        &self.reading
    }

    fn creations(&self) -> &TopicCreations {
        &self.creations
    }
}
