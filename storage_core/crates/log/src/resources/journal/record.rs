//! A record of the journal, and its encoding with sequence and checksum.

use bytes::Bytes;
use uuid::Uuid;

use crate::digest::Digest;
use crate::format::fields::{Fields, PutFields};
use crate::format::{SEQUENCE_MAX, checksum};
use crate::producers::{ProducerChanges, ProducerTable};
use crate::types::{Epoch, FsyncSchedule, LogId};

/// Bytes in front of each record's payload.
pub(super) const RECORD_HEADER_BYTES: usize = 32;
/// Alignment of records, so that valid ones can be found behind damage.
pub(super) const RECORD_ALIGN: usize = 8;

/// Greatest known kind; greater ones are those of newer programs.
pub(super) const KIND_LAST: u8 = 19;

/// Offset in a clean mark that calls a log dirty: no log ends there.
pub(crate) const DIRTY: u64 = u64::MAX;

/// A producer table in a record, by what differs from another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TableTold<'a> {
    /// As it was read.
    Bytes(&'a [u8]),
    /// As whoever makes the record has it: nobody has to decode it.
    Changes(ProducerChanges),
}

impl TableTold<'_> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Bytes(bytes) => out.put_block(bytes),
            Self::Changes(changes) => out.put_block(&changes.encode()),
        }
    }

    /// The table that differs so from `since`; `None` if the bytes tell none.
    pub(super) fn table(&self, since: &ProducerTable) -> Option<ProducerTable> {
        match self {
            Self::Bytes(bytes) => since.with_changes(bytes),
            Self::Changes(changes) => Some(changes.now.clone()),
        }
    }
}

/// A promise of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// The log exists. Its producer table is told by what differs from the one with which the log `after` started, or from an
    /// empty one; without bytes if nobody knows it. Without `fsync` the log follows the store's schedule.
    LogCreated {
        log: LogId,
        base_offset: u64,
        epoch: Epoch,
        name: &'a str,
        after: Option<LogId>,
        producers: TableTold<'a>,
        fsync: Option<FsyncSchedule>,
    },
    /// The log ends at `end` and never changes again.
    LogSealed {
        log: LogId,
        end: u64,
        digest: Digest,
        value: Bytes,
    },
    /// The log is deleted; blocks of it may still be there.
    LogDeleted {
        log: LogId,
    },
    /// No block of the deleted log is left.
    LogForgotten {
        log: LogId,
    },
    /// Offsets below `start` are gone. `digest` covers the batches of freed blocks, which end at `freed` and have a
    /// sequence below `before`; the producer table at their end is told by what differs from the log's first one.
    LogTrimmed {
        log: LogId,
        start: u64,
        freed: u64,
        before: u64,
        digest: Digest,
        producers: TableTold<'a>,
    },
    /// Offsets from `end` on in blocks with a sequence below `before` are gone.
    LogTruncated {
        log: LogId,
        end: u64,
        before: u64,
    },
    /// Offsets from `start` to `end` are in the block of that sequence; those in blocks before it are gone.
    LogCompacted {
        log: LogId,
        start: u64,
        end: u64,
        sequence: u64,
    },
    /// Everything below `end` was synced.
    Synced {
        log: LogId,
        end: u64,
    },
    /// The log ends at `end` and may lack what its copies have.
    Suspect {
        log: LogId,
        end: u64,
    },
    /// The log was filled from its copies and is not suspect any more.
    Cleared {
        log: LogId,
    },
    /// The next offset of the cursor.
    Cursor {
        log: LogId,
        name: &'a str,
        offset: u64,
    },
    CursorDeleted {
        log: LogId,
        name: &'a str,
    },
    Property {
        key: &'a str,
        value: &'a [u8],
    },
    /// The log is clean as long as it ends at `end`; with [`DIRTY`] it is not.
    CleanMark {
        log: LogId,
        end: u64,
    },
    /// The record says nothing but proves the records before it.
    Mark,
    /// The store was closed in order.
    Closed,
    /// The store has this schedule from now on.
    Schedule {
        fsync: FsyncSchedule,
    },
    /// The journal had lost its end: records up to that sequence were durable. Promises are forgotten, and cursors of
    /// the logs that exist now may have moved.
    EndLost {
        durable: u64,
    },
    /// The store closes with data that was never synced: it is in the memory of the machine that runs under this boot
    /// id.
    LeftUnsynced {
        boot: Uuid,
    },
}

