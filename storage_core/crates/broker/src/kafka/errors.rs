//! The errors of this broker in Kafka's words, chosen by what clients do then: where nothing was done and the same request may
//! succeed later, they refresh their metadata and try again.

use kafka_protocol::ResponseError;

use crate::node::error::Error;

/// The error of an append, or of another change.
pub(super) fn of_change(error: &Error) -> ResponseError {
    match error {
        Error::Timeout { .. } => ResponseError::RequestTimedOut,
        Error::OutcomeUnknown { .. } => ResponseError::NotEnoughReplicasAfterAppend,
        Error::Unavailable { .. }
        | Error::TooManyProducers { .. }
        | Error::Foreign { retryable: true, .. } => ResponseError::NotEnoughReplicas,
        Error::Foreign { .. } => ResponseError::PolicyViolation,
        other => of_read(other),
    }
}

/// The error of a read. Java's consumer ends at any error of a fetch that it does not expect there, as
/// LEADER_NOT_AVAILABLE.
pub(super) fn of_read(error: &Error) -> ResponseError {
    match error {
        Error::UnknownTopic { .. } | Error::UnknownPartition { .. } | Error::UnknownSegment { .. } => {
            ResponseError::UnknownTopicOrPartition
        }
        Error::InvalidTopic { .. } => ResponseError::InvalidTopicException,
        Error::TopicExists { .. } | Error::TopicDiffers { .. } => ResponseError::TopicAlreadyExists,
        Error::UnknownGroup { .. } => ResponseError::GroupIdNotFound,
        Error::GroupHasMembers { .. } => ResponseError::NonEmptyGroup,
        Error::NotAllowed { .. } => ResponseError::ClusterAuthorizationFailed,
        Error::InvalidConfig { .. } => ResponseError::InvalidConfig,
        Error::InvalidBatch { .. } => ResponseError::InvalidRecord,
        Error::InvalidTimestamp { .. } => ResponseError::InvalidTimestamp,
        Error::InvalidRequest { .. } | Error::VersionMismatch { .. } => ResponseError::InvalidRequest,
        Error::OutOfOrderSequence { .. } => ResponseError::OutOfOrderSequenceNumber,
        Error::ProducerFenced { .. } => ResponseError::InvalidProducerEpoch,
        Error::OffsetOutOfRange { .. } => ResponseError::OffsetOutOfRange,
        Error::TooLarge { .. } => ResponseError::MessageTooLarge,
        Error::NoSpace { .. } | Error::Corrupted { .. } | Error::Storage { .. } => {
            ResponseError::KafkaStorageError
        }
        Error::DataLoss { .. } => ResponseError::CorruptMessage,
        Error::NotLeader { .. }
        | Error::Unavailable { .. }
        | Error::Timeout { .. }
        | Error::OutcomeUnknown { .. }
        | Error::TooManyProducers { .. }
        | Error::Foreign { retryable: true, .. } => ResponseError::NotLeaderOrFollower,
        Error::Foreign { .. } | Error::Internal { .. } => ResponseError::UnknownServerError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::obstacle::Obstacle;

    /// An append whose outcome is unknown was told as a time-out once, by other brokers: a client that sends it again then
    /// does not know that it may be there twice.
    #[test]
    fn what_may_have_been_done_is_told_apart_from_what_was_not() {
        let what = || "t".to_owned();
        for (error, code) in [
            (Error::OutcomeUnknown { what: what() }, 20),
            (Error::Timeout { what: what(), waited_ms: 1 }, 7),
            (Obstacle::Rolling.into(), 19),
            (Error::OutOfOrderSequence { producer_id: 1, expected: 2, got: 3 }, 45),
            (Error::ProducerFenced { producer_id: 1, current: 2, got: 1 }, 47),
            (Error::TooLarge { what: what(), bytes: 2, bytes_max: 1 }, 10),
        ] {
            assert_eq!(of_change(&error).code(), code, "{error}");
        }
    }

    #[test]
    fn a_reader_is_sent_to_look_again_where_nothing_is_lost() {
        for (error, code) in [
            (Error::from(Obstacle::LeaderLost), 6),
            (Error::OffsetOutOfRange { requested: 1, start: 2, end: 3 }, 1),
            (Error::Corrupted { node: 1, key: "t".to_owned(), start: 0, end: 1 }, 56),
            (Error::DataLoss { key: "t".to_owned(), start: 0, end: 1 }, 2),
        ] {
            assert_eq!(of_read(&error).code(), code, "{error}");
        }
    }
}
