//! The logs that this node writes for segments that are to take the place of others, and that the metadata do not know yet. Each is
//! noted before it is made: after a crash nobody misses it, and it goes.

use std::collections::HashMap;

use uuid::Uuid;
use walrus_log::{LogId, Store};
use walrus_model::SegmentId;

use crate::node::locks::Lock;

/// Prefix of the keys under which the notes lie.
const KEYS: &str = "scratch/";

/// How far a scratch log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is being written: nobody else can know it.
    Writing,
    /// It is whole, and is offered to the metadata: they may know it.
    Offered,
}

impl Stage {
    /// The value of a note; without one there would be no property.
    fn text(self) -> &'static [u8] {
        match self {
            Self::Writing => b"writing",
            Self::Offered => b"offered",
        }
    }

    fn parse(text: &[u8]) -> Self {
        if text == Self::Writing.text() { Self::Writing } else { Self::Offered }
    }
}

/// The logs that are noted as scratch.
pub(crate) struct Scratch {
    store: Store,
    noted: Lock<HashMap<SegmentId, Stage>>,
}

impl Scratch {
    /// Reads the notes of the store.
    pub(crate) fn open(store: &Store) -> Self {
        let noted = |(key, text): (String, bytes::Bytes)| Some((parse(&key)?, Stage::parse(&text)));
        let noted = store.properties().into_iter().filter_map(noted).collect();
        Self { store: store.clone(), noted: Lock::new(noted) }
    }

    /// Notes how far a log is, before it is made or offered; durable on return.
    pub(crate) fn note(&self, segment: SegmentId, stage: Stage) -> walrus_log::Result<()> {
        self.store.put_property(&key(segment), stage.text())?;
        self.noted.lock().insert(segment, stage);
        Ok(())
    }

    /// Whether a log is scratch.
    pub(crate) fn contains(&self, segment: SegmentId) -> bool {
        self.noted.lock().contains_key(&segment)
    }

    /// All that are noted.
    pub(crate) fn all(&self) -> Vec<(SegmentId, Stage)> {
        self.noted.lock().iter().map(|(segment, stage)| (*segment, *stage)).collect()
    }

    /// Notes that the metadata know a log: from now on they decide what becomes of it.
    pub(crate) fn forget(&self, segment: SegmentId) -> walrus_log::Result<()> {
        if self.noted.lock().remove(&segment).is_some() {
            self.store.remove_property(&key(segment))?;
        }
        Ok(())
    }

    /// Deletes a log, and then the note about it.
    pub(crate) fn delete(&self, segment: SegmentId) -> walrus_log::Result<()> {
        if self.store.log(LogId(segment.0)).is_some() {
            self.store.delete_log(LogId(segment.0))?;
        }
        self.forget(segment)
    }
}

fn key(segment: SegmentId) -> String {
    format!("{KEYS}{segment}")
}

fn parse(key: &str) -> Option<SegmentId> {
    Some(SegmentId(Uuid::try_parse(key.strip_prefix(KEYS)?).ok()?))
}

#[cfg(test)]
mod tests {
    use walrus_log::{LogSpec, Options, ProducerTable};
    use walrus_model::{Epoch, Offset};

    use super::*;

    /// A note with an empty value was none, and what a crash had left stayed for ever.
    #[test]
    fn what_a_crash_leaves_is_known_at_the_next_start_and_goes() {
        let directory = tempfile::tempdir().unwrap();
        let segment = SegmentId::from_u128(7);
        let store = Store::open(directory.path(), Options::small()).unwrap();
        Scratch::open(&store).note(segment, Stage::Writing).unwrap();
        let spec = LogSpec {
            id: LogId(segment.0),
            name: "t/0/3".to_owned(),
            base_offset: Offset(0),
            epoch: Epoch(1),
            producers: ProducerTable::new(),
            after: None,
            fsync: None,
        };
        store.create_log(spec).unwrap();
        store.close().unwrap();
        let store = Store::open(directory.path(), Options::small()).unwrap();
        let scratch = Scratch::open(&store);
        assert_eq!(scratch.all(), [(segment, Stage::Writing)]);
        scratch.note(segment, Stage::Offered).unwrap();
        assert_eq!(Scratch::open(&store).all(), [(segment, Stage::Offered)]);
        scratch.delete(segment).unwrap();
        assert!(store.log(LogId(segment.0)).is_none() && !scratch.contains(segment));
        store.close().unwrap();
        let store = Store::open(directory.path(), Options::small()).unwrap();
        assert!(Scratch::open(&store).all().is_empty());
    }
}
