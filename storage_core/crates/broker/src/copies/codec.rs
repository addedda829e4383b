//! The encoding of what a disk remembers of segments in the properties of its store: votes, promises and tombstones in
//! fixed fields, little-endian. `docs/internals/format.md` has them byte by byte.
//!
//! The checksum of a record covers its key too: one that is damaged, or was written for another segment, is told as
//! damage. Taken for one that was never written, it would let a copy answer as if it had promised nothing.

use bytes::Bytes;
use uuid::Uuid;
use walrus_model::{
    AttemptId, Ballot, Descriptor, Digest, DiskId, Epoch, FsyncSchedule, LeaderRef, NodeId, Offset,
    OffsetRange, ProcessId, ReplicaRef, SegmentId, TopicId, Value,
};

const VERSION: u8 = 2;
const CHECKSUM_BYTES: usize = 4;

/// Why a record cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    /// Bytes differ from what was written, or they were written under another key.
    #[error("it is damaged: its checksum differs")]
    Damaged,
    /// Another version of the program wrote it.
    #[error(
        "it has format {version}, this program reads {VERSION}: start the version that wrote it, or a newer one"
    )]
    OtherVersion {
        /// What its first byte says.
        version: u8,
    },
    /// The checksum is right, the fields are not those of such a record.
    #[error("its fields are not those of such a record")]
    Malformed,
}

/// Encodes the record that is to lie under `key`.
pub(crate) fn encode(key: &str, record: &impl Field) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    record.put(&mut bytes);
    let checksum = checksum(key, &bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

/// Decodes the record that was encoded for `key`.
pub(crate) fn decode<T: Field>(key: &str, bytes: &[u8]) -> Result<T, RecordError> {
    let (body, stored) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(RecordError::Damaged)?;
    if checksum(key, body) != u32::from_le_bytes(*stored) {
        return Err(RecordError::Damaged);
    }
    let (version, mut fields) = body.split_first().ok_or(RecordError::Malformed)?;
    if *version != VERSION {
        return Err(RecordError::OtherVersion { version: *version });
    }
    let record = T::take(&mut fields).ok_or(RecordError::Malformed)?;
    if fields.is_empty() { Ok(record) } else { Err(RecordError::Malformed) }
}

fn checksum(key: &str, body: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(&[key.as_bytes(), body].concat())
}

/// The decision about a segment as its log keeps it with the seal, in JSON.
pub(crate) fn encode_seal(value: &Value) -> Bytes {
    serde_json::to_vec(value).expect("values are plain data").into()
}

/// The decision that a log was sealed with.
pub(crate) fn decode_seal(bytes: &[u8]) -> Result<Value, RecordError> {
    serde_json::from_slice(bytes).map_err(|_| RecordError::Malformed)
}

/// Something that has a place in a record.
pub(crate) trait Field: Sized {
    /// Writes the field behind what is there.
    fn put(&self, to: &mut Vec<u8>);

    /// Takes the field off the front; `None` if what is there is no such field.
    fn take(from: &mut &[u8]) -> Option<Self>;
}

macro_rules! integers {
    ($($integer:ty),+) => {$(
        impl Field for $integer {
            fn put(&self, to: &mut Vec<u8>) {
                to.extend(self.to_le_bytes());
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                let (bytes, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(Self::from_le_bytes(*bytes))
            }
        }
    )+};
}

/// Implements [`Field`] for structs whose named fields lie one behind the other, in this order.
macro_rules! fields {
    ($type:ty { $($field:tt),+ $(,)? }) => {
        impl $crate::copies::codec::Field for $type {
            fn put(&self, to: &mut Vec<u8>) {
                $($crate::copies::codec::Field::put(&self.$field, to);)+
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: $crate::copies::codec::Field::take(from)?),+ })
            }
        }
    };
}
pub(crate) use fields;

integers!(u8, u32, u64);
fields!(Offset { 0 });
fields!(Epoch { 0 });
fields!(NodeId { 0 });
fields!(Digest { 0 });
fields!(TopicId { 0 });
fields!(SegmentId { 0 });
fields!(DiskId { 0 });
fields!(ProcessId { 0 });
fields!(AttemptId { 0 });
fields!(LeaderRef { node, process });
fields!(ReplicaRef { node, disk });
fields!(OffsetRange { start, end });
fields!(Ballot { epoch, attempt });
fields!(Descriptor {
    id,
    topic,
    partition,
    number,
    base_offset,
    epoch,
    leader,
    replicas,
    write_quorum,
    fsync
});
fields!(Value { end, digest, successor, possible_loss, lost });

