//! The APIs by which clients, tools and user interfaces look after a cluster: topics, their partitions, settings and records, and
//! what there is.

mod changes;
mod cluster;
mod configs;
mod described;
mod log_dirs;
mod records;
mod topics;

pub(super) use cluster::{describe_acls, describe_cluster, describe_producers, list_reassignments};
pub(super) use configs::{alter, alter_incrementally, describe};
pub(super) use log_dirs::describe_log_dirs;
pub(super) use records::delete_records;
pub(super) use topics::{add_partitions, create, delete};

use kafka_protocol::ResponseError;
use kafka_protocol::protocol::StrBytes;

use super::context::Context;
use super::errors;
use crate::edge::{Operation, Resource, is_allowed};
use crate::node::error::Error;
use crate::node::names::TopicPath;

/// Why something is not done, in Kafka's word and in ours.
#[derive(Clone, Debug)]
struct Refused {
    code: ResponseError,
    why: String,
}

impl Refused {
    fn new(code: ResponseError, why: impl Into<String>) -> Self {
        Self { code, why: why.into() }
    }

    fn message(&self) -> Option<StrBytes> {
        Some(StrBytes::from_string(self.why.clone()))
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::new(errors::of_change(&error), error.to_string())
    }
}

/// Refuses what a listener of strangers does not let its clients change.
fn check_admin(context: &Context) -> Result<(), Refused> {
    let why = || format!("listener {} changes nothing of the cluster (admin=off)", context.listener.name);
    let refused = || Refused::new(ResponseError::ClusterAuthorizationFailed, why());
    if context.listener.principal.may_change_topics() { Ok(()) } else { Err(refused()) }
}

/// Refuses whoever may not do this with the cluster.
fn check_cluster(context: &Context, operation: Operation) -> Result<(), Refused> {
    let refused = || Refused::new(ResponseError::ClusterAuthorizationFailed, "the cluster is not yours");
    let may = is_allowed(&context.listener.principal, operation, Resource::Cluster);
    if may { Ok(()) } else { Err(refused()) }
}

/// The topic that a client means, if it may do this with it.
fn topic(context: &Context, name: &str, operation: Operation) -> Result<TopicPath, Refused> {
    let principal = &context.listener.principal;
    let path = principal.topic(name)?;
    if !is_allowed(principal, operation, Resource::Topic(&path)) {
        return Err(Refused::new(
            ResponseError::TopicAuthorizationFailed,
            format!("topic {name} is not yours"),
        ));
    }
    Ok(path)
}
