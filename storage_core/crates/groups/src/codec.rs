//! The records of groups as bytes, as they lie in the log of their coordinator: one record for a group, and one for each place whose
//! offset it has committed. A later record of a key replaces an earlier one, and one without a value takes the key out.
//!
//! Key: kind (u8: 0 says nothing, 1 a group, 2 a committed offset), length of the organisation's name (u8), the name, length of the
//! group's (u16), the name; of an offset also the topic's uuid (16, big-endian) and the partition (u32).
//! Value: version (u8), then the fields in the order of [`GroupRecord`] and [`MemberRecord`], or of [`Committed`]. Numbers are
//! little-endian; text has a length of 16 bits in front, other bytes one of 32; what may be missing has a byte in front, 0 or 1.

use bytes::{Buf, BufMut, Bytes};
use walrus_model::TopicId;

use crate::offsets::{Committed, Place};
use crate::record::{GroupRecord, MemberRecord};

/// Version of the values that this code writes, and the highest that it reads.
const VERSION: u8 = 1;
const NOTHING: u8 = 0;
const GROUP: u8 = 1;
const OFFSET: u8 = 2;
/// Least bytes of a member.
const MEMBER_BYTES_MIN: usize = 33;

/// A group: its organisation, and its name there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName {
    /// The organisation, whose name has at most 255 bytes.
    pub org: String,
    /// The name, which has at most 65,535 bytes.
    pub name: String,
}

/// What a record is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A record that says nothing.
    Nothing,
    /// A group.
    Group(GroupName),
    /// An offset that a group has committed.
    Offset(GroupName, Place),
}

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It is of a version that this code does not know.
    Version(u8),
    /// It is of a kind that this code does not know.
    Kind(u8),
    /// It is not what it should be.
    Malformed(&'static str),
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Version(version) => {
                write!(
                    f,
                    "a group's record of version {version}; this node reads up to {VERSION}: upgrade it"
                )
            }
            Self::Kind(kind) => {
                write!(f, "a group's record of kind {kind}, which this node does not know: upgrade it")
            }
            Self::Malformed(what) => write!(f, "a group's record is malformed: {what}"),
        }
    }
}

impl Key {
    /// The key as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, group) = match self {
            Self::Nothing => return vec![NOTHING],
            Self::Group(group) => (GROUP, group),
            Self::Offset(group, _) => (OFFSET, group),
        };
        let mut key =
            vec![kind, u8::try_from(group.org.len()).expect("the name of an organisation is short")];
        key.put_slice(group.org.as_bytes());
        put_text(&mut key, &group.name);
        if let Self::Offset(_, place) = self {
            key.put_slice(place.topic.as_bytes());
            key.put_u32_le(place.partition);
        }
        key
    }

    /// The key that these bytes are.
    pub fn decode(key: &[u8]) -> Result<Self, Unreadable> {
        let mut reader = Reader(key);
        let kind = reader.u8()?;
        if kind == NOTHING {
            return Ok(Self::Nothing);
        }
        if kind > OFFSET {
            return Err(Unreadable::Kind(kind));
        }
        let length = reader.u8()?;
        let org = reader.text_of(length.into())?;
        let group = GroupName { org, name: reader.text()? };
        let decoded = if kind == GROUP {
            Self::Group(group)
        } else {
            let topic = TopicId::from_slice(reader.take(16)?).ok_or(Unreadable::Malformed("a uuid"))?;
            Self::Offset(group, Place { topic, partition: reader.u32()? })
        };
        reader.end()?;
        Ok(decoded)
    }
}

