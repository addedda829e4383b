//! The promises of this disk about segments, as they lie in the journal: one property for each segment.

use walrus_log::Store;
use walrus_model::{Ballot, Descriptor, ProcessId, SegmentId, Value};
use walrus_replica::Promises;

use crate::copies::codec::{self, RecordError, fields};
use crate::node::error::{Error, Result};

/// Prefix of the keys under which promises lie.
const KEYS: &str = "replica/";

/// The promises about one segment.
#[derive(Debug, PartialEq)]
struct Record {
    descriptor: Descriptor,
    promised: Ballot,
    writer: Option<ProcessId>,
    accepted: Option<(Ballot, Value)>,
    sealed: Option<Value>,
    suspect: bool,
    trimmed: bool,
}

fields!(Record { descriptor, promised, writer, accepted, sealed, suspect, trimmed });

/// Writes what was promised about a segment. It is durable on return.
pub(crate) fn write(store: &Store, descriptor: &Descriptor, promises: &Promises) -> walrus_log::Result<()> {
    let key = key(descriptor.id);
    store.put_property(&key, &codec::encode(&key, &Record::new(descriptor, promises)))
}

/// What was promised about a segment, if anything.
pub(crate) fn read(store: &Store, segment: SegmentId) -> Result<Option<Promises>> {
    Ok(read_record(store, segment)?.map(Record::into_promises))
}

/// The descriptor that the journal has for a segment, if this disk ever promised anything about it.
pub(crate) fn descriptor(store: &Store, segment: SegmentId) -> Result<Option<Descriptor>> {
    Ok(read_record(store, segment)?.map(|record| record.descriptor))
}

/// Whether a tombstone is all that is left of a copy.
pub(crate) fn is_buried(store: &Store, segment: SegmentId) -> Result<bool> {
    Ok(read_record(store, segment)?.is_some_and(|record| record.trimmed))
}

/// Drops what was promised about a segment whose log is sealed: that log answers for itself.
pub(crate) fn forget_votes(store: &Store, segment: SegmentId) -> Result<()> {
    let key = key(segment);
    if store.property(&key).is_none() {
        return Ok(());
    }
    let failed = |error| Error::Internal { message: format!("segment {segment}: {error}") };
    store.remove_property(&key).map_err(failed)
}

/// All segments about which this disk remembers promises that can be read. A copy whose promises cannot be read answers
/// nothing, and is told among those that are not whole (`upkeep/holes.rs`).
pub(crate) fn all_descriptors(store: &Store) -> Vec<Descriptor> {
    let records = store.properties().into_iter().filter(|(key, _)| key.starts_with(KEYS));
    records.filter_map(|(key, bytes)| Some(parse(&key, &bytes).ok()?.descriptor)).collect()
}

impl Record {
    fn new(descriptor: &Descriptor, promises: &Promises) -> Self {
        let Promises { promised, writer, accepted, sealed, suspect, trimmed } = promises.clone();
        Self { descriptor: descriptor.clone(), promised, writer, accepted, sealed, suspect, trimmed }
    }

    fn into_promises(self) -> Promises {
        let Self { descriptor: _, promised, writer, accepted, sealed, suspect, trimmed } = self;
        Promises { promised, writer, accepted, sealed, suspect, trimmed }
    }
}

fn key(segment: SegmentId) -> String {
    format!("{KEYS}{segment}")
}

fn read_record(store: &Store, segment: SegmentId) -> Result<Option<Record>> {
    let key = key(segment);
    store.property(&key).map(|bytes| parse(&key, &bytes)).transpose()
}

fn parse(key: &str, bytes: &[u8]) -> Result<Record> {
    codec::decode(key, bytes).map_err(|problem: RecordError| Error::Internal {
        message: format!("what this disk has promised, {key}, cannot be read: {problem}"),
    })
}

#[cfg(test)]
mod tests {
    use walrus_model::{AttemptId, Digest, Epoch, Offset, OffsetRange};

    use super::*;
    use crate::copies::codec::tests::descriptor;

    #[test]
    fn promises_lie_on_the_disk_as_the_page_of_the_format_says() {
        let ballot = |epoch| Ballot { epoch: Epoch(epoch), attempt: AttemptId::from_u128(epoch.into()) };
        let lost = OffsetRange { start: Offset(3), end: Offset(5) };
        let value = Value {
            end: Offset(9),
            digest: Digest(77),
            successor: Box::new(descriptor(3)),
            possible_loss: vec![lost],
            lost: vec![lost, lost],
        };
        let record = Record {
            descriptor: descriptor(2),
            promised: ballot(258),
            writer: Some(ProcessId::from_u128(5)),
            accepted: Some((ballot(257), value.clone())),
            sealed: Some(value),
            suspect: false,
            trimmed: true,
        };
        let written = codec::encode("replica/x", &record);
        let golden = include_str!("promises.golden");
        let hex: String = written.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden.trim_end());
        assert_eq!(codec::decode("replica/x", &written), Ok(record));
    }
}
