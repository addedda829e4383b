//! The tombstones of this disk: below which segment each partition was trimmed, by metadata's word, and which segment is the
//! first that lives. They outlive the metadata that said so: a state that has forgotten a trim is told again.

use std::collections::HashMap;

use uuid::Uuid;
use walrus_log::Store;
use walrus_metadata::Partition;
use walrus_model::{Descriptor, TopicId};

use crate::copies::codec::{self, fields};
use crate::node::error::{Error, Result};
use crate::node::locks::SharedLock;

/// Prefix of the keys under which tombstones lie.
const KEYS: &str = "trimmed/";

/// The tombstones of one disk, in memory and in its store.
pub(crate) struct Tombstones {
    store: Store,
    known: SharedLock<HashMap<(TopicId, u32), Tombstone>>,
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
        let mut known = HashMap::new();
        for (key, bytes) in store.properties().into_iter().filter(|(key, _)| key.starts_with(KEYS)) {
            let unreadable = |problem: &dyn std::fmt::Display| Error::Internal {
                message: format!("what this disk remembers of trims, {key}, cannot be read: {problem}"),
            };
            let place = parse(&key).ok_or_else(|| unreadable(&"its key names no partition"))?;
            known.insert(place, codec::decode(&key, &bytes).map_err(|problem| unreadable(&problem))?);
        }
        Ok(Self { store: store.clone(), known: SharedLock::new(known) })
    }

    /// Remembers what metadata has trimmed, durably, and says whether that is more than before.
    pub(crate) fn remember(&self, topic: TopicId, partition: &Partition) -> walrus_log::Result<bool> {
        let Some(first) = partition.segments.first().filter(|_| partition.trimmed_below > 0) else {
            return Ok(false);
        };
        let place = (topic, partition.index);
        if self.known.read().get(&place).is_some_and(|known| known.below >= partition.trimmed_below) {
            return Ok(false);
        }
        let tombstone = Tombstone { below: partition.trimmed_below, first: first.descriptor.clone() };
        let key = key(place);
        self.store.put_property(&key, &codec::encode(&key, &tombstone))?;
        self.known.write().insert(place, tombstone);
        Ok(true)
    }

    /// The topics that have any.
    pub(crate) fn topics(&self) -> Vec<TopicId> {
        self.known.read().keys().map(|(topic, _)| *topic).collect()
    }

    /// Whether a segment was trimmed.
    pub(crate) fn covers(&self, segment: &Descriptor) -> bool {
        let known = self.known.read();
        known.get(&(segment.topic, segment.partition)).is_some_and(|known| segment.number < known.below)
    }

    /// The tombstone of a partition if it says more than the metadata, which have the partition trimmed below `trimmed_below`.
    pub(crate) fn beyond(&self, topic: TopicId, partition: u32, trimmed_below: u64) -> Option<Tombstone> {
        let known = self.known.read();
        known.get(&(topic, partition)).filter(|known| known.below > trimmed_below).cloned()
    }

    /// Drops the tombstones of topics that are deleted.
    pub(crate) fn forget(&self, is_deleted: impl Fn(TopicId) -> bool) -> walrus_log::Result<()> {
        let mut known = self.known.write();
        let gone: Vec<(TopicId, u32)> =
            known.keys().filter(|(topic, _)| is_deleted(*topic)).copied().collect();
        for place in gone {
            self.store.remove_property(&key(place))?;
            known.remove(&place);
        }
        Ok(())
    }
}

fn key((topic, partition): (TopicId, u32)) -> String {
    format!("{KEYS}{}/{partition}", topic.0)
}

fn parse(key: &str) -> Option<(TopicId, u32)> {
    let (topic, partition) = key.strip_prefix(KEYS)?.split_once('/')?;
    Some((TopicId(Uuid::try_parse(topic).ok()?), partition.parse().ok()?))
}
