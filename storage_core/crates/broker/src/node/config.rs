//! Options of a data plane, parsed once from the host's JSON.

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use uuid::Uuid;
use walrus_log::Options;
use walrus_metadata::rolling::Limits;
use walrus_model::{DiskId, FsyncSchedule, NoSchedule, ProcessId};

use crate::node::budget;
use crate::node::listener_options::ListenerOptions;
use crate::node::spans::SpanOptions;
use crate::node::strangers::{Caps, Silence};
use crate::node::versions::WireVersions;

/// Limit on the threads that serve clients and peers.
const WORKERS_MAX: usize = 256;
/// Limit on the threads that are started unless configured, however many cores there are.
const WORKERS_DEFAULT_MAX: usize = 16;

/// A config that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("invalid data plane config: {0}")]
pub struct ConfigError(String);

impl ConfigError {
    pub(crate) fn new(problem: &str) -> Self {
        Self(problem.to_owned())
    }
}

/// Options that stay as they are while the data plane lives.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The node's data directory; the store is in `log/` below it.
    pub data_dir: PathBuf,
    /// Id of the cluster.
    pub cluster_id: Uuid,
    /// Id of this node, a small integer.
    pub node_id: u32,
    /// Id of this incarnation of the disk.
    pub disk: DiskId,
    /// Id of this process.
    pub process: ProcessId,
    /// `host:port` of the text protocol; the system chooses a port for 0.
    #[serde(default = "any_port")]
    pub text_address: String,
    /// `host:port` of gRPC.
    #[serde(default = "any_port")]
    pub grpc_address: String,
    /// `host:port` of the peer RPC.
    #[serde(default = "any_port")]
    pub peer_address: String,
    /// Listeners of clients beside those two, each for one organisation; one of the name `text` or `grpc` in the place of one of
    /// them. Those two are for the organisation `default`.
    #[serde(default)]
    pub listeners: Vec<ListenerOptions>,
    /// Host under which clients and peers reach this node; the one that is listened on if there is none.
    #[serde(default)]
    pub advertise_host: Option<String>,
    /// How the store writes to its disk: `auto`, `mmap` or `direct`.
    #[serde(default = "auto")]
    pub backend: String,
    /// When the store syncs its disk: `each`, `never` or `<n>ms`.
    #[serde(default = "each")]
    pub fsync: String,
    /// Records after which a segment is rolled.
    #[serde(default = "segment_entries_max")]
    pub segment_entries_max: u64,
    /// Bytes after which a segment is rolled.
    #[serde(default = "segment_bytes_max")]
    pub segment_bytes_max: u64,
    /// Age in milliseconds after which a segment is rolled; never for its age if 0.
    #[serde(default)]
    pub segment_age_ms_max: u64,
    /// Age in milliseconds before which no segment is rolled for its size or age.
    #[serde(default = "segment_age_ms_min")]
    pub segment_age_ms_min: u64,
    /// Milliseconds between two checks of the ages and sizes of open segments.
    #[serde(default = "monitor_check_ms")]
    pub monitor_check_ms: u64,
    /// Whether an append to an unknown topic creates it.
    #[serde(default = "yes")]
    pub auto_create_topics: bool,
    /// Milliseconds that an append waits for a leader and its acknowledgement at most.
    #[serde(default = "append_wait_ms")]
    pub append_wait_ms: u64,
    /// Limit on the bytes of a request of the text protocol.
    #[serde(default = "frame_bytes_max")]
    pub frame_bytes_max: u32,
    /// Block size of a new store.
    #[serde(default)]
    pub log_block_bytes: Option<u64>,
    /// Blocks per file of a new store.
    #[serde(default)]
    pub log_blocks_per_file: Option<u32>,
    /// Versions of the frames between brokers; others than the default are for tests of upgrades.
    #[serde(default)]
    pub wire_versions: WireVersions,
    /// File with the secrets that the cluster's nodes share, one a line; without it everybody can make their proofs.
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// Milliseconds for which a node that renews its lease no more is held to be alive; the same on all nodes.
    #[serde(default = "lease_ms")]
    pub lease_ms: u64,
    /// Milliseconds for which a copy may lack something, and get no further, before an alarm tells it.
    #[serde(default = "lacking_ms_max")]
    pub lacking_ms_max: u64,
    /// Threads that serve clients and peers, beside those that write to disks.
    #[serde(default = "workers")]
    pub workers: usize,
    /// Limit on the connections of one listener at a time.
    #[serde(default = "connections_max")]
    pub connections_max: usize,
    /// Limit on the connections of one listener from one address at a time.
    #[serde(default = "connections_max")]
    pub connections_per_address_max: usize,
    /// Limits on how long a connection may say nothing.
    #[serde(default)]
    pub patience: Patience,
    /// Limit on the bytes of requests and answers that this node holds at a time; by default a quarter of the memory that it
    /// may use.
    #[serde(default = "budget::default_bytes")]
    pub memory_budget_bytes: usize,
    /// Whether the metadata know no other node and no other voter, by the files that this start found: then nobody else can have
    /// voted, and a store that lost its votes is gone on with.
    #[serde(default)]
    pub is_only_node: bool,
    /// Where spans of appends and reads are sent; nowhere if there is none.
    #[serde(default)]
    pub spans: Option<SpanOptions>,
    /// Whether [`crate::DataPlane::test_control`] is open.
    #[serde(default)]
    pub test_controls: bool,
}

