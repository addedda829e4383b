//! The one function that changes the metadata.

use serde::{Deserialize, Serialize};

use crate::command::Envelope;
use crate::model::Metadata;

/// What an applied command did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub struct Applied {
    /// Version of the metadata after it.
    pub version: u64,
}

/// Why a command was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Rejected {
    /// Not written yet.
    #[error("not applied")]
    Placeholder,
}

/// Applies one command; on `Err` nothing was changed.
pub fn apply(_metadata: &mut Metadata, _envelope: &Envelope) -> Result<Applied, Rejected> {
    Err(Rejected::Placeholder)
}
