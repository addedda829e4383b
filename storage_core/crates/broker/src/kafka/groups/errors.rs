//! The refusals of groups in Kafka's words.

use kafka_protocol::ResponseError;
use walrus_groups::Refusal;

use crate::node::error::Error;
use crate::node::obstacle::Obstacle;

/// Why a group does not do what a client asks.
pub(super) fn of_refusal(refusal: &Refusal) -> ResponseError {
    match refusal {
        Refusal::UnknownMember => ResponseError::UnknownMemberId,
        Refusal::IllegalGeneration => ResponseError::IllegalGeneration,
        Refusal::RebalanceInProgress => ResponseError::RebalanceInProgress,
        Refusal::FencedInstance => ResponseError::FencedInstanceId,
        Refusal::InconsistentProtocol => ResponseError::InconsistentGroupProtocol,
        Refusal::InvalidSessionTimeout => ResponseError::InvalidSessionTimeout,
        Refusal::MemberIdRequired(_) => ResponseError::MemberIdRequired,
        Refusal::GroupFull => ResponseError::GroupMaxSizeReached,
        Refusal::NonEmpty => ResponseError::NonEmptyGroup,
        Refusal::TooLarge => ResponseError::MessageTooLarge,
        Refusal::NotCoordinator => ResponseError::NotCoordinator,
    }
}

/// Why a group was not asked: the client looks for the coordinator, or comes again.
pub(super) fn of_coordinator(error: &Error) -> ResponseError {
    match error {
        // Metadata that do not know the topic of groups yet do not know either who coordinates one.
        Error::NotLeader { .. } | Error::UnknownTopic { .. } => ResponseError::NotCoordinator,
        Error::Unavailable { obstacle: Obstacle::TakingOver { .. } } => {
            ResponseError::CoordinatorLoadInProgress
        }
        other if other.retryable() => ResponseError::CoordinatorNotAvailable,
        _ => ResponseError::UnknownServerError,
    }
}
