//! The tombstones of this disk: below which segment each partition was trimmed, by metadata's word, which segment is the first
//! that lives, and from which offset on it is read. They outlive the metadata that said so: a state that has forgotten it is
//! told again.

use walrus_log::Store;
use walrus_metadata::Partition;
use walrus_model::{Descriptor, Offset, TopicId};

use crate::copies::codec::fields;
use crate::copies::partition_notes::PartitionNotes;
use crate::node::error::Result;

/// The tombstones of one disk, in memory and in its store.
pub(crate) struct Tombstones {
    trims: PartitionNotes<Tombstone>,
    /// Offsets below which records were deleted, also those in a segment that lives.
    starts: PartitionNotes<Offset>,
}

/// The tombstone of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    /// Segments with lower numbers are trimmed.
    pub(crate) below: u64,
    /// The descriptor of the first segment that lives, with its base.
    pub(crate) first: Descriptor,
}

fields!(Tombstone { below, first });

impl Tombstones {
    /// Reads the tombstones of the store. One that cannot be read is an error: without it, the copy of a trimmed segment would
    /// answer as one that never held anything.
    pub(crate) fn open(store: &Store) -> Result<Self> {
        Ok(Self {
            trims: PartitionNotes::open(store, "trimmed/")?,
            starts: PartitionNotes::open(store, "start/")?,
        })
    }

    /// Remembers what metadata has trimmed and deleted, durably, and says whether segments were trimmed that were not before.
    pub(crate) fn remember(&self, topic: TopicId, partition: &Partition) -> walrus_log::Result<bool> {
        let place = (topic, partition.index);
        if partition.start > self.starts.get(place).unwrap_or(Offset(0)) {
            self.starts.put(place, partition.start)?;
        }
        let Some(first) = partition.segments.first().filter(|_| partition.trimmed_below > 0) else {
            return Ok(false);
        };
        if self.trims.get(place).is_some_and(|known| known.below >= partition.trimmed_below) {
            return Ok(false);
        }
        let tombstone = Tombstone { below: partition.trimmed_below, first: first.descriptor.clone() };
        self.trims.put(place, tombstone)?;
        Ok(true)
    }

    /// The topics that have any.
    pub(crate) fn topics(&self) -> Vec<TopicId> {
        [self.trims.topics(), self.starts.topics()].concat()
    }

    /// Whether a segment was trimmed.
    pub(crate) fn covers(&self, segment: &Descriptor) -> bool {
        let known = self.trims.get((segment.topic, segment.partition));
        known.is_some_and(|known| segment.number < known.below)
    }

    /// The tombstone of a partition if it says more than the metadata.
    pub(crate) fn beyond(&self, topic: TopicId, partition: &Partition) -> Option<Tombstone> {
        let known = self.trims.get((topic, partition.index))?;
        (!partition.knows_trim(known.below, &known.first)).then_some(known)
    }

    /// The start of a partition if it is above the one that the metadata have.
    pub(crate) fn start_beyond(&self, topic: TopicId, partition: &Partition) -> Option<Offset> {
        self.starts.get((topic, partition.index)).filter(|start| *start > partition.log_start())
    }

    /// Drops the tombstones of topics that are deleted.
    pub(crate) fn forget(&self, is_deleted: impl Fn(TopicId) -> bool) -> walrus_log::Result<()> {
        self.trims.forget(&is_deleted)?;
        self.starts.forget(is_deleted)
    }
}
