//! Notes of this disk about partitions, one for each partition at most: in memory, and in the properties of the store.

use std::collections::HashMap;

use uuid::Uuid;
use walrus_log::Store;
use walrus_model::TopicId;

use crate::copies::codec::{self, Field};
use crate::node::error::{Error, Result};
use crate::node::locks::SharedLock;

/// A partition: its topic, and its place in that.
pub(crate) type Place = (TopicId, u32);

/// The notes of one kind.
pub(crate) struct PartitionNotes<T> {
    store: Store,
    /// Prefix of the keys under which they lie.
    prefix: &'static str,
    known: SharedLock<HashMap<Place, T>>,
}

impl<T: Field + Clone> PartitionNotes<T> {
    /// Reads the notes of the store. One that cannot be read is an error: without it, this disk would answer as one that was never
    /// told.
    pub(crate) fn open(store: &Store, prefix: &'static str) -> Result<Self> {
        let mut known = HashMap::new();
        for (key, bytes) in store.properties().into_iter().filter(|(key, _)| key.starts_with(prefix)) {
            let unreadable = |problem: &dyn std::fmt::Display| Error::Internal {
                message: format!("what this disk remembers of a partition, {key}, cannot be read: {problem}"),
            };
            let place = parse(prefix, &key).ok_or_else(|| unreadable(&"its key names no partition"))?;
            known.insert(place, codec::decode(&key, &bytes).map_err(|problem| unreadable(&problem))?);
        }
        Ok(Self { store: store.clone(), prefix, known: SharedLock::new(known) })
    }

    /// The note about a partition.
    pub(crate) fn get(&self, place: Place) -> Option<T> {
        self.known.read().get(&place).cloned()
    }

    /// Notes something about a partition in the place of what was noted before; durable on return.
    pub(crate) fn put(&self, place: Place, note: T) -> walrus_log::Result<()> {
        let key = self.key(place);
        self.store.put_property(&key, &codec::encode(&key, &note))?;
        self.known.write().insert(place, note);
        Ok(())
    }

    /// The topics about whose partitions there is a note.
    pub(crate) fn topics(&self) -> Vec<TopicId> {
        self.known.read().keys().map(|(topic, _)| *topic).collect()
    }

    /// Drops the notes about topics that are deleted.
    pub(crate) fn forget(&self, is_deleted: impl Fn(TopicId) -> bool) -> walrus_log::Result<()> {
        let mut known = self.known.write();
        let gone: Vec<Place> = known.keys().filter(|(topic, _)| is_deleted(*topic)).copied().collect();
        for place in gone {
            self.store.remove_property(&self.key(place))?;
            known.remove(&place);
        }
        Ok(())
    }

    fn key(&self, (topic, partition): Place) -> String {
        format!("{}{}/{partition}", self.prefix, topic.0)
    }
}

fn parse(prefix: &str, key: &str) -> Option<Place> {
    let (topic, partition) = key.strip_prefix(prefix)?.split_once('/')?;
    Some((TopicId(Uuid::try_parse(topic).ok()?), partition.parse().ok()?))
}
