//! What the host, which proposes commands to the metadata, answers instead of an outcome.

use serde::Deserialize;

use crate::node::error::Error;

/// The host's refusal, or its failure to learn an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Refusal {
    /// Stable name.
    pub(crate) reason: String,
    /// For people.
    #[serde(default)]
    pub(crate) message: String,
    /// Whether the same request may succeed later.
    #[serde(default)]
    pub(crate) retryable: bool,
}

impl Refusal {
    /// Nobody could be asked, or answered in time.
    pub(crate) fn unavailable(message: &str) -> Self {
        Self { reason: "Unavailable".to_owned(), message: message.to_owned(), retryable: true }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let Refusal { reason, message, retryable } = refusal;
        match (reason.as_str(), retryable) {
            ("OutcomeUnknown" | "Unknown", _) => Self::OutcomeUnknown { what: message },
            (_, true) => Self::Unavailable { what: message },
            _ => Self::Foreign { reason, message, retryable },
        }
    }
}
