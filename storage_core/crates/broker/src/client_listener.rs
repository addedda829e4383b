//! Listeners of clients between their options and whoever serves them.

use tokio::net::TcpListener;
use walrus_metadata::Protocol;

use crate::edge::Principal;
use crate::node::config::ConfigError;
use crate::node::listener_options::ListenerOptions;
use crate::node::names::OrgName;

/// A listener of clients whose socket is bound.
pub(crate) struct ClientListener {
    pub(crate) protocol: Protocol,
    /// Its name among those of its protocol.
    pub(crate) name: String,
    /// Its name among the addresses.
    pub(crate) key: String,
    pub(crate) bound: TcpListener,
    /// `host:port` that clients are told, where it is not where it is bound.
    pub(crate) advertise: Option<String>,
    /// Who its clients are.
    pub(crate) principal: Principal,
}

impl ClientListener {
    /// One of the two that every node has.
    pub(crate) fn of_default(protocol: Protocol, bound: TcpListener) -> Self {
        let (name, key) = (protocol.name().to_owned(), protocol.name().to_owned());
        let principal = Principal::anonymous(OrgName::default(), true);
        Self { protocol, name, key, bound, advertise: None, principal }
    }

    /// One of those that the options name.
    pub(crate) fn of(options: &ListenerOptions, bound: TcpListener) -> Result<Self, ConfigError> {
        let org = OrgName::parse(&options.org).map_err(|error| ConfigError::new(&error.to_string()))?;
        Ok(Self {
            protocol: options.protocol,
            name: options.name.clone(),
            key: options.key(),
            bound,
            advertise: options.advertise.clone(),
            principal: Principal::anonymous(org, options.admin),
        })
    }
}