impl GroupRecord {
    /// The record's value as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = vec![VERSION];
        value.put_i32_le(self.generation);
        put_text(&mut value, &self.protocol_type);
        put_text(&mut value, &self.protocol);
        put_text(&mut value, &self.leader);
        value.put_u32_le(u32::try_from(self.members.len()).expect("a group has a limit of members"));
        for member in &self.members {
            put_text(&mut value, &member.id);
            value.put_u8(u8::from(member.instance.is_some()));
            if let Some(instance) = &member.instance {
                put_text(&mut value, instance);
            }
            put_text(&mut value, &member.client_id);
            put_text(&mut value, &member.host);
            value.put_u64_le(member.session_timeout_ms);
            value.put_u64_le(member.rebalance_timeout_ms);
            put_bytes(&mut value, &member.subscription);
            put_bytes(&mut value, &member.share);
        }
        value
    }

    /// The record whose value these bytes are.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut reader = Reader::of_version(value)?;
        let generation = reader.u32()?.cast_signed();
        let (protocol_type, protocol, leader) = (reader.text()?, reader.text()?, reader.text()?);
        let count = reader.u32()? as usize;
        if count > reader.0.len() / MEMBER_BYTES_MIN {
            return Err(Unreadable::Malformed("it has more members than there are bytes"));
        }
        let mut members = Vec::with_capacity(count);
        for _ in 0..count {
            members.push(MemberRecord {
                id: reader.text()?,
                instance: if reader.u8()? == 0 { None } else { Some(reader.text()?) },
                client_id: reader.text()?,
                host: reader.text()?,
                session_timeout_ms: reader.u64()?,
                rebalance_timeout_ms: reader.u64()?,
                subscription: reader.bytes()?,
                share: reader.bytes()?,
            });
        }
        reader.end()?;
        Ok(Self { generation, protocol_type, protocol, leader, members })
    }
}

impl Committed {
    /// The record's value as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = vec![VERSION];
        value.put_i64_le(self.offset);
        value.put_i32_le(self.leader_epoch);
        put_text(&mut value, &self.metadata);
        value
    }

    /// The record whose value these bytes are.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut reader = Reader::of_version(value)?;
        let (offset, leader_epoch) = (reader.u64()?.cast_signed(), reader.u32()?.cast_signed());
        let committed = Self { offset, leader_epoch, metadata: reader.text()? };
        reader.end()?;
        Ok(committed)
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.put_u16_le(u16::try_from(text.len()).expect("requests hold no longer text"));
    bytes.put_slice(text.as_bytes());
}

fn put_bytes(bytes: &mut Vec<u8>, more: &[u8]) {
    bytes.put_u32_le(u32::try_from(more.len()).expect("a request is not that long"));
    bytes.put_slice(more);
}

/// The bytes of a record that are not read yet.
struct Reader<'a>(&'a [u8]);

const CUT_OFF: Unreadable = Unreadable::Malformed("it is cut off");

impl<'a> Reader<'a> {
    fn of_version(value: &'a [u8]) -> Result<Self, Unreadable> {
        let mut reader = Self(value);
        match reader.u8()? {
            VERSION => Ok(reader),
            other => Err(Unreadable::Version(other)),
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Unreadable> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(CUT_OFF)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, Unreadable> {
        self.0.try_get_u8().map_err(|_| CUT_OFF)
    }

    fn u32(&mut self) -> Result<u32, Unreadable> {
        self.0.try_get_u32_le().map_err(|_| CUT_OFF)
    }

    fn u64(&mut self) -> Result<u64, Unreadable> {
        self.0.try_get_u64_le().map_err(|_| CUT_OFF)
    }

    fn text(&mut self) -> Result<String, Unreadable> {
        let length = self.0.try_get_u16_le().map_err(|_| CUT_OFF)?;
        self.text_of(length.into())
    }

    fn text_of(&mut self, length: usize) -> Result<String, Unreadable> {
        let text = std::str::from_utf8(self.take(length)?);
        text.map(str::to_owned).map_err(|_| Unreadable::Malformed("a text is not UTF-8"))
    }

    fn bytes(&mut self) -> Result<Bytes, Unreadable> {
        let length = self.u32()? as usize;
        Ok(Bytes::copy_from_slice(self.take(length)?))
    }

    fn end(&self) -> Result<(), Unreadable> {
        if self.0.is_empty() { Ok(()) } else { Err(Unreadable::Malformed("something is behind its end")) }
    }
}
