//! Records that wait for their append, as the entries that it holds.

use std::collections::BTreeSet;

use walrus_owners::Entry;

use crate::codec::{GroupName, Key};
use crate::offsets::Place;
use crate::record::Record;

/// A record that is to be appended.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) name: GroupName,
    pub(crate) number: u64,
    /// Their time is that of the append.
    pub(crate) entries: Vec<Entry>,
    /// The value that the group's record has then, if it is one of the group.
    pub(crate) value: Option<Option<Vec<u8>>>,
}

impl Queued {
    pub(crate) fn new(name: &GroupName, number: u64, record: &Record) -> Self {
        let of_group = |value| Entry { key: Key::Group(name.clone()).encode(), value, timestamp_ms: 0 };
        let of_place = |place: &Place, value| Entry {
            key: Key::Offset(name.clone(), *place).encode(),
            value,
            timestamp_ms: 0,
        };
        let forgotten = |places: &BTreeSet<Place>| places.iter().map(|place| of_place(place, None)).collect();
        let (entries, value) = match record {
            Record::Group(record) => {
                let value = Some(record.encode());
                (vec![of_group(value.clone())], Some(value))
            }
            Record::Offsets(offsets) => {
                let entries =
                    offsets.iter().map(|(place, committed)| of_place(place, Some(committed.encode())));
                (entries.collect(), None)
            }
            Record::Forgotten(places) => (forgotten(places), None),
            Record::Gone { offsets } => {
                let mut entries: Vec<Entry> = forgotten(offsets);
                entries.push(of_group(None));
                (entries, Some(None))
            }
        };
        Self { name: name.clone(), number, entries, value }
    }

    /// About how many bytes it takes.
    pub(crate) fn length(&self) -> usize {
        self.entries.iter().map(length).sum()
    }
}

/// About how many bytes an entry takes.
pub(crate) fn length(entry: &Entry) -> usize {
    entry.key.len() + entry.value.as_ref().map_or(0, Vec::len) + 16
}
