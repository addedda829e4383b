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

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use kafka_protocol::ResponseError;
use kafka_protocol::protocol::StrBytes;
use tokio::time::{Instant, timeout_at};

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

/// Changes of one request that are under way at once: the metadata record those that come together together.
const AT_ONCE: usize = 32;

/// Makes each change that a request names, several of them at once, and answers in the order of the request. Once the request's time
/// is over, nothing more is begun, and what was begun is answered with `REQUEST_TIMED_OUT` and may yet be done. A time of 0 or less
/// is no limit: Kafka answers those before it knows, and here the answer is the one that came of it.
async fn each<W, F, D>(wanted: Vec<W>, timeout_ms: i32, change: impl Fn(W) -> F) -> Vec<Result<D, Refused>>
where
    F: Future<Output = Result<D, Refused>>,
{
    let limit = u64::try_from(timeout_ms).ok().filter(|limit| *limit > 0).map(Duration::from_millis);
    let deadline = limit.map(|limit| Instant::now() + limit);
    let changes = wanted.into_iter().map(|wanted| {
        let change = change(wanted);
        async move {
            let Some(deadline) = deadline else { return change.await };
            let late = |begun| {
                let why = format!("{begun} within the {timeout_ms} ms of the request");
                Refused::new(ResponseError::RequestTimedOut, why)
            };
            if Instant::now() >= deadline {
                return Err(late("it was not begun"));
            }
            timeout_at(deadline, change).await.unwrap_or_else(|_| Err(late("it may be done, and was not")))
        }
    });
    stream::iter(changes).buffered(AT_ONCE).collect().await
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
