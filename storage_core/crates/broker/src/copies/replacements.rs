//! What this disk remembers of segments of which it has copies and that took the place of others, by the metadata's word. What was
//! replaced goes only once a quorum of disks remembers: metadata that have forgotten the replacement may list what is on no disk
//! any more, and are told; and who remembers it does not give up its copy as that of a candidate in vain.

use std::collections::HashMap;

use walrus_log::Store;
use walrus_metadata::{Compacted, EpochStart, Metadata, Partition, Replacement, Segment};
use walrus_model::{ReplicaRef, SegmentId, TopicId};

use crate::copies::codec::{self, fields};
use crate::copies::partition_notes::Place;
use crate::node::error::{Error, Result};
use crate::node::locks::SharedLock;

/// Prefix of the keys under which the notes lie.
const KEYS: &str = "replacement/";

fields!(EpochStart { epoch, first_offset });
fields!(Compacted { first_number, generation, epochs });
fields!(Replacement { descriptor, value, compacted });

/// A segment that took the place of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) replacement: Replacement,
    /// The disks that had, or were to have, a copy of it.
    pub(crate) copies: Vec<ReplicaRef>,
}

fields!(Note { replacement, copies });

/// The notes of this disk, by partition and the identity of the segment.
pub(crate) struct Replacements {
    store: Store,
    known: SharedLock<HashMap<Place, HashMap<SegmentId, Note>>>,
}

impl Replacements {
    /// Reads the notes of the store. One that cannot be read is an error: without it nobody may know what became of the segments
    /// whose copies were here.
    pub(crate) fn open(store: &Store) -> Result<Self> {
        let mut known: HashMap<Place, HashMap<SegmentId, Note>> = HashMap::new();
        for (key, bytes) in store.properties().into_iter().filter(|(key, _)| key.starts_with(KEYS)) {
            let note: Note = codec::decode(&key, &bytes).map_err(|problem| Error::Internal {
                message: format!("what this disk remembers of a segment, {key}, cannot be read: {problem}"),
            })?;
            known.entry(note.place()).or_default().insert(note.id(), note);
        }
        Ok(Self { store: store.clone(), known: SharedLock::new(known) })
    }

    /// Remembers that a listed segment took the place of others, durably; one that did not is passed over.
    pub(crate) fn remember(&self, segment: &Segment) -> walrus_log::Result<()> {
        let Some(replacement) = segment.replacement() else { return Ok(()) };
        let note = Note { replacement, copies: segment.copies.iter().map(|copy| copy.replica).collect() };
        let is_known = |of_place: &HashMap<SegmentId, Note>| of_place.contains_key(&note.id());
        if self.known.read().get(&note.place()).is_some_and(is_known) {
            return Ok(());
        }
        let key = key(note.id());
        self.store.put_property(&key, &codec::encode(&key, &note))?;
        self.known.write().entry(note.place()).or_default().insert(note.id(), note);
        Ok(())
    }

    /// Whether this disk knows that the segment took the place of others, and these metadata list neither it nor what took its
    /// place in turn.
    pub(crate) fn is_forgotten(&self, place: Place, partition: &Partition, segment: SegmentId) -> bool {
        let known = self.known.read();
        let note = known.get(&place).and_then(|of_place| of_place.get(&segment));
        note.is_some_and(|note| !partition.knows_replacement(&note.replacement))
    }

    /// Whether this disk remembers the segment.
    pub(crate) fn knows(&self, segment: SegmentId) -> bool {
        self.known.read().values().any(|of_place| of_place.contains_key(&segment))
    }

    /// A replacement that these metadata have forgotten, if there is one; the first of several.
    pub(crate) fn forgotten(&self, topic: TopicId, partition: &Partition) -> Option<Note> {
        let known = self.known.read();
        let notes = known.get(&(topic, partition.index))?.values();
        let forgotten = notes.filter(|note| !partition.knows_replacement(&note.replacement));
        forgotten.min_by_key(|note| note.replacement.descriptor.number).cloned()
    }

    /// The topics of which there are notes.
    pub(crate) fn topics(&self) -> Vec<TopicId> {
        self.known.read().keys().map(|(topic, _)| *topic).collect()
    }

    /// Drops the notes that nobody will need: their topics are deleted, or their segments were trimmed or replaced in turn, by one that
    /// a quorum remembers.
    pub(crate) fn forget(&self, metadata: &Metadata) -> walrus_log::Result<()> {
        let is_over = |note: &&Note| {
            let (topic, partition) = note.place();
            let listed = metadata.topics.get(&topic);
            let partition = listed.and_then(|topic| topic.partitions.get(partition as usize));
            metadata.deleted.contains(&topic)
                || partition.is_some_and(|partition| metadata.outlives(partition, &note.replacement))
        };
        let over: Vec<(Place, SegmentId)> = {
            let known = self.known.read();
            let over = known.values().flat_map(HashMap::values).filter(is_over);
            over.map(|note| (note.place(), note.id())).collect()
        };
        for (place, id) in over {
            self.store.remove_property(&key(id))?;
            let mut known = self.known.write();
            if let Some(of_place) = known.get_mut(&place) {
                of_place.remove(&id);
            }
            known.retain(|_, of_place| !of_place.is_empty());
        }
        Ok(())
    }
}

impl Note {
    fn id(&self) -> SegmentId {
        self.replacement.descriptor.id
    }

    fn place(&self) -> Place {
        (self.replacement.descriptor.topic, self.replacement.descriptor.partition)
    }
}

fn key(segment: SegmentId) -> String {
    format!("{KEYS}{segment}")
}

#[cfg(test)]
mod tests {
    use walrus_model::{Digest, Epoch, Offset, Value};

    use super::*;
    use crate::copies::codec::tests::descriptor;

    #[test]
    fn a_replacement_lies_on_the_disk_as_the_page_of_the_format_says() {
        let value = Value::without_loss(Offset(9), Digest(77), descriptor(3));
        let epochs = vec![
            EpochStart { epoch: Epoch(4), first_offset: Offset(2) },
            EpochStart { epoch: Epoch(5), first_offset: Offset(6) },
        ];
        let compacted = Compacted { first_number: 1, generation: 2, epochs };
        let copies = descriptor(2).replicas;
        let note = Note { replacement: Replacement { descriptor: descriptor(2), value, compacted }, copies };
        let written = codec::encode("replacement/x", &note);
        let golden = include_str!("replacements.golden");
        let hex: String = written.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden.trim_end());
        assert_eq!(codec::decode("replacement/x", &written), Ok(note));
    }
}