impl Field for FsyncSchedule {
    fn put(&self, to: &mut Vec<u8>) {
        self.to_number().put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        u64::take(from).map(Self::from_number)
    }
}

impl Field for Uuid {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend(self.as_bytes());
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let (bytes, rest) = from.split_first_chunk()?;
        *from = rest;
        Some(Self::from_bytes(*bytes))
    }
}

impl Field for bool {
    fn put(&self, to: &mut Vec<u8>) {
        u8::from(*self).put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        match u8::take(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<T: Field> Field for Box<T> {
    fn put(&self, to: &mut Vec<u8>) {
        (**self).put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        T::take(from).map(Self::new)
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.is_some().put(to);
        if let Some(value) = self {
            value.put(to);
        }
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        if bool::take(from)? { T::take(from).map(Some) } else { Some(None) }
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, to: &mut Vec<u8>) {
        u32::try_from(self.len()).expect("a segment has few replicas and losses").put(to);
        self.iter().for_each(|one| one.put(to));
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        // No memory is set aside for the count: a wrong one ends with the bytes.
        (0..u32::take(from)?).map(|_| T::take(from)).collect()
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, to: &mut Vec<u8>) {
        self.0.put(to);
        self.1.put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some((A::take(from)?, B::take(from)?))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A segment whose every field differs from the others'.
    pub(crate) fn descriptor(seed: u8) -> Descriptor {
        let uuid = |kind: u8| Uuid::from_bytes([seed, kind, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        let replica = |node: u8| ReplicaRef { node: NodeId(node.into()), disk: DiskId(uuid(node)) };
        Descriptor {
            id: SegmentId(uuid(0xa0)),
            topic: TopicId(uuid(0xb0)),
            partition: 7,
            number: 1 << 40,
            base_offset: seed.is_multiple_of(2).then_some(Offset(1 << 50)),
            epoch: Epoch(258),
            leader: LeaderRef { node: NodeId(1), process: ProcessId(uuid(0xc0)) },
            replicas: (1..=3).map(replica).collect(),
            write_quorum: 2,
            fsync: (!seed.is_multiple_of(2)).then_some(FsyncSchedule::NoFsync),
        }
    }

    #[test]
    fn a_record_comes_back_and_no_flipped_bit_and_no_cut_passes() {
        let key = "replica/1";
        let written = encode(key, &descriptor(2));
        assert_eq!(decode(key, &written), Ok(descriptor(2)));
        for bit in 0..written.len() * 8 {
            let mut flipped = written.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode::<Descriptor>(key, &flipped), Err(RecordError::Damaged), "bit {bit}");
        }
        for length in 0..written.len() {
            assert_eq!(
                decode::<Descriptor>(key, &written[..length]),
                Err(RecordError::Damaged),
                "{length} bytes"
            );
        }
    }

    #[test]
    fn a_record_of_another_segment_is_damage() {
        assert_eq!(
            decode::<Descriptor>("replica/2", &encode("replica/1", &descriptor(2))),
            Err(RecordError::Damaged)
        );
    }

    #[test]
    fn a_record_of_a_newer_program_is_told_by_its_version() {
        let mut body = encode("k", &descriptor(1));
        body.truncate(body.len() - CHECKSUM_BYTES);
        body[0] = 9;
        body.extend(checksum("k", &body).to_le_bytes());
        assert_eq!(decode::<Descriptor>("k", &body), Err(RecordError::OtherVersion { version: 9 }));
    }

    #[test]
    fn fields_that_do_not_fit_and_counts_beyond_the_bytes_are_refused() {
        let sealed = |fields: &[u8]| {
            let mut bytes = [&[VERSION], fields].concat();
            bytes.extend(checksum("k", &bytes).to_le_bytes());
            bytes
        };
        assert_eq!(decode::<bool>("k", &sealed(&[2])), Err(RecordError::Malformed));
        assert_eq!(decode::<bool>("k", &sealed(&[1, 0])), Err(RecordError::Malformed));
        assert_eq!(decode::<Vec<u64>>("k", &sealed(&u32::MAX.to_le_bytes())), Err(RecordError::Malformed));
    }
}
