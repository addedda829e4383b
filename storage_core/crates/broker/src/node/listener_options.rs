//! Options of a listener of clients.

use serde::Deserialize;
use walrus_metadata::{DEFAULT_ORG, Protocol, is_org_name};

use crate::node::names::OrgName;

/// A listener of clients, as it is to be opened.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerOptions {
    /// What is spoken there.
    pub protocol: Protocol,
    /// Its name, the same on all nodes. The one that is called as its protocol takes the place of the one that every node has.
    pub name: String,
    /// Name of the organisation of its clients.
    #[serde(default = "default_org")]
    pub org: String,
    /// `host:port`; the system chooses a port for 0.
    pub address: String,
    /// `host:port` that its clients are told; by default [`Config::advertise_host`](super::config::Config::advertise_host) and the bound port.
    /// Empty where only the metadata will say it.
    #[serde(default)]
    pub advertise: Option<String>,
    /// Whether its clients may change topics, such as by naming one that there is not yet.
    #[serde(default = "yes")]
    pub admin: bool,
}

impl ListenerOptions {
    /// The name among the addresses of a node: that of the protocol, and behind it the listener's own.
    pub(crate) fn key(&self) -> String {
        let protocol = self.protocol.name();
        if self.replaces_default() { protocol.to_owned() } else { format!("{protocol}/{}", self.name) }
    }

    /// Whether it takes the place of the listener that every node has of the protocol; none has one of Kafka's.
    fn replaces_default(&self) -> bool {
        self.protocol != Protocol::Kafka && self.name == self.protocol.name()
    }

    /// Says what is wrong with the options.
    pub(super) fn check(&self) -> Result<(), String> {
        let key = format!("{}/{}", self.protocol.name(), self.name);
        OrgName::parse(&self.org).map_err(|error| format!("listener {key}: {error}"))?;
        if is_org_name(&self.name) {
            return Ok(());
        }
        let problem = "its name must be 1 to 63 of [A-Za-z0-9._-], the first a letter or digit";
        Err(format!("listener {key}: {problem}"))
    }
}

fn default_org() -> String {
    DEFAULT_ORG.to_owned()
}

fn yes() -> bool {
    true
}
