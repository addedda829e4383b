//! The APIs of consumer groups. A group is asked at its coordinator, which any node tells; another node says that it is none.

mod coordinator;
mod deleting;
mod describing;
mod errors;
mod membership;
mod offsets;

pub(super) use coordinator::find;
pub(super) use deleting::{delete_groups, delete_offsets};
pub(super) use describing::{describe, list};
pub(super) use membership::{Client, heartbeat, join, leave, sync};
pub(super) use offsets::{METADATA_BYTES_MAX, commit, fetch};

use kafka_protocol::ResponseError;
use kafka_protocol::protocol::StrBytes;
use walrus_groups::GroupName;

use super::context::Context;
use crate::edge::{Operation, Resource, is_allowed};

/// The group that a client means, if it may do this with it.
fn group(context: &Context, id: &str, operation: Operation) -> Result<GroupName, ResponseError> {
    let principal = &context.listener.principal;
    if id.is_empty() {
        return Err(ResponseError::InvalidGroupId);
    }
    if !is_allowed(principal, operation, Resource::Group(id)) {
        return Err(ResponseError::GroupAuthorizationFailed);
    }
    Ok(GroupName { org: principal.org.to_string(), name: id.to_owned() })
}

fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}
