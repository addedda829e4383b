//! How errors look in gRPC: a standard code, google.rpc details, and our own `walrus.v1.Error` in a trailer.

use std::collections::HashMap;

use prost::Message as _;
use serde_json::Value;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::node::error::Error;
use crate::node::patience;
use crate::node::proto::v1;

/// Trailer with an encoded `walrus.v1.Error`.
const ERROR_TRAILER: &str = "walrus-error-bin";
/// `ErrorInfo.domain`.
const DOMAIN: &str = "walrus.dev";

/// The status of a failed call.
pub(super) fn status_of(error: &Error) -> Status {
    let mut details = ErrorDetails::with_error_info(error.reason(), DOMAIN, facts_of(error));
    if error.retryable() {
        details.set_retry_info(Some(patience::CLIENT_RETRY));
    }
    let mut trailers = MetadataMap::new();
    let encoded = error_message(error).encode_to_vec();
    trailers.insert_bin(ERROR_TRAILER, MetadataValue::from_bytes(&encoded));
    Status::with_error_details_and_metadata(code_of(error), error.to_string(), details, trailers)
}

/// The error of one append in a stream that goes on.
pub(super) fn error_message(error: &Error) -> v1::Error {
    v1::Error {
        code: code_of(error).into(),
        reason: error.reason().to_owned(),
        message: error.to_string(),
        retryable: error.retryable(),
        facts: facts_of(error),
    }
}

/// The fields of the error as text, by their names.
fn facts_of(error: &Error) -> HashMap<String, String> {
    // The derived form of an enum: {"Kind": {"field": value, ..}}.
    let Ok(Value::Object(kind)) = serde_json::to_value(error) else { return HashMap::new() };
    let fields = kind.into_iter().filter_map(|(_, fields)| match fields {
        Value::Object(fields) => Some(fields),
        _ => None,
    });
    fields
        .flatten()
        .filter_map(|(name, value)| match value {
            Value::Null => None,
            Value::String(text) => Some((name, text)),
            value => Some((name, value.to_string())),
        })
        .collect()
}

fn code_of(error: &Error) -> Code {
    match error {
        Error::NotLeader { .. } | Error::Unavailable { .. } => Code::Unavailable,
        Error::UnknownTopic { .. } | Error::UnknownPartition { .. } | Error::UnknownSegment { .. } => {
            Code::NotFound
        }
        Error::UnknownGroup { .. } => Code::NotFound,
        Error::InvalidTopic { .. }
        | Error::InvalidBatch { .. }
        | Error::InvalidTimestamp { .. }
        | Error::InvalidRequest { .. }
        | Error::InvalidConfig { .. }
        | Error::TooLarge { .. } => Code::InvalidArgument,
        Error::TopicExists { .. } | Error::TopicDiffers { .. } => Code::AlreadyExists,
        Error::NotAllowed { .. } => Code::PermissionDenied,
        Error::VersionMismatch { .. } => Code::Aborted,
        Error::OutOfOrderSequence { .. } | Error::ProducerFenced { .. } | Error::GroupHasMembers { .. } => {
            Code::FailedPrecondition
        }
        Error::OffsetOutOfRange { .. } => Code::OutOfRange,
        Error::Timeout { .. } => Code::DeadlineExceeded,
        Error::OutcomeUnknown { .. } => Code::Unknown,
        Error::NoSpace { .. } | Error::TooManyProducers { .. } => Code::ResourceExhausted,
        Error::Corrupted { .. } | Error::DataLoss { .. } => Code::DataLoss,
        Error::Foreign { retryable: true, .. } => Code::Unavailable,
        Error::Foreign { .. } => Code::Unknown,
        Error::Storage { .. } | Error::Internal { .. } => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::obstacle::Obstacle;

    #[test]
    fn every_kind_of_error_has_its_code_its_reason_and_its_words() {
        let text = || "t".to_owned();
        for (error, code) in [
            (Error::NotLeader { key: text(), hint: None }, Code::Unavailable),
            (Error::UnknownTopic { topic: text() }, Code::NotFound),
            (Error::UnknownPartition { topic: text(), partition: 1, partitions: 1 }, Code::NotFound),
            (Error::UnknownSegment { segment: text() }, Code::NotFound),
            (Error::InvalidTopic { topic: text(), problem: text() }, Code::InvalidArgument),
            (Error::TopicExists { topic: text(), partitions: 1, wanted: 2 }, Code::AlreadyExists),
            (Error::TopicDiffers { topic: text() }, Code::AlreadyExists),
            (Error::InvalidConfig { key: text(), problem: text() }, Code::InvalidArgument),
            (Error::UnknownGroup { group: text() }, Code::NotFound),
            (Error::GroupHasMembers { group: text() }, Code::FailedPrecondition),
            (Error::NotAllowed { operation: text() }, Code::PermissionDenied),
            (Error::VersionMismatch { expected: 1, current: 2 }, Code::Aborted),
            (Error::InvalidBatch { problem: text() }, Code::InvalidArgument),
            (Error::InvalidTimestamp { timestamp_ms: 1, oldest_ms: 2, newest_ms: 3 }, Code::InvalidArgument),
            (Error::InvalidRequest { problem: text() }, Code::InvalidArgument),
            (Error::OutOfOrderSequence { producer_id: 1, expected: 2, got: 3 }, Code::FailedPrecondition),
            (Error::ProducerFenced { producer_id: 1, current: 2, got: 1 }, Code::FailedPrecondition),
            (Error::OffsetOutOfRange { requested: 1, start: 2, end: 3 }, Code::OutOfRange),
            (Error::TooLarge { what: text(), bytes: 2, bytes_max: 1 }, Code::InvalidArgument),
            (Obstacle::Told { words: text() }.into(), Code::Unavailable),
            (Error::Timeout { what: text(), waited_ms: 1 }, Code::DeadlineExceeded),
            (Error::OutcomeUnknown { what: text() }, Code::Unknown),
            (Error::NoSpace { node: 1 }, Code::ResourceExhausted),
            (Error::TooManyProducers { producers_max: 1 }, Code::ResourceExhausted),
            (Error::Corrupted { node: 1, key: text(), start: 0, end: 1 }, Code::DataLoss),
            (Error::DataLoss { key: text(), start: 0, end: 1 }, Code::DataLoss),
            (Error::Storage { node: 1, message: text() }, Code::Internal),
            (Error::Foreign { reason: text(), message: text(), retryable: true }, Code::Unavailable),
            (Error::Internal { message: text() }, Code::Internal),
        ] {
            let status = status_of(&error);
            assert_eq!(status.code(), code, "{error:?}");
            assert_eq!(status.message(), error.to_string());
            let details = status.get_error_details();
            assert_eq!(details.error_info().map(|info| info.reason.as_str()), Some(error.reason()));
            assert_eq!(details.retry_info().is_some(), error.retryable());
            let facts = &error_message(&error).facts;
            assert_eq!(details.error_info().map(|info| &info.metadata), Some(facts));
            if let Error::OffsetOutOfRange { requested, start, end } = &error {
                for (name, value) in [("requested", requested), ("start", start), ("end", end)] {
                    assert_eq!(facts.get(name), Some(&value.to_string()));
                }
            }
            let trailer = status.metadata().get_bin(ERROR_TRAILER).unwrap().to_bytes().unwrap();
            assert_eq!(v1::Error::decode(trailer).unwrap(), error_message(&error));
        }
    }
}
