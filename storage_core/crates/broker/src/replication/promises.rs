//! What this disk has promised about segments, as it lies in the journal: one property for each.

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use walrus_log::Store;
use walrus_metadata::Descriptor;
use walrus_replica::{Promises, Value};

use super::convert;
use crate::error::{Error, Result};

/// What the keys of promises begin with.
const KEYS: &str = "replica/";

/// The promises about one segment.
#[derive(Serialize, Deserialize)]
struct Record {
    descriptor: Descriptor,
    promised: walrus_metadata::Ballot,
    writer: Option<Uuid>,
    accepted: Option<(walrus_metadata::Ballot, walrus_metadata::Value)>,
    sealed: Option<walrus_metadata::Value>,
    suspect: bool,
    trimmed: bool,
}

/// Durable on return.
pub(crate) fn write(store: &Store, descriptor: &Descriptor, promises: &Promises) -> walrus_log::Result<()> {
    let record = Record::new(descriptor, promises);
    let bytes = serde_json::to_vec(&record).expect("promises are plain data");
    store.put_property(&key(descriptor.uuid), &bytes)
}

/// What was promised about a segment, if anything.
pub(crate) fn read(store: &Store, segment: Uuid) -> Result<Option<Promises>> {
    Ok(read_record(store, segment)?.map(Record::into_promises))
}

/// The descriptor that the journal has for a segment, if this disk ever promised anything about it.
pub(crate) fn descriptor(store: &Store, segment: Uuid) -> Result<Option<Descriptor>> {
    Ok(read_record(store, segment)?.map(|record| record.descriptor))
}

/// Whether a tombstone is all that is left of a copy.
pub(crate) fn is_buried(store: &Store, segment: Uuid) -> Result<bool> {
    Ok(read_record(store, segment)?.is_some_and(|record| record.trimmed))
}

/// A sealed log answers for itself: what was promised before is not needed any more.
pub(crate) fn forget_votes(store: &Store, segment: Uuid) -> Result<()> {
    let key = key(segment);
    if store.property(&key).is_none() {
        return Ok(());
    }
    let failed = |error| Error::Internal { message: format!("segment {segment}: {error}") };
    store.remove_property(&key).map_err(failed)
}

/// All segments about which something is remembered here.
pub(crate) fn all_descriptors(store: &Store) -> Vec<Descriptor> {
    let records = store.properties().into_iter().filter(|(key, _)| key.starts_with(KEYS));
    let parsed = records.filter_map(|(_, bytes)| serde_json::from_slice::<Record>(&bytes).ok());
    parsed.map(|record| record.descriptor).collect()
}

impl Record {
    fn new(descriptor: &Descriptor, promises: &Promises) -> Self {
        let Promises { promised, writer, accepted, sealed, suspect, trimmed } = promises;
        let vote = |(ballot, value): &(walrus_replica::Ballot, Value)| {
            (convert::ballot_back(*ballot), convert::value_back(value))
        };
        Self {
            descriptor: descriptor.clone(),
            promised: convert::ballot_back(*promised),
            writer: writer.map(|writer| Uuid::from_u128(writer.0)),
            accepted: accepted.as_ref().map(vote),
            sealed: sealed.as_ref().map(convert::value_back),
            suspect: *suspect,
            trimmed: *trimmed,
        }
    }

    fn into_promises(self) -> Promises {
        Promises {
            promised: convert::ballot(self.promised),
            writer: self.writer.map(convert::process_id),
            accepted: self.accepted.map(|(ballot, value)| (convert::ballot(ballot), convert::value(&value))),
            sealed: self.sealed.as_ref().map(convert::value),
            suspect: self.suspect,
            trimmed: self.trimmed,
        }
    }
}

fn key(segment: Uuid) -> String {
    format!("{KEYS}{segment}")
}

fn read_record(store: &Store, segment: Uuid) -> Result<Option<Record>> {
    let Some(bytes) = store.property(&key(segment)) else { return Ok(None) };
    let damaged = |problem: serde_json::Error| Error::Internal {
        message: format!("the promises about segment {segment} are not understood: {problem}"),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(damaged)
}
