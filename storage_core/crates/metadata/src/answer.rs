//! What a command that was applied tells its proposer.

use serde::{Deserialize, Serialize};
use walrus_model::NodeId;

/// The outcome of a command that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Version of the metadata after it.
    pub version: u64,
    /// The command's result, for its proposer.
    pub answer: Answer,
}

/// The result of a command, where there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// There is nothing to tell.
    Nothing,
    /// `RegisterNode`, `DrainNode`, `RemoveNode`: the node's id.
    Node(NodeId),
    /// `SetConfig`: version of the settings after it.
    Config {
        /// The new [`crate::ClusterConfig::version`].
        version: u64,
    },
}
