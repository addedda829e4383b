//! Errors as answers between brokers bring them: with all their facts, so that a forwarded request fails at the client
//! exactly as it failed at the leader.

use bytes::Bytes;
use prost::Message as _;

use crate::node::error::Error;
use crate::node::obstacle::Obstacle;
use crate::node::proto::peer::ErrorAnswer;
use crate::node::proto::peer::error_answer::{self, Kind};

/// Both directions between [`Error`] and [`Kind`], whose fields have the same names and types but where told.
macro_rules! same_fields {
    ($($name:ident { $($field:ident),* })*) => {
        fn encode_kind(error: &Error) -> Option<Kind> {
            match error {
                $(Error::$name { $($field),* } => {
                    Some(Kind::$name(error_answer::$name { $($field: $field.clone()),* }))
                })*
                Error::ProducerFenced { producer_id, current, got } => {
                    let (producer_id, current, got) = (*producer_id, (*current).into(), (*got).into());
                    Some(Kind::ProducerFenced(error_answer::ProducerFenced { producer_id, current, got }))
                }
                // An obstacle goes as its text.
                Error::Unavailable { obstacle } => {
                    Some(Kind::Unavailable(error_answer::Unavailable { what: obstacle.to_string() }))
                }
                // A kind that this broker heard from a newer one and does not know, and those of requests that no broker sends on.
                Error::Foreign { .. }
                | Error::TopicDiffers { .. }
                | Error::UnknownGroup { .. }
                | Error::GroupHasMembers { .. }
                | Error::NotAllowed { .. }
                | Error::InvalidConfig { .. }
                | Error::VersionMismatch { .. } => None,
            }
        }

        fn decode_kind(kind: Kind) -> Option<Error> {
            match kind {
                $(Kind::$name(error_answer::$name { $($field),* }) => Some(Error::$name { $($field),* }),)*
                Kind::Unavailable(error_answer::Unavailable { what }) => {
                    Some(Obstacle::Told { words: what }.into())
                }
                Kind::ProducerFenced(error_answer::ProducerFenced { producer_id, current, got }) => {
                    let (current, got) = (current.try_into().ok()?, got.try_into().ok()?);
                    Some(Error::ProducerFenced { producer_id, current, got })
                }
            }
        }
    };
}

same_fields! {
    NotLeader { key, hint }
    UnknownTopic { topic }
    UnknownPartition { topic, partition, partitions }
    UnknownSegment { segment }
    InvalidTopic { topic, problem }
    TopicExists { topic, partitions, wanted }
    InvalidBatch { problem }
    InvalidTimestamp { timestamp_ms, oldest_ms, newest_ms }
    InvalidRequest { problem }
    OutOfOrderSequence { producer_id, expected, got }
    TooManyProducers { producers_max }
    OffsetOutOfRange { requested, start, end }
    TooLarge { what, bytes, bytes_max }
    Timeout { what, waited_ms }
    OutcomeUnknown { what }
    NoSpace { node }
    Corrupted { node, key, start, end }
    DataLoss { key, start, end }
    Storage { node, message }
    Internal { message }
}

/// The payload of an answer that is an error.
pub(crate) fn encode_error(error: &Error) -> Bytes {
    let answer = ErrorAnswer {
        reason: error.reason().to_owned(),
        message: error.to_string(),
        retryable: error.retryable(),
        kind: encode_kind(error),
    };
    answer.encode_to_vec().into()
}

/// The error that an answer brings. One of a kind that only a newer broker knows keeps its reason and its words.
pub(crate) fn decode_error(payload: Bytes) -> Error {
    let Ok(ErrorAnswer { reason, message, retryable, kind }) = ErrorAnswer::decode(payload) else {
        return Error::Internal { message: "a peer's error is not understood".to_owned() };
    };
    kind.and_then(decode_kind).unwrap_or(Error::Foreign { reason, message, retryable })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_crosses_the_wire_with_its_facts() {
        let text = |text: &str| text.to_owned();
        for error in [
            Error::NotLeader { key: text("k"), hint: Some(0) },
            Error::NotLeader { key: text("k"), hint: None },
            Error::UnknownTopic { topic: text("t") },
            Error::UnknownPartition { topic: text("t"), partition: 1, partitions: 2 },
            Error::UnknownSegment { segment: text("s") },
            Error::InvalidTopic { topic: text("t"), problem: text("p") },
            Error::TopicExists { topic: text("t"), partitions: 1, wanted: 2 },
            Error::InvalidBatch { problem: text("p") },
            Error::InvalidTimestamp { timestamp_ms: -5, oldest_ms: i64::MIN, newest_ms: i64::MAX },
            Error::InvalidRequest { problem: text("p") },
            Error::OutOfOrderSequence { producer_id: 3, expected: 4, got: -7 },
            Error::ProducerFenced { producer_id: i64::MAX, current: i16::MAX, got: i16::MIN },
            Error::TooManyProducers { producers_max: u64::MAX },
            Error::OffsetOutOfRange { requested: 1, start: 2, end: 3 },
            Error::TooLarge { what: text("w"), bytes: 1, bytes_max: 2 },
            Obstacle::Told { words: text("w") }.into(),
            Error::Timeout { what: text("w"), waited_ms: 5 },
            Error::OutcomeUnknown { what: text("w") },
            Error::NoSpace { node: 1 },
            Error::Corrupted { node: 1, key: text("k"), start: 2, end: 3 },
            Error::DataLoss { key: text("k"), start: 2, end: 3 },
            Error::Storage { node: 1, message: text("m") },
            Error::Foreign { reason: text("r"), message: text("m"), retryable: true },
            Error::Internal { message: text("m") },
        ] {
            assert_eq!(decode_error(encode_error(&error)), error);
        }
    }

    #[test]
    fn an_error_that_is_not_known_here_keeps_its_name_and_one_that_is_no_error_is_told() {
        let answer = |kind| ErrorAnswer {
            reason: "Throttled".to_owned(),
            message: "slow down".to_owned(),
            retryable: true,
            kind,
        };
        let impossible = error_answer::ProducerFenced { producer_id: 1, current: 1 << 20, got: 1 };
        for kind in [None, Some(Kind::ProducerFenced(impossible))] {
            let error = decode_error(answer(kind).encode_to_vec().into());
            assert!(error.retryable());
            assert_eq!((error.reason(), error.to_string().as_str()), ("Throttled", "slow down"));
        }
        assert_eq!(decode_error(Bytes::from_static(b"\xff\xff")).reason(), "Internal");
    }
}
