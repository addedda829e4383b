//! Listeners of clients between their options and whoever serves them.

use tokio::net::TcpListener;
use walrus_metadata::Protocol;

use crate::node::config::ConfigError;
use crate::node::listener_options::ListenerOptions;
use crate::node::names::OrgName;

/// A listener of clients whose socket is bound.
pub(crate) struct ClientListener {
    pub(crate) protocol: Protocol,
    /// Its name among the addresses.
    pub(crate) key: String,
    pub(crate) org: OrgName,
    pub(crate) bound: TcpListener,
    /// `host:port` that clients are told, where it is not where it is bound.
    pub(crate) advertise: Option<String>,
    pub(crate) admin: bool,
}

impl ClientListener {
    /// One of the two that every node has.
    pub(crate) fn of_default(protocol: Protocol, bound: TcpListener) -> Self {
        let (key, org) = (protocol.name().to_owned(), OrgName::default());
        Self { protocol, key, org, bound, advertise: None, admin: true }
    }

    /// One of those that the options name.
    pub(crate) fn of(options: &ListenerOptions, bound: TcpListener) -> Result<Self, ConfigError> {
        let org = OrgName::parse(&options.org).map_err(|error| ConfigError::new(&error.to_string()))?;
        let (key, advertise) = (options.key(), options.advertise.clone());
        Ok(Self { protocol: options.protocol, key, org, bound, advertise, admin: options.admin })
    }
}