impl<'a> Record<'a> {
    /// The log that the record is about, if it is about one.
    pub(super) fn log(&self) -> Option<LogId> {
        match self {
            Self::LogCreated { log, .. }
            | Self::LogSealed { log, .. }
            | Self::LogDeleted { log }
            | Self::LogForgotten { log }
            | Self::LogTrimmed { log, .. }
            | Self::LogTruncated { log, .. }
            | Self::LogCompacted { log, .. }
            | Self::Synced { log, .. }
            | Self::Suspect { log, .. }
            | Self::Cleared { log }
            | Self::Cursor { log, .. }
            | Self::CursorDeleted { log, .. }
            | Self::CleanMark { log, .. } => Some(*log),
            Self::Property { .. }
            | Self::Mark
            | Self::Closed
            | Self::Schedule { .. }
            | Self::EndLost { .. }
            | Self::LeftUnsynced { .. } => None,
        }
    }

    /// Whether the record may take the reserve of a full disk: it gives space back or leads to that, ends something
    /// for good, or is a property of the program above, such as a vote. Records of new logs and of moves of cursors
    /// wait for space.
    pub(super) fn frees_space(&self) -> bool {
        !matches!(self, Self::LogCreated { .. } | Self::Cursor { .. } | Self::CleanMark { .. })
    }

    fn kind(&self) -> u8 {
        match self {
            Self::LogCreated { .. } => 1,
            Self::LogSealed { .. } => 2,
            Self::LogDeleted { .. } => 3,
            Self::LogForgotten { .. } => 4,
            Self::LogTrimmed { .. } => 5,
            Self::LogTruncated { .. } => 6,
            Self::Synced { .. } => 7,
            Self::Suspect { .. } => 8,
            Self::Cleared { .. } => 9,
            Self::Cursor { .. } => 10,
            Self::CursorDeleted { .. } => 11,
            Self::Property { .. } => 12,
            Self::Mark => 13,
            Self::Closed => 14,
            Self::Schedule { .. } => 15,
            Self::LeftUnsynced { .. } => 16,
            Self::CleanMark { .. } => 17,
            Self::LogCompacted { .. } => 18,
            Self::EndLost { .. } => 19,
        }
    }

    fn put_payload(&self, out: &mut Vec<u8>) {
        match self {
            Self::LogCreated { log, base_offset, epoch, name, after, producers, fsync } => {
                out.put_uuid(log.0);
                out.put_u64(*base_offset);
                out.put_u32(epoch.0);
                out.put_block(name.as_bytes());
                out.put_uuid(after.map_or(Uuid::nil(), |log| log.0));
                producers.put(out);
                if let Some(fsync) = fsync {
                    out.put_u64(fsync.to_number());
                }
            }
            Self::LogSealed { log, end, digest, value } => {
                out.put_uuid(log.0);
                out.put_u64(*end);
                put_digest(out, *digest);
                out.put_block(value);
            }
            Self::LogDeleted { log } | Self::LogForgotten { log } | Self::Cleared { log } => {
                out.put_uuid(log.0)
            }
            Self::LogTrimmed { log, start, freed, before, digest, producers } => {
                out.put_uuid(log.0);
                out.put_u64(*start);
                out.put_u64(*freed);
                out.put_u64(*before);
                put_digest(out, *digest);
                producers.put(out);
            }
            Self::LogTruncated { log, end, before } => {
                out.put_uuid(log.0);
                out.put_u64(*end);
                out.put_u64(*before);
            }
            Self::LogCompacted { log, start, end, sequence } => {
                out.put_uuid(log.0);
                out.put_u64(*start);
                out.put_u64(*end);
                out.put_u64(*sequence);
            }
            Self::Synced { log, end } | Self::Suspect { log, end } | Self::CleanMark { log, end } => {
                out.put_uuid(log.0);
                out.put_u64(*end);
            }
            Self::Cursor { log, name, offset } => {
                out.put_uuid(log.0);
                out.put_u64(*offset);
                out.put_block(name.as_bytes());
            }
            Self::CursorDeleted { log, name } => {
                out.put_uuid(log.0);
                out.put_block(name.as_bytes());
            }
            Self::Property { key, value } => {
                out.put_block(key.as_bytes());
                out.put_block(value);
            }
            Self::Mark | Self::Closed => {}
            Self::Schedule { fsync } => out.put_u64(fsync.to_number()),
            Self::LeftUnsynced { boot } => out.put_uuid(*boot),
            Self::EndLost { durable } => out.put_u64(*durable),
        }
    }

