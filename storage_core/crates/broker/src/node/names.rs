//! Names of topics and partitions, checked once at the edge.

use std::fmt;
use std::sync::Arc;

use crate::node::error::{Error, Result};

/// Longest name of a topic, in bytes (Kafka's limit).
const NAME_BYTES_MAX: usize = 249;

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

    /// Checks the name of a topic that a client creates, appends to or reads: what begins with `__` is Walrus's own.
    pub fn of_client(name: &str) -> Result<Self> {
        if name.starts_with("__") {
            let problem = "names that begin with '__' are for topics of Walrus itself".to_owned();
            return Err(Error::InvalidTopic { topic: name.chars().take(64).collect(), problem });
        }
        Self::parse(name)
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

/// A partition as clients name it, in the organisation `default`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionRef {
    /// Name of the topic.
    pub topic: TopicName,
    /// Place in the topic, from 0.
    pub partition: u32,
}

impl PartitionRef {
    /// Checks the topic's name; whether the partition exists is for the router to say.
    pub fn parse(topic: &str, partition: u32) -> Result<Self> {
        Ok(Self { topic: TopicName::parse(topic)?, partition })
    }
}

impl fmt::Display for PartitionRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.topic, self.partition)
    }
}
