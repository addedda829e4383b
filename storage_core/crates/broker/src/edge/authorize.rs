//! The one place where it is decided what a principal may do. There are no grants yet, so everything is allowed but changes of
//! topics by whoever came through a listener that lets nobody change them; every request asks, before it looks for what it names,
//! so that what is hidden will look like what is absent.

use std::fmt;

use super::principal::{Grants, Principal};
use crate::node::error::{Error, Result};
use crate::node::names::TopicPath;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Looks at what there is, not at records.
    Describe,
    /// Reads records.
    Read,
    /// Appends records.
    Write,
    /// Makes it.
    Create,
    /// Deletes it, or what it has.
    Delete,
    /// Changes how it is kept.
    Alter,
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Describe => "describe",
            Self::Read => "read",
            Self::Write => "write to",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Alter => "alter",
        })
    }
}

/// What a request does something with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resource<'a> {
    /// A topic, be it there or not.
    Topic(&'a TopicPath),
    /// A consumer group, be it there or not.
    Group(&'a str),
    /// The principal's organisation as a whole.
    Cluster,
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(path) => write!(formatter, "topic {path}"),
            Self::Group(name) => write!(formatter, "group {name}"),
            Self::Cluster => formatter.write_str("cluster"),
        }
    }
}

/// Whether a principal may do this.
pub(crate) fn is_allowed(principal: &Principal, operation: Operation, resource: Resource<'_>) -> bool {
    let changes = matches!(operation, Operation::Create | Operation::Delete | Operation::Alter);
    let is_allowed = match principal.grants {
        Grants::Everything => true,
        Grants::Use => !changes || matches!(resource, Resource::Group(_)),
        #[cfg(test)]
        Grants::Nothing => false,
    };
    tracing::trace!(org = %principal.org, ?operation, %resource, is_allowed);
    is_allowed
}

/// Refuses what a principal may not do.
pub(crate) fn check_allowed(
    principal: &Principal,
    operation: Operation,
    resource: Resource<'_>,
) -> Result<()> {
    if is_allowed(principal, operation, resource) {
        return Ok(());
    }
    Err(Error::NotAllowed { operation: format!("to {operation} {resource}") })
}