    fn read_payload(kind: u8, payload: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let record = match kind {
            1 => Self::LogCreated {
                log: LogId(fields.uuid()?),
                base_offset: fields.u64()?,
                epoch: Epoch(fields.u32()?),
                name: text(&mut fields)?,
                after: Some(fields.uuid()?).filter(|log| !log.is_nil()).map(LogId),
                producers: TableTold::Bytes(fields.block()?),
                fsync: if fields.is_empty() { None } else { Some(FsyncSchedule::from_number(fields.u64()?)) },
            },
            2 => Self::LogSealed {
                log: LogId(fields.uuid()?),
                end: fields.u64()?,
                digest: digest(&mut fields)?,
                value: Bytes::copy_from_slice(fields.block()?),
            },
            3 => Self::LogDeleted { log: LogId(fields.uuid()?) },
            4 => Self::LogForgotten { log: LogId(fields.uuid()?) },
            5 => Self::LogTrimmed {
                log: LogId(fields.uuid()?),
                start: fields.u64()?,
                freed: fields.u64()?,
                before: fields.u64()?,
                digest: digest(&mut fields)?,
                producers: TableTold::Bytes(fields.block()?),
            },
            6 => Self::LogTruncated { log: LogId(fields.uuid()?), end: fields.u64()?, before: fields.u64()? },
            7 => Self::Synced { log: LogId(fields.uuid()?), end: fields.u64()? },
            8 => Self::Suspect { log: LogId(fields.uuid()?), end: fields.u64()? },
            9 => Self::Cleared { log: LogId(fields.uuid()?) },
            10 => {
                Self::Cursor { log: LogId(fields.uuid()?), offset: fields.u64()?, name: text(&mut fields)? }
            }
            11 => Self::CursorDeleted { log: LogId(fields.uuid()?), name: text(&mut fields)? },
            12 => Self::Property { key: text(&mut fields)?, value: fields.block()? },
            13 => Self::Mark,
            14 => Self::Closed,
            15 => Self::Schedule { fsync: FsyncSchedule::from_number(fields.u64()?) },
            16 => Self::LeftUnsynced { boot: fields.uuid()? },
            17 => Self::CleanMark { log: LogId(fields.uuid()?), end: fields.u64()? },
            18 => Self::LogCompacted {
                log: LogId(fields.uuid()?),
                start: fields.u64()?,
                end: fields.u64()?,
                sequence: fields.u64()?,
            },
            19 => Self::EndLost { durable: fields.u64()? },
            _ => return None,
        };
        fields.is_empty().then_some(record)
    }

    /// Appends the encoded record to `out`. Every record up to `proven` is durable.
    pub(super) fn encode(&self, sequence: u64, proven: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + RECORD_HEADER_BYTES, 0);
        self.put_payload(out);
        let length =
            u32::try_from(out.len() - start - RECORD_HEADER_BYTES).expect("callers limit what they store");
        out.resize(out.len().next_multiple_of(RECORD_ALIGN), 0);
        let header = &mut out[start..start + RECORD_HEADER_BYTES];
        header[4..8].copy_from_slice(&length.to_le_bytes());
        header[8..16].copy_from_slice(&sequence.to_le_bytes());
        header[16..24].copy_from_slice(&proven.to_le_bytes());
        header[24] = self.kind();
        let crc = checksum(&out[start + 4..]);
        out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// A record as it lies in a file.
pub(super) struct StoredRecord<'a> {
    pub(super) sequence: u64,
    pub(super) proven: u64,
    pub(super) kind: u8,
    payload: &'a [u8],
    /// Bytes that the record takes, padding included.
    pub(super) size: usize,
}

