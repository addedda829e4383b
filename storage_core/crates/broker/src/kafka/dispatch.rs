//! From a request to its answer.

use super::answer::Outcome;
use super::context::Context;
use super::frame::Header;
use super::request::Request;
use super::window::Answering;
use super::{
    api_versions, fetch, init_producer_id, list_offsets, metadata, offset_for_leader_epoch, produce, refusals,
};

/// The future that answers a request; it does nothing before it is polled.
pub(super) fn begin(context: &Context, header: Header, request: Option<Request>) -> Answering<'_> {
    let Some(request) = request else {
        return Box::pin(async move { refuse(header) });
    };
    match request {
        Request::Produce(request) => Box::pin(produce::outcome(context, header, request)),
        Request::Fetch(request) => Box::pin(fetch::outcome(context, header, request)),
        Request::ListOffsets(request) => Box::pin(async move {
            Outcome::of(header, &list_offsets::answer(context, header.version, request).await)
        }),
        Request::Metadata(request) => {
            Box::pin(
                async move { Outcome::of(header, &metadata::answer(context, header.version, request).await) },
            )
        }
        Request::ApiVersions(request) => Box::pin(async move {
            let (name, version) = (&request.client_software_name, &request.client_software_version);
            tracing::debug!(?name, ?version, "a Kafka client asks for the APIs");
            Outcome::of(header, &api_versions::answer())
        }),
        Request::InitProducerId(request) => {
            Box::pin(async move { Outcome::of(header, &init_producer_id::answer(context, &request)) })
        }
        Request::OffsetForLeaderEpoch(request) => {
            Box::pin(
                async move { Outcome::of(header, &offset_for_leader_epoch::answer(context, request).await) },
            )
        }
    }
}

fn refuse(header: Header) -> Outcome {
    let Header { api, version, .. } = header;
    let why = || format!("API {api} in version {version} is not served, and has no answer that could say so");
    refusals::answer(header).map_or_else(|| Outcome::Closed { why: why() }, Outcome::Answered)
}
