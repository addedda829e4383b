//! The messages between the parts of a shared cursor, as they go from node to node.

use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;
use uuid::Uuid;
use walrus_model::TopicId;

use super::progress::{CursorKey, Progress};
use super::reservation::{HolderId, Reservation};
use super::terms::{EntryRef, TopicRef};
use crate::cluster::segment::uuid_bytes;
use crate::node::error::{Error, Result};
use crate::node::names::{OrgName, TopicName, TopicPath};
use crate::node::proto::peer::{
    CursorAnswer, CursorEntry, CursorRequest, CursorReservation, CursorState, CursorTopic, cursor_answer,
    cursor_request,
};

/// What another node knows of a cursor when it hands a partition of `__cursors` over.
#[derive(Debug)]
pub(super) struct HandedCursor {
    pub(super) key: CursorKey,
    pub(super) progress: Progress,
    pub(super) reserved: Vec<(u64, Reservation)>,
}

pub(super) fn request_payload(request: cursor_request::Request) -> Bytes {
    CursorRequest { request: Some(request) }.encode_to_vec().into()
}

pub(super) fn decode_answer(payload: Bytes) -> Result<cursor_answer::Answer> {
    let answer =
        CursorAnswer::decode(payload).map_err(|problem| Error::Internal { message: problem.to_string() })?;
    answer.answer.ok_or_else(unexpected)
}

pub(super) fn unexpected() -> Error {
    Error::Internal { message: "a cursor message of a kind that does not belong here".to_owned() }
}

pub(super) fn topic_message(topic: &TopicRef) -> CursorTopic {
    let TopicPath { org, name } = &topic.path;
    CursorTopic { uuid: uuid_bytes(topic.id.0), name: name.to_string(), org: org.to_string() }
}

pub(super) fn topic_of(topic: Option<CursorTopic>) -> Result<TopicRef> {
    let topic = topic.unwrap_or_default();
    // Brokers that knew only the default organisation named none.
    let org = if topic.org.is_empty() { OrgName::default() } else { OrgName::parse(&topic.org)? };
    let path = TopicPath { org, name: TopicName::parse(&topic.name)? };
    Ok(TopicRef { id: TopicId(uuid_of(&topic.uuid)?), path })
}

pub(super) fn entry_message(entry: &EntryRef) -> CursorEntry {
    CursorEntry { partition: entry.partition, offset: entry.offset }
}

pub(super) fn entry_of(entry: &CursorEntry) -> EntryRef {
    EntryRef { partition: entry.partition, offset: entry.offset }
}

pub(super) fn entry_messages(entries: &[EntryRef]) -> Vec<CursorEntry> {
    entries.iter().map(entry_message).collect()
}

pub(super) fn entries_of(entries: &[CursorEntry]) -> Vec<EntryRef> {
    entries.iter().map(entry_of).collect()
}

pub(super) fn handed_cursor_message(HandedCursor { key, progress, reserved }: HandedCursor) -> CursorState {
    let now = Instant::now();
    let left_ms =
        |until: Instant| until.saturating_duration_since(now).as_millis().try_into().unwrap_or(u32::MAX);
    let reservation = |(offset, reservation): (u64, Reservation)| CursorReservation {
        offset,
        holder: uuid_bytes(reservation.holder.0),
        left_ms: left_ms(reservation.until),
    };
    let reserved = reserved.into_iter().map(reservation).collect();
    CursorState {
        topic: uuid_bytes(key.topic.0),
        partition: key.partition,
        progress: progress.encode().into(),
        reserved,
    }
}

/// The cursor that another node hands over; `None` for one in a form that this node cannot read, which is left out.
pub(super) fn handed_cursor_of(state: &CursorState) -> Option<HandedCursor> {
    let now = Instant::now();
    let key = CursorKey { topic: TopicId(uuid_of(&state.topic).ok()?), partition: state.partition };
    let reservation = |reserved: &CursorReservation| {
        let until = now + Duration::from_millis(reserved.left_ms.into());
        Some((reserved.offset, Reservation { holder: HolderId(uuid_of(&reserved.holder).ok()?), until }))
    };
    let reserved = state.reserved.iter().filter_map(reservation).collect();
    Some(HandedCursor { key, progress: Progress::decode(&state.progress).ok()?, reserved })
}

pub(super) fn uuid_of(bytes: &[u8]) -> Result<Uuid> {
    let malformed = |_| Error::InvalidRequest { problem: format!("a uuid of {} bytes", bytes.len()) };
    Uuid::from_slice(bytes).map_err(malformed)
}