impl<'a> StoredRecord<'a> {
    /// Decodes the record at the front of `bytes`; `None` if there is no whole, valid one.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let (crc, length, sequence, proven) = (fields.u32()?, fields.u32()?, fields.u64()?, fields.u64()?);
        let kind = fields.u8()?;
        let size = (RECORD_HEADER_BYTES + length as usize).next_multiple_of(RECORD_ALIGN);
        // An empty journal is zeros, and zeros must not be a record.
        if !(1..=SEQUENCE_MAX).contains(&sequence) || crc != checksum(bytes.get(4..size)?) {
            return None;
        }
        let payload = &bytes[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + length as usize];
        Some(Self { sequence, proven, kind, payload, size })
    }

    /// The decoded record; `None` for a kind that this version does not know.
    pub(super) fn record(&self) -> Option<Record<'a>> {
        Record::read_payload(self.kind, self.payload)
    }
}

/// Makes the checksum of the record at the front right, if all of the record is there.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn fuzz_seal(bytes: &mut [u8]) {
    let Some(length) = bytes.get(4..8).and_then(|field| field.try_into().ok()).map(u32::from_le_bytes) else {
        return;
    };
    let size = (RECORD_HEADER_BYTES + length as usize).next_multiple_of(RECORD_ALIGN);
    if let Some(covered) = bytes.get(4..size) {
        let crc = checksum(covered);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
    }
}

fn put_digest(out: &mut Vec<u8>, digest: Digest) {
    out.put_u64(digest.value);
    out.put_u64(digest.batches);
}

fn digest(fields: &mut Fields<'_>) -> Option<Digest> {
    Some(Digest { value: fields.u64()?, batches: fields.u64()? })
}

fn text<'a>(fields: &mut Fields<'a>) -> Option<&'a str> {
    std::str::from_utf8(fields.block()?).ok()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    fn every_kind() -> Vec<Record<'static>> {
        let log = LogId(Uuid::from_u128(3));
        let digest = Digest { value: 5, batches: 6 };
        let created = |after, fsync| Record::LogCreated {
            log,
            base_offset: 1,
            epoch: Epoch(2),
            name: "n",
            after,
            producers: TableTold::Bytes(&[0; 8]),
            fsync,
        };
        vec![
            created(None, None),
            created(Some(LogId(Uuid::from_u128(4))), Some(FsyncSchedule::SyncEach)),
            created(None, Some(FsyncSchedule::NoFsync)),
            Record::LogSealed { log, end: 3, digest, value: Bytes::from_static(b"value") },
            Record::LogDeleted { log },
            Record::LogForgotten { log },
            Record::LogTrimmed {
                log,
                start: 2,
                freed: 1,
                before: 7,
                digest,
                producers: TableTold::Bytes(&[1, 2]),
            },
            Record::LogTruncated { log, end: 2, before: 9 },
            Record::Synced { log, end: 4 },
            Record::Suspect { log, end: 4 },
            Record::Cleared { log },
            Record::Cursor { log, name: "c", offset: 1 },
            Record::CursorDeleted { log, name: "c" },
            Record::Property { key: "k", value: b"v" },
            Record::Mark,
            Record::Closed,
            Record::Schedule { fsync: FsyncSchedule::Milliseconds(NonZeroU64::MIN) },
            Record::LeftUnsynced { boot: Uuid::from_u128(4) },
            Record::CleanMark { log, end: 4 },
            Record::LogCompacted { log, start: 1, end: 4, sequence: 9 },
            Record::EndLost { durable: 77 },
        ]
    }

    #[test]
    fn every_record_comes_back_and_no_flipped_byte_passes() {
        for (index, record) in every_kind().iter().enumerate() {
            let mut bytes = Vec::new();
            record.encode(7, 5, &mut bytes);
            assert!(bytes.len().is_multiple_of(RECORD_ALIGN));
            let stored = StoredRecord::decode(&bytes).unwrap();
            assert_eq!((stored.sequence, stored.proven, stored.size), (7, 5, bytes.len()));
            assert_eq!(stored.record().as_ref(), Some(record), "record {index}");
            assert!(stored.kind <= KIND_LAST, "record {index}");
            for position in 0..bytes.len() {
                let mut flipped = bytes.clone();
                flipped[position] ^= 1;
                assert!(StoredRecord::decode(&flipped).is_none(), "record {index} byte {position}");
            }
            for length in 0..bytes.len() {
                assert!(StoredRecord::decode(&bytes[..length]).is_none(), "record {index}, {length} bytes");
            }
        }
        assert!(StoredRecord::decode(&[0; 64]).is_none());
    }
}
