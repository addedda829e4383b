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
    /// Name of a listener of Kafka's protocol, the same on all nodes; the other protocols have none.
    #[serde(default)]
    pub name: String,
    /// Name of the organisation of its clients.
    #[serde(default = "default_org")]
    pub org: String,
    /// `host:port`; the system chooses a port for 0.
    pub address: String,
    /// `host:port` that its clients are told; by default [`Config::advertise_host`](super::config::Config::advertise_host) and the bound port. Kafka only.
    #[serde(default)]
    pub advertise: Option<String>,
    /// Whether its clients may change topics, such as by naming one that there is not yet. Kafka only.
    #[serde(default = "yes")]
    pub admin: bool,
}

impl ListenerOptions {
    /// The name among the addresses of a node: that of the protocol, and behind it the listener's own or that of its
    /// organisation.
    pub(crate) fn key(&self) -> String {
        let own = if self.protocol == Protocol::Kafka { &self.name } else { &self.org };
        format!("{}/{own}", self.protocol.name())
    }

    /// Says what is wrong with the options.
    pub(super) fn check(&self) -> Result<(), String> {
        let (key, is_kafka) = (self.key(), self.protocol == Protocol::Kafka);
        OrgName::parse(&self.org).map_err(|error| format!("listener {key}: {error}"))?;
        if is_kafka && !is_org_name(&self.name) {
            let problem = "its name must be 1 to 63 of [A-Za-z0-9._-], the first a letter or digit";
            return Err(format!("listener {key}: {problem}"));
        }
        if !is_kafka && (!self.name.is_empty() || self.advertise.is_some() || !self.admin) {
            let problem = "`name`, `advertise` and `admin` are for listeners of Kafka's protocol";
            return Err(format!("listener {key}: {problem}"));
        }
        Ok(())
    }
}

fn default_org() -> String {
    DEFAULT_ORG.to_owned()
}

fn yes() -> bool {
    true
}
