//! FindCoordinator: the node that coordinates a group, as the clients of this listener reach it.

use futures_util::future::join_all;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;

use super::text;
use crate::edge::Operation;
use crate::kafka::context::Context;
use crate::kafka::metadata::Brokers;

/// The kind of coordinator that groups have.
const OF_GROUPS: i8 = 0;
/// The first version that asks for many at once.
const MANY_SINCE: i16 = 4;

/// A coordinator: its id, host and port.
type Found = Result<(BrokerId, String, u16), (ResponseError, &'static str)>;

pub(in crate::kafka) async fn find(
    context: &Context,
    version: i16,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let kind = request.key_type;
    if version >= MANY_SINCE {
        let looks = request.coordinator_keys.into_iter().map(|key| async move {
            let found = look(context, kind, &key).await;
            row(key, found)
        });
        return FindCoordinatorResponse::default().with_coordinators(join_all(looks).await);
    }
    let found = look(context, kind, &request.key).await;
    let Coordinator { node_id, host, port, error_code, error_message, .. } = row(request.key, found);
    FindCoordinatorResponse::default()
        .with_error_code(error_code)
        .with_error_message(error_message.filter(|_| version > 0))
        .with_node_id(node_id)
        .with_host(host)
        .with_port(port)
}

fn row(key: StrBytes, found: Found) -> Coordinator {
    let row = Coordinator::default().with_key(key);
    match found {
        Ok((node, host, port)) => row.with_node_id(node).with_host(text(host)).with_port(port.into()),
        Err((code, why)) => row
            .with_error_code(code.code())
            .with_error_message((!why.is_empty()).then(|| StrBytes::from_static_str(why)))
            .with_node_id(BrokerId(-1))
            .with_port(-1),
    }
}

async fn look(context: &Context, kind: i8, key: &StrBytes) -> Found {
    if kind != OF_GROUPS {
        // For good: Java's producer would try for a minute after an error that may go away.
        return Err((ResponseError::TransactionalIdAuthorizationFailed, "transactions are not there yet"));
    }
    let name = super::group(context, key, Operation::Describe).map_err(|code| (code, ""))?;
    // Whatever is wrong may be right a moment later: a client that is told anything else gives up.
    let not_yet = |why| (ResponseError::CoordinatorNotAvailable, why);
    let node = context.broker.groups().coordinator(&name).await.map_err(|error| {
        tracing::debug!(group = name.name, %error, "a coordinator is not known");
        not_yet("nobody coordinates the group just now")
    })?;
    let no_address = not_yet("the broker that coordinates the group has no address in this listener yet");
    Brokers::of(context).address(node).ok_or(no_address)
}