/// Limits on how long connections may say nothing, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Patience {
    /// From the connection to its first byte.
    pub first_byte_ms: u64,
    /// From the first byte to the whole header of its protocol.
    pub header_ms: u64,
    /// Later, between any two bytes. Brokers among themselves may be silent for ever.
    pub idle_ms: u64,
    /// Between two requests of the text protocol.
    pub text_idle_ms: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self { first_byte_ms: 60_000, header_ms: 5_000, idle_ms: 600_000, text_idle_ms: 3_600_000 }
    }
}

impl Patience {
    pub(crate) fn silence(self) -> Silence {
        Silence {
            first_byte: Duration::from_millis(self.first_byte_ms),
            header: Duration::from_millis(self.header_ms),
            idle: Duration::from_millis(self.idle_ms),
        }
    }

    pub(crate) fn text_idle(self) -> Duration {
        Duration::from_millis(self.text_idle_ms)
    }
}

impl Config {
    /// Parses the host's JSON; an unknown key is refused.
    pub fn parse(json: &str) -> Result<Self, ConfigError> {
        let config: Self = serde_json::from_str(json).map_err(|problem| ConfigError(problem.to_string()))?;
        check_positive("segment_entries_max", Some(config.segment_entries_max))?;
        check_positive("segment_bytes_max", Some(config.segment_bytes_max))?;
        check_positive("monitor_check_ms", Some(config.monitor_check_ms))?;
        if !(1..=WORKERS_MAX).contains(&config.workers) {
            return Err(ConfigError(format!("workers must be 1 to {WORKERS_MAX}")));
        }
        if config.memory_budget_bytes < budget::BYTES_MIN {
            return Err(ConfigError(format!("memory_budget_bytes must be at least {}", budget::BYTES_MIN)));
        }
        config.spans.as_ref().map_or(Ok(()), SpanOptions::check).map_err(ConfigError)?;
        config.store_options()?;
        let mut keys = Vec::new();
        for listener in &config.listeners {
            listener.check().map_err(ConfigError)?;
            let key = listener.key();
            if keys.contains(&key) {
                return Err(ConfigError(format!("there are two listeners {key}")));
            }
            keys.push(key);
        }
        Ok(config)
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            entries_max: self.segment_entries_max,
            bytes_max: self.segment_bytes_max,
            age_max: age_max(self.segment_age_ms_max),
            age_min: Duration::from_millis(self.segment_age_ms_min),
        }
    }

    pub(crate) fn caps(&self) -> Caps {
        Caps { connections: self.connections_max, per_address: self.connections_per_address_max }
    }

    pub(crate) fn monitor_period(&self) -> Duration {
        Duration::from_millis(self.monitor_check_ms)
    }

    /// The schedule of the store, for logs that have none of their own.
    pub(crate) fn fsync(&self) -> FsyncSchedule {
        self.fsync.parse().unwrap_or_default() // it was checked when the options were read
    }

    pub(crate) fn store_options(&self) -> Result<Options, ConfigError> {
        let refused = |error: walrus_log::Error| ConfigError(error.to_string());
        let defaults = Options::default();
        Ok(Options {
            backend: self.backend.parse().map_err(refused)?,
            fsync: self.fsync.parse().map_err(|problem: NoSchedule| refused(problem.into()))?,
            block_bytes: self.log_block_bytes.unwrap_or(defaults.block_bytes),
            blocks_per_file: self.log_blocks_per_file.unwrap_or(defaults.blocks_per_file),
            ..defaults
        })
    }
}

/// Options that may change while the data plane lives; a missing one stays.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LiveConfig {
    segment_entries_max: Option<u64>,
    segment_bytes_max: Option<u64>,
    segment_age_ms_max: Option<u64>,
    segment_age_ms_min: Option<u64>,
    monitor_check_ms: Option<u64>,
}

