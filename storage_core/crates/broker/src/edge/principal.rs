//! The principal: who speaks on a connection. It is known when the connection is accepted, and never taken from a request.

use crate::node::error::Result;
use crate::node::names::{OrgName, PartitionRef, TopicName, TopicPath};

/// Who speaks. Nobody has to prove who they are yet, so everybody is the anonymous user of their listener's organisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The organisation that gives meaning to every name in their requests.
    pub(crate) org: OrgName,
    pub(super) grants: Grants,
}

/// What a principal may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grants {
    Everything,
    /// They may do all but make, change and delete topics; a listener of strangers lets nobody.
    Use,
    /// Tests prove that every request asks.
    #[cfg(test)]
    Nothing,
}

impl Principal {
    /// Whoever reaches a listener of an organisation; without `admin` they may change no topics.
    pub(crate) fn anonymous(org: OrgName, admin: bool) -> Self {
        Self { org, grants: if admin { Grants::Everything } else { Grants::Use } }
    }

    /// Somebody of an organisation who may do nothing.
    #[cfg(test)]
    pub(crate) fn without_grants(org: OrgName) -> Self {
        Self { org, grants: Grants::Nothing }
    }

    /// Whether topics may be made, changed and deleted through their listener at all.
    pub(crate) fn may_change_topics(&self) -> bool {
        self.grants != Grants::Use
    }

    /// The topic that the principal means by a name.
    pub(crate) fn topic(&self, name: &str) -> Result<TopicPath> {
        Ok(self.path(TopicName::parse(name)?))
    }

    /// The topic that the principal means by a name that was checked.
    pub(crate) fn path(&self, name: TopicName) -> TopicPath {
        TopicPath { org: self.org.clone(), name }
    }

    /// The partition that the principal means.
    pub(crate) fn partition(&self, topic: &str, partition: u32) -> Result<PartitionRef> {
        Ok(PartitionRef { topic: self.topic(topic)?, partition })
    }
}
