//! From a request to its answer.

use std::net::IpAddr;

use super::answer::Outcome;
use super::context::Context;
use super::frame::Header;
use super::request::Request;
use super::window::Answering;
use super::{
    api_versions, fetch, groups, init_producer_id, list_offsets, metadata, offset_for_leader_epoch, produce,
    refusals,
};

/// The future that answers a request; it does nothing before it is polled.
pub(super) fn begin(
    context: &Context,
    from: IpAddr,
    header: Header,
    request: Option<Request>,
) -> Answering<'_> {
    let version = header.version;
    macro_rules! answered {
        ($answer:expr) => {
            Box::pin(async move { Outcome::of(header, &$answer.await) })
        };
    }
    let Some(request) = request else {
        return Box::pin(async move { refuse(header) });
    };
    match request {
        Request::Produce(request) => Box::pin(produce::outcome(context, header, request)),
        Request::Fetch(request) => Box::pin(fetch::outcome(context, header, request)),
        Request::ListOffsets(request) => answered!(list_offsets::answer(context, version, request)),
        Request::Metadata(request) => answered!(metadata::answer(context, version, request)),
        Request::OffsetCommit(request) => answered!(groups::commit(context, request)),
        Request::OffsetFetch(request) => answered!(groups::fetch(context, version, request)),
        Request::FindCoordinator(request) => answered!(groups::find(context, version, request)),
        Request::JoinGroup(request, id) => {
            let client = groups::Client { id, host: from };
            answered!(groups::join(context, version, client, request))
        }
        Request::Heartbeat(request) => answered!(groups::heartbeat(context, request)),
        Request::LeaveGroup(request) => answered!(groups::leave(context, version, request)),
        Request::SyncGroup(request) => answered!(groups::sync(context, version, request)),
        Request::DescribeGroups(request) => answered!(groups::describe(context, version, request)),
        Request::ListGroups(request) => answered!(groups::list(context, version, request)),
        Request::DeleteGroups(request) => answered!(groups::delete_groups(context, request)),
        Request::OffsetDelete(request) => answered!(groups::delete_offsets(context, request)),
        Request::ApiVersions(request) => Box::pin(async move {
            let (name, version) = (&request.client_software_name, &request.client_software_version);
            tracing::debug!(?name, ?version, "a Kafka client asks for the APIs");
            Outcome::of(header, &api_versions::answer())
        }),
        Request::InitProducerId(request) => {
            Box::pin(async move { Outcome::of(header, &init_producer_id::answer(context, &request)) })
        }
        Request::OffsetForLeaderEpoch(request) => {
            answered!(offset_for_leader_epoch::answer(context, request))
        }
    }
}

fn refuse(header: Header) -> Outcome {
    let Header { api, version, .. } = header;
    let why = || format!("API {api} in version {version} is not served, and has no answer that could say so");
    refusals::answer(header).map_or_else(|| Outcome::Closed { why: why() }, Outcome::Answered)
}
