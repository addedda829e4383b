//! Options of a data plane, parsed once from the host's JSON.

use std::path::PathBuf;

use serde::Deserialize;
use uuid::Uuid;

/// A config that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("invalid data plane config: {0}")]
pub struct ConfigError(String);

/// Options that stay as they are while the data plane lives.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The node's data directory; the store is in `log/` below it.
    pub data_dir: PathBuf,
    /// The cluster's identity.
    pub cluster_id: Uuid,
    /// This node's small integer.
    pub node_id: u32,
    /// Disk incarnation.
    pub disk: Uuid,
    /// Process incarnation.
    pub process: Uuid,
    /// `host:port` of the text protocol; port 0 is chosen.
    #[serde(default = "any_port")]
    pub text_address: String,
    /// `host:port` of gRPC.
    #[serde(default = "any_port")]
    pub grpc_address: String,
    /// `host:port` of the peer RPC.
    #[serde(default = "any_port")]
    pub peer_address: String,
    /// Host under which clients and peers reach this node; `None`: the bound one.
    #[serde(default)]
    pub advertise_host: Option<String>,
    /// `auto`, `mmap` or `direct`.
    #[serde(default = "auto")]
    pub backend: String,
    /// `each`, `never` or `<n>ms`.
    #[serde(default = "each")]
    pub fsync: String,
    /// Roll after so many records.
    #[serde(default = "segment_entries_max")]
    pub segment_entries_max: u64,
    /// Roll after so many bytes.
    #[serde(default = "segment_bytes_max")]
    pub segment_bytes_max: u64,
    /// Roll after so long; 0 = never by age.
    #[serde(default)]
    pub segment_age_ms_max: u64,
    /// How often ages and sizes of open segments are checked.
    #[serde(default = "monitor_check_ms")]
    pub monitor_check_ms: u64,
    /// Whether an append to an unknown topic creates it.
    #[serde(default = "yes")]
    pub auto_create_topics: bool,
    /// Longest request of the text protocol.
    #[serde(default = "frame_bytes_max")]
    pub frame_bytes_max: u32,
    /// Block size of a new store.
    #[serde(default)]
    pub log_block_bytes: Option<u64>,
    /// Blocks per file of a new store.
    #[serde(default)]
    pub log_blocks_per_file: Option<u32>,
    /// Opens the test-only controls.
    #[serde(default)]
    pub test_controls: bool,
}

impl Config {
    /// Parses the host's JSON; an unknown key is refused.
    pub fn parse(json: &str) -> Result<Self, ConfigError> {
        serde_json::from_str(json).map_err(|problem| ConfigError(problem.to_string()))
    }
}

fn any_port() -> String {
    "127.0.0.1:0".to_owned()
}

fn auto() -> String {
    "auto".to_owned()
}

fn each() -> String {
    "each".to_owned()
}

fn segment_entries_max() -> u64 {
    1_000_000
}

fn segment_bytes_max() -> u64 {
    1 << 30
}

fn monitor_check_ms() -> u64 {
    10_000
}

fn yes() -> bool {
    true
}

fn frame_bytes_max() -> u32 {
    65_536
}
