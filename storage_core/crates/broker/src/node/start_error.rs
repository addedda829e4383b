//! The errors for which a data plane does not start.

use std::io;

use walrus_model::DiskId;

use crate::node::config::ConfigError;
use crate::node::error::Error;

/// Why a data plane did not start. Nothing is left behind: no thread, no socket, no lock.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The config cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] walrus_log::Error),
    /// Another program listens on the address.
    #[error(
        "{address} is in use: stop the program that listens there, or choose another port for {listener}"
    )]
    AddressInUse {
        /// `text`, `grpc` or `peer`.
        listener: &'static str,
        /// `host:port`.
        address: String,
    },
    /// The store's journal lost its end, and with it what the disk had promised.
    #[error(
        "the journal of disk {disk} had lost its end, and with it votes and promises of this node's copies: it must not vote \
         again. Its node comes back as another disk, beside which this one's logs are kept to fetch from"
    )]
    LostPromises {
        /// The disk, as the metadata know it.
        disk: DiskId,
    },
    /// What the disk remembers of trims cannot be read.
    #[error(
        "{source}; this node must not vote before it can: start a version that reads it, or start on an empty data directory"
    )]
    Unreadable {
        /// Why it cannot be read.
        source: Error,
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