impl LiveConfig {
    pub(crate) fn parse(json: &str) -> Result<Self, ConfigError> {
        let live: Self = serde_json::from_str(json).map_err(|problem| ConfigError(problem.to_string()))?;
        check_positive("segment_entries_max", live.segment_entries_max)?;
        check_positive("segment_bytes_max", live.segment_bytes_max)?;
        check_positive("monitor_check_ms", live.monitor_check_ms)?;
        Ok(live)
    }

    pub(crate) fn limits(&self, now: Limits) -> Limits {
        Limits {
            entries_max: self.segment_entries_max.unwrap_or(now.entries_max),
            bytes_max: self.segment_bytes_max.unwrap_or(now.bytes_max),
            age_max: self.segment_age_ms_max.map_or(now.age_max, age_max),
            age_min: self.segment_age_ms_min.map_or(now.age_min, Duration::from_millis),
        }
    }

    pub(crate) fn monitor_period(&self) -> Option<Duration> {
        self.monitor_check_ms.map(Duration::from_millis)
    }
}

fn check_positive(name: &str, value: Option<u64>) -> Result<(), ConfigError> {
    if value == Some(0) { Err(ConfigError(format!("{name} must be at least 1"))) } else { Ok(()) }
}

fn age_max(ms: u64) -> Option<Duration> {
    (ms > 0).then(|| Duration::from_millis(ms))
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

fn segment_age_ms_min() -> u64 {
    1_000
}

fn monitor_check_ms() -> u64 {
    10_000
}

fn append_wait_ms() -> u64 {
    30_000
}

fn lacking_ms_max() -> u64 {
    60_000
}

fn lease_ms() -> u64 {
    3_000
}

/// The default of `workers`, one less than the cores that this process may use: commits and replicas have threads of their own,
/// and workers that find nothing to do are woken beside them all the same.
fn workers() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    cores.saturating_sub(1).clamp(1, WORKERS_DEFAULT_MAX)
}

pub(crate) fn connections_max() -> usize {
    20_000
}

fn yes() -> bool {
    true
}

fn frame_bytes_max() -> u32 {
    65_536
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = r#"{"data_dir": "d", "cluster_id": "00000000-0000-0000-0000-000000000001", "node_id": 1,
        "disk": "00000000-0000-0000-0000-000000000002", "process": "00000000-0000-0000-0000-000000000003" EXTRA}"#;

    fn parse(extra: &str) -> Result<Config, ConfigError> {
        Config::parse(&MINIMAL.replace("EXTRA", extra))
    }

    #[test]
    fn a_minimal_config_has_the_documented_defaults() {
        let config = parse("").unwrap();
        assert_eq!(config.segment_entries_max, 1_000_000);
        assert_eq!(config.monitor_check_ms, 10_000);
        assert_eq!(config.limits().age_max, None);
        assert_eq!((config.caps().connections, config.caps().per_address), (20_000, 20_000));
        let silence = config.patience.silence();
        let seconds = [silence.first_byte, silence.header, silence.idle, config.patience.text_idle()];
        assert_eq!(seconds.map(|time| time.as_secs()), [60, 5, 600, 3_600]);
        assert_eq!(config.memory_budget_bytes, budget::default_bytes());
        assert_eq!(config.store_options().unwrap().fsync, walrus_log::FsyncSchedule::SyncEach);
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_name() {
        let wrong = [
            (r#", "segmnt_bytes_max": 5"#, "segmnt_bytes_max"),
            (r#", "segment_entries_max": 0"#, "segment_entries_max"),
            (r#", "fsync": "0ms""#, "fsync"),
            (r#", "fsync": "sometimes""#, "fsync"),
            (r#", "backend": "floppy""#, "backend"),
            (r#", "workers": 0"#, "workers"),
            (r#", "workers": 1000"#, "workers"),
            (
                r#", "listeners": [{"protocol": "text", "name": "a", "org": "_walrus", "address": "h:1"}]"#,
                "organisation",
            ),
            (
                r#", "listeners": [{"protocol": "grpc", "name": "a", "address": "h:1"}, {"protocol": "grpc", "name": "a", "address": "h:2"}]"#,
                "two listeners grpc/a",
            ),
            (r#", "listeners": [{"protocol": "grpc", "address": "h:1"}]"#, "missing field `name`"),
            (
                r#", "listeners": [{"protocol": "kafka", "name": "a b", "address": "h:1"}]"#,
                "its name must be",
            ),
        ];
        for (extra, name) in wrong {
            let error = parse(extra).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn a_live_change_leaves_the_rest_as_it_is() {
        let before = parse("").unwrap().limits();
        let after = LiveConfig::parse(r#"{"segment_age_ms_max": 60000}"#).unwrap().limits(before);
        assert_eq!(after, Limits { age_max: Some(Duration::from_secs(60)), ..before });
        assert!(LiveConfig::parse(r#"{"data_dir": "x"}"#).is_err());
    }
}
