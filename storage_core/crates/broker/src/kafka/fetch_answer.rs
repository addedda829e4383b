//! The answer to a fetch as it leaves: its few fields, and between them the batches where the log's reader has put them. The
//! codec would copy all of them into one buffer.

use bytes::{BufMut as _, Bytes, BytesMut};
use kafka_protocol::messages::TopicName;

use super::answer::{self, Answer};
use super::fetched::Fetched;
use super::frame::{Header, LENGTH_BYTES};
use crate::node::error::{Error, Result};

/// Smaller batches are copied behind each other: a piece of its own costs more than the copy.
const PIECE_BYTES_MIN: usize = 16 << 10;
/// First version with compact lengths and tagged fields.
const FLEXIBLE_SINCE: i16 = 12;

/// The answer, by topic. Sessions are not kept, which id 0 says. `lists_aborted` if the client wants to know which transactions were
/// aborted: there are none.
pub(super) fn encode(
    header: Header,
    topics: &[(TopicName, Vec<Fetched>)],
    lists_aborted: bool,
) -> Result<Answer> {
    let mut out = Writer { version: header.version, own: BytesMut::new(), pieces: Vec::new() };
    let is_flexible = out.is_flexible();
    answer::begin(&mut out.own, header.correlation, is_flexible);
    out.own.put_i32(0); // throttled for no time
    if header.version >= 7 {
        out.own.put_i16(0);
        out.own.put_i32(0); // the session
    }
    out.count(topics.len());
    for (name, partitions) in topics {
        out.text(name)?;
        out.count(partitions.len());
        for found in partitions {
            out.partition(found, lists_aborted)?;
        }
        out.end_of_struct();
    }
    out.end_of_struct();
    out.finish()
}

struct Writer {
    version: i16,
    own: BytesMut,
    pieces: Vec<Bytes>,
}

impl Writer {
    fn is_flexible(&self) -> bool {
        self.version >= FLEXIBLE_SINCE
    }

    fn partition(&mut self, found: &Fetched, lists_aborted: bool) -> Result<()> {
        self.own.put_i32(found.index);
        self.own.put_i16(found.error.map_or(0, |error| error.code()));
        self.own.put_i64(found.high_watermark);
        self.own.put_i64(found.high_watermark); // the last stable offset: nothing is ever undecided
        if self.version >= 5 {
            self.own.put_i64(found.log_start);
        }
        match (lists_aborted, self.is_flexible()) {
            (true, _) => self.count(0),
            (false, true) => self.own.put_u8(0),
            (false, false) => self.own.put_i32(-1),
        }
        if self.version >= 11 {
            self.own.put_i32(-1); // no replica is preferred
        }
        // Without batches it has length 0 and is there: librdkafka takes none at all for an error.
        let bytes = i32::try_from(found.bytes).map_err(|_| too_long())?;
        if self.is_flexible() {
            self.varint(bytes.unsigned_abs() + 1)
        } else {
            self.own.put_i32(bytes)
        }
        for piece in &found.pieces {
            if piece.len() < PIECE_BYTES_MIN {
                self.own.extend_from_slice(piece);
            } else {
                self.pieces.push(self.own.split().freeze());
                self.pieces.push(piece.clone());
            }
        }
        match found.leader {
            Some((node, epoch)) if self.is_flexible() => self.leader(node, epoch),
            _ => self.end_of_struct(),
        }
        Ok(())
    }

    /// The end of a partition's fields, with one more that is tagged: the leader and its epoch.
    fn leader(&mut self, node: u32, epoch: i32) {
        const CURRENT_LEADER: u8 = 1;
        self.own.put_u8(1);
        self.own.put_u8(CURRENT_LEADER);
        self.own.put_u8(4 + 4 + 1); // bytes of the field
        self.own.put_i32(i32::try_from(node).unwrap_or(i32::MAX));
        self.own.put_i32(epoch);
        self.end_of_struct();
    }

    fn text(&mut self, text: &str) -> Result<()> {
        let length = i16::try_from(text.len()).map_err(|_| too_long())?;
        if self.is_flexible() {
            self.varint(u32::from(length.unsigned_abs()) + 1);
        } else {
            self.own.put_i16(length);
        }
        self.own.put_slice(text.as_bytes());
        Ok(())
    }

