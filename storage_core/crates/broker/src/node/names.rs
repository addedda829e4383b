//! Names of organisations, topics and partitions, checked once at the edge.

use std::fmt;
use std::sync::{Arc, LazyLock};

use walrus_metadata::{DEFAULT_ORG, INTERNAL_ORG, Topic, is_org_name};

use crate::node::error::{Error, Result};

/// Longest name of a topic, in bytes (Kafka's limit).
const NAME_BYTES_MAX: usize = 249;

static DEFAULT: LazyLock<Arc<str>> = LazyLock::new(|| DEFAULT_ORG.into());
static INTERNAL: LazyLock<Arc<str>> = LazyLock::new(|| INTERNAL_ORG.into());

/// A name of Kafka's alphabet: 1..=249 of `[A-Za-z0-9._-]`, neither `.` nor `..`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

impl TopicName {
    /// Checks the name.
    pub fn parse(name: &str) -> Result<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let problem = if name.is_empty() {
            "it is empty"
        } else if name.len() > NAME_BYTES_MAX {
            "it is longer than 249 bytes"
        } else if !name.bytes().all(allowed) {
            "only letters, digits, '.', '_' and '-' are allowed"
        } else if name == "." || name == ".." {
            "'.' and '..' are reserved"
        } else {
            return Ok(Self(name.into()));
        };
        let shown: String = name.chars().take(64).collect();
        Err(Error::InvalidTopic { topic: shown, problem: problem.to_owned() })
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The name of an organisation, or of the place of Walrus's own topics. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrgName(Arc<str>);

impl OrgName {
    /// Checks the name of an organisation; whether there is one of that name is for the metadata to say.
    pub fn parse(name: &str) -> Result<Self> {
        if name == DEFAULT_ORG {
            return Ok(Self::default());
        }
        if !is_org_name(name) {
            let shown: String = name.chars().take(63).collect();
            let problem = format!(
                "{shown:?} is not a name of an organisation: 1 to 63 of [A-Za-z0-9._-], the first a letter or digit"
            );
            return Err(Error::InvalidRequest { problem });
        }
        Ok(Self(name.into()))
    }

    /// The place of Walrus's own topics, which no client can name.
    pub(crate) fn internal() -> Self {
        Self(INTERNAL.clone())
    }

    /// Whether it is the place of Walrus's own topics.
    pub(crate) fn is_internal(&self) -> bool {
        *self.0 == *INTERNAL_ORG
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for OrgName {
    /// The organisation of listeners that name none.
    fn default() -> Self {
        Self(DEFAULT.clone())
    }
}

impl fmt::Display for OrgName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The name of a topic with the organisation in which it means that topic. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPath {
    /// The organisation.
    pub org: OrgName,
    /// The name in it.
    pub name: TopicName,
}

impl TopicPath {
    /// The path of a topic in the organisation `default`.
    pub fn parse(name: &str) -> Result<Self> {
        Ok(Self { org: OrgName::default(), name: TopicName::parse(name)? })
    }

    /// The path of one of Walrus's own topics. No request of a client leads here.
    pub fn internal(name: &str) -> Result<Self> {
        Ok(Self { org: OrgName::internal(), name: TopicName::parse(name)? })
    }

    /// The path of a listed topic. Walrus's own have their place also in a cluster whose metadata do not know it yet.
    pub(crate) fn of(topic: &Topic) -> Result<Self> {
        if topic.internal {
            return Self::internal(&topic.name);
        }
        Ok(Self { org: OrgName::parse(&topic.org)?, name: TopicName::parse(&topic.name)? })
    }
}

impl fmt::Display for TopicPath {
    /// The name alone in the organisation `default`, else `organisation/name`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.org.as_str() != DEFAULT_ORG {
            write!(formatter, "{}/", self.org)?;
        }
        self.name.fmt(formatter)
    }
}

/// A partition of a named topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionRef {
    /// The topic.
    pub topic: TopicPath,
    /// Place in the topic, from 0.
    pub partition: u32,
}

impl PartitionRef {
    /// A partition of a topic in the organisation `default`; whether it exists is for the router to say.
    pub fn parse(topic: &str, partition: u32) -> Result<Self> {
        Ok(Self { topic: TopicPath::parse(topic)?, partition })
    }
}

impl fmt::Display for PartitionRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.topic, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_shows_its_organisation_unless_that_is_the_default_one() {
        let path = |org: &str| TopicPath {
            org: OrgName::parse(org).unwrap(),
            name: TopicName::parse("__cursors").unwrap(),
        };
        assert_eq!(path("default").to_string(), "__cursors");
        assert_eq!(path("default"), TopicPath::parse("__cursors").unwrap());
        assert_eq!(path("acme").to_string(), "acme/__cursors");
        assert_eq!(TopicPath::internal("__cursors").unwrap().to_string(), "_walrus/__cursors");
    }

    #[test]
    fn no_client_can_name_the_place_of_walruss_own_topics() {
        for name in [INTERNAL_ORG, "", "a/b", &"x".repeat(64)] {
            assert_eq!(OrgName::parse(name).unwrap_err().reason(), "InvalidRequest", "{name}");
        }
    }
}