    /// The number of elements of an array; requests have far fewer than 2^31.
    fn count(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if self.is_flexible() { self.varint(count.saturating_add(1)) } else { self.own.put_u32(count) }
    }

    fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.own.put_u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.own.put_u8((value & 0x7f) as u8);
    }

    fn end_of_struct(&mut self) {
        if self.is_flexible() {
            self.own.put_u8(0); // no tagged fields
        }
    }

    fn finish(mut self) -> Result<Answer> {
        self.pieces.push(self.own.freeze());
        let length = self.pieces.iter().map(Bytes::len).sum::<usize>() - LENGTH_BYTES;
        let length = i32::try_from(length).map_err(|_| too_long())?;
        let mut first = BytesMut::from(&self.pieces[0][..]);
        first[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        self.pieces[0] = first.freeze();
        Ok(Answer { pieces: self.pieces })
    }
}

fn too_long() -> Error {
    Error::Internal { message: "the answer to a fetch is longer than a frame can be".to_owned() }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::ResponseError;
    use kafka_protocol::messages::{FetchResponse, ResponseHeader};
    use kafka_protocol::protocol::{Decodable as _, HeaderVersion as _, StrBytes};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is written here is what the codec reads, in every version that is served.
        #[test]
        fn an_answer_in_pieces_is_the_message_of_the_codec(
            sizes in proptest::collection::vec(
                proptest::collection::vec(prop_oneof![0usize..100, 16_000usize..17_000], 0..4), 0..4),
            version in 4i16..=12,
            lists_aborted: bool,
        ) {
            let header = Header { api: 1, version, correlation: 77 };
            let found = |(index, sizes): (usize, &Vec<usize>)| {
                let mut found = Fetched::nothing(i32::try_from(index).unwrap());
                found.pieces = sizes.iter().map(|size| Bytes::from(vec![7; *size])).collect();
                found.bytes = sizes.iter().sum();
                found.high_watermark = 9;
                found.error = (index == 1).then_some(ResponseError::OffsetOutOfRange);
                found.leader = (index == 2).then_some((3, 300));
                found
            };
            let name = TopicName(StrBytes::from_static_str("topic"));
            let partitions: Vec<Fetched> = sizes.iter().enumerate().map(found).collect();
            let topics = vec![(name.clone(), partitions)];
            let answer = encode(header, &topics, lists_aborted).unwrap();
            let mut bytes = Bytes::from(answer.pieces.concat());
            let length = bytes.split_to(4);
            prop_assert_eq!(i32::from_be_bytes(length[..].try_into().unwrap()) as usize, bytes.len());
            let front = ResponseHeader::decode(&mut bytes, FetchResponse::header_version(version)).unwrap();
            prop_assert_eq!(front.correlation_id, 77);
            let response = FetchResponse::decode(&mut bytes, version).unwrap();
            prop_assert!(bytes.is_empty());
            prop_assert_eq!((response.session_id, response.error_code), (0, 0));
            prop_assert_eq!(&response.responses[0].topic, &name);
            for (row, found) in response.responses[0].partitions.iter().zip(&topics[0].1) {
                prop_assert_eq!(row.records.as_ref().unwrap(), &found.pieces.concat());
                prop_assert_eq!(row.error_code, found.error.map_or(0, |error| error.code()));
                prop_assert_eq!((row.high_watermark, row.last_stable_offset), (9, 9));
                prop_assert_eq!(row.aborted_transactions.is_some(), lists_aborted);
                prop_assert_eq!(row.preferred_read_replica.0, -1);
                let told = (row.current_leader.leader_id.0, row.current_leader.leader_epoch);
                let is_told = row.partition_index == 2 && version >= 12;
                prop_assert_eq!(told, if is_told { (3, 300) } else { (-1, -1) });
            }
        }
    }

    #[test]
    fn a_large_batch_is_handed_on_where_it_lies() {
        let batch = Bytes::from(vec![7; PIECE_BYTES_MIN]);
        let mut found = Fetched::nothing(0);
        (found.pieces, found.bytes) = (vec![batch.clone()], batch.len());
        let header = Header { api: 1, version: 12, correlation: 1 };
        let answer = encode(header, &[(TopicName::default(), vec![found])], false).unwrap();
        assert!(answer.pieces.iter().any(|piece| piece.as_ptr() == batch.as_ptr()));
    }
}
